"""Sums of a few products of which nothing is shared: each work-item makes its results by itself.

So are depthwise convolutions, forward and by data, and stencils of one channel: what is read, other
products read as well only where taps overlap, and the cache has that. An item has neighbours along
what is contiguous, as many as one load moves (or one, where taps move along it: then the items of
a subgroup are the neighbours), and a few along a dim of taps, whose inputs it loads once.
"""

from __future__ import annotations

import math

from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import variables
from tilewright.layout.roles import INIT, MAIN, RESULT
from tilewright.machines.machine import Machine
from tilewright.recipes.config import StencilConfig
from tilewright.recipes.lowering import lower_rest, parallelize
from tilewright.recipes.preparing import pack_before
from tilewright.recipes.recipe import ContractionRecipe
from tilewright.recipes.reducible import contiguous_dim
from tilewright.recipes.reshaping import by_phase
from tilewright.recipes.roles import extents, find_compute, roles, taps_of
from tilewright.recipes.start import Start
from tilewright.recipes.transposed_tiles import memory_order
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule

# Products that are added up in one result, at most.
_MOST_PRODUCTS = 64
# Neighbours along a dim of taps, whose inputs overlap.
_ALONG = (4, 3, 2)
# Bytes that one load moves.
_WIDEST = 16


def default_config(kernel: Kernel, machine: Machine) -> StencilConfig | None:
    """The config for the naive ``kernel``, a contraction; None where its operands are worth
    sharing, or where strides decide which taps count (those that do not are left out by
    workgroups)."""
    main = find_compute(kernel, MAIN)
    if any(extents(main)[dim] > 1 for dim in roles(main).n):
        return None
    trial = KernelSchedule(kernel, machine)
    trial.drop_unit_dims()
    main, out = find_compute(trial.kernel, MAIN), find_compute(trial.kernel, RESULT)
    parts, sizes = roles(main), extents(main)
    lanes = contiguous_dim(out)
    few = math.prod(sizes[dim] for dim in parts.k) <= _MOST_PRODUCTS
    taps = set(parts.k) <= set(taps_of(main)) and not by_phase(trial)
    if not parts.m or not few or not taps or lanes not in sizes:
        return None
    moved = _windows(main)
    along = [dim for dim in memory_order(out) if dim in moved and dim != lanes][-1:]
    tiles = {dim: next((n for n in _ALONG if sizes[dim] % n == 0), 1) for dim in along}
    item = {dim: size for dim, size in tiles.items() if size > 1}
    return StencilConfig(lanes, 1 if lanes in moved else _vector(main, lanes), item)


def _along(main: Compute, config: StencilConfig) -> list[str]:
    """The reduced dims that are written out: taps along the item's dim, which read what the ones
    beside read; or the last one. Of all, there would be more loads under way than registers."""
    windows = _windows(main)
    windowed = set[str]().union(*(windows.get(dim, ()) for dim in config.item))
    return [dim for dim in roles(main).k if dim in windowed] or list(roles(main).k[-1:])


def _windows(main: Compute) -> dict[str, set[str]]:
    """By the dims of the result along which taps move: these taps."""
    taps, reduced_by = set(taps_of(main)), dict[str, set[str]]()
    for index in main.operands[0].view.index:
        names = {v.name for v in variables(index)}
        for dim in names - taps if names & taps else ():
            reduced_by.setdefault(dim, set()).update(names & taps)
    return reduced_by


def _vector(main: Compute, lanes: str) -> int:
    """Elements along ``lanes`` that a work-item takes: a load's, if they lie side by side, and
    there are no others at the end."""
    a = main.operands[0]
    if strides(main, a.view).get(lanes) != 1:
        return 1
    widest = max(operand.var.type.bytes for operand in main.operands[:2])
    most = max(1, _WIDEST // widest)
    return math.gcd(most, extents(main)[lanes])


class Stencil(ContractionRecipe[StencilConfig]):
    """Work-items that share nothing, for sums of a few products."""

    name, config = "stencil", StencilConfig

    def space(self, start: Start, machine: Machine) -> list[StencilConfig]:
        config = default_config(start.exact, machine)
        return [] if config is None else [config]

    def schedule(self, s: KernelSchedule, machine: Machine, config: StencilConfig) -> None:
        """Carries ``config`` out."""
        s.mark("naive")
        s.drop_unit_dims()
        s.mark("whole")
        _check(config, find_compute(s.kernel, MAIN))
        _packed(s, machine, config)
        out = find_compute(s.kernel, RESULT)
        order = memory_order(out)
        sizes = {**dict.fromkeys(order, 1), **config.item, config.lanes: config.vector}
        storage = (*(dim for dim in config.item if dim != config.lanes), config.lanes)
        s.compute_at(RESULT, sizes, order, storage=storage)
        s.mark("tiled")
        main = find_compute(s.kernel, MAIN)
        along = _along(main, config)
        outer = [dim for dim in roles(main).k if dim not in along]
        order = [*outer, *config.item, *along]
        for name in (INIT, MAIN, RESULT):
            dims = extents(find_compute(s.kernel, name))
            lanes = config.lanes if config.lanes in dims else None
            unroll = [d for d in (*along, *config.item) if d in dims]
            s.lower_computes([name], vector=lanes, lanes=config.vector, order=order, unroll=unroll)
        lower_rest(s)
        s.mark("lowered")
        parallelize(s, machine)
        s.mark("parallel")


def _check(config: StencilConfig, main: Compute) -> None:
    parts, sizes = roles(main), extents(main)
    for dim, size in {**config.item, config.lanes: config.vector}.items():
        if dim not in parts.kept or sizes[dim] % size:
            raise ScheduleError(
                f"{size} results along {dim!r}",
                where=f"config {config!r}",
                why=f"the result has { ({d: sizes[d] for d in parts.kept}) }, in whole tiles",
                cure="name its dims, and divisors of their sizes",
            )


def _packed(s: KernelSchedule, machine: Machine, config: StencilConfig) -> None:
    """B, where it may be packed beforehand: what an item loads at once lies side by side."""
    main = find_compute(s.kernel, MAIN)
    view = main.operands[1].view
    if view.buffer.name != s.prepacked:
        return
    parts = roles(main)
    used = [d for d, step in strides(main, view).items() if step != 0]
    last = [config.lanes] if config.lanes in used else []
    layout = [*parts.k, *(d for d in used if d not in (*parts.k, *last)), *last]
    pack_before(s, machine, [d for d in layout if d in used])
