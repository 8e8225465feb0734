"""Configs of a contraction whose tiles subgroups multiply as matrices.

A subgroup's tile of M by N takes M*N registers for its sums, and loads (M + N)*K elements from
shared memory for M*N*K products: it wants to be square, and as large as its lanes have registers.
Which of these tiles is the best `workgroup_cost` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tilewright.ir.stmt import Compute, View
from tilewright.ir.visit import variables
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.mma import Mma, multiplies, rows_in_place
from tilewright.recipes.parts import COPY_UNIT, Order, Product, Reduction, Staging, Tile
from tilewright.recipes.roles import Roles, extents, factor_type, roles
from tilewright.schedule.queries.runs import runs_along, strides

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
    instructions = machine.products(main.out.buffer.dtype, a, b)
    products = {i.sizes["n"]: i for i in instructions if i.asynchronous}
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
    if machine.copies_tiles:
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
            items_tried: list[dict[str, int]] = []
            for subgroups in _SUBGROUPS:
                item = dict(group)
                for _ in range(subgroups.bit_length() - 1):
                    halved = [d for d in item if item[d] // 2 >= least[d]]
                    if halved:
                        longest = max(halved, key=lambda d: item[d])
                        item[longest] //= 2
                if item not in items_tried:
                    items_tried.append(item)
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
    instructions = machine.products(main.out.buffer.dtype, a, b)
    return [
        instruction
        for instruction in instructions
        if instruction.lanes == machine.hierarchy.subgroup > 1
    ]


def _best(
    main: Compute, machine: Machine, products: list[Instruction], dims: Mapping[str, str]
) -> Instruction:
    """Of the largest ``products``, that which takes rows as they lie in memory."""
    largest = [product for product in products if product.flops == products[0].flops]
    return max(
        largest, key=lambda instruction: rows_in_place(main, Mma(instruction, dims, machine))
    )


def reduced_dim(
    main: Compute, parts: Roles, sizes: Mapping[str, int], instruction: Instruction
) -> str:
    """The reduced dim to add up: one that pads little, of which a step has more than one product,
    along which operands are contiguous, or have runs, as in the blocks of a layout."""
    views, whole = [operand.view for operand in main.operands[:2]], instruction.sizes["k"]

    def worth(dim: str) -> tuple[float, bool, int, int]:
        used = sizes[dim] / (-(-sizes[dim] // whole) * whole)
        runs = sum(runs_along(main, view, dim, whole) for view in views)
        return min(used, _USED), sizes[dim] > whole, runs, sizes[dim]

    return max(parts.k, key=worth)


# Joined dims are worth their divisions where there is so much less to do.
_LESS = 0.9
# What a product costs more whose operands are copied one element at a time.
_SINGLY = 2


def fused_dims(main: Compute, machine: Machine) -> tuple[str, ...]:
    """The reduced dims of ``main``, as its op has them, to make one, outermost first; none where
    each by its own is as good, or no instruction on matrices multiplies the op's types."""
    a, b = (operand.var.type for operand in main.operands[:2])
    products = machine.products(main.out.buffer.dtype, a, b)
    whole = next((i.sizes["k"] for i in products if i.lanes > 1), 0)
    order = outermost_first(main)
    if not whole or len(order) < 2:
        return ()
    work = _Work(main, whole)
    alone = min(work.of((dim,)) for dim in order)
    # All of them, which parts of the reduction cut most evenly, or those that lie innermost in A.
    fused = (order[first:] for first in range(len(order) - 1))
    cost, _, best = min((work.of(dims), -len(dims), dims) for dims in fused)
    return best if cost <= _LESS * alone else ()


def outermost_first(main: Compute) -> tuple[str, ...]:
    """The reduced dims of ``main`` as A has them in memory."""
    steps = strides(main, main.operands[0].view)
    return tuple(sorted(roles(main).k, key=lambda dim: -(steps[dim] or 0)))


@dataclass(frozen=True)
class _Work:
    """Counts what ``main`` has to do, whose instruction adds up ``whole`` elements."""

    main: Compute
    whole: int

    def of(self, dims: tuple[str, ...]) -> int:
        """Products with those of the padding, if ``dims`` are one and fill whole steps; as if they
        were more where an operand has no runs to be copied at once."""
        sizes = extents(self.main)
        reduced = roles(self.main).k
        views = [operand.view for operand in self.main.operands[:2]]
        size = prod(sizes[d] for d in dims)
        row = ROW // min(view.buffer.dtype.bytes for view in views)
        step = -(-min(row, size) // self.whole) * self.whole
        products = prod(sizes[d] for d in reduced if d not in dims) * -(-size // step) * step
        runs = all(self._has_runs(view, dims) for view in views)
        return products if runs else products * _SINGLY

    def _has_runs(self, view: View, dims: tuple[str, ...]) -> bool:
        """Whether elements lie together along a dim that is kept, or along ``dims``, as many as are
        copied at once, and are there all or none."""
        sizes, steps = extents(self.main), strides(self.main, view)
        asked = set() if view.mask is None else {v.name for v in variables(view.mask)}
        count = COPIED // view.buffer.dtype.bytes
        kept = [d for d in roles(self.main).kept if steps[d] == 1 and d not in asked]
        if any(sizes[d] % count == 0 for d in kept):
            return True
        run = 1
        for dim in reversed(dims):
            if steps[dim] != run or dim in asked:
                break
            run *= sizes[dim]
        return run > 1 and run % count == 0
