"""How the rows of shared tiles keep their accesses out of one bank: by room between them, or by a
swizzle.

Counted, not derived: what the lanes of a subgroup read and write of a tile, in each layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from tilewright.ir.buffer import Buffer, Layout, Space, Swizzle
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Binary, Const, Expr, Var
from tilewright.ir.stmt import Compute, Dim, For, Kernel, View
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import variables, walk_stmts
from tilewright.layout.roles import MAIN
from tilewright.machines.banks import ROWS, WIDEST, WORD, instructions, turns
from tilewright.machines.banks import rows as matrix_rows
from tilewright.machines.machine import Hierarchy
from tilewright.recipes.mma import Mma
from tilewright.recipes.roles import extents, find_compute
from tilewright.schedule.queries.place import loops_around
from tilewright.schedule.queries.runs import strides

# Paddings that are tried, in elements.
_MOST = 16
# What part of a tile's memory is worth an exclusive or with each access.
_WORTH = 16
# Bits of the swizzles that are tried: as many runs as there are banks change places, at most.
_BITS = 5
# Points of a compute that are looked at: a swizzle has another pattern in each row.
_POINTS = 8
# The operators of indices. What else there is counts as 0: it moves all lanes alike.
_OPERATORS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
}


@dataclass(frozen=True)
class Spread:
    """How the rows of a tile, its steps along ``dim``, are kept apart: ``padding`` elements between
    them, or a swizzle."""

    padding: int = 0
    swizzle: Swizzle | None = None
    dim: int = 0

    def layout(self, plain: Layout) -> Layout:
        """The layout of a tile."""
        return replace(longer(plain, self.dim, self.padding), swizzle=self.swizzle)


def spreads(
    kernel: Kernel,
    hierarchy: Hierarchy,
    lanes: str,
    vector: int,
    copied: int,
    mma: Mma | None = None,
    together: tuple[str, int] = ("", 1),
) -> dict[str, Spread]:
    """Per operand of the main compute in ``kernel``, whose tiles are shared: what makes the fewest
    conflicts, and of those what takes the least memory. A padding of less than a sixteenth of the
    tile is taken before a swizzle, which takes arithmetic. Operands that need nothing are left out.

    ``lanes`` is the dim along which work-items read ``vector`` elements at once: there, rows stay
    aligned to these. They copy ``copied`` elements at a time. What an ``mma`` multiplies is loaded
    eight rows at a time instead; dot products read so many elements along a dim ``together``.
    """
    main = find_compute(kernel, MAIN)
    numbers = item_numbers(item_loops(kernel, MAIN), hierarchy.subgroup)
    writers = {
        s.out.buffer: s
        for s in walk_stmts(kernel.body)
        if isinstance(s, Compute) and s.out.buffer.space is Space.WORKGROUP
    }
    spread: dict[str, Spread] = {}
    for operand in main.operands[:2]:
        copy = writers.get(operand.view.buffer)
        if copy is None:
            continue
        stored = _Access(
            copy.out,
            copy,
            copy.dims[-1].var.name if copy.dims else "",
            copied,
            item_numbers(item_loops(kernel, copy.name), hierarchy.subgroup),
        )
        view = operand.view
        loaded: _Access
        if mma is not None:
            loaded = rows = _Rows(view, main, mma)
            width, dim = rows.run, rows.across
        else:
            used = {v.name for v in index_variables(view)}
            width, dim = vector if lanes in used else 1, view.buffer.layout.blocks[0].dim
            loaded = _Access(view, main, lanes, width, numbers, together)
            width *= together[1]
            if together[1] > 1 and view.buffer.layout.blocks[0].size == 1:
                # One row: its only step is what is read together.
                continue
        best = _best(view.buffer, dim, width, (stored, loaded), hierarchy)
        if best.padding or best.swizzle:
            spread[operand.var.name] = best
    return spread


def _best(
    tile: Buffer, dim: int, width: int, accesses: Sequence[_Access], hierarchy: Hierarchy
) -> Spread:
    """What serves ``accesses`` in the fewest turns, of which some are by ``width`` elements. Rows
    are the steps along ``dim``."""
    if all((access.turns(tile.layout, hierarchy) <= 1).all() for access in accesses):
        return Spread()

    def cost(spread: Spread) -> tuple[int, ...]:
        layout = spread.layout(tile.layout)
        waits = (access.times * int(access.turns(layout, hierarchy).sum()) for access in accesses)
        memory = layout.extent * _WORTH // tile.layout.extent
        # Of swizzles that of the longest runs: it leaves accesses together, and takes less of them.
        runs = 0 if layout.swizzle is None else tile.layout.extent // layout.swizzle.run
        return sum(waits), memory, runs, layout.extent

    widest = max(width, WIDEST // tile.dtype.bytes)
    return min(_candidates(tile.layout, dim, width, widest), key=cost)


def _candidates(plain: Layout, dim: int, narrow: int, wide: int) -> Iterator[Spread]:
    """Paddings by whole vectors of ``narrow`` elements; swizzles of runs of ``narrow`` to ``wide``
    elements, where all steps are powers of two."""
    for padding in range(0, _MOST + 1, narrow):
        yield Spread(padding, None, dim)
    if any(b.size > 1 and b.stride & (b.stride - 1) for b in plain.blocks):
        return
    row = _row(plain, dim).bit_length() - 1
    for base in range(narrow.bit_length() - 1, min(row, wide.bit_length())):
        for bits in range(1, min(_BITS, row - base) + 1):
            # Rows may be shorter than what all banks hold: several then have one number.
            for shift in range(row - base, row - base + 3):
                yield Spread(0, Swizzle(bits, base, shift), dim)


def padding_between(
    kernel: Kernel,
    accesses: Sequence[tuple[str, View, tuple[str, int] | Mma]],
    dim: int,
    hierarchy: Hierarchy,
) -> int:
    """The least padding of a dim of the tile in shared memory that the ``accesses`` touch, of those
    with the fewest conflicts.

    An access is by a compute of its work-items, to a view, by so many elements along a dim at once;
    or by instructions on matrices. The padding is in whole such vectors, or rows of matrices.
    """
    reaches: list[_Access] = []
    for name, view, way in accesses:
        compute = find_compute(kernel, name)
        if isinstance(way, Mma):
            reaches.append(_Rows(view, compute, way))
        else:
            numbers = item_numbers(item_loops(kernel, name), hierarchy.subgroup)
            reaches.append(_Access(view, compute, *way, numbers))
    plain = accesses[0][1].buffer.layout
    whole = max(access.run for access in reaches)

    def cost(padding: int) -> tuple[int, int]:
        layout = longer(plain, dim, padding)
        turns = sum(access.times * int(access.turns(layout, hierarchy).sum()) for access in reaches)
        return turns, padding

    return min(range(0, _MOST + 1, whole), key=cost)


def longer(plain: Layout, dim: int, padding: int) -> Layout:
    """``plain`` with so many elements between steps along the outermost block of ``dim``."""
    inner = _row(plain, dim)
    blocks = (
        replace(b, stride=b.stride + padding * (b.stride // inner)) if b.stride >= inner > 0 else b
        for b in plain.blocks
    )
    return replace(plain, parts=tuple(blocks))


def _row(plain: Layout, dim: int) -> int:
    """The step along the outermost block of ``dim``; 0 if it has none."""
    return next((b.stride for b in plain.blocks if b.dim == dim and b.size > 1), 0)


def item_loops(kernel: Kernel, compute: str) -> list[For]:
    """The loops over the work-items that make ``compute``, outermost first."""
    return [loop for loop in loops_around(kernel, compute) if loop.kind in THREADS]


class _Access:
    """What the lanes of a subgroup access of a tile: its index as (points, lanes, elements), how
    many elements make a ``run``, and how often a work-item does it."""

    def __init__(
        self,
        view: View,
        compute: Compute,
        dim: str,
        width: int,
        numbers: Mapping[Var, Any],
        together: tuple[str, int] = ("", 1),
    ) -> None:
        """``width`` elements along ``dim`` are accessed at once, and of each so many along another
        dim ``together``."""
        sizes, (inner, run) = extents(compute), together
        self.run = width
        elements = min(width, sizes.get(dim, 1)) * run
        used = index_variables(view)
        self.times = prod(sizes[d.var.name] for d in compute.dims if d.var in used) // elements
        self.size = view.buffer.dtype.bytes
        points = np.arange(_POINTS).reshape(-1, 1, 1)
        once = {dim: (elements // run, run), inner: (run, 1)}
        values: dict[Var, Any] = {
            d.var: _steps(d, points, elements, *once.get(d.var.name, (1, elements)))
            for d in compute.dims
        }
        values |= numbers
        shape = (_POINTS, max((a.shape[1] for a in values.values()), default=1), elements)
        self.index = [np.broadcast_to(values_of(index, values), shape) for index in view.index]
        self.active = np.ones(shape, np.bool_)

    def turns(self, layout: Layout, hierarchy: Hierarchy) -> Any:
        """Turns that the banks take to serve each part of a subgroup, at some of the times."""
        starts = layout.place(self.index) * self.size
        pieces, active = instructions(starts, self.active, self.size)
        return turns(pieces, active, self.size, hierarchy)


class _Rows(_Access):
    """What loads and stores of fragments access: rows of 16 bytes along the dim in which the tile
    has neighbours, eight at a time (see `machines.banks.rows`)."""

    def __init__(self, view: View, main: Compute, mma: Mma) -> None:
        apart, sizes = strides(main, view), extents(main)
        used = [d for d in mma.dims.values() if apart.get(d)]
        along = next(d for d in used if apart[d] == 1)
        (down,) = (d for d in used if d != along)
        self.size = view.buffer.dtype.bytes
        self.run = WIDEST // self.size
        self.across = [down in {v.name for v in variables(i)} for i in view.index].index(True)
        self.times = sizes[down] * sizes[along] // (ROWS * self.run)
        points = np.arange(_POINTS).reshape(-1, 1, 1)
        places = {
            down: points * ROWS % sizes[down] + np.arange(ROWS).reshape(1, -1, 1),
            along: points * self.run % sizes[along] + np.arange(self.run).reshape(1, 1, -1),
        }
        values = {d.var: places[d.var.name] for d in main.dims if d.var.name in places}
        shape = (_POINTS, ROWS, self.run)
        self.index = [np.broadcast_to(values_of(index, values), shape) for index in view.index]

    def turns(self, layout: Layout, hierarchy: Hierarchy) -> Any:
        words, active = matrix_rows(layout.place(self.index) * self.size, self.size)
        return turns(words, active, WORD, hierarchy)


def _steps(dim: Dim, points: Any, elements: int, count: int, run: int) -> Any:
    """The first steps along all dims at once, by ``count`` along this one: of the ``elements`` that
    are accessed at once, each ``run`` is at one of them."""
    size = int(dim.extent.value) if isinstance(dim.extent, Const) else 1
    return points * count % size + np.arange(elements) // run % count


def item_numbers(items: Sequence[For], subgroup: int) -> dict[Var, Any]:
    """The numbers of the first work-items along each loop, as (1, lanes of a subgroup, 1)."""
    sized = [(i.var, int(i.extent.value)) for i in items if isinstance(i.extent, Const)]
    count = min(subgroup, prod(extent for _, extent in sized))
    lane = np.arange(count).reshape(1, -1, 1)
    numbers: dict[Var, Any] = {}
    for variable, extent in reversed(sized):
        numbers[variable] = lane % extent
        lane = lane // extent
    return numbers


def values_of(expr: Expr, known: Mapping[Var, Any]) -> Any:
    """``expr`` where everything that is not known is 0."""
    match expr:
        case Const():
            return expr.value
        case Var():
            return known.get(expr, 0)
        case Binary() if expr.op in _OPERATORS:
            return _OPERATORS[expr.op](values_of(expr.a, known), values_of(expr.b, known))
        case _:
            return 0
