"""Several products of which the next takes what the last one gives, on a CPU: a consumer's tile
computes its producers'.

naive -> tiled (a tile of the last result, and of what it is made of, at a time) -> tiles (what
recipes make of it as a kernel of one worker's; weights are packed once for all) -> lowered

What windows of neighbouring tiles have in common is computed for both. That pays where what one
product hands to the next would come back from beyond the cache of a worker, and takes longer than
its few multiply-adds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.computes import index_variables
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.chained import is_chain
from tilewright.recipes.config import TiledConfig
from tilewright.recipes.lowering import finish, lower_rest
from tilewright.recipes.recipe import Recipe
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import are_known, bytes_of, extents
from tilewright.recipes.start import Start
from tilewright.recipes.transposed_tiles import memory_order
from tilewright.schedule.queries.contractions import points
from tilewright.schedule.queries.flow import flow
from tilewright.schedule.queries.place import sequence
from tilewright.schedule.schedule import KernelSchedule

# Bytes of a worker's stack for what is handed on.
_ROOM = 1 << 20
# How many sizes of tiles are tried.
_TRIED = 2


class Tiled(Recipe[TiledConfig]):
    """Tiles of the last result on threads. ``inside`` schedules what is done to one."""

    name, config = "tiled", TiledConfig

    def __init__(self, inside: Callable[[Start, Machine], KernelSchedule]) -> None:
        self.inside = inside

    def matches(self, start: Start, machine: Machine) -> bool:
        return (
            not start.structured
            and machine.threaded
            and handed_on(start.kernel) > _room(machine)
            and bool(_dims(start.kernel))
        )

    def space(self, start: Start, machine: Machine) -> Sequence[TiledConfig]:
        """The largest tiles whose parts stay in the cache of a worker, some for all workers."""
        kernel, room = start.kernel, _room(machine)
        sizes = extents(computes_in(kernel)[-1])
        tiles = list(_tiles({name: sizes[name] for name in _dims(kernel)}))
        first = bisect_left(tiles, -room, key=lambda tile: -(_held(kernel, tile) or 0))
        tiled_configs = [
            TiledConfig(tile) for tile in tiles[first:] if _pieces(tile, sizes) >= machine.cores
        ]
        return tiled_configs[:_TRIED]

    def schedule(self, s: KernelSchedule, machine: Machine, config: TiledConfig) -> None:
        """Carries ``config`` out."""
        s.mark("naive")
        last = _in_loops(s, config.tile)
        s.mark("tiled")
        whole = {param.name: param.buffer.sizes for param in s.kernel.arrays}
        recipes = tuple(name for name in machine.recipes if name != self.name)
        worker = replace(machine, cores=1, recipes=recipes)

        def on_tile(kernel: Kernel) -> KernelSchedule:
            same = {p.name for p in kernel.arrays if whole.get(p.name) == p.buffer.sizes}
            constant = tuple(name for name in s.constant if name in same)
            return self.inside(Start(kernel, kernel, constant=constant), worker)

        s.on_tiles(last, on_tile)
        s.mark("tiles")
        lower_rest(s, machine=machine)
        s.mark("lowered")
        finish(s, machine)


def handed_on(kernel: Kernel) -> int:
    """Bytes that several products of ``kernel`` hand on; 0 where it is something else, or sizes are
    not known."""
    if kernel.scalars or not are_known(kernel) or is_chain(kernel):
        return 0
    allocated, items = flow(kernel)
    several = sum(bool(points(item)) for item in items) > 1
    plain = all(isinstance(item.stmt, Compute) for item in items)
    return sum(map(bytes_of, allocated)) if several and plain else 0


def in_tiles(kernel: Kernel) -> bool:
    """Whether ``kernel`` is several products, of whose last result a tile at a time can be made."""
    return handed_on(kernel) > 0 and bool(_dims(kernel))


def _dims(kernel: Kernel) -> list[str]:
    """The dims of the last compute along which there are tiles, as the result lies in memory,
    without the innermost, which vectors need."""
    last = computes_in(kernel)[-1]
    varying = {index_variable.name for index_variable in index_variables(last.out)}
    kept = [name for name in memory_order(last) if name in varying and extents(last)[name] > 1][:-1]
    return [name for name in kept if _held(kernel, {name: 1}) is not None]


def _room(machine: Machine) -> int:
    return min(machine.caches[1], _ROOM)


def _tiles(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Smaller and smaller tiles: first along the outermost dim, all of the others."""
    tile = dict(sizes)
    for name in sizes:
        while tile[name] > 1:
            tile[name] = -(-tile[name] // 2)
            yield dict(tile)


def _pieces(tile: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    return prod(-(-sizes[name] // size) for name, size in tile.items())


def _in_loops(s: KernelSchedule, tile: Mapping[str, int]) -> str:
    """All computes, a tile at a time; gives the last of them."""
    s.name_operands()
    *producers, last = (compute.name for compute in computes_in(s.kernel))
    s.compute_at(last, tile, producers=producers)
    if any(isinstance(stmt, Compute) for stmt in sequence(s.kernel.body)):
        raise ScheduleError(
            f"what '{last}' is made of is not made for its tiles alone",
            where=f"kernel {s.kernel.name}",
            cure="use the configs of its groups",
        )
    return last


def _held(kernel: Kernel, tile: Mapping[str, int]) -> int | None:
    """Bytes that are handed on in a tile; None where there are no such tiles."""
    s = KernelSchedule(kernel)
    if not s.attempt(partial(_in_loops, s, tile)):
        return None
    generator = (stmt.buffer for stmt in walk_stmts(s.kernel.body) if isinstance(stmt, Allocate))
    return sum(bytes_of(buffer) for buffer in generator if buffer.space is Space.PRIVATE)
