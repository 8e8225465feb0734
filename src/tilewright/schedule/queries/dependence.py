"""Whether the iterations of a loop touch different memory."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.facts.affine import Affine, affine
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import For, Let, Opaque
from tilewright.ir.visit import loads_in, variables
from tilewright.schedule.queries.access import Access, accesses, buffers_allocated, buffers_written
from tilewright.schedule.queries.digits import numbers
from tilewright.schedule.queries.place import Place


def shared_accesses(loop: For, place: Place) -> dict[Buffer, list[Access]]:
    """What the iterations of ``loop`` could get in each other's way with.

    Per buffer that the body writes and does not itself allocate: all accesses.
    """
    inside = place.inside(loop)
    buffers = buffers_allocated(loop.body)
    accesses_of: dict[Buffer, list[Access]] = {}
    for access in accesses(loop.body, inside):
        if access.view.buffer not in buffers:
            accesses_of.setdefault(access.view.buffer, []).append(access)
    return {b: a for b, a in accesses_of.items() if any(access.writes for access in a)}


def conflict(loop: For, place: Place) -> Access | None:
    """An access through which two iterations may touch one element that one of them writes.

    None is a proof that there is none. What is proven: in some dim of each written buffer, or for a
    number whose digits several dims are, or for a digit of one of these, the index is
    ``step * var + rest`` in every access, with the same terms from outside of the loop, and what
    varies inside stays within one step. Atomic updates by one operator may meet at an element.
    """
    for shared_access in shared_accesses(loop, place).values():
        if not _only_atomic(shared_access) and not _apart(loop, place, shared_access):
            return next(a for a in shared_access if a.writes)
    return None


def _only_atomic(touching: list[Access]) -> bool:
    return all(access.atomic and access.combiner == touching[0].combiner for access in touching)


def _apart(loop: For, place: Place, touching: list[Access]) -> bool:
    """Whether some index, or number in digits, keeps the iterations apart in all accesses."""
    dims = range(len(touching[0].view.index))
    if any(
        _separated(loop, place, touching, [affine(a.view.index[d]) for a in touching]) for d in dims
    ):
        return True
    # Digits tell the number only if all accesses have the same ones in the same dims.
    index = touching[0].view.index
    same = [index[d] for d in dims if all(a.view.index[d] is index[d] for a in touching)]
    facts = [access.facts for access in touching]
    parts = [part for expr in same for part in (expr, *_parts(affine(expr), facts))]
    return any(_separated(loop, place, touching, [n] * len(touching)) for n in numbers(parts))


def _parts(form: Affine, facts: list[Facts]) -> Iterator[Expr]:
    """What ``form`` tells besides itself: both ``a`` and ``b`` of ``w * a + b``, where all of
    ``facts`` say that ``b`` is less than ``w``."""
    for weight in sorted({abs(c) for c in form.terms.values()} - {1}):
        upper = {a: c // weight for a, c in form.terms.items() if c % weight == 0}
        rest = {a: c for a, c in form.terms.items() if c % weight}
        lower = Affine(rest, form.constant % weight)
        values = _values([lower] * len(facts), facts) if rest else None
        if values is None or values.start < 0:
            continue
        if all(fact.is_at_most(lower, weight - 1) for fact in facts):
            yield Affine(upper, form.constant // weight).to_expr()
            yield lower.to_expr()


def accumulates_only(loop: For, place: Place) -> bool:
    """Whether all that iterations share are results that are accumulated: their order is free."""
    return all(
        access.writes
        and access.combiner is not None
        and access.combiner == shared_access[0].combiner
        for shared_access in shared_accesses(loop, place).values()
        for access in shared_access
    )


def conflict_text(access: Access, var: Var) -> str:
    """Why `conflict` gave that access."""
    if isinstance(access.stmt, Opaque):
        return f"`{headline(access.stmt)}` may write any element of {access.view.buffer.name}"
    return (
        f"{headline(access.stmt)} writes {to_text(access.view)}, which is not proven to be "
        f"another element for each {var.name}"
    )


def _separated(loop: For, place: Place, touching: list[Access], index: list[Affine]) -> bool:
    """Whether ``index``, one for each access, keeps the iterations apart."""
    forms: list[Affine] = []
    for access, form in zip(touching, index, strict=True):
        inner = _without_lets(access, form, place)
        if inner is None:
            return False
        forms.append(inner)
    facts = [access.facts for access in touching]
    return any(_steps(loop, place, part, facts) for part in _determined(forms, facts))


def _determined(forms: list[Affine], facts: list[Facts]) -> Iterator[list[Affine]]:
    """``forms``, and their digits: two of ``w * a + b`` are equal only if their ``b`` are, where
    that has values of a range of ``w`` only."""
    yield forms
    weights = {abs(c) for form in forms for c in form.terms.values()}
    for weight in sorted(weights - {1}):
        lower = [
            Affine({a: c for a, c in form.terms.items() if c % weight}, form.constant)
            for form in forms
        ]
        values = _values(lower, facts)
        if values is not None and len(values) <= weight:
            yield lower


def _values(forms: list[Affine], facts: list[Facts]) -> range | None:
    """From the least to the greatest value that one of the forms has; None where there is none."""
    least: list[int] = []
    greatest: list[int] = []
    for form, fact in zip(forms, facts, strict=True):
        low, high = fact.bounds(form.to_expr())
        if low is None or high is None:
            return None
        least.append(low)
        greatest.append(high)
    return range(min(least), max(greatest) + 1)


def _steps(loop: For, place: Place, forms: list[Affine], facts: list[Facts]) -> bool:
    """Whether all forms are one step of the loop times its variable, and vary less inside."""
    outside = place.names
    written = buffers_written(loop.body)
    common: set[tuple[int, Affine]] = set()
    inside: list[Affine] = []
    for form in forms:
        terms = {a: c for a, c in form.terms.items() if a is not loop.var}
        if any(loop.var in variables(a) for a in terms):
            return False
        outer = {a: c for a, c in terms.items() if _is_fixed(a, outside, written)}
        common.add((form.terms.get(loop.var, 0), Affine(outer)))
        inside.append(Affine({a: c for a, c in terms.items() if a not in outer}, form.constant))
    if len(common) != 1:
        return False
    ((step, _),) = common
    values = _values(inside, facts)
    return values is not None and len(values) <= abs(step)


def _is_fixed(expr: Expr, outside: frozenset[str], written: set[Buffer]) -> bool:
    """Whether ``expr`` is the same in all iterations of a loop that writes those buffers."""
    loads = {part.buffer for part in loads_in(expr)}
    return _names(expr) <= outside and not loads & written


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
