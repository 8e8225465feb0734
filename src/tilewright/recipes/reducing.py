"""Reductions on a CPU along the dim that is contiguous in memory: partial results in lanes.

tiled (one element of the result at a time) -> widened (vectors of partial results, and an
instruction that combines the lanes of the last one)
"""

from __future__ import annotations

from tilewright.ir.expr import Const, Var
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.ir.visit import variables, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.reordering import Run, memory_order, run_of
from tilewright.recipes.roles import find_compute
from tilewright.schedule.schedule import KernelSchedule


def reduced_run(kernel: Kernel, root: str, machine: Machine) -> tuple[str, str] | None:
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
        kept = {v.name for index in stmt.out.index for v in variables(index)}
        if view.mask is not None or run is None or run.dim in kept:
            continue
        if _length(stmt, run) >= machine.lanes(stmt.out.buffer.dtype):
            return stmt.name, run.dim
    return None


def _length(compute: Compute, run: Run) -> int:
    if run.size:
        return run.size
    extent = next(d.extent for d in compute.dims if d.var.name == run.dim)
    return int(extent.value) if isinstance(extent, Const) else 0


def point_by_point(s: KernelSchedule, root: str) -> None:
    """One element of the result at a time, with all that it needs inside."""
    order = memory_order(find_compute(s.kernel, root))
    s.tile_and_fuse(root, dict.fromkeys(order, 1), order)


def widened(s: KernelSchedule, where: tuple[str, str], machine: Machine, copies: int) -> None:
    """The reduction in ``copies`` vectors, the last step by an instruction if there is one."""
    name, dim = where
    compute = find_compute(s.kernel, name)
    dtype = compute.out.buffer.dtype
    parts = s.rfactor(name, dim, copies, lanes=machine.lanes(dtype), masked=True)
    across = find_compute(s.kernel, parts["combine"])
    assert across.combiner is not None
    instruction = machine.reduction(dtype, across.combiner)
    index = across.operands[0].view.index[-1]
    if instruction is None or not isinstance(index, Var):
        return
    s.tensorize(across.name, instruction, {"n": index.name})
