"""Who of the workgroups and their work-items makes which tile of a contraction, and which slice of
its reduction; in which order, or in which shares, workgroups take the tiles."""

from __future__ import annotations

import math

from tilewright.ir.stmt import For, Kernel, LoopKind, Stmt
from tilewright.ir.visit import walk_stmts
from tilewright.layout.roles import INIT, MAIN, RESULT
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.roles import find_compute, has_compute, roles
from tilewright.recipes.slicing import counter
from tilewright.schedule.schedule import KernelSchedule

# What works on the tile of a work-item, before it is stored.
PRODUCERS = (INIT, MAIN)
# What the computes are called after that store and add up the parts of tiles that shares cut.
_STREAM = "stream"
STREAM_SUM = f"{_STREAM}_sum"


def sliced(s: KernelSchedule, config: WorkgroupConfig) -> None:
    """The reduction in slices of workgroups, and in parts of work-items."""
    for dim, parts in config.reduction.slices:
        s.rfactor(
            MAIN,
            dim,
            parts,
            counter(dim),
            storage=_storage(config),
            private=True,
            atomic=config.reduction.atomic,
        )
    for dim, parts in config.reduction.item_slices:
        s.rfactor(MAIN, dim, parts, _part(dim), private=True, storage=_storage(config))


def _part(dim: str) -> str:
    """The dim that counts the work-items' parts of ``dim``."""
    return f"{dim}_part"


def _storage(config: WorkgroupConfig) -> tuple[str, ...]:
    """How tiles lie in memory: rows of lanes."""
    return (*(d for d in config.order.loops if d != config.product.lanes), config.product.lanes)


def group_root(config: WorkgroupConfig) -> str:
    """The compute that stores what the workgroups make: the result, or slices of it."""
    slices = config.reduction.slices
    return f"{counter(slices[-1][0])}_store" if slices else RESULT


def item_root(config: WorkgroupConfig) -> str:
    """The compute that stores what work-items accumulate."""
    if not config.reduction.item_slices:
        return group_root(config)
    return f"{_part(config.reduction.item_slices[0][0])}_store"


def adders(config: WorkgroupConfig) -> tuple[str, ...]:
    """The computes that add up the work-items' parts."""
    return tuple(
        f"{_part(dim)}_{what}"
        for dim, _ in config.reduction.item_slices
        for what in ("init", "sum")
    )


def slice_adders(config: WorkgroupConfig) -> tuple[str, ...]:
    """The computes that add up the workgroups' slices, in a launch of their own."""
    return tuple(
        f"{counter(dim)}_{what}"
        for dim, _ in config.reduction.slices[:1]
        if not config.reduction.atomic
        for what in ("init", "sum")
    )


def streamers(kernel: Kernel) -> tuple[str, ...]:
    """The computes that store and add up parts of tiles, where shares cut some."""
    return tuple(n for n in (f"{_STREAM}_store", STREAM_SUM) if has_compute(kernel, n))


def zeros(config: WorkgroupConfig) -> tuple[str, ...]:
    """The computes that clear what slices are added to atomically."""
    reduction = config.reduction
    return tuple(f"{counter(dim)}_zero" for dim, _ in reduction.slices if reduction.atomic)


def mapped(s: KernelSchedule, config: WorkgroupConfig, items: LoopKind) -> None:
    """Tiles of C for workgroups, and in them for work-items (or subgroups, as ``items`` says):
    neighbours along the lanes."""
    numbers = {_part(dim): parts for dim, parts in config.reduction.item_slices}
    kept = [d for d in roles(find_compute(s.kernel, MAIN)).kept if d not in numbers]
    group = {d: config.tile.group.get(d, 1) for d in kept}
    # A dim that the workgroup's tile has once is gone in there.
    item = {d: config.tile.item.get(d, 1) for d, size in config.tile.group.items() if size > 1}
    first = [
        (LoopKind.GRID, {**_cluster_tile(config, group), **numbers}),
        *([(LoopKind.CLUSTER, _left(config, group))] if config.order.cluster else []),
        (items, {**item, **dict.fromkeys(numbers, 1)}),
    ]
    order, storage = (*numbers, *config.order.loops), _storage(config)
    s.distribute(item_root(config), first, order, producers=PRODUCERS, storage=storage)
    if items is LoopKind.SUBGROUP and not _has(s.kernel, items):
        # Lanes need a subgroup, if it is but one.
        s.enclose([*PRODUCERS, item_root(config)], items, "subgroup")
    if not numbers:
        return
    second = [(LoopKind.GRID, group), (items, _adding_item(config, item))]
    s.distribute(
        group_root(config),
        second,
        config.order.loops,
        producers=adders(config),
        storage=storage,
    )


def _cluster_tile(config: WorkgroupConfig, group: dict[str, int]) -> dict[str, int]:
    """The tile of a cluster's workgroups."""
    return {dim: size * config.order.cluster.get(dim, 1) for dim, size in group.items()}


def _left(config: WorkgroupConfig, group: dict[str, int]) -> dict[str, int]:
    """The tile of a workgroup in its cluster's: a dim that this has once is gone in there."""
    return {dim: group[dim] for dim, size in _cluster_tile(config, group).items() if size > 1}


def _has(kernel: Kernel, kind: LoopKind) -> bool:
    return any(isinstance(s, For) and s.kind is kind for s in walk_stmts(kernel.body))


def _adding_item(config: WorkgroupConfig, item: dict[str, int]) -> dict[str, int]:
    """The tile of C that a work-item adds up: smaller ones, so that all take part, where rows of
    the tile that it accumulates go round."""
    ((_, parts),) = config.reduction.item_slices
    others = [d for d in config.order.loops if d != config.product.lanes]
    rows = [d for d in others if item.get(d, 1) % parts == 0]
    return {**item, rows[-1]: item[rows[-1]] // parts} if rows else item


def added_up(s: KernelSchedule, config: WorkgroupConfig) -> None:
    """One nest of workgroups, which accumulate parts and add them up."""
    s.fuse_nests(item_root(config), group_root(config))


def in_shares(s: KernelSchedule, machine: Machine, config: WorkgroupConfig, steps: str) -> None:
    """The iterations of ``steps``, of all tiles as they are taken, in even shares."""
    vector = machine.lanes(find_compute(s.kernel, MAIN).out.buffer.dtype)
    _in_bands(s, config)
    s.stream_k(steps, config.order.stream_k, _STREAM, vector=vector)


def ordered(s: KernelSchedule, config: WorkgroupConfig) -> None:
    """The grid in bands of rows, and on persistent workgroups."""
    _in_bands(s, config)
    loops = _grid_loops(s.kernel)
    order = config.order
    if not order.persistent or not loops:
        return
    s.persist(loops, max(1, order.persistent // math.prod(order.cluster.values())))


def _in_bands(s: KernelSchedule, config: WorkgroupConfig) -> None:
    loops = _grid_loops(s.kernel)
    if config.order.raster == 1 or len(loops) < 2:
        return
    s.rasterize(loops[-2], loops[-1], config.order.raster)


def _grid_loops(kernel: Kernel) -> list[str]:
    """The names of the first nest of grid loops, outermost first."""
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, For) and stmt.kind is LoopKind.GRID:
            names: list[str] = []
            inner: Stmt = stmt
            while isinstance(inner, For) and inner.kind is LoopKind.GRID:
                names.append(inner.var.name)
                inner = inner.body
            return names
    return []


def cluster_loops(kernel: Kernel) -> list[str]:
    """The names of the loops over the workgroups of a cluster."""
    return [
        stmt.var.name
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, For) and stmt.kind is LoopKind.CLUSTER
    ]
