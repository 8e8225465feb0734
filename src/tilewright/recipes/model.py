"""The configs of a contraction on a CPU, from a model: no search.

What the model knows. One multiply-add instruction starts per cycle and takes about four, so a
register tile needs at least that many accumulators, and they must fit the registers beside the
vectors of B and a broadcast of A. Per step, a tile of R rows and V vectors loads V vectors and R
broadcasts, also those within a multiply-add; as many loads start in a cycle as multiply-adds. Rows
at a distance of a power of two share sets of the L1 cache, so that more rows than it has ways evict
each other. Across tiles, what the inner loops sweep should stay in L2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.machines.rates import Core
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.contraction_shape import Loaded, Shape, rows_of

# Multiply-adds that must be under way: four cycles until a result can be added to, two started per
# cycle on some processors, and some more to bridge loads that miss L1.
UNDER_WAY = 10
# Blocks of A that the last cache has room for: it holds more than A, and for more than one core.
_BLOCKS = 8
# Loads that a vector of B counts for, which seldom lies in the first cache.
_VECTOR_OF_B = 1.64
# Instructions in the unrolled body: more does not run faster, and takes longer to compile.
BODY = 72


@dataclass(frozen=True)
class Tile:
    """A register tile of so many ``vectors``, and of ``heights`` rows along dims. ``times``: how
    many rows of tiles there are along the first dim of rows, by what they cost."""

    heights: Mapping[str, int]
    vectors: int
    times: float

    @property
    def rows(self) -> int:
        """How many rows it has in all."""
        return math.prod(self.heights.values())


def register_tiles(
    shape: Shape, lanes: str, rows: str | None, vector: int, machine: Machine
) -> list[Tile]:
    """Register tiles, that of the least estimated cycles first.

    Estimates within a few percent count as equal; then the one with the least code comes first,
    since tiles that leave tails are written several times over.
    """
    count = math.ceil(shape.sizes[lanes] / vector)
    ranked: list[tuple[tuple[int, int, int], Tile]] = []
    for vectors in range(1, min(4, count) + 1):
        crowded = _panel(shape, lanes, vectors * vector) > 0.75 * machine.caches[1]
        for heights in _heights(shape, lanes, rows):
            tile = _tile(shape, rows, heights, vectors, machine)
            held = tile.rows + 1 + _shared(shape, lanes, rows, heights, machine)
            if held * vectors + 1 > machine.vector_registers * 15 // 16:
                continue
            if crowded:
                tile = replace(tile, times=1.3 * tile.times)
            cycles = tile.times * _sweep(count, tile, shape.loaded(lanes), machine.core)
            tails = [shape.sizes[d] % n > 0 for d, n in heights.items()] + [count % vectors > 0]
            code = 2 ** sum(tails) * tile.rows * vectors
            ranked.append(((round(math.log(cycles) / 0.04), code, -vectors), tile))
    ranked.sort(key=lambda pair: pair[0])
    return [tile for _, tile in ranked] or [_tile(shape, rows, {}, 1, machine)]


def _shared(
    shape: Shape, lanes: str, rows: str | None, heights: Mapping[str, int], machine: Machine
) -> int:
    """Vectors of A for each vector of lanes that taps share, and LLVM holds beside the sums, where
    parts of channels go one after the other."""
    if rows is None or shape.loaded(lanes) is not Loaded.SHARED or not shape.windowed:
        return 0
    tap = reduced_order(shape)[-1]
    step, distance = shape.a.get(rows), shape.a.get(tap)
    if not step or not distance or not _whole_lines(shape, machine):
        return 0
    if not parts_outside(shape, machine):
        return 0
    return (heights.get(rows, 1) - 1) * abs(step) // abs(distance) + shape.sizes[tap]


# The most rows of a register tile, and those of a second dim that are tried.
_MOST_ROWS, _SECOND = 14, (2, 3, 4)


def _heights(shape: Shape, lanes: str, rows: str | None) -> Iterator[dict[str, int]]:
    """Rows of register tiles by dim; where they are whole along ``rows``, perhaps along another dim
    of M, too."""
    if rows is None:
        yield {}
        return
    length = shape.sizes[rows]
    for height in range(1, min(length, _MOST_ROWS) + 1):
        yield {rows: height}
    other = second_of(shape, lanes, rows)
    if other is None or shape.loaded(lanes) is Loaded.SHARED:
        return
    # A tap of which a tile has a part would be tested at each position.
    numbers = (shape.sizes[other],) if shape.positions else _SECOND
    for number in numbers:
        if number <= shape.sizes[other] and number * length <= _MOST_ROWS:
            yield {other: number, rows: length}


def second_of(shape: Shape, lanes: str, rows: str) -> str | None:
    """The dim of M that a register tile may have rows along where it is whole along ``rows``: one
    that moves A as far at each step."""
    others = [d for d in shape.roles.m if d not in (lanes, rows) and shape.sizes[d] > 1]
    return next((d for d in reversed(others) if shape.a.get(d)), None)


def _tile(
    shape: Shape, rows: str | None, heights: Mapping[str, int], vectors: int, machine: Machine
) -> Tile:
    """The register tile with these ``heights``."""
    conflict = _rows_without_conflict(shape, rows, machine)
    length, height = (shape.sizes[rows], heights.get(rows, 1)) if rows is not None else (1, 1)
    times = _tile_cycles(length, height, conflict)
    for dim, number in heights.items():
        if dim != rows:
            times *= _tile_cycles(shape.sizes[dim], number, number) / shape.sizes[dim]
    return Tile(heights, vectors, times)


def tile_of(
    shape: Shape,
    lanes: str,
    rows: str | None,
    sizes: Mapping[str, int],
    vector: int,
    machine: Machine,
) -> Tile:
    """The register tile with these ``sizes``, whose rows are along ``rows`` and perhaps another
    dim."""
    heights = {dim: size for dim, size in sizes.items() if dim != lanes}
    return _tile(shape, rows, heights, math.ceil(sizes.get(lanes, 1) / vector), machine)


@dataclass(frozen=True)
class Estimate:
    """What a config is estimated to take on a processor: ``limits`` are the seconds that each of
    what limits it would take by itself. ``accumulators`` are the registers of its tile."""

    limits: Mapping[str, float]
    accumulators: int

    @property
    def seconds(self) -> float:
        """That of what takes the longest: the others go on meanwhile."""
        return max(self.limits.values())

    def before(self, other: Estimate) -> bool:
        """Whether it takes less time; where both wait for memory, whether the rest takes less."""
        times = [(e.seconds, sum(e.limits.values())) for e in (self, other)]
        return times[0] < times[1]

    @property
    def limit(self) -> str:
        """What takes the longest."""
        return max(self.limits, key=lambda name: self.limits[name])

    @property
    def details(self) -> dict[str, str]:
        """Cells of a table."""
        return {"accumulators": str(self.accumulators)}


def estimate(
    shape: Shape, tile: Tile, lanes: str, rows: str | None, vector: int, machine: Machine
) -> Estimate:
    """What all tiles of a contraction take, each of what limits them on all cores."""
    others = math.prod(shape.sizes[d] for d in shape.roles.kept if d not in (lanes, rows))
    steps = math.prod(shape.sizes[d] for d in shape.roles.k)
    core = machine.core
    seconds = tile.times * others * steps / (core.started * core.clock * machine.cores)
    limits = {"memory": (shape.bytes_a + shape.bytes_b + shape.bytes_c) / core.memory}
    for number, width in _widths(math.ceil(shape.sizes[lanes] / vector), tile.vectors):
        cycles = _tile_cycles_by_limit(width, tile.rows, shape.loaded(lanes))
        for name, cycle in zip(_LIMITS, cycles, strict=True):
            limits[name] = limits.get(name, 0.0) + number * cycle * seconds
    return Estimate(limits, tile.rows * tile.vectors)


def _panel(shape: Shape, lanes: str, width: int) -> float:
    """Bytes of B, of one of a batch, that a column of tiles reads again, which L2 should keep."""
    if lanes not in (*shape.roles.n, *shape.roles.batch):
        return 0.0
    products = math.prod(shape.sizes[d] for d in shape.roles.batch if d != lanes)
    return shape.bytes_b / products * min(1.0, width / shape.sizes[lanes])


def _tile_cycles(length: int, height: int, conflict: int) -> float:
    """Relative cost of covering ``length`` rows by tiles of ``height``."""
    full, rest = divmod(length, height)
    tiles = full + (max(rest, height / 2) / height if rest else 0)
    crowded = 1.5 if height > conflict else 1.0
    return tiles * crowded


def _sweep(count: int, tile: Tile, loaded: Loaded, core: Core) -> float:
    """Cycles of all tiles across ``count`` vectors, per row tile and step."""
    cycles = 0.0
    for number, width in _widths(count, tile.vectors):
        limits = _tile_cycles_by_limit(width, tile.rows, loaded)
        cycles += number * (max(limits) + core.exposed * limits[_LIMITS.index("loads")])
    return cycles


def _widths(count: int, vectors: int) -> list[tuple[int, int]]:
    """How many tiles have how many vectors."""
    full, rest = divmod(count, vectors)
    return [(number, width) for number, width in ((full, vectors), (1, rest)) if width]


# What limits a tile: see the module.
_LIMITS = ("multiply-adds", "latency", "loads")


def _tile_cycles_by_limit(width: int, height: int, loaded: Loaded) -> tuple[float, float, float]:
    """The cycles of one tile and step by each of `_LIMITS`, by itself; counted in multiply-adds
    that start."""
    loads = {Loaded.ONCE: height, Loaded.EACH: height * width, Loaded.SHARED: 0}[loaded]
    return height * width, UNDER_WAY, _VECTOR_OF_B * width + loads


def _rows_without_conflict(shape: Shape, rows: str | None, machine: Machine) -> int:
    """How many rows of A fit the ways of L1 when their distance is a multiple of its way size."""
    step = shape.a.get(rows) if rows is not None else None
    if not step:
        return 64
    way = machine.core.way
    return machine.core.ways * (way // math.gcd(step * 4, way))


def loop_order(
    shape: Shape, lanes: str, rows: str | None, tile: Mapping[str, int], machine: Machine
) -> tuple[str, ...]:
    """Loops over tiles, outermost first: whichever operand is read again from L2 or beyond costs
    least. The lanes' loop goes outside when sweeping all of B for every row tile is dearer."""
    r = shape.roles
    spatial = [d for d in r.m if d != lanes]
    columns = [d for d in r.n if d != lanes]
    if lanes in r.batch and shape.windowed:
        return (*(d for d in r.batch if d != lanes), *_order_of_parts(shape, lanes, machine))
    n_tiles = math.ceil(shape.sizes[lanes] / tile[lanes])
    m_tiles = math.prod(math.ceil(shape.sizes[d] / tile.get(d, 1)) for d in spatial)
    l2 = machine.caches[1]
    panel_b = shape.bytes_b / max(n_tiles, 1)
    sweep_b = shape.bytes_b * m_tiles * (1.0 if shape.bytes_b > l2 / 2 else 0.25)
    sweep_a = shape.bytes_a * n_tiles * (1.0 if shape.bytes_a + panel_b > l2 else 0.25)
    batch = [d for d in r.batch if d != lanes]
    if sweep_a + shape.bytes_b <= sweep_b + shape.bytes_a:
        return (*batch, lanes, *columns, *spatial)
    return (*batch, *spatial, *columns, lanes)


