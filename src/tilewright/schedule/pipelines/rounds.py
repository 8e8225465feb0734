"""A loop that is run again and again: which of all its iterations one is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from tilewright.facts.scope import Facts
from tilewright.ir.expr import Const, Expr, conjuncts, const
from tilewright.ir.stmt import For, If, Let, LoopKind, Stmt
from tilewright.ir.visit import (
    block,
    direct_exprs,
    nested,
    reads_memory,
    substitute,
    walk_stmts,
    with_nested,
)
from tilewright.schedule.queries.place import holds_loop, sequence
from tilewright.schedule.queries.refusal import refusal


class Rounds:
    """The way to the loop ``name`` from what a work-item runs, ``body``: through serial loops and
    conditions (without else), with lets and other statements beside them.

        for turn in 7:
          if turn * 16 + group < 100:
            m_o = turn * 16 + group
            ...
            for step in 5: ...

    Each passage through the loop is a round. ``number`` is that of an iteration among those of all
    rounds so far: here ``turn * 5 + step``.
    """

    def __init__(self, body: Stmt, name: str) -> None:
        self.name, self._body = name, body
        self.way: list[For | If] = []
        self.lets: list[Let] = []
        self.loop = self._find()
        self.around = [stmt for stmt in self.way if isinstance(stmt, For)]

    @property
    def repeated(self) -> bool:
        """Whether there is more than one round."""
        return bool(self.around)

    @property
    def first(self) -> Expr:
        """The number of a round's first iteration."""
        expr: Expr = const(0)
        for loop, inner in pairwise([*self.around, self.loop]):
            expr = (expr + loop.var) * inner.extent
        return expr

    @property
    def number(self) -> Expr:
        """The number of the loop's iteration."""
        return self.first + self.loop.var

    def beside(self) -> Iterator[Stmt]:
        """The statements on the way that are not part of it, with those inside of them."""
        body = self._body
        for inner in (*self.way, self.loop):
            for stmt in sequence(body):
                if stmt is not inner:
                    yield from walk_stmts(stmt)
            body = inner.then if isinstance(inner, If) else inner.body

    def remade(self, stmts: Iterable[Stmt], keep: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
        """What a work-item runs with ``stmts`` in the place of the loop; of what stands beside the
        way, that which is to ``keep``."""
        inside = tuple(stmts)
        inner: For | If = self.loop
        parents = [self._body, *(nested(stmt)[0] for stmt in self.way)]
        for depth, body in reversed(list(enumerate(parents))):
            parts: list[Stmt] = []
            for stmt in sequence(body):
                if stmt is inner:
                    parts += inside
                elif keep(stmt):
                    parts.append(stmt)
            if depth:
                inner = self.way[depth - 1]
                inside = (with_nested(inner, (block(*parts),)),)
        return tuple(parts)

    def check_counted(self, facts: Facts) -> None:
        """Refuses rounds whose iterations `number` does not count without gaps; ``facts`` hold for
        the work-item."""
        if not self.repeated:
            return
        for loop in (*self.around[1:], self.loop):
            if not isinstance(loop.extent, Const) or loop.extent.value < 1:
                raise refusal(
                    f"rounds of '{self.name}' differ in length",
                    loop,
                    "choose loops of constant extent",
                    why="iterations are counted on through all rounds",
                )
        outer: list[For] = []
        for stmt in self.way:
            if isinstance(stmt, For):
                outer.append(stmt)
            elif not all(self._leaves_out_the_last(c, outer, facts) for c in self._parts(stmt)):
                raise refusal(
                    "rounds are left out between others",
                    stmt,
                    "leave out the last rounds only",
                    why="iterations are counted on through all rounds",
                )

    def _parts(self, condition: If) -> tuple[Expr, ...]:
        """What has to hold, without names for parts of it."""
        whole = condition.condition
        for let in reversed(self.lets):
            whole = substitute(whole, {let.var: let.value})
        return conjuncts(whole)

    def _leaves_out_the_last(self, condition: Expr, outer: list[For], facts: Facts) -> bool:
        """Whether ``condition`` holds in all rounds before one in which it does."""
        for depth, loop in enumerate(outer):
            # From one iteration of this loop to the next: the last of all inside of the one, and
            # the first of all inside of the other.
            after = {inner.var: const(0) for inner in outer[depth + 1 :]}
            before = {inner.var: inner.extent - 1 for inner in outer[depth + 1 :]}
            later = substitute(substitute(condition, after), {loop.var: loop.var + 1})
            facts_later = facts.loop(loop.var, loop.extent - 1).assume(later)
            if facts_later.prove(substitute(condition, before)) is not True:
                return False
            facts = facts.loop(loop.var, loop.extent)
        return True

    def _find(self) -> For:
        """The loop; the way there is noted."""
        body = self._body
        while True:
            stmts = sequence(body)
            number, inner = next((i, s) for i, s in enumerate(stmts) if holds_loop(s, self.name))
            here = [stmt for stmt in stmts[:number] if isinstance(stmt, Let)]
            self.lets += here
            for stmt in (*here, inner):
                self._check_pure(stmt)
            if isinstance(inner, For) and inner.kind is LoopKind.SERIAL:
                if inner.var.name == self.name:
                    return inner
                self.way.append(inner)
                body = inner.body
            elif isinstance(inner, If) and inner.orelse is None:
                self.way.append(inner)
                body = inner.then
            else:
                raise refusal(
                    f"the loop '{self.name}' is not directly what a subgroup runs",
                    inner,
                    "have nothing around it but serial loops and conditions without else",
                    why="the subgroup that copies counts iterations as the others do",
                )

    def _check_pure(self, stmt: Stmt) -> None:
        """Refuses what decides by memory: at another time it may be something else."""
        if any(map(reads_memory, direct_exprs(stmt))):
            raise refusal(
                f"what leads to the loop '{self.name}' is read from memory",
                stmt,
                "have around it what follows from the numbers of loops",
                why="subgroups that come there at different times may read different values",
            )
