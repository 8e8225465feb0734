"""The default config of a contraction whose tiles subgroups multiply as matrices.

What the model knows. A subgroup's tile of M by N takes M*N registers for its sums, and loads
(M + N)*K elements from shared memory for M*N*K products: it wants to be square, and as large as its
lanes have registers. A workgroup's tile does the same to global memory; but where the problem has
fewer such tiles than the machine has cores, smaller ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.stmt import Compute
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.matrices import Matrices, rows_in_place
from tilewright.recipes.roles import Roles, factor_type, strides

# The tile of a workgroup along M and N, at most and (where it takes that many to keep all cores
# busy) at least.
_LARGEST, _SMALLEST = 128, 64
# Subgroups along each axis of the tile.
_SUBGROUPS = 2
# Bytes of the rows that a step shares, and that one work-item copies at a time.
_ROW, _COPIED = 64, 16
# Of a reduced dim, what is no padding: from here on, more does not matter.
_USED = 0.75


def matrix_config(
    main: Compute, machine: Machine, sizes: Mapping[str, int], parts: Roles, lanes: str
) -> WorkgroupConfig | None:
    """The config that multiplies matrices, with ``lanes`` as N; None where nothing does. It has
    one stage, and no slices yet."""
    rows = next((d for d in (*parts.m, *parts.n) if d != lanes), "")
    products = _products(main, machine)
    if not (rows and products and parts.k) or lanes in parts.batch:
        return None
    k = _reduced(main, parts, sizes, products[0])
    instruction = _best(main, machine, products, {"m": rows, "n": lanes, "k": k})
    group = {
        lanes: _tile(sizes[lanes], 2 * instruction.sizes["n"]),
        rows: _tile(sizes[rows], instruction.sizes["m"]),
    }
    others = 1
    for dim in parts.kept:
        others *= 1 if dim in group else sizes[dim]
    while _tiles(sizes, group) * others < machine.cores and max(group.values()) > _SMALLEST:
        longest = max(group, key=lambda d: group[d])
        group[longest] //= 2
    least = {lanes: 2 * instruction.sizes["n"], rows: instruction.sizes["m"]}
    width = factor_type(main, main.operands[0]).bytes
    step = -(-min(_ROW // width, sizes[k]) // instruction.sizes["k"]) * instruction.sizes["k"]
    return WorkgroupConfig(
        instruction=instruction.name,
        lanes=lanes,
        group=group,
        item={d: max(least[d], size // _SUBGROUPS) for d, size in group.items()},
        order=(*parts.batch, *parts.m, *parts.n),
        step={k: step},
        reduce_order=(*(d for d in parts.k if d != k), k),
        vector=_COPIED // main.operands[0].var.type.bytes,
        padding={operand.var.name: _COPIED // width for operand in main.operands[:2]},
        k=k,
    )


def _products(main: Compute, machine: Machine) -> list[Instruction]:
    """The instructions that multiply matrices of the op's types, the largest first."""
    a, b = (factor_type(main, operand) for operand in main.operands[:2])
    found = machine.products(main.out.buffer.dtype, a, b)
    # Those of the machine's subgroups; what takes several of them is not modelled.
    most = machine.hierarchy.subgroup if machine.hierarchy is not None else 1
    return [each for each in found if 1 < each.lanes <= most]


def _best(
    main: Compute, machine: Machine, products: list[Instruction], dims: Mapping[str, str]
) -> Instruction:
    """Of the largest ``products``, that which takes rows as they lie in memory."""
    largest = [each for each in products if each.flops == products[0].flops]
    return max(largest, key=lambda each: rows_in_place(main, Matrices(each, dims, machine)))


def _reduced(
    main: Compute, parts: Roles, sizes: Mapping[str, int], instruction: Instruction
) -> str:
    """The reduced dim to add up: one that pads little, along which operands are contiguous."""
    steps = [strides(main, operand.view) for operand in main.operands[:2]]
    whole = instruction.sizes["k"]

    def worth(dim: str) -> tuple[float, int, int]:
        used = sizes[dim] / (-(-sizes[dim] // whole) * whole)
        return min(used, _USED), sum(each.get(dim) == 1 for each in steps), sizes[dim]

    return max(parts.k, key=worth)


def _tile(size: int, least: int) -> int:
    """The least power of two that holds ``size``, up to the largest tile."""
    return max(least, min(_LARGEST, 1 << (size - 1).bit_length()))


def _tiles(sizes: Mapping[str, int], group: Mapping[str, int]) -> int:
    count = 1
    for dim, size in group.items():
        count *= -(-sizes[dim] // size)
    return count
