"""Opaque nests: a name, what they read and write, and statements that keep to it."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES, need_device
from random_ir import random_kernel
from tilewright.errors import ParseError, VerificationError
from tilewright.interpret import run as interpret
from tilewright.ir.compare import difference
from tilewright.ir.opaque import opened, touched
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel, Opaque, Store
from tilewright.ir.verify import verify
from tilewright.ir.visit import map_kernel, rewrite_stmts, walk_stmts
from tilewright.simplify import simplify_kernel

# Sorts each row by exchanging neighbours, then adds what came first.
SORT = """
kernel sorted_rows(inout rows: f32[6, 9], in add: f32[6], out least: f32[6]):
  opaque sort reads add writes rows:
    for r in 6:
      for round in 9:
        for i in 8:
          low: f32 = min(rows[r, i], rows[r, i + 1])
          high: f32 = max(rows[r, i], rows[r, i + 1])
          rows[r, i] = low
          rows[r, i + 1] = high
    compute shift(r in 6, i in 9):
      rows[r, i] = rows[r, i] + add[r]
  compute first(r in 6):
    least[r] = rows[r, 0]
"""


@pytest.mark.parametrize("target", ["interpreter", "x86", *DEVICES, "spirv:gpu", "nvidia:sm_80"])
def test_compiled_and_interpreted(target: str) -> None:
    need_device(target)
    run = tw.compile(tw.parse_kernel(SORT), target, threads=2)
    if not run.target.runs_here:
        assert run.source("asm")
        return
    rows = np.random.default_rng(0).permuted(
        np.tile(np.arange(9, dtype=np.float32), (6, 1)), axis=1
    )
    got = run(rows=rows, add=np.full(6, 3, np.float32))
    np.testing.assert_array_equal(got["rows"], np.tile(np.arange(9) + 3, (6, 1)))
    np.testing.assert_array_equal(got["least"], np.full(6, 3))


def test_text() -> None:
    kernel = parse_kernel(SORT)
    assert "  opaque sort reads add writes rows:\n    for r in 6:" in to_text(kernel)
    assert difference(kernel, parse_kernel(to_text(kernel))) is None
    other = parse_kernel(SORT.replace("reads add writes rows", "writes rows, add"))
    assert "reads differs" in str(difference(kernel, other))
    assert any(isinstance(stmt, Opaque) for stmt in walk_stmts(simplify_kernel(kernel).body))
    assert not any(isinstance(stmt, Opaque) for stmt in walk_stmts(opened(kernel).body))


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("writes rows", r"it reads add, and does not declare it[^$]*add `reads add`"),
        ("reads rows, add", r"it writes rows, and does not declare it"),
        ("reads add, other writes rows", r"it declares other, which is no buffer here"),
    ],
)
def test_what_it_touches_is_declared(declared: str, said: str) -> None:
    with pytest.raises(VerificationError, match=said):
        verify(parse_kernel(SORT.replace("reads add writes rows", declared)))


def test_what_is_allocated_inside_is_its_own() -> None:
    text = SORT.replace(
        "    for r in 6:", "    alloc own: f32[1]\n    own[0] = 1.0\n    for r in 6:"
    )
    verify(parse_kernel(text))


def test_texts_that_are_refused() -> None:
    with pytest.raises(ParseError, match="of a buffer"):
        parse_kernel(SORT.replace("reads add writes", "reads 3 writes"))
    with pytest.raises(ParseError, match="expected"):
        parse_kernel(SORT.replace("opaque sort reads", "opaque reads:"))


def results(kernel: Kernel, seed: int) -> dict[str, bytes]:
    """What the interpreter leaves in the arrays of a kernel."""
    generator = np.random.default_rng(seed)
    memory = {
        array.name: generator.integers(0, 2, array.buffer.layout.extent).astype(array.dtype.numpy)
        for array in kernel.arrays
    }
    interpret(kernel, memory)
    return {name: array.tobytes() for name, array in memory.items()}


@pytest.mark.parametrize("seed", range(40))
def test_random_kernels_with_nests(seed: int) -> None:
    """Each store in a nest of its own, which declares what it touches."""
    kernel = random_kernel(random.Random(seed))
    nests = 0

    def wrapped(stmt: object) -> object:
        nonlocal nests
        if not isinstance(stmt, Store):
            return stmt
        nests += 1
        reads, writes = touched(stmt)
        return Opaque(f"nest{nests}", tuple(sorted(reads)), tuple(sorted(writes)), stmt)

    around = map_kernel(kernel, lambda body: rewrite_stmts(body, wrapped))  # type: ignore[arg-type]
    verify(around)
    assert difference(around, parse_kernel(to_text(around))) is None
    verify(opened(around))
    wanted, got = results(kernel, seed), results(around, seed)
    assert wanted == got == results(opened(around), seed)
