"""`Compute` statements: a structured op over its whole domain, in boxes of bounded size.

All points of a box do the same thing together: they load their operands, evaluate the values, and
store. Points of ordered dims come one after the other. The body rounds to its types at every
operation; `combining` says how values are reduced.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.interpret.combining import Combining, Values, combining
from tilewright.interpret.findings import FaultKind
from tilewright.interpret.fragments import Fragments
from tilewright.interpret.groups import GridRun
from tilewright.interpret.lanes import (
    POINT_LIMIT,
    Frame,
    Identity,
    Site,
    anywhere,
    both,
    fault,
    first_lane,
    spread,
)
from tilewright.interpret.memory import Memory
from tilewright.interpret.specialized import specialized_launch
from tilewright.interpret.storage import Where
from tilewright.interpret.values import Evaluator
from tilewright.ir.computes import addressing, mentioned
from tilewright.ir.expr import Const, Var
from tilewright.ir.functions import Queue, atomic_operator
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Compute, LoopKind, Result


@dataclass(frozen=True, slots=True)
class _Update:
    """One result of a compute: its way of combining, and the dims that it depends on."""

    result: Result
    combining: Combining | None
    kept: frozenset[Var]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Values of one result for the elements that ``frame`` has lanes for."""

    frame: Frame
    values: Values
    active: Any


