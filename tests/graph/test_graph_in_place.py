"""Results of a program that go where an operand was."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from needs import needs_x86
from test_graph_programs import assert_right, drawn
from tilewright.graph import in_place
from tilewright.graph.compiling import compile_graph
from tilewright.graph.program import GraphProgram
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Kernel, Stmt
from tilewright.ir.uses import buffers_in
from tilewright.schedule.queries.flow import flow

HEAD = "kernel k(in x: f32[16, 16], in b: f32[16], out y: f32[16, 16]):\n"
BEGIN = """
  alloc s: f32[16, 16]
  alloc t: f32[16, 16]
  alloc u: f32[16, 16]
  compute first(i in 16, j in 16):
    v = x[j, i]
    s[i, j] = v * 3.0
"""
END = """
  compute last(i in 16, j in 16):
    v = t[j, i]
    y[i, j] = v
"""
TURN = "  compute turn(i in 16, j in 16):\n    v = s[j, i]\n    u[i, j] = v\n"
SUMS = """
  compute zero(i in 16, j in 16):
    t[i, j] = 0.0
  compute product(i in 16, j in 16, k in 16):
    v = x[i, k]
    w = x[k, j]
    t[i, j] add= v * w
"""

# What stands between `first` and `last`, and whether `t` goes into `s`.
CASES = {
    "elementwise, behind another": (
        TURN + "  compute c(i in 16, j in 16):\n    v = s[i, j]\n    w = u[j, 15 - i]\n"
        "    t[i, j] = v + w\n",
        True,
    ),
    "with a loaded operand read again": (
        TURN + "  compute c(i in 16, j in 16):\n    v = s[i, j]\n    w = s[j, i]\n"
        "    t[i, j] = v + w\n",
        False,
    ),
    "needed later": (
        TURN + "  compute c(i in 16, j in 16):\n    v = s[i, j]\n    w = u[j, 15 - i]\n"
        "    t[i, j] = v + w\n"
        "  compute more(i in 16, j in 16):\n    v = t[j, i]\n    w = s[i, 15 - j]\n"
        "    t[j, i] = v + w\n",
        False,
    ),
    "a sum beside a product": (
        SUMS.replace("t[", "u[") + "  compute c(i in 16, j in 16):\n    v = u[i, j]\n"
        "    w = s[i, j]\n    t[i, j] = v + w\n",
        True,
    ),
    "of one row": (
        "  compute c(i in 16, j in 16):\n    v = s[i, 0]\n    t[i, j] = v\n",
        False,
    ),
    "what is added to": (
        "  compute c(i in 16, j in 16):\n    v = s[i, j]\n    t[i, j] = v\n"
        "  compute d(i in 16, j in 16, k in 4):\n    v = s[j, i]\n    t[i, j] add= v\n",
        False,
    ),
}


def kernel_of(name: str) -> Kernel:
    return tw.parse_kernel(HEAD + BEGIN + CASES[name][0] + END)


@pytest.mark.parametrize("name", CASES)
def test_where_it_is_legal(name: str) -> None:
    """Each statement is a group, but for a sum with what adds it up and what comes of it."""
    _, items = flow(kernel_of(name))
    stmts = [item.stmt for item in items]
    groups = [[stmt] for stmt in stmts]
    if "zero" in str(stmts[1]):
        groups = [[stmts[0]], stmts[1:4], [stmts[4]]]
    own = {buffer for buffer in _buffers(stmts) if buffer.name in "stu"}
    result = in_place.Run(groups, own).in_place()
    left = {buffer.name for buffer in _buffers([stmt for group in result for stmt in group])}
    assert ("t" not in left) is CASES[name][1]


def _buffers(stmts: list[Stmt]) -> set[Buffer]:
    return set[Buffer]().union(*map(buffers_in, stmts))


@needs_x86
@pytest.mark.parametrize("name", CASES)
def test_it_changes_no_result(name: str) -> None:
    kernel = kernel_of(name)
    assert_right(kernel, compile_graph(kernel, "x86", threads=2), drawn(kernel))


def test_copies_of_what_nobody_needs_go() -> None:
    copy = "  compute c(i in 16, j in 16):\n    v = s[i, j]\n    t[i, j] = v\n"
    _, items = flow(tw.parse_kernel(HEAD + BEGIN + copy + END))
    own = {touch for item in items for touch in item.touches if touch.name in "st"}
    result = in_place.Run([[item.stmt] for item in items], own).in_place()
    assert [len(buffers) for buffers in result] == [1, 0, 1]
    assert "v = s[j, i]" in str(result[2][0])


@needs_x86
def test_a_long_chain_takes_the_memory_of_two() -> None:
    lines = ["  alloc t0: f32[64, 64]\n  compute c0(i in 64, j in 64):\n    t0[i, j] = x[j, i]"]
    for n in range(1, 20):
        index = "j, i" if n % 2 else "i, j"
        lines.append(
            f"  alloc t{n}: f32[64, 64]\n  compute c{n}(i in 64, j in 64):\n"
            f"    v = t{n - 1}[{index}]\n    t{n}[i, j] = v * 1.5"
        )
    lines.append("  compute last(i in 64, j in 64):\n    v = t19[j, i]\n    y[i, j] = v")
    head = "kernel k(in x: f32[64, 64], out y: f32[64, 64]):\n"
    kernel = tw.parse_kernel(head + "\n".join(lines) + "\n")
    program = compile_graph(kernel, "x86", threads=2)
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    np.testing.assert_allclose(program(x), x * np.float32(1.5) ** 19, rtol=1e-5)
    assert isinstance(program, GraphProgram)
    assert program.arena.bytes <= 2 * 64 * 64 * 4
