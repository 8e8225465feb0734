"""Kernels of elementwise computes, reductions and scans on a CPU: norms, softmax, sums, argmax.

prepared (operands named, cheap producers computed where they are read) -> shared (computes that
follow one another tile by tile in common loops, what they hand on in the tile) -> widened (what is
reduced along neighbours in memory, in several vectors of partial results) -> lowered -> parallel
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilewright.ir.buffer import Space
from tilewright.ir.computes import addressing, mentioned
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Allocate, Block, Compute, For, Kernel, View
from tilewright.ir.visit import variables, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ReductionConfig
from tilewright.recipes.nests import Nest, contiguous_level, nests
from tilewright.recipes.roles import extents
from tilewright.recipes.scheduled import ScheduledKernel
from tilewright.recipes.start import Start
from tilewright.recipes.workers import parallelize_outermost
from tilewright.schedule.loops import lower_computes
from tilewright.schedule.name_operands import name_operands
from tilewright.schedule.partition import partition
from tilewright.schedule.place import holds, views_of
from tilewright.schedule.runs import strides
from tilewright.schedule.share_loops import share_loops
from tilewright.schedule.unit import drop_unit_dims
from tilewright.schedule.widen import widen_reduction

# Bytes that one iteration keeps to itself: they lie on the stack of a thread.
_KEPT = 1 << 18


def matches(start: Start, machine: Machine) -> bool:
    """Whether the kernel is computes alone, of sizes that are numbers, at places that dims say."""
    kernel = start.kernel
    if machine.hierarchy is not None or kernel.scalars or start.structured:
        return False
    stmts = kernel.body.body if isinstance(kernel.body, Block) else (kernel.body,)
    if not all(isinstance(stmt, Allocate | Compute) for stmt in stmts):
        return False
    found = [stmt for stmt in stmts if isinstance(stmt, Compute)]
    names = {compute.name for compute in found}
    return len(names) == len(found) and all(map(_is_simple, found))


def _is_simple(compute: Compute) -> bool:
    if compute.instruction or compute.completion is not None or addressing(compute):
        return False
    return all(isinstance(dim.extent, Const) for dim in compute.dims)


def choose(kernel: Kernel, machine: Machine) -> ReductionConfig:
    """Vectors of the machine's size for the widest type, for those of 4 bytes if all are
    narrower, and enough of them to hide how long an operation takes."""
    widest = max((4, *(each.dtype.bytes for each in kernel.arrays if each.dtype.is_float)))
    return ReductionConfig(vector=max(1, machine.vector_bytes // widest))


def schedule(kernel: Kernel, machine: Machine, config: ReductionConfig) -> ScheduledKernel:
    """Carries ``config`` out."""
    result = ScheduledKernel(kernel)
    result.stage("naive", kernel)
    result.stage("prepared", name_operands(drop_unit_dims(kernel)))
    for number, nest in enumerate(nests(list(_computes(result.kernel))), 1):
        if nest.levels:
            result.stage(f"shared {number}", _shared(result.kernel, nest, config))
    for compute in _by_name(result.kernel):
        along = _reduced_run(compute, config.vector)
        if along is not None:
            wide = widen_reduction(result.kernel, compute.name, along, config.vector, config.copies)
            result.stage(f"widened {compute.name}", wide)
    result.stage("lowered", _lowered(result.kernel, config))
    result.stage("parallel", parallelize_outermost(result.kernel, machine))
    return result


def _computes(kernel: Kernel) -> Iterator[Compute]:
    return (stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Compute))


def _by_name(kernel: Kernel) -> list[Compute]:
    """The computes, of those by one name (a tile and a shorter one) the first."""
    found: dict[str, Compute] = {}
    for compute in _computes(kernel):
        found.setdefault(compute.name, compute)
    return list(found.values())


def _shared(kernel: Kernel, nest: Nest, config: ReductionConfig) -> Kernel:
    """The computes of ``nest`` tile by tile: a row at a time, or a block of columns where what is
    contiguous is shared."""
    sizes = [1] * len(nest.levels)
    along = contiguous_level(nest)
    if along is not None:
        sizes[along] = config.columns
    shared = share_loops(kernel, nest.dims, sizes, keep=_large(nest, sizes))
    for names, length, size in zip(nest.levels, nest.extents, sizes, strict=True):
        if length % size and length > size:
            # The last tile is shorter, and apart.
            shared = partition(shared, _loop_of(shared, nest.computes[0].name, names[0]))
    return shared


def _loop_of(kernel: Kernel, compute: str, dim: str) -> str:
    """The name of the loop over tiles of ``dim`` around ``compute``."""
    stmts = walk_stmts(kernel.body)
    found = [s.var.name for s in stmts if isinstance(s, For) and holds(s, compute)]
    return next(name for name in found if name.startswith(f"{dim}_o"))


def _large(nest: Nest, sizes: list[int]) -> list[str]:
    """The buffers whose tile is too large to be a thread's own."""
    found: list[str] = []
    for compute in nest.computes:
        for view in compute.outputs:
            left = view.buffer.bytes
            for length, size in zip(nest.extents, sizes, strict=True):
                left = left // length * min(size, length)
            if left > _KEPT:
                found.append(view.buffer.name)
    return found


def _contiguous(compute: Compute) -> str | None:
    """The dim of the results along which neighbours are neighbours in memory."""
    view = compute.outputs[0]
    steps = strides(compute, view)
    near = [d.var.name for d in compute.dims if steps[d.var.name] == 1 and not d.ordered]
    kept = [n for n in near if all(_keeps(compute, each, n) for each in compute.outputs)]
    return kept[0] if kept else None


def _keeps(compute: Compute, view: View, name: str) -> bool:
    return any(v.name == name for v in mentioned(compute, view))


def _reduced_run(compute: Compute, lanes: int) -> str | None:
    """The dim that ``compute`` reduces along neighbours in memory, at least a vector of them."""
    if compute.is_ordered or any(result.combiner is None for result in compute.results):
        return None
    if any(view.mask is not None for view in compute.outputs) or not compute.operands:
        return None
    kept = frozenset().union(*(mentioned(compute, view) for view in compute.outputs))
    sizes = extents(compute)
    largest = max((o.view for o in compute.operands), key=lambda view: view.buffer.bytes)
    steps = strides(compute, largest)
    for dim in compute.dims:
        name = dim.var.name
        if dim.var not in kept and steps[name] == 1 and sizes[name] >= lanes:
            return name
    return None


def _lowered(kernel: Kernel, config: ReductionConfig) -> Kernel:
    """All computes as loops, with lanes along what is contiguous in their results."""
    for compute in _by_name(kernel):
        kernel = lower_computes(
            kernel,
            [compute.name],
            vector=_contiguous(compute),
            lanes=config.vector,
            unroll=_unrolled(compute, config),
        )
    return kernel


def _unrolled(compute: Compute, config: ReductionConfig) -> list[str]:
    """The dims that index buffers so small that they are registers."""
    most = config.copies * config.vector
    small = [
        view
        for view in views_of(compute)
        if view.buffer.space is Space.PRIVATE and prod(view.buffer.shape) <= most
    ]
    used = {v for view in small for index in view.index for v in variables(index)}
    return [dim.var.name for dim in compute.dims if dim.var in used]
