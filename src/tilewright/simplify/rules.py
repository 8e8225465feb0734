"""Rules as data: their form, how they match, and an index of those that may apply to a node.

A pattern is an expression over the wildcards defined here. ``x y z w`` match anything, ``p q r``
any condition, ``c0 c1 c2`` constants; ``f g h`` are the wildcards of rules on floats. A wildcard
that occurs twice must match the same expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from tilewright.dtypes import DType, boolean, f32, s64
from tilewright.facts import Facts
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
    conjuncts,
    const,
    var,
)
from tilewright.ir.load import Load
from tilewright.ir.operators import COMPARISONS
from tilewright.ir.visit import children, rebuild

x, y, z, w = (var(name) for name in "xyzw")
c0, c1, c2 = (var(name) for name in ("c0", "c1", "c2"))
p, q, r = (var(name, boolean) for name in "pqr")
f, g, h = (var(name, f32) for name in "fgh")
k0, k1 = (var(name, f32) for name in ("k0", "k1"))
TRUE, FALSE = const(True, boolean), const(False, boolean)
_CONSTANT_WILDCARDS = frozenset({"c0", "c1", "c2", "k0", "k1"})

Bindings = Mapping[Var, Expr]
# Gives the replacement of a node, or None where the rule does not apply.
Procedure = Callable[[Expr, Facts], Expr | None]


class Types(Enum):
    """The element types a rule holds for."""

    INDEX = "s64"  # counted as unbounded integers, see `tilewright.facts.affine`
    INTEGER = "integers"  # holds under wrapping, too
    FLOAT = "floats"
    NUMBER = "numbers"
    BOOL = "bool"
    ANY = "all types"

    def hold(self, type: DType) -> bool:
        """Whether ``type`` is one of them."""
        match self:
            case Types.INDEX:
                return type is s64
            case Types.INTEGER:
                return type.is_integer
            case Types.FLOAT:
                return type.is_float
            case Types.NUMBER:
                return type is not boolean
            case Types.BOOL:
                return type is boolean
            case Types.ANY:
                return True


@dataclass(frozen=True)
class Predicate:
    """A condition on constants that is not an expression."""

    text: str
    holds: Callable[[Bindings], bool]


@dataclass(frozen=True, eq=False)
class Rule:
    """``pattern`` becomes ``replacement`` where ``condition`` is proved.

    A rule on sums has a ``procedure`` that matches it up to the order and grouping of terms; the
    pattern then says what the procedure does, and is what the tests check. A wildcard that only
    the replacement and the condition mention is found by the procedure.
    """

    name: str
    pattern: Expr
    replacement: Expr
    condition: Expr | Predicate | None = None
    types: Types = Types.INDEX
    procedure: Procedure | None = None

    @property
    def text(self) -> str:
        """``before => after``."""
        return f"{self.pattern!r} => {self.replacement!r}"

    def apply(self, expr: Expr, facts: Facts) -> Expr | None:
        """The replacement of ``expr``; None where the rule does not apply."""
        if self.procedure is not None:
            return self.procedure(expr, facts)
        bindings: dict[Var, Expr] = {}
        if not match(self.pattern, expr, bindings):
            return None
        type_ = element_type(expr)
        if not self._holds(bindings, type_, facts):
            return None
        return instantiate(self.replacement, bindings, type_)

    def _holds(self, bindings: Bindings, type: DType, facts: Facts) -> bool:
        if self.condition is None:
            return True
        if isinstance(self.condition, Predicate):
            return self.condition.holds(bindings)
        return all(
            facts.holds(instantiate(part, bindings, type)) for part in conjuncts(self.condition)
        )


def is_constant_wildcard(wildcard: Var) -> bool:
    """Whether the wildcard matches constants only."""
    return wildcard.name in _CONSTANT_WILDCARDS


def element_type(expr: Expr) -> DType:
    """The type a rule at this node is about: of the operands, for a comparison or its negation."""
    if isinstance(expr, Unary) and expr.op == "not":
        return element_type(expr.a)
    if isinstance(expr, Binary) and expr.op in COMPARISONS:
        return expr.a.type
    return expr.type


def match(pattern: Expr, expr: Expr, bindings: dict[Var, Expr]) -> bool:
    """Whether ``expr`` matches ``pattern``; enters the wildcards in ``bindings``.

    Types are not compared: a rule says for which it holds, and operators agree on the rest.
    """
    if isinstance(pattern, Var):
        bound = bindings.get(pattern)
        if bound is not None:
            return bound is expr
        if pattern.name in _CONSTANT_WILDCARDS and not isinstance(expr, Const):
            return False
        bindings[pattern] = expr
        return True
    if pattern.__class__ is not expr.__class__:
        return False
    if isinstance(pattern, Const):
        assert isinstance(expr, Const)
        if isinstance(expr.value, float) or isinstance(pattern.value, float):
            # 0.0 and -0.0 are different constants.
            return float(pattern.value).hex() == float(expr.value).hex()
        if pattern.value == -1 and expr.type.is_integer:
            # All bits, which is the greatest number of an unsigned type.
            return bool(expr.value == (-1 if expr.type.kind == "int" else expr.type.highest))
        return bool(pattern.value == expr.value)
    if isinstance(pattern, Binary | Unary) and pattern.op != expr.op:  # type: ignore[attr-defined]
        return False
    for part, operand in zip(children(pattern), children(expr), strict=True):
        if not match(part, operand, bindings):
            return False
    return True


def instantiate(template: Expr, bindings: Bindings, type: DType) -> Expr:
    """``template`` with its wildcards replaced and its constants made of element type ``type``."""
    if isinstance(template, Var):
        return bindings[template]
    if isinstance(template, Const):
        return template if template.type is boolean else const(template.value, type)
    if isinstance(template, Binary):  # most of them
        a, b = instantiate(template.a, bindings, type), instantiate(template.b, bindings, type)
        return binary(template.op, a, b)
    parts = tuple(instantiate(part, bindings, type) for part in children(template))
    return rebuild(template, parts)


def head(expr: Expr) -> str:
    """The operator of a node, or its kind of expression."""
    if isinstance(expr, Binary | Unary):
        return expr.op
    return _HEADS[expr.__class__]


_HEADS: dict[type[Expr], str] = {
    Const: "const",
    Var: "var",
    Select: "select",
    Fma: "fma",
    Cast: "cast",
    Bitcast: "bitcast",
    Load: "load",
}


class RuleIndex:
    """Finds the rules that may apply to a node by its head, its type and its children's heads."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._rules_by_key: dict[tuple[str, ...], tuple[Rule, ...]] = {}

    def candidates(self, expr: Expr) -> tuple[Rule, ...]:
        """Rules to try on ``expr``, in order."""
        parts = children(expr)
        type_ = element_type(expr)
        key = (head(expr), type_.name, *map(head, parts))
        rules = self._rules_by_key.get(key)
        if rules is None:
            rules = tuple(rule for rule in self.rules if _may_apply(rule, expr, type_, parts))
            self._rules_by_key[key] = rules
        return rules


def _may_apply(rule: Rule, expr: Expr, type: DType, parts: tuple[Expr, ...]) -> bool:
    if not rule.types.hold(type) or head(rule.pattern) != head(expr):
        return False
    if rule.procedure is not None:
        return True
    return all(map(_may_match, children(rule.pattern), parts))


def _may_match(pattern: Expr, part: Expr) -> bool:
    if isinstance(pattern, Var):
        return not is_constant_wildcard(pattern) or isinstance(part, Const)
    return head(pattern) == head(part)
