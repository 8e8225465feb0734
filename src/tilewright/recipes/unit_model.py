"""The configs of a contraction whose tiles a unit of the processor multiplies, from a model.

What the model knows. A product of tiles takes a cycle for each row of its sums, but no less than
ten (measured on Emerald Rapids; Intel's optimization manual says 16 for whole tiles). Tiles are
loaded two rows in a cycle from the first cache, and at some bytes a cycle from the second. Eight
tiles hold sums and factors, each of one shape in a whole function: so rows are cut in tiles as
equal as they can be, and columns in whole ones, with zeros in what is packed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.contraction_shape import Shape
from tilewright.recipes.model import Estimate, blocks, loop_order, reduced_order, second_of

# Tiles of the unit, and the most along one side; the least cycles of a product; rows of tiles that
# are loaded in a cycle; bytes in a cycle from the second cache; steps of the depth written out.
TILES, TILES_PER_SIDE, _LEAST_CYCLES, _ROWS_LOADED, _NEAR, _STEPS = 8, 4, 10, 2, 40, 4
# Numbers of rows along a second dim.
_SECOND = (1, 2, 3, 4)


def unrolled_steps(steps: int) -> int:
    """How many of the ``steps`` of a unit's product along its depth are written out: a divisor."""
    return next(n for n in range(_STEPS, 0, -1) if steps % n == 0)


