"""Copies of whole tiles between global and shared memory (TMA, sm_90 on).

One work-item starts a copy; the unit finds the tile by a map of the tensor, which is a parameter of
the kernel, and by where in the tensor it begins. What is outside of the tensor arrives as zero, and
is not stored.

Source: NVIDIA, PTX ISA, "cp.async.bulk.tensor".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.dtypes import s64
from tilewright.errors import CompilationError
from tilewright.facts.affine import affine
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Space
from tilewright.ir.expr import Const, conjuncts, const
from tilewright.ir.stmt import Compute, Dim, View
from tilewright.ir.visit import substitute, variables
from tilewright.machines.tensor_map import TensorMap, Tile, check_tensor_map
from tilewright.schedule.collapse import difference
from tilewright.simplify import simplify
from tilewright.targets.llvm.memory import Memory
from tilewright.targets.llvm.plan import Address, ComputePlan
from tilewright.targets.llvm.values import Value
from tilewright.targets.nvidia.assembler import number, one_lane, ptx, shared_address


def emit_load(memory: Memory, plan: ComputePlan) -> None:
    """``tile = tensor``, which tells the mbarrier of the plan its bytes."""
    (operand,) = plan.stmt.operands
    box = _box(plan.stmt, operand.view, plan.stmt.out)
    assert plan.signal is not None
    with one_lane(memory):
        bar = shared_address(memory.w, memory.pointer(plan.signal, {}))
        tile, tensor = _tile(memory, plan, plan.out), _map(memory, operand.view, box)
        corner = _corner(memory, plan.stmt, operand.view, box)
        places = ", ".join(f"${3 + i}" for i in range(len(corner)))
        text = (
            f"cp.async.bulk.tensor.{len(corner)}d.shared::cluster.global.tile."
            f"mbarrier::complete_tx::bytes [$0], [$1, {{{places}}}], [$2];"
        )
        ptx(memory.w, text, [tile, tensor, bar, *corner], "rlr" + "r" * len(corner))


def emit_store(memory: Memory, plan: ComputePlan) -> None:
    """``tensor = tile``, in the newest group of stores."""
    (operand,) = plan.stmt.operands
    box = _box(plan.stmt, plan.stmt.out, operand.view)
    with one_lane(memory):
        tile = _tile(memory, plan, plan.operands[0])
        tensor = _map(memory, plan.stmt.out, box)
        corner = _corner(memory, plan.stmt, plan.stmt.out, box)
        places = ", ".join(f"${2 + i}" for i in range(len(corner)))
        text = (
            f"cp.async.bulk.tensor.{len(corner)}d.global.shared::cta.tile.bulk_group "
            f"[$1, {{{places}}}], [$0];"
        )
        ptx(memory.w, text, [tile, tensor, *corner], "rl" + "r" * len(corner))


@dataclass(frozen=True)
class _Box:
    """A box of a tensor: the tensor's dims, innermost first, how many elements of each, and the
    bytes of the rows that the tile is swizzled in (0: it is not)."""

    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    swizzle: int


def _refusal(compute: Compute, what: str, why: str) -> CompilationError:
    return CompilationError(
        f"the copy {compute.name!r} is none of one box: {what}",
        why=why,
        cure="copy asynchronously by work-items (fill='async'), or in parts",
    )


def _box(compute: Compute, tensor: View, tile: View) -> _Box:
    """The box of ``tensor`` that is ``tile``. Raises `CompilationError` if it is none."""
    layout = tensor.buffer.layout
    steps = {b.dim: b.stride for b in layout.blocks}
    if len(steps) < len(layout.blocks) or layout.swizzle is not None or layout.offset:
        raise _refusal(
            compute, f"dims of {tensor.buffer.name!r} lie in blocks", "a map has strides only"
        )
    dims = tuple(sorted(range(len(tensor.buffer.shape)), key=lambda d: steps.get(d, 1)))
    sizes: list[int] = []
    order: list[Dim] = []
    for dim in dims:
        own = [d for d in compute.dims if d.var in variables(tensor.index[dim])]
        form = affine(tensor.index[dim])
        if len(own) > 1 or any(form.terms.get(d.var) != 1 for d in own):
            raise _refusal(
                compute, f"dim {dim} is read at {tensor.index[dim]!r}", "a box has one dim along it"
            )
        order += own
        extents = [d.extent for d in own]
        sizes.append(int(extents[0].value) if extents and isinstance(extents[0], Const) else 1)
    if set(order) != set(compute.dims):
        raise _refusal(compute, "a dim moves no address", "a box has each element once")
    _check_mask(compute, tensor)
    return _Box(dims, tuple(sizes), _check_tile(compute, tile, order))


def _check_mask(compute: Compute, tensor: View) -> None:
    """What is masked is outside of the tensor, and nothing else."""
    for condition in conjuncts(tensor.mask):
        form = difference(condition)
        inside = any(
            form in (affine(index), affine(index).scaled(-1).shifted(size - 1))
            for index, size in zip(tensor.index, tensor.buffer.shape, strict=True)
        )
        if form is None or not inside:
            raise _refusal(
                compute, f"it is masked by {condition!r}", "zeros arrive for what is outside only"
            )


def _check_tile(compute: Compute, tile: View, order: list[Dim]) -> int:
    """Whether the tile lies as the box arrives, innermost dim of ``order`` first; the bytes of
    swizzled rows."""
    buffer, facts = tile.buffer, Facts.empty()
    for dim in compute.dims:
        facts = facts.loop(dim.var, dim.extent)
    plain = replace(buffer.layout, swizzle=None)
    form = affine(simplify(plain.offset_of(tile.index), facts))
    expected = 1
    for dim in order:
        assert isinstance(dim.extent, Const)
        if dim.extent.value > 1 and form.terms.get(dim.var) != expected:
            raise _refusal(
                compute,
                f"{buffer.name!r} does not lie in the order of {[d.var.name for d in order]}",
                "a box arrives as it lies in the tensor, without gaps",
            )
        expected *= int(dim.extent.value)
    if buffer.space is not Space.WORKGROUP:
        raise _refusal(compute, f"{buffer.name!r} is not shared", "tiles are in workgroup memory")
    swizzle, size = buffer.layout.swizzle, buffer.dtype.bytes
    if swizzle is None:
        return 0
    row = 16 << swizzle.bits
    if swizzle.run * size != 16 or swizzle.shift != 3 or row not in (32, 64, 128):
        raise _refusal(
            compute, f"{buffer.name!r} is swizzled by {swizzle}", "16 bytes of 8 rows change places"
        )
    return row


def _map(memory: Memory, tensor: View, box: _Box) -> Value:
    """Where the map is, which the kernel gets as a parameter."""
    buffer = tensor.buffer
    if buffer not in memory.arguments:
        raise CompilationError(
            f"{buffer.name!r} is no argument", cure="copy tiles of arguments and workspaces"
        )
    steps = {b.dim: b.stride for b in buffer.layout.blocks}
    strides = tuple(steps.get(dim, 1) * buffer.dtype.bytes for dim in box.dims[1:])
    found = TensorMap(
        memory.arguments.index(buffer),
        buffer.dtype,
        tuple(buffer.shape[dim] for dim in box.dims),
        strides,
        Tile(box.sizes),
        swizzle=box.swizzle,
    )
    check_tensor_map(found, buffer.bytes)
    if found not in memory.maps:
        memory.maps.append(found)
    name = f"%map{memory.maps.index(found)}"
    return Value(memory.w.assign(f"ptrtoint ptr {name} to i64"), s64)


def _corner(memory: Memory, compute: Compute, tensor: View, box: _Box) -> list[Value]:
    """Where the box begins, innermost dim first."""
    first = {dim.var: const(0) for dim in compute.dims}
    corner = []
    for dim in box.dims:
        index = substitute(tensor.index[dim], first)
        corner.append(number(memory, memory.exprs.evaluate(index, {})))
    return corner


def _tile(memory: Memory, plan: ComputePlan, address: Address) -> Value:
    """Where the tile begins in shared memory."""
    memory.exprs.push()
    for dim in plan.stmt.dims:
        memory.exprs.variables[dim.var] = 0
    pointer = memory.pointer(address, {})
    memory.exprs.pop()
    return shared_address(memory.w, pointer)
