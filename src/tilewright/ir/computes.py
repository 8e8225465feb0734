"""What the parts of a compute depend on."""

from __future__ import annotations

from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Combiner, Compute, View
from tilewright.ir.visit import loads_in, variables


def view_exprs(view: View) -> tuple[Expr, ...]:
    """The index and the mask of ``view``."""
    return view.index if view.mask is None else (*view.index, view.mask)


def mentioned(compute: Compute, view: View) -> frozenset[Var]:
    """The dims on which the index of ``view`` depends, by way of operands too: where a result does
    not depend on a dim, that is reduced."""
    found = frozenset[Var]().union(*map(variables, view.index))
    for operand in reversed(compute.operands):
        if operand.var in found:
            found = found.union(*map(variables, view_exprs(operand.view)))
    return found


def is_loaded(compute: Compute, view: View) -> bool:
    """Whether memory says where ``view`` is, other memory at each point: then nothing is known of
    its places, nor of how far apart they are."""
    operands = {operand.var for operand in compute.operands}
    own = operands.union(dim.var for dim in compute.dims)
    for expr in view.index:
        if not operands.isdisjoint(variables(expr)):
            return True
        if any(not own.isdisjoint(variables(load)) for load in loads_in(expr)):
            return True
    return False


def addressing(compute: Compute) -> frozenset[Var]:
    """The operands that views use: they say where these are, or where they count."""
    found = {operand.var for operand in compute.operands}
    if not found:
        return frozenset()
    views = (*compute.outputs, *(operand.view for operand in compute.operands))
    used = frozenset[Var]().union(*(variables(e) for view in views for e in view_exprs(view)))
    return used & found


def complication(compute: Compute) -> str | None:
    """What ``compute`` has beyond one result, combined by a named operator or assigned, at places
    that its dims say, in any order; None where there is nothing."""
    if len(compute.results) > 1 or len(compute.outputs) > 1:
        return "several results"
    if isinstance(compute.results[0].combiner, Combiner):
        return "a combiner of its own"
    if compute.is_ordered:
        return "ordered dims"
    return "places that are loaded" if addressing(compute) else None
