"""Fragments in registers: slots of private buffers, spread over the lanes of a subgroup."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import CompilationError
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Dim
from tilewright.targets.llvm.masked import as_integers, from_memory, lane_of, vector_of
from tilewright.targets.llvm.memory import MemoryMap, NotInRegisters
from tilewright.targets.llvm.plan import Address
from tilewright.targets.llvm.values import Value

# The greatest number of elements of a slot.
_WIDEST = 64


def first_register(memory: MemoryMap, address: Address, dims: Sequence[Dim]) -> int:
    """The index of a lane's register with the first element of a fragment with ``dims``."""
    if address.buffer not in memory.registers:
        raise CompilationError(
            f"{address.buffer.name!r} is not held in registers",
            why="instructions on matrices take their operands from registers",
            cure="stage it in private memory, and hold it as a fragment",
        )
    memory.exprs.push()
    for dim in dims:
        memory.exprs.variables[dim.var] = 0
    offset = memory.constant_offset(address)
    memory.exprs.pop()
    if offset is None:
        raise NotInRegisters(address.buffer)
    return offset


def read_registers(memory: MemoryMap, buffer: Buffer, offset: int, count: int) -> Value:
    """``count`` elements of a lane, from ``offset`` on, as a vector."""
    value = memory.slots.get((buffer, offset))
    if value is not None and value.lanes == count:
        return from_memory(memory.w, value, buffer.dtype)
    elements = [_element(memory, buffer, offset + i) for i in range(count)]
    if count == 1:
        return elements[0]
    return from_memory(memory.w, vector_of(memory.w, elements), buffer.dtype)


def write_registers(
    memory: MemoryMap, buffer: Buffer, offset: int, values: Sequence[Value]
) -> None:
    """Writes ``values``, vectors or scalars, one after the other from ``offset`` on: into existing
    slots, or into new ones."""
    w = memory.w
    for value in map(lambda value: as_integers(w, value), values):
        key = (buffer, offset)
        old = memory.slots.get(key)
        covering = _covering(memory, buffer, offset)
        if (old is not None and old.lanes == value.lanes) or covering is None:
            memory.put_slot(buffer, offset, value)
        else:
            for lane in range(value.lanes):
                _put_element(memory, buffer, offset + lane, lane_of(w, value, lane))
        offset += value.lanes


def _covering(memory: MemoryMap, buffer: Buffer, offset: int) -> int | None:
    """The start of the slot that holds the element at ``offset``; None if there is none."""
    for start in range(offset, max(-1, offset - _WIDEST), -1):
        slot = memory.slots.get((buffer, start))
        if slot is not None:
            return start if start + slot.lanes > offset else None
    return None


def _element(memory: MemoryMap, buffer: Buffer, offset: int) -> Value:
    """One element, in its type in memory."""
    start = _covering(memory, buffer, offset)
    if start is None:
        raise NotInRegisters(buffer)
    return lane_of(memory.w, memory.slots[buffer, start], offset - start)


def _put_element(memory: MemoryMap, buffer: Buffer, offset: int, value: Value) -> None:
    start = _covering(memory, buffer, offset)
    if start is None:
        memory.put_slot(buffer, offset, value)
        return
    old = memory.slots[buffer, start]
    if old.lanes == 1:
        memory.put_slot(buffer, offset, value)
        return
    text = memory.w.assign(f"insertelement {old.typed}, {value.typed}, i64 {offset - start}")
    memory.put_slot(buffer, start, Value(text, old.dtype, old.lanes))
