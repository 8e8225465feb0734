"""Who touches an element: proofs that one work-item does, or one workgroup, and that it is written
before it is read.

An element is known by its index, in each dim a sum of the loops over workgroups and work-items, of
numbers that are the same everywhere, and of what is left, which has bounds. Two accesses meet at an
element only if all these sums are equal. Steps of loops are compared like the digits of a number:
where each is longer than all that the shorter ones and what is left can reach, they are equal, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

from tilewright.facts.affine import Affine, affine
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Unary, Var, conjuncts, const, unary
from tilewright.ir.stmt import Compute, For, Let, Stmt, While
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import loads_in, reads_memory, substitute, variables
from tilewright.schedule.fusion.widened import widened
from tilewright.schedule.queries.access import Access, accesses
from tilewright.schedule.queries.digits import numbers
from tilewright.schedule.queries.place import Place
from tilewright.simplify import simplify


class Branch(NamedTuple):
    """A condition, as it is written (but for names), and what tells one place where it is asked
    from another."""

    condition: Expr
    written: Expr
    asked: object


@dataclass(frozen=True, eq=False)
class Reach:
    """An access of the ``member`` of that number, the one at ``position`` among all."""

    access: Access
    member: int
    position: int

    @property
    def writes(self) -> bool:
        return self.access.writes

    @cached_property
    def forms(self) -> tuple[Affine, ...]:
        """The index, with what its names stand for."""
        place = self.access.place
        return tuple(form_of(index, place) for index in self.access.view.index)

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """What holds wherever the access is made, with what names stand for, and where that is
        asked."""
        place: Place | None = self.access.place
        mask = self.access.view.mask
        result = [] if mask is None else [_branch(mask, self.access.place, self)]
        while place is not None:
            if isinstance(place.entered, Expr):
                result.append(_branch(place.entered, place.outer or Place(), place.outer))
            place = place.outer
        return tuple(result)

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """What holds wherever the access is made."""
        return tuple(part for branch in self.branches for part in conjuncts(branch.condition))

    @cached_property
    def facts(self) -> Facts:
        return reduce(Facts.assume, self.conditions, self.access.facts)

    @property
    def loops(self) -> tuple[tuple[Var, Expr], ...]:
        """The loops and dims around the access, with their extents."""
        stmt = self.access.stmt
        dims = stmt.dims if isinstance(stmt, Compute) else ()
        loops = [(loop.var, loop.extent) for loop in self.access.place.loops]
        return (*loops, *((dim.var, dim.extent) for dim in dims))


def expanded(expr: Expr, place: Place) -> Expr:
    """``expr`` with the values of names that depend on no memory."""
    at: Place | None = place
    while at is not None:
        step = at.entered
        if isinstance(step, Let) and step.var in variables(expr) and not reads_memory(step.value):
            expr = substitute(expr, {step.var: step.value})
        at = at.outer
    return expr


def form_of(index: Expr, place: Place) -> Affine:
    """``index`` at ``place`` as a sum, with what names stand for."""
    return affine(_numbered(index, place))


def _numbered(expr: Expr, place: Place) -> Expr:
    facts = _of_loops(place)
    by_names = simplify(widened(expr, facts), facts)
    return simplify(widened(expanded(by_names, place), facts), facts)


def _of_loops(place: Place) -> Facts:
    """What holds at ``place`` whatever the conditions around it: under ``i == 2``, an ``i`` stays
    an ``i``, so that all accesses say in the same words whose element it is."""
    facts = Facts.empty()
    for step in place.steps:
        if isinstance(step, For):
            facts = facts.loop(step.var, step.extent)
        elif isinstance(step, Let):
            facts = facts.bind(step.var, step.value)
    return facts


def _branch(condition: Expr, place: Place, asked: object) -> Branch:
    return Branch(_numbered(condition, place), expanded(condition, place), asked)


def _negated(condition: Expr) -> Expr:
    if isinstance(condition, Unary) and condition.op == "not":
        return condition.a
    return unary("not", condition)


def reaches(bodies: Sequence[Stmt], place: Place) -> Iterator[Reach]:
    """The accesses of all ``bodies``, which stand at ``place`` one after the other. Those of a
    statement come in the order in which they are made: what is stored last."""
    position = 0
    for member, body in enumerate(bodies):
        pending: list[Access] = []
        for access in accesses(body, place):
            if pending and pending[-1].stmt is not access.stmt:
                yield from _in_order(pending, member, position)
                position += len(pending)
                pending = []
            pending.append(access)
        yield from _in_order(pending, member, position)
        position += len(pending)


def _in_order(touching: Sequence[Access], member: int, position: int) -> Iterator[Reach]:
    for offset, access in enumerate(sorted(touching, key=lambda access: access.writes)):
        yield Reach(access, member, position + offset)


def apart(a: Reach, b: Reach, owners: Sequence[For]) -> bool:
    """Whether ``a`` and ``b`` touch a common element only in the same iteration of ``owners``."""
    equal = {loop.var for loop in owners if _width(loop.var, a, b) == 0}
    pairs = list(zip(a.forms, b.forms, strict=True))
    pairs += [(number, number) for number in _numbers(a, b)]
    wanted = {loop.var for loop in owners}
    while equal != wanted:
        more: set[Var] = set()
        for first, second in pairs:
            more |= _equal_owners(first, second, a, b, wanted, equal)
        if more <= equal:
            return False
        equal |= more
    return True


def _numbers(a: Reach, b: Reach) -> list[Affine]:
    """Numbers whose digits both indices have in the same dims."""
    pairs = zip(a.forms, b.forms, strict=True)
    return numbers(first.to_expr() for first, second in pairs if first == second)


def _equal_owners(
    first: Affine, second: Affine, a: Reach, b: Reach, owners: set[Var], same: set[Var]
) -> set[Var]:
    """The ``owners`` that are equal where the two forms are."""
    one, two = Split.of(first, owners), Split.of(second, owners)
    if one is None or two is None or one.owner != two.owner or one.fixed != two.fixed:
        return set()
    (low_a, high_a), (low_b, high_b) = one.bounds(a), two.bounds(b)
    if low_a is None or high_a is None or low_b is None or high_b is None:
        return set()
    reach: int | None = max(high_a - low_b, high_b - low_a)
    longer: list[tuple[Var, bool]] = []
    for variable, step in sorted(one.owner.items(), key=lambda term: abs(term[1])):
        if variable in same:
            continue
        longer.append((variable, reach is not None and abs(step) > reach))
        width = _width(variable, a, b)
        reach = None if reach is None or width is None else reach + abs(step) * width
    equal: set[Var] = set()
    for variable, is_longer in reversed(longer):
        if not is_longer:
            break
        equal.add(variable)
    return equal


def _width(variable: Var, a: Reach, b: Reach) -> int | None:
    """How far two values of ``variable`` are apart at most."""
    bounds = [*a.facts.bounds(variable), *b.facts.bounds(variable)]
    numbers_known = [bound for bound in bounds if bound is not None]
    return max(numbers_known) - min(numbers_known) if len(numbers_known) == 4 else None


@dataclass(frozen=True)
class Split:
    """The parts of a form: terms of ``owner`` loops, terms that are the same everywhere, and the
    rest."""

    owner: dict[Var, int]
    fixed: dict[Expr, int]
    rest: Affine

    @staticmethod
    def of(form: Affine, owners: Set[Var]) -> Split | None:
        """The parts of ``form``; None where it is not linear in ``owners``."""
        owner: dict[Var, int] = {}
        fixed: dict[Expr, int] = {}
        rest: dict[Expr, int] = {}
        scalars = {scalar[0] for scalar in Facts.empty().promised}
        for atom, factor in form.terms.items():
            if isinstance(atom, Var) and atom in owners:
                owner[atom] = factor
            elif variables(atom) & owners:
                return None
            elif variables(atom) <= scalars and not reads_memory(atom):
                fixed[atom] = factor
            else:
                rest[atom] = factor
        return Split(owner, fixed, Affine(rest, form.constant))

    def bounds(self, reach: Reach) -> tuple[int | None, int | None]:
        """Between which numbers the rest is."""
        return reach.facts.bounds(self.rest.to_expr())


def written_before(
    read: Reach, writes: Sequence[Reach], owners: Sequence[For], written: Sequence[Set[Buffer]]
) -> bool:
    """Whether each element that ``read`` reads was written by one of ``writes`` before, in the same
    iteration of ``owners``. ``written`` is the memory that changes in each member."""
    earlier = [write for write in writes if write.position < read.position]
    variables_equal = {loop.var for loop in owners}
    return _Cover(read, variables_equal, written).by(earlier, read.facts, frozenset())


# A condition that holds where it is asked.
_Taken = tuple[Expr, object]


@dataclass(frozen=True)
class _Cover:
    """Proves that what ``read`` reads was written before."""

    read: Reach
    owners: set[Var]
    written: Sequence[Set[Buffer]]

    def by(self, writes: Sequence[Reach], facts: Facts, taken: frozenset[_Taken]) -> bool:
        """Whether one of ``writes`` did, where ``facts`` hold, and branches were ``taken``."""
        for number, write in enumerate(writes):
            values = _places(self.read, write, self.owners, facts)
            if values is None:
                continue
            branches = [
                branch._replace(condition=substitute(branch.condition, values))
                for branch in write.branches
            ]
            unmet = [branch for branch in branches if not self._holds(branch, facts, taken)]
            if not unmet:
                return True
            if len(unmet) > 1 or (values and reads_memory(unmet[0].condition)):
                continue
            if self._changes(unmet[0].condition, self.written[write.member]):
                continue
            # Where the condition does not hold, another may have written.
            ((condition, as_written, asked),) = unmet
            others = [*writes[:number], *writes[number + 1 :]]
            elsewhere = taken | {(_negated(as_written), asked)}
            return self.by(others, facts.assume(condition, truth=False), elsewhere)
        return False

    def _holds(self, branch: Branch, facts: Facts, taken: frozenset[_Taken]) -> bool:
        return (branch.written, branch.asked) in taken or all(
            self._is_known(part, facts) for part in conjuncts(branch.condition)
        )

    def _is_known(self, condition: Expr, facts: Facts) -> bool:
        if condition in self.read.conditions:
            return not any(self._changes(condition, abstract_set) for abstract_set in self.written)
        return facts.holds(simplify(condition, facts))

    def _changes(self, condition: Expr, written: Set[Buffer]) -> bool:
        return any(load.buffer in written for load in loads_in(condition))


def _places(read: Reach, write: Reach, owners: set[Var], facts: Facts) -> Mapping[Var, Expr] | None:
    """The iterations of the loops around ``write`` in which it writes what ``read`` reads; None
    where there need be none."""
    steps = read.access.place.steps
    if any(isinstance(s, While) and s not in steps for s in write.access.place.steps):
        return None
    fixed = {
        loop.var
        for loop in write.access.place.loops
        if loop.var in owners or (loop in read.access.place.loops and loop.kind not in THREADS)
    }
    loops = {v: extent for v, extent in write.loops if v not in fixed}
    values: dict[Var, Expr] = {}
    for mine, wanted in zip(write.forms, read.forms, strict=True):
        terms = {a: c for a, c in mine.terms.items() if a in loops}
        target = wanted.plus(Affine({a: c for a, c in mine.terms.items() if a not in loops}), -1)
        target = target.shifted(-mine.constant)
        if any(variables(atom) & loops.keys() for atom in mine.terms if atom not in terms):
            return None
        digits = _digits(terms, target, loops, facts)
        if digits is None or values.keys() & digits.keys():
            return None
        values |= digits
    for variable, extent in loops.items():
        place = values.get(variable, const(0))
        last = substitute(extent, values)
        if not (facts.holds(const(-1) < place) and facts.holds(place < last)):
            return None
    return values


def _digits(
    terms: Mapping[Expr, int], target: Affine, loops: Mapping[Var, Expr], facts: Facts
) -> dict[Var, Expr] | None:
    """The values of the variables in ``terms`` for which their sum is ``target``."""
    if not terms:
        return {} if facts.prove(target.to_expr() == const(0)) else None
    weight, values = 1, dict[Var, Expr]()
    ordered = sorted(terms.items(), key=lambda term: term[1])
    for position, (variable, step) in enumerate(ordered):
        assert isinstance(variable, Var)
        if step != weight:
            return None
        digit = target.to_expr() // weight
        if position < len(ordered) - 1:
            extent = loops[variable]
            if not isinstance(extent, Const):
                return None
            digit = digit % int(extent.value)
            weight *= int(extent.value)
        values[variable] = simplify(digit, facts)
    return values
