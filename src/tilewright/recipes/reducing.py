"""How reductions and scans go on a processor: partial results in lanes along the dim that is
contiguous in memory, minimum and maximum of floats by their bits, scans of several rows at once."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from math import prod

from tilewright.dtypes import tf32
from tilewright.ir.buffer import Space
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.ir.visit import walk, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ReductionConfig
from tilewright.recipes.nests import Nest
from tilewright.recipes.reducible import computes_in, kept_dims, reduces
from tilewright.recipes.roles import extents, find_compute, known_sizes
from tilewright.recipes.transposed_tiles import memory_order, run_of
from tilewright.schedule.queries.place import fresh, size_of, taken_names
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.reductions.carry import previous
from tilewright.schedule.reductions.divide_scan import step_of
from tilewright.schedule.schedule import KernelSchedule


def reduction_read(kernel: Kernel, root: str, machine: Machine) -> tuple[str, str] | None:
    """The compute that ``root`` reads, and the dim along which it should reduce in lanes: one whose
    elements are neighbours in memory, at least a vector of them. None if there is none."""
    wanted = {operand.view.buffer for operand in find_compute(kernel, root).operands}
    wanted &= {s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)}
    for stmt in walk_stmts(kernel.body):
        if not isinstance(stmt, Compute) or stmt.out.buffer not in wanted:
            continue
        if stmt.combiner not in ("add", "mul", "max", "min") or len(stmt.operands) != 1:
            continue
        view = stmt.operands[0].view
        run = run_of(stmt, view)
        kept = {v.name for v in index_variables(stmt.out)}
        if view.mask is not None or run is None or run.dim in kept:
            continue
        length = run.size or known_sizes(stmt).get(run.dim, 0)
        if length >= machine.lanes(stmt.out.buffer.dtype):
            return stmt.name, run.dim
    return None


def point_by_point(s: KernelSchedule, root: str) -> None:
    """One element of the result at a time, with all that it needs inside."""
    order = memory_order(find_compute(s.kernel, root))
    s.compute_at(root, dict.fromkeys(order, 1), order)


def widened(
    s: KernelSchedule, name: str, along: str, lanes: int, copies: int, machine: Machine
) -> None:
    """The compute ``name`` in ``copies`` vectors of partial results, whose ``lanes`` an instruction
    combines, if there is one."""
    parts = s.rfactor(name, along, copies, lanes=lanes, masked=True)
    across = find_compute(s.kernel, parts["combine"])
    combiner = across.results[0].combiner
    if len(across.outputs) > 1 or not isinstance(combiner, str):
        return
    instruction = machine.reduction(across.out.buffer.dtype, combiner)
    lane = across.operands[0].view.index[-1]
    if instruction is None or not isinstance(lane, Var) or instruction.sizes["n"] != lanes:
        return
    s.tensorize(across.name, instruction, {"n": lane.name})


def in_registers(s: KernelSchedule, compute: Compute, kept: list[str]) -> None:
    """One result of ``compute`` after another, in loops over the dims that are ``kept``: what is
    reduced for it is in registers until that is all of it, if it is a reduction in memory."""

    def steps() -> None:
        if kept:
            s.tile(compute.name, dict.fromkeys(kept, 1), kept)
        s.stage_result(compute.name, compute.name)

    if reduces(compute) and any(v.buffer.space is not Space.PRIVATE for v in compute.outputs):
        s.attempt(steps)


def flushed(s: KernelSchedule) -> None:
    """Exponentials of what is left of a maximum are 0 where they are no normal numbers, as of what
    a mask adds -100 to."""
    results = [r for compute in computes_in(s.kernel) for r in compute.results]
    greatest = {view.buffer for r in results if r.combiner == "max" for view in r.views}
    for compute in computes_in(s.kernel):
        held = {operand.var for operand in compute.operands if operand.view.buffer in greatest}
        if any(_is_left(node, held) for r in compute.results for v in r.values for node in walk(v)):
            s.attempt(partial(s.flush_powers, compute.name))


def _is_left(node: Expr, held: Collection[Expr]) -> bool:
    """Whether it is the exponential of what is left of one of ``held``."""
    difference = node.a if isinstance(node, Unary) and node.op == "exp" else None
    return isinstance(difference, Binary) and difference.op == "sub" and difference.b in held


# Points for each result from which on it pays: to make one of three extremes takes ten
# instructions, and each point saves two of five.
_WORTH = 8
# Of integers of more bytes, a vector has no maximum in one instruction.
_WIDEST = 4


def by_bits(s: KernelSchedule, name: str) -> None:
    """The minima or maxima of the compute ``name`` by their bits, if it has any and that takes
    less."""
    computes = [compute for compute in computes_in(s.kernel) if compute.name == name]
    # Of a tile and a shorter one, the former says what pays.
    if not all(map(_has_order, computes)) or not any(map(_is_known, computes)):
        return
    if max(map(_points, computes), default=0) >= _WORTH:
        s.compare_bits(name)
        s.mark(f"bits {name}")


def _has_order(compute: Compute) -> bool:
    """Whether it finds extremes of floats whose bits can be compared, at so many places."""
    if not reduces(compute) or len(compute.outputs) > 1 or not _is_cheap(compute.body):
        return False
    dtype = compute.out.buffer.dtype
    if compute.combiner not in ("max", "min") or not dtype.is_float or dtype is tf32:
        return False
    return dtype.bytes <= _WIDEST


def _is_known(compute: Compute) -> bool:
    """Whether it is known how many results there are."""
    kept = kept_dims(compute)
    return all(isinstance(d.extent, Const) for d in compute.dims if d.var.name in kept)


def _points(compute: Compute) -> int:
    """How many are reduced to a result."""
    kept = kept_dims(compute)
    return prod(size for name, size in extents(compute).items() if name not in kept)


def _is_cheap(value: Expr) -> bool:
    """Whether to use ``value`` three times is no work: it is read, with another sign or type."""
    if isinstance(value, Cast):
        return value.a.type.is_float and _is_cheap(value.a)
    if isinstance(value, Unary):
        return value.op in ("abs", "neg") and _is_cheap(value.a)
    return isinstance(value, Var)


# Points of a part of a scan, and parts, that are worth two passes more over what is scanned.
_SHORTEST = 32
_FEWEST = 4


def scanned(compute: Compute) -> str | None:
    """The dim along which ``compute`` scans neighbours and hands on the last result alone, where
    the rows that it has are a number."""
    ordered = [dim for dim in compute.dims if dim.ordered]
    if len(ordered) != 1:
        return None
    (along,) = (dim.var.name for dim in ordered)
    if abs(strides(compute, compute.outputs[0])[along] or 0) != 1 or not previous(compute, along):
        return None
    rows = (dim.extent for dim in compute.dims if not dim.ordered)
    return along if all(isinstance(row, Const) for row in rows) else None


def rows_together(nest: Nest, config: ReductionConfig, machine: Machine) -> int:
    """How many rows of the innermost level of ``nest`` are scanned at a time: as many as leave all
    threads enough; one where their lines would drive each other out of the cache."""
    rows = zip(nest.computes, nest.levels[nest.row], strict=True)
    scans = [(compute, row) for compute, row in rows if scanned(compute)]
    for compute, row in scans:
        step = strides(compute, compute.outputs[0])[row] or 0
        if step * compute.outputs[0].buffer.dtype.bytes % machine.core.way == 0:
            return 1
    return max(1, min(config.rows, nest.extents[nest.row] // config.parts)) if scans else 1


def carried(s: KernelSchedule, compute: Compute, along: str) -> None:
    """``compute`` with what it hands on in registers, all rows point by point."""
    s.carry(compute.name, along)
    loops = s.tile(compute.name, {along: 1})
    if along in loops:
        # The first point is another one, if it looks at what stands before it.
        s.partition(loops[along])


def divided_scan(s: KernelSchedule, compute: Compute, config: ReductionConfig) -> None:
    """The scan ``compute`` in parts, where rows alone are fewer than the work-items wanted; what
    the parts begin with is a scan, too, and goes in parts if there are many."""
    along = [dim for dim in compute.dims if dim.ordered]
    if len(along) != 1 or not all(isinstance(dim.extent, Const) for dim in compute.dims):
        return
    if step_of(compute, along[0].var.name) is None:
        return
    rows = prod(size_of(dim) for dim in compute.dims if not dim.ordered)
    size = size_of(along[0])
    parts = size // max(_SHORTEST, -(-size * rows // (config.parts * config.items)))
    if parts < _FEWEST:
        return
    before = {stmt.name for stmt in computes_in(s.kernel)}
    name = fresh("part", taken_names(s.kernel))
    s.divide_scan(compute.name, along[0].var.name, parts, name)
    s.mark(f"divided {compute.name}")
    for part in computes_in(s.kernel):
        if part.name not in before:
            divided_scan(s, part, config)
