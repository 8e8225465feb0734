"""Layouts from strides, overlap, and roles of dims."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.dtypes import f32
from tilewright.errors import LayoutError
from tilewright.ir.buffer import Layout, LayoutBlock, buffer, row_major
from tilewright.ir.expr import const, var
from tilewright.ir.stmt import Compute, Dim, Operand, View
from tilewright.layout.roles import Role, roles
from tilewright.layout.strides import from_strides, overlaps, strides_of
from tilewright.layout.tags import layout_of

SHAPE = (2, 20, 3, 5)


def test_strides_make_a_layout() -> None:
    layout = from_strides((2, 3, 4), (12, 1, 3))
    assert layout.blocks == (LayoutBlock(0, 2, 12), LayoutBlock(2, 4, 3), LayoutBlock(1, 3, 1))
    assert strides_of(layout, 3) == (12, 1, 3)
    assert strides_of(layout_of("nChw4c", SHAPE), 4) is None
    assert strides_of(layout_of("aB4b", (2, 20)), 2) == (20, 1)


def test_strides_refused() -> None:
    with pytest.raises(LayoutError, match="2 strides are given for 3 dims"):
        from_strides((2, 3, 4), (1, 2))
    with pytest.raises(LayoutError, match="must not be negative"):
        from_strides((2, 3), (-3, 1))
    with pytest.raises(LayoutError, match="overlap in memory"):
        from_strides((2, 3), (0, 1), written=True)
    assert from_strides((2, 3), (0, 1)).extent == 3


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(-12, 12)), min_size=1, max_size=4),
)
def test_extent_holds_every_element(blocks: list[tuple[int, int]]) -> None:
    start = sum((size - 1) * -min(0, stride) for size, stride in blocks)
    parts = tuple(LayoutBlock(i, size, stride) for i, (size, stride) in enumerate(blocks))
    layout = Layout(parts, start)
    index = np.indices([size for size, _ in blocks]).reshape(len(blocks), -1)
    places = layout.place(list(index)) + np.zeros(index.shape[1], int)
    assert places.min() >= 0
    assert layout.extent == places.max() + 1


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), min_size=1, max_size=4),
)
def test_overlap_is_exact(blocks: list[tuple[int, int]]) -> None:
    layout = Layout(tuple(LayoutBlock(i, size, stride) for i, (size, stride) in enumerate(blocks)))
    offsets = sum(
        np.arange(size).reshape(-1, *(1 for _ in range(len(blocks) - 1 - i))) * stride
        for i, (size, stride) in enumerate(blocks)
    )
    assert overlaps(layout) == (np.unique(offsets).size < np.size(offsets))


def test_interleaved_strides_do_not_overlap() -> None:
    assert not overlaps(Layout((LayoutBlock(0, 2, 3), LayoutBlock(1, 3, 2))))
    huge = Layout((LayoutBlock(0, 2**11, 3), LayoutBlock(1, 2**11, 2**13), LayoutBlock(2, 2, 1)))
    assert not overlaps(huge)
    assert overlaps(Layout((LayoutBlock(0, 2**11, 2), LayoutBlock(1, 2**11, 3))))


def test_roles_of_a_contraction() -> None:
    b, m, n, k = (var(name) for name in ("b", "m", "n", "k"))
    x = buffer("x", f32, (2, 3, 4))
    y = buffer("y", f32, (2, 4, 5))
    z = buffer("z", f32, (2, 3, 5), row_major((2, 3, 5)))
    dims = tuple(Dim(v, const(s)) for v, s in ((b, 2), (m, 3), (n, 5), (k, 4)))
    p, q = var("p", f32), var("q", f32)
    operands = (Operand(p, View(x, (b, m, k))), Operand(q, View(y, (b, k, n))))
    product = Compute.single("main", dims, View(z, (b, m, n)), operands, p * q, "add")
    assert roles(product) == {"b": Role.BATCH, "m": Role.M, "n": Role.N, "k": Role.K}
    alone = Compute.single("sum", dims[:2], View(z, (b, m, const(0))), operands[:1], p, "add")
    assert roles(alone) == {"b": Role.M, "m": Role.M}
