"""Computes as expressions of what they load, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.ir.expr import Expr, Var
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Compute, Result
from tilewright.ir.visit import ExprChange, map_view, rewrite_loads, substitute, with_parts
from tilewright.tensor.operands import Operands


def loaded(compute: Compute) -> tuple[Result, ...]:
    """The results of ``compute`` with loads in place of operands."""
    loads: dict[Var, Expr] = {}
    for operand in compute.operands:
        view = map_view(operand.view, lambda expr: substitute(expr, loads))
        loads[operand.var] = load(view.buffer, view.index, view.mask)
    return _mapped(compute.results, lambda expr: substitute(expr, loads))


def with_results(compute: Compute, results: tuple[Result, ...]) -> Compute:
    """``compute`` with other results, whose loads become its operands."""
    operands = Operands({dim.var.name for dim in compute.dims})
    changed = tuple(map(operands.result, results))
    return replace(compute, operands=tuple(operands.found), results=changed)


def with_loads(compute: Compute, change: Callable[[Load], Expr]) -> Compute:
    """``compute`` with ``change`` applied to what it loads; itself when that changed nothing."""
    old = loaded(compute)
    new = _mapped(old, lambda expr: rewrite_loads(expr, change))
    return compute if new is old else with_results(compute, new)


def _mapped(results: tuple[Result, ...], change: ExprChange) -> tuple[Result, ...]:
    """``results`` with ``change`` applied to their values and views; the same object when nothing
    changed."""
    views = [map_view(view, change) for result in results for view in result.views]
    values = [change(value) for result in results for value in result.values]
    return with_parts(results, views, values)
