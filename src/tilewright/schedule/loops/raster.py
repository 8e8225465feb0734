"""In which order, and by how many workgroups, the tiles of a grid are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.ir.expr import Const, Expr, const, minimum, var
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, For, If, Kernel, Let, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import block
from tilewright.schedule.loops.merge_loops import merged_loop
from tilewright.schedule.queries.place import (
    Place,
    fresh,
    rewrite_placed,
    sequence,
    taken_names,
)
from tilewright.schedule.records.asks import a_loop, asks, positive, some
from tilewright.schedule.records.transform import transform

# The loops between the grid's and what each work-item runs.
_LEVELS = (LoopKind.CLUSTER, *THREADS)


@transform
@asks(outer=a_loop, rows=positive)
def rasterize(kernel: Kernel, outer: str, inner: str, rows: int) -> Kernel:
    """Takes the tiles of two grid loops in bands of ``rows``, column by column in each.

        grid for m_o in 8:
          grid for n_o in 4: ...
    ->  rasterize("m_o", "n_o", 2)
        grid for tile in 32:
          let m_o = tile // 8 * 2 + tile % 2
          let n_o = tile % 8 // 2
          ...

    Workgroups that run at the same time then work on a block of tiles that is about square, and
    find what they read in the cache that they share. The last band may have fewer rows.
    """
    name = fresh("tile", taken_names(kernel))

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if isinstance(stmt, For) and stmt.var.name == outer and stmt.kind is LoopKind.GRID:
            return _in_bands(stmt, inner, rows, name)
        return None

    return replace(kernel, body=rewrite_placed(kernel.body, Place(), change))


def _in_bands(outer: For, name_inner: str, rows: int, name: str) -> Stmt:
    inner = outer.body
    if not isinstance(inner, For) or inner.var.name != name_inner or inner.kind is not outer.kind:
        raise ScheduleError(
            f"rasterize: '{name_inner}' is no grid loop directly inside '{outer.var.name}'",
            where=headline(outer),
            cure="name two grid loops that follow on one another",
        )
    if not (isinstance(outer.extent, Const) and isinstance(inner.extent, Const)):
        raise ScheduleError(
            f"rasterize: bands of {rows} of {outer.extent!r} rows",
            where=headline(outer),
            cure="choose 1 or more, of loops of constant extent",
        )
    height, width = int(outer.extent.value), int(inner.extent.value)
    tile = var(name)
    first = tile // (rows * width) * rows
    in_band = tile % (rows * width)
    here: Expr = const(rows) if height % rows == 0 else minimum(rows, height - first)
    lets = (Let(outer.var, first + in_band % here), Let(inner.var, in_band // here))
    body = block(*lets, *sequence(inner.body))
    return replace(outer, var=tile, extent=const(height * width), body=body)


@transform
@asks(loops=some(a_loop), workgroups=positive)
def persist(kernel: Kernel, loops: Sequence[str], workgroups: int) -> Kernel:
    """Runs the iterations of grid loops on so many workgroups, which take several each.

        grid for m_o in 100:
          alloc a_packed: f32[64] workgroup
          workgroup for t in 32: ...
    ->  persist(["m_o"], 16)
        grid for group in 16:
          alloc a_packed: f32[64] workgroup
          workgroup for t in 32:
            for turn in 7:
              if turn*16 + group < 100:
                let m_o = turn*16 + group
                ...

    What a workgroup sets up once serves all its iterations. Where its work-items share memory, each
    iteration ends with a barrier, as `stage` makes it. With a loop over clusters inside, so many
    clusters take them.
    """
    taken = taken_names(kernel)
    names = tuple(fresh(name, taken) for name in ("tile", "group", "turn"))

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if isinstance(stmt, For) and stmt.var.name == loops[0] and stmt.kind is LoopKind.GRID:
            return _persistent(merged_loop(stmt, loops, names[0]), workgroups, names[1:])
        return None

    return replace(kernel, body=rewrite_placed(kernel.body, Place(), change))


def _persistent(loop: For, workgroups: int, names: Sequence[str]) -> Stmt:
    if not isinstance(loop.extent, Const):
        raise ScheduleError(
            "persist: how many iterations there are is not constant",
            where=headline(loop),
            cure="choose grid loops of constant extent",
        )
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
    own = within and bool(before)
    if own or not (isinstance(last, For) and last.kind in _LEVELS):
        return make(lets, sequence(stmt))
    declared = [each for each in before if isinstance(each, Allocate)]
    here = [each for each in before if isinstance(each, Let)]
    if len(declared) + len(here) != len(before):
        raise ScheduleError(
            "persist: a workgroup does more than declare before its work-items start",
            where=headline(last),
            cure="choose a grid whose workgroups are one nest of work-items",
        )
    items = last.kind in THREADS
    inner = replace(last, body=_within(last.body, (*lets, *here), make, items))
    return block(*declared, inner)
