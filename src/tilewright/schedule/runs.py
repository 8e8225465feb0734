"""Runs: neighbours along a dim that are neighbours in memory, moved in one access."""

from __future__ import annotations

from tilewright.facts.affine import Affine, affine, difference, flattened
from tilewright.facts.scope import Facts
from tilewright.ir.expr import Expr, Var, conjuncts, const, var
from tilewright.ir.stmt import Compute, View
from tilewright.ir.visit import substitute, variables
from tilewright.schedule.place import Place, fresh
from tilewright.simplify import simplify


def run_start(view: View, dim: Var, wide: int, facts: Facts) -> Affine | None:
    """Where runs of ``wide`` elements along ``dim`` begin in memory, but for a multiple of
    ``wide``; None where they are not neighbours everywhere."""
    offset = view.buffer.layout.offset_of(view.index)
    rest = _besides(flattened(offset), dim)
    if rest is not None:
        return rest
    # Several dims may be one, whose digits are quotients: those that no run crosses lose it.
    names = {v.name for v in variables(offset)} | {dim.name}
    run, element = (var(fresh(name, names)) for name in ("run", "element"))
    runs = (facts.bounds(dim)[1] or 0) // wide + 1
    facts = facts.loop(run, const(runs)).loop(element, const(wide))
    split = flattened(substitute(offset, {dim: run * wide + element}))
    return _besides(affine(simplify(split.to_expr(), facts)), element)


def _besides(form: Affine, dim: Var) -> Affine | None:
    """``form`` without ``dim``; None where steps along that are not 1."""
    if form.terms.get(dim, 0) != 1:
        return None
    rest = Affine({atom: c for atom, c in form.terms.items() if atom is not dim}, form.constant)
    return None if any(dim in variables(atom) for atom in rest.terms) else rest


def uniform(
    compute: Compute, view: View, dim: Var, wide: int, here: Place
) -> frozenset[Expr] | None:
    """The conditions that hold for all of a run of ``wide`` neighbours along ``dim`` or for none;
    None where they are not neighbours in ``view`` everywhere, or a mask cuts them apart."""
    facts = here.facts_with(compute.dims)
    if run_start(view, dim, wide, facts) is None:
        return None
    found: set[Expr] = set()
    for condition in conjuncts(view.mask):
        if dim not in variables(condition) or facts.prove(condition) is True:
            continue
        if not _whole(condition, dim, wide, facts):
            return None
        found.add(condition)
    return frozenset(found)


def _whole(condition: Expr, dim: Var, wide: int, facts: Facts) -> bool:
    """Whether ``condition`` is the same for all of a run, which begins at a multiple of ``wide``.

    ``rest + dim >= 0`` is, where ``rest`` is a multiple; ``rest - dim >= 0``, where one less than a
    multiple.
    """
    form = difference(condition)
    if form is None or abs(form.terms.get(dim, 0)) != 1:
        return False
    step = form.terms[dim]
    rest = Affine({atom: c for atom, c in form.terms.items() if atom is not dim}, form.constant)
    if any(dim in variables(atom) for atom in rest.terms):
        return False
    modulus, remainder = facts.affine_congruence(rest)
    return modulus % wide == 0 and remainder % wide == (0 if step == 1 else wide - 1)
