"""The steps of a nest, with what each computes and reaches and the loops around it; and private
buffers, which are held in registers where there is room."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.facts.usual import usual
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Let
from tilewright.ir.visit import variables
from tilewright.machines.machine import Machine
from tilewright.predict.nest import FLAT, WIDE, Nest, Step
from tilewright.predict.steps import (
    NOTHING,
    Access,
    Dependence,
    Lanes,
    Operation,
    Uses,
    accesses,
    operations,
    used_by,
)


@dataclass(frozen=True, eq=False)
class Line:
    """A step, and the nests around it, outermost first, of which the last one ``body`` is not
    written out; ``unrolled`` are the extents of loops inside ``body`` that are."""

    step: Step
    path: tuple[Nest, ...]
    body: Nest
    unrolled: Mapping[Var, float]
    lanes: Lanes
    operations: tuple[Operation, ...]
    accesses: tuple[Access, ...]

    def times(self, uses: Dependence, stored: Dependence = NOTHING) -> float:
        """How many copies run, in straight-line code, of what depends on ``uses``: all of them
        where that is also ``stored`` there."""
        every = not uses.isdisjoint(stored)
        copies = (size for variable, size in self.unrolled.items() if every or variable in uses)
        return math.prod(copies) * self.step.share

    def places(self, access: Access) -> float:
        """How many places ``access`` reaches in straight-line code: copies of a sum of variables,
        as in a window that moves, meet again."""
        moving = [(access.steps.get(v, 0), int(n)) for v, n in self.unrolled.items()]
        moving = [(step, n) for step, n in moving if step != 0 and n > 1]
        if len(moving) < 2 or any(step is None for step, _ in moving):
            return self.times(access.uses)
        reached = {0}
        for step, number in moving:
            reached = {place + (step or 0) * i for place in reached for i in range(number)}
        return len(reached) * self.step.share


def lines_of(root: Nest, machine: Machine) -> list[Line]:
    """All steps of the tree, in order, without values that nothing uses."""
    lines = list(_lines(root, (), root, {}, {}, Uses(), machine))
    used = frozenset[Var]().union(
        *(variables(expr) for line in lines for expr in used_by(line.step))
    )
    return [line for line in lines if not isinstance(s := line.step.stmt, Let) or s.var in used]


def _lines(
    nest: Nest,
    outer: tuple[Nest, ...],
    body: Nest,
    unrolled: Mapping[Var, float],
    lanes: Lanes,
    uses: Uses,
    machine: Machine,
) -> Iterator[Line]:
    path = (*outer, nest)
    if not is_flat(nest):
        body, unrolled = nest, {}
    if nest.var is not None and nest.kind in WIDE:
        lanes = {**lanes, nest.var: nest.extent}
    elif nest.var is not None and nest is not body:
        unrolled = {**unrolled, nest.var: nest.extent}
    for part in nest.parts:
        if isinstance(part, Nest):
            yield from _lines(part, path, body, unrolled, lanes, uses, machine)
            continue
        extents = {**lanes, **part.dims}
        computed = tuple(operations(part, uses, machine))
        reached = tuple(accesses(part, extents, uses))
        if isinstance(part.stmt, Let):
            uses.name(part.stmt)
        yield Line(part, path, body, unrolled, extents, computed, reached)


def is_flat(nest: Nest) -> bool:
    """Whether ``nest`` is straight-line code: a loop over lanes, or one that is written out, around
    nothing but such loops."""
    return nest.kind in FLAT and all(map(is_flat, nest.nests))


def held(root: Nest, lines: Sequence[Line], machine: Machine) -> dict[Buffer, float]:
    """The private buffers that are in registers, and which part of each has room there."""
    reached: dict[Buffer, list[tuple[Line, Access]]] = {}
    lives: dict[Buffer, tuple[int, int]] = {}  # the first and the last step with it
    for place, line in enumerate(lines):
        for access in line.accesses:
            if access.buffer.space is Space.PRIVATE:
                reached.setdefault(access.buffer, []).append((line, access))
                lives[access.buffer] = (lives.get(access.buffer, (place,))[0], place)
    rooms: dict[Buffer, float] = {}
    for nest in _nests(root):
        sizes = {}
        for buffer in nest.allocated:
            # Pieces of a kernel may each allocate it.
            here = [pair for pair in reached.get(buffer, ()) if nest in pair[0].path]
            if here and _is_fixed(nest, here):
                sizes[buffer] = _registers(buffer, here, machine)
        most = _together(sizes, lives)
        room = min(1.0, machine.vector_registers / max(most, 1.0))
        rooms |= {buffer: min(room, rooms.get(buffer, 1.0)) for buffer in sizes}
    return rooms


def _together(sizes: Mapping[Buffer, float], lives: Mapping[Buffer, tuple[int, int]]) -> float:
    """The most registers that are in use at a time."""
    starts = {lives[buffer][0] for buffer in sizes}
    return max(
        (sum(n for b, n in sizes.items() if lives[b][0] <= at <= lives[b][1]) for at in starts),
        default=0.0,
    )


def _nests(nest: Nest) -> Iterator[Nest]:
    yield nest
    for part in nest.nests:
        yield from _nests(part)


def _is_fixed(nest: Nest, reached: Sequence[tuple[Line, Access]]) -> bool:
    """Whether places in a buffer that ``nest`` allocates are numbers once loops are written out."""
    for line, access in reached:
        inside = line.path[line.path.index(nest) + 1 :]
        if any(part.var in access.uses for part in inside if part.kind not in FLAT):
            return False
    return True


def _registers(buffer: Buffer, reached: Sequence[tuple[Line, Access]], machine: Machine) -> float:
    elements, width = math.prod(map(usual, buffer.sizes)), buffer.dtype.bytes
    lanes = [
        math.prod(size for v, size in access.lanes.items() if v in access.uses)
        for _, access in reached
    ]
    if max(lanes) > 1:
        # What few lanes reach has registers of its own.
        narrow = min(width * n for n in lanes if n > 1)
        return math.ceil(elements * width / min(narrow, machine.vector_bytes))
    # Of one that is as large as its place elsewhere, only these.
    places = {access.key: line.places(access) / line.step.share for line, access in reached}
    return min(elements, sum(places.values()))
