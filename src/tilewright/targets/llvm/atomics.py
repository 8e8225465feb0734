"""Atomic updates and exchanges of elements (`ir.functions`), lane by lane in a vector loop.

An update without an instruction on the target is a compare-and-swap loop; of elements of 16 bits,
where atomics are of 32 bits or more, on the word that holds the element: its other half is put back
as it is, also where it lies outside of the array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tilewright.dtypes import DType, bf16, f16, f32, f64, s16, s32, s64, u32, u64
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr
from tilewright.ir.functions import FUNCTIONS, Exchange, Update
from tilewright.ir.stmt import View
from tilewright.targets.llvm.calls import EmitCall
from tilewright.targets.llvm.casts import emit_cast
from tilewright.targets.llvm.masked import lane_of, plain_load, plain_store, vector_of
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.min_max import emit_float_min_max, emit_integer_min_max
from tilewright.targets.llvm.plan import CallPlan
from tilewright.targets.llvm.types import constant, llvm_type
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.llvm.writer import Writer

_ATOMIC = (f32, s32, u32, s64, u64, f64, f16, bf16)
_BITS: Mapping[DType, DType] = {f16: s16, bf16: s16, f32: s32, f64: s64}
_NARROW = (f16, bf16)

_Change = Callable[[Writer, Pointer, tuple[Value, ...]], str]


@dataclass(frozen=True)
class _Call:
    """An atomic call. ``change`` writes it for one element, given its pointer and the call's
    values, and gives the text of the old value; ``alone`` is the same for memory that only one
    thread uses. ``place``, ``values`` and ``old`` (the destination of the old value) are positions
    of arguments."""

    place: int
    values: tuple[int, ...]
    old: int | None
    change: _Change
    alone: _Change | None = None


def _emit(call: _Call, memory: MemoryMap, plan: CallPlan) -> None:
    view, address = plan.stmt.args[call.place], plan.addresses[call.place]
    assert isinstance(view, View) and address is not None
    _check(plan.stmt.function, address.buffer)
    dtype = address.buffer.dtype
    values = [_value(memory, plan, at, dtype) for at in call.values]
    mask = memory.mask(view.mask, plan.loads)
    if mask is False:
        return
    w = memory.w
    change = call.change
    if address.buffer.space is Space.WORKGROUP and w.dialect.workgroup is None:
        # Each workgroup is one thread.
        change = call.alone or change
    old_values: list[Value] = []
    for lane in range(1 if memory.lanes is None else memory.lanes.active):
        pointer = memory.pointer(address, plan.loads, lane)
        elements = tuple(lane_of(w, value, lane) for value in values)
        if not isinstance(mask, Value):
            old_values.append(Value(change(w, pointer, elements), dtype))
            continue
        if call.old is not None and view.mask is not None:
            raise CompilationError(
                f"{plan.stmt.function} at a masked place",
                why="where it is masked, there is no old value",
                cure="put the call into an `if`",
            )
        flag, before = lane_of(w, mask, lane).text, w.block
        with w.where(flag):
            old, inside = change(w, pointer, elements), w.block
        if call.old is not None:
            # In lanes that do not run, it is not read.
            zero = constant(0, dtype)
            ways = f"[{old}, %{inside}], [{zero}, %{before}]"
            old_values.append(Value(w.assign(f"phi {llvm_type(dtype)} {ways}"), dtype))
    if call.old is not None:
        _store_old(memory, plan, call.old, old_values)


def _store_old(memory: MemoryMap, plan: CallPlan, at: int, old_values: list[Value]) -> None:
    """Stores the lanes' old values at the destination, the argument ``at``."""
    address = plan.addresses[at]
    assert address is not None
    if memory.lanes is None:
        memory.store(address, old_values[0], plan.loads)
        return
    missing = memory.lanes.count - len(old_values)
    memory.store(address, vector_of(memory.w, [*old_values, *old_values[:1] * missing]), plan.loads)


