"""Small branches that depend on data, as selects.

A processor predicts branches, and a misprediction costs a dozen cycles. Where work-items run one by
one, and both branches only compute a few numbers, computing both takes less. (Lanes of vectors are
masked anyway.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from math import inf

from tilewright.dtypes import DType, boolean
from tilewright.ir.expr import Binary, Const, Expr, Unary, Var, const, select, var
from tilewright.ir.load import load
from tilewright.ir.renaming import fresh
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
from tilewright.passes.spmd.nests import ItemNest, map_nests, names_of
from tilewright.passes.spmd.strides import Strides, depends_on_data
from tilewright.passes.spmd.varying import Varying
from tilewright.passes.spmd.widths import DIVISIONS, SIMPLE

# Most operations on integers in both branches together, and the weight of one on floats, whose
# latency is longer. Beyond, a predicted branch saves more than a misprediction costs.
_MOST, _FLOAT = 4, 2


def select_branches(kernel: Kernel) -> Kernel:
    """Makes selects of an `If` on data that only assigns to private memory.

        if x[0] % 2 == 0:
          x[0] = x[0] // 2
        else:
          x[0] = 3 * x[0] + 1
    ->  x_now = x[0]
        x[0] = select(x_now % 2 == 0, x_now // 2, 3 * x_now + 1)

    Neither branch loads from memory, divides by what may be 0, or sets a flag: flags are set once,
    to leave a loop, which is easily predicted.
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
        """``stmt`` where the places ``assigned`` have values; it adds those that have one after
        it."""
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
        branch = with_nested(stmt, (then,) if orelse is None else (then, orelse))
        assert isinstance(branch, If)
        selected = None
        if depends_on_data(stmt.condition, self.strides):
            selected = self._selected(branch, before)
        return branch if selected is None else selected

    def _selected(self, stmt: If, assigned: set[Place]) -> Stmt | None:
        """``stmt`` as selects; None where it stays a branch."""
        now: dict[Place, Var] = {}
        branches = [_Branch(self, now), _Branch(self, now)]
        arms = (stmt.then, stmt.orelse or Block(()))
        if not all(way.follow(arm) for way, arm in zip(branches, arms, strict=True)):
            return None
        places = list(dict.fromkeys((*branches[0].values, *branches[1].values)))
        pairs = [tuple(way.value(place) for way in branches) for place in places]
        cost = len(places) - 1 + _operations(chain.from_iterable(pairs))
        if not places or cost > _MOST or not assigned.issuperset(now):
            return None
        stmts: list[Stmt] = [Let(v, load(p[0], _index(p)), stmt.span) for p, v in now.items()]
        condition = self.name("taken", boolean)
        stmts.append(Let(condition, stmt.condition, stmt.span))
        values = [select(condition, *pair) for pair in pairs]
        if len(places) > 1:
            names = [self.name(p[0].name, p[0].dtype) for p in places]
            stmts += [Let(n, v, stmt.span) for n, v in zip(names, values, strict=True)]
            values = list(names)
        stmts += [Store(p[0], _index(p), v, stmt.span) for p, v in zip(places, values, strict=True)]
        return Block(tuple(stmts), stmt.span)

    def name(self, name: str, dtype: DType) -> Var:
        """A new variable."""
        return var(fresh(name, self.taken), dtype)


@dataclass
class _Branch:
    """The assignments of one branch, by the values that places hold ``now``, before it."""

    nest: _Selecting
    now: dict[Place, Var]
    values: dict[Place, Expr] = field(default_factory=dict)
    names: dict[Var, Expr] = field(default_factory=dict)

    def follow(self, stmt: Stmt) -> bool:
        """Notes the assignments in ``stmt``; returns whether it does nothing else."""
        match stmt:
            case Block():
                return all(map(self.follow, stmt.body))
            case Let():
                value = self._now(stmt.value)
                if value is not None:
                    self.names[stmt.var] = value
                return value is not None
            case Store() if stmt.buffer in self.nest.memory:
                value = self._now(stmt.value)
                flag = stmt.buffer.dtype is boolean and isinstance(value, Const)
                if value is None or flag:
                    return False
                self.values[place_of(stmt.buffer, stmt.index)] = value
                return True
            case _:
                return False

    def value(self, place: Place) -> Expr:
        """The value at ``place`` after the branch."""
        value = self.values.get(place)
        if value is not None:
            return value
        if place not in self.now:
            self.now[place] = self.nest.name(f"{place[0].name}_now", place[0].dtype)
        return self.now[place]

    def _now(self, expr: Expr) -> Expr | None:
        """``expr`` by the values that places hold now; None where it must not be computed for
        nothing."""
        if any(node.buffer not in self.nest.memory for node in loads_in(expr)):
            return None
        expr = substitute(expr, self.names)
        return rewrite_loads(expr, lambda node: self.value(place_of(node.buffer, node.index)))


def _index(place: Place) -> tuple[Expr, ...]:
    return tuple(const(i) for i in place[1])


def _operations(exprs: Iterable[Expr]) -> float:
    """The number of operations in ``exprs``; infinite where one is slow or may fail."""
    seen: set[Expr] = set()
    pending = list(exprs)
    total = 0.0
    while pending:
        node = pending.pop()
        if node in seen or isinstance(node, Const | Var):
            continue
        seen.add(node)
        pending += children(node)
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