class Computes:
    """Runs `Compute` statements."""

    def __init__(
        self,
        memory: Memory,
        evaluator: Evaluator,
        launches: list[GridRun],
        fragments: Fragments,
    ) -> None:
        self._memory = memory
        self._evaluator = evaluator
        self._launches = launches
        self._fragments = fragments
        # By the id of a statement, which the kernel keeps alive; and whether views use operands.
        self._updates: dict[int, tuple[list[_Update], bool]] = {}

    def run(self, stmt: Compute, frame: Frame) -> None:
        """``out = combine(out, value)`` for all results, at every point, for every lane."""
        if stmt.completion is not None:
            frame = specialized_launch(self._launches, stmt).started(frame, stmt.completion)
        if stmt.is_ordered:
            for point in self._sequence(stmt, frame):
                self._unordered(stmt, point)
        else:
            self._unordered(stmt, frame)

    def _sequence(self, stmt: Compute, frame: Frame) -> Iterator[Frame]:
        """``frame`` at each point of the ordered dims, the last of them fastest."""
        dims = [dim for dim in stmt.dims if dim.ordered]
        extents = [self._evaluator.evaluate(dim.extent, frame, stmt) for dim in dims]
        for place in np.ndindex(*(max(0, int(np.max(extent))) for extent in extents)):
            point = frame.scope()
            for dim, extent, number in zip(dims, extents, place, strict=True):
                point.values[dim.var] = number
                if np.ndim(extent):
                    point = point.restrict(number < extent)
            if point.mask is None or anywhere(point.mask):
                yield point

    def _unordered(self, stmt: Compute, frame: Frame) -> None:
        """All points of the dims that are not ordered."""
        lanes = len(frame.shape)
        domain = self._domain(stmt, frame)
        if domain is None:
            return
        self._fragments.check(stmt, domain, self._evaluator, self._memory.findings)
        updates, _ = self._described(stmt)
        free = [dim.var for dim in stmt.dims if not dim.ordered]
        # Of several points that assign to one element, the last wins: they are kept apart.
        over = [
            tuple(
                lanes + axis
                for axis, var in enumerate(free)
                if update.combining is not None and var not in update.kept
            )
            for update in updates
        ]
        reduced = sorted(set(itertools.chain(*over)))
        sizes = _box_sizes(domain.shape, reduced)
        kept = [axis for axis in range(len(domain.shape)) if axis not in reduced]
        for box in _boxes(domain.shape, sizes, kept):
            part = domain.narrow(box)
            pieces = self._pieces(stmt, part, over, _boxes(part.shape, sizes, reduced))
            for update, by_element in zip(updates, pieces, strict=True):
                for piece in by_element.values():
                    self._write(stmt, update, piece)

    def _described(self, stmt: Compute) -> tuple[list[_Update], bool]:
        described = self._updates.get(id(stmt))
        if described is None:
            updates = [
                _Update(
                    result,
                    combining(stmt, result, self._evaluator),
                    mentioned(stmt, result.views[0]),
                )
                for result in stmt.results
            ]
            described = self._updates[id(stmt)] = (updates, bool(addressing(stmt)))
        return described

    def _domain(self, stmt: Compute, frame: Frame) -> Frame | None:
        """``frame`` with an axis per dim that is not ordered; None for an empty domain."""
        domain = frame
        # An instruction's points are accessed together.
        together = stmt.instruction is not None and not _atomic(stmt)
        kind = LoopKind.VECTOR if together else LoopKind.SERIAL
        dims = [dim for dim in stmt.dims if not dim.ordered]
        constant = [(d.var, int(d.extent.value)) for d in dims if isinstance(d.extent, Const)]
        if len(constant) == len(dims):
            # The usual case: all axes at once.
            return frame.over(constant, kind) if all(most > 0 for _, most in constant) else None
        for dim in dims:
            extent = self._evaluator.evaluate(dim.extent, domain, stmt)
            most = int(np.max(extent))
            if most <= 0:
                return None
            domain = domain.extend(dim.var, np.arange(most), kind)
            if np.ndim(extent):
                domain = domain.restrict(domain.values[dim.var] < extent[..., None])
        return domain

    def _pieces(
        self, stmt: Compute, frame: Frame, over: list[tuple[int, ...]], boxes: Iterator[list[slice]]
    ) -> list[dict[tuple[int, ...], _Piece]]:
        """For each result, its values for the elements of ``frame``, box by box of these.

        Nothing is stored before all points are evaluated: results may be operands.
        """
        updates, _ = self._described(stmt)
        results: list[dict[tuple[int, ...], _Piece]] = [{} for _ in updates]
        for box in boxes:
            part, points = self._points(stmt, frame.narrow(box))
            for update, axes, pieces, (values, active) in zip(
                updates, over, results, points, strict=True
            ):
                if update.combining is not None:
                    values = update.combining.reduce(values, active, part.shape, axes)
                    if active is not None:
                        shaped = spread(active, part.shape)
                        active = np.any(shaped, axis=axes, keepdims=True)
                key = tuple(s.start for axis, s in enumerate(box) if axis not in axes)
                earlier = pieces.get(key)
                if earlier is None:
                    first = [slice(0, 1 if i in axes else n) for i, n in enumerate(part.shape)]
                    pieces[key] = _Piece(part.narrow(first), values, active)
                elif update.combining is not None:
                    everywhere = active is None or earlier.active is None
                    active = None if everywhere else earlier.active | active
                    merged = update.combining.merge(earlier.values, values)
                    pieces[key] = _Piece(earlier.frame, merged, active)
        return results

    def _points(self, stmt: Compute, frame: Frame) -> tuple[Frame, list[tuple[Values, Any]]]:
        """For each result, its values and the mask of the points that count; and the frame that
        its indices are evaluated in."""
        _, addressed = self._described(stmt)
        scope = frame.scope()
        places = scope if addressed else frame
        for operand in stmt.operands:
            view = operand.view
            index = [self._evaluator.evaluate(i, places, stmt) for i in view.index]
            mask = None if view.mask is None else self._evaluator.evaluate(view.mask, places, stmt)
            value = self._memory.load(view.buffer, index, mask, Site(stmt, places))
            scope.values[operand.var] = value
        points: list[tuple[Values, Any]] = []
        for result in stmt.results:
            values = [self._evaluator.evaluate(value, scope, stmt) for value in result.values]
            mask = result.views[0].mask
            here = None if mask is None else self._evaluator.evaluate(mask, places, stmt)
            points.append((values, both(frame.mask, here)))
        return places, points

    def _write(self, stmt: Compute, update: _Update, piece: _Piece) -> None:
        frame, active, views = piece.frame, piece.active, update.result.views
        site = Site(stmt, frame)
        if active is not None and not anywhere(active):
            self._start_without_writes(stmt, site)
            return
        places: Values = []
        for view in views:
            index = [self._evaluator.evaluate(i, frame, stmt) for i in view.index]
            offsets, active = self._memory.locate(view.buffer, index, active, site)
            places.append(offsets)
        if active is not None and not anywhere(active):
            self._start_without_writes(stmt, site)
            return
        places = [spread(offsets, frame.shape) for offsets in places]
        values: Values = [spread(value, frame.shape) for value in piece.values]
        if active is not None:
            active = spread(active, frame.shape)
        if any(_repeat(offsets, active) for offsets in places):
            # Points of several work-items are noted before they are merged into one.
            for view, offsets in zip(views, places, strict=True):
                self._memory.note(_verb(stmt), view.buffer, (offsets, active, site))
            values, active = self._merged(update, places, values, active, site)
        if _atomic(stmt):
            self._update_atomically(stmt, update, values, (places[0], active, site))
            return
        if stmt.completion is not None:
            self._start(stmt, update, values, (places[0], active, site))
            return
        if update.combining is not None:
            before = [
                self._memory.read(view.buffer, offsets, active, site)
                for view, offsets in zip(views, places, strict=True)
            ]
            values = update.combining.onto(before, values)
        for view, offsets, value in zip(views, places, values, strict=True):
            self._memory.write(view.buffer, offsets, value, active, site)

    def _merged(
        self, update: _Update, places: Values, values: Values, active: Any, site: Site
    ) -> tuple[Values, Any]:
        """One active point per element, in place of all that have it."""
        shape = places[0].shape
        points = np.arange(places[0].size) if active is None else np.flatnonzero(active)
        flat = [offsets.ravel()[points] for offsets in places]
        order = np.argsort(flat[0], kind="stable")
        starts = _starts(flat[0][order])
        if update.result.unique or not all(_agree(offsets[order], starts) for offsets in flat[1:]):
            self._report_repeated(update, points[order][starts], shape, site)
        order = points[order]
        merged = [value.flatten() for value in values]
        if update.combining is None:
            leaders = order[np.append(starts[1:], len(order)) - 1]
        else:
            leaders = order[starts]
            combined = update.combining.segments([value[order] for value in merged], starts)
            for whole, value in zip(merged, combined, strict=True):
                whole[leaders] = value
        is_leader = np.zeros(places[0].size, np.bool_)
        is_leader[leaders] = True
        return [value.reshape(shape) for value in merged], is_leader.reshape(shape)

    def _report_repeated(self, update: _Update, points: Any, shape: Any, site: Site) -> None:
        text = ", ".join(map(to_text, update.result.views))
        what, cure = "is written by two points", "combine (`add=`), or write each element once"
        why = "the result promises that its places are unique"
        if not update.result.unique:
            what, cure = "are not the same element for the same points", "give them one index"
            why = "what is combined together is one element of each"
        bad = np.zeros(shape, np.bool_)
        bad.ravel()[points] = True
        self._memory.findings.report(
            FaultKind.REPEATED_PLACE,
            site.stmt,
            len(points),
            lambda: fault(f"{text} {what}", site, first_lane(bad), why=why, cure=cure),
        )

    def _start(self, stmt: Compute, update: _Update, values: Values, where: Where) -> None:
        """Starts the asynchronous op; ops of one queue accumulate in order."""
        offsets, active, site = where
        buffer, completion = stmt.out.buffer, stmt.completion
        storage = self._memory.writable(buffer, site)
        if storage is None or completion is None:
            return
        queued = isinstance(completion, Queue) and storage.queue is completion
        self._memory.note("write", buffer, where, queued=queued)
        self._memory.observe("store", buffer, offsets, active, site)
        if update.combining is not None:
            self._memory.check_defined(storage, offsets, active, site)
            values = update.combining.onto([storage.data[offsets]], values)
        self._memory.put(storage, offsets, values[0], active)
        launch = specialized_launch(self._launches, stmt)
        if isinstance(completion, Queue):
            launch.transfers.start(storage, where, completion)
            return
        index = [self._evaluator.evaluate(i, site.frame, stmt) for i in completion.index]
        place, mask = self._memory.locate(completion.buffer, index, active, site)
        if mask is active:  # otherwise it was reported
            # The subgroup itself names the mbarrier: no fence is needed after its initialization.
            itself = site.frame.scope()
            del itself.values[Identity.ASYNCHRONOUS]
            self._memory.note("atomic", completion.buffer, (place, mask, Site(stmt, itself)))
            mbarriers = launch.mbarriers(self._memory.storage(completion.buffer, site))
            launch.transfers.start(storage, where, (mbarriers, place))

    def _start_without_writes(self, stmt: Compute, site: Site) -> None:
        """An op that joins a queue reads its operands, even where masks hide all of its writes."""
        if isinstance(stmt.completion, Queue):
            storage = self._memory.storage(stmt.out.buffer, site)
            where = (np.int64(0), np.False_, site)
            launch = specialized_launch(self._launches, stmt)
            launch.transfers.start(storage, where, stmt.completion)

    def _update_atomically(
        self, stmt: Compute, update: _Update, values: Values, where: Where
    ) -> None:
        """Reads the old values in the access that writes the new ones."""
        offsets, active, site = where
        buffer = stmt.out.buffer
        storage = self._memory.writable(buffer, site)
        if storage is None:
            return
        self._memory.check_defined(storage, offsets, active, site)
        self._memory.note("atomic", buffer, where)
        self._memory.observe("update", buffer, offsets, active, site)
        if update.combining is not None:
            values = update.combining.onto([storage.data[offsets]], values)
        self._memory.put(storage, offsets, values[0], active)


