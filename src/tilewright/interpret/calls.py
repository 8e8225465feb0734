"""Calls: runs a function by its declared effects, never by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilewright.errors import UnsupportedError
from tilewright.interpret.groups import GridRun
from tilewright.interpret.lanes import Frame, Site, anywhere, both
from tilewright.interpret.memory import Memory
from tilewright.interpret.specialized import specialized_launch
from tilewright.interpret.storage import Storage
from tilewright.interpret.values import Evaluator, binary_values
from tilewright.ir.functions import (
    FUNCTIONS,
    Arrive,
    Await,
    AwaitPhase,
    Commit,
    Exchange,
    Fence,
    Function,
    Initialize,
    OrderAtomics,
    Queue,
    Shuffle,
    StartCopy,
    Synchronize,
    Update,
)
from tilewright.ir.stmt import Call, View


class Calls:
    """Runs `Call` statements. ``launches`` are those under way, the innermost last."""

    def __init__(self, memory: Memory, evaluator: Evaluator) -> None:
        self._memory = memory
        self._evaluator = evaluator
        self.launches: list[GridRun] = []
        self._effects: dict[type, Callable[[Any, Function, Call, Frame], None]] = {
            Synchronize: self._synchronize,
            StartCopy: self._start_copy,
            Commit: self._commit,
            Await: self._await,
            Initialize: self._initialize,
            Arrive: self._arrive,
            AwaitPhase: self._await_phase,
            Fence: self._fence,
            Update: self._update,
            Exchange: self._exchange,
            Shuffle: self._shuffle,
            OrderAtomics: _order_atomics,
        }

    def run(self, stmt: Call, frame: Frame) -> None:
        """Runs the effects of the function that ``stmt`` calls, in order, for all lanes."""
        function = FUNCTIONS.get(stmt.function)
        if function is None or not _described(function):
            raise UnsupportedError(
                f"the interpreter does not know the function {stmt.function!r}",
                cure="describe its effects in ir.functions, or run a stage from before it",
            )
        for effect in function.effects:
            self._effects[type(effect)](effect, function, stmt, frame)

    def _synchronize(
        self, effect: Synchronize, function: Function, stmt: Call, frame: Frame
    ) -> None:
        launch = self.launches[-1]
        launch.synchronize(effect, Site(stmt, frame), self._memory.findings)

    def _start_copy(self, effect: StartCopy, function: Function, stmt: Call, frame: Frame) -> None:
        source = stmt.args[function.position(effect.source)]
        destination = stmt.args[function.position(effect.destination)]
        assert isinstance(source, View) and isinstance(destination, View)
        site = Site(stmt, frame)
        index, mask = self._place(source, stmt, frame)
        values = self._memory.load(source.buffer, index, mask, site)
        storage, offsets, mask = self._target(destination, stmt, frame)
        if storage is not None and (mask is None or anywhere(mask)):
            where = (offsets, mask, site)
            self.launches[-1].copies.start(self._memory, storage, where, values)

    def _commit(self, effect: Commit, function: Function, stmt: Call, frame: Frame) -> None:
        if effect.queue is Queue.COPIES:
            self.launches[-1].copies.commit(frame)
        else:
            specialized_launch(self.launches, stmt).commit(effect.queue, frame)

    def _await(self, effect: Await, function: Function, stmt: Call, frame: Frame) -> None:
        value = self._value(effect.pending, function, stmt, frame)
        if effect.queue is Queue.COPIES:
            self.launches[-1].copies.complete(self._memory, value, Site(stmt, frame))
        else:
            specialized_launch(self.launches, stmt).complete(effect.queue, value, frame)

    def _initialize(self, effect: Initialize, function: Function, stmt: Call, frame: Frame) -> None:
        place = self._mbarrier(effect.place, "write", function, (stmt, frame))
        arrivals = self._value(effect.arrivals, function, stmt, frame)
        if place is not None:
            site = Site(stmt, frame)
            specialized_launch(self.launches, stmt).initialize(place, arrivals, site)

    def _arrive(self, effect: Arrive, function: Function, stmt: Call, frame: Frame) -> None:
        place = self._mbarrier(effect.place, "atomic", function, (stmt, frame))
        count: Any = 0
        if effect.bytes is not None:
            count = self._value(effect.bytes, function, stmt, frame)
        if place is not None:
            specialized_launch(self.launches, stmt).arrive(place, count, Site(stmt, frame))

    def _await_phase(
        self, effect: AwaitPhase, function: Function, stmt: Call, frame: Frame
    ) -> None:
        place = self._mbarrier(effect.place, "atomic", function, (stmt, frame))
        parity = self._value(effect.parity, function, stmt, frame)
        if place is not None:
            specialized_launch(self.launches, stmt).await_phase(place, parity, Site(stmt, frame))

    def _fence(self, effect: Fence, function: Function, stmt: Call, frame: Frame) -> None:
        specialized_launch(self.launches, stmt).fence(frame)

    def _mbarrier(
        self, name: str, verb: str, function: Function, at: tuple[Call, Frame]
    ) -> tuple[Storage, Any, Any] | None:
        """The places of mbarriers, noted as accessed by ``verb``; None where there are none."""
        stmt, frame = at
        view = stmt.args[function.position(name)]
        assert isinstance(view, View)
        storage, offsets, mask = self._target(view, stmt, frame)
        if storage is None or (mask is not None and not anywhere(mask)):
            return None
        self._memory.note(verb, view.buffer, (offsets, mask, Site(stmt, frame)))
        return storage, offsets, mask

    def _value(self, name: str, function: Function, stmt: Call, frame: Frame) -> Any:
        value = stmt.args[function.position(name)]
        assert not isinstance(value, View)
        return self._evaluator.evaluate(value, frame, stmt)

    def _update(self, effect: Update, function: Function, stmt: Call, frame: Frame) -> None:
        update = _Update(effect.operator, self._value(effect.value, function, stmt, frame))
        before = self._updated(effect.place, update, effect.atomic, function, (stmt, frame))
        if effect.old is not None and before is not None:
            self._keep(effect.old, function, (stmt, frame), before)

    def _exchange(self, effect: Exchange, function: Function, stmt: Call, frame: Frame) -> None:
        expected = None
        if effect.expected is not None:
            expected = self._value(effect.expected, function, stmt, frame)
        update = _Update("", self._value(effect.value, function, stmt, frame), expected)
        before = self._updated(effect.place, update, True, function, (stmt, frame))
        if before is not None:
            self._keep(effect.old, function, (stmt, frame), before)

    def _updated(
        self, name: str, update: _Update, atomic: bool, function: Function, at: tuple[Call, Frame]
    ) -> Any:
        """Updates the elements of the argument ``name``, and gives the old value for each lane;
        None where no lane has an element."""
        stmt, frame = at
        place = stmt.args[function.position(name)]
        assert isinstance(place, View)
        storage, offsets, mask = self._target(place, stmt, frame)
        if storage is None or (mask is not None and not anywhere(mask)):
            return None
        site = Site(stmt, frame)
        self._memory.check_defined(storage, offsets, mask, site)
        if not atomic:
            storage.note("read", self._memory.runs, (offsets, mask, site), self._memory.findings)
        self._memory.note("atomic" if atomic else "write", place.buffer, (offsets, mask, site))
        self._memory.observe("update", place.buffer, offsets, mask, site)
        return _apply(update, storage, offsets, mask, frame)

    def _shuffle(self, effect: Shuffle, function: Function, stmt: Call, frame: Frame) -> None:
        value = self._value(effect.value, function, stmt, frame)
        lane = self._value(effect.lane, function, stmt, frame)
        site = Site(stmt, frame)
        values = self.launches[-1].shuffle(value, lane, site, self._memory.findings)
        self._keep(effect.destination, function, (stmt, frame), values)

    def _keep(self, name: str, function: Function, at: tuple[Call, Frame], values: Any) -> None:
        """Stores ``values``, one per lane, to the argument ``name``."""
        stmt, frame = at
        view = stmt.args[function.position(name)]
        assert isinstance(view, View)
        index, mask = self._place(view, stmt, frame)
        inside = frame if mask is None else frame.restrict(mask)
        self._memory.store(view.buffer, index, values, Site(stmt, inside))

    def _place(self, view: View, stmt: Call, frame: Frame) -> tuple[list[Any], Any]:
        index = [self._evaluator.evaluate(i, frame, stmt) for i in view.index]
        if view.mask is None:
            return index, None
        return index, self._evaluator.evaluate(view.mask, frame, stmt)

    def _target(self, view: View, stmt: Call, frame: Frame) -> tuple[Storage | None, Any, Any]:
        """The memory that ``view`` writes (None: read-only), the offsets, and the mask."""
        site = Site(stmt, frame)
        index, mask = self._place(view, stmt, frame)
        offsets, mask = self._memory.locate(view.buffer, index, both(frame.mask, mask), site)
        return self._memory.writable(view.buffer, site), offsets, mask


def _described(function: Function) -> bool:
    """Whether the effects describe everything that happens to the arguments."""
    return bool(function.effects) or all(p.access in ("value", "none") for p in function.parameters)


def _order_atomics(effect: OrderAtomics, function: Function, stmt: Call, frame: Frame) -> None:
    """Lanes run in lockstep: their accesses are in order."""
    del effect, function, stmt, frame


class _Update(NamedTuple):
    """An update of elements by ``operator`` and ``operand``; with the operator ``""``, they become
    the operand, where their bits are ``expected`` (None: anywhere)."""

    operator: str
    operand: Any
    expected: Any = None


def _apply(update: _Update, storage: Storage, offsets: Any, mask: Any, frame: Frame) -> Any:
    """Updates elements once per lane, in the order of lanes; gives the old value for each lane."""
    dtype = storage.buffer.dtype
    operands = (offsets, update.operand, 0 if update.expected is None else update.expected)
    arrays = np.broadcast_arrays(*operands, np.broadcast_to(True, frame.shape))
    flat, values, expected = (np.atleast_1d(a).ravel() for a in arrays[:3])
    shape = arrays[0].shape
    chosen = np.broadcast_to(True if mask is None else mask, shape).ravel()
    old = np.zeros(flat.shape, storage.data.dtype)
    rest = np.flatnonzero(chosen)
    while len(rest):
        # Each round takes the first lane of the rest for each element.
        _, first = np.unique(flat[rest], return_index=True)
        now = rest[first]
        places = flat[now]
        before = storage.data[places]
        old[now] = before
        if update.operator:
            after = binary_values(update.operator, dtype, before, values[now])
        else:
            after = values[now].astype(before.dtype)
        if update.expected is not None:
            bits = f"u{before.dtype.itemsize}"
            wanted = expected[now].astype(before.dtype)
            after = np.where(before.view(bits) == wanted.view(bits), after, before)
        storage.data[places] = after
        storage.stored = True
        rest = np.delete(rest, first)
    return old.reshape(shape)
