"""Statements to LLVM instructions: loops with pointers and registers as phis, stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tilewright.dtypes import boolean, s64
from tilewright.errors import CompilationError, UnsupportedError
from tilewright.ir.buffer import SHARED, Buffer, Space
from tilewright.ir.expr import Var
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Call, For, LoopKind
from tilewright.machines.instruction import Instruction
from tilewright.targets.llvm.branches import Branches
from tilewright.targets.llvm.calls import EmitCall
from tilewright.targets.llvm.computes import Units, emit_compute
from tilewright.targets.llvm.contraction import accumulation
from tilewright.targets.llvm.indices import index_type, lane_indices, loop_range, range_of
from tilewright.targets.llvm.memory import Lanes, MemoryMap
from tilewright.targets.llvm.plan import (
    AllocatePlan,
    CallPlan,
    ComputePlan,
    ForPlan,
    IfPlan,
    LetPlan,
    Plan,
    Scope,
    StorePlan,
    Terms,
    WhilePlan,
)
from tilewright.targets.llvm.strides import stride_of
from tilewright.targets.llvm.types import llvm_type, memory_type
from tilewright.targets.llvm.values import Value

# A stack that a thread surely has room for; more must come from the workspace.
STACK_LIMIT = 4 * 2**20


@dataclass(slots=True)
class _Phi:
    line: int
    name: str
    type: str
    start: str


class Statements:
    """Writes statements into one function."""

    def __init__(
        self,
        memory: MemoryMap,
        instructions: Mapping[str, Instruction],
        calls: Mapping[str, EmitCall],
        units: Units | None = None,
        spread: Collection[Buffer] = (),
    ) -> None:
        """``spread`` are the buffers that lanes of a subgroup hold parts of."""
        self.memory = memory
        self.instructions = instructions
        self.calls = calls
        self.units = units or Units()
        self.spread = spread
        self.w = memory.w
        self.exprs = memory.exprs
        self.branches = Branches(memory, self.emit)

    def emit(self, plans: list[Plan]) -> None:
        for plan in plans:
            match plan:
                case ForPlan():
                    self._for(plan)
                case StorePlan():
                    sums = accumulation(plan.stmt)
                    value = self.exprs.evaluate(plan.stmt.value, plan.loads, sums)
                    self.memory.store(plan.address, value, plan.loads)
                case ComputePlan():
                    emit_compute(self.memory, plan, self.instructions, self.units)
                case WhilePlan():
                    self._while(plan)
                case IfPlan():
                    self.branches.emit_if(plan)
                case LetPlan():
                    self._let(plan)
                case AllocatePlan():
                    self.allocate(plan.stmt.buffer)
                case CallPlan():
                    self._call(plan)

    def allocate(self, buffer: Buffer) -> None:
        """Private memory that is never indexed at run time lives in registers."""
        if buffer.space is Space.PRIVATE and buffer not in self.memory.memory_only:
            self.memory.registers.add(buffer)
            for key in [key for key in self.memory.slots if key[0] is buffer]:
                del self.memory.slots[key]
            return
        if buffer in self.spread:
            raise CompilationError(
                f"the lanes of a subgroup hold {buffer.name!r} in registers, but it is indexed at "
                "run time, or in pieces that differ",
                cure="unroll the loops around its accesses",
            )
        type_, space = memory_type(buffer.dtype), self.w.dialect.workgroup
        if buffer.space in SHARED and space is not None:
            self.memory.share(buffer, space)
            return
        if buffer.bytes > STACK_LIMIT:
            raise CompilationError(
                f"the scratch {buffer.name!r} takes {buffer.bytes} bytes of a thread's stack",
                cure=f"choose tiles that need at most {STACK_LIMIT} bytes",
            )
        pointer = self.w.alloca(type_, buffer.layout.extent, 64)
        self.memory.root(buffer, pointer, 0)

    # Scopes.

    def bind(self, variable: Var, value: int | Value, scope: Scope) -> None:
        """Binds ``variable`` and the pointers that it moves."""
        self.exprs.variables[variable] = value
        for (buffer_id, terms), buffer in scope.pointers.items():
            parent = self.memory.pointers.get((buffer_id, terms[:-1]))
            if parent is None:  # allocated further in: its pointer is made there
                continue
            step = terms[-1][1] * buffer.dtype.bytes
            stride = stride_of(terms[-1][0])
            steps = value if stride is None else self.exprs.evaluate(terms[-1][0], {})
            if isinstance(steps, Value):
                multiple = scope.multiples.get((buffer_id, terms), terms[-1][1])
                pointer = self.memory.moved(parent, steps, step, multiple * buffer.dtype.bytes)
            else:
                pointer = parent
                if steps:
                    distance = int(steps) * step
                    pointer = self.memory.advanced(parent, str(distance), distance)
            self.memory.pointers[buffer_id, terms] = pointer

    def _let(self, plan: LetPlan) -> None:
        value = self.exprs.evaluate(plan.stmt.value, plan.loads)
        if not isinstance(value, int | Value):
            value = self.exprs.value(value, plan.stmt.value.type)
        self.bind(plan.stmt.var, value, plan.scope)

    def _call(self, plan: CallPlan) -> None:
        emit = self.calls.get(plan.stmt.function)
        if emit is None:
            raise _unavailable(f"function {plan.stmt.function!r}", plan.stmt)
        emit(self.memory, plan)

    # Loops.

    def _for(self, plan: ForPlan) -> None:
        extent = self.exprs.evaluate(plan.stmt.extent, plan.loads)
        kind = plan.stmt.kind
        if kind is LoopKind.VECTOR:
            self._vector(plan, self._known(extent, plan))
        elif kind is LoopKind.UNROLLED:
            for iteration in range(self._known(extent, plan)):
                self._iteration(plan, iteration)
        elif kind in self.w.dialect.serial:
            if extent == 1 and not isinstance(extent, Value):
                self._iteration(plan, 0)
            elif isinstance(extent, Value) or extent > 0:
                self._serial(plan, extent if isinstance(extent, Value) else int(extent))
        elif kind is LoopKind.LANE and self.memory.lane is not None:
            self._lane(plan, self.memory.lane)
        else:
            raise _unavailable(f"{kind.value} loops", plan.stmt)

    def _known(self, extent: object, plan: ForPlan) -> int:
        if isinstance(extent, Value) or not isinstance(extent, int):
            raise CompilationError(
                f"the {plan.stmt.kind.value} loop over {plan.stmt.var.name!r} has an extent that "
                f"is not constant: {plan.stmt.extent!r}",
                cure="partition the loop around it, or make it serial",
            )
        return extent

    def _iteration(self, plan: ForPlan, iteration: int) -> None:
        self.exprs.push()
        self.bind(plan.stmt.var, iteration, plan.scope)
        self.emit(plan.body)
        self.exprs.pop()

    def _lane(self, plan: ForPlan, lane: Value) -> None:
        """What each lane of a subgroup does."""
        self.exprs.push()
        self.bind(plan.stmt.var, lane, plan.scope)
        self.memory.each_lane = True
        self.emit(plan.body)
        self.memory.each_lane = False
        self.exprs.pop()

    def _vector(self, plan: ForPlan, extent: int) -> None:
        if extent <= 0:
            return
        if self.memory.lanes is not None:
            raise CompilationError(f"the vector loop {plan.stmt.var.name!r} is inside another one")
        count = 1 << (extent - 1).bit_length()
        most = self.w.dialect.most_lanes
        if most and count > most:
            raise CompilationError(
                f"the vector loop over {plan.stmt.var.name!r} has {extent} lanes",
                why=f"vectors of this target have at most {most}",
                cure="split the loop",
            )
        value: int | Value = lane_indices(self.w, count) if count > 1 else 0
        self.memory.lanes = Lanes(plan.stmt.var, extent, count) if count > 1 else None
        self.exprs.push()
        self.exprs.variables[plan.stmt.var] = value
        self.emit(plan.body)
        self.exprs.pop()
        self.memory.lanes = None

    def _serial(self, plan: ForPlan, extent: int | Value) -> None:
        """A loop that tests at its end; before it, a test that it runs at all if that is open."""
        w, memory = self.w, self.memory
        head, after = w.label("loop"), w.label("after")
        before = w.block
        dtype = index_type(w, loop_range(extent), range_of(extent))
        limit = self.exprs.value(extent, dtype)
        strides = self._strides(plan)
        if isinstance(extent, Value):
            runs = w.assign(f"icmp sgt {limit.typed}, 0")
            w.branch(runs, head, after)
        else:
            w.jump(head)
        entry_slots = dict(memory.slots)
        w.start(head)
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
        for where, (phi, buffer) in pointers.items():
            step = strides.get(where, str(where[1][-1][1] * buffer.dtype.bytes))
            moved = w.assign(f"getelementptr i8, {phi.type} {phi.name}, i64 {step}", "p")
            self._fill(phi, before, moved, latch)
        for key, phi in carried.items():
            self._fill(phi, before, memory.slots[key].text, latch)
        again = w.assign(f"icmp slt {type_} {following}, {limit.text}")
        w.branch(again, head, after)
        w.start(after)
        if isinstance(extent, Value):
            self._merge_skipped(entry_slots, carried, before, latch)

    def _strides(self, plan: ForPlan) -> dict[tuple[int, Terms], str]:
        """The bytes that each iteration moves pointers by, where a stride is a value."""
        found: dict[tuple[int, Terms], str] = {}
        for key, buffer in plan.scope.pointers.items():
            atom, coefficient = key[1][-1]
            stride = stride_of(atom)
            if stride is not None:
                value = self.exprs.value(self.exprs.evaluate(stride, {}), s64)
                scaled = coefficient * buffer.dtype.bytes
                found[key] = self.w.assign(f"mul {value.typed}, {scaled}")
        return found

    def _while(self, plan: WhilePlan) -> None:
        """A loop that tests at its beginning, by what registers and memory hold then."""
        w, memory = self.w, self.memory
        head, inside, after = w.label("while"), w.label("again"), w.label("after")
        before = w.block
        w.jump(head)
        entry = dict(memory.slots)
        w.start(head)
        carried = self._carry_slots(plan.stored, entry)
        known = dict(memory.slots)
        self.exprs.push()
        result = self.exprs.evaluate(plan.stmt.condition, plan.loads)
        condition = self.exprs.value(result, boolean)
        if condition.lanes > 1:
            raise CompilationError(
                f"the condition of a while differs by lane: {plan.stmt.condition!r}",
                cure="make the vector loop around it serial",
            )
        w.branch(condition.text, inside, after)
        w.start(inside)
        self.exprs.push()
        self.emit(plan.body)
        self.exprs.pop()
        self.exprs.pop()
        for key, phi in carried.items():
            self._fill(phi, before, memory.slots[key].text, w.block)
        w.jump(head)
        w.start(after)
        # What registers hold now is what they held at the test; what the body made new is gone.
        memory.slots.clear()
        memory.slots.update(known)

    def _carry_slots(
        self, stored: frozenset[Buffer], entry: dict[tuple[Buffer, int], Value]
    ) -> dict[tuple[Buffer, int], _Phi]:
        """Registers that the loop changes enter it through phis."""
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
        """After a loop that may not have run: old or new registers; what it made new is gone."""
        slots = self.memory.slots
        for key in [key for key in slots if key not in entry]:
            del slots[key]
        for key, phi in carried.items():
            value = slots[key]
            text = self.w.assign(
                f"phi {phi.type} [{phi.start}, %{before}], [{value.text}, %{latch}]", "r"
            )
            slots[key] = Value(text, value.dtype, value.lanes)


def _unavailable(what: str, stmt: Call | For) -> UnsupportedError:
    return UnsupportedError(
        f"this target has no {what}",
        where=headline(stmt),
        span=stmt.span,
        why="the kernel says itself where it runs, for another kind of machine",
        cure="compile for a target that has them, or leave that to the schedule: write it as a "
        "compute, or as plain loops",
    )
