"""Random scopes of integers, small enough to enumerate: what facts are checked against."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.dtypes import s8, s32, s64
from tilewright.facts import Facts
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Expr, Var, binary, cast, const, select, unary, var

FREE = (var("n"), var("m"))
FREE_VALUES = (-9, -1, 0, 1, 2, 5, 12)


@dataclass
class Scope:
    """Steps that a program takes to a place, as facts and as an enumeration of what can happen."""

    steps: list[tuple[str, Var | None, Expr]]

    def facts(self) -> Facts:
        facts = Facts.empty()
        for kind, name, expr in self.steps:
            if kind == "loop":
                assert name is not None
                facts = facts.loop(name, expr)
            elif kind == "let":
                assert name is not None
                facts = facts.bind(name, expr)
            else:
                facts = facts.assume(expr)
        return facts

    def variables(self) -> list[Var]:
        return [*FREE, *dict.fromkeys(name for _, name, _ in self.steps if name is not None)]

    def states(self, generator: random.Random, limit: int = 150) -> list[dict[Var, int]]:
        """Values of the variables with which a program gets here."""
        start = [dict(zip(FREE, (a, b), strict=True)) for a in FREE_VALUES for b in FREE_VALUES]
        generator.shuffle(start)
        result: list[dict[Var, int]] = []
        for state in start[:12]:
            reached = list(self._run(dict(state), 0))
            result += generator.sample(reached, min(len(reached), limit // 12))
        return result

    def _run(self, state: dict[Var, int], step: int) -> Iterator[dict[Var, int]]:
        if step == len(self.steps):
            yield dict(state)
            return
        kind, name, expr = self.steps[step]
        value = evaluate(expr, state)
        if kind == "loop":
            assert name is not None
            for index in range(min(value, 9)):
                yield from self._run({**state, name: index}, step + 1)
        elif kind == "let":
            assert name is not None
            yield from self._run({**state, name: value}, step + 1)
        elif value:
            yield from self._run(state, step + 1)


def random_scope(generator: random.Random) -> Scope:
    """Loops, lets and conditions; names are sometimes used again."""
    scope = Scope([])
    names = ["i", "j", "k", "t"]
    for _ in range(generator.randint(0, 4)):
        known = scope.variables()
        kind = generator.choice(("loop", "loop", "let", "if"))
        again = generator.random() < 0.15
        name = generator.choice([v.name for v in known]) if again else generator.choice(names)
        if kind == "loop":
            extent = const(generator.randint(1, 9))
            if generator.random() < 0.5:
                extent = binary("min", extent, random_integer(generator, known, 1))
            scope.steps.append((kind, var(name), extent))
        elif kind == "let":
            scope.steps.append((kind, var(name), random_integer(generator, known, 2)))
        else:
            scope.steps.append((kind, None, random_condition(generator, known, 2)))
    return scope


CONSTANTS = (-16, -7, -4, -2, -1, 0, 1, 1, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16, 24, 49)


def random_integer(generator: random.Random, names: list[Var], depth: int) -> Expr:
    """An s64 expression of the kind that indices are made of, and odder ones."""
    if depth == 0 or generator.random() < 0.1:
        return (
            const(generator.choice(CONSTANTS))
            if generator.random() < 0.3
            else generator.choice(names)
        )

    def part() -> Expr:
        return random_integer(generator, names, depth - 1)

    kind = generator.randint(0, 13)
    if kind < 4:
        return binary(generator.choice(("add", "add", "sub")), part(), part())
    if kind < 6:
        return part() * generator.choice(CONSTANTS)
    if kind < 9:
        # A divisor mostly divides something nearby.
        by = generator.choice((2, 4, 4, 8, 12, 16, 3, -4, 0))
        return binary(generator.choice(("floordiv", "mod")), part(), const(by))
    if kind == 9:
        return binary(generator.choice(("floordiv", "mod", "mul")), part(), part())
    if kind == 10:
        return binary(generator.choice(("min", "max")), part(), part())
    if kind == 11:
        return select(random_condition(generator, names, depth - 1), part(), part())
    if kind == 12:
        shared = part()
        divisor = generator.choice((2, 4, 8))
        return shared // divisor * divisor + generator.choice((shared % divisor, shared, -shared))
    narrow = cast(generator.choice((s8, s32)), part())
    other = binary(generator.choice(("add", "sub", "min")), narrow, const(3, narrow.type))
    return cast(s64, binary(generator.choice(("add", "sub", "mul", "max")), narrow, other))


def random_condition(generator: random.Random, names: list[Var], depth: int) -> Expr:
    if depth > 0 and generator.random() < 0.3:
        kind = generator.choice(("and", "or", "not"))
        a = random_condition(generator, names, depth - 1)
        if kind == "not":
            return unary("not", a)
        return binary(kind, a, random_condition(generator, names, depth - 1))
    op = generator.choice(("lt", "le", "lt", "le", "eq", "ne"))
    inner = max(depth, 1)
    a = random_integer(generator, names, inner)
    b = (
        random_integer(generator, names, inner)
        if generator.random() < 0.4
        else const(generator.choice(CONSTANTS))
    )
    return binary(op, a, b) if generator.random() < 0.5 else binary(op, b, a)
