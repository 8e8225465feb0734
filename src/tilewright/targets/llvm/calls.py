"""Functions with effects (`ir.functions`), and how each is emitted; a target lists those it has."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.dtypes import f32, s32, s64, u32, u64
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import View
from tilewright.targets.llvm.casts import emit_cast
from tilewright.targets.llvm.masked import lane_of
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.plan import CallPlan
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.llvm.writer import Writer

_ATOMIC = (f32, s32, u32, s64, u64)

EmitCall = Callable[[MemoryMap, CallPlan], None]


def emit_prefetch(memory: MemoryMap, plan: CallPlan) -> None:
    """For reading, into all caches."""
    for address in plan.addresses:
        if address is not None:
            pointer = memory.pointer(address, plan.loads)
            memory.w.call_void(
                "llvm.prefetch.p0",
                f"{pointer.typed}, i32 0, i32 3, i32 1",
                "ptr, i32, i32, i32",
            )


def emit_nothing(memory: MemoryMap, plan: CallPlan) -> None:
    """For a call that a program may drop."""
    del memory, plan


def emit_atomic_add(memory: MemoryMap, plan: CallPlan) -> None:
    """``place += value``, lane by lane where they run in a vector loop."""
    w, exprs = memory.w, memory.exprs
    place, amount = plan.stmt.args
    (address, _) = plan.addresses
    assert isinstance(place, View) and isinstance(amount, Expr) and address is not None
    _check_atomic(address.buffer)
    dtype = address.buffer.dtype
    result = exprs.evaluate(amount, plan.loads)
    if not isinstance(result, Value):
        result = exprs.value(result, amount.type)
    value = emit_cast(w, result, dtype)
    mask = memory.mask(place.mask, plan.loads)
    if mask is False:
        return
    for lane in range(1 if memory.lanes is None else memory.lanes.active):
        pointer = memory.pointer(address, plan.loads, lane)
        element = lane_of(w, value, lane)
        if isinstance(mask, Value):
            with w.where(lane_of(w, mask, lane).text):
                _add(w, pointer, element)
        else:
            _add(w, pointer, element)


def _check_atomic(buffer: Buffer) -> None:
    if buffer.space is Space.PRIVATE:
        raise CompilationError(
            f"atomic_add to {buffer.name!r}, which no other work-item sees",
            cure="store to it, or allocate it in memory that work-items share",
        )
    if buffer.dtype not in _ATOMIC:
        raise CompilationError(
            f"this target has no atomic_add of {buffer.dtype}",
            where=buffer.name,
            cure="add in one of " + ", ".join(t.name for t in _ATOMIC),
        )


def _add(w: Writer, pointer: Pointer, value: Value) -> None:
    if value.dtype.is_integer:
        w.emit(f"atomicrmw add {pointer.typed}, {value.typed} monotonic")
        return
    if w.dialect.float_atomics:
        w.emit(f"atomicrmw fadd {pointer.typed}, {value.typed} monotonic")
        return
    # Not every device adds floats: the sum goes in if nobody else has changed the old bits.
    loaded = w.assign(f"load atomic i32, {pointer.typed} monotonic, align 4")
    before, again, done = w.block, w.label("again"), w.label("added")
    w.jump(again)
    w.start(again)
    old, line = w.name("old"), w.reserve()
    floats = w.assign(f"bitcast i32 {old} to float")
    total = w.assign(f"fadd {value.type} {floats}, {value.text}")
    bits = w.assign(f"bitcast float {total} to i32")
    pair = w.assign(f"cmpxchg {pointer.typed}, i32 {old}, i32 {bits} monotonic monotonic")
    seen = w.assign(f"extractvalue {{ i32, i1 }} {pair}, 0")
    w.fill(line, f"  {old} = phi i32 [{loaded}, %{before}], [{seen}, %{again}]")
    w.branch(w.assign(f"extractvalue {{ i32, i1 }} {pair}, 1"), done, again)
    w.start(done)
