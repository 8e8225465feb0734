"""Structured ops that are one machine instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilewright.dtypes import bf16, s32
from tilewright.errors import CompilationError
from tilewright.ir.expr import Const, Var, const
from tilewright.ir.stmt import Dim
from tilewright.machines.instruction import Instruction
from tilewright.targets.llvm.fragments import read_registers
from tilewright.targets.llvm.indices import lane_indices
from tilewright.targets.llvm.masked import first_lanes, more_lanes
from tilewright.targets.llvm.memory import MemoryMap, NotInRegisters
from tilewright.targets.llvm.plan import Address, ComputePlan
from tilewright.targets.llvm.running import Lanes, any_lane
from tilewright.targets.llvm.transpose import emit_interleave, emit_reduction, emit_transpose
from tilewright.targets.llvm.types import constant, llvm_type, splat, suffix
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.llvm.writer import Writer

EmitDot = Callable[[Writer, Instruction, Value, Value, Value], str]


@dataclass(frozen=True)
class Units:
    """The units of a device beside its work-items. ``collective`` emits instructions that the lanes
    of a subgroup carry out together, ``transfers``, by instruction, asynchronous copies of tiles.
    ``dot`` emits a sum of products of neighbours (the result, of a sum and two factors), for
    devices without a vector instruction for it. ``tiles`` emits products of matrices in tile
    registers of one thread."""

    collective: Callable[[MemoryMap, ComputePlan, Instruction], None] | None = None
    transfers: Mapping[str, Callable[[MemoryMap, ComputePlan], None]] = field(default_factory=dict)
    dot: EmitDot | None = None
    tiles: Callable[[MemoryMap, ComputePlan, Instruction], None] | None = None


def emit_compute(
    memory: MemoryMap,
    plan: ComputePlan,
    instructions: Mapping[str, Instruction],
    units: Units,
) -> None:
    """Emits the instruction of the compute: one of ``instructions``, or of ``units``."""
    transfer = units.transfers.get(plan.stmt.instruction or "")
    if transfer is not None:
        transfer(memory, plan)
        return
    name = plan.stmt.instruction
    instruction = instructions.get(name or "")
    if instruction is None:
        raise CompilationError(
            f"this machine has no instruction {name!r}",
            cure="choose one of " + ", ".join(instructions),
        )
    if instruction.lanes > 1 and units.collective is not None:
        _check_lanes(memory, plan, instruction)
        units.collective(memory, plan, instruction)
        return
    if plan.stmt.completion is not None:
        raise CompilationError(
            f"this target has no asynchronous {name!r}",
            where=plan.stmt.name,
            cure="leave out the completion, so that the op completes in place",
        )
    match instruction.emit:
        case "transpose":
            emit_transpose(memory, plan, instruction)
        case "interleave":
            emit_interleave(memory, plan, instruction)
        case "reduce":
            emit_reduction(memory, plan, instruction)
        case _ if "m" in instruction.sizes and units.tiles is not None:
            units.tiles(memory, plan, instruction)
        case _:
            emit_dot(memory, plan, instruction, units.dot or _vector_dot)


def _check_lanes(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    if memory.lane is None:
        raise CompilationError(
            f"{plan.stmt.name!r} stands where no subgroup runs it together",
            why=f"the {instruction.lanes} lanes of a subgroup carry {instruction.name} out "
            "together",
            cure="put it in a subgroup loop, outside the loops over lanes",
        )


def emit_dot(memory: MemoryMap, plan: ComputePlan, instruction: Instruction, dot: EmitDot) -> None:
    """``out[n] += a[k] * b[k, n]`` on vectors: FMA, or ``dot`` for products of ``k`` neighbours."""
    stmt = plan.stmt
    lanes_dim, k_dim = _dims_by_role(plan, instruction)
    extent = memory.exprs.evaluate(lanes_dim.extent, {})
    if isinstance(extent, Value):
        raise CompilationError(f"the lanes of {stmt.name!r} are not a constant number")
    # A tail has the width of whole vectors: it shares their registers.
    count = instruction.sizes["n"]
    if instruction.emit == "fma" and isinstance(lanes_dim.extent, Const):
        count = 1 << (int(extent) - 1).bit_length()
    masks = _masks(memory, plan, lanes_dim.var, count)
    # A product with a masked operand is 0 and adds nothing.
    if any(mask is False for mask in masks):
        return
    outer, memory.lanes = memory.lanes, Lanes(lanes_dim.var, int(extent), count)
    k = instruction.sizes.get("k", 1)
    a, b = (
        _operand(memory, address, k, k_dim, mask)
        for address, mask in zip(plan.operands, masks, strict=True)
    )
    # The instruction fixes which operand comes first where their types differ.
    if a.dtype is not instruction.operands[0].dtype:
        a, b = b, a
    register = plan.out.buffer in memory.registers
    # Sums of fewer lanes than the instruction has are held in shorter vectors.
    held = _held_lanes(memory, plan.out, count) if register else count
    memory.lanes = Lanes(lanes_dim.var, int(extent), held)
    out = memory.slot(plan.out) if register else _load_out(memory, plan.out)
    out = more_lanes(memory.w, out, count)
    emit = _multiply_add if instruction.emit == "fma" else dot
    result = Value(emit(memory.w, instruction, out, a, b), instruction.out.dtype, count)
    result = first_lanes(memory.w, result, held) if held < count else result
    memory.store(plan.out, result, {}, free_tail=True)
    memory.lanes = outer


def _held_lanes(memory: MemoryMap, out: Address, count: int) -> int:
    """Lanes of the vector in registers that holds the active ones of ``count``; ``count``, where
    there is none."""
    offset = memory.constant_offset(out)
    held = None if offset is None else memory.slots.get((out.buffer, offset))
    assert memory.lanes is not None
    few = held is not None and memory.lanes.active <= held.lanes < count
    return held.lanes if few and held is not None else count


def _dims_by_role(plan: ComputePlan, instruction: Instruction) -> tuple[Dim, Dim | None]:
    """The dim across lanes, which the result has, and the one that is summed. In a tail of one
    lane, simplification has dropped the lanes' dim from all indices."""
    in_result = {variable for variable, _ in plan.out.lanes}
    lanes = [dim for dim in plan.stmt.dims if dim.var in in_result]
    reduced = [dim for dim in plan.stmt.dims if dim.var not in in_result]
    if not lanes and len(reduced) == 1 + len(instruction.reduced):
        lanes = [dim for dim in reduced if dim.extent is const(1)][:1]
        reduced = [dim for dim in reduced if dim not in lanes]
    if len(lanes) != 1 or len(reduced) != len(instruction.reduced):
        raise CompilationError(
            f"{plan.stmt.name!r} does not have the dims of {instruction.name}",
            cure="match it with `tensorize`",
        )
    return lanes[0], reduced[0] if reduced else None


