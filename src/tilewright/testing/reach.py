"""How far the accesses of a kernel reach, given the loops and conditions around them.

All integers are treated as s64 without wrapping, and a variable of a kernel in Python (private
memory of one element) as keeping the value that a condition tested: that suffices to choose the
sizes of arrays, and is no proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import NamedTuple

from tilewright.dtypes import boolean, s64
from tilewright.facts import Affine, Facts, affine
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    binary,
    cast,
    const,
    select,
    unary,
    var,
)
from tilewright.ir.load import Load
from tilewright.ir.stmt import Block, Call, Compute, For, If, Kernel, Let, Stmt, Store, View, While
from tilewright.ir.visit import direct_exprs, nested, variables, walk, walk_stmts

# Longer than any array of a case: an index with a greater bound gives no size.
_FARTHEST = 1 << 22
_LOGIC = ("and", "or", "xor")


class Access(NamedTuple):
    """A load or store of an element: its index, in s64, and the facts there."""

    buffer: Buffer
    place: tuple[Expr, ...]
    facts: Facts


class Condition(NamedTuple):
    """The condition of an `if`, a `while`, a mask or a select, in s64, and the facts there."""

    expr: Expr
    facts: Facts


class Scan:
    """The accesses and conditions of ``kernel`` in calls with the values ``sizes`` for some of its
    parameters; the others are at least ``least``."""

    def __init__(self, kernel: Kernel, sizes: Mapping[str, int], least: Mapping[str, int]) -> None:
        self.accesses: list[Access] = []
        self.conditions: list[Condition] = []
        self._numbers = frozenset(var(scalar.name) for scalar in kernel.scalars)
        self._wide: dict[Expr, Expr] = {}
        self._forgotten = 0
        facts = Facts.empty()
        for name, value in sizes.items():
            facts = facts.assume(binary("eq", var(name), const(value)))
        for name, value in least.items():
            if name not in sizes:
                facts = facts.assume(binary("le", const(value), var(name)))
        self._walk(kernel.body, facts)

    def wide(self, expr: Expr) -> Expr:
        """``expr`` with its integers as s64, if it is an integer or a condition on integers."""
        widened = self._wide.get(expr)
        if widened is None:
            widened = self._wide[expr] = self._widen(expr)
        return widened

    def _widen(self, expr: Expr) -> Expr:
        integer = expr.type.is_integer
        match expr:
            case Const() if integer:
                return const(int(expr.value))
            case Var() if integer:
                return var(expr.name)
            case Cast() if integer and expr.a.type.is_integer and expr.type.bits >= 32:
                return self.wide(expr.a)
            case Load() if integer and _is_variable(expr.buffer):
                return _variable(expr.buffer)
            case Binary() if expr.a.type.is_integer or (
                expr.a.type is boolean and expr.op in _LOGIC
            ):
                return binary(expr.op, self.wide(expr.a), self.wide(expr.b))
            case Unary(op="neg" | "abs") if integer:
                return unary(expr.op, self.wide(expr.a))
            case Unary(op="not") if expr.type is boolean:
                return unary("not", self.wide(expr.a))
            case Select() if integer or expr.type is boolean:
                return select(self.wide(expr.condition), self.wide(expr.a), self.wide(expr.b))
        return cast(s64, expr) if integer and expr.type is not s64 else expr

    def _walk(self, stmt: Stmt, facts: Facts) -> Facts:
        """Notes the accesses and conditions of ``stmt``; gives the facts after it."""
        self._note(stmt, facts)
        match stmt:
            case Block():
                for part in stmt.body:
                    facts = self._walk(part, facts)
            case Let() if stmt.var.type is boolean:
                self._wide[stmt.var] = self._note_condition(stmt.value, facts)
            case Let() if stmt.var.type.is_integer:
                return facts.bind(var(stmt.var.name), self.wide(stmt.value))
            case Store() if _is_variable(stmt.buffer):
                return facts.bind(_variable(stmt.buffer), self.wide(stmt.value))
            case For():
                facts = self._without(stmt.body, facts)
                self._walk(stmt.body, facts.loop(stmt.var, self.wide(stmt.extent)))
            case While():
                facts = self._without(stmt.body, facts)
                self._walk(stmt.body, facts.assume(self._note_condition(stmt.condition, facts)))
            case If():
                condition = self._note_condition(stmt.condition, facts)
                self._walk(stmt.then, facts.assume(condition))
                if stmt.orelse is not None:
                    self._walk(stmt.orelse, facts.assume(condition, False))
                return self._without(stmt, facts)
            case Compute():
                self._compute(stmt, facts)
            case _:
                for part in nested(stmt):
                    self._walk(part, facts)
        return facts

    def _without(self, stmt: Stmt, facts: Facts) -> Facts:
        """``facts`` without those on variables that ``stmt`` assigns."""
        for inner in walk_stmts(stmt):
            if isinstance(inner, Store) and _is_variable(inner.buffer):
                self._forgotten += 1
                unknown = var(f"{inner.buffer.name}[{self._forgotten}]")
                facts = facts.bind(_variable(inner.buffer), unknown)
        return facts

    def _note(self, stmt: Stmt, facts: Facts) -> None:
        """Notes the accesses and conditions of ``stmt`` itself, without its parts."""
        if isinstance(stmt, Compute):
            return  # noted over its dims
        for expr in direct_exprs(stmt):
            self._loads(expr, facts)
        if isinstance(stmt, Store) and not _is_variable(stmt.buffer):
            self._access(stmt.buffer, stmt.index, None, facts)
        if isinstance(stmt, Call):
            for arg in stmt.args:
                if isinstance(arg, View):
                    self._access(arg.buffer, arg.index, arg.mask, facts)

    def _loads(self, expr: Expr, facts: Facts) -> None:
        for node in walk(expr):
            if isinstance(node, Load):
                self._access(node.buffer, node.index, node.mask, facts)
            elif isinstance(node, Select):
                self._note_condition(node.condition, facts)

    def _compute(self, stmt: Compute, facts: Facts) -> None:
        for dim in stmt.dims:
            facts = facts.loop(dim.var, self.wide(dim.extent))
        for operand in stmt.operands:
            self._access(operand.view.buffer, operand.view.index, operand.view.mask, facts)
        for view in stmt.outputs:
            self._access(view.buffer, view.index, view.mask, facts)
        for expr in direct_exprs(stmt):
            self._loads(expr, facts)

    def _access(
        self, buffer: Buffer, index: tuple[Expr, ...], mask: Expr | None, facts: Facts
    ) -> None:
        if mask is not None:
            facts = facts.assume(self._note_condition(mask, facts))
        self.accesses.append(Access(buffer, tuple(map(self.wide, index)), facts))

    def _note_condition(self, condition: Expr, facts: Facts) -> Expr:
        wide = self.wide(condition)
        self.conditions.append(Condition(wide, facts))
        return wide

    def reach(self, index: Expr, facts: Facts, natural: Sequence[int]) -> int | None:
        """The size that a dim needs for ``index``; None where nothing bounds it.

        With ``natural`` sizes, a constant offset does not count beyond the first of them that fits
        the index without the offset: ``x[i + 1]`` needs no more than ``x[i]``, as a condition
        usually keeps it within such a size.
        """
        form = facts.expanded(affine(index))
        most = facts.upper(form)
        if most is None or most >= _FARTHEST:
            return None
        varying = [c for atom, c in form.terms.items() if not self._is_fixed(atom)]
        offset = form.constant
        if varying and max(varying) < 0:
            offset += 1  # x[n - 1 - i] goes backwards from the last element
        step = abs(gcd(*varying))
        if not natural or step == 0 or offset < step:
            return max(1, most + 1)
        plain = most + 1 - offset // step * step
        return max(1, min(most + 1, min((n for n in natural if n >= plain), default=plain)))

    def _is_fixed(self, atom: Expr) -> bool:
        return variables(atom) <= self._numbers and not any(
            isinstance(node, Load) for node in walk(atom)
        )


def _is_variable(buffer: Buffer) -> bool:
    """Whether this private memory is an integer variable of a kernel in Python."""
    alone = buffer.space is Space.PRIVATE and buffer.sizes == (1,)
    return alone and buffer.dtype.is_integer


def _variable(buffer: Buffer) -> Var:
    return var(f"{buffer.name}[]")


def comparisons(condition: Condition) -> Iterator[Affine]:
    """The difference of both sides of each ``<`` and ``<=`` in ``condition``."""
    for node in walk(condition.expr):
        if isinstance(node, Binary) and node.op in ("lt", "le") and node.a.type is s64:
            yield condition.facts.expanded(affine(node.a) - affine(node.b))