def _order_of_parts(shape: Shape, lanes: str, machine: Machine) -> Iterator[str]:
    """Loops over tiles where all factors have ``lanes``, as depthwise convolutions do."""
    moved = [d for d in shape.roles.m if d in shape.windowed]
    rest = [d for d in shape.roles.m if d not in shape.windowed]
    columns = [d for d in shape.roles.n if d != lanes]
    yield from rest
    inside = parts_outside(shape, machine)
    yield from (lanes, *columns, *moved) if inside else (*moved, *columns, lanes)


def parts_outside(shape: Shape, machine: Machine) -> bool:
    """Whether parts of channels go one after the other, where all factors have them: what a part of
    them reads, windows read again, and stays in L1. From memory lines have to come one after the
    other, unless all positions are reduced for each tap; from the last cache they need not."""
    moved = [d for d in shape.roles.m if d in shape.windowed]
    image = shape.bytes_a / math.prod(shape.sizes[d] for d in shape.roles.m if d not in moved)
    if shape.positions or image + shape.bytes_b <= machine.caches[1]:
        return True
    return _whole_lines(shape, machine) and shape.bytes_a <= machine.caches[-1] / _BLOCKS


def _whole_lines(shape: Shape, machine: Machine) -> bool:
    """Whether a vector of channels is a whole line: then a part of few vectors wastes none."""
    return machine.vector_bytes * shape.element_a >= machine.core.line * shape.element_c


