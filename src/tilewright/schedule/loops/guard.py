"""Tests around statements instead of masks: terms that contribute nothing are not computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import is_

from tilewright.dtypes import s64
from tilewright.facts.affine import Affine, difference
from tilewright.facts.scope import Facts
from tilewright.ir.expr import Expr, Select, Var, all_of, conjuncts, const
from tilewright.ir.stmt import Allocate, Block, Compute, For, If, Kernel, Let, LoopKind, Stmt
from tilewright.ir.visit import block, reads_memory, variables, walk, with_nested
from tilewright.schedule.queries.identity import needed, without
from tilewright.schedule.queries.place import Place, rewrite_computes
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify_stmt

# Loops whose iterations share an instruction: a test inside would be a mask again.
_LANES = frozenset({LoopKind.VECTOR, LoopKind.SUBGROUP, LoopKind.LANE})
# Loops that a test may stand around: others say where their body runs, on all levels above.
_MOVABLE = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTOR})

# The conditions without which a statement does nothing; None for one that never does anything.
_Conditions = tuple[Expr, ...] | None


@transform
@asks(compute=a_plain_compute)
def guard(kernel: Kernel, compute: str) -> Kernel:
    """Tests once, outside of loops, what masks of a reduction would test at every point.

        for ih in 7:
          for kh in 3:
            for kw in 3:
              compute main(iw in 4):
                acc[iw] add= d * w    (d = dst[... | (ih + 1 - kh) % 2 == 0 and iw < 3])
    ->  guard("main")
        for ih in 7:
          for kh in 3:
            if (ih + 1 - kh) % 2 == 0:
              for kw in 3:
                compute main(iw in 4):
                  acc[iw] add= d * w    (d = dst[... | iw < 3])

    A condition moves when it does not depend on the compute's own dims or on memory, and where it
    does not hold, the compute's term is neutral (see `trim`). It goes outwards as long as it is
    about everything there, up to the loop or the let that it depends on; pieces of the compute that
    follow one another get one test. Conditions on lanes stay masks. In an unrolled loop the test
    becomes known, or is one of each copy. Nothing changes where there is none.
    """
    guarding = _Guarding(compute)
    body, conditions = guarding.visit(kernel.body, frozenset())
    body = _tested(conditions, body)
    return kernel if body is kernel.body else replace(kernel, body=body)


@transform
@asks(compute=a_plain_compute)
def guard_select(kernel: Kernel, compute: str) -> Kernel:
    """Tests once, before a compute, whether all of its points take the first side of its selects.

        for i_o in 8:
          compute f(i in 16, j in 64): y[i_o*16 + i, j] = select(j <= i_o*16 + i, x, -inf)
    ->  guard_select("f")
        for i_o in 8:
          if 63 <= i_o * 16:
            compute f(i in 16, j in 64): y[i_o*16 + i, j] = x
          else:
            compute f(i in 16, j in 64): y[i_o*16 + i, j] = select(j <= i_o*16 + i, x, -inf)

    That counts conditions that are linear in the compute's dims and depend on loops or numbers
    around it. Nothing changes where there is none, or what is known around it decides.
    """

    def change(stmt: Compute, place: Place) -> Stmt:
        selects = [node for node in walk(stmt.body) if isinstance(node, Select)]
        tests = [test for node in selects for test in at_all_points(node.condition, stmt)]
        tests = [test for test in tests if variables(test) and not reads_memory(test)]
        test = all_of(dict.fromkeys(tests))
        if test is None or place.facts.prove(test) is not None:
            return stmt
        first = simplify_stmt(stmt, place.facts.assume(test))
        return stmt if first is stmt else If(test, first, stmt)

    return rewrite_computes(kernel, {compute}, change)


def at_some_points(condition: Expr, compute: Compute) -> Iterator[Expr]:
    """Necessary conditions, on what is outside of ``compute``, for ``condition`` to hold at any of
    its points."""
    return _at_ends(condition, compute, greatest=True)


def at_all_points(condition: Expr, compute: Compute) -> Iterator[Expr]:
    """Conditions, on what is outside of ``compute``, under which parts of ``condition`` hold at all
    of its points."""
    return _at_ends(condition, compute, greatest=False)


def _at_ends(condition: Expr, compute: Compute, greatest: bool) -> Iterator[Expr]:
    """For each part of ``condition`` that is linear in indices, that it holds where the points make
    it the greatest, or the least. Elements that the compute reads are nothing outside of it."""
    extents = {dim.var: Facts.empty().bounds(dim.extent)[1] for dim in compute.dims}
    elements = {operand.var for operand in compute.operands}
    for part in conjuncts(condition):
        form = difference(part)
        if form is None or variables(part) & elements:
            continue
        if any(t.type is not s64 for t in form.terms):
            continue
        if any(variables(t) & extents.keys() - {t} for t in form.terms):
            continue
        inner = [
            (n, extents[t]) for t, n in form.terms.items() if isinstance(t, Var) and t in extents
        ]
        moving = [(n, size) for n, size in inner if (n > 0) is greatest]
        if any(size is None for _, size in moving):
            continue
        end = sum(n * (size - 1) for n, size in moving if size)
        rest = {term: n for term, n in form.terms.items() if term not in extents}
        yield const(0) <= Affine(rest, form.constant + end).to_expr()


@dataclass(frozen=True)
class _Guarding:
    """Each visit gives a statement and the conditions that are still to be tested around it."""

    compute: str

    def visit(self, stmt: Stmt, lanes: frozenset[Var]) -> tuple[Stmt, _Conditions]:
        match stmt:
            case Compute() if stmt.name == self.compute:
                conditions = _conditions(stmt, lanes)
                return without(stmt, frozenset(conditions)), conditions
            case For():
                return self._loop(stmt, lanes)
            case If():
                return self._branches(stmt, lanes)
            case Block():
                return self._sequence(stmt, lanes)
            case _:
                return stmt, ()

    def _loop(self, loop: For, lanes: frozenset[Var]) -> tuple[Stmt, _Conditions]:
        lanes = lanes | {loop.var} if loop.kind in _LANES else lanes - {loop.var}
        body, conditions = self.visit(loop.body, lanes)
        here = conditions
        if loop.kind in _MOVABLE:
            here, conditions = _mentioning(loop.var, conditions)
        else:
            conditions = None if conditions is None else ()
        return with_nested(loop, (_tested(here, body),)), conditions

    def _branches(self, stmt: If, lanes: frozenset[Var]) -> tuple[Stmt, _Conditions]:
        then, conditions = self.visit(stmt.then, lanes)
        if stmt.orelse is None:
            return with_nested(stmt, (then,)), conditions
        orelse, others = self.visit(stmt.orelse, lanes)
        return with_nested(stmt, (_tested(conditions, then), _tested(others, orelse))), ()

    def _sequence(self, stmt: Block, lanes: frozenset[Var]) -> tuple[Stmt, _Conditions]:
        """From the last statement to the first: what comes after one is in its scope."""
        rest: list[Stmt] = []
        conditions: _Conditions = None
        for part in reversed(stmt.body):
            if isinstance(part, Let):
                here, conditions = _mentioning(part.var, conditions)
                rest = [part, *_tested_all(here, rest)]
                continue
            if isinstance(part, Allocate):
                rest = [part, *_tested_all(conditions, rest)]
                conditions = None if conditions is None else ()
                continue
            new, exprs = self.visit(part, lanes)
            common = _common(exprs, conditions)
            first = _tested(_less(exprs, common), new)
            rest = _joined(first, _tested_all(_less(conditions, common), rest), first is not new)
            conditions = common
        same = len(rest) == len(stmt.body) and all(map(is_, rest, stmt.body))
        return stmt if same else block(*rest), conditions


def _conditions(compute: Compute, lanes: frozenset[Var]) -> tuple[Expr, ...]:
    """The conditions without which the compute's term is neutral, and that hold for all of it."""
    inner = lanes.union(dim.var for dim in compute.dims)
    # One that never holds stays a mask, so that what follows still finds the compute.
    return tuple(
        c
        for c in dict.fromkeys(needed(compute))
        if variables(c) and not variables(c) & inner and not reads_memory(c)
    )


