"""Simple algebra: powers that are products, reductions of nothing."""

from __future__ import annotations

from dataclasses import replace

from tilewright.graph.passes.forward_views import forward_views
from tilewright.graph.passes.loaded import loaded, with_results
from tilewright.graph.passes.tidy import tidy
from tilewright.graph.passes.values import Values
from tilewright.ir.expr import Binary, Const, Expr, binary, const
from tilewright.ir.operators import KINDS
from tilewright.ir.stmt import Block, Compute, Kernel, Stmt
from tilewright.ir.visit import map_exprs, rewrite, rewrite_stmts, walk
from tilewright.schedule.queries.flow import whole


def rewrite_values(kernel: Kernel) -> Kernel:
    """Powers of small whole exponents become products, and what reduces no dim an expression.

        compute clear(i, j): y[i, j] = 0.0
        compute y(i, j): y[i, j] add= pow(x[i, j], 2.0)
    ->  compute y(i, j): y[i, j] = 0.0 + x[i, j] * x[i, j]

    What that leaves as a copy is read through, as `forward_views` does. ``pow`` has errors of some
    units in the last place; a product has less.
    """
    body = rewrite_stmts(kernel.body, _without_powers)
    changed = kernel if body is kernel.body else replace(kernel, body=body)
    changed = _without_empty_reductions(changed)
    return kernel if changed is kernel else forward_views(tidy(changed))


def _without_powers(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Compute):
        return stmt
    values = [value for result in stmt.results for value in result.values]
    if not any(isinstance(n, Binary) and n.op == "pow" for v in values for n in walk(v)):
        return stmt
    return map_exprs(stmt, lambda expr: rewrite(expr, _power))


def _power(node: Expr) -> Expr:
    if not isinstance(node, Binary) or node.op != "pow" or not isinstance(node.b, Const):
        return node
    base = node.a
    match node.b.value:
        case 2.0:
            return base * base
        case 3.0:
            return base * base * base
        case -1.0:
            return const(1, base.type) / base
        case _:
            return node


def _without_empty_reductions(kernel: Kernel) -> Kernel:
    """Reductions that have no dim to reduce, after what their results begin with, as one."""
    values = Values.of(kernel)
    stmts: list[Stmt | None] = list(values.stmts)
    for buffer, makers in values.made.items():
        if len(makers) != 2 or buffer.symbols:
            continue
        first, second = values.makers(buffer)
        start = _filled(first)
        if start is None or not _reduces_nothing(second):
            continue
        (result,) = loaded(second)
        assert isinstance(result.combiner, str)
        value = binary(result.combiner, start, result.values[0])
        new = replace(result, combiner=None, values=(value,))
        stmts[makers[0]] = None
        stmts[makers[1]] = with_results(second, (new,))
    kept = tuple(stmt for stmt in stmts if stmt is not None)
    if len(kept) == len(stmts):
        return kernel
    return replace(kernel, body=Block(kept))


def _filled(compute: Compute) -> Const | None:
    """The number that ``compute`` stores in all of its result."""
    if len(compute.outputs) != 1 or compute.results[0].combiner is not None:
        return None
    value = compute.results[0].values[0]
    return value if isinstance(value, Const) and _is_all(compute) else None


def _reduces_nothing(compute: Compute) -> bool:
    """Whether each point of ``compute`` has an element of all of its result to itself."""
    if len(compute.outputs) != 1 or compute.is_ordered:
        return False
    result = compute.results[0]
    buffer = result.views[0].buffer
    named = isinstance(result.combiner, str) and buffer.dtype.kind in KINDS[result.combiner]
    reads = any(operand.view.buffer is buffer for operand in compute.operands)
    return named and not reads and _is_all(compute)


def _is_all(compute: Compute) -> bool:
    """Whether the dims of ``compute`` are those of its result, in some order; those of size 1 may
    be missing."""
    order = whole(compute, compute.outputs[0])
    return order is not None and len(order) == len(compute.dims)
