"""Bounds and congruences of expressions that follow from a set of facts.

`Ranges` holds the facts and answers; `tilewright.facts.scope.Facts` adds to them. Every answer is
sound; where the facts contradict each other (unreachable code), any answer is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import gcd

from tilewright.dtypes import DType, boolean, s64, u64
from tilewright.facts.affine import Affine, affine
from tilewright.ir import intervals
from tilewright.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var
from tilewright.ir.intervals import EVERYTHING, Interval

# How many constraints are combined to bound a sum.
BOUND_DEPTH = 1
PROOF_DEPTH = 3


class Ranges:
    """Ranges and congruences of atoms, and inequalities between them."""

    __slots__ = (
        "_answers",
        "_atom_answers",
        "_by_atom",
        "_constraints",
        "_lets",
        "_ranges",
        "_residues",
        "_upper_answers",
        "wide",
    )

    def __init__(self) -> None:
        self._ranges: dict[Expr, Interval] = {}
        # modulus, remainder: the value is `remainder` modulo `modulus`
        self._residues: dict[Expr, tuple[int, int]] = {}
        # each is at least 0
        self._constraints: tuple[Affine, ...] = ()
        # the values of lets, free of other lets' names
        self._lets: dict[Expr, Affine] = {}
        # names of numbers that may be as large as 2^63 (`affine.is_wide`)
        self.wide: frozenset[Var] = frozenset()
        self._forget_answers()

    def _forget_answers(self) -> None:
        self._by_atom: dict[Expr, list[tuple[int, Affine]]] | None = None
        self._answers: dict[Expr, Interval] = {}
        self._atom_answers: dict[Expr, Interval] = {}
        self._upper_answers: dict[tuple[Affine, int], int | None] = {}

    # Bounds

    def bounds(self, expr: Expr) -> Interval:
        """The least and greatest value of an integer or bool expression; None where unknown."""
        cached = self._answers.get(expr)
        if cached is None:
            cached = self._answers[expr] = self._bounds(expr)
        return cached

    def _bounds(self, expr: Expr) -> Interval:
        if isinstance(expr, Const) or not expr.type.is_integer:
            return self._plain_bounds(expr)
        return self.affine_bounds(affine(expr))

    def affine_bounds(self, form: Affine, depth: int = BOUND_DEPTH) -> Interval:
        """The least and greatest value of a sum."""
        form = self.expanded(form)
        if not self._is_constrained(form):
            return self._interval(form)
        lower = self._upper(-form, depth)
        return (None if lower is None else -lower, self._upper(form, depth))

    def upper(self, form: Affine, depth: int = PROOF_DEPTH) -> int | None:
        """The least known upper bound of a sum, found with more effort than `affine_bounds`."""
        return self._upper(self.expanded(form), depth)

    def is_at_most(self, form: Affine, limit: int) -> bool:
        """Whether the sum is known to be at most ``limit``."""
        form = self.expanded(form)
        quick = self._interval(form)[1]
        if quick is not None and quick <= limit:
            return True
        if not self._is_constrained(form):
            return False
        # One step at a time: most proofs need one constraint.
        for depth in range(1, PROOF_DEPTH + 1):
            bound = self._upper(form, depth)
            if bound is not None and bound <= limit:
                return True
        return False

    def expanded(self, form: Affine) -> Affine:
        """``form`` with the names of lets replaced by their values."""
        return form.replaced(self._lets) if self._lets else form

    def _is_constrained(self, form: Affine) -> bool:
        """Whether facts other than the ranges of its atoms bear on the sum."""
        if not form.terms:
            return False
        by_atom = self._constraints_by_atom()
        return any(atom in by_atom or _has_relations(atom) for atom in form.terms)

    def _constraints_by_atom(self) -> dict[Expr, list[tuple[int, Affine]]]:
        """For each atom, the constraints on it and its coefficient in each."""
        if self._by_atom is None:
            by_atom: dict[Expr, list[tuple[int, Affine]]] = {}
            for constraint in self._constraints:
                for atom, coefficient in constraint.terms.items():
                    by_atom.setdefault(atom, []).append((coefficient, constraint))
            self._by_atom = by_atom
        return self._by_atom

    def _interval(self, form: Affine) -> Interval:
        lo: int | None = form.constant
        hi: int | None = lo
        for atom, coefficient in form.terms.items():
            least, greatest = self.atom_bounds(atom)
            if coefficient < 0:
                least, greatest = greatest, least
            lo = None if lo is None or least is None else lo + coefficient * least
            hi = None if hi is None or greatest is None else hi + coefficient * greatest
            if lo is None and hi is None:
                break
        return (lo, hi)

    def _upper(self, form: Affine, depth: int) -> int | None:
        """The least upper bound of a sum free of lets that ``depth`` steps find.

        A step either replaces a min, max or select by what it is chosen from, or adds a multiple
        of a constraint (which is at least 0, so the sum can only grow) that cancels an atom.
        """
        best = self._interval(form)[1]
        if depth <= 0 or not form.terms:
            return best
        key = (form, depth)
        if key in self._upper_answers:
            return self._upper_answers[key]
        for bound in self._bounds_by_steps(form, depth):
            if bound is not None and (best is None or bound < best):
                best = bound
        self._upper_answers[key] = best
        return best

    def _bounds_by_steps(self, form: Affine, depth: int) -> Iterator[int | None]:
        for atom, coefficient in form.terms.items():
            choice = _choice(atom)
            if choice is not None:
                bounds = [
                    self._upper(self.expanded(form.replaced({atom: affine(part)})), depth - 1)
                    for part in choice
                ]
                finite = [bound for bound in bounds if bound is not None]
                # A min is at most each of its two; counted negatively, so is a max.
                if isinstance(atom, Binary) and (atom.op == "min") == (coefficient > 0):
                    yield min(finite, default=None)
                elif len(finite) == 2:
                    yield max(finite)
            for relation in _relations(atom):
                constraint = self.expanded(relation)
                for shared, factor in constraint.terms.items():
                    in_form = form.terms.get(shared, 0)
                    if in_form * factor < 0:
                        yield self._eliminate(form, in_form, constraint, factor, depth)
        by_atom = self._constraints_by_atom()
        for atom, coefficient in form.terms.items():
            for factor, constraint in by_atom.get(atom, ()):
                if coefficient * factor < 0:
                    yield self._eliminate(form, coefficient, constraint, factor, depth)

    def _eliminate(
        self, form: Affine, coefficient: int, constraint: Affine, factor: int, depth: int
    ) -> int | None:
        """The bound of ``form`` plus as much of the constraint as cancels an atom.

        It has ``coefficient`` in the form and ``factor``, of the other sign, in the constraint.
        """
        common = gcd(coefficient, factor)
        times = abs(factor) // common
        rest = form.scaled(times).plus(constraint, abs(coefficient) // common)
        bound = self._upper(rest, depth - 1)
        return None if bound is None else bound // times

    # Bounds of atoms

    def atom_bounds(self, atom: Expr) -> Interval:
        """The range of one atom, from its structure and from facts about it."""
        cached = self._atom_answers.get(atom)
        if cached is not None:
            return cached
        result = self._structure_bounds(atom)
        learned = self._ranges.get(atom)
        if learned is not None:
            result = intervals.intersection(result, learned)
        self._atom_answers[atom] = result
        return result

    def _plain_bounds(self, expr: Expr) -> Interval:
        """Bounds from the ranges of atoms alone.

        A constraint may tie an atom to a part of itself, so using constraints here would not end.
        """
        if isinstance(expr, Const):
            return EVERYTHING if expr.type.is_float else (int(expr.value), int(expr.value))
        if expr.type is boolean:
            return (0, 1)
        return EVERYTHING if expr.type.is_float else self._interval(self.expanded(affine(expr)))

    def _structure_bounds(self, atom: Expr) -> Interval:
        whole = _type_bounds(atom)
        result = whole
        match atom:
            case Const():
                return self._plain_bounds(atom)
            case Binary() if atom.op in intervals.BINARY and atom.type.is_integer:
                a, b = self._plain_bounds(atom.a), self._plain_bounds(atom.b)
                result = intervals.BINARY[atom.op](a, b)
                if atom.op == "mod":
                    result = self._aligned_modulo(atom, result)
                elif atom.op == "shl":
                    whole = _limits(atom.type)
            case Unary() if atom.op in intervals.UNARY and atom.type.is_integer:
                result = intervals.UNARY[atom.op](self._plain_bounds(atom.a))
            case Unary() if atom.op in intervals.COUNTS:
                result = intervals.COUNTS[atom.op](self._plain_bounds(atom.a), atom.type.bits)
            case Select() if not atom.type.is_float:
                result = intervals.union(self._plain_bounds(atom.a), self._plain_bounds(atom.b))
            case Cast() if not atom.a.type.is_float:
                result = self._plain_bounds(atom.a)
                whole = _limits(atom.type)
            case _:
                return whole
        # Arithmetic on types other than s64 wraps: a result that does not fit can be anything.
        return result if intervals.is_within(result, whole) else whole

    def _fits(self, expr: Expr, type_: DType) -> bool:
        return intervals.is_within(self._plain_bounds(expr), _limits(type_))

    def _aligned_modulo(self, atom: Binary, result: Interval) -> Interval:
        """A remainder has the common divisor of the dividend and the divisor."""
        if not isinstance(atom.b, Const) or atom.b.value <= 0 or atom.type is not s64:
            return result
        modulus, remainder = self.congruence(atom.a)
        step = gcd(modulus, atom.b.value)
        if step <= 1:
            return result
        low = remainder % step
        return intervals.intersection(result, (low, atom.b.value - step + low))

    # Congruences

    def congruence(self, expr: Expr) -> tuple[int, int]:
        """(m, r): the value is r modulo m. m is 0 for a constant, 1 if nothing is known."""
        return self.affine_congruence(affine(expr))

    def affine_congruence(self, form: Affine) -> tuple[int, int]:
        """`congruence` of a sum."""
        form = self.expanded(form)
        modulus, remainder = 0, form.constant
        for atom, coefficient in form.terms.items():
            m, r = self._atom_congruence(atom)
            modulus = gcd(modulus, m * coefficient)
            remainder += r * coefficient
            if modulus == 1:
                return (1, 0)
        return _reduced(modulus, remainder)

    def _atom_congruence(self, atom: Expr) -> tuple[int, int]:
        learned = self._residues.get(atom)
        if learned is not None:
            return learned
        lo, hi = self.atom_bounds(atom)
        if lo is not None and lo == hi:
            return (0, lo)
        match atom:
            case Binary() if atom.type is s64:
                return self._binary_congruence(atom)
            case Select() if atom.type.is_integer:
                return _either(self.congruence(atom.a), self.congruence(atom.b))
            case Cast() if atom.type is s64 and atom.a.type.is_integer:
                if atom.a.type is u64 and not self._fits(atom.a, s64):
                    return (1, 0)  # half of u64 wraps
                return self.congruence(atom.a)
            case _:
                return (1, 0)

    def _binary_congruence(self, atom: Binary) -> tuple[int, int]:
        m, r = self.congruence(atom.a)
        if atom.op in ("min", "max"):
            return _either((m, r), self.congruence(atom.b))
        if atom.op == "mul":
            n, s = self.congruence(atom.b)
            return _reduced(gcd(m * n, m * s, n * r), r * s)
        if atom.op == "xor":
            n, s = self.congruence(atom.b)
            both = gcd(m, n)
            # The low bits that are known of both; those of a constant are all known.
            return _reduced(both & -both, r ^ s)
        if isinstance(atom.b, Const) and atom.b.value > 0:
            by = atom.b.value
            if atom.op == "mod":
                return _reduced(0 if m % by == 0 else gcd(m, by), r % by)
            if atom.op == "floordiv" and m % by == 0:
                return _reduced(m // by, r // by)
        return (1, 0)

    def divisor(self, expr: Expr) -> int:
        """The greatest number known to divide the value; 0 for a value that is always 0."""
        return gcd(*self.congruence(expr))

    def divisible(self, expr: Expr, by: int) -> bool:
        """Whether the value is known to be a multiple of ``by``."""
        divisor = self.divisor(expr)
        return divisor == 0 or (by != 0 and divisor % by == 0)


def _reduced(modulus: int, remainder: int) -> tuple[int, int]:
    modulus = abs(modulus)
    return (modulus, remainder % modulus if modulus else remainder)


def _either(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return _reduced(gcd(a[0], b[0], a[1] - b[1]), a[1])


def _type_bounds(expr: Expr) -> Interval:
    if expr.type.is_float or expr.type is s64:
        return EVERYTHING
    return (int(expr.type.lowest), int(expr.type.highest))


def _limits(type_: DType) -> Interval:
    """The range of the type, of s64, too: for operations that wrap in it."""
    return (int(type_.lowest), int(type_.highest))


def _choice(atom: Expr) -> tuple[Expr, Expr] | None:
    """The two values that a min, max or select chooses from; None for other atoms."""
    if isinstance(atom, Select):
        return (atom.a, atom.b)
    if isinstance(atom, Binary) and atom.op in ("min", "max"):
        return (atom.a, atom.b)
    return None


def _has_relations(atom: Expr) -> bool:
    return not isinstance(atom, Var) and (_choice(atom) is not None or bool(_relations(atom)))


@lru_cache(maxsize=1 << 12)
def _relations(atom: Expr) -> tuple[Affine, ...]:
    """Inequalities (at least 0) that tie a quotient to its dividend, whatever the scope."""
    if not isinstance(atom, Binary) or atom.op != "floordiv" or atom.type is not s64:
        return ()
    if not isinstance(atom.b, Const) or atom.b.value <= 0:
        return ()
    by = atom.b.value
    remainder = affine(atom.a).plus(Affine({atom: 1}), -by)
    return (remainder, (-remainder).shifted(by - 1))