def _atomic(stmt: Compute) -> bool:
    return atomic_operator(stmt.instruction) is not None


def _verb(stmt: Compute) -> str:
    """The kind of access to its output, for the race checker."""
    return "atomic" if _atomic(stmt) else "write"


def _box_sizes(shape: tuple[int, ...], reduced: list[int]) -> list[int]:
    """Sizes of boxes of at most `POINT_LIMIT` points: reduced axes whole first, then inner ones."""
    sizes = [1] * len(shape)
    room = POINT_LIMIT
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    for axis in reversed(kept + reduced):
        sizes[axis] = max(1, min(shape[axis], room))
        room //= sizes[axis]
    return sizes


def _boxes(shape: tuple[int, ...], sizes: list[int], axes: list[int]) -> Iterator[list[slice]]:
    """Boxes that cover ``shape``: split along ``axes``, whole along the others."""
    ranges = [
        [slice(i, min(i + sizes[axis], n)) for i in range(0, n, sizes[axis])]
        if axis in axes
        else [slice(0, n)]
        for axis, n in enumerate(shape)
    ]
    for box in itertools.product(*ranges):
        yield list(box)


def _repeat(offsets: Any, active: Any) -> bool:
    """Whether two active points have one offset."""
    used = offsets.ravel() if active is None else offsets[active]
    low, high = int(used.min()), int(used.max())
    if high - low >= 16 * len(used) + 65536:
        return len(np.unique(used)) < len(used)
    seen = np.zeros(high - low + 1, np.bool_)
    seen[used - low] = True
    return bool(np.count_nonzero(seen) < len(used))


def _starts(in_order: Any) -> Any:
    """Where runs of one offset begin."""
    return np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))


def _agree(offsets: Any, starts: Any) -> bool:
    """Whether ``offsets`` are equal within each run, and different between runs."""
    first = offsets[starts]
    lengths = np.diff(np.append(starts, len(offsets)))
    equal = np.array_equal(np.repeat(first, lengths), offsets)
    return bool(equal and len(np.unique(first)) == len(first))
