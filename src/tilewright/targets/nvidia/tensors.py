"""Copies of whole tiles between global and shared memory (TMA, sm_90 on).

One work-item starts a copy; the unit finds the tile by a map of the tensor, which is a parameter of
the kernel, and by the tile's corner in the tensor. Elements outside the tensor arrive as zero, and
are not stored. A tile may also be the pixels under a tap of a convolution (im2col).

Source: NVIDIA, PTX ISA, "cp.async.bulk.tensor".
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.dtypes import s16, s64
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Var, const
from tilewright.ir.stmt import View
from tilewright.ir.uses import view_variables
from tilewright.machines.nvidia.boxes import Box
from tilewright.machines.nvidia.im2col import Im2col, tile_of
from tilewright.machines.nvidia.tensor_map import UNIT, Columns, TensorMap, Tile, check_tensor_map
from tilewright.machines.nvidia.warpgroups import ROW_BYTES, swizzle_of
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.module import LaunchMap
from tilewright.targets.llvm.plan import Address, ComputePlan
from tilewright.targets.llvm.values import Value
from tilewright.targets.nvidia.assembler import number, one_lane, ptx, shared_address


def emit_load(memory: MemoryMap, plan: ComputePlan) -> None:
    """``tile = tensor``, which counts its bytes at the mbarrier of the plan. If a dim counts the
    workgroups of the cluster: the same tile and mbarrier of each workgroup."""
    (operand,) = plan.stmt.operands
    mask = _receivers(plan)
    if mask:
        plan = _one_copy(plan)
    box = _source_tile(plan, operand.view, plan.stmt.out)
    assert plan.signal is not None
    with one_lane(memory):
        bar = shared_address(memory.w, memory.pointer(plan.signal, {}))
        tile = _tile(memory, plan, plan.out)
        tensor = _map(memory, operand.view, box, _swizzled(plan.stmt.out))
        corner = _corner(memory, box)
        taps = [_short(memory, tap) for tap in box.taps] if isinstance(box, Im2col) else []
        places = [f"${3 + i}" for i in range(len(corner) + len(taps))]
        tail = f", {{{', '.join(places[len(corner) :])}}}" if taps else ""
        tail += f", {mask}" if mask else ""
        text = (
            f"cp.async.bulk.tensor.{len(corner)}d.shared::cluster.global."
            f"{'im2col' if taps else 'tile'}.mbarrier::complete_tx::bytes"
            f"{'.multicast::cluster' if mask else ''} "
            f"[$0], [$1, {{{', '.join(places[: len(corner)])}}}], [$2]{tail};"
        )
        letters = "rlr" + "r" * len(corner) + "h" * len(taps)
        ptx(memory.w, text, [tile, tensor, bar, *corner, *taps], letters)


def _receivers(plan: ComputePlan) -> int:
    """A bit for each workgroup of the cluster that receives a copy; 0: only the copying one."""
    peer, signal = plan.out.peer, plan.signal
    assert signal is not None
    if peer is None and signal.peer is None:
        return 0
    dims = {dim.var: dim.extent for dim in plan.stmt.dims}
    extent = dims.get(peer) if isinstance(peer, Var) else None
    (operand,) = plan.stmt.operands
    alike = peer is signal.peer and peer not in view_variables(operand.view)
    everywhere = isinstance(extent, Const) and extent.value == plan.out.buffer.shape[0]
    if not alike or not everywhere:
        raise CompilationError(
            f"the copy {plan.stmt.name!r} goes to other workgroups than the unit copies to",
            why="a tile goes to the copying workgroup, or to all workgroups of the cluster at the "
            "same place, with a signal to the mbarrier of each",
            cure="let one dim of the copy count the workgroups in the tile's index and in the "
            "mbarrier's, and nowhere else",
        )
    return (1 << plan.out.buffer.shape[0]) - 1


def _one_copy(plan: ComputePlan) -> ComputePlan:
    """The part of a copy to all workgroups that concerns the copying one."""
    stmt, peer = plan.stmt, plan.out.peer
    assert plan.signal is not None
    out = replace(stmt.out, index=(const(0), *stmt.out.index[1:]))
    dims = tuple(dim for dim in stmt.dims if dim.var is not peer)
    return replace(
        plan,
        stmt=replace(stmt, dims=dims).with_result(out),
        out=replace(plan.out, peer=None),
        signal=replace(plan.signal, peer=None),
    )


def emit_store(memory: MemoryMap, plan: ComputePlan) -> None:
    """``tensor = tile``, in the newest group of stores."""
    (operand,) = plan.stmt.operands
    box = _source_tile(plan, plan.stmt.out, operand.view)
    if isinstance(box, Im2col):
        raise CompilationError(
            f"the copy {plan.stmt.name!r} stores pixels in a row",
            why="the unit stores boxes",
            cure="store by work-items, or in parts that are boxes",
        )
    with one_lane(memory):
        tile = _tile(memory, plan, plan.operands[0])
        tensor = _map(memory, plan.stmt.out, box, _swizzled(operand.view))
        corner = _corner(memory, box)
        places = ", ".join(f"${2 + i}" for i in range(len(corner)))
        text = (
            f"cp.async.bulk.tensor.{len(corner)}d.global.shared::cta.tile.bulk_group "
            f"[$1, {{{places}}}], [$0];"
        )
        ptx(memory.w, text, [tile, tensor, *corner], "rl" + "r" * len(corner))


def _source_tile(plan: ComputePlan, tensor: View, tile: View) -> Box | Im2col:
    """The part of ``tensor`` that is copied. Raises `CompilationError` if the unit cannot."""
    stmt = plan.stmt
    # A copy to the tensor uses the same box as one from it.
    copy = replace(stmt, operands=(replace(stmt.operands[0], view=tensor),)).with_result(tile)
    box = tile_of(copy, plan.facts)
    if isinstance(box, str):
        raise CompilationError(
            f"the copy {stmt.name!r} is not a copy of one box",
            why=box,
            cure="copy asynchronously by work-items (fill='async'), or in parts",
        )
    return box


def _swizzled(tile: View) -> int:
    """Bytes of the rows in which the tile is swizzled; 0: it is not. Raises `CompilationError` for
    a swizzle that the unit lacks."""
    swizzle, size = tile.buffer.layout.swizzle, tile.buffer.dtype.bytes
    if swizzle is None:
        return 0
    row = swizzle.room * size
    if row not in ROW_BYTES or swizzle != swizzle_of(row, size):
        raise CompilationError(
            f"{tile.buffer.name!r} is swizzled by {swizzle}",
            why="the unit exchanges runs of 16 bytes in eight rows of 32, 64 or 128 bytes",
            cure="swizzle it as `machines.nvidia.warpgroups.swizzle_of` says",
        )
    return row


def _map(memory: MemoryMap, tensor: View, box: Box | Im2col, swizzle: int) -> Value:
    """The address of the map, which is a parameter of the kernel."""
    buffer = tensor.buffer
    places = [place for place, argument in enumerate(memory.arguments) if argument is buffer]
    if not places:
        raise CompilationError(
            f"{buffer.name!r} is no argument", cure="copy tiles of arguments and workspaces"
        )
    (position,) = places
    result = tensor_map(position, buffer, box, swizzle)
    check_tensor_map(result, buffer.bytes)
    parameter = LaunchMap(position, result.text)
    if parameter not in memory.maps:
        memory.maps.append(parameter)
    name = f"%map{memory.maps.index(parameter)}"
    return Value(memory.w.assign(f"ptrtoint ptr {name} to i64"), s64)


def tensor_map(argument: int, buffer: Buffer, box: Box | Im2col, swizzle: int = 0) -> TensorMap:
    """The map for copies of ``box`` of ``buffer``, which is that argument; the tile is swizzled in
    rows of ``swizzle`` bytes."""
    # The stride of a dim of one element does not matter.
    steps = {b.dim: b.stride for b in buffer.layout.blocks if b.size > 1}
    unit = UNIT // buffer.dtype.bytes
    strides = [unit if d is None else steps.get(d, unit) for d in box.order[1:]]
    tile, pixel_steps = (Tile(box.sizes), ()) if isinstance(box, Box) else _columns(box)
    return TensorMap(
        argument,
        buffer.dtype,
        tuple(1 if d is None else buffer.shape[d] for d in box.order),
        tuple(step * buffer.dtype.bytes for step in strides),
        tile,
        pixel_steps,
        swizzle=swizzle,
    )


def _columns(box: Im2col) -> tuple[Columns, tuple[int, ...]]:
    """The tile of one copy, and the steps between pixels."""
    tile = Columns(box.lower, box.upper, box.channels, box.pixels)
    return tile, (1, *box.steps, 1)


def _short(memory: MemoryMap, index: Expr) -> Value:
    """The offset of a tap, as 16 bits."""
    value = number(memory, memory.exprs.evaluate(index, {}))
    return Value(memory.w.assign(f"trunc {value.typed} to i16"), s16)


def _corner(memory: MemoryMap, box: Box | Im2col) -> list[Value]:
    """The start of the tile in the tensor, innermost dim first."""
    return [number(memory, memory.exprs.evaluate(index, {})) for index in box.corner]


def _tile(memory: MemoryMap, plan: ComputePlan, address: Address) -> Value:
    """The start of the tile in shared memory."""
    memory.exprs.push()
    for dim in plan.stmt.dims:
        memory.exprs.variables[dim.var] = 0
    pointer = memory.pointer(address, {})
    memory.exprs.pop()
    return shared_address(memory.w, pointer)