def _value(memory: MemoryMap, plan: CallPlan, at: int, dtype: DType) -> Value:
    amount = plan.stmt.args[at]
    assert isinstance(amount, Expr)
    result = memory.exprs.evaluate(amount, plan.loads)
    if not isinstance(result, Value):
        result = memory.exprs.value(result, amount.type)
    return emit_cast(memory.w, result, dtype)


def _check(function: str, buffer: Buffer) -> None:
    if buffer.space is Space.PRIVATE:
        raise CompilationError(
            f"{function} to {buffer.name!r}, which no other work-item sees",
            cure="store to it, or allocate it in memory that work-items share",
        )
    if buffer.dtype not in _ATOMIC:
        raise CompilationError(
            f"this target has no {function} of {buffer.dtype}",
            where=buffer.name,
            cure="update one of " + ", ".join(t.name for t in _ATOMIC),
        )


# The change of one element: each function gives the text of the old value.


def _update(operator: str, w: Writer, pointer: Pointer, values: tuple[Value, ...]) -> str:
    (value,) = values
    dtype = value.dtype
    native = operator == "add" and w.dialect.float_atomics and dtype not in _NARROW
    if dtype.is_float and not native:
        return _swapped(w, pointer, dtype, lambda old: _changed(operator, w, old, value))
    name = "fadd" if dtype.is_float else operator
    if operator in ("min", "max") and dtype.kind == "uint":
        name = f"u{operator}"
    return w.assign(f"atomicrmw {name} {pointer.typed}, {value.typed} monotonic")


def _update_alone(operator: str, w: Writer, pointer: Pointer, values: tuple[Value, ...]) -> str:
    (value,) = values
    old = plain_load(w, pointer, value.dtype, 1)
    plain_store(w, pointer, _changed(operator, w, old, value))
    return old.text


def _changed(operator: str, w: Writer, old: Value, value: Value) -> Value:
    """``old operator value``."""
    if value.dtype in _NARROW:
        wide = (emit_cast(w, operand, f32) for operand in (old, value))
        return emit_cast(w, _changed(operator, w, *wide), value.dtype)
    if operator in ("min", "max"):
        if value.dtype.is_float:
            return Value(emit_float_min_max(w, operator, old, value, value), value.dtype)
        return Value(emit_integer_min_max(w, operator, old, value), value.dtype)
    name = "fadd" if value.dtype.is_float else operator
    return Value(w.assign(f"{name} {old.typed}, {value.text}"), value.dtype)


