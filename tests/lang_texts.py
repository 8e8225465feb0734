"""Kernels from texts: as a notebook defines them, and mutated."""

from __future__ import annotations

import ast
import inspect
import linecache
import random
import re
from itertools import count
from typing import Any

import tilewright as tw

_numbers = count()
# What mutations put in the place of what is there.
NAMES = ["i", "x", "n", "tw", "range", "max", "abs", "len", "unknown", "self", "None", "True"]
ATOMS = (
    """
0 | 1 | -1 | 2**40 | 1.5 | 1e30 | 'text' | None | True | (1, 2) | () | [1] | {}
tw.global_id(0) | tw.global_id(7) | tw.local_id(0) | tw.f32 | tw.bf16(1.5) | x | x[0] | x[0, 0]
x[1:2] | x[:] | x.shape | x.shape[0] | x.T | n | n / 2 | n // 0 | lambda: 1 | (y := 1) | f'{n}'
[k for k in range(3)] | print(n) | tw.local(4, 'f32') | tw.barrier() | tw.private(3, 'u8')
tw.unknown(1) | tw | range(4) | int(1.5) | x[n] | x[1.5] | not n | 1 if n else 2.0 | n and x[0]
0 < n < 3 | n is None | n in (1, 2) | n @ n | n ** 2 | tw.atomic_add(x, 0, 1)
tw.group_reduce(n, 'add') | tw.subgroup_reduce(n, 'add') | *x
tw.vector(n, 1.5) | tw.vector() | tw.vector(1, 2)[n] | tw.load_vector(x, 0, 2)
tw.store_vector(x, n, n) | tw.vector_reduce(x, 'add')
tw.joint_matrix('a', 4, 4, 'f32') | tw.group_scan(1.5, 'xor') | 2 << 5000 | 1 // 0 | ~1.5
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)
STATEMENTS = (
    """
pass | return | return 1 | break | continue | yield 1 | del x | raise ValueError() | import math
global n | nonlocal n | assert n | assert 0, 'no' | x = 1 | n = x | i = 1.5 | x[0] = 1
x[0] += 1.5 | a, b = 1, 2 | a, b = n | a = b = n | tw.barrier() | n: tw.f32 = 1 | q: int = 1
q: tw.s8 | with n: pass | tw.printf('{}') | tw.printf('{}', n) | print(n, 'a')
for k in range(n): pass | for k in x: pass | for k, j in range(3): x[0] = 1
for k in tw.static_range(n): pass | for k in range(3, n, 0): break | while n: n -= 1
while True: break | while n > 0: tw.barrier() | def inner(): pass | class C: pass | (1, 2)
for k in (1, n): x[0] = k | n = tw.vector(n, 1) | i = tw.vector(1, 2) + i | v = tw.vector(n) * x[0]
v += 1 | undefined += 1 | x.shape[0] = 1 | x = tw.local(3, 'f32')
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)
STATEMENTS += [
    "try:\n        pass\n    except E:\n        pass",
    "for k in range(3):\n        if n: continue\n        return",
]
_WORD = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[-+*/%<>=!&|^]=?|//|\*\*|==")


def defined(text: str, **names: Any) -> dict[str, Any]:
    """What ``text`` defines: its source is known, as that of a notebook's cell is."""
    file = f"<cell {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"tw": tw, **names}
    exec(compile(text, file, "exec"), space)
    return space


def source(function: Any) -> str:
    """The text of a kernel or of a function of kernels."""
    return inspect.getsource(inspect.unwrap(function))


def mutated(text: str, rng: random.Random) -> str:
    """``text`` with a few things exchanged; it may be no Python any more."""
    for _ in range(rng.randint(1, 3)):
        text = rng.choice((_word, _expression, _statement, _line))(text, rng)
    return text


def _word(text: str, rng: random.Random) -> str:
    body = text.index(":\n") if ":\n" in text else 0
    words = [match for match in _WORD.finditer(text) if match.start() > body]
    if not words:
        return text
    word = rng.choice(words)
    new = rng.choice([*NAMES, *(matched.group() for matched in words)])
    return text[: word.start()] + new + text[word.end() :]


def _expression(text: str, rng: random.Random) -> str:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    functions = [part for part in ast.walk(tree) if isinstance(part, ast.FunctionDef)]
    nodes = [
        part
        for function in functions
        for stmt in function.body
        for part in ast.walk(stmt)
        if isinstance(part, ast.expr) and part.lineno == part.end_lineno
    ]
    if not nodes:
        return text
    node = rng.choice(nodes)
    lines = text.splitlines(keepends=True)
    line = lines[node.lineno - 1]
    lines[node.lineno - 1] = (
        line[: node.col_offset] + rng.choice(ATOMS) + line[node.end_col_offset :]
    )
    return "".join(lines)


def _statement(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if line.startswith("    ") and line.strip()]
    if not places:
        return text
    at = rng.choice(places)
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    new = rng.choice(STATEMENTS).replace("\n    ", "\n" + indent)
    if rng.random() < 0.5:
        lines[at] = f"{indent}{new}\n"
    else:
        lines.insert(at, f"{indent}{new}\n")
    return "".join(lines)


def _line(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if line.startswith("    ")]
    if not places:
        return text
    at = rng.choice(places)
    if rng.random() < 0.5:
        del lines[at]
    else:
        lines.insert(at, lines[rng.choice(places)])
    return "".join(lines)
