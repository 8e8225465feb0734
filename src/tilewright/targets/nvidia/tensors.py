"""Copies of whole tiles between global and shared memory (TMA, sm_90 on).

One work-item starts a copy; the unit finds the tile by a map of the tensor, which is a parameter of
the kernel, and by where in the tensor it begins. What is outside of the tensor arrives as zero, and
is not stored.

Source: NVIDIA, PTX ISA, "cp.async.bulk.tensor".
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.dtypes import s64
from tilewright.errors import CompilationError
from tilewright.ir.stmt import View
from tilewright.layout.boxes import Box, box_of
from tilewright.machines.tensor_map import UNIT, TensorMap, Tile, check_tensor_map
from tilewright.machines.warpgroups import ROW_BYTES, swizzle_of
from tilewright.targets.llvm.memory import Memory
from tilewright.targets.llvm.plan import Address, ComputePlan
from tilewright.targets.llvm.values import Value
from tilewright.targets.nvidia.assembler import number, one_lane, ptx, shared_address


def emit_load(memory: Memory, plan: ComputePlan) -> None:
    """``tile = tensor``, which tells the mbarrier of the plan its bytes."""
    (operand,) = plan.stmt.operands
    box, swizzle = _box(plan, operand.view, plan.stmt.out), _swizzled(plan.stmt.out)
    assert plan.signal is not None
    with one_lane(memory):
        bar = shared_address(memory.w, memory.pointer(plan.signal, {}))
        tile, tensor = _tile(memory, plan, plan.out), _map(memory, operand.view, box, swizzle)
        corner = _corner(memory, box)
        places = ", ".join(f"${3 + i}" for i in range(len(corner)))
        text = (
            f"cp.async.bulk.tensor.{len(corner)}d.shared::cluster.global.tile."
            f"mbarrier::complete_tx::bytes [$0], [$1, {{{places}}}], [$2];"
        )
        ptx(memory.w, text, [tile, tensor, bar, *corner], "rlr" + "r" * len(corner))


def emit_store(memory: Memory, plan: ComputePlan) -> None:
    """``tensor = tile``, in the newest group of stores."""
    (operand,) = plan.stmt.operands
    box, swizzle = _box(plan, plan.stmt.out, operand.view), _swizzled(operand.view)
    with one_lane(memory):
        tile = _tile(memory, plan, plan.operands[0])
        tensor = _map(memory, plan.stmt.out, box, swizzle)
        corner = _corner(memory, box)
        places = ", ".join(f"${2 + i}" for i in range(len(corner)))
        text = (
            f"cp.async.bulk.tensor.{len(corner)}d.global.shared::cta.tile.bulk_group "
            f"[$1, {{{places}}}], [$0];"
        )
        ptx(memory.w, text, [tile, tensor, *corner], "rl" + "r" * len(corner))


def _box(plan: ComputePlan, tensor: View, tile: View) -> Box:
    """The box of ``tensor`` that is ``tile``. Raises `CompilationError` if it is none."""
    stmt = plan.stmt
    # A copy to the tensor goes through the same box as one from there.
    copy = replace(stmt, out=tile, operands=(replace(stmt.operands[0], view=tensor),))
    found = box_of(copy, plan.facts)
    if isinstance(found, str):
        raise CompilationError(
            f"the copy {stmt.name!r} is none of one box",
            why=found,
            cure="copy asynchronously by work-items (fill='async'), or in parts",
        )
    return found


def _swizzled(tile: View) -> int:
    """Bytes of the rows in which the tile is swizzled; 0: it is not. Raises `CompilationError` for
    a swizzle that the unit does not have."""
    swizzle, size = tile.buffer.layout.swizzle, tile.buffer.dtype.bytes
    if swizzle is None:
        return 0
    row = swizzle.room * size
    if row not in ROW_BYTES or swizzle != swizzle_of(row, size):
        raise CompilationError(
            f"{tile.buffer.name!r} is swizzled by {swizzle}",
            why="the unit exchanges runs of 16 bytes in eight rows of 32, 64 or 128 bytes",
            cure="swizzle it as `machines.warpgroups.swizzle_of` says",
        )
    return row


def _map(memory: Memory, tensor: View, box: Box, swizzle: int) -> Value:
    """Where the map is, which the kernel gets as a parameter."""
    buffer = tensor.buffer
    if buffer not in memory.arguments:
        raise CompilationError(
            f"{buffer.name!r} is no argument", cure="copy tiles of arguments and workspaces"
        )
    # Of a dim of one element, any step will do.
    steps = {b.dim: b.stride for b in buffer.layout.blocks if b.size > 1}
    one = UNIT // buffer.dtype.bytes
    found = TensorMap(
        memory.arguments.index(buffer),
        buffer.dtype,
        tuple(buffer.shape[dim] for dim in box.order),
        tuple(steps.get(dim, one) * buffer.dtype.bytes for dim in box.order[1:]),
        Tile(box.sizes),
        swizzle=swizzle,
    )
    check_tensor_map(found, buffer.bytes)
    if found not in memory.maps:
        memory.maps.append(found)
    name = f"%map{memory.maps.index(found)}"
    return Value(memory.w.assign(f"ptrtoint ptr {name} to i64"), s64)


def _corner(memory: Memory, box: Box) -> list[Value]:
    """Where the box begins, innermost dim first."""
    return [number(memory, memory.exprs.evaluate(index, {})) for index in box.corner]


def _tile(memory: Memory, plan: ComputePlan, address: Address) -> Value:
    """Where the tile begins in shared memory."""
    memory.exprs.push()
    for dim in plan.stmt.dims:
        memory.exprs.variables[dim.var] = 0
    pointer = memory.pointer(address, {})
    memory.exprs.pop()
    return shared_address(memory.w, pointer)