def _mentioning(variable: Var, conditions: _Conditions) -> tuple[_Conditions, _Conditions]:
    """The conditions that depend on ``variable``, and the others."""
    if conditions is None:
        return None, None
    here = tuple(c for c in conditions if variable in variables(c))
    return here, _less(conditions, here)


def _common(a: _Conditions, b: _Conditions) -> _Conditions:
    if a is None or b is None:
        return b if a is None else a
    return tuple(c for c in a if c in b)


def _less(conditions: _Conditions, gone: _Conditions) -> tuple[Expr, ...]:
    return tuple(c for c in conditions or () if c not in (gone or ()))


def _tested(conditions: Iterable[Expr] | None, stmt: Stmt) -> Stmt:
    """``stmt`` where the conditions hold."""
    condition = all_of(conditions or ())
    return stmt if condition is None else If(condition, stmt)


def _tested_all(conditions: _Conditions, stmts: Sequence[Stmt]) -> list[Stmt]:
    return [_tested(conditions, block(*stmts))] if conditions else list(stmts)


def _joined(first: Stmt, rest: list[Stmt], tested: bool) -> list[Stmt]:
    """``first`` and ``rest``; with one test for both where they have the same."""
    following = rest[0] if rest else None
    if (
        tested
        and isinstance(first, If)
        and isinstance(following, If)
        and following.orelse is None
        and first.condition is following.condition
    ):
        return [If(first.condition, block(first.then, following.then)), *rest[1:]]
    return [first, *rest]
