"""Loops that run at run time: pointers and registers that change in them enter as phis.

Inside a vector loop the lanes may leave a loop at different times. Those that have left are then
masked, by a phi of flags, until all have; their registers keep their values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.dtypes import boolean, s64
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Buffer
from tilewright.targets.llvm.indices import index_type, loop_range, range_of
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.plan import ForPlan, Plan, Terms, WhilePlan
from tilewright.targets.llvm.running import any_lane, differs, running
from tilewright.targets.llvm.strides import stride_of
from tilewright.targets.llvm.types import llvm_type, splat
from tilewright.targets.llvm.values import Value


@dataclass(slots=True)
class _Phi:
    line: int
    name: str
    type: str
    start: str


class Loops:
    """Writes the loops of one function; ``emit`` writes their bodies."""

    def __init__(self, memory: MemoryMap, emit: Callable[[list[Plan]], None]) -> None:
        self.memory = memory
        self.emit = emit
        self.w = memory.w
        self.exprs = memory.exprs

    def counted(self, plan: ForPlan, extent: int | Value) -> None:
        """A loop with its test at the end, after a test whether it runs at all if that is unknown.
        Where ``extent`` differs by lane, the lanes leave one by one."""
        w, memory = self.w, self.memory
        head, after = w.label("loop"), w.label("after")
        dtype = index_type(w, loop_range(extent), range_of(extent))
        lanes = extent.lanes if isinstance(extent, Value) else 1
        limit = self.exprs.value(extent, dtype, lanes)
        strides = self._strides(plan)
        outside, first = memory.predicate, ""
        if isinstance(extent, Value):
            first = w.assign(f"icmp sgt {limit.typed}, {splat('0', dtype, lanes)}")
            if lanes > 1:
                first = self._running(Value(first, boolean, lanes)).text
            before = w.block
            w.branch(any_lane(w, Value(first, boolean, lanes)), head, after)
        else:
            before = w.block
            w.jump(head)
        entry_slots = dict(memory.slots)
        w.start(head)
        flags = self._flags(lanes, first) if lanes > 1 else None
        index = w.name("i")
        index_line = w.reserve()
        carried = self._carry_slots(plan.stored, entry_slots)
        pointers = self._carry_pointers(plan)
        self.exprs.push()
        self.exprs.variables[plan.stmt.var] = Value(index, dtype, 1, loop_range(extent))
        self.emit(plan.body)
        self.exprs.pop()
        latch = w.block
        type_ = llvm_type(dtype)
        following = w.assign(f"add nsw {type_} {index}, 1")
        w.fill(index_line, f"  {index} = phi {type_} [0, %{before}], [{following}, %{latch}]")
        for pointer_key, (phi, buffer) in pointers.items():
            step = strides.get(pointer_key, str(pointer_key[1][-1][1] * buffer.dtype.bytes))
            moved = w.assign(f"getelementptr i8, {phi.type} {phi.name}, i64 {step}", "p")
            self._fill(phi, before, moved, latch)
        for key, phi in carried.items():
            self._fill(phi, before, memory.slots[key].text, latch)
        reached = self.exprs.value(Value(following, dtype), dtype, lanes)
        again = w.assign(f"icmp slt {reached.typed}, {limit.text}")
        if flags is not None:
            again = w.assign(f"and {llvm_type(boolean, lanes)} {again}, {flags.name}")
            self._fill(flags, before, again, latch)
            again = any_lane(w, Value(again, boolean, lanes))
        # Marked as usual: registers go to this loop before, say, the rest of a row.
        usual = isinstance(extent, Value) and w.dialect.vector_bytes > 0
        w.branch(again, head, after, w.mostly() if usual else "")
        w.start(after)
        memory.predicate = outside
        if isinstance(extent, Value):
            self._merge_skipped(entry_slots, carried, before, latch)

    def _strides(self, plan: ForPlan) -> dict[tuple[int, Terms], str]:
        """Bytes per iteration of the pointers with a run-time stride."""
        strides: dict[tuple[int, Terms], str] = {}
        for key, buffer in plan.scope.pointers.items():
            atom, coefficient = key[1][-1]
            stride = stride_of(atom)
            if stride is not None:
                value = self.exprs.value(self.exprs.evaluate(stride, {}), s64)
                scaled = coefficient * buffer.dtype.bytes
                strides[key] = self.w.assign(f"mul {value.typed}, {scaled}")
        return strides

    def repeated(self, plan: WhilePlan) -> None:
        """A loop with its test at the beginning, on registers and memory at that time."""
        w, memory = self.w, self.memory
        head, inside, after = w.label("while"), w.label("again"), w.label("after")
        outside, flags = memory.predicate, None
        varying = differs(plan.stmt.condition, memory.lanes, self.exprs.variables)
        lanes = memory.lanes.count if varying and memory.lanes is not None else 1
        first = self._running().text if lanes > 1 else ""
        before = w.block
        w.jump(head)
        entry = dict(memory.slots)
        w.start(head)
        if lanes > 1:
            flags = self._flags(lanes, first)
        carried = self._carry_slots(plan.stored, entry)
        at_test = dict(memory.slots)
        self.exprs.push()
        result = self.exprs.evaluate(plan.stmt.condition, plan.loads)
        condition = self.exprs.value(result, boolean, lanes)
        if flags is not None:
            condition = self._running(condition)
            memory.predicate = condition
        w.branch(any_lane(w, condition), inside, after)
        w.start(inside)
        self.exprs.push()
        self.emit(plan.body)
        self.exprs.pop()
        self.exprs.pop()
        for key, phi in carried.items():
            self._fill(phi, before, memory.slots[key].text, w.block)
        if flags is not None:
            self._fill(flags, before, condition.text, w.block)
        w.jump(head)
        w.start(after)
        memory.predicate = outside
        # Registers hold what they held at the last test; those new in the body are gone.
        memory.slots.clear()
        memory.slots.update(at_test)

    def _running(self, flags: Value | None = None) -> Value:
        assert self.memory.lanes is not None
        return running(self.w, self.memory.lanes, self.memory.predicate, flags)

    def _flags(self, lanes: int, first: str) -> _Phi:
        """Makes the running lanes the predicate: a phi that begins with ``first``."""
        if not self.w.dialect.masked_memory:
            raise CompilationError(
                "lanes of a vector leave a loop at different times",
                why="this target has no masked loads and stores",
                cure="make the vector loop around it serial",
            )
        phi = _Phi(self.w.reserve(), self.w.name("live"), llvm_type(boolean, lanes), first)
        self.memory.predicate = Value(phi.name, boolean, lanes)
        return phi

    def _carry_slots(
        self, stored: frozenset[Buffer], entry: dict[tuple[Buffer, int], Value]
    ) -> dict[tuple[Buffer, int], _Phi]:
        """Phis for the registers that the loop changes."""
        carried: dict[tuple[Buffer, int], _Phi] = {}
        for key, value in entry.items():
            if key[0] in stored:
                name = self.w.name("r")
                carried[key] = _Phi(self.w.reserve(), name, value.type, value.text)
                self.memory.slots[key] = Value(name, value.dtype, value.lanes)
        return carried

    def _carry_pointers(self, plan: ForPlan) -> dict[tuple[int, Terms], tuple[_Phi, Buffer]]:
        pointers: dict[tuple[int, Terms], tuple[_Phi, Buffer]] = {}
        for key, buffer in plan.scope.pointers.items():
            parent = self.memory.pointers.get((key[0], key[1][:-1]))
            if parent is None:
                continue
            name = self.w.name("p")
            pointers[key] = (_Phi(self.w.reserve(), name, parent.type, parent.text), buffer)
            multiple = plan.scope.multiples.get(key, key[1][-1][1])
            self.memory.pointers[key] = parent.moved(name, multiple * buffer.dtype.bytes)
        return pointers

    def _fill(self, phi: _Phi, before: str, following: str, latch: str) -> None:
        self.w.fill(
            phi.line,
            f"  {phi.name} = phi {phi.type} [{phi.start}, %{before}], [{following}, %{latch}]",
        )

    def _merge_skipped(
        self,
        entry: dict[tuple[Buffer, int], Value],
        carried: dict[tuple[Buffer, int], _Phi],
        before: str,
        latch: str,
    ) -> None:
        """Phis of registers after a loop that may not have run; those new in the loop are gone."""
        slots = self.memory.slots
        for key in [key for key in slots if key not in entry]:
            del slots[key]
        for key, phi in carried.items():
            value = slots[key]
            text = self.w.assign(
                f"phi {phi.type} [{phi.start}, %{before}], [{value.text}, %{latch}]", "r"
            )
            slots[key] = Value(text, value.dtype, value.lanes)
