"""Sums of quotients as quotients of sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Binary, Expr, Var, cast, var
from tilewright.ir.stmt import Allocate, Block, Compute, Kernel, Operand, Stmt, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import block, map_view, substitute
from tilewright.schedule.queries.flow import Item, item_of, whole
from tilewright.schedule.queries.identity import is_proportional
from tilewright.schedule.queries.place import (
    Place,
    fresh,
    is_called,
    names_in,
    rewrite_kernel,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import transform


@transform
@asks(compute=a_plain_compute)
def divide_late(kernel: Kernel, compute: str) -> Kernel:
    """Divides a sum by what ``compute`` divides each of its terms by.

        compute weight(i in 8, j in 64): w[i, j] = p / t    (p = p[i, j]; t = t[i])
        compute sums(i in 8, e in 4, j in 64): s[i, e] add= w * v    (w = w[i, j]; v = v[j, e])
    ->  divide_late("weight")
        compute sums(i in 8, e in 4, j in 64): s[i, e] add= p * v    (p = p[i, j]; v = v[j, e])
        compute sums_divide(i in 8, e in 4): s[i, e] = x / y    (x = s[i, e]; y = t[i])

    The quotients are of one type with what is divided, stand in memory of their block, and are
    factors of one sum alone, which begins with 0 and whose terms have the divisor in common. Sums
    are rounded otherwise than before.
    """
    taken = names_in(kernel)[1]

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if not isinstance(stmt, Block):
            return None
        at = next((n for n, part in enumerate(stmt.body) if is_called(part, compute)), None)
        return None if at is None else _changed(stmt, at, fresh(f"{compute}_late", taken))

    return rewrite_kernel(kernel, change)


def _refusal(stmt: Stmt, why: str) -> ScheduleError:
    return refusal(
        "the quotients cannot be divided in their sum", stmt, "leave them as they are", why=why
    )


def _changed(stmt: Block, at: int, name: str) -> Stmt:
    items = [item_of(part) for part in stmt.body]
    quotient = items[at].simple
    if quotient is None or quotient.combiner is not None:
        raise _refusal(stmt.body[at], "it is no elementwise quotient")
    top, bottom = _divided(quotient)
    held = quotient.out.buffer
    allocated = any(isinstance(part, Allocate) and part.buffer is held for part in stmt.body)
    users = [n for n, item in enumerate(items) if held in item.touches and n != at]
    total = items[users[0]].simple if len(users) == 1 else None
    if not allocated or total is None or users[0] < at or not is_proportional(total, held):
        raise _refusal(stmt.body[at], "they are not the factors of one sum alone")
    if (
        total.combiner != "add"
        or total.out.buffer in items[users[0]].reads - items[users[0]].writes
    ):
        raise _refusal(stmt.body[users[0]], "it adds up nothing, or what it reads")
    sources = {top.view.buffer, bottom.view.buffer}
    if any(items[n].writes & sources for n in range(at + 1, users[0])):
        raise _refusal(stmt.body[at], "what is divided changes before it is added up")
    if not _begins_with_zero(items, users[0], total):
        raise _refusal(stmt.body[users[0]], "it does not begin with 0")
    places = _places(quotient, total)
    moved = Operand(top.var, _moved(top.view, places))
    divisor = _moved(bottom.view, places)
    if not view_variables(divisor) <= index_variables(total.out):
        raise _refusal(stmt.body[at], "its terms have divisors of their own")
    factor = next(operand for operand in total.operands if operand.view.buffer is held)
    operands = tuple(
        Operand(operand.var, moved.view) if operand is factor else operand
        for operand in total.operands
    )
    x, y = var("x", total.out.buffer.dtype), var("y", divisor.buffer.dtype)
    dims = tuple(dim for dim in total.dims if dim.var in index_variables(total.out))
    late = Compute.single(
        name, dims, total.out, (Operand(x, total.out), Operand(y, divisor)), x / cast(x.type, y)
    )
    sums = replace(total, operands=operands)
    parts = [*stmt.body[:at], *stmt.body[at + 1 : users[0]], sums, late, *stmt.body[users[0] + 1 :]]
    return block(*(s for s in parts if not (isinstance(s, Allocate) and s.buffer is held)))


def _divided(quotient: Compute) -> tuple[Operand, Operand]:
    """What is divided, and by what."""
    value = quotient.body
    named = {operand.var: operand for operand in quotient.operands}
    if isinstance(value, Binary) and value.op == "div" and value.type is quotient.out.buffer.dtype:
        top = named.get(value.a) if isinstance(value.a, Var) else None
        bottom = named.get(value.b) if isinstance(value.b, Var) else None
        masked = any(v.mask is not None for v in (quotient.out, *(o.view for o in named.values())))
        if top is not None and bottom is not None and not masked:
            return top, bottom
    raise _refusal(quotient, "it is no elementwise quotient")


def _begins_with_zero(items: list[Item], at: int, total: Compute) -> bool:
    """Whether the last that writes the sum before it gives it zeros."""
    before = [n for n in range(at) if total.out.buffer in items[n].touches]
    first = items[before[-1]].simple if before else None
    if first is None or first.combiner is not None or whole(first, first.out) is None:
        return False
    return getattr(first.body, "value", None) == 0 and not first.operands


def _places(quotient: Compute, total: Compute) -> Mapping[Var, Expr]:
    """The dims of the quotients as the sum has them."""
    view = next(
        operand.view for operand in total.operands if operand.view.buffer is quotient.out.buffer
    )
    if whole(quotient, quotient.out) is None or view.mask is not None:
        raise _refusal(quotient, "not all quotients are there")
    return {
        at: index
        for at, index in zip(quotient.out.index, view.index, strict=True)
        if isinstance(at, Var)
    }


def _moved(view: View, places: Mapping[Var, Expr]) -> View:
    return map_view(view, lambda expr: substitute(expr, places))
