"""Tiles at the end of lanes that are some vectors and a part of one: no masks on registers."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import For, If, LoopKind
from tilewright.ir.visit import walk_stmts


@pytest.mark.parametrize(("target", "n"), [("x86:avx512", 36), ("x86:avx2", 20)])
def test_what_sets_sums_has_no_mask(target: str, n: int) -> None:
    """A store under a mask keeps sums in memory: each multiplication would load and store them."""
    op = tw.matmul(f"6x64:64x{n}", weights="ba")
    result = tw.compile(op, target, config={"tile": {"m": 6, "n": n}})
    stmts = list(walk_stmts(result.schedule.kernel.body))
    sums = [s for s in stmts if isinstance(s, For) and s.kind is LoopKind.VECTOR]
    assert not any(isinstance(s, If) for loop in sums for s in walk_stmts(loop.body))
    assert "acc[m, n + " in to_text(result.schedule.kernel)
    rng = np.random.default_rng(0)
    a, b = rng.random((6, 64), np.float32), rng.random((n, 64), np.float32).T
    np.testing.assert_allclose(
        np.asarray(result(src=a, weights=b)), a.astype(np.float64) @ b, rtol=1e-5
    )
