"""`Facts`: what is known about variables at a place in a program, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tilewright.dtypes import boolean, s64
from tilewright.facts import intervals
from tilewright.facts.affine import Affine, affine
from tilewright.facts.intervals import Interval
from tilewright.facts.ranges import Ranges
from tilewright.ir.expr import Binary, Const, Expr, Select, Unary, Var, unary
from tilewright.ir.operators import COMPARISONS
from tilewright.ir.stmt import Kernel, ScalarParam, Stmt
from tilewright.ir.visit import reads_memory, variables

_Value = TypeVar("_Value")
# A scalar parameter with its bounds and its divisor.
Promise = tuple[Var, int | None, int | None, int]


class Facts(Ranges):
    """An immutable scope of knowledge: `loop`, `bind` and `assume` give larger ones.

    A variable that is introduced again hides the one of that name: what was known is forgotten.
    Conditions on memory are not kept, since a store may make them false.

    The larger scopes are remembered: the same step from the same facts gives the same object, with
    all that was found out under it. ``simplified`` and ``settled`` are where `tilewright.simplify`
    remembers its results under these facts.
    """

    __slots__ = (
        "_alternatives",
        "_inner",
        "_known",
        "_mentioned",
        "_ties",
        "promised",
        "settled",
        "simplified",
    )

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Expr, bool] = {}
        # known conditions of which one part follows once another is known to be false
        self._alternatives: tuple[Binary, ...] = ()
        self._mentioned: frozenset[Var] = frozenset()
        self._inner: dict[Expr | tuple[str, Var, Expr] | frozenset[Promise], Facts] = {}
        self._ties: list[frozenset[Var]] | None = None
        self.promised: frozenset[Promise] = frozenset()  # what these facts start from
        self.simplified: dict[Expr, Expr] = {}
        self.settled: set[Stmt] = set()  # statements that cannot be simplified further

    @staticmethod
    def empty() -> Facts:
        """The scope in which nothing is known: the one of `starting_from`, inside of it."""
        return _start.get() or Facts()

    @staticmethod
    def of(kernel: Kernel) -> Facts:
        """What holds in all of ``kernel``: the promises of its scalar parameters.

        Under `starting_from` what such a call gave, it is that again.
        """
        start = Facts.empty()
        scalars = kernel.scalars
        if not scalars:
            return start
        promised = frozenset((p.var, p.low, p.high, p.divisor) for p in scalars)
        if promised == start.promised:
            return start
        found = start._inner.get(promised)
        if found is None:
            found = start._inner[promised] = start._with_promises(scalars)
            found.promised = promised
        return found

    def _with_promises(self, scalars: Iterable[ScalarParam]) -> Facts:
        result = self
        for param in scalars:
            result = result._introducing(param.var)
            if param.dtype.is_integer:
                by = param.divisor
                low = None if param.low is None else -(-param.low // by) * by
                high = None if param.high is None else param.high // by * by
                result._ranges[param.var] = (low, high)
                if by > 1:
                    result._residues[param.var] = (by, 0)
            result._forget_answers()
        return result

    def loop(self, var: Var, extent: Expr) -> Facts:
        """Inside ``for var in range(extent)``: ``var`` is in [0, extent)."""
        key = ("loop", var, extent)
        found = self._inner.get(key)
        if found is None:
            found = self._inner[key] = self._in_loop(var, extent)
        return found

    def _in_loop(self, var: Var, extent: Expr) -> Facts:
        result = self._introducing(var)
        greatest = self.bounds(extent)[1]
        result._ranges[var] = (0, None if greatest is None else greatest - 1)
        if _is_pure(extent) and not isinstance(extent, Const):
            names = variables(extent)
            if var not in names:
                result._mentioned |= names
                result._learn_nonnegative(affine(extent).plus(Affine({var: 1}), -1).shifted(-1))
        result._forget_answers()
        return result

    def bind(self, var: Var, value: Expr) -> Facts:
        """After ``let var = value``."""
        key = ("let", var, value)
        found = self._inner.get(key)
        if found is None:
            found = self._inner[key] = self._behind_let(var, value)
        return found

    def _behind_let(self, var: Var, value: Expr) -> Facts:
        result = self._introducing(var)
        names = variables(value)
        if value.type.is_integer:
            result._ranges[var] = self.bounds(value)
            if value.type is s64:
                result._residues[var] = self.congruence(value)
                if var not in names and _is_pure(value):
                    result._lets[var] = result.expanded(affine(value))
                    result._mentioned |= names
        elif value.type is boolean:
            known = self.prove(value)
            if known is not None:
                result._known[var] = known
        result._forget_answers()
        return result

    def assume(self, condition: Expr, truth: bool = True) -> Facts:
        """Where ``condition`` holds (or, with ``truth`` false, does not)."""
        if not truth:
            condition = unary("not", condition)
        found = self._inner.get(condition)
        if found is None:
            found = self._copy()
            found._learn(condition, True)
            for alternative in found._alternatives:
                found._learn_remaining(alternative, found._known[alternative])
            found._forget_answers()
            self._inner[condition] = found
        return found

    def related(self, names: frozenset[Var]) -> frozenset[Var]:
        """``names``, and all that is tied to them by what is known, directly or through others."""
        if self._ties is None:
            self._ties = self._found_ties()
        result = names
        ties = self._ties
        while True:
            near = [tie for tie in ties if not tie.isdisjoint(result)]
            if not near:
                return result
            ties = [tie for tie in ties if tie.isdisjoint(result)]
            result = result.union(*near)

    def _found_ties(self) -> list[frozenset[Var]]:
        ties = [variables(condition) for condition in self._alternatives]
        for form in self._constraints:
            ties.append(frozenset[Var]().union(*map(variables, form.terms)))
        for name, form in self._lets.items():
            ties.append(variables(name).union(*map(variables, form.terms)))
        return ties

    # Proofs

    def prove(self, condition: Expr) -> bool | None:
        """True where ``condition`` always holds here, False where it never does, else None."""
        if isinstance(condition, Const):
            return bool(condition.value)
        known = self._known.get(condition)
        if known is not None:
            return known
        match condition:
            case Unary(op="not"):
                inner = self.prove(condition.a)
                return None if inner is None else not inner
            case Binary(op="and") | Binary(op="or"):
                return self._prove_logic(condition)
            case Binary() if condition.op in COMPARISONS and condition.a.type.is_integer:
                return self._prove_comparison(
                    condition.op, affine(condition.a) - affine(condition.b)
                )
            case Binary(op="lt") if condition.a is condition.b:
                return False
            case Select():
                return self._prove_select(condition)
            case _:
                return None

    def holds(self, condition: Expr) -> bool:
        """Whether `prove` says True; quicker where it does not, as it looks for no opposite."""
        known = self._known.get(condition)
        if known is not None:
            return known
        match condition:
            case Binary(op="and"):
                return self.holds(condition.a) and self.holds(condition.b)
            case Binary(op="lt" | "le") if condition.a.type.is_integer:
                limit = -1 if condition.op == "lt" else 0
                return self.is_at_most(affine(condition.a) - affine(condition.b), limit)
            case _:
                return self.prove(condition) is True

    def _prove_logic(self, condition: Binary) -> bool | None:
        absorbing = condition.op == "or"
        a = self.prove(condition.a)
        if a is absorbing:
            return absorbing
        b = self.prove(condition.b)
        if b is absorbing:
            return absorbing
        return None if a is None or b is None else not absorbing

    def _prove_select(self, condition: Select) -> bool | None:
        chosen = self.prove(condition.condition)
        if chosen is not None:
            return self.prove(condition.a if chosen else condition.b)
        a = self.prove(condition.a)
        return a if a is not None and a is self.prove(condition.b) else None

    def _prove_comparison(self, op: str, difference: Affine) -> bool | None:
        """Whether ``difference op 0``."""
        if op == "lt":
            return self._prove_at_most(difference, -1)
        if op == "le":
            return self._prove_at_most(difference, 0)
        equal = self._prove_zero(difference)
        if equal is None:
            return None
        return equal if op == "eq" else not equal

    def _prove_at_most(self, form: Affine, limit: int) -> bool | None:
        if self.is_at_most(form, limit):
            return True
        return False if self.is_at_most(-form, -limit - 1) else None

    def _prove_zero(self, form: Affine) -> bool | None:
        if self.is_at_most(form, -1) or self.is_at_most(-form, -1):
            return False
        modulus, remainder = self.affine_congruence(form)
        if remainder != 0:
            return False
        if modulus == 0 or (self.is_at_most(form, 0) and self.is_at_most(-form, 0)):
            return True
        return None

    # Learning: these change ``self``, and are called on a copy that nobody has seen yet.

    def _copy(self) -> Facts:
        result = Facts()
        result._ranges = dict(self._ranges)
        result._residues = dict(self._residues)
        result._constraints = self._constraints
        result._lets = dict(self._lets)
        result._known = dict(self._known)
        result._alternatives = self._alternatives
        result._mentioned = self._mentioned
        return result

    def _introducing(self, var: Var) -> Facts:
        """A copy that knows nothing about ``var`` yet."""
        result = self._copy()
        if var in self._mentioned:
            result._forget(var)
        result._mentioned |= {var}
        return result

    def _forget(self, var: Var) -> None:
        def mentions(form: Affine) -> bool:
            return any(var in variables(atom) for atom in form.terms)

        # A let over the hidden variable must still give its own range.
        for name, form in self._lets.items():
            if mentions(form):
                known = self._ranges.get(name, intervals.EVERYTHING)
                self._ranges[name] = intervals.intersection(known, self.affine_bounds(form))
        self._ranges = _without(self._ranges, var)
        self._residues = _without(self._residues, var)
        self._known = _without(self._known, var)
        self._alternatives = tuple(known for known in self._alternatives if known in self._known)
        lets = _without(self._lets, var)
        self._lets = {name: form for name, form in lets.items() if not mentions(form)}
        self._constraints = tuple(form for form in self._constraints if not mentions(form))
        self._forget_answers()

    def _learn(self, condition: Expr, truth: bool) -> None:
        match condition:
            case Const():
                return
            case Unary(op="not"):
                self._learn(condition.a, not truth)
                return
            case Binary(op="and") if truth:
                self._learn(condition.a, True)
                self._learn(condition.b, True)
                return
            case Binary(op="or") if not truth:
                self._learn(condition.a, False)
                self._learn(condition.b, False)
                return
        if not _is_pure(condition):
            return
        self._mentioned |= variables(condition)
        self._known[condition] = truth
        if isinstance(condition, Binary):
            if condition.op in COMPARISONS and condition.a.type.is_integer:
                self._learn_comparison(condition, truth)
            elif condition.op in ("and", "or") and condition not in self._alternatives:
                self._alternatives = (*self._alternatives, condition)

    def _learn_remaining(self, condition: Binary, truth: bool) -> None:
        """Of "a or b" where a is known to be false, b holds; of "not (a and b)" likewise."""
        for known, other in ((condition.a, condition.b), (condition.b, condition.a)):
            if self.prove(known) is (not truth):
                self._learn(other, truth)

    def _learn_comparison(self, condition: Binary, truth: bool) -> None:
        difference = affine(condition.a) - affine(condition.b)
        op = condition.op
        if op == "lt":
            self._learn_nonnegative(-difference.shifted(1) if truth else difference)
        elif op == "le":
            self._learn_nonnegative(-difference if truth else difference.shifted(-1))
        elif (op == "eq") == truth:
            self._learn_nonnegative(difference)
            self._learn_nonnegative(-difference)
            self._learn_congruence(condition)
        elif self.is_at_most(-difference, 0):
            self._learn_nonnegative(difference.shifted(-1))
        elif self.is_at_most(difference, 0):
            self._learn_nonnegative(-difference.shifted(1))

    def _learn_congruence(self, condition: Binary) -> None:
        """From ``x % m == r``, where ``x`` is an atom or its negation, plus a constant."""
        for side, other in ((condition.a, condition.b), (condition.b, condition.a)):
            if not (isinstance(side, Binary) and side.op == "mod" and isinstance(side.b, Const)):
                continue
            form = self.expanded(affine(side.a))
            modulus = side.b.value
            if side.type is not s64 or not isinstance(other, Const) or modulus <= 0:
                continue
            if len(form.terms) != 1:
                continue
            ((atom, coefficient),) = form.terms.items()
            if abs(coefficient) == 1:
                known = self._residues.get(atom, (1, 0))[0]
                if known != 0 and modulus > known:
                    remainder = (other.value - form.constant) * coefficient % modulus
                    self._residues[atom] = (modulus, remainder)

    def _learn_nonnegative(self, form: Affine, depth: int = 4) -> None:
        """``form`` is at least 0."""
        form = self.expanded(form)
        if not form.terms or depth == 0:
            return
        form = form.divided(form.content)
        for atom, coefficient in form.terms.items():
            # A limit by a min is a limit by each of the two.
            if not isinstance(atom, Binary) or atom.type is not s64:
                continue
            if atom.op == ("min" if coefficient > 0 else "max"):
                self._learn_nonnegative(form.replaced({atom: affine(atom.a)}), depth - 1)
                self._learn_nonnegative(form.replaced({atom: affine(atom.b)}), depth - 1)
                break
        if len(form.terms) > 1 and form not in self._constraints:
            self._constraints = (*self._constraints, form)
        self._forget_answers()
        for atom, coefficient in form.terms.items():
            rest = Affine({a: c for a, c in form.terms.items() if a is not atom}, form.constant)
            most = self._interval(rest)[1]
            if most is None:
                continue
            # coefficient * atom >= -most
            lower: Interval = (-(most // coefficient), None)
            upper: Interval = (None, most // -coefficient)
            self._learn_range(atom, lower if coefficient > 0 else upper, depth)

    def _learn_range(self, atom: Expr, limit: Interval, depth: int) -> None:
        known = self._ranges.get(atom, intervals.EVERYTHING)
        narrowed = intervals.intersection(known, limit)
        if narrowed == known:
            return
        self._ranges[atom] = narrowed
        self._forget_answers()
        if not (isinstance(atom, Binary) and atom.op == "floordiv" and atom.type is s64):
            return
        if not isinstance(atom.b, Const) or atom.b.value <= 0:
            return
        by, dividend = atom.b.value, affine(atom.a)
        if limit[0] is not None:
            self._learn_nonnegative(dividend.shifted(-by * limit[0]), depth - 1)
        if limit[1] is not None:
            self._learn_nonnegative((-dividend).shifted(by * limit[1] + by - 1), depth - 1)


_start: ContextVar[Facts | None] = ContextVar("tilewright.facts.start", default=None)


@contextmanager
def starting_from(facts: Facts) -> Iterator[None]:
    """Inside it, ``facts`` are what `Facts.empty` gives.

    The kernels of one compilation have most loops and expressions in common: what was found out for
    one of them is there for the next, in whatever transform it is asked for.
    """
    token = _start.set(facts)
    try:
        yield
    finally:
        _start.reset(token)


def _is_pure(expr: Expr) -> bool:
    """Whether the value depends on variables only, not on memory."""
    return not reads_memory(expr)


def _without(table: dict[Expr, _Value], var: Var) -> dict[Expr, _Value]:
    """The entries whose key does not mention ``var``."""
    return {key: value for key, value in table.items() if var not in variables(key)}
