"""How workgroups store tiles of the result: each work-item what it has, or all of them together,
neighbours in memory by neighbouring work-items, through memory that they share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tilewright.facts.affine import flattened
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Compute, Dim, Kernel, LoopKind
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Hierarchy, Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.mma import (
    Mma,
    finished,
    held_result,
    is_stored,
    mma_of,
    reads_rows,
    stored_as_matrices,
)
from tilewright.recipes.parts import Storing
from tilewright.recipes.roles import find_compute
from tilewright.recipes.shared_layout import (
    item_loops,
    item_numbers,
    longer,
    padding_between,
    values_of,
)
from tilewright.schedule.queries.place import excerpt
from tilewright.schedule.queries.runs import steps
from tilewright.schedule.schedule import KernelSchedule
from tilewright.schedule.staging.copiers import Threads
from tilewright.schedule.staging.work_items import run_of_item

# What `WorkgroupConfig.padding` calls the tiles of the result that go through shared memory.
# Where stores move so many times less through shared memory, the way is worth it.
_PAYS = 2
# Bytes that one lane stores at once, at most.
_WIDEST = 16


def staged_epilogue(
    s: KernelSchedule, machine: Machine, config: WorkgroupConfig, root: str, mma: Mma | None
) -> list[str]:
    """Tiles of the result, which ``root`` stores, in pieces of ``config.storing.tile``, each by way
    of shared memory: by subgroups that act as one, where there is an ``mma``; finished, if they
    store matrices and read none. Gives the compute that finishes them."""
    lanes = 0 if mma is None else mma.lanes
    in_pieces(s, root, config.storing.tile)
    finishing = _finished(s, root, mma)
    far, padding = _far(s.kernel, root, lanes), config.storing.padding
    compute = find_compute(s.kernel, root)
    s.stage_result(
        root,
        by=Threads(1 if compute.instruction else _at_once(compute, machine, config), lanes),
        row_padding={far: padding} if padding else {},
    )
    return finishing


def _finished(s: KernelSchedule, root: str, mma: Mma | None) -> list[str]:
    """What ``root`` stores is finished by the lanes that hold it, if they store it as matrices
    then; not where it reads other ones, as the lanes that store rows do that better."""
    return [] if mma is None or reads_rows(s.kernel, root, mma) else finished(s, root, mma)


def in_pieces(s: KernelSchedule, root: str, sizes: Mapping[str, int]) -> None:
    """The compute ``root`` in pieces of such ``sizes``, one after another."""
    here = {dim.var.name for dim in find_compute(s.kernel, root).dims}
    loops = s.tile(root, {d: size for d, size in sizes.items() if d in here})
    for dim in sizes:
        if dim in loops:
            # The accumulators are registers, which have no addresses.
            s.set_kind(loops[dim], LoopKind.UNROLLED)


def _at_once(store: Compute, machine: Machine, config: WorkgroupConfig) -> int:
    """Elements of the result that one lane stores, where all store rows together."""
    return min(config.staging.vector, machine.lanes(store.out.buffer.dtype))


def _far(kernel: Kernel, root: str, lanes: int) -> str:
    """The dim along which the result's rows lie farthest apart: its neighbours are stored at the
    same time, too, and should not be in one bank. With ``lanes``, these are inside an item."""
    compute = find_compute(kernel, root)
    items = [] if lanes else [Dim(loop.var, loop.extent) for loop in item_loops(kernel, root)]
    dims = [*items, *compute.dims]
    apart = steps(dims, compute.out)
    return max(dims, key=lambda dim: apart[dim.var]).var.name


def choose_epilogue_tile(
    tiles: Kernel, machine: Machine, config: WorkgroupConfig, root: str, taken: int
) -> WorkgroupConfig:
    """``config`` with tiles of the result through shared memory, if stores then move no more than
    half of what they move without.

    ``tiles`` is the kernel that has shared its operands, in ``taken`` bytes; its ``root`` stores
    the result. As much of a tile goes
    through at a time as takes half of that, so that about as many workgroups fit as before.
    """
    mma = mma_of(tiles, machine, config)
    alone = KernelSchedule(excerpt(tiles, root), machine)
    if mma is not None:
        held_result(alone, root, _held(alone.kernel, root)[0].name, mma)
    trial = alone.fork()
    _finished(trial, root, mma)
    held = _held(trial.kernel, root)
    ways = _Ways(alone, machine, config, root, mma)
    room = ways.hierarchy.shared - taken
    rows = next((d for d in config.tile.item if d != config.product.lanes), config.product.lanes)
    group = math.prod(config.tile.group.values())
    row = sum(b.dtype.bytes for b in held) * group // config.tile.item[rows]
    # Of each tile of an instruction, all lanes hold as much.
    least = 1 if mma is None else mma.instruction.sizes["m"]
    most = max(least, min(taken // 2, room) // row)
    pieces = [n for n in range(least, most + 1, least) if config.tile.item[rows] % n == 0]
    direct = ways.direct()
    if direct > 1 / _PAYS or room < least * row or not pieces:
        return config
    config = replace(config, storing=Storing({rows: max(pieces)}))
    staged = alone.fork()
    staged_epilogue(staged, machine, config, root, mma)
    store = find_compute(staged.kernel, root)
    run = run_of_item(store), config.staging.vector
    together = coalescing(staged.kernel, store, ways.hierarchy, run)
    if together < _PAYS * direct:
        return replace(config, storing=Storing())
    padding, needed = ways.padding(staged)
    if not padding or len(held) * needed > room:
        return config
    return replace(config, storing=replace(config.storing, padding=padding))


@dataclass(frozen=True)
class _Ways:
    """The ways of a tile of the result to memory: the kernel only has the compute ``root``."""

    schedule: KernelSchedule
    machine: Machine
    config: WorkgroupConfig
    root: str
    mma: Mma | None

    @property
    def hierarchy(self) -> Hierarchy:
        return self.machine.hierarchy

    @property
    def lanes(self) -> int:
        return 0 if self.mma is None else self.mma.lanes

    def direct(self) -> float:
        """What `coalescing` counts where each work-item stores what it has."""
        trial = self.schedule.fork()
        if self.mma:
            trial.on_lanes([self.root], self.lanes)
        store = find_compute(trial.kernel, self.root)
        return coalescing(trial.kernel, store, self.hierarchy, self._own_vector(store))

    def padding(self, staged: KernelSchedule) -> tuple[int, int]:
        """The padding of the tile in shared memory that makes the fewest conflicts, and the bytes
        that the tile takes with it."""
        (name, *_), store = staged_results(staged.kernel), find_compute(staged.kernel, self.root)
        tile = find_compute(staged.kernel, name).out
        names = [to_text(i) for i in tile.index]
        far_dim = _far(self.schedule.kernel, self.root, self.lanes)
        # Where work-items go through the tile by another dim, its outermost one.
        far = names.index(far_dim) if far_dim in names else 0
        read = next(o.view for o in store.operands if o.view.buffer is tile.buffer)
        way = self._by_holders(staged, name)
        accesses = [
            (name, find_compute(staged.kernel, name).out, way),
            (self.root, read, (run_of_item(store), _at_once(store, self.machine, self.config))),
        ]
        padding = padding_between(staged.kernel, accesses, far, self.hierarchy)
        layout = longer(tile.buffer.layout, far, padding)
        return padding, layout.extent * tile.buffer.dtype.bytes

    def _by_holders(self, staged: KernelSchedule, name: str) -> tuple[str, int] | Mma:
        """Has the compute ``name`` done by those that hold what it copies: each lane a vector, or
        all together matrices."""
        mma = self.mma
        if mma is not None:
            trial = staged.fork()
            stored_as_matrices(trial, [name], mma)
            if is_stored(trial.kernel, name, mma):
                return mma
            staged.on_lanes([name], mma.lanes)
        return self._own_vector(find_compute(staged.kernel, name))

    def _own_vector(self, compute: Compute) -> tuple[str, int]:
        """The dim along which a work-item has neighbours, and how many of them it stores at once:
        of a matrix that lanes hold together, those in a row."""
        if self.mma is not None:
            dim = compute.dims[-1].var.name
            return dim, _size(compute, dim)
        (buffer, *_) = (o.view.buffer for o in compute.operands if _is_own(o.view.buffer))
        return self.config.product.lanes, self.machine.lanes(buffer.dtype)


def _held(kernel: Kernel, root: str) -> list[Buffer]:
    """What ``root`` reads of what work-items hold."""
    buffers = [operand.view.buffer for operand in find_compute(kernel, root).operands]
    return [buffer for buffer in buffers if _is_own(buffer)]


def _is_own(buffer: Buffer) -> bool:
    return buffer.space is Space.PRIVATE


def staged_results(kernel: Kernel) -> list[str]:
    """The computes by which work-items put what they hold into shared memory, each for itself."""
    return [
        stmt.name
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Compute)
        and stmt.out.buffer.space is Space.WORKGROUP
        and not stmt.instruction
        and all(o.view.buffer.space is Space.PRIVATE for o in stmt.operands)
    ]


def coalescing(
    kernel: Kernel, store: Compute, hierarchy: Hierarchy, vector: tuple[str, int]
) -> float:
    """Which part of the segments of global memory that ``store`` moves is needed.

    Counted for the first subgroup of the work-items, at the first point of the dims; each stores a
    ``vector`` along a dim, of so many elements.
    """
    lanes, longest = vector
    size = store.out.buffer.dtype.bytes
    offset = flattened(store.out.buffer.layout.offset_of(store.out.index))
    wide = min(_size(store, lanes), longest, max(1, _WIDEST // size))
    items = item_numbers(item_loops(kernel, store.name), hierarchy.subgroup)
    places = {**items, var(lanes): np.arange(wide)}
    offsets = sum(factor * values_of(atom, places) for atom, factor in offset.terms.items())
    shape = np.broadcast_shapes(*(place.shape for place in places.values()))
    starts = np.broadcast_to((offsets + offset.constant) * size, shape).reshape(-1, wide).tolist()
    accesses = [list(access) for access in zip(*starts, strict=True)]
    if all(b - a == size for row in starts for a, b in pairwise(row)):
        # One access for all of a vector.
        accesses = [[start for row in starts for start in row]]
    moved = sum(len({start // hierarchy.segment for start in access}) for access in accesses)
    needed = sum(-(-len(set(access)) * size // hierarchy.segment) for access in accesses)
    return needed / moved


def _size(compute: Compute, name: str) -> int:
    """The extent of the dim called ``name``: 1 if there is none."""
    exprs = [d.extent for d in compute.dims if d.var.name == name]
    return int(exprs[0].value) if exprs and isinstance(exprs[0], Const) else 1
