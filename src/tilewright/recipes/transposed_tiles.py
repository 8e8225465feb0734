"""Transposes on a CPU: elementwise ops whose operands lie in another order than the result, and
results of contractions that lie in another order than lanes make them, of which blocks lie in a
cache on their way to memory.

transposed (squares in the dims that are contiguous in the result and in the operand, which comes
into registers in the result's order) -> vectors (borders split off, and the rest lowered)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd, prod

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.facts.usual import usual
from tilewright.ir.buffer import Space
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Allocate, Compute, Kernel, Operand, View
from tilewright.ir.visit import variables, walk_stmts
from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.contraction_shape import Shape
from tilewright.recipes.roles import extents, find_compute
from tilewright.schedule.queries.place import holds_loop, loops_around
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule

# The dim along which the result is contiguous, and that of what is transposed.
Sides = tuple[str, str]

# Squares in a row of a block, if the cache keeps as many: as many rows go on as streams.
_SQUARES = 4
# Lines in a row of the blocks that use pages up: some hundred pages on each side, which is what a
# processor remembers.
_LINES = 16


def squares_of(s: KernelSchedule, root: str, sides: Sides, size: int, machine: Machine) -> None:
    """``root`` in squares of ``size``, in blocks of these, in an order that caches like; dims that
    are no side are outside."""
    for sizes, order in _levels(find_compute(s.kernel, root), sides, size, machine):
        s.tile(root, sizes, order)


def _levels(
    compute: Compute, sides: Sides, size: int, machine: Machine
) -> Iterator[tuple[dict[str, int], Sides]]:
    """Tiles, and how their loops nest, the outermost first."""
    across, along = sides
    line = max(size, machine.core.line // min(view.buffer.dtype.bytes for view in _views(compute)))
    if usual(compute.out.buffer.span_bytes) >= machine.caches[-1]:
        yield dict.fromkeys(sides, _LINES * line), sides
        block, order = dict.fromkeys(sides, line), sides
        inside = (along, across)
    else:
        sources = (o.view for o in compute.operands if strides(compute, o.view).get(along) == 1)
        read = _rows_kept(compute, sources, across, machine)
        stored = _rows_kept(compute, (compute.out,), along, machine)
        most = _SQUARES * size
        block = {across: max(line, min(most, read)), along: max(line, min(most, stored))}
        inside = order = (along, across) if stored < most and stored <= read else sides
    yield block, order
    if set(block.values()) != {size}:
        yield dict.fromkeys(sides, size), inside


def _views(compute: Compute) -> list[View]:
    return [compute.out, *(operand.view for operand in compute.operands)]


def _rows_kept(compute: Compute, views: Iterable[View], rows: str, machine: Machine) -> int:
    """How many of the ``rows`` of each view half of the first cache keeps a line of: the other half
    is for the other side."""
    distances = ((strides(compute, v).get(rows) or 1) * v.buffer.dtype.bytes for v in views)
    ways, way = machine.core.ways, machine.core.way
    return ways // 2 * (way // max((gcd(distance, way) for distance in distances), default=1))


@dataclass(frozen=True)
class Run:
    """Neighbours in memory: ``dim`` steps by 1 for ``size`` elements at a time (0: all along)."""

    dim: str
    size: int


@dataclass(frozen=True)
class Transposition:
    """Which operands come in through transposes of ``size`` rows: those contiguous along ``along``,
    where the result is contiguous along ``across``. Dims ``within`` go on inside of the operands'
    rows, so that a loop over them stays in the lines and pages that squares of some rows are in."""

    operands: Mapping[str, Instruction]  # what transposes each
    across: str
    along: str
    size: int
    blocked: str  # which of the two a layout cuts in blocks: "" for none
    within: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[str, str]:
        """The loops over squares where a layout cuts one in blocks: inside, neighbours along one
        dim in blocks of the other, which follow on one another in memory."""
        both = (self.across, self.along)
        return both if self.blocked != self.along else (self.along, self.across)


def run_of(compute: Compute, view: View, *, inside: bool = False) -> Run | None:
    """The dim of ``compute`` along which neighbours in the memory behind ``view`` lie; ``inside``:
    also where these are a part of them, which begins anywhere."""
    sizes = extents(compute)
    for block in view.buffer.layout.parts:
        if usual(block.stride) != 1 or usual(block.size) == 1:
            continue
        index = view.index[block.dim]
        whole = usual(block.size) >= usual(view.buffer.sizes[block.dim])
        if inside and whole and not isinstance(index, Var):
            steps = strides(compute, view)
            return next((Run(v.name, 0) for v in variables(index) if steps.get(v.name) == 1), None)
        if not isinstance(index, Var) or sizes.get(index.name, 1) == 1:
            return None
        return Run(index.name, 0 if whole else usual(block.size))
    return None


def memory_order(compute: Compute) -> list[str]:
    """The dims of ``compute`` as the result lies in memory, the longest steps first."""
    layout = compute.out.buffer.layout
    steps = dict.fromkeys((dim.var.name for dim in compute.dims), 0)
    for block in layout.parts:
        if usual(block.size) > 1:
            for variable in variables(compute.out.index[block.dim]):
                if variable.name in steps:
                    steps[variable.name] = max(steps[variable.name], usual(block.stride))
    return sorted(steps, key=lambda name: -steps[name])


def transposition(
    kernel: Kernel, root: str, machine: Machine, *, own: bool = False
) -> Transposition | None:
    """How the operands of ``root`` that lie in another order are transposed; None if none are.
    Those that the kernel makes itself have to be there, all of each: ``own`` says so."""
    compute = find_compute(kernel, root)
    allocated = {s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)}
    if not own and any(operand.view.buffer in allocated for operand in compute.operands):
        return None
    out = run_of(compute, compute.out, inside=own)
    if out is None or compute.out.mask is not None or compute.combiner is not None:
        return None
    moved: list[tuple[Operand, Run]] = []
    for operand in compute.operands:
        mine = run_of(compute, operand.view, inside=own)
        used = {v.name for v in index_variables(operand.view)}
        if mine is not None and mine.dim != out.dim and out.dim in used:
            moved.append((operand, mine))
    if len({mine.dim for _, mine in moved}) != 1:
        return None
    along = moved[0][1].dim
    by_size = [machine.transposes(operand.var.type) for operand, _ in moved]
    runs = [out.size, *(mine.size for _, mine in moved)]
    for size in sorted(set.intersection(*(set(by_size_) for by_size_ in by_size)), reverse=True):
        if all(run % size == 0 for run in runs):
            instructions = {o.var.name: n[size] for (o, _), n in zip(moved, by_size, strict=True)}
            blocked = out.dim if out.size else along if any(runs) else ""
            return Transposition(instructions, out.dim, along, size, blocked)
    return None


def transposed(s: KernelSchedule, root: str, plan: Transposition, machine: Machine) -> None:
    """``root`` in squares, and operands transposed into registers first, by instructions.

    They take borders as they are, masked, so that nothing has to be split off yet.
    """
    compute = find_compute(s.kernel, root)
    others = [d for d in memory_order(compute) if d not in (plan.across, plan.along)]
    if plan.blocked:
        sizes = dict.fromkeys(others, 1) | dict.fromkeys(plan.order, plan.size)
        outside = [dim for dim in others if dim not in plan.within]
        inside = [*plan.within, plan.along] if plan.within else []
        order = [*outside, *(name for name in plan.order if name not in inside), *inside]
        s.tile(root, sizes, order)
    else:
        if others:
            s.tile(root, dict.fromkeys(others, 1), others)
        squares_of(s, root, (plan.across, plan.along), plan.size, machine)
    operands_transposed(s, root, plan)


def operands_transposed(s: KernelSchedule, root: str, plan: Transposition) -> None:
    """The operands of ``root``, a square, transposed into registers before it."""
    dims = {"m": plan.along, "n": plan.across}
    for operand, instruction in plan.operands.items():
        copy, _ = s.stage(
            root,
            operand,
            at=root,
            shape="dims",
            space=Space.PRIVATE,
            layout=[plan.along, (plan.across, plan.size)],
        )
        s.tensorize(copy, instruction, dims)


def vectorized(s: KernelSchedule, root: str, plan: Transposition) -> None:
    """Borders are split off, and ``root`` becomes vectors along the result."""
    for loop in dict.fromkeys(nest.var.name for nest in loops_around(s.kernel, root)):
        if holds_loop(s.kernel.body, loop):
            s.partition(loop)
    s.lower_computes([root], vector={root: plan.across}, lanes=plan.size, unroll=[plan.along])


# The share of the first cache that a block has, and of the squares that its results fill.
_SHARE, _FILLED = 1 / 8, 0.85
# Products that make a result, up to which how it is stored takes time that can be told.
_DEEPEST = 512


def run_across(shape: Shape, lanes: str) -> str | None:
    """The dim along which results are neighbours in memory, where that is not ``lanes``."""
    if shape.c.get(lanes) == 1:
        return None
    return next((d for d in shape.roles.kept if shape.c.get(d) == 1 and shape.sizes[d] > 1), None)


def results_transposed(
    config: ContractionConfig, shape: Shape, total: DType, machine: Machine
) -> ContractionConfig | None:
    """``config`` with results that are transposed, block by block, as wide as a register tile; None
    where this is no faster, or cannot be."""
    across, squares = run_across(shape, config.lanes), machine.transposes(total)
    depth = prod(shape.sizes[dim] for dim in shape.roles.k)
    if across is None or not squares or config.block or depth > _DEEPEST:
        return None
    if config.order[-1] != config.lanes and not _evicts(config, shape, machine):
        return None
    length, side = shape.sizes[across], max(squares)
    width, columns = config.tile[config.lanes], shape.sizes[config.lanes]
    # Blocks are as large as one another: what they hand over is.
    width = width if columns % width == 0 else columns
    most = int(_SHARE * machine.caches[0]) // (width * total.bytes)
    fitting = [n for n in range(1, min(length, most) + 1) if length % n == 0]
    full = [n for n in fitting if n >= _FILLED * ceil(n / side) * side]
    if not full:
        return None
    sizes = {across: full[-1], config.lanes: width}
    return replace(config, transpose=True, block={dim: sizes.get(dim, 1) for dim in config.order})


def _evicts(config: ContractionConfig, shape: Shape, machine: Machine) -> bool:
    """Whether the lines that a register tile stores to share sets of a cache that are too small for
    them. Otherwise its neighbours, if they come next, complete them there."""
    apart = (shape.c.get(config.lanes) or 0) * shape.element_c
    way = machine.core.way
    return config.tile[config.lanes] * gcd(apart, way) >= machine.core.ways * way


def handed_over(s: KernelSchedule, order: Sequence[str]) -> str:
    """Has the result read a copy of the block's sums, in the ``order`` of its dims, and gives the
    compute that fills it."""
    sums = find_compute(s.kernel, MAIN).out.buffer
    operands = find_compute(s.kernel, RESULT).operands
    name = next(operand.var.name for operand in operands if operand.view.buffer is sums)
    layout = [(dim, None) for dim in order]
    staged = s.stage(RESULT, name, at=RESULT, shape="dims", space=Space.WORKGROUP, layout=layout)
    copy: str = staged["copy"]
    return copy


def planned(kernel: Kernel, machine: Machine, config: object) -> Transposition:
    """How the result is transposed. Raises `ScheduleError` where that makes no difference."""
    plan = transposition(kernel, RESULT, machine, own=True)
    if plan is None:
        raise ScheduleError(
            "transpose=True: the result has its neighbours along the lanes, or the machine does "
            "not transpose its type",
            where=f"config {config!r}",
            cure="leave transpose out",
        )
    return plan
