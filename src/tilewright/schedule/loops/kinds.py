"""How loops run: unrolled, parallel, in vector lanes, on an axis of the hierarchy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tilewright.ir.expr import Const, Expr, const, var
from tilewright.ir.printer import headline
from tilewright.ir.stmt import For, If, Kernel, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS, may_nest
from tilewright.ir.visit import substitute_stmt, variables, walk_stmts
from tilewright.schedule.loops.merge_loops import merged_loop
from tilewright.schedule.queries.dependence import conflict, conflict_text
from tilewright.schedule.queries.place import (
    Place,
    fresh,
    loops_named,
    rewrite_loops,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_loop, asks, positive, some
from tilewright.schedule.records.transform import transform

# Loops whose iterations run one after the other.
_IN_ORDER = (LoopKind.SERIAL, LoopKind.UNROLLED)

# Loops whose extent has to be known.
_CONSTANT = (LoopKind.UNROLLED, LoopKind.VECTOR, *THREADS)


@transform
@asks(loops=some(a_loop), items=positive)
def set_kind(
    kernel: Kernel, loops: str | Sequence[str], kind: LoopKind, *, items: int | None = None
) -> Kernel:
    """Changes how a loop runs, or several that are nested directly in one another.

        for mb in 2:
          for oh in 56: ...
    ->  set_kind(["mb", "oh"], LoopKind.PARALLEL)
        parallel for mb in 2:
          parallel for oh in 56: ...

    Where iterations no longer run in order, no two of them may touch the same element if one writes
    it. Unrolled loops, vector loops and those over work-items need a constant extent. The
    iterations of several parallel loops together are divided among the threads (with
    ``LoopKind.GRID``: each runs in a workgroup), so extents inside must not depend on the loops
    around.

    In a grid, ``items`` neighbours make a workgroup, all of them if there are no more; the last
    workgroup is guarded:

        for mb in 2:
          for x_o in 49: ... x_o ...
    ->  set_kind(["mb", "x_o"], LoopKind.GRID, items=64)
        grid for group in 2:
          workgroup for item in 64:
            if group*64 + item < 98: ... (group*64 + item) % 49 ...
    """
    names = (loops,) if isinstance(loops, str) else loops
    _check_nest(kernel, names)
    # Whether they may is asked of the loops as they are, of which more is known.
    changed = kernel
    for name in names:
        changed = with_kind(changed, name, kind)
    if items is None:
        return changed
    if kind is not LoopKind.GRID:
        raise refusal(
            f"items of {kind.value} loops", kernel, "run them as LoopKind.GRID, or without items"
        )
    return _on_items(changed, names, items)


def _check_nest(kernel: Kernel, loops: Sequence[str]) -> None:
    """Refuses loops that are not nested directly in one another, or depend on one another."""
    for outer, inner in pairwise(loops):
        for nest, _ in loops_named(kernel, outer):
            body = nest.body
            if not isinstance(body, For) or body.var.name != inner:
                raise refusal(
                    f"'{inner}' is not directly inside '{outer}'",
                    nest,
                    "reorder first, or choose one of them",
                )
            if nest.var in variables(body.extent):
                raise refusal(
                    f"the extent of '{inner}' depends on '{outer}'", body, "choose one of them"
                )


def _on_items(kernel: Kernel, loops: Sequence[str], items: int) -> Kernel:
    """The ``loops`` of a grid as one over workgroups of so many ``items``."""
    taken = taken_names(kernel)
    group, item, iteration = (fresh(name, taken) for name in ("group", "item", "iteration"))

    def change(loop: For, _: Place) -> Stmt:
        return _workgroups(merged_loop(loop, loops, iteration), items, (group, item))

    return rewrite_loops(kernel, loops[:1], change)


def _workgroups(loop: For, items: int, names: tuple[str, str]) -> Stmt:
    total = loop.extent
    whole = False
    if isinstance(total, Const):
        count = int(total.value)
        items = min(items, max(1, count))
        whole = count % items == 0
    group, item = var(names[0]), var(names[1])
    number: Expr = group * items + item
    body = substitute_stmt(loop.body, {loop.var: number})
    if not whole:
        body = If(number < total, body)
    inner = For(item, const(items), body, LoopKind.WORKGROUP)
    return For(group, (total + (items - 1)) // items, inner, LoopKind.GRID)


def with_kind(kernel: Kernel, name: str, kind: LoopKind) -> Kernel:
    """``kernel`` with loops of another kind, checked in the name of ``transform``."""

    def change(loop: For, place: Place) -> Stmt:
        _check(loop, place, kind)
        return replace(loop, kind=kind)

    return rewrite_loops(kernel, {name}, change)


def _check_nesting(loop: For, place: Place, kind: LoopKind) -> None:
    """Loops that start threads cannot run inside one instruction of another loop."""
    inside = [s for s in walk_stmts(loop.body) if isinstance(s, For)]
    wrong = [outer for outer in place.loops if not may_nest(kind, outer.kind)]
    wrong += [inner for inner in inside if not may_nest(inner.kind, kind)]
    if wrong:
        raise refusal(
            f"'{loop.var.name}' cannot be {kind.value} here",
            loop,
            "reorder the two loops, or change the kind of the other",
            why=f"it would be nested with `{headline(wrong[0])}`",
        )


def _check(loop: For, place: Place, kind: LoopKind) -> None:
    if kind in _CONSTANT and not isinstance(loop.extent, Const):
        raise refusal(
            f"the extent of '{loop.var.name}' is not constant",
            loop,
            "partition the loop that it depends on first",
            why="how often it is repeated, or how many lanes or work-items there are, has to be "
            "known",
        )
    _check_nesting(loop, place, kind)
    if kind in _IN_ORDER:
        return
    access = conflict(loop, place)
    if access is not None:
        raise refusal(
            f"the iterations of '{loop.var.name}' may write the same element",
            loop,
            "choose a loop over a dim of the output, or give each iteration its own buffer",
            why=conflict_text(access, loop.var),
        )
