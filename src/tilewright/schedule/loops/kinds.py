"""How loops run: unrolled, parallel, in vector lanes, on an axis of the hierarchy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tilewright.errors import ScheduleError
from tilewright.ir.expr import Const
from tilewright.ir.printer import headline
from tilewright.ir.stmt import For, Kernel, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS, may_nest
from tilewright.ir.visit import variables, walk_stmts
from tilewright.schedule.queries.dependence import conflict, conflict_text
from tilewright.schedule.queries.place import Place, loops_named, rewrite_placed
from tilewright.schedule.records.asks import a_loop, asks
from tilewright.schedule.records.transform import transform

# Loops whose iterations run one after the other.
_IN_ORDER = (LoopKind.SERIAL, LoopKind.UNROLLED)

# Loops whose extent has to be known.
_CONSTANT = (LoopKind.UNROLLED, LoopKind.VECTOR, *THREADS)


@transform
@asks(loop=a_loop)
def set_kind(kernel: Kernel, loop: str, kind: LoopKind) -> Kernel:
    """Changes how a loop runs.

        for oh in 56: ...
    ->  set_kind("oh", LoopKind.PARALLEL)
        parallel for oh in 56: ...

    Where iterations no longer run in order, no two of them may touch the same element if one writes
    it. Unrolled loops, vector loops and those over work-items need a constant extent.
    """
    return with_kind(kernel, loop, kind, "set_kind")


@transform
@asks(loop=a_loop)
def unroll(kernel: Kernel, loop: str) -> Kernel:
    """Marks a loop of constant extent as unrolled.

        for kw in 3: ...
    ->  unroll("kw")
        unrolled for kw in 3: ...
    """
    return with_kind(kernel, loop, LoopKind.UNROLLED, "unroll")


@transform
@asks(loops=a_loop)
def parallelize(kernel: Kernel, loops: Sequence[str], kind: LoopKind = LoopKind.PARALLEL) -> Kernel:
    """Runs loops, nested directly in one another, on all threads, or another kind of worker.

        for mb in 2:
          for oh in 56: ...
    ->  parallelize(["mb", "oh"])
        parallel for mb in 2:
          parallel for oh in 56: ...

    The iterations of all of them together are divided among the threads (with ``LoopKind.GRID``:
    each runs in a workgroup), so extents inside must not depend on the loops around.
    """
    return parallel_loops(kernel, loops, kind, "parallelize")


def parallel_loops(kernel: Kernel, loops: Sequence[str], kind: LoopKind, transform: str) -> Kernel:
    """What `parallelize` makes, checked in the name of ``transform``, before it is simplified."""
    for outer, inner in pairwise(loops):
        for found, _ in loops_named(kernel, outer, transform):
            body = found.body
            if not isinstance(body, For) or body.var.name != inner:
                raise ScheduleError(
                    f"{transform}: '{inner}' is not directly inside '{outer}'",
                    where=headline(found),
                    cure="reorder first, or choose one of them",
                )
            if found.var in variables(body.extent):
                raise ScheduleError(
                    f"{transform}: the extent of '{inner}' depends on '{outer}'",
                    where=headline(body),
                    cure="choose one of them",
                )
    for name in loops:
        kernel = with_kind(kernel, name, kind, transform)
    return kernel


def with_kind(kernel: Kernel, name: str, kind: LoopKind, transform: str) -> Kernel:
    """``kernel`` with loops of another kind, checked in the name of ``transform``."""

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if not isinstance(stmt, For) or stmt.var.name != name:
            return None
        _check(stmt, place, kind, transform)
        return replace(stmt, kind=kind)

    return replace(kernel, body=rewrite_placed(kernel.body, Place(), change))


def _check_nesting(loop: For, place: Place, kind: LoopKind, transform: str) -> None:
    """Loops that start threads cannot run inside one instruction of another loop."""
    inside = [s for s in walk_stmts(loop.body) if isinstance(s, For)]
    wrong = [outer for outer in place.loops if not may_nest(kind, outer.kind)]
    wrong += [inner for inner in inside if not may_nest(inner.kind, kind)]
    if wrong:
        raise ScheduleError(
            f"{transform}: '{loop.var.name}' cannot be {kind.value} here",
            where=headline(loop),
            why=f"it would be nested with `{headline(wrong[0])}`",
            cure="reorder the two loops, or change the kind of the other",
        )


def _check(loop: For, place: Place, kind: LoopKind, transform: str) -> None:
    if kind in _CONSTANT and not isinstance(loop.extent, Const):
        raise ScheduleError(
            f"{transform}: the extent of '{loop.var.name}' is not constant",
            where=headline(loop),
            why="how often it is repeated, or how many lanes or work-items there are, has to be "
            "known",
            cure="partition the loop that it depends on first",
        )
    _check_nesting(loop, place, kind, transform)
    if kind in _IN_ORDER:
        return
    access = conflict(loop, place)
    if access is not None:
        raise ScheduleError(
            f"{transform}: the iterations of '{loop.var.name}' may write the same element",
            where=headline(loop),
            why=conflict_text(access, loop.var),
            cure="choose a loop over a dim of the output, or give each iteration its own buffer",
        )
