"""Affine forms: an integer linear combination of atoms, and a constant.

An *atom* is a variable or a sub-expression that is not linear in its parts (``x // 3``, a load).
Arithmetic on s64 counts as arithmetic on unbounded integers here and in everything that builds on
it: indices and sizes stay far below 2^63. The other integer types wrap, so an expression of such a
type is one atom, standing for its value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from math import gcd

from tilewright.dtypes import s64
from tilewright.ir.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Fma,
    Select,
    Unary,
    Var,
    binary,
    const,
    unary,
)
from tilewright.ir.load import Load
from tilewright.ir.visit import children, postorder, variables

# The caches below keep expressions alive, so they are emptied when they have grown this far.
_MEMO_LIMIT = 1 << 16
# A sum is expanded term by term up to this many nodes; beyond, expansions of shared sub-sums are
# cached, since a DAG of depth n can stand for 2^n terms.
_EXPANSION_LIMIT = 256
_KEY_LENGTH = 96


class Affine:
    """``sum(coefficient * atom) + constant``. No coefficient is 0; ``terms`` is not to be changed.

    All operations give new objects. Two of them are equal when they have the same terms, in
    whatever order, and the same constant.
    """

    __slots__ = ("_expr", "constant", "terms")
    terms: dict[Expr, int]
    constant: int

    def __init__(self, terms: dict[Expr, int], constant: int = 0) -> None:
        self.terms = terms
        self.constant = constant
        self._expr: Expr | None = None

    def __add__(self, other: Affine) -> Affine:
        return self.plus(other, 1)

    def __sub__(self, other: Affine) -> Affine:
        return self.plus(other, -1)

    def __neg__(self) -> Affine:
        return self.scaled(-1)

    def plus(self, other: Affine, factor: int) -> Affine:
        """``self + factor * other``."""
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + factor * coefficient
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Affine(terms, self.constant + factor * other.constant)

    def scaled(self, factor: int) -> Affine:
        """``factor * self``."""
        if factor == 1:
            return self
        if factor == 0:
            return Affine({})
        terms = {atom: coefficient * factor for atom, coefficient in self.terms.items()}
        return Affine(terms, self.constant * factor)

    def shifted(self, amount: int) -> Affine:
        """``self + amount``."""
        return Affine(self.terms, self.constant + amount) if amount else self

    def divided(self, divisor: int) -> Affine:
        """``self / divisor``; that divides every coefficient, and the constant is floored."""
        terms = {atom: coefficient // divisor for atom, coefficient in self.terms.items()}
        return Affine(terms, self.constant // divisor)

    def replaced(self, values: Mapping[Expr, Affine]) -> Affine:
        """``self`` with atoms replaced."""
        replaced = self.terms.keys() & values.keys()
        if not replaced:
            return self
        rest = {atom: factor for atom, factor in self.terms.items() if atom not in replaced}
        result = Affine(rest, self.constant)
        for atom in self.terms:  # in order: a set's may differ from run to run
            if atom in replaced:
                result = result.plus(values[atom], self.terms[atom])
        return result

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def content(self) -> int:
        """The greatest common divisor of the coefficients (not of the constant); 0 if none."""
        return gcd(*self.terms.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Affine):
            return NotImplemented
        return self.constant == other.constant and self.terms == other.terms

    def __hash__(self) -> int:
        return hash((frozenset(self.terms.items()), self.constant))

    def __repr__(self) -> str:
        return f"Affine({self.to_expr()!r})"

    def to_expr(self) -> Expr:
        """The expression in canonical form: added terms, subtracted terms, constant.

        Terms of one sign are ordered by `order_key`, so the form does not depend on addresses.
        """
        if self._expr is None:
            self._expr = self._build()
        return self._expr

    def _build(self) -> Expr:
        terms = self.terms
        if not terms:
            return integer(self.constant)
        result: Expr | None = None
        negative: list[Expr] = []
        for atom in sorted(terms, key=order_key) if len(terms) > 1 else terms:
            coefficient = terms[atom]
            if coefficient < 0:
                negative.append(atom)
                continue
            term = atom if coefficient == 1 else binary("mul", atom, integer(coefficient))
            result = term if result is None else binary("add", result, term)
        constant = self.constant
        if result is None and constant > 0:
            result, constant = integer(constant), 0
        for atom in negative:
            coefficient = terms[atom]
            if result is None:
                minus = unary("neg", atom)
                result = minus if coefficient == -1 else binary("mul", atom, integer(coefficient))
                continue
            term = atom if coefficient == -1 else binary("mul", atom, integer(-coefficient))
            result = binary("sub", result, term)
        assert result is not None
        if constant > 0:
            return binary("add", result, integer(constant))
        return binary("sub", result, integer(-constant)) if constant < 0 else result


_integers: dict[int, Const] = {}
_affines: dict[Expr, Affine] = {}
_keys: dict[Expr, str] = {}


def integer(value: int) -> Const:
    """The s64 constant, cached: quicker than `const`."""
    cached = _integers.get(value)
    if cached is None:
        if len(_integers) > _MEMO_LIMIT:
            _integers.clear()
        cached = _integers[value] = const(value, s64)
    return cached


def affine(expr: Expr) -> Affine:
    """The affine form of an integer expression. Cached: asking again costs a lookup."""
    cached = _affines.get(expr)
    if cached is not None:
        return cached
    if len(_affines) > _MEMO_LIMIT:
        _affines.clear()
    result = _expand(expr)
    if result is None:
        result = _expand_shared(expr)
    _affines[expr] = result
    return result


def is_linear(expr: Expr, names: Collection[Expr]) -> bool:
    """Whether ``expr`` depends on the variables ``names`` by sums of their multiples only."""
    chosen = frozenset(names)
    return all(atom in chosen or not variables(atom) & chosen for atom in affine(expr).terms)


def difference(condition: Expr) -> Affine | None:
    """The form that is not negative exactly where an integer ``a <= b`` or ``a < b`` holds."""
    if isinstance(condition, Binary) and condition.a.type.is_integer:
        if condition.op == "le":
            return affine(condition.b) - affine(condition.a)
        if condition.op == "lt":
            return (affine(condition.b) - affine(condition.a)).shifted(-1)
    return None


def _expand(root: Expr) -> Affine | None:
    """The affine form by adding up terms; None where that takes too many steps."""
    terms: dict[Expr, int] = {}
    constant = 0
    steps = 0
    stack: list[tuple[Expr, int]] = [(root, 1)]
    while stack:
        node, factor = stack.pop()
        steps += 1
        if isinstance(node, Const):
            constant += factor * int(node.value)
            continue
        parts = _linear_parts(node)
        if parts is None:
            terms[node] = terms.get(node, 0) + factor
            continue
        if steps > _EXPANSION_LIMIT:
            return None
        stack.extend((part, factor * scale) for part, scale in parts)
    if 0 in terms.values():
        terms = {atom: coefficient for atom, coefficient in terms.items() if coefficient}
    return Affine(terms, constant)


def _linear_parts(node: Expr) -> tuple[tuple[Expr, int], ...] | None:
    """The parts of a sum or multiple, each with its factor, last first; None for an atom."""
    if node.type is not s64:
        return None
    if isinstance(node, Binary):
        op = node.op
        if op == "add":
            return ((node.b, 1), (node.a, 1))
        if op == "sub":
            return ((node.b, -1), (node.a, 1))
        if op == "mul":
            if isinstance(node.b, Const):
                return ((node.a, node.b.value),)
            if isinstance(node.a, Const):
                return ((node.b, node.a.value),)
        return None
    if isinstance(node, Unary) and node.op == "neg":
        return ((node.a, -1),)
    return None


def _expand_shared(root: Expr) -> Affine:
    """The affine form of a sum with shared sub-sums: each is expanded once."""
    done: dict[Expr, Affine] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        parts = _linear_parts(node)
        if parts is None:
            is_const = isinstance(node, Const)
            done[node] = Affine({}, int(node.value)) if is_const else Affine({node: 1})  # type: ignore[attr-defined]
            continue
        missing = [part for part, _ in parts if part not in done]
        if missing:
            stack.extend(missing)
            continue
        result = Affine({})
        for part, scale in reversed(parts):
            result = result.plus(done[part], scale)
        done[node] = result
    return done[root]


def _quotient(number: Affine, by: int) -> Affine:
    """``number // by``, with multiples of ``by`` taken out."""
    for atom, factor in number.terms.items():
        match atom:
            case Binary(op="floordiv", a=inner, b=Const(value=value)) if factor == 1 and value > 0:
                rest = {a: c for a, c in number.terms.items() if a is not atom}
                outside = Affine(rest, number.constant)
                return _quotient(affine(inner).plus(outside, int(value)), by * int(value))
    rest = {atom: c % by for atom, c in number.terms.items() if c % by}
    quotient = Affine({atom: c // by for atom, c in number.terms.items() if c // by})
    quotient = quotient.shifted(number.constant // by)
    if not rest:
        return quotient
    remaining = Affine(rest, number.constant % by).to_expr()
    return quotient + Affine({binary("floordiv", remaining, integer(by)): 1})


def is_wide(expr: Expr, names: frozenset[Var] = frozenset()) -> bool:
    """Whether ``expr`` has a number that is no index or size, so that it may be as large as 2^63:
    a loaded s64, one of ``names``, which stand for such, or a float."""
    for node in postorder(expr):
        narrow = node.type.is_integer and node.type.bits <= 32
        if isinstance(node, Load) and not narrow:
            return True
        if isinstance(node, Var) and not narrow and (node in names or node.type is not s64):
            return True
    return False


def flattened(expr: Expr, wide: frozenset[Var] = frozenset()) -> Affine:
    """The affine form of ``expr`` with quotients and remainders of one number added up again.

    ``x % c`` counts as ``x - x // c * c``, and multiples of ``c`` come out of ``x // c``, so that
    ``(x + 128*g) // 14 * 14 + (x + 2*g) % 14`` is ``x + 128*g``; and ``(x // 14 + g) // 2`` is
    ``(x + 14*g) // 28``. Numbers that are wide (`is_wide`) stay as they are: where ``x`` is near
    2^63, ``x + x // 16 * 4``, into which ``(x % 16) % 5`` turns, does not fit.
    """
    form = affine(expr)
    result = Affine({}, form.constant)
    for atom, factor in form.terms.items():
        part = Affine({atom: 1})
        match atom:
            case Binary(op="floordiv" | "mod", a=inner, b=Const(value=divisor)) if (
                atom.type is s64 and int(divisor) > 0 and not is_wide(inner, wide)
            ):
                number = flattened(inner, wide)
                part = _quotient(number, int(divisor))
                if atom.op == "mod":
                    part = number.plus(part, -int(divisor))
        result = result.plus(part, factor)
    return result


def order_key(expr: Expr) -> str:
    """A text that orders expressions the same way in every run, by their leftmost name first.

    Long ones end in a digest: expressions are DAGs, whose full text may be exponentially long.
    """
    if isinstance(expr, Var):
        return expr.name
    cached = _keys.get(expr)
    if cached is not None:
        return cached
    if len(_keys) > _MEMO_LIMIT:
        _keys.clear()
    local: dict[Expr, str] = {}
    for node in postorder(expr):
        text = _key_text(node, [local[part] for part in children(node)])
        if len(text) > _KEY_LENGTH:
            digest = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
            text = text[: _KEY_LENGTH - 32] + digest
        local[node] = text
    _keys[expr] = local[expr]
    return local[expr]


def _key_text(node: Expr, parts: list[str]) -> str:
    match node:
        case Var():
            return node.name
        case Const():
            return str(node.value)
        case Binary():
            return f"{parts[0]}.{node.op}({parts[1]})"
        case Unary():
            return f"{parts[0]}.{node.op}()"
        case Cast():
            return f"{parts[0]}.{node.type}()"
        case Bitcast():
            return f"{parts[0]}.bitcast({node.type})"
        case Select():
            return f"{parts[0]}.select({parts[1]},{parts[2]})"
        case Fma():
            return f"{parts[0]}.fma({parts[1]},{parts[2]},{node.exact})"
        case Load():
            return f"{node.buffer.name}[{','.join(parts)}]"
        case _:
            raise TypeError(f"unknown expression {type(node).__name__}")
