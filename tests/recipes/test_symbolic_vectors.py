"""Vectors along dims whose size calls say: whole ones without masks, and one of the rest."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES, need_device
from tilewright.interpret import run as interpret
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import For, If, LoopKind
from tilewright.ir.symbols import bind_scalars
from tilewright.ir.verify import verify
from tilewright.ir.visit import walk_stmts
from tilewright.schedule.loops.lower import lower_computes

SUM = """
kernel total(m: s64 in 1..99, n: s64 in 1..999, in a: f32[m, n], in b: f32[n], inout c: f32[m, n]):
  compute total(i in m, j in n):
    c[i, j] add= a[i, j] * b[n - 1 - j]
"""
LINE = """
kernel line(n: s64 in 1..999, alpha: f32, in a: f32[n], out c: f32[n]):
  compute line(j in n):
    c[j] = a[j] * alpha
"""


def test_the_rest_stands_behind() -> None:
    kernel = lower_computes(parse_kernel(LINE), vector="j", lanes=8, tails=8)
    verify(kernel)
    assert (
        "  for j_o in n // 8:\n"
        "    vector for j in 8:\n"
        "      c[j + j_o * 8] = a[j + j_o * 8] * alpha\n"
        "  if 1 <= n % 8:\n"
        "    vector for j in 8:\n"
    ) in to_text(kernel)


def test_what_is_behind_wide_vectors_goes_in_narrow_ones() -> None:
    text = to_text(lower_computes(parse_kernel(LINE), vector="j", lanes=32, tails=8))
    assert "  for j_o in n // 32:\n    vector for j in 32:\n" in text
    assert "  for j_o in n // 8 % 4:\n    vector for j in 8:\n" in text
    assert "  if 1 <= n % 8:\n    vector for j in 8:\n" in text


def test_no_rest_where_the_size_is_promised() -> None:
    text = LINE.replace("1..999", "16..992 by 16")
    kernel = lower_computes(parse_kernel(text), vector="j", lanes=8, tails=8)
    assert not any(isinstance(stmt, If) for stmt in walk_stmts(kernel.body))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 23, 63])
@pytest.mark.parametrize("lanes", [8, 32])
def test_interpreted(n: int, lanes: int) -> None:
    source = parse_kernel(SUM)
    kernel = lower_computes(source, vector="j", lanes=lanes, tails=8)
    generator = np.random.default_rng(n)
    memory = {
        "a": generator.integers(0, 9, 3 * n).astype(np.float32),
        "b": generator.integers(0, 9, n).astype(np.float32),
        "c": generator.integers(0, 9, 3 * n).astype(np.float32),
    }
    wanted = memory["c"] + (memory["a"].reshape(3, n) * memory["b"][::-1]).ravel()
    interpret(bind_scalars(kernel, {"m": 3, "n": n}), memory)
    np.testing.assert_array_equal(memory["c"], wanted)


@pytest.mark.parametrize("target", ["x86", "x86:avx2", *DEVICES, "spirv:gpu", "nvidia:sm_80"])
def test_compiled(target: str) -> None:
    need_device(target)
    run = tw.compile(parse_kernel(SUM), target, threads=2)
    line = tw.compile(parse_kernel(LINE), target, threads=2)
    if not run.target.runs_here:
        assert run.source("asm")
        assert line.source("asm")
        return
    kinds = {s.kind for s in walk_stmts(run.schedule.kernel.body) if isinstance(s, For)}
    assert (LoopKind.VECTOR in kinds) == (not run.target.machine.banked)
    generator = np.random.default_rng(0)
    for m, n in [(1, 1), (3, 7), (2, 8), (5, 16), (4, 33), (9, 250), (99, 999)]:
        a = generator.integers(0, 9, (m, n)).astype(np.float32)
        b = generator.integers(0, 9, n).astype(np.float32)
        c = generator.integers(0, 9, (m, n)).astype(np.float32)
        wanted = c + a * b[::-1]
        np.testing.assert_array_equal(run(a=a, b=b, c=c), wanted)
        np.testing.assert_array_equal(line(a=b, alpha=3.0), b * 3)
