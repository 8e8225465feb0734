"""A contraction on a CPU as its model sees it: sizes, and how far each dim moves what is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tilewright.ir.stmt import Compute
from tilewright.recipes.roles import (
    CLOSE,
    Roles,
    channels_of,
    extents,
    reduces_positions,
    roles,
    tested_of,
    windowed_of,
)
from tilewright.schedule.queries.runs import strides

# Of a 3x3 convolution of 64 channels with lanes along rows, beside one with lanes along channels,
# on AVX2: 19 of 70 GFLOP/s.
_WINDOWED = 0.3


class Loaded(Enum):
    """How a register tile loads A at each step: an element for each row, the same for all lanes; a
    vector for each multiply-add; vectors that taps side by side have in common, of which few are
    new."""

    ONCE, EACH, SHARED = range(3)


@dataclass(frozen=True)
class Shape:
    """A contraction as the model sees it. ``channels`` are those of K that are no taps; taps move A
    along the dims ``windowed``. ``positions``: what is reduced are the positions that taps are
    moved to. ``tested``: the reduced dims that A's mask tests, with the kept dims of each test."""

    sizes: Mapping[str, int]
    roles: Roles
    channels: Sequence[str]
    a: Mapping[str, int | None]
    b: Mapping[str, int | None]
    c: Mapping[str, int | None]
    windowed: frozenset[str]
    positions: bool
    tested: Mapping[str, frozenset[str]]
    bytes_a: int
    bytes_b: int
    bytes_c: int
    element_a: int
    element_b: int
    element_c: int

    def loaded(self, lanes: str) -> Loaded:
        """How register tiles with ``lanes`` across vectors load A."""
        if self.a.get(lanes) == 0:
            return Loaded.ONCE
        return Loaded.EACH if self.positions else Loaded.SHARED


def shape_of(compute: Compute, out: Compute) -> Shape:
    """The shape of the reduction ``compute`` whose result ``out`` (the epilogue) stores."""
    a, b = (operand.view for operand in compute.operands[:2])
    return Shape(
        extents(compute),
        roles(compute),
        channels_of(compute),
        strides(compute, a),
        strides(compute, b),
        strides(out, out.out),
        windowed_of(compute),
        reduces_positions(compute),
        tested_of(compute),
        a.buffer.bytes,
        b.buffer.bytes,
        out.out.buffer.bytes,
        a.buffer.dtype.bytes,
        b.buffer.dtype.bytes,
        out.out.buffer.dtype.bytes,
    )


def lanes_of(shape: Shape, vector: int) -> str:
    """The dim across vector lanes: one along which A is one value (a broadcast) or contiguous, or
    else close together, that fills the lanes, and along which C is contiguous. Where taps move A
    along it, no vector of A is aligned, and those at both ends have masks."""
    best: tuple[tuple[int, float, int, int], str] | None = None
    for dim in shape.roles.kept:
        size = shape.sizes[dim]
        speed = _WINDOWED if dim in shape.windowed and shape.a.get(dim) == 1 else 1.0
        filled = round(speed * size / (math.ceil(size / vector) * vector), 1)
        step = shape.a.get(dim)
        easy = 2 if step in (0, 1) else int(step is not None and abs(step) <= CLOSE)
        key = (easy, filled, int(shape.c.get(dim) == 1), int(dim in shape.roles.n))
        if best is None or key > best[0]:
            best = (key, dim)
    assert best is not None
    return best[1]


def rows_of(shape: Shape, lanes: str) -> str | None:
    """The dim of C whose neighbours share B's vectors: the longest of M (or what else is kept)."""
    others = [d for d in shape.roles.m if d != lanes and shape.sizes[d] > 1]
    if not others:
        others = [d for d in (*shape.roles.n, *shape.roles.batch) if d != lanes]
        others = [d for d in others if shape.sizes[d] > 1]
        return max(others, key=lambda d: shape.sizes[d], default=None)
    # The innermost dim of A's positions, so that rows lie close together.
    return min(others, key=lambda d: (shape.a.get(d) or 2**40, -shape.sizes[d]))
