"""Emitters of functions with effects (`ir.functions`); a target lists those that it has."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.dtypes import f32, s32
from tilewright.ir.expr import Expr
from tilewright.targets.llvm.casts import emit_cast
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.past_caches import prefetch
from tilewright.targets.llvm.plan import CallPlan
from tilewright.targets.llvm.values import Value

EmitCall = Callable[[MemoryMap, CallPlan], None]


def emit_prefetch(cache: int) -> EmitCall:
    """The emitter of requests for reading, into the ``cache``th and those beyond. Registers have no
    address."""

    def emit(memory: MemoryMap, plan: CallPlan) -> None:
        for address in plan.addresses:
            if address is not None and address.buffer not in memory.registers:
                prefetch(memory.w, memory.pointer(address, plan.loads), cache)

    return emit


def emit_nothing(memory: MemoryMap, plan: CallPlan) -> None:
    """For a call that may be dropped."""
    del memory, plan


def emit_shuffle(shuffled: Callable[[MemoryMap, Value, Value], str]) -> EmitCall:
    """The emitter of a shuffle: ``shuffled`` gives a number of 32 or 64 bits of another lane of the
    subgroup. Narrower types are shuffled as 32 bits."""

    def emit(memory: MemoryMap, plan: CallPlan) -> None:
        w, exprs = memory.w, memory.exprs
        amount, lane = plan.stmt.args[1:]
        address = plan.addresses[0]
        assert isinstance(amount, Expr) and isinstance(lane, Expr) and address is not None
        value = exprs.value(exprs.evaluate(amount, plan.loads), amount.type)
        at = emit_cast(w, exprs.value(exprs.evaluate(lane, plan.loads), s32), s32)
        dtype = value.dtype
        if dtype.bits < 32 or dtype.name == "tf32":
            value = emit_cast(w, value, f32 if dtype.is_float else s32)
        result = Value(shuffled(memory, value, at), value.dtype)
        memory.store(address, emit_cast(w, result, dtype), plan.loads)

    return emit
