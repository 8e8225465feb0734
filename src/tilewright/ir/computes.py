"""The variables that the parts of a compute depend on."""

from __future__ import annotations

from tilewright.ir.expr import Expr, Var
from tilewright.ir.load import Load
from tilewright.ir.stmt import Combiner, Compute, View
from tilewright.ir.visit import loads_in, variables


def view_exprs(view: View) -> tuple[Expr, ...]:
    """The index and the mask of ``view``."""
    return view.index if view.mask is None else (*view.index, view.mask)


def index_variables(place: View | Load) -> frozenset[Var]:
    """The variables that the index of ``place`` has."""
    return frozenset[Var]().union(*map(variables, place.index))


def mentioned(compute: Compute, view: View) -> frozenset[Var]:
    """The variables on which the index of ``view`` depends, also by way of operands. A result
    reduces the dims that are not among them."""
    return _through_operands(compute, index_variables(view))


def loading(compute: Compute, view: View) -> frozenset[Var]:
    """The dims on which loads in the index of ``view`` depend: along these, the distance between
    places is unknown."""
    operands = frozenset(operand.var for operand in compute.operands)
    loaded: frozenset[Var] = frozenset()
    for expr in view.index:
        loaded |= variables(expr) & operands
        loaded = loaded.union(*map(variables, loads_in(expr)))
    return _through_operands(compute, loaded).intersection(dim.var for dim in compute.dims)


def _through_operands(compute: Compute, used: frozenset[Var]) -> frozenset[Var]:
    """``used``, and the variables that the operands among them depend on."""
    for operand in reversed(compute.operands):
        if operand.var in used:
            used = used.union(*map(variables, view_exprs(operand.view)))
    return used


def addressing(compute: Compute) -> frozenset[Var]:
    """The operands that stand in indices or masks of views."""
    operands = {operand.var for operand in compute.operands}
    if not operands:
        return frozenset()
    views = (*compute.outputs, *(operand.view for operand in compute.operands))
    used = frozenset[Var]().union(*(variables(e) for view in views for e in view_exprs(view)))
    return used & operands


def complication(compute: Compute) -> str | None:
    """What ``compute`` has beyond the simple form: one result, assigned or combined by a named
    operator, at places that depend on its dims only, in any order. None for the simple form."""
    if len(compute.results) > 1 or len(compute.outputs) > 1:
        return "several results"
    if isinstance(compute.results[0].combiner, Combiner):
        return "a combiner of its own"
    if compute.is_ordered:
        return "ordered dims"
    return "places that are loaded" if addressing(compute) else None