def _swapped(w: Writer, pointer: Pointer, dtype: DType, change: Callable[[Value], Value]) -> str:
    """Compare-and-swap loop, for what devices have no operation for: the element becomes what
    ``change`` makes of it."""
    words = w.dialect.word_atomics and dtype.bits < 32
    kind = s32 if words else _BITS[dtype]
    bits, short = llvm_type(kind), llvm_type(_BITS[dtype])
    place, shift = _word(w, pointer) if words else (pointer.typed, "")
    loaded = w.assign(f"load atomic {bits}, {place} monotonic, align {kind.bytes}")
    before, again, done = w.block, w.label("again"), w.label("updated")
    w.jump(again)
    w.start(again)
    old, line = w.name("old"), w.reserve()
    part = old
    if words:
        part = w.assign(f"trunc {bits} {w.assign(f'lshr {bits} {old}, {shift}')} to {short}")
    element = Value(w.assign(f"bitcast {short} {part} to {llvm_type(dtype)}"), dtype)
    new = w.assign(f"bitcast {change(element).typed} to {short}")
    if words:
        # What differs, where the element lies: the other half does not.
        changed = w.assign(f"zext {short} {w.assign(f'xor {short} {part}, {new}')} to {bits}")
        new = w.assign(f"xor {bits} {old}, {w.assign(f'shl {bits} {changed}, {shift}')}")
    pair = w.assign(f"cmpxchg {place}, {bits} {old}, {bits} {new} monotonic monotonic")
    current = w.assign(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
    w.fill(line, f"  {old} = phi {bits} [{loaded}, %{before}], [{current}, %{w.block}]")
    w.branch(w.assign(f"extractvalue {{ {bits}, i1 }} {pair}, 1"), done, again)
    w.start(done)
    return element.text


def _word(w: Writer, pointer: Pointer) -> tuple[str, str]:
    """The word of 32 bits that an element of 16 is half of, and the bits below it."""
    address = w.assign(f"ptrtoint {pointer.typed} to i64")
    back = w.assign(f"sub i64 0, {w.assign(f'and i64 {address}, 2')}")
    place = w.assign(f"getelementptr i8, {pointer.typed}, i64 {back}")
    low = w.assign(f"and i32 {w.assign(f'trunc i64 {address} to i32')}, 2")
    return f"{pointer.type} {place}", w.assign(f"shl i32 {low}, 3")


def _exchange(w: Writer, pointer: Pointer, values: tuple[Value, ...]) -> str:
    (value,) = values
    if value.dtype in _NARROW and w.dialect.word_atomics:
        return _swapped(w, pointer, value.dtype, lambda old: value)
    plain = _plain(w, value)
    old = w.assign(f"atomicrmw xchg {pointer.typed}, {plain.typed} monotonic")
    return _as(w, old, plain.dtype, value.dtype)


def _compare_exchange(w: Writer, pointer: Pointer, values: tuple[Value, ...]) -> str:
    expected, value = (_plain(w, operand) for operand in values)
    if values[0].dtype in _NARROW and w.dialect.word_atomics:

        def chosen(old: Value) -> Value:
            same = w.assign(f"icmp eq {_plain(w, old).typed}, {expected.text}")
            text = w.assign(f"select i1 {same}, {value.typed}, {_plain(w, old).typed}")
            return Value(_as(w, text, value.dtype, old.dtype), old.dtype)

        return _swapped(w, pointer, values[0].dtype, chosen)
    how = "monotonic monotonic"
    pair = w.assign(f"cmpxchg {pointer.typed}, {expected.typed}, {value.typed} {how}")
    old = w.assign(f"extractvalue {{ {value.type}, i1 }} {pair}, 0")
    return _as(w, old, value.dtype, values[0].dtype)


def _plain(w: Writer, value: Value) -> Value:
    """``value`` as an integer of the same bits."""
    if not value.dtype.is_float:
        return value
    integer = _BITS[value.dtype]
    return Value(w.assign(f"bitcast {value.typed} to {llvm_type(integer)}"), integer)


def _as(w: Writer, text: str, dtype: DType, result: DType) -> str:
    if dtype is result or not result.is_float:
        return text
    return w.assign(f"bitcast {llvm_type(dtype)} {text} to {llvm_type(result)}")


def emit_memory_fence(memory: MemoryMap, plan: CallPlan) -> None:
    """A fence that orders atomic accesses."""
    del plan
    memory.w.emit("fence acq_rel")


def _emitter(name: str) -> EmitCall | None:
    """The emitter of the function ``name``, if all it does is an atomic update or an exchange."""
    function = FUNCTIONS[name]
    match function.effects:
        case (Update(atomic=True) as effect,):
            old = None if effect.old is None else function.position(effect.old)
            values: tuple[int, ...] = (function.position(effect.value),)
            place, operator = function.position(effect.place), effect.operator
            changes = partial(_update, operator), partial(_update_alone, operator)
            return partial(_emit, _Call(place, values, old, *changes))
        case (Exchange() as effect,):
            names = [effect.value] if effect.expected is None else [effect.expected, effect.value]
            values = tuple(function.position(argument) for argument in names)
            place, old = function.position(effect.place), function.position(effect.old)
            how = _exchange if effect.expected is None else _compare_exchange
            return partial(_emit, _Call(place, values, old, how))
        case _:
            return None


ATOMICS: Mapping[str, EmitCall] = {
    **{name: emit for name in FUNCTIONS if (emit := _emitter(name)) is not None},
    "memory_fence": emit_memory_fence,
}
