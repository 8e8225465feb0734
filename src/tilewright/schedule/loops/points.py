"""What a structured op does at one point of its domain, as statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.facts.scope import Facts
from tilewright.ir.expr import Expr, Var, all_of, binary, conjuncts, var
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import (
    Call,
    Combiner,
    Compute,
    If,
    Let,
    Result,
    Stmt,
    Store,
    View,
)
from tilewright.ir.visit import block, map_view, reads_memory, substitute
from tilewright.schedule.dims.pad import within
from tilewright.schedule.queries.place import claim

# How a view is masked by what says whether the point is in the domain.
Masked = Callable[[View], Expr | None]


def lower_point(compute: Compute, lane: Expr | None, facts: Facts, taken: Iterable[str]) -> Stmt:
    """One point, where ``lane`` (if given) says whether it is in the domain.

    Loads that stay inside their buffer without it are left unmasked. Several results are all
    evaluated before the first is stored; their names are none of those that are ``taken``.
    """

    def mask(view: View) -> Expr | None:
        if lane is None or within(view, facts):
            return view.mask
        return all_of((lane, *conjuncts(view.mask)))

    values = _operands(compute, mask)
    stores: list[tuple[Store, Expr | None]] = []
    for result in compute.results:
        views = [map_view(view, lambda e: substitute(e, values)) for view in result.views]
        new = [substitute(value, values) for value in result.values]
        condition = all_of(
            conjuncts(views[0].mask) if lane is None else (lane, *conjuncts(views[0].mask))
        )
        if compute.instruction is not None:
            view = View(views[0].buffer, views[0].index, condition)
            return Call(compute.instruction, (view, new[0]))
        for view, value in zip(views, _combined(result, views, new, mask), strict=True):
            stores.append((Store(view.buffer, view.index, value), condition))
    if len(stores) > 1:
        lets, stores = _evaluated(stores, {*taken, *(o.var.name for o in compute.operands)})
        return block(*lets, *(_guarded(store, condition) for store, condition in stores))
    return _guarded(*stores[0])


def _operands(compute: Compute, mask: Masked) -> dict[Var, Expr]:
    """The operands as loads; later ones may be at places that earlier ones say."""
    values: dict[Var, Expr] = {}
    for operand in compute.operands:
        view = operand.view
        if values:
            view = map_view(view, lambda e: substitute(e, values))
        values[operand.var] = load(view.buffer, view.index, mask(view))
    return values


def _combined(result: Result, views: list[View], new: list[Expr], mask: Masked) -> list[Expr]:
    """What ``result`` stores for ``new`` values."""
    how = result.combiner
    if how is None:
        return new
    places = [View(view.buffer, view.index) for view in views]
    old: list[Load] = [load(view.buffer, view.index, mask(view)) for view in places]
    if not isinstance(how, Combiner):
        return [binary(how, old[0], new[0])]
    renamed: dict[Var, Expr] = dict(zip((*how.old, *how.new), (*old, *new), strict=True))
    return [substitute(value, renamed) for value in how.values]


def _evaluated(
    stores: list[tuple[Store, Expr | None]], taken: set[str]
) -> tuple[list[Let], list[tuple[Store, Expr | None]]]:
    """``stores`` of values that have names: what they load is loaded before any of them."""
    lets: list[Let] = []
    variables_of: dict[Expr, Var] = {}

    def named(value: Expr, name: str) -> Expr:
        if not reads_memory(value):
            return value
        if value not in variables_of:
            variables_of[value] = var(claim(name, taken), value.type)
            lets.append(Let(variables_of[value], value))
        return variables_of[value]

    result: list[tuple[Store, Expr | None]] = []
    for store, condition in stores:
        name = store.buffer.name
        value = named(store.value, f"{name}_new")
        index = tuple(named(i, f"{name}_place") for i in store.index)
        if condition is not None:
            condition = named(condition, f"{name}_here")
        result.append((Store(store.buffer, index, value), condition))
    return lets, result


def _guarded(store: Store, condition: Expr | None) -> Stmt:
    return store if condition is None else If(condition, store)
