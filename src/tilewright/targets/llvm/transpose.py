"""Instructions that move elements between lanes: transposes, interleaving, sums of one vector.

A transpose of ``size`` rows takes log2(size) stages. Each pairs rows whose numbers differ in one
bit and exchanges that bit with a bit of the position in the vector. Within 16 bytes that is an
unpack (the row's bit becomes the lowest bit, the highest one moves to the row); beyond, units of 16
bytes are exchanged (the row's bit becomes the highest, the lowest moves to the row). On x86 each is
one shuffle.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.dtypes import DType, s8, s16, s32, s64
from tilewright.errors import CompilationError
from tilewright.ir.expr import Var, binary, var
from tilewright.ir.stmt import Dim
from tilewright.machines.instruction import Instruction
from tilewright.targets.llvm.indices import lane_indices
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.plan import Address, ComputePlan
from tilewright.targets.llvm.running import Lanes
from tilewright.targets.llvm.types import llvm_type, splat
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

_UNIT_BYTES = 16
_BITS = {1: s8, 2: s16, 4: s32, 8: s64}


def emit_transpose(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    """``out[m, n] = a[m, n]``, where a is contiguous along m and the result along n."""
    size = instruction.sizes["n"]
    across = _dim(plan, plan.out)
    (along,) = (dim for dim in plan.stmt.dims if dim is not across)
    rows, columns = _extent(memory, across), _extent(memory, along)
    outer = memory.lanes
    memory.lanes = Lanes(along.var, columns, size)
    dtype = instruction.out.dtype
    zeros = _zeros(_BITS[dtype.bytes], size)
    vectors = [
        _load_row(memory, plan, across.var, along.var, row) if row < rows else zeros
        for row in range(size)
    ]
    memory.lanes = Lanes(across.var, rows, size)
    for column, vector in enumerate(transposed(memory.w, vectors)[:columns]):
        back = memory.w.assign(f"bitcast {vector.typed} to {llvm_type(dtype, size)}")
        value = Value(back, dtype, size)
        memory.store(_shifted(plan.out, along.var, column), value, {}, free_tail=True)
    memory.lanes = outer


def emit_interleave(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    """``out[m, n] = a[m, n]``, where a's rows lie along m, and the result along n, then m."""
    size, count = instruction.sizes["m"], instruction.sizes["n"]
    across = _dim(plan, plan.out)
    (along,) = (dim for dim in plan.stmt.dims if dim is not across)
    columns = _extent(memory, along)
    if _extent(memory, across) != count:
        raise CompilationError(
            f"'{instruction.name}' takes {count} rows",
            where=plan.stmt.name,
            cure="partition the loop around it",
        )
    outer = memory.lanes
    memory.lanes = Lanes(along.var, columns, size)
    rows = [_load_row(memory, plan, across.var, along.var, row) for row in range(count)]
    while len(rows) > 1:
        half = len(rows) // 2
        rows = [_interleaved(memory.w, a, b) for a, b in zip(rows[:half], rows[half:], strict=True)]
    dtype, (row,) = instruction.out.dtype, rows
    back = memory.w.assign(f"bitcast {row.typed} to {llvm_type(dtype, row.lanes)}")
    memory.lanes = Lanes(across.var, columns * count, row.lanes)
    memory.store(plan.out, Value(back, dtype, row.lanes), {}, free_tail=True)
    memory.lanes = outer


def _interleaved(w: Writer, a: Value, b: Value) -> Value:
    """The elements of two vectors, alternating."""
    places = [place for lane in range(a.lanes) for place in (lane, a.lanes + lane)]
    text = w.assign(f"shufflevector {a.typed}, {b.typed}, {_mask(places)}")
    return Value(text, a.dtype, 2 * a.lanes)


def _dim(plan: ComputePlan, address: Address) -> Dim:
    """The dim along which ``address`` is contiguous."""
    for dim in plan.stmt.dims:
        if address.lane_coefficient(dim.var) == 1:
            return dim
    raise CompilationError(
        f"{plan.stmt.name!r} has no dim along which {address.buffer.name!r} is contiguous",
        cure="match it with `tensorize`",
    )


def _extent(memory: MemoryMap, dim: Dim) -> int:
    extent = memory.exprs.evaluate(dim.extent, {})
    if isinstance(extent, Value):
        raise CompilationError(
            f"the extent of {dim.var.name!r} is not a constant number",
            cure="partition the loop around the transpose",
        )
    return int(extent)


def _shifted(address: Address, dim: Var, position: int) -> Address:
    """``address`` at a position of one dim."""
    return replace(address, constant=address.constant + position * address.lane_coefficient(dim))


