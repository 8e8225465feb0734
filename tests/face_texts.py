"""Texts of kernels, right ones and mutated, and what is done with each.

The seeds are random kernels (`random_ir` draws every form that there is), the stages of small ops,
and `SEEDS`: one text for each form, which is where a form that is new belongs, too.
"""

from __future__ import annotations

import random
import re
from dataclasses import fields
from functools import cache
from math import inf, prod
from textwrap import dedent
from typing import Any

import numpy as np

import compute_cases
import kernel_examples
import tilewright as tw
from face_calls import words
from random_ir import random_kernel
from tilewright.interpret import run
from tilewright.ir import parse_kernel, same, to_text, verify
from tilewright.ir.expr import Const, Expr
from tilewright.ir.stmt import Allocate, Compute, For, Kernel, LoopKind, ScalarParam, Stmt, While
from tilewright.ir.symbols import bind_scalars
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.targets.registry import find_target

SEEDS = (
    *(dedent(case.text).strip() for case in compute_cases.CASES.values()),
    *(dedent(case.text).strip() for case in kernel_examples.EXAMPLES.values()),
    """kernel symbols(
    m: s64 in 1..64, n: s64 in 4..64 by 4, alpha: f32,
    in a: f32[m, n], out c: f32[m, n] {0:m:((n + 15) // 16 * 16) 1:n:1},
):
  alloc w: f32[n, m]
  compute turn(i in m, j in n):
    x = a[i, j]
    w[j, i] = x * alpha
  compute back(i in m, j in n):
    x = w[j, i]
    c[i, j] = x
""",
    """kernel roots(in a: f32[8], out root: f32[8]):
  for i in 8:
    alloc x: f32[1] private
    x[0] = max(a[i], 1.0)
    while a[i] * 1e-06 < x[0] * x[0] - a[i]:
      x[0] = (x[0] + a[i] / x[0]) * 0.5
    root[i] = x[0]
""",
    """kernel bits(in a: u32[16], out b: u32[16], out c: f32[16]):
  for i in 16:
    b[i] = mulhi(a[i], a[i] >> u32(3)) ^ (clz(a[i]) << popcount(a[i]))
    c[i] = bitcast(f32, a[i] or u32(7) and not b[i])
""",
    """kernel forms(in a: f32[8, 4], inout b: f32[4, 30] {1:2:64 0:4:16 1:16:1 +8 ^1:3:2}):
  alloc t: f32[4] private
  x = 3 // 2 % 5 ^ 1
  s: s8 = s8(-3) + s8(x)
  flag: bool = not (x < 4 and s != s8(2)) or True
  unrolled for i in 4:
    t[i] = select(flag, a[i, 1 | i < 3], -(1.5e0) * f32(s))
    if i <= x:
      b[i, i * 2] = max(min(t[i], inf), exp(nan))
    else:
      pass
  block:
    prefetch(&b[x, 0])
  compute main(m in 4, k in 8):
    e = a[k, m | k < 7]
    b[m, 3] add= e * f32(bf16(e))
""",
    """kernel grids(in a: s32[64], out c: s32[64]):
  grid for g in 4:
    alloc shared: s32[16] workgroup
    workgroup for l in 16:
      shared[l] = a[g * 16 + l]
      barrier()
      c[g * 16 + l] = shared[15 - l]
""",
)
_NUMBERS = words(
    "0 1 2 7 64 1000000 2147483648 4611686018427387904 9223372036854775807 9223372036854775808 "
    "18446744073709551616 99999999999999999999999999999 1e400 1.5 inf nan -1"
)
_WORDS = words(
    "for while if else in pass block: alloc compute barrier() True False not and or min( max( exp( "
    "select( s64( f32( s8( bool( bitcast( ( ) [ ] { } , : = + - * / // % ^ < <= == != | & . ` \n "
    "private workgroup constant global cluster grid parallel vector unrolled subgroup out inout "
    "f32 s64 u64 bf16 f8_e5m2 u4 add= min= ordered unique opaque reads writes combiner by .. << >>"
)


@cache
def _stages() -> tuple[str, ...]:
    """The kernels of small ops at every stage."""
    ops = (
        tw.convolution("mb1ic2ih4oc3kh3ph1sh2"),
        tw.matmul("3x4:4x5", dtype="u8:s8:s32", epilogue=[tw.bias(), tw.relu()]),
        tw.reduce("3x4:3x1", algorithm="mean"),
    )
    result: list[str] = []
    machine = find_target("x86:avx2").machine
    for op in ops:
        _, scheduled = choose.choose(Start.of(op.resolved()), machine)
        result += [to_text(op.kernel()), *map(to_text, scheduled.stages.values())]
    return tuple(result)