def height(rows: int, most: int) -> int:
    """The rows of each tile, but the last, where ``rows`` are cut in tiles of ``most`` or fewer:
    as equal as they can be."""
    return -(-rows // -(-rows // most))


def _heights(rows: int, tall: int) -> list[int]:
    """The rows of all tiles, of ``tall`` ones, that ``rows`` are cut in."""
    full, rest = divmod(rows, tall)
    return [tall] * full + [rest] * (rest > 0)


@dataclass(frozen=True)
class _Tiles:
    """Rows of tiles along a dim of ``length``, ``size`` at a time: those of each full step
    (``step``) and of the last one (``last``), by their heights."""

    length: int
    size: int
    most: int

    @property
    def step(self) -> list[int]:
        return _heights(self.size, height(self.size, self.most))

    @property
    def last(self) -> list[int]:
        return _heights(self.length % self.size, height(self.size, self.most))

    @property
    def cycles(self) -> int:
        """Of the products of all rows with a tile of columns."""
        step, last = (sum(max(h, _LEAST_CYCLES) for h in part) for part in (self.step, self.last))
        return self.length // self.size * step + last

    def registers(self, others: int) -> int:
        """Tiles that hold ``others`` sums for each row of tiles, and factors."""
        sums = Counter(self.step) | Counter(self.last)
        return others * sums.total() + len(sums) + 1


def unit_configs(
    shape: Shape,
    machine: Machine,
    instruction: Instruction,
    lanes: str,
    rows: str,
    *,
    k: str,
    fuse: Sequence[tuple[str, str, str]],
    split: Sequence[tuple[str, int]],
    pack_a: bool,
) -> Iterator[tuple[ContractionConfig, Estimate]]:
    """The configs that multiply by the ``instruction`` of a unit that multiplies tiles, with
    ``rows`` as M, ``lanes`` as N, the best first."""
    depth = instruction.sizes["k"]
    steps = -(-shape.sizes[k] // depth)
    ranked: list[tuple[tuple[float, ...], ContractionConfig, Estimate]] = []
    for tile in unit_tiles(shape, instruction, lanes, rows):
        order, room = loop_order(shape, lanes, rows, tile, machine), machine.caches[1] / 2
        # Of large factors, a block of A stays in the second cache for all panels of B.
        panels = (*(dim for dim in order if dim not in (lanes, rows)), lanes, rows)
        block = blocks(shape, rows, tile.get(rows, 1), panels, machine, room)
        if shape.bytes_b <= room:
            block = {}
        # Rows of a result that no second cache holds are written one after the other.
        width = tile[lanes] if shape.bytes_c > machine.caches[1] else 0
        if shape.bytes_b <= room and 0 < width < shape.sizes[lanes]:
            order = (*(dim for dim in order if dim != lanes), lanes)
        config = ContractionConfig(
            instruction=instruction.name,
            lanes=lanes,
            tile=tile,
            order=panels if block else order,
            step={k: unrolled_steps(steps) * depth},
            reduce_order=(*(dim for dim in reduced_order(shape) if dim != k), k),
            k=k,
            fuse=tuple(fuse),
            split=tuple(split),
            pack_a=pack_a,
            pack_b=True,
            block=block,
        )
        estimate = unit_estimate(shape, machine, config, instruction, rows)
        # Within a few percent, the longest runs of such a result, and the least code: tails are
        # written out.
        by_core = {name: n for name, n in estimate.limits.items() if name != "memory"}
        tails = sum(shape.sizes[dim] % size > 0 for dim, size in tile.items())
        most, total = max(by_core.values()), sum(by_core.values())
        rank = (round(math.log(most) / 0.04), -width, tails, total)
        ranked.append((rank, config, estimate))
    for _, config, estimate in sorted(ranked, key=lambda entry: entry[0]):
        yield config, estimate


def unit_tiles(
    shape: Shape, instruction: Instruction, lanes: str, rows: str
) -> Iterator[dict[str, int]]:
    """What a unit may compute at a time: sums of it and factors fit its tiles."""
    length, most, side = shape.sizes[rows], instruction.sizes["m"], instruction.sizes["n"]
    other = second_of(shape, lanes, rows)
    for columns in range(1, 1 + min(TILES_PER_SIDE, -(-shape.sizes[lanes] // side))):
        across = {lanes: min(columns * side, shape.sizes[lanes])}
        for size in range(1, 1 + min(length, TILES_PER_SIDE * most)):
            # A row alone would lose its dim, and is no tile.
            alone = 1 in (size, length % size) and length > 1
            if not alone and _Tiles(length, size, most).registers(columns) <= TILES:
                yield {rows: size, **across}
        for number in _SECOND[1:] if other is not None and length <= most else ():
            if number <= shape.sizes[other or ""] and 3 + number * columns <= TILES:
                yield {other or "": number, rows: length, **across}


def unit_estimate(
    shape: Shape,
    machine: Machine,
    config: ContractionConfig,
    instruction: Instruction,
    rows: str,
) -> Estimate:
    """What ``config`` is estimated to take by the ``instruction`` of a unit."""
    core, sizes, lanes = machine.core, instruction.sizes, config.lanes
    tiles = _Tiles(shape.sizes[rows], config.tile.get(rows, 1), sizes["m"])
    columns, width = (-(-n // sizes["n"]) for n in (shape.sizes[lanes], config.tile.get(lanes, 1)))
    rest = [d for d in shape.roles.kept if d not in (rows, lanes)]
    others = math.prod(shape.sizes[d] for d in rest)
    height = math.prod(config.tile.get(d, 1) for d in rest)
    groups = math.prod(-(-shape.sizes[d] // config.tile.get(d, 1)) for d in (rows, *rest))
    depth = math.prod(
        -(-shape.sizes[d] // (sizes["k"] if d == config.k else 1)) for d in shape.roles.k
    )
    # Rows of tiles that are loaded of each factor, over all products.
    loaded_a = tiles.length * others * -(-columns // width) * depth
    loaded_b = sizes["m"] * columns * groups * depth
    # What taps side by side read of A is near. So is, from its second time on, a panel of the
    # factor that the innermost loop does not move, if the first cache holds it.
    taps = [shape.sizes[d] for d in reduced_order(shape) if d not in shape.channels]
    far_a, far_b = loaded_a / (taps[-1] if taps else 1), loaded_b
    room = 2 / 3 * machine.caches[0] / (depth * core.line)
    if config.order[-1:] == (lanes,):
        far_a *= tiles.size * height > room
    else:
        far_b *= width * sizes["m"] > room
    cycles = {
        "multiply-adds": tiles.cycles * others * columns * depth,
        "loads": (loaded_a + loaded_b) / _ROWS_LOADED,
        "second cache": (far_a + far_b) * core.line / _NEAR,
    }
    # A copy of A has zeros up to whole steps of the depth.
    filled = -(-shape.sizes[config.k] // sizes["k"]) * sizes["k"] / shape.sizes[config.k]
    near = core.near[filled * shape.bytes_a > machine.caches[1]]
    copied = (1 + filled) * shape.bytes_a / near if config.pack_a else 0.0
    limits = {name: n / (core.clock * machine.cores) + copied for name, n in cycles.items()}
    limits["memory"] = (shape.bytes_a + shape.bytes_b + shape.bytes_c) / core.memory
    return Estimate(limits, height * width * len(tiles.step))
