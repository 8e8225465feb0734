"""How far apart neighbours along a dim lie in memory, and runs: neighbours that lie side by side,
which are moved in one access.

`strides` are of all neighbours, None where they differ; `steps` of the first two alone, whatever
the others do. `runs_along` says whether there are runs that are worth an access, `run_start` where
they begin, and `uniform` under which conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.facts.affine import Affine, affine, difference, flattened
from tilewright.facts.scope import Facts
from tilewright.ir.expr import Const, Expr, Var, conjuncts, const, var
from tilewright.ir.stmt import Compute, Dim, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import substitute, variables
from tilewright.schedule.queries.place import Place, fresh
from tilewright.simplify import simplify

# Bytes of a run that is worth moving as one.
_RUN = 8


def run_start(view: View, dim: Var, wide: int, facts: Facts, across: bool = False) -> Affine | None:
    """Where runs of ``wide`` elements along ``dim`` begin in memory, but for a multiple of
    ``wide``; None where they are not neighbours everywhere. ``across``: also past the ends
    of rows of an image."""
    rest = even_start(view, dim)
    if rest is not None:
        return rest
    # Several dims may be one, whose digits are quotients: all but the last lose what is in a run.
    # Each by itself: addresses may be written when digits of different sums are no number again.
    number, element, facts = _in_runs(view, dim, wide, facts)
    digits = tuple(simplify(substitute(index, number), facts) for index in view.index)
    layout = view.buffer.layout
    if layout.swizzle is not None and wide <= layout.swizzle.run:
        layout = replace(layout, swizzle=None)
    start = _besides(_with_values(affine(layout.offset_of(digits)), {}, facts), element)
    if start is not None or layout.swizzle is not None or not across:
        return start
    # Digits that a run goes past, such as rows of an image, are one number where they are added up.
    return _besides(_with_values(flattened(layout.offset_of(view.index)), number, facts), element)


def _with_values(form: Affine, values: Mapping[Var, Expr], facts: Facts) -> Affine:
    """``form`` with such ``values``, its atoms (quotients of blocks) simplified."""
    result = Affine({}, form.constant)
    for atom, factor in form.terms.items():
        result = result.plus(affine(simplify(substitute(atom, values), facts)), factor)
    return result


def _in_runs(view: View, dim: Var, wide: int, facts: Facts) -> tuple[dict[Var, Expr], Var, Facts]:
    """``dim`` as a number of a run and an element in it, that element, and what holds then."""
    names = {v.name for v in view_variables(view)} | {dim.name}
    run, element = (var(fresh(name, names)) for name in ("run", "element"))
    runs = (facts.bounds(dim)[1] or 0) // wide + 1
    facts = facts.loop(run, const(runs)).loop(element, const(wide))
    return {dim: run * wide + element}, element, facts


def is_aligned(start: Affine, wide: int, facts: Facts) -> bool:
    """Whether runs that begin at ``start``, as `run_start` has it, do so at a multiple of ``wide``
    elements."""
    modulus, rest = facts.affine_congruence(start)
    return modulus % wide == rest % wide == 0


def even_start(view: View, dim: Var) -> Affine | None:
    """Where the elements along ``dim`` begin in memory; None where they are not all neighbours, but
    for a swizzle, which exchanges whole runs."""
    layout = replace(view.buffer.layout, swizzle=None)
    return _besides(flattened(layout.offset_of(view.index)), dim)


def _besides(form: Affine, dim: Var, step: int = 1) -> Affine | None:
    """``form`` without ``dim``; None where not all steps along that are ``step``."""
    if form.terms.get(dim, 0) != step:
        return None
    rest = Affine({atom: c for atom, c in form.terms.items() if atom is not dim}, form.constant)
    return None if any(dim in variables(atom) for atom in rest.terms) else rest


def uniform(
    compute: Compute, view: View, dim: Var, wide: int, here: Place, across: bool = False
) -> frozenset[Expr] | None:
    """The conditions that hold for all of a run of ``wide`` neighbours along ``dim`` or for none;
    None where they are not neighbours in ``view`` everywhere, or a mask cuts them apart."""
    facts = here.facts_with(compute.dims)
    if run_start(view, dim, wide, facts, across) is None:
        return None
    exprs: set[Expr] = set()
    for condition in conjuncts(view.mask):
        if dim not in variables(condition) or facts.prove(condition) is True:
            continue
        if not (_whole(condition, dim, wide, facts) or _same(condition, view, dim, wide, facts)):
            return None
        exprs.add(condition)
    return frozenset(exprs)


def _whole(condition: Expr, dim: Var, wide: int, facts: Facts) -> bool:
    """Whether ``condition`` is the same for all of a run, which begins at a multiple of ``wide``.

    ``rest + dim >= 0`` is, where ``rest`` is a multiple; ``rest - dim >= 0``, where one less than a
    multiple.
    """
    form = difference(condition)
    if form is None:
        return False
    for step, last in ((1, 0), (-1, wide - 1)):
        rest = _besides(form, dim, step)
        if rest is not None:
            modulus, remainder = facts.affine_congruence(rest)
            return modulus % wide == 0 and remainder % wide == last
    return False


def _same(condition: Expr, view: View, dim: Var, wide: int, facts: Facts) -> bool:
    """Whether ``condition`` asks for digits of ``dim`` that are the same in all of a run."""
    number, element, facts = _in_runs(view, dim, wide, facts)
    return element not in variables(simplify(substitute(condition, number), facts))


def steps(dims: Sequence[Dim], view: View) -> dict[Var, int]:
    """How far apart in memory the first two elements along each dim are."""
    offset = view.buffer.layout.offset_of(view.index)
    start: dict[Var, Expr] = dict.fromkeys(variables(offset), const(0))

    def where(place: dict[Var, Expr]) -> int:
        at = substitute(offset, place)
        return int(at.value) if isinstance(at, Const) else 0

    first = where(start)
    return {
        dim.var: abs(where({**start, dim.var: const(1)}) - first) if dim.var in start else 0
        for dim in dims
    }


def strides(compute: Compute, view: View) -> dict[str, int | None]:
    """Elements between neighbours along each dim of ``compute``, in the memory behind ``view``.

    None where they are not evenly spaced (a dim that blocks of the layout cut).
    """
    facts = Place().facts_with(compute.dims)
    offset = affine(simplify(view.buffer.layout.offset_of(view.index), facts))
    uneven: set[Var] = set()
    for atom in offset.terms:
        if not isinstance(atom, Var):
            uneven |= variables(atom)
    return {
        dim.var.name: None if dim.var in uneven else offset.terms.get(dim.var, 0)
        for dim in compute.dims
    }


def runs_along(compute: Compute, view: View, dim: str, most: int = _RUN) -> bool:
    """Whether neighbours along ``dim`` lie together in memory: all of them, or runs that are worth
    an access, of ``most`` elements or fewer: the blocks of a layout, or, where several dims are
    one, what rows of an image are multiples of."""
    if strides(compute, view).get(dim) == 1:
        return True
    wide = max(1, min(most, _RUN // view.buffer.dtype.bytes))
    facts = Place().facts_with(compute.dims)
    along = [other.var for other in compute.dims if other.var.name == dim]
    return any(
        run_start(view, variable, wide, facts, across=True) is not None for variable in along
    )
