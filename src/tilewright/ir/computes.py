"""What the parts of a compute depend on."""

from __future__ import annotations

from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Combiner, Compute, View
from tilewright.ir.visit import loads_in, variables


def view_exprs(view: View) -> tuple[Expr, ...]:
    """The index and the mask of ``view``."""
    return view.index if view.mask is None else (*view.index, view.mask)


def mentioned(compute: Compute, view: View) -> frozenset[Var]:
    """The variables on which the index of ``view`` depends, by way of operands too: a dim on which
    a result does not depend is reduced."""
    return _behind(compute, frozenset[Var]().union(*map(variables, view.index)))


def loading(compute: Compute, view: View) -> frozenset[Var]:
    """The dims on which depends what is loaded to know where ``view`` is: nothing is known of how
    far apart the places of different points of these are."""
    operands = frozenset(operand.var for operand in compute.operands)
    found: frozenset[Var] = frozenset()
    for expr in view.index:
        found |= variables(expr) & operands
        found = found.union(*map(variables, loads_in(expr)))
    return _behind(compute, found).intersection(dim.var for dim in compute.dims) if found else found


def _behind(compute: Compute, found: frozenset[Var]) -> frozenset[Var]:
    """``found``, and what the operands among them depend on."""
    for operand in reversed(compute.operands):
        if operand.var in found:
            found = found.union(*map(variables, view_exprs(operand.view)))
    return found


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
