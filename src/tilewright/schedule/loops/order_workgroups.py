"""In which order, and by how many workgroups, the tiles of a grid are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.ir.expr import Const, Expr, const, minimum, var
from tilewright.ir.stmt import Allocate, For, If, Kernel, Let, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import block, walk_stmts
from tilewright.schedule.loops.merge_loops import merged_loop
from tilewright.schedule.queries.place import (
    Place,
    fresh,
    rewrite_placed,
    sequence,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_loop, asks, positive, some
from tilewright.schedule.records.transform import transform

# The loops between the grid's and what each work-item runs.
_LEVELS = (LoopKind.CLUSTER, *THREADS)
_CONSTANT = "choose grid loops of constant extent"


@transform
@asks(loops=some(a_loop), rows=positive, workgroups=positive)
def order_workgroups(
    kernel: Kernel, loops: Sequence[str], *, rows: int = 1, workgroups: int | None = None
) -> Kernel:
    """Takes the tiles of grid loops, nested directly in one another, as one sequence: in bands of
    ``rows`` of the last two loops, column by column in each, and on ``workgroups`` in turns.

        grid for m_o in 8:
          grid for n_o in 4:
            alloc a_packed: f32[64] workgroup
            workgroup for t in 32: ...
    ->  order_workgroups(["m_o", "n_o"], rows=2)
        grid for tile in 32:
          let m_o = tile // 8 * 2 + tile % 2
          let n_o = tile % 8 // 2
          alloc a_packed: f32[64] workgroup
          workgroup for t in 32: ...
    ->  order_workgroups(["tile"], workgroups=12)
        grid for group in 12:
          alloc a_packed: f32[64] workgroup
          workgroup for t in 32:
            for turn in 3:
              if turn*12 + group < 32:
                let tile = turn*12 + group
                let m_o = ...
                ...

    Workgroups that run at the same time then work on a block of tiles that is about square, and
    find what they read in the cache that they share; the last band may have fewer rows. What a
    workgroup sets up once serves all its turns. Where its work-items share memory, each turn ends
    with a barrier, as `stage` makes it. With a loop over clusters inside, so many clusters take
    them.
    """
    body, taken = kernel.body, taken_names(kernel)
    if rows > 1:
        tile = fresh("tile", taken)
        body = _changed(body, loops[-2:][0], lambda loop: _in_bands(loop, loops[-1], rows, tile))
        loops, taken = [*loops[:-2], tile], taken | {tile}
    if workgroups is not None:
        one, group, turn = (fresh(name, taken) for name in ("tile", "group", "turn"))
        body = _changed(
            body,
            loops[0],
            lambda loop: _in_turns(merged_loop(loop, loops, one), workgroups, (group, turn)),
        )
    return kernel if body is kernel.body else replace(kernel, body=body)


def _changed(body: Stmt, name: str, made: Callable[[For], Stmt]) -> Stmt:
    """``body`` with what is ``made`` of the grid loops called ``name``; refuses where none is."""

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if isinstance(stmt, For) and stmt.var.name == name and stmt.kind is LoopKind.GRID:
            return made(stmt)
        return None

    changed = rewrite_placed(body, Place(), change)
    if changed is body:
        nest = next(s for s in walk_stmts(body) if isinstance(s, For) and s.var.name == name)
        raise refusal(f"'{name}' is no loop over workgroups", nest, "run it as GRID first")
    return changed


def _in_bands(outer: For, name_inner: str, rows: int, name: str) -> Stmt:
    inner = outer.body
    if not isinstance(inner, For) or inner.var.name != name_inner or inner.kind is not outer.kind:
        what = f"'{name_inner}' is no grid loop directly inside '{outer.var.name}'"
        raise refusal(what, outer, "name two grid loops that follow on one another")
    if not (isinstance(outer.extent, Const) and isinstance(inner.extent, Const)):
        raise refusal("how many tiles there are is not constant", outer, _CONSTANT)
    height, width = int(outer.extent.value), int(inner.extent.value)
    tile = var(name)
    first = tile // (rows * width) * rows
    in_band = tile % (rows * width)
    here: Expr = const(rows) if height % rows == 0 else minimum(rows, height - first)
    lets = (Let(outer.var, first + in_band % here), Let(inner.var, in_band // here))
    body = block(*lets, *sequence(inner.body))
    return replace(outer, var=tile, extent=const(height * width), body=body)


def _in_turns(loop: For, workgroups: int, names: Sequence[str]) -> Stmt:
    if not isinstance(loop.extent, Const):
        raise refusal("how many tiles there are is not constant", loop, _CONSTANT)
    total = int(loop.extent.value)
    workgroups = min(workgroups, max(1, total))
    group, turn = (var(name) for name in names)
    number = turn * workgroups + group

    def in_turns(lets: Sequence[Let], stmts: Sequence[Stmt]) -> Stmt:
        body = block(Let(loop.var, number), *lets, *stmts)
        if total % workgroups:
            body = If(number < total, body)
        return For(turn, const(-(-total // workgroups)), body)

    return For(group, const(workgroups), _within(loop.body, (), in_turns), LoopKind.GRID)


def _within(
    stmt: Stmt,
    lets: tuple[Let, ...],
    make: Callable[[Sequence[Let], Sequence[Stmt]], Stmt],
    within: bool = False,
) -> Stmt:
    """``stmt``, of a workgroup or a cluster (or ``within`` loops over work-items), with what
    ``make`` makes of what each of its work-items runs, and of the lets before."""
    *before, last = sequence(stmt)
    # What subgroups run may end with a loop over their lanes.
    is_inside = within and bool(before)
    if is_inside or not (isinstance(last, For) and last.kind in _LEVELS):
        return make(lets, sequence(stmt))
    declared = [allocate for allocate in before if isinstance(allocate, Allocate)]
    here = [let for let in before if isinstance(let, Let)]
    if len(declared) + len(here) != len(before):
        raise refusal(
            "a workgroup does more than declare before its work-items start",
            last,
            "choose a grid whose workgroups are one nest of work-items",
        )
    items = last.kind in THREADS
    inner = replace(last, body=_within(last.body, (*lets, *here), make, items))
    return block(*declared, inner)
