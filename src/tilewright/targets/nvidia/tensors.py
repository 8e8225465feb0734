"""Copies of whole tiles between global and shared memory (TMA, sm_90 on).

One work-item starts a copy; the unit finds the tile by a map of the tensor, which is a parameter of
the kernel, and by where in the tensor it begins. What is outside of the tensor arrives as zero, and
is not stored. A tile may also be pixels as a tap of a convolution meets them (im2col).

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
    """``tile = tensor``, which tells the mbarrier of the plan its bytes: or, where a dim counts the
    workgroups of the cluster, the tile and the mbarrier of each, at the same place."""
    (operand,) = plan.stmt.operands
    mask = _receivers(plan)
    if mask:
        plan = _own_copy(plan)
    found = _found(plan, operand.view, plan.stmt.out)
    assert plan.signal is not None
    with one_lane(memory):
        bar = shared_address(memory.w, memory.pointer(plan.signal, {}))
        tile = _tile(memory, plan, plan.out)
        tensor = _map(memory, operand.view, found, _swizzled(plan.stmt.out))
        corner = _corner(memory, found)
        taps = [_short(memory, tap) for tap in found.taps] if isinstance(found, Im2col) else []
        places = [f"${3 + i}" for i in range(len(corner) + len(taps))]
        moved = f", {{{', '.join(places[len(corner) :])}}}" if taps else ""
        moved += f", {mask}" if mask else ""
        text = (
            f"cp.async.bulk.tensor.{len(corner)}d.shared::cluster.global."
            f"{'im2col' if taps else 'tile'}.mbarrier::complete_tx::bytes"
            f"{'.multicast::cluster' if mask else ''} "
            f"[$0], [$1, {{{', '.join(places[: len(corner)])}}}], [$2]{moved};"
        )
        letters = "rlr" + "r" * len(corner) + "h" * len(taps)
        ptx(memory.w, text, [tile, tensor, bar, *corner, *taps], letters)


def _receivers(plan: ComputePlan) -> int:
    """A bit for each workgroup of the cluster that a copy goes to; 0: to one's own alone."""
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
            why="a tile goes to one's own part, or to all parts of the cluster alike, with a "
            "signal to the mbarrier of each",
            cure="let one dim of the copy count the workgroups in the tile's index and in the "
            "mbarrier's, and in nothing else",
        )
    return (1 << plan.out.buffer.shape[0]) - 1


def _own_copy(plan: ComputePlan) -> ComputePlan:
    """What a copy to all workgroups of the cluster does in one's own."""
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
    box = _found(plan, plan.stmt.out, operand.view)
    if isinstance(box, Im2col):
        raise CompilationError(
            f"the copy {plan.stmt.name!r} stores pixels one behind the other",
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


def _found(plan: ComputePlan, tensor: View, tile: View) -> Box | Im2col:
    """What of ``tensor`` is ``tile``. Raises `CompilationError` if no copy moves that."""
    stmt = plan.stmt
    # A copy to the tensor goes through the same box as one from there.
    copy = replace(stmt, operands=(replace(stmt.operands[0], view=tensor),)).with_result(tile)
    found = tile_of(copy, plan.facts)
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
            cure="swizzle it as `machines.nvidia.warpgroups.swizzle_of` says",
        )
    return row


def _map(memory: MemoryMap, tensor: View, found: Box | Im2col, swizzle: int) -> Value:
    """Where the map is, which the kernel gets as a parameter."""
    buffer = tensor.buffer
    places = [place for place, each in enumerate(memory.arguments) if each is buffer]
    if not places:
        raise CompilationError(
            f"{buffer.name!r} is no argument", cure="copy tiles of arguments and workspaces"
        )
    (argument,) = places
    made = tensor_map(argument, buffer, found, swizzle)
    check_tensor_map(made, buffer.bytes)
    told = LaunchMap(argument, made.text)
    if told not in memory.maps:
        memory.maps.append(told)
    name = f"%map{memory.maps.index(told)}"
    return Value(memory.w.assign(f"ptrtoint ptr {name} to i64"), s64)


def tensor_map(argument: int, buffer: Buffer, found: Box | Im2col, swizzle: int = 0) -> TensorMap:
    """The map for copies as was ``found`` of ``buffer``, which is that argument; the tile is
    swizzled in rows of so many bytes."""
    # Of a dim of one element, any step will do.
    steps = {b.dim: b.stride for b in buffer.layout.blocks if b.size > 1}
    one = UNIT // buffer.dtype.bytes
    strides = [one if d is None else steps.get(d, one) for d in found.order[1:]]
    box, apart = (Tile(found.sizes), ()) if isinstance(found, Box) else _columns(found)
    return TensorMap(
        argument,
        buffer.dtype,
        tuple(1 if d is None else buffer.shape[d] for d in found.order),
        tuple(step * buffer.dtype.bytes for step in strides),
        box,
        apart,
        swizzle=swizzle,
    )


def _columns(found: Im2col) -> tuple[Columns, tuple[int, ...]]:
    """What one copy moves, and how far pixels are apart."""
    box = Columns(found.lower, found.upper, found.channels, found.pixels)
    return box, (1, *found.steps, 1)


def _short(memory: MemoryMap, index: Expr) -> Value:
    """How far away a tap is, as 16 bits."""
    value = number(memory, memory.exprs.evaluate(index, {}))
    return Value(memory.w.assign(f"trunc {value.typed} to i16"), s16)


def _corner(memory: MemoryMap, found: Box | Im2col) -> list[Value]:
    """Where it begins, innermost dim first."""
    return [number(memory, memory.exprs.evaluate(index, {})) for index in found.corner]


def _tile(memory: MemoryMap, plan: ComputePlan, address: Address) -> Value:
    """Where the tile begins in shared memory."""
    memory.exprs.push()
    for dim in plan.stmt.dims:
        memory.exprs.variables[dim.var] = 0
    pointer = memory.pointer(address, {})
    memory.exprs.pop()
    return shared_address(memory.w, pointer)
