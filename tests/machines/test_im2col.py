"""Columns of pixels: what is one, by a unit that walks as the manual says; and what is none."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright.ir import parse_kernel, to_text
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Const, Var
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import variables
from tilewright.machines.nvidia.im2col import Im2col, im2col_of, tile_of
from tilewright.machines.nvidia.tensor_map import Columns, TensorMap, check_tensor_map
from tilewright.schedule.queries.place import Place, walk_placed
from tilewright.simplify import simplify_kernel
from tilewright.targets.nvidia.tensors import tensor_map

_LETTERS = "dhw"


@dataclass(frozen=True)
class Walk:
    """A convolution as the copy of its tiles sees it; per spatial dim: what is read, what is made,
    the kernel, steps of the pixels and of the taps, and the padding before."""

    images: int
    channels: int
    read: tuple[int, ...]
    made: tuple[int, ...]
    kernel: tuple[int, ...]
    steps: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    pixels: int

    def text(self) -> str:
        letters = _LETTERS[-len(self.read) :]
        total = self.images * math.prod(self.made)
        position = f"(m + g * {self.pixels})"
        index, mask, weight = [], [f"{position} < {total}"], 1
        for i in reversed(range(len(self.read))):
            digit = f"{position} // {weight}"
            if i or self.images > 1:
                digit += f" % {self.made[i]}"
            place = f"{digit} * {self.steps[i]} + k{letters[i]} * {self.dilation[i]}"
            index.insert(0, f"{place} - {self.padding[i]}")
            mask += [f"0 <= {index[0]}", f"{index[0]} < {self.read[i]}"]
            weight *= self.made[i]
        shape = [*self.read, self.channels]
        if self.images > 1:
            index.insert(0, f"{position} // {weight}")
            shape.insert(0, self.images)
        loops = [
            *(f"for k{x} in {n}:" for x, n in zip(letters, self.kernel, strict=True)),
            f"for c_o in {self.channels // 8}:",
            f"compute a_pack(m in {self.pixels}, c in 8):",
            f"a = src[{', '.join(index)}, c + c_o * 8 | {' and '.join(mask)}]",
        ]
        lines = [
            f"kernel columns(in src: bf16{shape}):",
            f"  grid for g in {-(-total // self.pixels)}:",
            f"    alloc tile: bf16[{self.pixels}, 8] workgroup",
            *("  " * (2 + i) + line for i, line in enumerate(loops)),
            "  " * (1 + len(loops)) + "tile[m, c] = a",
        ]
        return "\n".join(lines)


def _copy(text: str) -> tuple[Kernel, Compute, Place]:
    kernel = simplify_kernel(parse_kernel(text))
    ((compute, place),) = (
        (stmt, place)
        for stmt, place in walk_placed(kernel.body, Place())
        if isinstance(stmt, Compute)
    )
    return kernel, compute, place


def _found(text: str) -> Im2col:
    _, compute, place = _copy(text)
    im2col = im2col_of(compute, place.facts)
    assert isinstance(im2col, Im2col), im2col
    return im2col


def _unit(
    tensor: TensorMap, data: np.ndarray, corner: Sequence[int], taps: Sequence[int]
) -> Iterator[list[float]]:
    """The pixels that the unit copies, by PTX's description of the im2col mode. ``data`` has the
    images outermost and the channels innermost."""
    box = tensor.box
    assert isinstance(box, Columns)
    channel, *place, image = corner
    extents = tensor.shape[1:-1]
    ends = [n - 1 + upper for n, upper in zip(extents, box.upper, strict=True)]
    inside = zip(box.lower, place, ends, strict=True)
    assert all(low <= at <= end for low, at, end in inside), "the first pixel is not in the box"
    assert all(tap >= 0 for tap in taps)
    for _ in range(box.pixels):
        at = [p + tap for p, tap in zip(place, taps, strict=True)]
        there = all(0 <= p < n for p, n in zip(at, extents, strict=True))
        there = there and 0 <= image < tensor.shape[-1]
        yield [
            float(data[(image, *reversed(at), c)]) if there and c < tensor.shape[0] else 0.0
            for c in range(channel, channel + box.channels)
        ]
        for i, step in enumerate(tensor.steps[1:-1]):
            place[i] += step
            if place[i] <= ends[i]:
                break
            place[i] = box.lower[i]
        else:
            image += 1


def _same(text: str) -> None:
    """Compares what the unit copies with what the compute says, in all iterations around it."""
    kernel, compute, place = _copy(text)
    result = _found(text)
    source = compute.operands[0].view
    tensor = replace(tensor_map(0, kernel.params[0].buffer, result), swizzle=0)
    check_tensor_map(tensor)
    shape = source.buffer.shape
    flat = np.random.default_rng(0).integers(1, 1000, shape)
    data = flat if result.order[-1] is not None else flat[None]
    loops = [(loop.var, loop.extent) for loop in place.loops]
    (m, _), (c, _) = ((dim.var, dim.extent) for dim in compute.dims)
    for point in itertools.product(*(range(_value(extent)) for _, extent in loops)):
        values = {var: at for (var, _), at in zip(loops, point, strict=True)}
        corner = [int(evaluate(e, values)) for e in result.corner]
        taps = [int(evaluate(e, values)) for e in result.taps]
        for i, got in enumerate(_unit(tensor, data, corner, taps)):
            for j, value in enumerate(got):
                here: dict[Var, int] = {**values, m: i, c: j}
                shown = source.mask is None or evaluate(source.mask, here)
                index = tuple(int(evaluate(e, here)) for e in source.index)
                assert value == (flat[index] if shown else 0), (values, i, j)


def _value(extent: object) -> int:
    assert isinstance(extent, Const)
    return int(extent.value)


@st.composite
def walks(draw: st.DrawFn) -> Walk:
    rank = draw(st.integers(1, 3))
    small = st.integers(1, 3)

    def each(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(values) for _ in range(rank))

    kernel, steps, dilation = each(small), each(small), each(small)
    result = each(st.integers(3, 6))
    # Each tap meets something: otherwise what a mask says of taps is not said of the index.
    padding = tuple(
        draw(st.integers(0, min((k - 1) * d, (o - 1) * s)))
        for o, s, k, d in zip(result, steps, kernel, dilation, strict=True)
    )
    read = tuple(
        max(2, (o - 1) * s + (k - 1) * d + 1 - p - draw(st.integers(0, p)))
        for o, s, k, d, p in zip(result, steps, kernel, dilation, padding, strict=True)
    )
    reach = zip(kernel, dilation, padding, read, strict=True)
    assume(all((k - 1) * d - p < n for k, d, p, n in reach))
    return Walk(
        draw(st.integers(1 if rank > 1 else 2, 3)),
        draw(st.sampled_from([8, 16])),
        *(read, result, kernel, steps, dilation, padding),
        draw(st.sampled_from([4, 8, 16])),
    )


@settings(deadline=None, max_examples=5)
@given(walks())
def test_random_walks(walk: Walk) -> None:
    _same(walk.text())


# Two images of 6 by 5 pixels, 16 channels; 3 by 3 taps in steps of 2 and 1.
TEXT = """
kernel columns(in src: bf16[2, R, 5, 16]):
  grid for g in 8:
    alloc tile: bf16[4, 8] workgroup
    for tap in 9:
      compute a_pack(m in 4, c in 8):
        a = src[N, H, W, c + 8 | M]
        tile[m, c] = a
