"""Shorter loops instead of masks: iterations that contribute nothing are left out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from tilewright.facts.affine import Affine, affine, difference
from tilewright.ir.expr import (
    Const,
    Expr,
    Var,
    all_of,
    const,
    maximum,
    minimum,
    select,
    var,
)
from tilewright.ir.stmt import Block, Compute, For, Kernel, Let, LoopKind, Stmt
from tilewright.ir.visit import block, rewrite_stmts, substitute_stmt, variables, walk_stmts
from tilewright.schedule.queries.identity import needed, without
from tilewright.schedule.queries.place import (
    Place,
    bound_names,
    fresh,
    rewrite_loops,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_loop_of_plain_computes, asks
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify


@transform
@asks(loop=a_loop_of_plain_computes)
def trim(kernel: Kernel, loop: str, by: Collection[str] | None = None) -> Kernel:
    """Restricts a reduction loop to the iterations in which its masks hold.

        for kh in 3:
          compute conv(ow in 4): acc[ow] add= s * w    (s = src[oh + kh - 1, ow | 1 <= oh + kh])
    ->  trim("kh")
        kh_lo = max(1 - oh, 0)
        for kh in max(3 - kh_lo, 0):
          compute conv(ow in 4): acc[ow] add= s * w    (s = src[oh + kh + kh_lo - 1, ow])

    A condition counts when it depends on the loop's variable and outer ones alone, stands in every
    compute inside, and where it does not hold, the compute's term is neutral: a factor of it is
    zero, or it is ``select(condition, term, neutral)``. Nothing changes where there is none. With
    ``by``, only conditions count that depend on no other variables than these besides, also on none
    but these (the loop has no iterations where they do not hold). Where it begins has no name then,
    so that loops stay directly in one another.
    """
    taken = taken_names(kernel)
    return rewrite_loops(kernel, {loop}, lambda nest, place: _trimmed(nest, place, taken, by))


def _trimmed(loop: For, place: Place, taken: frozenset[str], by: Collection[str] | None) -> Stmt:
    computes = _computes(loop)
    inner = frozenset(bound_names(loop.body))
    common = _conditions(computes[0], loop.var, inner, by)
    for compute in computes[1:]:
        others = set(_conditions(compute, loop.var, inner, by))
        common = [c for c in common if c in others]
    if not common:
        return loop
    low, high = _bounds(common, loop)
    low = simplify(low, place.facts)
    lets: list[Stmt] = []
    if not isinstance(low, Const) and by is None:
        name = var(fresh(f"{loop.var.name}_lo", taken | place.names))
        lets.append(Let(name, low))
        low = name
    dropped = set(common)
    body = rewrite_stmts(loop.body, lambda s: without(s, dropped) if isinstance(s, Compute) else s)
    body = substitute_stmt(body, {loop.var: loop.var + low})
    extent = simplify(maximum(high - low, 0), place.facts)
    kind = loop.kind
    if kind in (LoopKind.UNROLLED, LoopKind.VECTOR) and not isinstance(extent, Const):
        kind = LoopKind.SERIAL
    return block(*lets, replace(loop, extent=extent, body=body, kind=kind))


def _computes(loop: For) -> list[Compute]:
    """All that the loop does; refuses other statements."""
    computes: list[Compute] = []
    for stmt in walk_stmts(loop.body):
        if isinstance(stmt, Compute):
            computes.append(stmt)
        elif not isinstance(stmt, Block | For):
            raise refusal(
                f"the loop '{loop.var.name}' does more than to reduce",
                stmt,
                "move this statement out of the loop, or trim earlier",
                why="iterations may only be left out if nothing else happens in them",
            )
    if not computes or any(c.combiner is None for c in computes):
        raise refusal(
            f"the loop '{loop.var.name}' does not reduce",
            loop,
            "choose a loop around a reduction",
            why="only a term that is combined with others can be neutral",
        )
    return computes


def _conditions(
    compute: Compute, variable: Var, inner: frozenset[str], by: Collection[str] | None
) -> list[Expr]:
    """The conditions without which the compute's term is neutral, and that the loop decides, or
    those variables ``by`` do for all of it."""
    exprs = list(dict.fromkeys(needed(compute)))
    if by is None:
        return [c for c in exprs if _decides(c, variable, inner)]
    outer = {*by} - inner
    return [c for c in exprs if _is_about(c, outer) or _decides(c, variable, inner, outer)]


def _is_about(condition: Expr, names: Collection[str]) -> bool:
    """Whether ``condition`` depends on some of ``names``, and on nothing else."""
    used = {v.name for v in variables(condition)}
    return bool(used) and used <= {*names}


def _decides(
    condition: Expr,
    variable: Var,
    inner: frozenset[str],
    outer: Collection[str] | None = None,
) -> bool:
    """Whether ``condition`` bounds ``variable`` by what is known around the loop; with ``outer``,
    by these alone."""
    names = {v.name for v in variables(condition)}
    form = difference(condition)
    if form is None or names & inner or variable not in form.terms:
        return False
    if outer is not None and not names <= {variable.name, *outer}:
        return False
    return not any(variable in variables(a) for a in form.terms if a is not variable)


def _bounds(conditions: Iterable[Expr], loop: For) -> tuple[Expr, Expr]:
    """Where the iterations that count begin and end.

    ``step * k + rest >= 0`` is ``k >= ceil(-rest / step)``, which is ``-(rest // step)``, for a
    positive step, and ``k < rest // -step + 1`` for a negative one. Where a condition without ``k``
    does not hold, there are none.
    """
    low: Expr = const(0)
    high = loop.extent
    any_at_all: list[Expr] = []
    for condition in conditions:
        form = difference(condition)
        if form is None or loop.var not in form.terms:
            any_at_all.append(condition)
            continue
        step = form.terms[loop.var]
        terms = {a: c for a, c in form.terms.items() if a is not loop.var}
        rest = Affine(terms, form.constant).to_expr()
        if step > 0:
            low = maximum(low, affine(-(rest // step)).to_expr())
        else:
            high = minimum(high, rest // -step + 1)
    there = all_of(any_at_all)
    return low, high if there is None else select(there, high, 0)