def _load_row(memory: MemoryMap, plan: ComputePlan, across: Var, along: Var, row: int) -> Value:
    """The vector along ``along`` at position ``row`` of ``across``; 0 where it is masked.

    It is loaded as integers: some processors lack the type of floats, and would convert them.
    """
    address = _shifted(plan.operands[0], across, row)
    lanes, bits = memory.lanes, _BITS[address.buffer.dtype.bytes]
    assert lanes is not None
    mask = _row_mask(memory, plan, across, along, row)
    if mask is False:
        return _zeros(bits, lanes.count)
    memory.exprs.push()
    memory.exprs.variables[across], memory.exprs.variables[along] = row, 0
    pointer = memory.pointer(address, {})
    memory.exprs.pop()
    buffer = replace(address.buffer, dtype=bits)
    return memory.load_lanes(pointer, buffer, lanes.active, lanes.count, mask)


def _zeros(bits: DType, lanes: int) -> Value:
    return Value(splat("0", bits, lanes), bits, lanes)


def _row_mask(
    memory: MemoryMap, plan: ComputePlan, across: Var, along: Var, row: int
) -> Value | bool:
    condition = plan.stmt.operands[0].view.mask
    if condition is None:
        return True
    lanes, exprs = memory.lanes, memory.exprs
    assert lanes is not None
    exprs.push()
    exprs.variables[across] = row
    exprs.variables[along] = lane_indices(memory.w, lanes.count)
    result = exprs.evaluate(condition, {})
    exprs.pop()
    return result if isinstance(result, Value) else bool(result)


def transposed(w: Writer, rows: list[Value]) -> list[Value]:
    """Rows and lanes exchanged: as many vectors as each has lanes, a power of 2."""
    size, dtype = len(rows), rows[0].dtype
    bits = (size - 1).bit_length()
    in_unit = min(bits, (_UNIT_BYTES // dtype.bytes).bit_length() - 1)
    type_, texts = rows[0].type, [row.text for row in rows]
    for bit in (*reversed(range(in_unit)), *range(in_unit, bits)):
        if bit < in_unit:
            low, high = _unpacks(size, 1 << in_unit)
        else:
            low, high = _exchanges(size, 1 << in_unit)
        for row in range(size):
            if row >> bit & 1:
                continue
            pair = row | 1 << bit
            operands = f"{type_} {texts[row]}, {type_} {texts[pair]}"
            texts[row] = w.assign(f"shufflevector {operands}, {_mask(low)}")
            texts[pair] = w.assign(f"shufflevector {operands}, {_mask(high)}")
    return [Value(text, dtype, size) for text in texts]


def _unpacks(size: int, unit: int) -> tuple[list[int], list[int]]:
    """Within each unit, the low (high) halves of two vectors, alternating."""
    low: list[int] = []
    high: list[int] = []
    for start in range(0, size, unit):
        for place in range(unit // 2):
            low += [start + place, size + start + place]
            high += [start + unit // 2 + place, size + start + unit // 2 + place]
    return low, high


def _exchanges(size: int, unit: int) -> tuple[list[int], list[int]]:
    """The even (odd) units of the first vector, then those of the second."""
    even, odd = (
        [
            vector + start + place
            for vector in (0, size)
            for start in range(first, size, 2 * unit)
            for place in range(unit)
        ]
        for first in (0, unit)
    )
    return even, odd


def _mask(indices: list[int]) -> str:
    return f"<{len(indices)} x i32> <" + ", ".join(f"i32 {i}" for i in indices) + ">"


def emit_reduction(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    """``out combine= a[n]`` over all lanes of one vector, by halves."""
    w = memory.w
    (address,) = plan.operands
    dim = _dim(plan, address)
    lanes, dtype = instruction.sizes["n"], instruction.out.dtype
    outer, memory.lanes = memory.lanes, Lanes(dim.var, lanes, lanes)
    if address.buffer in memory.registers:
        value = memory.slot(address)
    else:
        value = memory.load_at(memory.pointer(address, {}), address.buffer, lanes)
    memory.lanes = outer
    while lanes > 1:
        lanes //= 2
        halves: list[Value] = []
        for start in (0, lanes):
            mask = _mask(list(range(start, start + lanes)))
            part = f"shufflevector {value.typed}, {value.type} poison, {mask}"
            halves.append(Value(w.assign(part), dtype, lanes))
        if lanes == 1:
            first = f"extractelement <1 x {llvm_type(dtype)}>"
            halves = [Value(w.assign(f"{first} {h.text}, i64 0"), dtype) for h in halves]
        value = _combined(memory, instruction, *halves)
    if plan.out.buffer in memory.registers:
        old = memory.slot(plan.out)
    else:
        old = memory.load_at(memory.pointer(plan.out, {}), plan.out.buffer, 1)
    memory.store(plan.out, _combined(memory, instruction, old, value), {})


def _combined(memory: MemoryMap, instruction: Instruction, a: Value, b: Value) -> Value:
    """Both by the instruction's combiner, with its meaning in expressions."""
    assert instruction.combiner is not None
    exprs = memory.exprs
    x, y = var("reduced_a", a.dtype), var("reduced_b", b.dtype)
    exprs.push()
    exprs.variables[x], exprs.variables[y] = a, b
    result = exprs.value(exprs.evaluate(binary(instruction.combiner, x, y), {}), a.dtype, a.lanes)
    exprs.pop()
    return result
