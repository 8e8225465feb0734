"""Statements as LLVM instructions: loops with pointers and registers as phis, stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tilewright.errors import CompilationError, Span, UnsupportedError
from tilewright.ir.buffer import SHARED, Buffer, Space
from tilewright.ir.expr import Var
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Call, For, LoopKind
from tilewright.machines.instruction import Instruction
from tilewright.targets.llvm.branches import Branches
from tilewright.targets.llvm.calls import EmitCall
from tilewright.targets.llvm.computes import Units, emit_compute
from tilewright.targets.llvm.contraction import accumulation
from tilewright.targets.llvm.indices import lane_indices
from tilewright.targets.llvm.loops import Loops
from tilewright.targets.llvm.memory import MemoryMap
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
    WhilePlan,
)
from tilewright.targets.llvm.running import Lanes
from tilewright.targets.llvm.strides import stride_of
from tilewright.targets.llvm.types import memory_type
from tilewright.targets.llvm.values import Value


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
        """``spread`` are the buffers of which each lane of a subgroup holds a part."""
        self.memory = memory
        self.instructions = instructions
        self.calls = calls
        self.units = units or Units()
        self.spread = spread
        self.w = memory.w
        self.exprs = memory.exprs
        self.branches = Branches(memory, self.emit)
        self.loops = Loops(memory, self.emit)
        self._stack = 0  # bytes of what is placed there

    def emit(self, plans: list[Plan]) -> None:
        for plan in plans:
            match plan:
                case ForPlan():
                    self._for(plan)
                case StorePlan():
                    sums = accumulation(plan.stmt)
                    value = self.exprs.evaluate(plan.stmt.value, plan.loads, sums)
                    self.memory.store(plan.address, value, plan.loads, past_caches=plan.stmt.stream)
                case ComputePlan():
                    emit_compute(self.memory, plan, self.instructions, self.units)
                case WhilePlan():
                    self.loops.repeated(plan)
                case IfPlan():
                    self.branches.emit_if(plan)
                case LetPlan():
                    self._let(plan)
                case AllocatePlan():
                    self.allocate(plan.stmt.buffer, plan.stmt.span)
                case CallPlan():
                    self._call(plan)

    def allocate(self, buffer: Buffer, span: Span | None = None) -> None:
        """Place a buffer: private ones that are never indexed at run time are in registers."""
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
        if buffer.space in SHARED and (id(buffer), ()) in self.memory.pointers:
            return  # iterations of an unrolled loop use the same memory
        self._stack += buffer.bytes
        if self._stack > self.w.dialect.stack:
            raise CompilationError(
                f"the scratch {buffer.name!r} takes {buffer.bytes} bytes of a thread's stack",
                why=f"it has {self.w.dialect.stack} bytes"
                + (f", and {self._stack - buffer.bytes} are taken" * (self._stack > buffer.bytes)),
                span=span,
                cure="choose smaller tiles, or hold it in memory that is not private",
            )
        pointer = self.w.alloca(type_, buffer.layout.extent, 64)
        self.memory.root(buffer, pointer, 0)

    # Scopes.

    def bind(self, variable: Var, value: int | Value, scope: Scope) -> None:
        """Binds ``variable`` and the pointers that it advances."""
        self.exprs.variables[variable] = value
        for (buffer_id, terms), buffer in scope.pointers.items():
            parent = self.memory.pointers.get((buffer_id, terms[:-1]))
            if parent is None:  # its buffer is allocated further inside
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
            self._vector(plan, self._constant(extent, plan))
        elif kind is LoopKind.UNROLLED:
            for iteration in range(self._constant(extent, plan)):
                self._iteration(plan, iteration)
        elif kind in self.w.dialect.serial_kinds:
            if extent == 1 and not isinstance(extent, Value):
                self._iteration(plan, 0)
            elif isinstance(extent, Value) or extent > 0:
                self.loops.counted(plan, extent if isinstance(extent, Value) else int(extent))
        elif kind is LoopKind.LANE and self.memory.lane is not None:
            self._lane(plan, self.memory.lane)
        else:
            raise _unavailable(f"{kind.value} loops", plan.stmt)

    def _constant(self, extent: object, plan: ForPlan) -> int:
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
        """The loop over lanes, written for the lane that runs it."""
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


def _unavailable(feature: str, stmt: Call | For) -> UnsupportedError:
    return UnsupportedError(
        f"this target has no {feature}",
        where=headline(stmt),
        span=stmt.span,
        why="the kernel was written for another kind of machine",
        cure="compile for a target that has them, or leave that to the schedule: write it as a "
        "compute, or as plain loops",
    )
