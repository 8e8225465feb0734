"""`Facts`: bounds, congruences and conditions that hold at a place in a program, and proofs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tilewright.dtypes import boolean, s64
from tilewright.facts.affine import Affine, affine, is_wide
from tilewright.facts.ranges import Ranges
from tilewright.ir import intervals
from tilewright.ir.expr import Binary, Const, Expr, Select, Unary, Var, unary
from tilewright.ir.intervals import Interval
from tilewright.ir.operators import COMPARISONS
from tilewright.ir.stmt import Kernel, ScalarParam, Stmt
from tilewright.ir.visit import reads_memory, variables

_Value = TypeVar("_Value")
# A scalar parameter with its bounds and its divisor.
Promise = tuple[Var, int | None, int | None, int]


class Facts(Ranges):
    """An immutable scope of facts: `loop`, `bind` and `assume` give larger ones.

    A variable that is introduced again hides the one of that name: facts about that are dropped.
    Conditions on memory are not kept, since a store may make them false.

    Larger scopes are cached: the same step from the same facts gives the same object, with all that
    was derived under it. ``simplified`` and ``settled`` are caches of `tilewright.simplify`.
    """

    __slots__ = (
        "_alternatives",
        "_inner",
        "_mentioned",
        "_ties",
        "_truths",
        "promised",
        "settled",
        "simplified",
    )

    def __init__(self) -> None:
        super().__init__()
        self._truths: dict[Expr, bool] = {}
        # Disjunctions that hold: where one side is disproved, the other follows.
        self._alternatives: tuple[Binary, ...] = ()
        self._mentioned: frozenset[Var] = frozenset()
        self._inner: dict[Expr | tuple[str, Var, Expr] | frozenset[Promise], Facts] = {}
        self._ties: list[frozenset[Var]] | None = None
        self.promised: frozenset[Promise] = frozenset()  # promises that the facts start from
        self.simplified: dict[Expr, Expr] = {}
        self.settled: set[Stmt] = set()  # statements that cannot be simplified further

    @staticmethod
    def empty() -> Facts:
        """The scope without facts; inside of `starting_from`, that one's."""
        return _start.get() or Facts()

    @staticmethod
    def of(kernel: Kernel) -> Facts:
        """What holds in all of ``kernel``: the promises of its scalar parameters.

        Inside of `starting_from` a scope with these promises, that scope itself.
        """
        start = Facts.empty()
        scalars = kernel.scalars
        if not scalars:
            return start
        promised = frozenset((p.var, p.low, p.high, p.divisor) for p in scalars)
        if promised == start.promised:
            return start
        inner = start._inner.get(promised)
        if inner is None:
            inner = start._inner[promised] = start._with_promises(scalars)
            inner.promised = promised
        return inner

    def promising(self, scalars: Sequence[ScalarParam]) -> Facts:
        """The same, and what ``scalars`` promise."""
        return self._with_promises(scalars) if scalars else self

    def _with_promises(self, scalars: Iterable[ScalarParam]) -> Facts:
        result = self
        for param in scalars:
            result = result._introducing(param.var)
            if param.dtype.is_integer:
                result._ranges[param.var] = param.range
                if param.divisor > 1:
                    result._residues[param.var] = (param.divisor, 0)
            result._forget_answers()
        return result

    def loop(self, var: Var, extent: Expr) -> Facts:
        """Inside ``for var in range(extent)``: ``var`` is in [0, extent)."""
        key = ("loop", var, extent)
        inner = self._inner.get(key)
        if inner is None:
            inner = self._inner[key] = self._in_loop(var, extent)
        return inner

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
        """After ``let var = value``, or in a compute whose operand ``var`` is that load."""
        key = ("let", var, value)
        inner = self._inner.get(key)
        if inner is None:
            inner = self._inner[key] = self._after_let(var, value)
        return inner

    def _after_let(self, var: Var, value: Expr) -> Facts:
        result = self._introducing(var)
        names = variables(value)
        if value.type.is_integer:
            result._ranges[var] = self.bounds(value)
            if value.type is s64:
                if is_wide(value, self.wide):
                    result.wide |= {var}
                result._residues[var] = self.congruence(value)
                if var not in names and _is_pure(value):
                    result._lets[var] = result.expanded(affine(value))
                    result._mentioned |= names
        elif value.type is boolean:
            truth = self.prove(value)
            if truth is not None:
                result._truths[var] = truth
        result._forget_answers()
        return result

    def assume(self, condition: Expr, truth: bool = True) -> Facts:
        """Where ``condition`` holds (or, with ``truth`` false, does not)."""
        if not truth:
            condition = unary("not", condition)
        inner = self._inner.get(condition)
        if inner is None:
            inner = self._copy()
            inner._learn(condition, True)
            for alternative in inner._alternatives:
                inner._learn_remaining(alternative, inner._truths[alternative])
            inner._forget_answers()
            self._inner[condition] = inner
        return inner

    def related(self, names: frozenset[Var]) -> frozenset[Var]:
        """``names``, and all variables that facts tie to them, directly or through others."""
        if self._ties is None:
            self._ties = self._collected_ties()
        result = names
        ties = self._ties
        while True:
            near = [tie for tie in ties if not tie.isdisjoint(result)]
            if not near:
                return result
            ties = [tie for tie in ties if tie.isdisjoint(result)]
            result = result.union(*near)

    def _collected_ties(self) -> list[frozenset[Var]]:
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
        truth = self._truths.get(condition)
        if truth is not None:
            return truth
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
        """Whether `prove` gives True; quicker where it does not, as it tries no disproof."""
        truth = self._truths.get(condition)
        if truth is not None:
            return truth
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

    # Learning: these change ``self``, which is a copy that is not shared yet.

    def _copy(self) -> Facts:
        result = Facts()
        result._ranges = dict(self._ranges)
        result._residues = dict(self._residues)
        result._constraints = self._constraints
        result._lets = dict(self._lets)
        result.wide = self.wide
        result._truths = dict(self._truths)
        result._alternatives = self._alternatives
        result._mentioned = self._mentioned
        return result

    def _introducing(self, var: Var) -> Facts:
        """A copy without facts about ``var``."""
        result = self._copy()
        if var in self._mentioned:
            result._forget(var)
        result.wide -= {var}
        result._mentioned |= {var}
        return result

    def _forget(self, var: Var) -> None:
        def mentions(form: Affine) -> bool:
            return any(var in variables(atom) for atom in form.terms)

        # A let whose value mentions the hidden variable keeps its own range.
        for name, form in self._lets.items():
            if mentions(form):
                bounds = self._ranges.get(name, intervals.EVERYTHING)
                self._ranges[name] = intervals.intersection(bounds, self.affine_bounds(form))
        self._ranges = _without(self._ranges, var)
        self._residues = _without(self._residues, var)
        self._truths = _without(self._truths, var)
        self._alternatives = tuple(
            condition for condition in self._alternatives if condition in self._truths
        )
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
        self._truths[condition] = truth
        if isinstance(condition, Binary):
            if condition.op in COMPARISONS and condition.a.type.is_integer:
                self._learn_comparison(condition, truth)
            elif condition.op in ("and", "or") and condition not in self._alternatives:
                self._alternatives = (*self._alternatives, condition)

    def _learn_remaining(self, condition: Binary, truth: bool) -> None:
        """From "a or b" and not a follows b; from "not (a and b)" and a follows not b."""
        for decided, other in ((condition.a, condition.b), (condition.b, condition.a)):
            if self.prove(decided) is (not truth):
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
                old_modulus = self._residues.get(atom, (1, 0))[0]
                if old_modulus != 0 and modulus > old_modulus:
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
        old = self._ranges.get(atom, intervals.EVERYTHING)
        narrowed = intervals.intersection(old, limit)
        if narrowed == old:
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
    """Inside of it, `Facts.empty` gives ``facts``.

    The kernels of one compilation have most loops and expressions in common: what is derived for
    one of them is cached for the next, in whatever transform.
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
