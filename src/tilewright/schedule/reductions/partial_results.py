"""What reductions in parts have in common: of each result, what the parts begin with, and how they
are combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import addressing, mentioned
from tilewright.ir.expr import Const, Expr, Var, all_of, as_expr, const, var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Combiner, Compute, Dim, If, Operand, Result, Stmt, View
from tilewright.schedule.queries.access import over_dims
from tilewright.schedule.queries.identity import ASSOCIATIVE, identities
from tilewright.schedule.queries.place import claim, dim_of, fresh
from tilewright.schedule.queries.refusal import refusal


def check_reduced(compute: Compute, dim: str) -> None:
    """Refuses where ``dim`` of ``compute`` cannot be reduced in parts."""
    reduced = dim_of(compute, dim)

    for result in compute.results:
        if result.combiner not in ASSOCIATIVE and not isinstance(result.combiner, Combiner):
            raise refusal(
                f"'{compute.name}' does not accumulate",
                compute,
                "choose a compute with a combiner",
                why="its elements would not combine",
            )
    for view in compute.outputs:
        if reduced.var in mentioned(compute, view):
            raise refusal(
                f"'{dim}' is not reduced",
                compute,
                "run it in lanes when the compute is lowered",
                why=f"the output is {to_text(view)}",
            )
        if view.mask is not None:
            raise refusal(
                "the output is masked",
                compute,
                "reduce in parts before padding",
                why="parts would pile up",
            )
    if compute.is_ordered or addressing(compute):
        raise refusal(
            "the compute has ordered dims, or places that are loaded",
            compute,
            "choose a compute whose places its dims say, in any order",
            why="partial results would be combined in another order, or somewhere else",
        )
    if not all(isinstance(kept_dim.extent, Const) for kept_dim in kept_dims(compute)):
        raise refusal(
            "the extents are not constant",
            compute,
            "reduce in parts before tiling, or partition first",
            why="the partial results are held in registers",
        )


def kept_dims(compute: Compute) -> tuple[Dim, ...]:
    """The dims that the results depend on."""
    used = frozenset[Var]().union(*(mentioned(compute, view) for view in compute.outputs))
    return tuple(d for d in compute.dims if d.var in used)


def on_views(
    results: Sequence[Result], views: Sequence[View], values: Sequence[Expr] | None
) -> tuple[Result, ...]:
    """``results`` at other views, those of the first in front, and with other ``values``."""
    result: list[Result] = []
    start = 0
    for old in results:
        stop = start + len(old.views)
        exprs = old.values if values is None else tuple(values[start:stop])
        result.append(Result(tuple(views[start:stop]), exprs, old.combiner))
        start = stop
    return tuple(result)


def begun(
    compute: Compute, targets: Sequence[Buffer], name: str, dims: tuple[Dim, ...]
) -> list[Stmt]:
    """The partial results, and what they start from."""
    index = tuple(d.var for d in dims)
    neutrals = [identity for result in compute.results for identity in identities(result)]
    results = tuple(
        Result((View(target, index),), (value,))
        for target, value in zip(targets, neutrals, strict=True)
    )
    return [*map(Allocate, targets), Compute(name, dims, (), results)]


def combined(
    compute: Compute,
    name: str,
    targets: Sequence[View],
    sources: Sequence[View],
    dims: tuple[Dim, ...],
    value: str = "x",
) -> Compute:
    """``targets`` combined with all of ``sources`` that falls on them, in variables called
    ``value``."""
    taken = {dim.var.name for dim in dims}
    operands: list[Operand] = []
    for number, source in enumerate(sources, start=1):
        suffix = str(number) if len(sources) > 1 else ""
        operands.append(Operand(var(claim(f"{value}{suffix}", taken), source.buffer.dtype), source))
    results = on_views(compute.results, targets, [o.var for o in operands])
    return Compute(name, dims, tuple(operands), results)


def if_there(compute: Compute, stmt: Stmt, facts: Facts) -> Stmt:
    """``stmt``, which combines what parts of ``compute`` give with its results: where there is a
    point, if there may be none and results that are named by one then have no place."""
    inside, kept = facts, kept_dims(compute)
    for dim in kept:
        inside = inside.loop(dim.var, dim.extent)
    places = (
        index < as_expr(size)
        for view in compute.outputs
        for index, size in zip(view.index, view.buffer.sizes, strict=True)
    )
    if all(inside.prove(place) is True for place in places):
        return stmt
    some = [const(1) <= dim.extent for dim in compute.dims if dim not in kept]
    condition = all_of(expr for expr in some if facts.prove(expr) is not True)
    return stmt if condition is None else If(condition, stmt)


def at_points(compute: Compute, dim: Dim, value: Expr, size: int | Expr) -> Compute:
    """``compute`` with ``size`` points of ``dim``, which are at ``value``."""
    dims = (replace(d, extent=as_expr(size)) if d is dim else d for d in compute.dims)
    return over_dims(compute, dims, {dim.var: value})


def part_of(
    compute: Compute, dim: Dim, number: Dim, size: int | Expr, targets: Sequence[View]
) -> Compute:
    """The points of part ``number``, ``size`` neighbours along ``dim``, reduced to ``targets``."""
    part = at_points(compute, dim, number.var * size + dim.var, size)
    results = on_views(part.results, targets, None)
    return replace(part, dims=(number, *part.dims), results=results)


def prefixes(compute: Compute) -> list[str]:
    """What the partial results of each view are called after: the compute, and the buffer where
    there are several."""
    views = compute.outputs
    if len(views) == 1:
        return [compute.name]
    names: list[str] = []
    for view in views:
        names.append(fresh(f"{compute.name}_{view.buffer.name}", names))
    return names
