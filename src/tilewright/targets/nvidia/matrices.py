"""Matrix instructions of the 32 lanes of a warp: mma.sync, ldmatrix and stmatrix (in a warpgroup,
of all four warps at the same time).

Source: NVIDIA, PTX ISA, "mma", "ldmatrix" and "stmatrix"; LLVM, User Guide for NVPTX Back-end.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.dtypes import DType, f16, f32, f64, s32
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Space
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Dim
from tilewright.layout.fragments import Fragment
from tilewright.machines.instruction import Instruction, OperandForm
from tilewright.machines.nvidia.matrices import LANES
from tilewright.targets.llvm.fragments import first_register, read_registers, write_registers
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.plan import Address, ComputePlan
from tilewright.targets.llvm.types import llvm_type
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.nvidia.warpgroups import emit_product

# Bytes of a register.
_REGISTER = 4
# Types that instructions take as LLVM's own; others are passed as the bits of a register.
_AS_THEY_ARE = (f16, f32, f64, s32)
# Rows of one matrix of ldmatrix and stmatrix.
_ROWS = 8


def emit_matrices(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    """Emits the instruction of the compute."""
    if any(o.view.mask is not None for o in plan.stmt.operands):
        raise CompilationError(
            f"an operand of {plan.stmt.name!r} has a mask",
            why=f"{instruction.name} has none",
            cure="stage the operand, so that its copy has no mask",
        )
    if instruction.stores:
        _emit_store(memory, plan, instruction)
    elif instruction.loads:
        _emit_load(memory, plan, instruction)
    elif instruction.lanes > LANES:
        emit_product(memory, plan, instruction)
    else:
        _emit_product(memory, plan, instruction)


def _emit_product(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    """``c += a * b``, all in registers."""
    w = memory.w
    arguments: list[str] = []
    types: list[str] = []
    a, b, c = (
        _registers(memory, address, role, plan.stmt.dims)
        for address, role in (
            *zip(plan.operands, instruction.operands, strict=True),
            (plan.out, instruction.out),
        )
    )
    for value in (*a, *b, *c):
        arguments.append(value.typed)
        types.append(value.type)
    struct = "{ " + ", ".join(value.type for value in c) + " }"
    result = w.call(struct, instruction.emit, ", ".join(arguments), ", ".join(types))
    dtype = instruction.out.dtype
    parts = [Value(w.assign(f"extractvalue {struct} {result}, {i}"), dtype) for i in range(len(c))]
    write_registers(
        memory, plan.out.buffer, first_register(memory, plan.out, plan.stmt.dims), parts
    )


def _registers(
    memory: MemoryMap, address: Address, role: OperandForm, dims: tuple[Dim, ...]
) -> list[Value]:
    """The fragment as registers, the operands of an instruction."""
    assert role.fragment is not None
    first = first_register(memory, address, dims)
    packed = max(1, _REGISTER // role.dtype.bytes)
    values = [
        read_registers(memory, address.buffer, first + start, packed)
        for start in range(0, role.fragment.registers, packed)
    ]
    if role.dtype in _AS_THEY_ARE:
        return values
    return [Value(memory.w.assign(f"bitcast {v.typed} to i32"), s32) for v in values]


def _emit_load(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    """A fragment from rows in shared memory: each lane gives the address of one row."""
    (source,), (role,) = plan.operands, instruction.operands
    fragment = instruction.out.fragment
    assert fragment is not None
    if source.buffer.space is not Space.WORKGROUP:
        raise CompilationError(
            f"{instruction.name} from {source.buffer.name!r}",
            why="it loads from workgroup memory only",
            cure="stage the operand in workgroup memory first",
        )
    dtype, w = instruction.out.dtype, memory.w
    packed = _REGISTER // dtype.bytes
    count = fragment.registers // packed
    pointer = _row(memory, source, plan.stmt.dims, (fragment, role))
    type_ = "i32" if count == 1 else "{ " + ", ".join(["i32"] * count) + " }"
    result = w.call(type_, instruction.emit, pointer.typed, pointer.type)
    words = [
        result if count == 1 else w.assign(f"extractvalue {type_} {result}, {i}")
        for i in range(count)
    ]
    parts = [_unpacked(memory, word, dtype, packed) for word in words]
    write_registers(
        memory, plan.out.buffer, first_register(memory, plan.out, plan.stmt.dims), parts
    )


def _unpacked(memory: MemoryMap, word: str, dtype: DType, packed: int) -> Value:
    if packed == 1 and dtype is s32:
        return Value(word, dtype)
    return Value(
        memory.w.assign(f"bitcast i32 {word} to {llvm_type(dtype, packed)}"), dtype, packed
    )


def _emit_store(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    """Rows in shared memory from a fragment: each lane gives the address of one row."""
    (source,), (role,) = plan.operands, instruction.operands
    assert role.fragment is not None
    if plan.out.buffer.space is not Space.WORKGROUP:
        raise CompilationError(
            f"{instruction.name} to {plan.out.buffer.name!r}",
            why="it stores to workgroup memory only",
            cure="stage the result in workgroup memory (`stage_result`)",
        )
    w, dims = memory.w, plan.stmt.dims
    parts = _registers(memory, source, role, dims)
    words = [
        part if part.dtype is s32 else Value(w.assign(f"bitcast {part.typed} to i32"), s32)
        for part in parts
    ]
    pointer = _row(memory, plan.out, dims, (role.fragment, instruction.out))
    arguments = [pointer.typed, *(word.typed for word in words)]
    types = [pointer.type, *(word.type for word in words)]
    w.call_void(instruction.emit, ", ".join(arguments), ", ".join(types))


def _row(
    memory: MemoryMap,
    address: Address,
    dims: tuple[Dim, ...],
    forms: tuple[Fragment, OperandForm],
) -> Pointer:
    """The pointer to this lane's row: lanes give the rows of matrices in the order of the
    matrices' registers, eight rows each. ``forms`` are those in registers and in memory."""
    assert memory.lane is not None
    w, lane, (fragment, role) = memory.w, memory.lane, forms
    packed = _REGISTER // role.dtype.bytes
    count = fragment.registers // packed
    type_, sizes = lane.type, fragment.sizes
    row = w.assign(f"and {lane.typed}, {_ROWS - 1}")
    matrix = w.assign(f"lshr {lane.typed}, {_ROWS.bit_length() - 1}")
    if count < fragment.lanes // _ROWS:
        matrix = w.assign(f"and {type_} {matrix}, {count - 1}")
    places = {name: "0" for name in fragment.dims}
    inner = dict.fromkeys(fragment.dims, 1)
    for block in reversed(fragment.layout.blocks):
        name = fragment.dims[block.dim]
        if block.size > 1:
            number, step = _digit(block.stride, fragment.registers, (lane.text, matrix), packed)
            if step:
                digit = w.assign(f"udiv {type_} {number}, {step}")
                digit = w.assign(f"urem {type_} {digit}, {block.size}")
                scaled = w.assign(f"mul {type_} {digit}, {inner[name]}")
                places[name] = w.assign(f"add {type_} {places[name]}, {scaled}")
        inner[name] *= block.size
    rows = role.steps[0].dim
    places[rows] = w.assign(f"add {type_} {places[rows]}, {row}")
    values = {
        dim.var: Value(places[name], lane.dtype, 1, (0, sizes[name] - 1))
        for dim, name in zip(dims, fragment.dims, strict=True)
    }
    return _pointer(memory, address, values)


def _digit(stride: int, elements: int, numbers: tuple[str, str], packed: int) -> tuple[str, int]:
    """The number of which a block of a fragment is a digit, and the digit's step: the lane's
    number, where warps have different parts, else its matrix's; step 0 within a matrix. Lanes hold
    ``elements`` elements each, ``packed`` in a register."""
    lane, matrix = numbers
    if stride >= LANES * elements:
        return lane, stride // elements
    return (matrix, stride // packed) if packed <= stride < elements else ("", 0)


def _pointer(memory: MemoryMap, address: Address, values: Mapping[Var, Value]) -> Pointer:
    """The element of ``address`` where the dims of the compute have ``values``."""
    size = address.buffer.dtype.bytes
    memory.exprs.push()
    memory.exprs.variables.update(values)
    pointer = memory.pointer(address, {})
    for variable, coefficient in address.lanes:
        assert isinstance(variable, Var)
        pointer = memory.moved(pointer, values[variable], coefficient * size)
    memory.exprs.pop()
    return pointer
