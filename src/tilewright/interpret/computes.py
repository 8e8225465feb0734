"""`Compute` statements: a structured op over its whole domain, in boxes of bounded size.

A reduction over floats accumulates in f64, one over integers exactly (modulo the width of the
type), and rounds once into the type of the output: ``out = round(out + sum(body))``. The body
itself rounds to its types at every operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.conversions import convert
from tilewright.dtypes import DType, boolean, f64, s64
from tilewright.errors import UnsupportedError
from tilewright.interpret.fragments import Fragments
from tilewright.interpret.groups import Launch
from tilewright.interpret.lanes import POINT_LIMIT, Frame, Identity, Site, both
from tilewright.interpret.memory import Memory
from tilewright.interpret.specialized import specialized
from tilewright.interpret.values import Evaluator
from tilewright.ir.functions import Queue, atomic_operator
from tilewright.ir.stmt import Compute, LoopKind
from tilewright.ir.visit import variables

_ACCUMULATE: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.logical_and,
    "or": np.logical_or,
}
_ACCUMULATE_BOOL = {"add": np.logical_or, "mul": np.logical_and, "min": np.logical_and}


class Computes:
    """Runs `Compute` statements."""

    def __init__(
        self,
        memory: Memory,
        evaluator: Evaluator,
        launches: list[Launch],
        fragments: Fragments,
    ) -> None:
        self._memory = memory
        self._evaluator = evaluator
        self._launches = launches
        self._fragments = fragments

    def run(self, stmt: Compute, frame: Frame) -> None:
        """``out = combine(out, body)`` at every point of the domain, for every lane."""
        lanes = len(frame.shape)
        if stmt.completion is not None:
            frame = specialized(self._launches, stmt).started(frame, stmt.completion)
        domain = self._domain(stmt, frame)
        if domain is None:
            return
        self._fragments.check(stmt, domain, self._evaluator, self._memory.findings)
        mentioned = frozenset().union(*map(variables, stmt.out.index))
        reduced = [
            lanes + axis
            for axis, dim in enumerate(stmt.dims)
            # Assignments of several points to one element: the last wins, so keep them apart.
            if dim.var not in mentioned and stmt.combiner is not None
        ]
        sizes = _box_sizes(domain.shape, reduced)
        kept = [axis for axis in range(len(domain.shape)) if axis not in reduced]
        for box in _boxes(domain.shape, sizes, kept):
            self._update(stmt, domain.narrow(box), reduced, sizes)

    def _domain(self, stmt: Compute, frame: Frame) -> Frame | None:
        """``frame`` with an axis per dim; None for an empty domain."""
        domain = frame
        # An instruction's points are accessed together.
        together = stmt.instruction is not None and not _atomic(stmt)
        kind = LoopKind.VECTOR if together else LoopKind.SERIAL
        for dim in stmt.dims:
            extent = self._evaluator.evaluate(dim.extent, domain, stmt)
            most = int(np.max(extent))
            if most <= 0:
                return None
            domain = domain.extend(dim.var, np.arange(most), kind)
            if np.ndim(extent):
                domain = domain.restrict(domain.values[dim.var] < extent[..., None])
        return domain

    def _update(self, stmt: Compute, frame: Frame, reduced: list[int], sizes: list[int]) -> None:
        """All points of the outputs in ``frame``."""
        values: Any = None
        active: Any = None
        for box in _boxes(frame.shape, sizes, reduced):
            part = frame.narrow(box)
            body, mask = self._points(stmt, part)
            if stmt.combiner is not None:
                body, mask = self._reduce(stmt, body, mask, (part.shape, tuple(reduced)))
            if values is None:
                values, active = body, mask
            else:
                values = _accumulator(stmt)(values, body)
                active = None if mask is None or active is None else active | mask
        first = [slice(0, 1 if axis in reduced else n) for axis, n in enumerate(frame.shape)]
        self._write(stmt, frame.narrow(first), values, active)

    def _points(self, stmt: Compute, frame: Frame) -> tuple[Any, Any]:
        """The body's values, and the mask of the points that count."""
        scope = frame.scope()
        site = (frame, stmt)
        for operand in stmt.operands:
            view = operand.view
            index = [self._evaluator.evaluate(i, *site) for i in view.index]
            mask = None if view.mask is None else self._evaluator.evaluate(view.mask, *site)
            value = self._memory.load(view.buffer, index, mask, Site(stmt, frame))
            scope.values[operand.var] = value
        body = self._evaluator.evaluate(stmt.body, scope, stmt)
        mask = stmt.out.mask
        here = None if mask is None else self._evaluator.evaluate(mask, *site)
        return body, both(frame.mask, here)

    def _reduce(
        self, stmt: Compute, body: Any, mask: Any, over: tuple[tuple[int, ...], tuple[int, ...]]
    ) -> tuple[Any, Any]:
        """Body and mask with the reduced axes combined (and kept, of size 1)."""
        shape, axes = over
        type_ = stmt.out.buffer.dtype
        wide = _widened(body, type_)
        combine = _accumulator(stmt)
        if mask is not None:
            wide = np.where(mask, wide, _identity(stmt, wide.dtype))
            mask = np.any(np.broadcast_to(mask, shape), axis=axes, keepdims=True)
        wide = np.broadcast_to(wide, shape)
        if not axes:
            return wide, mask
        return combine.reduce(wide, axis=axes, dtype=wide.dtype, keepdims=True), mask

    def _write(self, stmt: Compute, frame: Frame, values: Any, active: Any) -> None:
        buffer = stmt.out.buffer
        site = Site(stmt, frame)
        if active is not None and not np.any(active):
            self._start_without_writes(stmt, site)
            return
        index = [self._evaluator.evaluate(i, frame, stmt) for i in stmt.out.index]
        offsets, active = self._memory.locate(buffer, index, active, site)
        if active is not None and not np.any(active):
            self._start_without_writes(stmt, site)
            return
        shape = frame.shape
        offsets, values = np.broadcast_to(offsets, shape), np.broadcast_to(values, shape)
        if active is not None:
            active = np.broadcast_to(active, shape)
        if _repeat(offsets, active):
            # They may be points of several work-items: this is seen before they become one.
            self._memory.note(_verb(stmt), buffer, (offsets, active, site))
            values, active = _merge(stmt, offsets, values, active)
        if _atomic(stmt):
            self._update_atomically(stmt, offsets, values, active, site)
            return
        if stmt.completion is not None:
            self._start(stmt, offsets, values, active, site)
            return
        if stmt.combiner is not None:
            before = self._memory.read(buffer, offsets, active, site)
            values = _combined(stmt, before, values)
        self._memory.write(buffer, offsets, values, active, site)

    def _start(self, stmt: Compute, offsets: Any, values: Any, active: Any, site: Site) -> None:
        """The op is under way from now on; ops of one queue accumulate in order."""
        buffer, completion = stmt.out.buffer, stmt.completion
        storage = self._memory.writable(buffer, site)
        if storage is None or completion is None:
            return
        queued = isinstance(completion, Queue) and storage.queue is completion
        self._memory.note("write", buffer, (offsets, active, site), behind=queued)
        self._memory.observe("store", buffer, offsets, active, site)
        if stmt.combiner is not None:
            self._memory.check_defined(storage, offsets, active, site)
            values = _combined(stmt, storage.data[offsets], values)
        self._memory.put(storage, offsets, values, active)
        launch = specialized(self._launches, stmt)
        where = (offsets, active, site)
        if isinstance(completion, Queue):
            launch.transfers.start(storage, where, completion)
            return
        index = [self._evaluator.evaluate(i, site.frame, stmt) for i in completion.index]
        place, mask = self._memory.locate(completion.buffer, index, active, site)
        if mask is active:  # otherwise it was reported
            # It is the subgroup that says which mbarrier: no fence is needed behind its making.
            itself = site.frame.scope()
            del itself.values[Identity.ASYNCHRONOUS]
            self._memory.note("atomic", completion.buffer, (place, mask, Site(stmt, itself)))
            mbarriers = launch.mbarriers(self._memory.storage(completion.buffer, site))
            launch.transfers.start(storage, where, (mbarriers, place))

    def _start_without_writes(self, stmt: Compute, site: Site) -> None:
        """An op that joins a queue is under way, even where masks hide all that it would write: it
        reads its operands."""
        if isinstance(stmt.completion, Queue):
            storage = self._memory.storage(stmt.out.buffer, site)
            where = (np.int64(0), np.False_, site)
            specialized(self._launches, stmt).transfers.start(storage, where, stmt.completion)

    def _update_atomically(
        self, stmt: Compute, offsets: Any, values: Any, active: Any, site: Site
    ) -> None:
        """The old values are read in the same access that writes the new ones."""
        buffer = stmt.out.buffer
        storage = self._memory.writable(buffer, site)
        if storage is None:
            return
        self._memory.check_defined(storage, offsets, active, site)
        self._memory.note("atomic", buffer, (offsets, active, site))
        self._memory.observe("update", buffer, offsets, active, site)
        values = _combined(stmt, storage.data[offsets], values)
        self._memory.put(storage, offsets, values, active)