def _masks(memory: MemoryMap, plan: ComputePlan, lanes: Var, count: int) -> list[Value | bool]:
    """The operands' masks: a constant, one for all lanes, or one per lane."""
    exprs = memory.exprs
    if all(operand.view.mask is None for operand in plan.stmt.operands):
        return [True] * len(plan.operands)
    exprs.push()
    if count > 1:
        exprs.variables[lanes] = lane_indices(memory.w, count)
    else:
        exprs.variables[lanes] = 0
    masks: list[Value | bool] = []
    for operand in plan.stmt.operands:
        mask = operand.view.mask
        value = True if mask is None else exprs.evaluate(mask, {})
        masks.append(value if isinstance(value, Value) else bool(value))
    exprs.pop()
    return masks


def _load_out(memory: MemoryMap, address: Address) -> Value:
    assert memory.lanes is not None
    pointer = memory.pointer(address, {})
    return memory.load_lanes(pointer, address.buffer, memory.lanes.active, memory.lanes.count)


def _operand(
    memory: MemoryMap, address: Address, k: int, k_dim: Dim | None, mask: Value | bool
) -> Value:
    """An operand's register: broadcast where all lanes have the same ``k`` values."""
    lanes = memory.lanes
    assert lanes is not None
    width = lanes.count * k
    stride = address.lane_coefficient(lanes.var)
    if k_dim is not None and address.lane_coefficient(k_dim.var) != 1:
        raise CompilationError(
            f"the {k} values of {address.buffer.name!r} that are summed are not neighbours",
            cure="pack the operand so that they are",
        )
    if address.buffer in memory.registers:
        if k == 1:
            return memory.exprs.value(memory.slot(address), address.buffer.dtype, width)
        offset = memory.constant_offset(address)
        if offset is None or stride != k:
            raise NotInRegisters(address.buffer)
        return read_registers(memory, address.buffer, offset, width)
    pointer = memory.pointer(address, {})
    per_lane = isinstance(mask, Value) and mask.lanes > 1
    if per_lane and (stride not in (0, 1) or k != 1):
        raise CompilationError(
            f"the mask of {address.buffer.name!r} differs between lanes that share its elements",
            cure="stage the operand, so that its copy has no mask",
        )
    if stride == 0 and isinstance(mask, Value) and per_lane:
        return _broadcast_masked(memory, pointer, address, mask)
    if stride == 0:
        return _broadcast(memory, pointer, address, k, width, mask)
    if stride != k:
        raise CompilationError(
            f"neighbouring lanes are {stride} elements apart in {address.buffer.name!r}, not {k}",
            cure="vectorize a dim that is contiguous, or pack the operand",
        )
    return memory.load_lanes(pointer, address.buffer, lanes.active * k, width, mask)