def text(rng: random.Random) -> str:
    """The text of a kernel, mutated a few times."""
    chance = rng.random()
    if chance < 0.5:
        seed = to_text(random_kernel(rng, rng.randint(1, 12), tuple(LoopKind)))
    else:
        seed = rng.choice(SEEDS if chance < 0.8 else _stages())
    # Many stay in order up to a number or a name: what is wrong with them is found late.
    kinds = 10 if rng.random() < 0.5 else 4
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        seed = _mutated(rng, seed, kinds)
    return seed


_NAME = re.compile(r"[A-Za-z_]\w*")


def _mutated(rng: random.Random, seed: str, kinds: int) -> str:
    lines = seed.split("\n")
    at = rng.randrange(len(lines))
    words = lines[at].split(" ")
    place = rng.randrange(len(words))
    match rng.randrange(kinds):
        case 0:
            lines[at] = _nested(rng, lines[at])
        case 1:
            names = _NAME.findall(seed)
            result = list(_NAME.finditer(lines[at]))
            if result:
                name = rng.choice(result)
                other = rng.choice(names)
                lines[at] = lines[at][: name.start()] + other + lines[at][name.end() :]
        case 4:
            del lines[at]
        case 5:
            lines.insert(at, rng.choice(lines))
        case 6:
            lines[at] = rng.choice(("  ", "")) + lines[at].removeprefix("  ")
        case 7:
            words[place] = rng.choice(_WORDS)
            lines[at] = " ".join(words)
        case 8:
            words.insert(place, rng.choice((*_WORDS, *_NUMBERS)))
            lines[at] = " ".join(words)
        case 9:
            words[place] = rng.choice(seed.split(" "))
            lines[at] = " ".join(words)
        case _:
            digits = [i for i, char in enumerate(lines[at]) if char.isdigit()]
            if digits:
                digit = rng.choice(digits)
                number = rng.choice(_NUMBERS)
                lines[at] = lines[at][:digit] + number + lines[at][digit + 1 :]
    return "\n".join(lines)


def _nested(rng: random.Random, line: str) -> str:
    """A line with something around a part of what it computes, perhaps many times."""
    before, equal, value = line.partition(" = ")
    if not equal:
        return line
    times = rng.choice((1, 1, 2, 40, 3000))
    around = (("(", ")"), ("-", ""), ("not ", ""), ("abs(", ")"), ("f32(", ")"))
    opening, closing = rng.choice(around)
    return f"{before} = {opening * times}{value}{closing * times}"


def check(given: str) -> None:
    """Parses and verifies a text, prints it and reads that back, and runs it if it is small.

    Raises what the project says of a text that is not right, and `AssertionError` for one that does
    not come back as it was.
    """
    kernel = parse_kernel(given)
    printed = to_text(kernel)
    again = parse_kernel(printed)
    assert same(kernel, again) and to_text(again) == printed, "the printed text reads as another"
    verify(kernel)
    # What is left open by scalars that a call passes is as small as they may be.
    kernel = bind_scalars(kernel, {param.name: _least(param) for param in kernel.scalars})
    if is_small(kernel):
        arrays = {
            param.name: np.zeros(param.buffer.layout.extent, param.buffer.dtype.numpy)
            for param in kernel.arrays
        }
        run(kernel, arrays)


def _least(param: ScalarParam) -> Any:
    """A number that keeps the promises of a scalar parameter, where one does."""
    if not param.dtype.is_integer:
        return param.dtype.kind == "bool" or 1.5
    low = 3 if param.low is None else param.low
    return -(-low // param.divisor) * param.divisor


# Statements that a small kernel may run, and elements that it may hold.
_MOST_STEPS = 3000
_MOST_ELEMENTS = 100_000


def is_small(kernel: Kernel) -> bool:
    """Whether the interpreter is done with it soon, as far as constants say."""
    buffers = [param.buffer for param in kernel.arrays]
    return (
        all(buffer.layout.extent <= _MOST_ELEMENTS for buffer in buffers)
        and _steps(kernel.body) <= _MOST_STEPS
    )


def _steps(stmt: Stmt) -> float:
    """Statements that run: more than any number where that is not known."""
    inside = sum(
        _steps(statement)
        for field in fields(stmt)
        for statement in _statements(getattr(stmt, field.name))
    )
    match stmt:
        case For():
            return _count(stmt.extent) * (1 + inside)
        case Compute():
            return prod(_count(dim.extent) for dim in stmt.dims)
        case Allocate():
            return 1 if stmt.buffer.layout.extent <= _MOST_ELEMENTS else inf
        case While():
            return inf  # nobody knows how often
    return 1 + inside


def _count(extent: Expr) -> float:
    return max(1, extent.value) if isinstance(extent, Const) else inf


def _statements(value: Any) -> tuple[Stmt, ...]:
    if isinstance(value, Stmt):
        return (value,)
    return tuple(part for part in value if isinstance(part, Stmt)) if type(value) is tuple else ()