"""
INDEX = {
    "N": "(m + g * 4) // 15",
    "H": "(m + g * 4) // 5 % 3 * 2 + tap // 3 - 1",
    "W": "(m + g * 4) % 5 + tap % 3 - 1",
    "R": "6",
    "M": "(m + g * 4) < 30 and 0 <= H and H < R and 0 <= W and W < 5",
}


def _text(**changed: str) -> str:
    text = TEXT
    for name in "MNHWR":
        text = re.sub(rf"\b{name}\b", {**INDEX, **changed}[name], text)
    return text


def test_a_column() -> None:
    result = _found(_text())
    assert (result.order, result.channels, result.pixels) == ((3, 2, 1, 0), 8, 4)
    assert (result.steps, result.lower, result.upper) == ((1, 2), (-1, -1), (-1, -2))
    assert [to_text(e) for e in result.taps] == ["tap % 3", "tap // 3"]
    assert [to_text(e) for e in result.corner] == [
        "8",
        "g * 4 % 5 - 1",
        "g * 4 // 5 % 3 * 2 - 1",
        "g * 4 // 15",
    ]
    _same(_text())


# What is changed, and why it is no column then.
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "another order": (
        {"H": "(m + g * 4) % 3 * 2 + tap // 3 - 1", "W": "(m + g * 4) // 3 % 5 + tap % 3 - 1"},
        "is not the next digit, by 1 pixels",
    ),
    "a digit of another number": (
        {"W": "(m + g * 4 + 1) % 5 + tap % 3 - 1"},
        "is no digit of",
    ),
    "images of another size": ({"N": "(m + g * 4) // 18"}, "images are counted by 18 pixels"),
    "two numbers": (
        {"W": "(m + g * 4) % 5 + (m + g * 4) // 2 % 2 + tap % 3 - 1"},
        "is no digit of a number that counts 'm'",
    ),
    "backwards": ({"W": "5 - (m + g * 4) % 5 + tap % 3 - 1"}, "is no digit of a number"),
    "a pixel that is hidden": (
        {"M": INDEX["M"] + " and 1 <= m"},
        "its mask hides more than what is outside of the tensor: 1 <= m",
    ),
    "an end before the last pixel": (
        {"M": INDEX["M"].replace("< 30", "< 28")},
        "its mask hides pixels from 28 on",
    ),
    "a tap far away": (
        {"H": "(m + g * 4) // 5 % 3 * 2 + tap // 3 * 200 - 1", "R": "600"},
        "taps are up to 400 elements away, more than 255",
    ),
    "an image that goes on far behind": ({"R": "600"}, "its box goes from -1 to -596"),
    "a large step": ({"H": "(m + g * 4) // 5 % 3 * 9 + tap // 3 - 1"}, "9 elements apart"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    changed, message = REFUSED[name]
    _, compute, place = _copy(_text(**changed))
    tile = tile_of(compute, place.facts)
    assert isinstance(tile, str) and message in tile, tile


def test_other_dims_are_none() -> None:
    text = _text().replace("src[", "src[m, ").replace("bf16[2,", "bf16[4, 2,")
    _, compute, place = _copy(text)
    tile = tile_of(compute, place.facts)
    assert isinstance(tile, str) and "% 5 is no digit of m" in tile, tile


@pytest.mark.parametrize("change", ["corner", "taps", "lower", "order of taps"])
def test_the_unit_of_these_tests_finds_faults(change: str) -> None:
    """A wrong corner, tap or box gives other pixels, or none."""
    kernel, _, _ = _copy(_text())
    result = _found(_text())
    tensor = tensor_map(0, kernel.params[0].buffer, result)
    data = np.random.default_rng(1).integers(1, 1000, kernel.params[0].buffer.shape)
    values = {v: 3 for e in (*result.corner, *result.taps) for v in variables(e)}
    corner = [int(evaluate(e, values)) for e in result.corner]
    taps = [int(evaluate(e, values)) for e in result.taps]
    right = list(_unit(tensor, data, corner, taps))
    if change == "corner":
        corner[1] += 1
    elif change == "taps":
        taps[0] += 1
    elif change == "order of taps":
        taps.reverse()
    else:
        box = tensor.box
        assert isinstance(box, Columns)
        tensor = replace(tensor, box=replace(box, lower=(0, 0)))
    try:
        assert list(_unit(tensor, data, corner, taps)) != right
    except AssertionError as error:
        assert "not in the box" in str(error)
