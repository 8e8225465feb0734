"""Whether the iterations of a loop touch different memory."""

from __future__ import annotations

from tilewright.facts.affine import Affine, affine
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var, conjuncts
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Compute, For, Let
from tilewright.ir.visit import variables
from tilewright.schedule.access import Access, accesses, buffers_allocated
from tilewright.schedule.digits import numbers
from tilewright.schedule.place import Place


def shared_accesses(loop: For, place: Place) -> dict[Buffer, list[Access]]:
    """What the iterations of ``loop`` could get in each other's way with.

    Per buffer that the body writes and does not itself allocate: all accesses.
    """
    inside = place.inside(loop)
    own = buffers_allocated(loop.body)
    found: dict[Buffer, list[Access]] = {}
    for access in accesses(loop.body, inside):
        if access.view.buffer not in own:
            found.setdefault(access.view.buffer, []).append(access)
    return {b: a for b, a in found.items() if any(access.writes for access in a)}


def conflict(loop: For, place: Place) -> Access | None:
    """An access through which two iterations may touch one element that one of them writes.

    None is a proof that there is none. What is proven: in some dim of each written buffer, or for a
    number whose digits several dims are, the index is ``step * var + rest`` in every access, with
    the same terms of variables from outside of the loop, and what varies inside stays within one
    step.
    """
    for found in shared_accesses(loop, place).values():
        if not _apart(loop, place, found):
            return next(a for a in found if a.writes)
    return None


def _apart(loop: For, place: Place, found: list[Access]) -> bool:
    """Whether some index, or number in digits, keeps the iterations apart in all accesses."""
    dims = range(len(found[0].view.index))
    if any(_separated(loop, place, found, [affine(a.view.index[d]) for a in found]) for d in dims):
        return True
    # Digits tell the number only if all accesses have the same ones in the same dims.
    index = found[0].view.index
    if any(access.view.index != index for access in found):
        return False
    return any(_separated(loop, place, found, [n] * len(found)) for n in numbers(index))


def accumulates_only(loop: For, place: Place) -> bool:
    """Whether all that iterations share are results that are accumulated: their order is free."""
    return all(
        access.writes and access.combiner is not None and access.combiner == found[0].combiner
        for found in shared_accesses(loop, place).values()
        for access in found
    )


def conflict_text(access: Access, var: Var) -> str:
    """Why `conflict` gave that access."""
    return (
        f"{headline(access.stmt)} writes {to_text(access.view)}, which is not proven to be "
        f"another element for each {var.name}"
    )


def _separated(loop: For, place: Place, found: list[Access], index: list[Affine]) -> bool:
    """Whether ``index``, one for each access, keeps the iterations apart."""
    outside = place.names
    step: int | None = None
    fixed: Affine | None = None
    least = greatest = 0
    for access, form in zip(found, index, strict=True):
        inner = _without_lets(access, form, place)
        if inner is None:
            return False
        coefficient = inner.terms.get(loop.var, 0)
        terms = {a: c for a, c in inner.terms.items() if a is not loop.var}
        outer = {a: c for a, c in terms.items() if _names(a) <= outside}
        varying = {a: c for a, c in terms.items() if a not in outer}
        if any(loop.var in variables(a) for a in terms):
            return False
        facts = access.place.facts
        if isinstance(access.stmt, Compute):
            facts = access.place.facts_with(access.stmt.dims)
        for condition in conjuncts(access.view.mask):
            facts = facts.assume(condition)
        low, high = facts.bounds(Affine(varying, inner.constant).to_expr())
        if low is None or high is None or coefficient == 0:
            return False
        if step is None or fixed is None:
            step, fixed, least, greatest = coefficient, Affine(outer), low, high
        elif step != coefficient or fixed != Affine(outer):
            return False
        least, greatest = min(least, low), max(greatest, high)
    return step is not None and greatest - least < abs(step)


def _without_lets(access: Access, form: Affine, place: Place) -> Affine | None:
    """``form`` with lets inside the loop put in; None where they are not linear."""
    for step in reversed(access.place.steps[len(place.steps) :]):
        if isinstance(step, Let) and step.var in form.terms:
            if not step.value.type.is_integer:
                return None
            form = form.replaced({step.var: affine(step.value)})
    return form


def _names(expr: Expr) -> set[str]:
    return {v.name for v in variables(expr)}
