"""Each rule, by itself, on random values of its wildcards."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from sweeps import in_turns
from tilewright.dtypes import COMPUTED, DType, boolean, s64
from tilewright.facts import Facts
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Bitcast, Cast, Expr, Var, const, var
from tilewright.ir.visit import walk
from tilewright.simplify import Rule, all_rules, simplify
from tilewright.simplify.rules import Predicate, instantiate, is_constant_wildcard

RULES = all_rules()
SAMPLES = 40
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    -4.0,
    3.0,
    1e-40,
    6.1e-5,
    1e30,
    math.inf,
    -math.inf,
    math.nan,
)


def _name(value: Rule | int) -> str:
    return value.name if isinstance(value, Rule) else str(value)


def same(a: Any, b: Any) -> bool:
    """One value: NaN is itself, and the zeros differ."""
    if isinstance(a, float) and isinstance(b, float):
        return a.hex() == b.hex() or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b


def random_value(generator: random.Random, type_: DType) -> Any:
    if type_ is boolean:
        return generator.random() < 0.5
    if type_.is_float:
        special = generator.random() < 0.6
        value = generator.choice(FLOATS) if special else generator.uniform(-8, 8)
        return const(value, type_).value
    # Near the ends of a type, arithmetic wraps; that of s64 is not looked at there.
    if type_ is not s64 and generator.random() < 0.4:
        end = generator.choice((int(type_.lowest), int(type_.highest)))
        return const(end + generator.randint(-3, 3), type_).value
    return const(generator.randint(-9, 40 if generator.random() < 0.5 else 9), type_).value


def has_cast(rule: Rule) -> bool:
    """Whether its pattern says the types."""
    return any(isinstance(node, Cast | Bitcast) for node in walk(rule.pattern))


def types_of(rule: Rule) -> list[DType]:
    if has_cast(rule):
        return [s64]  # the pattern itself says which types
    return [type_ for type_ in COMPUTED if rule.types.hold(type_)]


def wildcards(rule: Rule) -> list[Var]:
    parts = [rule.pattern, rule.replacement]
    if isinstance(rule.condition, Expr):
        parts.append(rule.condition)
    nodes = [node for part in parts for node in walk(part)]
    return list(dict.fromkeys(node for node in nodes if isinstance(node, Var)))


class Instance:
    """A rule over variables of one element type."""

    def __init__(self, rule: Rule, type_: DType) -> None:
        own_types = has_cast(rule)
        self.rule = rule
        self.names = {
            wild: wild if own_types or wild.type is boolean else var(wild.name, type_)
            for wild in wildcards(rule)
        }
        self.pattern = self._made(rule.pattern, type_, own_types)
        self.replacement = self._made(rule.replacement, type_, own_types)
        self.condition: Expr | None = None
        if isinstance(rule.condition, Expr):
            self.condition = self._made(rule.condition, type_, own_types)

    def _made(self, expr: Expr, type_: DType, own_types: bool) -> Expr:
        return expr if own_types else instantiate(expr, self.names, type_)

    def sample(self, generator: random.Random) -> dict[Var, Any] | None:
        """Values for which the condition holds."""
        for _ in range(3000):
            values = {name: random_value(generator, name.type) for name in self.names.values()}
            if self._holds(values):
                return values
        return None

    def _holds(self, values: dict[Var, Any]) -> bool:
        if isinstance(self.rule.condition, Predicate):
            bound = {wild: const(values[name], name.type) for wild, name in self.names.items()}
            return self.rule.condition.holds(bound)
        return self.condition is None or bool(evaluate(self.condition, values))


@pytest.mark.parametrize(("rule", "part"), in_turns(2, RULES, range(2)), ids=_name)
def test_a_rule_keeps_the_value(rule: Rule, part: int) -> None:
    generator = random.Random(f"{rule.name} {part}")
    tested = 0
    for type_ in types_of(rule):
        instance = Instance(rule, type_)
        for _ in range(SAMPLES):
            values = instance.sample(generator)
            if values is None:
                break
            tested += 1
            before = evaluate(instance.pattern, values)
            after = evaluate(instance.replacement, values)
            assert same(before, after), (rule.name, rule.text, type_, values, before, after)
    assert tested >= SAMPLES // 2


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_a_rule_describes_is_simplified(rule: Rule) -> None:
    """With constants in it, the pattern becomes another expression of the same value."""
    generator = random.Random(rule.name)
    simplified = tested = 0
    for type_ in types_of(rule):
        instance = Instance(rule, type_)
        for _ in range(12):
            values = instance.sample(generator)
            if values is None:
                break
            known = {
                name: const(values[name], name.type)
                for wild, name in instance.names.items()
                if is_constant_wildcard(wild)
            }
            bound = {wild: known.get(name, name) for wild, name in instance.names.items()}
            own_types = has_cast(rule)
            before = rule.pattern if own_types else instantiate(rule.pattern, bound, type_)
            facts = Facts.empty()
            if instance.condition is not None:
                facts = facts.assume(instantiate(rule.condition, bound, type_))  # type: ignore[arg-type]
            after = simplify(before, facts)
            tested += 1
            simplified += after is not before
            assert same(evaluate(before, values), evaluate(after, values)), (before, after, values)
    assert tested and simplified >= tested // 4, rule.text


def test_rules_have_names_of_their_own() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
