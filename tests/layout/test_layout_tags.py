"""Tags: what they mean, round trips, and refusals that point at the place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.dtypes import s32
from tilewright.errors import LayoutError
from tilewright.interpret import pack
from tilewright.ir.buffer import LayoutBlock, buffer, row_major
from tilewright.layout.tags import Tag, canonical, layout_of, parse_tag

SHAPE = (2, 20, 3, 5)


@pytest.mark.parametrize(
    ("tag", "rank", "wanted"),
    [
        ("abcd", 4, "abcd"),
        ("nchw", 4, "abcd"),
        ("nhwc", 4, "acdb"),
        ("chwn", 4, "bcda"),
        ("nwc", 3, "acb"),
        ("ncdhw", 5, "abcde"),
        ("ndhwc", 5, "acdeb"),
        ("nc", 2, "ab"),
        ("ba", 2, "ba"),
        ("hwio", 4, "cdba"),
        ("ohwi", 4, "acdb"),
        ("dhwio", 5, "cdeba"),
        ("goihw", 5, "abcde"),
        ("hwigo", 5, "decab"),
        ("goiw", 4, "abcd"),
        ("nChw16c", 4, "aBcd16b"),
        ("NChw32n32c", 4, "ABcd32a32b"),
        ("OIhw16i16o", 4, "ABcd16b16a"),
        ("OIhw4i16o4i", 4, "ABcd4b16a4b"),
        ("gOIhw16i16o", 5, "aBCde16c16b"),
        ("Goihw8g", 5, "Abcde8a"),
        ("N(C/4)HW4", 4, "aBcd4b"),
        ("abx", 4, "abcd"),
        ("axb", 5, "acdeb"),
        ("aBx16b", 3, "aBc16b"),
        ("any", 4, "any"),
    ],
)
def test_canonical_form(tag: str, rank: int, wanted: str) -> None:
    assert canonical(tag, rank) == wanted


def test_blocks_of_a_tag() -> None:
    layout = layout_of("nChw16c", SHAPE)
    assert layout.blocks == (
        LayoutBlock(0, 2, 2 * 3 * 5 * 16),
        LayoutBlock(1, 2, 3 * 5 * 16),
        LayoutBlock(2, 3, 5 * 16),
        LayoutBlock(3, 5, 16),
        LayoutBlock(1, 16, 1),
    )
    assert layout.padded_shape(4) == (2, 32, 3, 5)
    assert layout_of("any", SHAPE) == row_major(SHAPE) == layout_of("nchw", SHAPE)


def test_elements_lie_where_numpy_puts_them() -> None:
    values = np.arange(32 * 16 * 2 * 3).reshape(32, 16, 2, 3)
    weights = buffer("w", s32, values.shape, layout_of("OIhw4i16o4i", values.shape))
    blocked = values.reshape(2, 16, 1, 4, 4, 2, 3).transpose(0, 2, 5, 6, 3, 1, 4)
    np.testing.assert_array_equal(pack(weights, values), blocked.reshape(-1))


@st.composite
def tags(draw: st.DrawFn) -> tuple[Tag, tuple[int, ...]]:
    rank = draw(st.integers(1, 5))
    order = tuple(draw(st.permutations(range(rank))))
    block = st.tuples(st.integers(0, rank - 1), st.sampled_from((2, 3, 4, 8)))
    inner = tuple(draw(st.lists(block, max_size=3)))
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=rank, max_size=rank)))
    return Tag(order, inner), shape


@given(tags())
def test_round_trips(case: tuple[Tag, tuple[int, ...]]) -> None:
    tag, shape = case
    assert parse_tag(str(tag), len(shape)) == tag
    layout = layout_of(str(tag), shape)
    padded = layout.padded_shape(len(shape))
    assert all(have - need >= 0 for have, need in zip(padded, shape, strict=True))


@pytest.mark.parametrize(
    ("tag", "letters", "start", "text"),
    [
        ("nhwk", "nchw", 3, "'k' is no dim of a tensor of 4 dims"),
        ("nhwk", None, 3, "'k' is no dim of a tensor of 4 dims"),
        ("nhw", "nchw", 0, "missing: c"),
        ("ncdhw", "nchw", 0, "its letters are those of 'ncdhw'"),
        ("oihw", "nchw", 0, "'o' is no dim"),
        ("abcdd", None, 4, "'d' stands twice"),
        ("nChw", "nchw", 1, "dim 'C' has no blocks"),
        ("nchw16c", "nchw", 1, "dim 'c' has blocks"),
        ("nChw16", "nchw", 4, "does not go on like this"),
        ("nChw16C", "nchw", 6, "in upper case"),
        ("nChw1c", "nchw", 4, "at least 2"),
        ("nChw16c-", "nchw", 7, "does not go on like this"),
        ("", "nchw", 0, "the tag is empty"),
        ("16c", "nchw", 0, "does not start with a dim"),
        ("N(C/4)HW8", "nchw", 8, "divides by 4 and ends in 8"),
        ("axxb", None, 2, "stands twice"),
    ],
)
def test_refusals(tag: str, letters: str | None, start: int, text: str) -> None:
    with pytest.raises(LayoutError) as caught:
        layout_of(tag, SHAPE, letters)
    error = caught.value
    assert text in str(error)
    assert error.cure
    assert getattr(error.where, "start", None) == start


def test_near_misses_are_suggested() -> None:
    with pytest.raises(LayoutError, match="did you mean nhwc"):
        layout_of("nhvc", SHAPE, "nchw")
    with pytest.raises(LayoutError, match="did you mean nChw16c"):
        layout_of("nChv16c", SHAPE, "nchw")
