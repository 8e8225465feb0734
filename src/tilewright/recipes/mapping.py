"""Who of the workgroups and their work-items makes which tile of a contraction, and which slice of
its reduction; in which order, or in which shares, workgroups take the tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.ir.stmt import For, Kernel, LoopKind
from tilewright.ir.visit import walk_stmts
from tilewright.layout.roles import INIT, MAIN, RESULT
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.roles import find_compute, named_after, roles
from tilewright.recipes.slicing import counter
from tilewright.schedule.queries.place import perfect_nest
from tilewright.schedule.schedule import KernelSchedule

# What works on the tile of a work-item, before it is stored.
PRODUCERS = (INIT, MAIN)


@dataclass(frozen=True)
class Stores:
    """The computes that store and add up what ``MAIN`` makes: ``group`` stores what workgroups do
    (the result, or slices of it), ``item`` what work-items do."""

    group: str = RESULT
    item: str = RESULT
    # What work-items' parts are added up by, and workgroups' slices in a launch of their own.
    adders: tuple[str, ...] = ()
    slice_adders: tuple[str, ...] = ()
    # What clears memory to which slices are added atomically.
    zeros: tuple[str, ...] = ()
    # What stores and adds up the parts of tiles that shares cut.
    streamers: tuple[str, ...] = ()


def sliced(s: KernelSchedule, config: WorkgroupConfig) -> Stores:
    """The reduction in slices of workgroups, and in parts of work-items."""
    stores = Stores()
    atomic = config.reduction.atomic
    for dim, parts in config.reduction.slices:
        factored = s.rfactor(
            MAIN, dim, parts, counter(dim), storage=_storage(config), private=True, atomic=atomic
        )
        group = factored["store"]
        if atomic:
            stores = Stores(group, group, zeros=(factored["begin"],))
        else:
            adders = stores.slice_adders or (factored["begin"], factored["combine"])
            stores = Stores(group, group, slice_adders=adders)
    for dim, parts in config.reduction.item_slices:
        factored = s.rfactor(MAIN, dim, parts, _part(dim), private=True, storage=_storage(config))
        adders = (factored["begin"], factored["combine"])
        stores = replace(stores, item=factored["store"], adders=adders)
    return stores


def _part(dim: str) -> str:
    """The dim that counts the work-items' parts of ``dim``."""
    return named_after(dim, "part")


def _storage(config: WorkgroupConfig) -> tuple[str, ...]:
    """How tiles lie in memory: rows of lanes."""
    return (*(d for d in config.order.loops if d != config.product.lanes), config.product.lanes)


def mapped(s: KernelSchedule, config: WorkgroupConfig, stores: Stores, items: LoopKind) -> None:
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
    s.compute_at(stores.item, first, order, producers=PRODUCERS, storage=storage)
    if items is LoopKind.SUBGROUP and not _has(s.kernel, items):
        # Lanes need a subgroup, if it is but one.
        s.enclose([*PRODUCERS, stores.item], items, "subgroup")
    if not numbers:
        return
    second = [(LoopKind.GRID, group), (items, _adding_item(config, item))]
    s.compute_at(stores.group, second, config.order.loops, producers=stores.adders, storage=storage)


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


def in_shares(
    s: KernelSchedule, machine: Machine, config: WorkgroupConfig, stores: Stores, steps: str
) -> Stores:
    """The iterations of ``steps``, of all tiles as they are taken, in even shares."""
    vector = machine.lanes(find_compute(s.kernel, MAIN).out.buffer.dtype)
    _take_tiles(s, config)
    streamed = s.stream_k(steps, config.order.stream_k, vector=vector)
    cut = "store" in streamed
    return replace(stores, streamers=(streamed["store"], streamed["combine"])) if cut else stores


def ordered(s: KernelSchedule, config: WorkgroupConfig) -> None:
    """The grid in bands of rows, and on persistent workgroups."""
    clusters = config.order.persistent // math.prod(config.order.cluster.values())
    _take_tiles(s, config, max(1, clusters) if config.order.persistent else None)


def _take_tiles(s: KernelSchedule, config: WorkgroupConfig, groups: int | None = None) -> None:
    loops = _grid_loops(s.kernel)
    rows = config.order.raster if len(loops) > 1 else 1
    if loops:
        s.order_workgroups(loops, rows=rows, workgroups=groups)


def _grid_loops(kernel: Kernel) -> list[str]:
    """The names of the first nest of grid loops, outermost first."""
    for stmt in walk_stmts(kernel.body):
        grid, _ = perfect_nest(stmt, (LoopKind.GRID,))
        if grid:
            return [loop.var.name for loop in grid]
    return []


def cluster_loops(kernel: Kernel) -> list[str]:
    """The names of the loops over the workgroups of a cluster."""
    return [
        stmt.var.name
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, For) and stmt.kind is LoopKind.CLUSTER
    ]
