"""Vectors whose lanes all take the same path, and need no masks.

Mostly a work-item first checks whether it is inside of a range, which neighbours are together
except for the last few: one comparison of the first or the last lane decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tilewright.dtypes import boolean, s32, s64
from tilewright.facts import Facts
from tilewright.ir.expr import (
    Binary,
    Expr,
    Var,
    all_of,
    binary,
    cast,
    conjuncts,
    const,
    unary,
)
from tilewright.ir.stmt import Block, For, If, Let, Stmt
from tilewright.ir.visit import block, reads_memory, substitute, variables, walk_stmts
from tilewright.passes.spmd.strides import Strides
from tilewright.simplify import simplify

# More statements than this are not written twice.
_FEW = 120


def on_whole_vectors(body: Stmt, strides: Strides, width: int) -> tuple[Expr, Stmt] | None:
    """A condition that is the same for all lanes, and ``body`` where it holds; None where nothing
    can be left out of ``body``.

        if o * 8 + l < n:
          y[o * 8 + l] = 1.0
    ->  where o * 8 + 7 < n:
          y[o * 8 + l] = 1.0
    """
    stmts = list(walk_stmts(body))
    if len(stmts) > _FEW:
        return None
    inside = frozenset(s.var for s in stmts if isinstance(s, Let | For))
    paths = _UniformPaths(strides, width, inside)
    without_masks = paths.without(body)
    condition = all_of(paths.conditions)
    return None if condition is None or not paths.apart else (condition, without_masks)


@dataclass
class _UniformPaths:
    strides: Strides
    width: int
    inside: frozenset[Var]
    conditions: dict[Expr, None] = field(default_factory=dict)
    apart: bool = False  # whether lanes could diverge
    lets: dict[Var, Expr] = field(default_factory=dict)
    named: dict[Var, Expr] = field(default_factory=dict)  # conditions

    def without(self, stmt: Stmt) -> Stmt:
        """``stmt`` where `conditions` hold, to which it adds."""
        original = stmt
        match stmt:
            case Let():
                if reads_memory(stmt.value):
                    return stmt
                if stmt.var.type is boolean:
                    self.named[stmt.var] = substitute(stmt.value, self.named)
                if not self.strides.varying.of(stmt.value):
                    self.lets[stmt.var] = substitute(stmt.value, self.lets)
                return stmt
            case Block():
                return Block(tuple(map(self.without, stmt.body)), stmt.span)
            case If():
                condition = substitute(stmt.condition, self.named)
                parts = conjuncts(condition)
                if stmt.orelse is not None and _is_nothing(stmt.then):
                    # Work-items outside return at once; the others are inside.
                    parts = tuple(_denied(condition))
                    stmt = replace(stmt, then=stmt.orelse, orelse=None)
                remaining = [part for part in parts if not self._holds(part)]
                if len(remaining) == len(parts) or (remaining and stmt.orelse is not None):
                    return original
                then = self.without(stmt.then)
                rest = all_of(remaining)
                return block(then) if rest is None else replace(stmt, condition=rest, then=then)
            case _:
                return stmt

    def _holds(self, part: Expr) -> bool:
        """Whether ``part`` may be left out: it then adds a condition under which ``part`` holds in
        all lanes."""
        if reads_memory(part):
            return False
        needed = self._in_all(part) if self.strides.varying.of(part) else [part]
        if needed is None:
            return False
        needed_outside = [substitute(condition, self.lets) for condition in needed]
        if any(not variables(condition).isdisjoint(self.inside) for condition in needed_outside):
            return False
        self.apart = self.apart or self.strides.varying.of(part)
        self.conditions.update(dict.fromkeys(needed_outside))
        return True

    def _in_all(self, part: Expr) -> list[Expr] | None:
        """The conditions under which a comparison holds in all lanes, that is in the worst one."""
        if not isinstance(part, Binary) or part.op not in ("lt", "le"):
            return None
        widened = self.strides.widened
        widened.clear()
        a, b = self.strides.of(part.a), self.strides.of(part.b)
        if a is None or b is None:
            return None
        last = self.width - 1
        worst = last if a[1] > b[1] else 0
        sides: list[Expr] = []
        for common, step in (a, b):
            wide = cast(s64, common)
            sides.append(wide + step * worst if step * worst else wide)
            if step and common.type is s32:
                widened.append((wide, step))
        # No sum of s32 wraps.
        ends = [
            wide + step * last <= int(s32.highest)
            if step > 0
            else const(int(s32.lowest)) <= wide + step * last
            for wide, step in widened
        ]
        return [binary(part.op, *sides), *ends]


def _is_nothing(stmt: Stmt) -> bool:
    return all(isinstance(part, Block | Let) for part in walk_stmts(stmt))


def _denied(condition: Expr) -> Iterator[Expr]:
    """Conditions that all hold where ``condition`` does not."""
    if isinstance(condition, Binary) and condition.op == "or":
        yield from _denied(condition.a)
        yield from _denied(condition.b)
    else:
        yield simplify(unary("not", condition), Facts.empty())