def blocks(
    shape: Shape,
    rows: str | None,
    tall: int,
    order: Sequence[str],
    machine: Machine,
    room: float = 0,
) -> dict[str, int]:
    """The rows of C that are computed at a time, for all panels of B, in tiles of ``tall`` rows;
    none where all are.

    With the loop over panels outside, a panel is read for all rows of A. Where A is larger than
    ``room`` (a part of the last cache), it comes from beyond for each panel; of a block that is no
    larger, once.
    """
    kept = [d for d in (*shape.roles.m, *shape.roles.batch) if shape.sizes[d] > 1]
    taps = [d for d in shape.roles.k if d not in shape.channels]
    room = room or machine.caches[-1] / _BLOCKS
    if rows is None or kept != [rows] or taps or order[-1] != rows or shape.bytes_a <= room:
        return {}
    length = shape.sizes[rows]
    # As many for each core; what is left over is split by columns.
    count = -(-math.ceil(shape.bytes_a / room) // machine.cores) * machine.cores
    size = length // count // tall * tall
    return {rows: size} if size >= 4 * tall else {}


def reduction_steps(
    shape: Shape, group: int, k: str, lanes: str, tile: Tile, machine: Machine
) -> dict[str, int]:
    """How far the innermost reduced dim is unrolled."""
    dims = reduced_order(shape)
    if not dims:
        return {}
    inner = k or dims[-1]
    size = math.ceil(shape.sizes[inner] / group) * group
    tested = shape.tested.get(inner, frozenset()) if shape.positions else frozenset()
    if group == 1 and not tested <= {*tile.heights, lanes}:
        # Where its loop begins and ends depends on a loop around: only single steps are trimmed.
        return {inner: 1}
    wanted = max(1, min(8, BODY // (tile.rows * tile.vectors))) * group
    if shape.loaded(lanes) is Loaded.EACH and len(tile.heights) > 1:
        # LLVM holds each vector of A in a register for all steps and taps that read it, or spills.
        wanted = min(wanted, machine.vector_registers // 8 * group)
    # What a dot product reads of B is loaded before the loop over rows, if no loop over steps
    # stands between: more than there are registers is spilled.
    fit = group == 1 or size // group * tile.vectors <= machine.vector_registers
    # With taps around it, a short loop stays a loop: it keeps the blocks of unrolled taps apart,
    # whose equal loads LLVM would otherwise merge and spill.
    if size <= 2 * wanted and len(dims) == 1 and fit:
        return {inner: size}
    wanted = min(wanted, size)
    for step in range(wanted, 0, -group):
        if size % step == 0 and step * 2 > wanted:
            return {inner: step}
    return {inner: wanted}


def reduced_order(shape: Shape) -> tuple[str, ...]:
    """Loops over reduced dims: the one that is contiguous in A innermost."""
    dims = list(shape.roles.k)

    def distance(dim: str) -> int:
        step = shape.a.get(dim)
        return step if step is not None else 0

    channels = list(shape.channels)
    taps = [d for d in dims if d not in channels]
    if not channels:
        return tuple(taps)
    return (*taps, *sorted(channels, key=distance, reverse=True))


def default_configs(
    shape: Shape,
    machine: Machine,
    instruction: Instruction | None,
    lanes: str,
    vector: int,
    *,
    fuse: Sequence[tuple[str, str, str]] = (),
    split: Sequence[tuple[str, int]] = (),
    k: str = "",
    pack_b: bool = True,
    pack_a: bool = False,
) -> Iterator[tuple[ContractionConfig, Estimate]]:
    """Configs with what they are estimated to take, the best first; ``instruction`` is None where
    plain vector code runs."""
    rows = rows_of(shape, lanes)
    group = instruction.sizes.get("k", 1) if instruction is not None else 1
    for chosen in register_tiles(shape, lanes, rows, vector, machine):
        tile = {lanes: min(chosen.vectors * vector, shape.sizes[lanes])}
        tile = {**chosen.heights, **tile}
        order = loop_order(shape, lanes, rows, tile, machine)
        config = ContractionConfig(
            instruction=instruction.name if instruction is not None else "",
            lanes=lanes,
            tile=tile,
            order=order,
            step=reduction_steps(shape, group, k, lanes, chosen, machine),
            reduce_order=reduced_order(shape),
            k=k,
            fuse=tuple(fuse),
            split=tuple(split),
            pack_a=pack_a,
            pack_b=pack_b,
            block=blocks(shape, rows, chosen.rows, order, machine),
        )
        yield config, estimate(shape, chosen, lanes, rows, vector, machine)
