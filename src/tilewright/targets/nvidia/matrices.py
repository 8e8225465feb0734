"""Instructions on matrices that the 32 lanes of a warp carry out together: mma.sync and ldmatrix.

Source: NVIDIA, PTX ISA, "mma" and "ldmatrix"; LLVM, User Guide for NVPTX Back-end.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.dtypes import DType, f16, f32, f64, s32
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Space
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Dim
from tilewright.layout.fragments import Fragment
from tilewright.machines.instruction import Instruction, Role
from tilewright.machines.matrices import LANES
from tilewright.targets.llvm.fragments import first_register, read_registers, write_registers
from tilewright.targets.llvm.memory import Memory
from tilewright.targets.llvm.plan import Address, ComputePlan
from tilewright.targets.llvm.types import llvm_type
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.nvidia.warpgroups import emit_product

# Bytes of a register.
_REGISTER = 4
# What instructions take as LLVM's own types; all others as the bits of a register.
_AS_THEY_ARE = (f16, f32, f64, s32)
# Rows that make a matrix of ldmatrix.
_ROWS = 8


def emit_matrices(memory: Memory, plan: ComputePlan, instruction: Instruction) -> None:
    """The instruction that ``plan`` was matched with."""
    if any(o.view.mask is not None for o in plan.stmt.operands):
        raise CompilationError(
            f"an operand of {plan.stmt.name!r} has a mask",
            why=f"{instruction.name} has none",
            cure="promote the operand, so that its copy has no mask",
        )
    if instruction.lanes > LANES:
        emit_product(memory, plan, instruction)
    elif len(instruction.operands) == 1:
        _emit_load(memory, plan, instruction)
    else:
        _emit_product(memory, plan, instruction)


def _emit_product(memory: Memory, plan: ComputePlan, instruction: Instruction) -> None:
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


def _registers(memory: Memory, address: Address, role: Role, dims: tuple[Dim, ...]) -> list[Value]:
    """The fragment as the registers that an instruction takes."""
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


def _emit_load(memory: Memory, plan: ComputePlan, instruction: Instruction) -> None:
    """A fragment from rows in shared memory: each lane names one, by where it begins."""
    (source,), (role,) = plan.operands, instruction.operands
    fragment = instruction.out.fragment
    assert fragment is not None
    if source.buffer.space is not Space.WORKGROUP:
        raise CompilationError(
            f"{instruction.name} from {source.buffer.name!r}",
            why="it loads from workgroup memory only",
            cure="share the operand first",
        )
    dtype, w = instruction.out.dtype, memory.w
    packed = _REGISTER // dtype.bytes
    count = fragment.registers // packed
    pointer = _row(memory, plan, fragment, role, count)
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


def _unpacked(memory: Memory, word: str, dtype: DType, packed: int) -> Value:
    if packed == 1 and dtype is s32:
        return Value(word, dtype)
    return Value(
        memory.w.assign(f"bitcast i32 {word} to {llvm_type(dtype, packed)}"), dtype, packed
    )


def _row(memory: Memory, plan: ComputePlan, fragment: Fragment, role: Role, count: int) -> Pointer:
    """Where the row begins that this lane names: of the matrices in the order of the registers that
    they go to, eight rows each."""
    assert memory.lane is not None
    w, lane, (source,) = memory.w, memory.lane, plan.operands
    type_, sizes = lane.type, fragment.sizes
    row = w.assign(f"and {lane.typed}, {_ROWS - 1}")
    matrix = w.assign(f"lshr {lane.typed}, {_ROWS.bit_length() - 1}")
    if count < fragment.lanes // _ROWS:
        matrix = w.assign(f"and {type_} {matrix}, {count - 1}")
    packed = _REGISTER // role.dtype.bytes
    places = {name: "0" for name in fragment.dims}
    inner = dict.fromkeys(fragment.dims, 1)
    for block in reversed(fragment.layout.blocks):
        name = fragment.dims[block.dim]
        if packed <= block.stride < fragment.registers and block.size > 1:
            digit = w.assign(f"udiv {type_} {matrix}, {block.stride // packed}")
            digit = w.assign(f"urem {type_} {digit}, {block.size}")
            scaled = w.assign(f"mul {type_} {digit}, {inner[name]}")
            places[name] = w.assign(f"add {type_} {places[name]}, {scaled}")
        inner[name] *= block.size
    rows = role.steps[0].dim
    places[rows] = w.assign(f"add {type_} {places[rows]}, {row}")
    values = {
        dim.var: Value(places[name], lane.dtype, 1, (0, sizes[name] - 1))
        for dim, name in zip(plan.stmt.dims, fragment.dims, strict=True)
    }
    return _pointer(memory, source, values)


def _pointer(memory: Memory, address: Address, values: Mapping[Var, Value]) -> Pointer:
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
