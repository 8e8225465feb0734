"""What reductions begin with, when a term does not count, the conditions that say so, and what a
term is proportional to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    all_of,
    conjuncts,
    const,
    select,
)
from tilewright.ir.operators import identity
from tilewright.ir.stmt import Combiner, Compute, Result, View
from tilewright.ir.visit import map_compute, variables

# Operators whose reductions may go in parts.
ASSOCIATIVE = ("add", "mul", "max", "min")


def vanishes(compute: Compute, operand: Var) -> bool:
    """Whether a zero of ``operand`` makes the term neutral: a factor of a term of a sum.

    As everywhere with padding, the product of such a zero with an infinity or NaN is left out.
    """
    return compute.combiner == "add" and _is_factor(compute.body, operand)


def _is_factor(body: Expr, operand: Var) -> bool:
    match body:
        case Var():
            return body is operand
        case Cast() | Unary(op="neg") | Unary(op="abs"):
            return _is_factor(body.a, operand)
        case Binary(op="mul"):
            return _is_factor(body.a, operand) or _is_factor(body.b, operand)
        case Binary(op="add") | Binary(op="sub"):
            return _is_factor(body.a, operand) and _is_factor(body.b, operand)
        case Binary(op="div"):
            return _is_factor(body.a, operand)
        case _:
            return False


def identities(result: Result) -> tuple[Const, ...]:
    """What each view of ``result`` begins with."""
    how = result.combiner
    if isinstance(how, Combiner):
        return how.identity
    assert how is not None
    dtypes = [view.buffer.dtype for view in result.views]
    return tuple(const(identity(how, dtype), dtype) for dtype in dtypes)


def is_identity(value: Expr, combiner: str | None) -> bool:
    """Whether combining with ``value`` changes nothing."""
    if not isinstance(value, Const) or combiner not in ASSOCIATIVE:
        return False
    return bool(value.value == identity(combiner, value.type))


def needed(compute: Compute) -> list[Expr]:
    """The conditions without which the compute's term is neutral, and that can be tested outside of
    it: on what its operands have loaded, nothing else can ask."""
    exprs: list[Expr] = []
    for operand in compute.operands:
        if vanishes(compute, operand.var):
            exprs += conjuncts(operand.view.mask)
    body = compute.body
    if isinstance(body, Select) and is_identity(body.b, compute.combiner):
        exprs += conjuncts(body.condition)
    loaded = {operand.var for operand in compute.operands}
    return [condition for condition in exprs if loaded.isdisjoint(variables(condition))]


def without(compute: Compute, dropped: Collection[Expr]) -> Compute:
    """``compute`` without conditions that hold wherever it still runs."""
    if not dropped:
        return compute

    def view(old: View) -> View:
        kept = [c for c in conjuncts(old.mask) if c not in dropped]
        return old if len(kept) == len(conjuncts(old.mask)) else replace(old, mask=all_of(kept))

    compute = map_compute(compute, view)
    body = compute.body
    if isinstance(body, Select) and is_identity(body.b, compute.combiner):
        rest = all_of(c for c in conjuncts(body.condition) if c not in dropped)
        body = body.a if rest is None else select(rest, body.a, body.b)
    return compute if body is compute.body else compute.with_result(body=body)


def uncast(value: Expr) -> Expr:
    """``value`` before it was converted."""
    while isinstance(value, Cast):
        value = value.a
    return value


def is_proportional(compute: Compute, buffer: Buffer) -> bool:
    """Whether what ``compute`` adds up is a product with one element of ``buffer``."""
    powers = {operand.var for operand in compute.operands if operand.view.buffer is buffer}
    factors, count = [compute.body], 0
    while factors:
        value = uncast(factors.pop())
        if isinstance(value, Binary) and value.op == "mul":
            factors += [value.a, value.b]
        elif value in powers:
            count += 1
        elif variables(value) & powers:
            return False
    return count == 1
