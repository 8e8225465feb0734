"""What reductions in parts have in common: of each result, what the parts begin with, and how they
are combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import addressing, mentioned
from tilewright.ir.expr import Const, Expr, Var, all_of, as_expr, const, var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Allocate, Combiner, Compute, Dim, If, Operand, Result, Stmt, View
from tilewright.ir.visit import map_exprs, substitute
from tilewright.schedule.queries.place import dim_of, fresh


def neutral(combiner: str, dtype: DType) -> float:
    """What a reduction starts from."""
    match combiner:
        case "max":
            return dtype.lowest
        case "min":
            return dtype.highest
        case _:
            return 1 if combiner == "mul" else 0


def identities(result: Result) -> tuple[Const, ...]:
    """What the partial results of ``result`` start from, each of its views."""
    how = result.combiner
    if isinstance(how, Combiner):
        return how.identity
    assert how is not None
    dtypes = [view.buffer.dtype for view in result.views]
    return tuple(const(neutral(how, dtype), dtype) for dtype in dtypes)


def check_reduced(compute: Compute, dim: str, transform: str) -> None:
    """Refuses where ``dim`` of ``compute`` cannot be reduced in parts."""
    found = dim_of(compute, dim, transform)

    def refusal(what: str, why: str, cure: str) -> ScheduleError:
        return ScheduleError(f"{transform}: {what}", where=headline(compute), why=why, cure=cure)

    for result in compute.results:
        if result.combiner not in ("add", "mul", "max", "min") and not isinstance(
            result.combiner, Combiner
        ):
            raise refusal(
                f"'{compute.name}' does not accumulate",
                "its elements would not combine",
                "choose a compute with a combiner",
            )
    for view in compute.outputs:
        if found.var in mentioned(compute, view):
            raise refusal(
                f"'{dim}' is not reduced",
                f"the output is {to_text(view)}",
                "run it in lanes when the compute is lowered",
            )
        if view.mask is not None:
            raise refusal("the output is masked", "parts would pile up", "widen before padding")
    if compute.is_ordered or addressing(compute):
        raise refusal(
            "the compute has ordered dims, or places that are loaded",
            "partial results would be combined in another order, or somewhere else",
            "choose a compute whose places its dims say, in any order",
        )
    kept = frozenset[Var]().union(*(mentioned(compute, view) for view in compute.outputs))
    if any(each.var in kept and not isinstance(each.extent, Const) for each in compute.dims):
        raise refusal(
            "the extents are not constant",
            "the partial results are held in registers",
            "widen before tiling, or partition first",
        )


def on_views(
    results: Sequence[Result], views: Sequence[View], values: Sequence[Expr] | None
) -> tuple[Result, ...]:
    """``results`` at other views, those of the first in front, and with other ``values``."""
    found: list[Result] = []
    start = 0
    for old in results:
        stop = start + len(old.views)
        own = old.values if values is None else tuple(values[start:stop])
        found.append(Result(tuple(views[start:stop]), own, old.combiner))
        start = stop
    return tuple(found)


def begun(
    compute: Compute, targets: Sequence[Buffer], name: str, dims: tuple[Dim, ...]
) -> list[Stmt]:
    """The partial results, and what they start from."""
    index = tuple(d.var for d in dims)
    neutrals = [each for result in compute.results for each in identities(result)]
    results = tuple(
        Result((View(target, index),), (value,))
        for target, value in zip(targets, neutrals, strict=True)
    )
    return [*map(Allocate, targets), Compute(name, dims, (), results)]


def combined(
    compute: Compute,
    name: str,
    targets: Sequence[View],
    sources: Sequence[Buffer],
    dims: tuple[Dim, ...],
) -> Compute:
    """``targets`` combined with all of ``sources`` that falls on them."""
    index = tuple(d.var for d in dims)
    names = ["x"] if len(sources) == 1 else [f"x{n}" for n in range(1, len(sources) + 1)]
    operands = tuple(
        Operand(var(each, source.dtype), View(source, index))
        for each, source in zip(names, sources, strict=True)
    )
    results = on_views(compute.results, targets, [o.var for o in operands])
    return Compute(name, dims, operands, results)


def if_there(compute: Compute, stmt: Stmt, facts: Facts) -> Stmt:
    """``stmt``, which combines what parts of ``compute`` give with its results: where there is a
    point, if there may be none and results that are named by one then have no place."""
    used = frozenset[Var]().union(*(mentioned(compute, view) for view in compute.outputs))
    inside = facts
    for dim in compute.dims:
        if dim.var in used:
            inside = inside.loop(dim.var, dim.extent)
    places = (
        index < as_expr(size)
        for view in compute.outputs
        for index, size in zip(view.index, view.buffer.sizes, strict=True)
    )
    if all(inside.prove(each) is True for each in places):
        return stmt
    some = [const(1) <= dim.extent for dim in compute.dims if dim.var not in used]
    condition = all_of(each for each in some if facts.prove(each) is not True)
    return stmt if condition is None else If(condition, stmt)


def at_points(compute: Compute, dim: Dim, value: Expr, size: int | Expr) -> Compute:
    """``compute`` with ``size`` points of ``dim``, which are at ``value``."""
    moved = map_exprs(replace(compute, dims=()), lambda e: substitute(e, {dim.var: value}))
    assert isinstance(moved, Compute)
    dims = tuple(replace(d, extent=as_expr(size)) if d is dim else d for d in compute.dims)
    return replace(moved, dims=dims)


def prefixes(compute: Compute) -> list[str]:
    """What the partial results of each view are called after: the compute, and the buffer where
    there are several."""
    views = compute.outputs
    if len(views) == 1:
        return [compute.name]
    found: list[str] = []
    for view in views:
        found.append(fresh(f"{compute.name}_{view.buffer.name}", found))
    return found
