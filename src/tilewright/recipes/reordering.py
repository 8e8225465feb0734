"""Elementwise ops on a CPU whose operands lie in another order than the result: transposes.

transposed (squares in the dims that are contiguous in the result and in the operand, which comes
into registers in the result's order) -> vectors (borders split off, and the rest lowered)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.buffer import Space
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Allocate, Compute, For, Kernel, View
from tilewright.ir.visit import variables, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.roles import extents, find_compute
from tilewright.schedule.loops import lower_computes
from tilewright.schedule.partition import partition
from tilewright.schedule.promote import promote
from tilewright.schedule.tensorize import tensorize
from tilewright.schedule.tile import tile


@dataclass(frozen=True)
class Run:
    """Neighbours in memory: ``dim`` steps by 1 for ``size`` elements at a time (0: all along)."""

    dim: str
    size: int


@dataclass(frozen=True)
class Transposition:
    """Which operands come in through transposes of ``size`` rows: those contiguous along ``along``,
    where the result is contiguous along ``across``."""

    operands: tuple[str, ...]
    across: str
    along: str
    size: int
    instructions: tuple[str, ...]
    blocked: str  # which of the two a layout cuts in blocks: "" for none

    @property
    def order(self) -> tuple[str, str]:
        """The loops over squares: inside, neighbours along one dim in blocks of the other, which
        follow on one another in memory."""
        both = (self.across, self.along)
        return both if self.blocked != self.along else (self.along, self.across)

    @property
    def block(self) -> int:
        """How far the inner loops over squares go: a few cache lines in as many rows, so that both
        sides use the pages that they open. 0 where blocks are neighbours anyway."""
        return 0 if self.blocked else 4 * self.size


def run_of(compute: Compute, view: View) -> Run | None:
    """The dim of ``compute`` along which neighbours in the memory behind ``view`` lie."""
    sizes = extents(compute)
    for block in view.buffer.layout.blocks:
        if block.stride != 1 or block.size == 1:
            continue
        index = view.index[block.dim]
        if not isinstance(index, Var) or sizes.get(index.name, 1) == 1:
            return None
        whole = block.size >= view.buffer.shape[block.dim]
        return Run(index.name, 0 if whole else block.size)
    return None


def memory_order(compute: Compute) -> list[str]:
    """The dims of ``compute`` as the result lies in memory, the longest steps first."""
    layout = compute.out.buffer.layout
    steps = dict.fromkeys((dim.var.name for dim in compute.dims), 0)
    for block in layout.blocks:
        if block.size > 1:
            for variable in variables(compute.out.index[block.dim]):
                if variable.name in steps:
                    steps[variable.name] = max(steps[variable.name], block.stride)
    return sorted(steps, key=lambda name: -steps[name])


def transposition(kernel: Kernel, root: str, machine: Machine) -> Transposition | None:
    """How the operands of ``root`` that lie in another order are transposed; None if none are."""
    compute = find_compute(kernel, root)
    allocated = {s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)}
    out = run_of(compute, compute.out)
    if out is None or compute.out.mask is not None or compute.combiner is not None:
        return None
    found: list[tuple[str, Run]] = []
    for operand in compute.operands:
        view = operand.view
        mine = run_of(compute, view)
        reads = frozenset[Var]().union(*(variables(i) for i in view.index))
        if view.buffer in allocated:
            return None
        if mine is None or mine.dim == out.dim or out.dim not in {v.name for v in reads}:
            continue
        found.append((operand.var.name, mine))
    along = {mine.dim for _, mine in found}
    if len(along) != 1:
        return None
    types = [o.var.type for o in compute.operands if o.var.name in {name for name, _ in found}]
    runs = [out.size, *(mine.size for _, mine in found)]
    for instruction in machine.transposes(types[0]):
        size = instruction.sizes["n"]
        if all(run % size == 0 for run in runs):
            names = tuple(f"transpose_{type_}x{size}" for type_ in types)
            operands = tuple(name for name, _ in found)
            other = along.pop()
            blocked = out.dim if out.size else other if any(mine.size for _, mine in found) else ""
            return Transposition(operands, out.dim, other, size, names, blocked)
    return None


def transposed(kernel: Kernel, root: str, plan: Transposition, machine: Machine) -> Kernel:
    """``root`` in squares, and operands transposed into registers first, by instructions.

    They take borders as they are, masked, so that nothing has to be split off yet.
    """
    compute = find_compute(kernel, root)
    others = [d for d in memory_order(compute) if d not in (plan.across, plan.along)]
    sizes = dict.fromkeys(others, 1)
    squares = dict.fromkeys(plan.order, plan.size)
    if plan.block:
        sizes |= dict.fromkeys(plan.order, plan.block)
        kernel = tile(kernel, root, sizes, [*others, *plan.order])
        kernel = tile(kernel, root, squares, plan.order)
    else:
        kernel = tile(kernel, root, sizes | squares, [*others, *plan.order])
    at = _innermost(kernel, root)
    for operand in plan.operands:
        kernel = promote(
            kernel,
            root,
            operand,
            at=at,
            by="dims",
            space=Space.PRIVATE,
            layout=[plan.along, (plan.across, plan.size)],
        )
    dims = {"m": plan.along, "n": plan.across}
    for operand, name in zip(plan.operands, plan.instructions, strict=True):
        kernel = tensorize(kernel, f"{operand}_pack", machine.instruction(name), dims)
    return kernel


def vectorized(kernel: Kernel, root: str, plan: Transposition) -> Kernel:
    """Borders are split off, and ``root`` becomes vectors along the result."""
    for loop in _loops_over(kernel, root):
        if any(isinstance(s, For) and s.var.name == loop for s in walk_stmts(kernel.body)):
            kernel = partition(kernel, loop)
    return lower_computes(
        kernel, [root], vector={root: plan.across}, lanes=plan.size, unroll=[plan.along]
    )


def _loops_over(kernel: Kernel, root: str) -> Sequence[str]:
    """The loops around ``root``, outermost first."""
    names: list[str] = []
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, For) and _holds(stmt, root) and stmt.var.name not in names:
            names.append(stmt.var.name)
    return names


def _innermost(kernel: Kernel, root: str) -> str | None:
    loops = _loops_over(kernel, root)
    return loops[-1] if loops else None


def _holds(loop: For, root: str) -> bool:
    return any(isinstance(s, Compute) and s.name == root for s in walk_stmts(loop))
