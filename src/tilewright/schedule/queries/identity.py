"""When a term of a reduction does not count, and the conditions that say so."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

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
    select,
)
from tilewright.ir.stmt import Compute, View
from tilewright.ir.visit import map_compute, variables


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


def is_identity(value: Expr, combiner: str | None) -> bool:
    """Whether combining with ``value`` changes nothing."""
    if not isinstance(value, Const):
        return False
    match combiner:
        case "add":
            return bool(value.value == 0)
        case "mul":
            return bool(value.value == 1)
        case "max":
            return bool(value.value == value.type.lowest)
        case "min":
            return bool(value.value == value.type.highest)
        case _:
            return False


def needed(compute: Compute) -> list[Expr]:
    """The conditions without which the compute's term is neutral, and that can be tested outside of
    it: on what its operands have loaded, nothing else can ask."""
    found: list[Expr] = []
    for operand in compute.operands:
        if vanishes(compute, operand.var):
            found += conjuncts(operand.view.mask)
    body = compute.body
    if isinstance(body, Select) and is_identity(body.b, compute.combiner):
        found += conjuncts(body.condition)
    loaded = {operand.var for operand in compute.operands}
    return [condition for condition in found if loaded.isdisjoint(variables(condition))]


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