def _combined(stmt: Compute, before: Any, values: Any) -> Any:
    """``values`` accumulated on what was there ``before``, in the type that memory has."""
    kind = stmt.out.buffer.dtype
    return _rounded(_accumulator(stmt)(_widened(before, kind), values), kind)


def _atomic(stmt: Compute) -> bool:
    return atomic_operator(stmt.instruction) is not None


def _verb(stmt: Compute) -> str:
    """What its output's elements undergo, for the finder of races."""
    return "atomic" if _atomic(stmt) else "write"


def _accumulator(stmt: Compute) -> np.ufunc:
    combiner = stmt.combiner or ""
    if stmt.out.buffer.dtype is boolean:
        combiner_ = _ACCUMULATE_BOOL.get(combiner)
        if combiner_ is not None:
            return combiner_
    found = _ACCUMULATE.get(combiner)
    if found is None:
        raise UnsupportedError(
            f"{combiner!r} of the op {stmt.name!r} does not combine",
            why="the order of a reduction is free, so its combiner must be associative",
            cure="choose one of " + ", ".join(_ACCUMULATE),
        )
    return found


def _identity(stmt: Compute, dtype: np.dtype[Any]) -> Any:
    """What leaves the other operand of the combiner as it is."""
    if dtype == np.bool_:
        return _accumulator(stmt) is np.logical_and
    if dtype == np.float64:
        return {"add": 0.0, "mul": 1.0, "min": np.inf, "max": -np.inf}[stmt.combiner or ""]
    bounds = np.iinfo(np.int64)
    return {"add": 0, "mul": 1, "min": bounds.max, "max": bounds.min}[stmt.combiner or ""]


def _widened(values: Any, type: DType) -> Any:
    """Values of ``type`` as their accumulator: f64, int64 (which wraps), or bool."""
    wide = np.float64 if type.is_float else np.bool_ if type is boolean else np.int64
    return np.asarray(values).astype(wide, copy=False)


def _rounded(values: Any, type: DType) -> Any:
    if type is boolean:
        return values
    return convert(values, f64 if type.is_float else s64, type)


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


def _merge(stmt: Compute, offsets: Any, values: Any, active: Any) -> tuple[Any, Any]:
    """One active point per offset, which stands for all that had it."""
    points = np.arange(offsets.size) if active is None else np.flatnonzero(active)
    order = points[np.argsort(offsets.ravel()[points], kind="stable")]
    in_order = offsets.ravel()[order]
    starts = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
    merged = values.flatten()
    if stmt.combiner is None:
        leaders = order[np.append(starts[1:], len(order)) - 1]
    else:
        leaders = order[starts]
        merged[leaders] = _accumulator(stmt).reduceat(values.ravel()[order], starts)
    one_each = np.zeros(offsets.size, np.bool_)
    one_each[leaders] = True
    return merged.reshape(offsets.shape), one_each.reshape(offsets.shape)
