"""Small branches that go either way as the data say, as selections.

A processor guesses which way a branch goes, and loses a dozen cycles where it guessed wrong. Where
work-items run one by one, and both ways only compute a few numbers, it takes less to do both. (What
lanes of vectors do is masked anyway.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from math import inf

from tilewright.dtypes import DType, boolean
from tilewright.ir.expr import (
    Binary,
    Const,
    Expr,
    Unary,
    Var,
    const,
    load,
    select,
    var,
)
from tilewright.ir.stmt import Allocate, Block, For, If, Kernel, Let, Stmt, Store, While
from tilewright.ir.visit import (
    children,
    loads_in,
    map_kernel,
    rewrite_loads,
    substitute,
    with_nested,
)
from tilewright.passes.spmd.names import Place, constant_places, place_of
from tilewright.passes.spmd.nests import ItemNest, fresh, map_nests, names_of
from tilewright.passes.spmd.strides import Strides, guessed
from tilewright.passes.spmd.varying import Varying
from tilewright.passes.spmd.widths import DIVISIONS, SIMPLE

# How many operations on integers both ways may take together, and those of one on floats, which
# somebody waits for longer. Beyond, a branch that is guessed right is faster by more than it is
# slower where it is guessed wrong as often.
_MOST, _FLOAT = 4, 2


def select_branches(kernel: Kernel) -> Kernel:
    """Makes selections of what an `If` that nobody can foresee assigns to private memory.

        if x[0] % 2 == 0:
          x[0] = x[0] // 2
        else:
          x[0] = 3 * x[0] + 1
    ->  x_now = x[0]
        x[0] = select(x_now % 2 == 0, x_now // 2, 3 * x_now + 1)

    Neither way loads from memory, divides by what may be 0, or sets a flag: that is how a loop is
    left, once, as is easily foreseen.
    """
    taken = names_of(kernel)

    def change(nest: ItemNest) -> Stmt:
        body = _Selecting(nest, taken).visit(nest.body, set())
        return nest.loops[0] if body is nest.body else nest.around(body)

    return map_kernel(kernel, lambda body: map_nests(body, change))


@dataclass
class _Selecting:
    nest: ItemNest
    taken: set[str]

    def __post_init__(self) -> None:
        item, body = self.nest.vars[-1], self.nest.body
        self.strides = Strides(item, Varying([item], body))
        self.memory = constant_places(body)

    def visit(self, stmt: Stmt, assigned: set[Place]) -> Stmt:
        """``stmt`` where the places ``assigned`` have values; it adds those that have some
        behind it."""
        match stmt:
            case Block():
                return with_nested(stmt, tuple(self.visit(p, assigned) for p in stmt.body))
            case Let():
                self.strides.name(stmt)
            case Allocate():
                assigned -= {place for place in assigned if place[0] is stmt.buffer}
            case Store() if stmt.buffer in self.memory:
                assigned.add(place_of(stmt.buffer, stmt.index))
            case For() | While():
                return with_nested(stmt, (self.visit(stmt.body, set(assigned)),))
            case If():
                return self._if(stmt, assigned)
            case _:
                pass
        return stmt

    def _if(self, stmt: If, assigned: set[Place]) -> Stmt:
        before, other = set(assigned), set(assigned)
        then = self.visit(stmt.then, assigned)
        orelse = None if stmt.orelse is None else self.visit(stmt.orelse, other)
        assigned &= other
        made = with_nested(stmt, (then,) if orelse is None else (then, orelse))
        assert isinstance(made, If)
        selected = None
        if guessed(stmt.condition, self.strides):
            selected = self._selected(made, before)
        return made if selected is None else selected

    def _selected(self, stmt: If, assigned: set[Place]) -> Stmt | None:
        """``stmt`` as selections; None where it stays a branch."""
        now: dict[Place, Var] = {}
        ways = [_Way(self, now), _Way(self, now)]
        arms = (stmt.then, stmt.orelse or Block(()))
        if not all(way.follow(arm) for way, arm in zip(ways, arms, strict=True)):
            return None
        places = list(dict.fromkeys((*ways[0].values, *ways[1].values)))
        pairs = [tuple(way.value(place) for way in ways) for place in places]
        cost = len(places) - 1 + _operations(chain.from_iterable(pairs))
        if not places or cost > _MOST or not assigned.issuperset(now):
            return None
        made: list[Stmt] = [Let(v, load(p[0], _index(p)), stmt.span) for p, v in now.items()]
        condition = self.name("taken", boolean)
        made.append(Let(condition, stmt.condition, stmt.span))
        values = [select(condition, *pair) for pair in pairs]
        if len(places) > 1:
            names = [self.name(p[0].name, p[0].dtype) for p in places]
            made += [Let(n, v, stmt.span) for n, v in zip(names, values, strict=True)]
            values = list(names)
        made += [Store(p[0], _index(p), v, stmt.span) for p, v in zip(places, values, strict=True)]
        return Block(tuple(made), stmt.span)

    def name(self, name: str, dtype: DType) -> Var:
        """A new variable."""
        return var(fresh(name, self.taken), dtype)


@dataclass
class _Way:
    """What one way assigns, in terms of what places hold ``now``."""

    nest: _Selecting
    now: dict[Place, Var]
    values: dict[Place, Expr] = field(default_factory=dict)
    names: dict[Var, Expr] = field(default_factory=dict)

    def follow(self, stmt: Stmt) -> bool:
        """Notes what ``stmt`` assigns; whether that is all that it does."""
        match stmt:
            case Block():
                return all(map(self.follow, stmt.body))
            case Let():
                found = self._now(stmt.value)
                if found is not None:
                    self.names[stmt.var] = found
                return found is not None
            case Store() if stmt.buffer in self.nest.memory:
                found = self._now(stmt.value)
                flag = stmt.buffer.dtype is boolean and isinstance(found, Const)
                if found is None or flag:
                    return False
                self.values[place_of(stmt.buffer, stmt.index)] = found
                return True
            case _:
                return False

    def value(self, place: Place) -> Expr:
        """What is at ``place`` behind it."""
        found = self.values.get(place)
        if found is not None:
            return found
        if place not in self.now:
            self.now[place] = self.nest.name(f"{place[0].name}_now", place[0].dtype)
        return self.now[place]

    def _now(self, expr: Expr) -> Expr | None:
        """``expr`` by what places hold now; None where it may not be computed in vain."""
        if any(node.buffer not in self.nest.memory for node in loads_in(expr)):
            return None
        expr = substitute(expr, self.names)
        return rewrite_loads(expr, lambda node: self.value(place_of(node.buffer, node.index)))


def _index(place: Place) -> tuple[Expr, ...]:
    return tuple(const(i) for i in place[1])


def _operations(exprs: Iterable[Expr]) -> float:
    """How many operations ``exprs`` take, more than anybody wants where one is slow or may fail."""
    seen: set[Expr] = set()
    left = list(exprs)
    total = 0.0
    while left:
        node = left.pop()
        if node in seen or isinstance(node, Const | Var):
            continue
        seen.add(node)
        left += children(node)
        match node:
            case Binary(op="pow" | "fmod"):
                return inf
            case Binary(op=op) if op in DIVISIONS:
                if node.type.is_float or not isinstance(node.b, Const):
                    return inf
            case Unary() if node.type.is_float and node.op not in SIMPLE:
                return inf
            case _:
                pass
        total += _FLOAT if node.type.is_float else 1
    return total
