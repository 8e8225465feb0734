"""Asking early for what a loop reads later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.facts.affine import flattened
from tilewright.facts.scope import Facts
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Const, const, minimum
from tilewright.ir.stmt import Call, Compute, For, Kernel, LoopKind, Stmt, View, While
from tilewright.ir.visit import (
    block,
    direct_exprs,
    loads_in,
    map_view,
    nested,
    reads_memory,
    substitute,
    with_nested,
)
from tilewright.schedule.queries.place import Place, rewrite_loops, rewrite_placed, size_of
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_loop, asks, positive
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify

# Bytes that memory gives at once, on all processors that we compile for.
_LINE = 64
# What is read, the loops around it that are written out or lanes of a vector, and what is known
# there.
_Read = tuple[View, tuple[For, ...], Facts]


@transform
@asks(loop=a_loop, ahead=positive)
def prefetch(
    kernel: Kernel, buffer: str, loop: str, ahead: int = 1, *, second: bool = False
) -> Kernel:
    """Asks in each iteration of a loop for what a later one reads of a buffer, a cache line at a
    time.

        for g in 64:
          for k in 8:
            unrolled for n_o in 2:
              vector for n in 16:
                y[n + n_o*16] = y[n + n_o*16] + x[g*8 + k] * w[g, k, n + n_o*16]
    ->  prefetch("w", "g", ahead=2)
        for g in 64:
          for k in 8:
            prefetch(&w[g + 2, k, 0])
            prefetch(&w[g + 2, k, 16])
            unrolled for n_o in 2:
              vector for n in 16:
                y[n + n_o*16] = y[n + n_o*16] + x[g*8 + k] * w[g, k, n + n_o*16]

    That pays where memory is read in order and little is computed with it: processors see which
    lines come next, but do not ask for them early enough. What the last iterations ask for is
    never read. Where a place depends on what is in memory, the loop's last iteration is asked for
    instead of those after it, of which memory says nothing:

        prefetch(&rows[s64(numbers[min(i + 2, 63)]), j_o * 16])

    With ``second``, lines come into the second cache (``prefetch_second``), which waits for more of
    them at a time: where all of what is read comes from memory, and little is computed with it.
    """
    asked: list[Call] = []

    def change(nest: For, place: Place) -> Stmt:
        (within,) = place.within(nest)
        name = "prefetch_second" if second else "prefetch"
        return replace(nest, body=_asking(nest.body, within, buffer, (nest, ahead), asked, name))

    changed = rewrite_loops(kernel, {loop}, change)
    if not asked:
        raise refusal(
            f"nothing in the loop '{loop}' loads from '{buffer}'",
            kernel,
            "lower the computes first, and name a buffer that they read",
        )
    return changed


def _asking(
    body: Stmt,
    place: Place,
    buffer: str,
    later: tuple[For, int],
    asked: list[Call],
    function: str,
) -> Stmt:
    """``body``, with calls in front for what it reads itself, and likewise in the loops in it."""

    def change(stmt: Stmt, here: Place) -> Stmt | None:
        if not _runs_in_order(stmt):
            return None
        (inner,), (within,) = nested(stmt), here.within(stmt)
        return with_nested(stmt, (_asking(inner, within, buffer, later, asked, function),))

    calls: list[Call] = []
    for view in _lines(_reads(body, place, buffer, ())):
        _check_in_front(view, place, body)
        calls.append(Call(function, (_later(view, *later),)))
    asked.extend(calls)
    return block(*calls, rewrite_placed(body, place, change))


def _check_in_front(view: View, place: Place, body: Stmt) -> None:
    """Refuses what is read where a name says that the body has yet to give a value."""
    for name in sorted({v.name for v in index_variables(view)} - place.names):
        raise refusal(
            f"'{name}' says where '{view.buffer.name}' is read",
            body,
            "write its value instead of the name",
            why="in front, where it would be asked for, that has no value yet",
        )


def _runs_in_order(stmt: Stmt) -> bool:
    written_out = isinstance(stmt, For) and stmt.kind in (LoopKind.UNROLLED, LoopKind.VECTOR)
    return isinstance(stmt, For | While) and not written_out


def _reads(stmt: Stmt, place: Place, buffer: str, loops: tuple[For, ...]) -> Iterator[_Read]:
    """What ``stmt`` reads of the buffer but in loops that are not written out."""
    for expr in direct_exprs(stmt):
        for load in loads_in(expr):
            if load.buffer.name == buffer:
                yield View(load.buffer, load.index), loops, place.facts
    if isinstance(stmt, Compute):
        # One instruction, whose dims are lanes.
        lanes = tuple(For(dim.var, dim.extent, stmt, LoopKind.VECTOR) for dim in stmt.dims)
        for view in (operand.view for operand in stmt.operands):
            if view.buffer.name == buffer and view.mask is None:
                yield view, (*loops, *lanes), place.facts_with(stmt.dims)
    if _runs_in_order(stmt):
        return
    around = (*loops, stmt) if isinstance(stmt, For) else loops
    for part, within in zip(nested(stmt), place.within(stmt), strict=True):
        yield from _reads(part, within, buffer, around)


def _later(view: View, loop: For, ahead: int) -> View:
    """What takes the place of ``view`` some iterations later."""
    then = loop.var + const(ahead)
    if any(map(reads_memory, view.index)):
        then = minimum(then, loop.extent - const(1))
    return map_view(view, lambda index: substitute(index, {loop.var: then}))


def _lines(reads: Iterator[_Read]) -> Iterator[View]:
    """The first element of each cache line that is read, if reading begins with a line."""
    seen: set[object] = set()
    for view, loops, facts in reads:
        offset = simplify(view.buffer.layout.offset_of(view.index), facts)
        for point in product(*map(_iterations, loops)):
            values = dict(zip((loop.var for loop in loops), point, strict=True))
            place = flattened(substitute(offset, values))
            line = place.constant * view.buffer.dtype.bytes // _LINE
            key = (frozenset(place.terms.items()), line)
            if key not in seen:
                seen.add(key)
                yield View(view.buffer, tuple(substitute(expr, values) for expr in view.index))


def _iterations(loop: For) -> list[Const]:
    return [const(number) for number in range(size_of(loop))]
