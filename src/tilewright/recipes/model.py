"""The default config of a contraction on a CPU, from a model: no search.

What the model knows. One multiply-add instruction starts per cycle and takes about four, so a
register tile needs at least that many accumulators, and they must fit the registers beside the
vectors of B and a broadcast of A. Per step, a tile of R rows and V vectors loads V vectors and R
broadcasts. Rows at a distance of a power of two share sets of the L1 cache, so that more rows than
it has ways evict each other. Across tiles, what the inner loops sweep should stay in L2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir.stmt import Compute
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.roles import Roles, channels_of, extents, roles, strides

# Multiply-adds that must be under way: four cycles until a result can be added to, two started per
# cycle on some processors, and some more to bridge loads that miss L1.
UNDER_WAY = 10
L1_WAYS = 8
# Instructions in the unrolled body: more does not run faster, and takes longer to compile.
BODY = 72


@dataclass(frozen=True)
class Shape:
    """A contraction as the model sees it. ``channels`` are those of K that are no taps."""

    sizes: Mapping[str, int]
    roles: Roles
    channels: Sequence[str]
    a: Mapping[str, int | None]
    b: Mapping[str, int | None]
    c: Mapping[str, int | None]
    bytes_a: int
    bytes_b: int


def shape_of(compute: Compute, out: Compute) -> Shape:
    """The shape of the reduction ``compute`` whose result ``out`` (the epilogue) stores."""
    a, b = (operand.view for operand in compute.operands[:2])
    return Shape(
        extents(compute),
        roles(compute),
        channels_of(compute),
        strides(compute, a),
        strides(compute, b),
        strides(out, out.out),
        a.buffer.bytes,
        b.buffer.bytes,
    )


def lanes_of(shape: Shape, vector: int) -> str:
    """The dim across vector lanes: one along which A is one value (a broadcast) or contiguous, that
    fills the lanes, and along which C is contiguous."""
    best: tuple[tuple[int, float, int, int], str] | None = None
    for dim in shape.roles.kept:
        size = shape.sizes[dim]
        filled = round(size / (math.ceil(size / vector) * vector), 1)
        easy = shape.a.get(dim) in (0, 1)
        key = (int(easy), filled, int(shape.c.get(dim) == 1), int(dim in shape.roles.n))
        if best is None or key > best[0]:
            best = (key, dim)
    assert best is not None
    return best[1]


def register_tile(
    shape: Shape, lanes: str, rows: str | None, vector: int, machine: Machine
) -> tuple[int, int]:
    """Rows and vectors of the register tile: the one with the least estimated cycles.

    Estimates within a few percent count as equal; then the one with the least code wins, since
    tiles that leave tails are written several times over.
    """
    count = math.ceil(shape.sizes[lanes] / vector)
    length = shape.sizes[rows] if rows is not None else 1
    conflict = _rows_without_conflict(shape, rows)
    best: tuple[int, int, int] | None = None
    chosen = (1, 1)
    for vectors in range(1, min(4, count) + 1):
        for height in range(1, min(length, 14) + 1):
            if height * vectors + vectors + 1 > machine.vector_registers - 2:
                continue
            cycles = _tile_cycles(length, height, conflict) * _sweep(count, vectors, height)
            if _panel(shape, lanes, vectors * vector) > 0.75 * machine.caches[1]:
                cycles *= 1.3
            copies = (1 + (length % height > 0)) * (1 + (count % vectors > 0))
            key = (round(math.log(cycles) / 0.04), copies * height * vectors, -vectors)
            if best is None or key < best:
                best, chosen = key, (height, vectors)
    return chosen


def _panel(shape: Shape, lanes: str, width: int) -> float:
    """Bytes of B that a column of tiles reads again and again, which should stay in L2."""
    if lanes not in (*shape.roles.n, *shape.roles.batch):
        return 0.0
    return shape.bytes_b * min(1.0, width / shape.sizes[lanes])


def _tile_cycles(length: int, height: int, conflict: int) -> float:
    """Relative cost of covering ``length`` rows by tiles of ``height``."""
    full, rest = divmod(length, height)
    tiles = full + (max(rest, height / 2) / height if rest else 0)
    crowded = 1.5 if height > conflict else 1.0
    return tiles * crowded


def _sweep(count: int, vectors: int, height: int) -> float:
    """Cycles of all tiles across ``count`` vectors, per row tile and step."""
    cycles = 0.0
    full, rest = divmod(count, vectors)
    for number, width in ((full, vectors), (1, rest)):
        if width:
            accumulators = height * width
            loads = (width + height * (width > 1)) / 2 + 0.08 * width * 64 / 16
            cycles += number * max(accumulators, UNDER_WAY, loads)
    return cycles


def _rows_without_conflict(shape: Shape, rows: str | None) -> int:
    """How many rows of A fit the ways of L1 when their distance is a multiple of its way size."""
    step = shape.a.get(rows) if rows is not None else None
    if not step:
        return 64
    distance = step * 4 % 4096
    if distance == 0:
        return L1_WAYS
    return L1_WAYS * (4096 // math.gcd(distance, 4096))


def rows_of(shape: Shape, lanes: str) -> str | None:
    """The dim of C whose neighbours share B's vectors: the longest of M (or what else is kept)."""
    others = [d for d in shape.roles.m if d != lanes and shape.sizes[d] > 1]
    if not others:
        others = [d for d in (*shape.roles.n, *shape.roles.batch) if d != lanes]
        others = [d for d in others if shape.sizes[d] > 1]
        return max(others, key=lambda d: shape.sizes[d], default=None)
    # The innermost dim of A's positions, so that rows lie close together.
    return min(others, key=lambda d: (shape.a.get(d) or 2**40, -shape.sizes[d]))


def loop_order(
    shape: Shape, lanes: str, rows: str | None, tile: Mapping[str, int], machine: Machine
) -> tuple[str, ...]:
    """Loops over tiles, outermost first: whichever operand is read again from L2 or beyond costs
    least. The lanes' loop goes outside when sweeping all of B for every row tile is dearer."""
    r = shape.roles
    spatial = [d for d in r.m if d != lanes]
    columns = [d for d in r.n if d != lanes]
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


def reduction_steps(shape: Shape, group: int, k: str, accumulators: int) -> dict[str, int]:
    """How far the innermost reduced dim is unrolled."""
    dims = reduced_order(shape)
    if not dims:
        return {}
    inner = k or dims[-1]
    size = math.ceil(shape.sizes[inner] / group) * group
    wanted = max(1, min(8, BODY // max(accumulators, 1))) * group
    # With taps around it, a short loop stays a loop: it keeps the blocks of unrolled taps apart,
    # whose equal loads LLVM would otherwise merge and spill.
    if size <= 2 * wanted and len(dims) == 1:
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


def default_config(
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
) -> ContractionConfig:
    """The config that the model chooses; ``instruction`` is None where plain vector code runs."""
    rows = rows_of(shape, lanes)
    height, vectors = register_tile(shape, lanes, rows, vector, machine)
    tile = {lanes: min(vectors * vector, shape.sizes[lanes])}
    if rows is not None:
        tile = {rows: height, **tile}
    order = loop_order(shape, lanes, rows, tile, machine)
    group = instruction.sizes.get("k", 1) if instruction is not None else 1
    return ContractionConfig(
        instruction=instruction.name if instruction is not None else "",
        lanes=lanes,
        tile=tile,
        order=order,
        step=reduction_steps(shape, group, k, height * vectors),
        reduce_order=reduced_order(shape),
        k=k,
        fuse=tuple(fuse),
        split=tuple(split),
        pack_a=pack_a,
        pack_b=pack_b,
    )
