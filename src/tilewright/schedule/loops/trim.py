"""Shorter loops and dims instead of masks: iterations that contribute nothing are left out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.facts.affine import Affine, affine, difference
from tilewright.ir.expr import (
    Binary,
    Const,
    Expr,
    Var,
    all_of,
    conjuncts,
    const,
    maximum,
    minimum,
    select,
    var,
)
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Block, Compute, Dim, For, Kernel, Let, LoopKind, Stmt
from tilewright.ir.visit import block, rewrite_stmts, substitute_stmt, variables, walk_stmts
from tilewright.schedule.queries.identity import needed, without
from tilewright.schedule.queries.place import (
    Place,
    bound_names,
    computes_named,
    fresh,
    rewrite_placed,
    taken_names,
    views_of,
)
from tilewright.schedule.records.asks import a_loop_of_plain_computes, a_plain_compute, asks
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

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if isinstance(stmt, For) and stmt.var.name == loop:
            return _trimmed(stmt, place, taken, by)
        return None

    body = rewrite_placed(kernel.body, Place(), change)
    return kernel if body is kernel.body else replace(kernel, body=body)


@transform
@asks(compute=a_plain_compute, producers=a_plain_compute)
def trim_dims(kernel: Kernel, compute: str, producers: Sequence[str] = ()) -> Kernel:
    """Restricts the dims of a compute, and of its producers, to where its result's mask holds.

        compute sum(i in 12, k in 5): acc[i] add= x    (x = src[i, k])
        compute store(i in 12): dst[i | i < 10] = acc[i]
    ->  trim_dims("store", ["sum"])
        compute sum(i in 10, k in 5): acc[i] add= x    (x = src[i, k])
        compute store(i in 10): dst[i] = acc[i]

    A condition counts when it bounds one dim by a constant. Producers have that dim by the same
    name, and make buffers that only they and the compute touch, one element along it per point.
    Nothing changes where there is no such condition.
    """
    root = computes_named(kernel, compute, "trim_dims")[0][0]
    most = _most(root)
    found = [computes_named(kernel, name, "trim_dims")[0][0] for name in producers]
    for producer in found:
        _check_touched(kernel, producer, most, {compute, *producers})

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        del place
        if not most or not isinstance(stmt, Compute) or stmt.name not in {compute, *producers}:
            return None
        ends = {d: const(most[d.var.name]) if d.var.name in most else d.extent for d in stmt.dims}
        return replace(stmt, dims=tuple(Dim(d.var, end) for d, end in ends.items()))

    body = rewrite_placed(kernel.body, Place(), change)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _check_touched(
    kernel: Kernel, producer: Compute, most: Mapping[str, int], allowed: set[str]
) -> None:
    """Refuses where somebody may read what a shorter ``producer`` no longer makes."""
    buffer, index = producer.out.buffer, producer.out.index
    for stmt in walk_stmts(kernel.body):
        views = [*views_of(stmt)] if isinstance(stmt, Compute) else []
        for view in (each for each in views if each.buffer is buffer):
            assert isinstance(stmt, Compute)
            same = all(
                isinstance(there, Var) and there.name == here.name
                for here, there in zip(index, view.index, strict=True)
                if isinstance(here, Var) and here.name in most
            )
            if stmt.name not in allowed or not same:
                raise ScheduleError(
                    f"trim_dims: what '{producer.name}' makes is read beyond its mask",
                    where=headline(stmt),
                    why=f"{buffer.name!r} would not be made as far as it is read",
                    cure="name all producers, or trim before this reads it",
                )


def _most(compute: Compute) -> dict[str, int]:
    """Where the dims of ``compute`` end by the mask of its result, if before their extents."""
    extents = {d.var: int(d.extent.value) for d in compute.dims if isinstance(d.extent, Const)}
    most: dict[str, int] = {}
    for condition in conjuncts(compute.out.mask):
        match condition:
            case Binary(op="lt", a=Var() as dim, b=Const(value=value)) if dim in extents:
                if int(value) < most.get(dim.name, extents[dim]):
                    most[dim.name] = int(value)
    return most


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
    found: list[Compute] = []
    for stmt in walk_stmts(loop.body):
        if isinstance(stmt, Compute):
            found.append(stmt)
        elif not isinstance(stmt, Block | For):
            raise ScheduleError(
                f"trim: the loop '{loop.var.name}' does more than to reduce",
                where=headline(stmt),
                why="iterations may only be left out if nothing else happens in them",
                cure="move this statement out of the loop, or trim earlier",
            )
    if not found or any(c.combiner is None for c in found):
        raise ScheduleError(
            f"trim: the loop '{loop.var.name}' does not reduce",
            where=headline(loop),
            why="only a term that is combined with others can be neutral",
            cure="choose a loop around a reduction",
        )
    return found


def _conditions(
    compute: Compute, variable: Var, inner: frozenset[str], by: Collection[str] | None
) -> list[Expr]:
    """The conditions without which the compute's term is neutral, and that the loop decides, or
    those variables ``by`` do for all of it."""
    found = list(dict.fromkeys(needed(compute)))
    if by is None:
        return [c for c in found if _decides(c, variable, inner)]
    outer = {*by} - inner
    return [c for c in found if _is_about(c, outer) or _decides(c, variable, inner, outer)]


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