def _broadcast(
    memory: MemoryMap,
    pointer: Pointer,
    address: Address,
    k: int,
    width: int,
    mask: Value | bool,
) -> Value:
    dtype = address.buffer.dtype
    if k == 1:
        element = memory.load_lanes(pointer, address.buffer, 1, 1, mask)
        return memory.exprs.value(element, dtype, width)
    # The k neighbours are broadcast as one 32-bit element.
    group = memory.load_lanes(pointer, address.buffer, k, k, mask)
    whole = memory.w.assign(f"bitcast {group.typed} to i32")
    spread = memory.exprs.value(Value(whole, s32), s32, width // k)
    type_ = llvm_type(dtype, width)
    return Value(memory.w.assign(f"bitcast {spread.typed} to {type_}"), dtype, width)


def _broadcast_masked(memory: MemoryMap, pointer: Pointer, address: Address, mask: Value) -> Value:
    """One element in the lanes whose mask holds, 0 in the others: all lanes have one address, as
    the mask leaves one value to the index. It is read if an active lane needs it."""
    assert memory.lanes is not None
    w, dtype = memory.w, address.buffer.dtype
    active = ", ".join(f"i1 {int(n < memory.lanes.active)}" for n in range(mask.lanes))
    needed = w.assign(f"and {mask.typed}, <{active}>")
    any_needed = any_lane(w, Value(needed, mask.dtype, mask.lanes))
    flag = Value(any_needed, mask.dtype, 1)
    spread = _broadcast(memory, pointer, address, 1, mask.lanes, flag)
    zero = splat(constant(0, dtype), dtype, mask.lanes)
    text = w.assign(f"select {mask.typed}, {spread.typed}, {spread.type} {zero}")
    return Value(text, dtype, mask.lanes)


def _vector_dot(w: Writer, instruction: Instruction, out: Value, a: Value, b: Value) -> str:
    """Dot products on whole vectors, by an intrinsic."""
    factors = [_as_bfloats(w, value) for value in (a, b)]
    arguments = ", ".join((out.typed, *(f"{type_} {text}" for type_, text in factors)))
    types = ", ".join((out.type, *(type_ for type_, _ in factors)))
    return w.call(out.type, instruction.emit, arguments, types)


def _multiply_add(w: Writer, instruction: Instruction, out: Value, a: Value, b: Value) -> str:
    del instruction
    if not out.dtype.is_float:
        product = w.assign(f"mul {a.typed}, {b.text}")
        return w.assign(f"add {out.typed}, {product}")
    # Without FMA (SSE4.2) fmuladd is a multiplication and an addition, and fma a call to libm.
    name = f"llvm.fmuladd.{suffix(out.dtype, out.lanes)}"
    arguments = f"{a.typed}, {b.typed}, {out.typed}"
    return w.call(out.type, name, arguments, f"{out.type}, {out.type}, {out.type}")


def _as_bfloats(w: Writer, value: Value) -> tuple[str, str]:
    """Type and text of ``value`` as an instruction takes it: bf16 as bfloat, others as they are."""
    if value.dtype is not bf16:
        return value.type, value.text
    type_ = f"<{value.lanes} x bfloat>"
    return type_, w.assign(f"bitcast {value.typed} to {type_}")
