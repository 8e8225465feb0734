"""Configs of a contraction whose tiles subgroups multiply as matrices.

A subgroup's tile of M by N takes M*N registers for its sums, and loads (M + N)*K elements from
shared memory for M*N*K products: it wants to be square, and as large as its lanes have registers.
Which of these tiles is the best `workgroup_cost` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir.stmt import Compute
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.mma import Mma, multiplies, rows_in_place
from tilewright.recipes.parts import COPY_UNIT, Order, Product, Reduction, Staging, Tile
from tilewright.recipes.roles import Roles, factor_type
from tilewright.schedule.queries.runs import strides

# Tiles of a workgroup along M and N, and how many subgroups have a part each.
_TILES, _SUBGROUPS = (256, 128, 64, 32), (4, 8)
# Tiles along N for instructions that take matrices from shared memory.
_COLUMNS = (256, 192, 160, 128, 64, 32)
# Registers of 4 bytes that a lane has for its sums, at most; and where it takes those of a subgroup
# that has tiles copied: no more fit with anything else.
_SUMS, _SUMS_TAKEN = 128, 192
# Bytes of the rows that a step shares, and that one work-item copies at a time.
ROW, COPIED = 64, 16
# Of a reduced dim, what is no padding: from here on, more does not matter.
_USED = 0.75


def matrix_configs(
    main: Compute,
    machine: Machine,
    sizes: Mapping[str, int],
    parts: Roles,
    rows: str,
    lanes: str,
) -> list[WorkgroupConfig]:
    """The configs that multiply matrices, with ``rows`` as M (there may be none: "") and ``lanes``
    as N; none where nothing does. They have one stage, and no slices."""
    products = _products(main, machine)
    if not (rows and products and parts.k) or lanes in parts.batch:
        return []
    k = reduced_dim(main, parts, sizes, products[0])
    dims = {"m": rows, "n": lanes, "k": k}
    instruction = _best(main, machine, products, dims)
    if not multiplies(main, Mma(instruction, dims, machine)):
        return []
    width = factor_type(main, main.operands[0]).bytes
    step = -(-min(ROW // width, sizes[k]) // instruction.sizes["k"]) * instruction.sizes["k"]
    # Fragments of B are loaded two at a time.
    least = {lanes: 2 * instruction.sizes["n"], rows: instruction.sizes["m"]}
    copied = COPIED // main.operands[0].var.type.bytes
    words = max(1, main.out.buffer.dtype.bytes // 4)
    return [
        _config(parts, Mma(instruction, dims, machine), (group, item), step, copied)
        for group, item in _tiles(sizes, least)
        if item[lanes] * item[rows] * words <= _SUMS * instruction.lanes
    ]


def warpgroup_configs(
    main: Compute,
    machine: Machine,
    sizes: Mapping[str, int],
    parts: Roles,
    rows: str,
    lanes: str,
) -> list[WorkgroupConfig]:
    """The same for instructions that take matrices from shared memory, of two subgroups with one or
    two products along M each; none where the result has no more than one. Where the machine copies
    whole tiles, also with that: whether an op's tiles are such, nobody has looked at."""
    a, b = (operand.var.type for operand in main.operands[:2])
    found = machine.products(main.out.buffer.dtype, a, b)
    products = {i.sizes["n"]: i for i in found if any(role.rows for role in i.operands)}
    if not (rows and products and parts.k) or lanes in parts.batch:
        return []
    first = next(iter(products.values()))
    m, k = first.sizes["m"], reduced_dim(main, parts, sizes, first)
    dims = {"m": rows, "n": lanes, "k": k}
    if sizes[rows] <= m or not multiplies(main, Mma(first, dims, machine)):
        return []
    # Rows of 128 bytes along the reduction, or as many as there are.
    lengths = [n // a.bytes for n in (32, 64, 128)]
    step = next((n for n in lengths if n >= sizes[k]), lengths[-1])
    fills = [("copy", COPIED // a.bytes, _SUMS, step)]
    if machine.tile_unit is not None:
        # Tiles that are copied ahead are those of steps, of which there are two then at least.
        alone = all(sizes[dim] == 1 for dim in parts.k if dim != k) and step >= sizes[k]
        halved = step // 2 if alone and step > lengths[0] else step
        fills.append((COPY_UNIT, 1, _SUMS_TAKEN, halved))
    return [
        _config(
            parts,
            Mma(products[n], dims, machine),
            ({lanes: n, rows: 2 * count * m}, {lanes: n, rows: count * m}),
            length,
            copied,
            fill,
        )
        for fill, copied, sums, length in fills
        for n in _lengths(sizes[lanes], _COLUMNS[-1], _COLUMNS)
        for count in (1, 2)
        if n in products and count * n * m <= sums * first.lanes and count * m < sizes[rows]
    ]


def _config(
    parts: Roles,
    mma: Mma,
    tiles: tuple[Mapping[str, int], Mapping[str, int]],
    step: int,
    copied: int,
    fill: str = "copy",
) -> WorkgroupConfig:
    """By ``tiles`` of workgroups and subgroups, and steps of so many elements of the dim that is
    added up; work-items copy so many at a time."""
    k = mma.dims["k"]
    return WorkgroupConfig(
        Product(mma.instruction.name, mma.dims["n"], k),
        Tile(*tiles),
        Reduction({k: step}, (*(d for d in parts.k if d != k), k)),
        Staging(fill=fill, vector=copied),
        Order((*parts.batch, *parts.m, *parts.n)),
    )


def _tiles(
    sizes: Mapping[str, int], least: Mapping[str, int]
) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """Tiles of workgroups and, of each, those of 4 and 8 subgroups, about square."""
    (first, second) = least
    for one in _lengths(sizes[first], least[first]):
        for other in _lengths(sizes[second], least[second]):
            group = {first: one, second: other}
            found: list[dict[str, int]] = []
            for subgroups in _SUBGROUPS:
                item = dict(group)
                for _ in range(subgroups.bit_length() - 1):
                    halved = [d for d in item if item[d] // 2 >= least[d]]
                    if halved:
                        longest = max(halved, key=lambda d: item[d])
                        item[longest] //= 2
                if item not in found:
                    found.append(item)
                    yield group, item


def _lengths(size: int, least: int, tiles: tuple[int, ...] = _TILES) -> list[int]:
    """The lengths of ``tiles`` along a dim of ``size``: up to the power of two that it fills to
    more than half, but no less than ``least``."""
    most = 1 << (size - 1).bit_length()
    return [n for n in tiles if least <= n <= most] or [max(least, most)]


def _products(main: Compute, machine: Machine) -> list[Instruction]:
    """The instructions by which a subgroup multiplies matrices of the op's types, the largest
    first."""
    a, b = (factor_type(main, operand) for operand in main.operands[:2])
    found = machine.products(main.out.buffer.dtype, a, b)
    assert machine.hierarchy is not None
    return [each for each in found if each.lanes == machine.hierarchy.subgroup > 1]


def _best(
    main: Compute, machine: Machine, products: list[Instruction], dims: Mapping[str, str]
) -> Instruction:
    """Of the largest ``products``, that which takes rows as they lie in memory."""
    largest = [each for each in products if each.flops == products[0].flops]
    return max(largest, key=lambda each: rows_in_place(main, Mma(each, dims, machine)))


def reduced_dim(
    main: Compute, parts: Roles, sizes: Mapping[str, int], instruction: Instruction
) -> str:
    """The reduced dim to add up: one that pads little, along which operands are contiguous."""
    steps = [strides(main, operand.view) for operand in main.operands[:2]]
    whole = instruction.sizes["k"]

    def worth(dim: str) -> tuple[float, int, int]:
        used = sizes[dim] / (-(-sizes[dim] // whole) * whole)
        return min(used, _USED), sum(each.get(dim) == 1 for each in steps), sizes[dim]

    return max(parts.k, key=worth)
