"""Statements: runs a kernel, at any stage of its compilation, on numpy arrays.

What runs is the meaning of the IR, not a simulation of a machine: loops of all kinds run in order.
Loops whose iterations are independent run as lanes in lockstep, which is fast and gives the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.errors import UnsupportedError
from tilewright.interpret.computes import Computes
from tilewright.interpret.lanes import Frame, Site
from tilewright.interpret.lockstep import Lockstep
from tilewright.interpret.memory import Memory, Storage
from tilewright.interpret.races import CONCURRENT, ParallelRun
from tilewright.interpret.values import Evaluator
from tilewright.ir.buffer import Buffer
from tilewright.ir.functions import FUNCTIONS
from tilewright.ir.stmt import Allocate, Block, Call, Compute, For, If, Kernel, Let, Stmt, Store


def run(kernel: Kernel, arrays: dict[str, Any]) -> None:
    """Runs ``kernel`` on ``arrays``: flat memory (1-D, as `pack` makes it) by parameter name.

    Parameters that the kernel writes are updated in place; what it does not write stays.
    `ArgumentError` for an array that does not fit, `InterpreterFault` for an access out of bounds,
    a read of uninitialized memory, a store to an input, or a data race.
    """
    memory = Memory()
    memory.bind(kernel, arrays)
    # Infinities, NaNs and wrapping are values here, not mistakes.
    with np.errstate(all="ignore"):
        _Interpreter(memory).execute(kernel.body, Frame({}))


class _Interpreter:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._evaluator = Evaluator(memory)
        self._computes = Computes(memory, self._evaluator)
        self._lockstep = Lockstep(memory, self._evaluator)
        self._stamps = 0
        self._run: dict[type[Stmt], Callable[[Any, Frame], None]] = {
            Block: self._block,
            For: self._for,
            If: self._if,
            Let: self._let,
            Store: self._store,
            Call: self._call,
            Compute: self._computes.run,
        }

    def execute(self, stmt: Stmt, frame: Frame) -> None:
        """Runs ``stmt`` in all lanes of ``frame``. A let adds to the frame's variables."""
        self._run[type(stmt)](stmt, frame)

    def _value(self, expr: Any, frame: Frame, stmt: Stmt) -> Any:
        return self._evaluator.evaluate(expr, frame, stmt)

    def _block(self, stmt: Block, frame: Frame) -> None:
        scope = frame.scope()
        allocated: list[tuple[Buffer, Storage | None]] = []
        try:
            for part in stmt.body:
                if isinstance(part, Allocate):
                    allocated.append((part.buffer, self._memory.allocate(part.buffer, scope)))
                else:
                    self.execute(part, scope)
        finally:
            for buffer, before in reversed(allocated):
                self._memory.release(buffer, before)

    def _let(self, stmt: Let, frame: Frame) -> None:
        frame.values[stmt.var] = self._value(stmt.value, frame, stmt)

    def _store(self, stmt: Store, frame: Frame) -> None:
        value = self._value(stmt.value, frame, stmt)
        index = [self._value(i, frame, stmt) for i in stmt.index]
        self._memory.store(stmt.buffer, index, value, Site(stmt, frame))

    def _call(self, stmt: Call, frame: Frame) -> None:
        function = FUNCTIONS.get(stmt.function)
        if (
            function is None
            or function.effects
            or any(parameter.access not in ("value", "none") for parameter in function.parameters)
        ):
            raise UnsupportedError(
                f"the interpreter does not know the function {stmt.function!r}",
                cure="run a stage from before it was introduced",
            )

    def _if(self, stmt: If, frame: Frame) -> None:
        condition = self._value(stmt.condition, frame, stmt)
        if not np.ndim(condition):
            chosen = stmt.then if condition else stmt.orelse
            if chosen is not None:
                self.execute(chosen, frame.scope())
            return
        self._masked(stmt.then, frame.restrict(condition))
        if stmt.orelse is not None:
            self._masked(stmt.orelse, frame.restrict(np.logical_not(condition)))

    def _masked(self, stmt: Stmt, frame: Frame) -> None:
        if np.any(frame.mask):
            self.execute(stmt, frame)

    def _for(self, stmt: For, frame: Frame) -> None:
        extent = self._value(stmt.extent, frame, stmt)
        if np.ndim(extent):
            self._parallel_run(stmt, int(np.max(extent)), lambda: self._ragged(stmt, frame, extent))
            return
        count = int(extent)
        size = self._lockstep.chunk(stmt, frame, count)
        if 1 < size == count and self._lockstep.safe(stmt, frame, 0, count):
            # Independent iterations cannot race: no need to watch them.
            self._lanes(stmt, frame, 0, count)
        else:
            self._parallel_run(stmt, count, lambda: self._in_chunks(stmt, frame, count, size))

    def _parallel_run(self, stmt: For, count: int, action: Callable[[], None]) -> None:
        """``action`` runs ``stmt``; accesses are checked for races where its kind asks for it."""
        if stmt.kind not in CONCURRENT:
            action()
            return
        stored = frozenset(self._lockstep.nest(stmt).stores)
        self._memory.runs.append(ParallelRun(stmt.var, self._stamps, stored))
        self._stamps += max(0, count)
        try:
            action()
        finally:
            self._memory.runs.pop()

    def _in_chunks(self, stmt: For, frame: Frame, count: int, size: int) -> None:
        for start in range(0, count, size):
            stop = min(start + size, count)
            if stop - start > 1 and self._lockstep.safe(stmt, frame, start, stop):
                self._lanes(stmt, frame, start, stop)
            else:
                self._serial(stmt, frame, start, stop)

    def _lanes(self, stmt: For, frame: Frame, start: int, stop: int) -> None:
        self.execute(stmt.body, frame.extend(stmt.var, np.arange(start, stop)))

    def _serial(self, stmt: For, frame: Frame, start: int, stop: int) -> None:
        scope = frame.scope()
        for iteration in range(start, stop):
            scope.values[stmt.var] = iteration
            self.execute(stmt.body, scope)

    def _ragged(self, stmt: For, frame: Frame, extent: Any) -> None:
        """A loop whose extent differs from lane to lane."""
        for iteration in range(int(np.max(extent))):
            inner = frame.restrict(iteration < extent)
            inner.values[stmt.var] = iteration
            self._masked(stmt.body, inner)
