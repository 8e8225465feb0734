"""Computes as expressions of what they load, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.ir.expr import Expr, Var
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Compute, Result, View
from tilewright.ir.visit import rewrite_loads, substitute
from tilewright.tensor.operands import Operands


def loaded(compute: Compute) -> tuple[Result, ...]:
    """The results of ``compute`` with loads in place of operands."""
    known: dict[Var, Expr] = {}
    for operand in compute.operands:
        view = _moved(operand.view, known)
        known[operand.var] = load(view.buffer, view.index, view.mask)
    return tuple(
        replace(
            each,
            views=tuple(_moved(view, known) for view in each.views),
            values=tuple(substitute(value, known) for value in each.values),
        )
        for each in compute.results
    )


def with_results(compute: Compute, results: tuple[Result, ...]) -> Compute:
    """``compute`` with other results, whose loads become its operands."""
    operands = Operands({dim.var.name for dim in compute.dims})
    changed = tuple(map(operands.result, results))
    return replace(compute, operands=tuple(operands.found), results=changed)


def with_loads(compute: Compute, change: Callable[[Load], Expr]) -> Compute:
    """``compute`` with ``change`` applied to what it loads; itself when that changed nothing."""
    old = loaded(compute)
    new = tuple(
        replace(
            each,
            views=tuple(_changed(view, change) for view in each.views),
            values=tuple(rewrite_loads(value, change) for value in each.values),
        )
        for each in old
    )
    if all(_same(a, b) for a, b in zip(old, new, strict=True)):
        return compute
    return with_results(compute, new)


def _moved(view: View, values: dict[Var, Expr]) -> View:
    mask = None if view.mask is None else substitute(view.mask, values)
    return View(view.buffer, tuple(substitute(i, values) for i in view.index), mask)


def _changed(view: View, change: Callable[[Load], Expr]) -> View:
    mask = None if view.mask is None else rewrite_loads(view.mask, change)
    return View(view.buffer, tuple(rewrite_loads(i, change) for i in view.index), mask)


def _same(a: Result, b: Result) -> bool:
    parts = zip((*a.values, *_exprs(a)), (*b.values, *_exprs(b)), strict=True)
    return all(one is other for one, other in parts)


def _exprs(result: Result) -> tuple[Expr, ...]:
    return tuple(
        part
        for view in result.views
        for part in (*view.index, *(() if view.mask is None else (view.mask,)))
    )
