"""Strides, contiguity, steps of views, and roles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.dtypes import f32
from tilewright.errors import LayoutError
from tilewright.ir.buffer import Buffer, Layout, LayoutBlock, buffer, row_major
from tilewright.ir.expr import const, var
from tilewright.ir.stmt import Compute, Dim, Operand, View
from tilewright.layout.queries import (
    alignment,
    coefficient,
    contiguous_run,
    innermost,
    is_innermost,
    padding_elements,
    step_along,
    subview,
)
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


def test_contiguity() -> None:
    blocked = layout_of("nChw16c", SHAPE)
    assert innermost(blocked) == LayoutBlock(1, 16, 1)
    assert is_innermost(blocked, 1)
    assert not is_innermost(blocked, 3)
    assert innermost(Layout(())) is None
    assert contiguous_run(blocked, 1) == 16
    assert contiguous_run(blocked, 3) == 1
    assert contiguous_run(layout_of("aBcd4b4b", SHAPE), 1) == 16
    assert alignment(blocked, 1) == 16
    assert alignment(layout_of("nhwc", SHAPE), 1) == 20
    assert alignment(Layout((LayoutBlock(0, 4, 8), LayoutBlock(1, 4, 1)), 6), 1) == 2
    assert padding_elements(blocked, SHAPE) == 2 * 12 * 3 * 5


def test_coefficients() -> None:
    x, y = var("x"), var("y")
    assert coefficient(x * 3 - y * 2 + 1, x) == 3
    assert coefficient(x * 3 - y * 2 + 1, y) == -2
    assert coefficient(-(x + x), x) == -2
    assert coefficient(y, x) == 0
    assert coefficient(x // 2, x) is None
    assert coefficient(x * y, x) is None


def _nchw16c() -> Buffer:
    return buffer("t", f32, SHAPE, layout_of("nChw16c", SHAPE))


def test_steps_of_views() -> None:
    n, c, h, k, w = (var(name) for name in "nchkw")
    view = View(_nchw16c(), (n, c * 16 + k, h * 2 + 1, w))
    assert step_along(view, k, 16) == 1
    assert step_along(view, c, 2) is None  # c * 16 crosses blocks, and k hides that it starts one
    assert step_along(view, h, 2) == 2 * 5 * 16
    assert step_along(view, w, 5) == 16
    assert step_along(View(_nchw16c(), (n, k, h, w)), k, 20) is None
    assert step_along(View(_nchw16c(), (n, k, h // 2, w)), h, 4) is None
    assert step_along(View(_nchw16c(), (n, k, h // 2, w)), var("unused"), 4) == 0


def test_subview_is_the_same_op_at_an_offset() -> None:
    n, c, tile, inner = (var(name) for name in ("n", "c", "tile", "inner"))
    view = View(_nchw16c(), (n, c, const(0), const(1)), c < 20)
    part = subview(view, {c: tile * 4 + inner})
    assert part.index[1] is tile * 4 + inner
    assert part.mask is (tile * 4 + inner < 20)
    assert subview(view, {var("other"): tile}) is view


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
