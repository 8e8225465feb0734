"""Values between elementwise computes without rounding, where a front end's floats permit it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tilewright.dtypes import f32
from tilewright.graph.passes.loaded import loaded, with_results
from tilewright.graph.passes.values import Values
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.expr import Cast, Expr, const
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Allocate, Block, Compute, Kernel, Stmt, View
from tilewright.ir.visit import loads_in, rewrite
from tilewright.schedule.queries.flow import whole


def keep_precision(kernel: Kernel, rounded: Collection[Buffer] = ()) -> Kernel:
    """Where one elementwise compute alone reads, as f32, what was rounded to 16 bits, nothing is
    rounded.

        compute t(i): t[i] = bf16(x[i] + y[i])        compute t(i): t[i] = x[i] + y[i]
        compute z(i): z[i] = bf16(exp(f32(t[i])))  ->  compute z(i): z[i] = bf16(exp(t[i]))

    Results differ in their last bits. What is ``rounded``, and conversions by themselves but those
    of sums, were asked for, and stay. What several read, or what does not go on elementwise, stays:
    it is kept in memory, where 16 bits are half as much, or is multiplied as 16 bits.
    """
    values = Values.of(kernel)
    stmts: list[Stmt] = list(values.stmts)
    kept: dict[Buffer, Buffer] = {}
    for old, makers in values.made.items():
        readers = values.readers.get(old, [])
        if old not in values.allocated or len(makers) != 1 or len(readers) != 1 or old in rounded:
            continue
        new = buffer(old.name, f32, old.sizes)
        maker = _unrounded(stmts[makers[0]], new, values)
        reader = _reading(stmts[readers[0]], old, new)
        if maker is not None and reader is not None:
            kept[old] = new
            stmts[makers[0]], stmts[readers[0]] = maker, reader
    if not kept:
        return kernel
    for n, stmt in enumerate(stmts):
        if isinstance(stmt, Allocate) and stmt.buffer in kept:
            stmts[n] = replace(stmt, buffer=kept[stmt.buffer])
    return replace(kernel, body=Block(tuple(stmts)))


def _unrounded(stmt: Stmt, new: Buffer, values: Values) -> Compute | None:
    """A compute that rounds f32 to 16 bits, with ``new`` for what it had rounded."""
    if not isinstance(stmt, Compute) or len(stmt.outputs) != 1:
        return None
    (result,) = loaded(stmt)
    (value,) = result.values
    if result.combiner is not None or not isinstance(value, Cast) or value.a.type is not f32:
        return None
    if not value.type.is_float or value.type.bits != 16:
        return None
    if isinstance(value.a, Load) and not _are_sums(value.a.buffer, values):
        return None  # a conversion by itself
    view = replace(result.views[0], buffer=new)
    return with_results(stmt, (replace(result, views=(view,), values=(value.a,)),))


def _are_sums(element: Buffer, values: Values) -> bool:
    """Whether ``element`` holds sums, which two computes make, or a copy of them, as of those of
    groups in the dims of the result."""
    makers = [values.stmts[n] for n in values.made.get(element, ())]
    if len(makers) != 1:
        return len(makers) > 1
    (maker,) = makers
    if not isinstance(maker, Compute) or len(maker.outputs) != 1 or maker.is_ordered:
        return False
    (result,) = loaded(maker)
    (value,) = result.values
    if not isinstance(value, Load) or result.combiner is not None or value.buffer is element:
        return False
    return _are_sums(value.buffer, values)


def _reading(stmt: Stmt, old: Buffer, new: Buffer) -> Compute | None:
    """An elementwise compute that reads ``old`` as f32, with ``new`` in its place."""
    if not isinstance(stmt, Compute) or len(stmt.outputs) != 1 or stmt.is_ordered:
        return None
    (result,) = loaded(stmt)
    if result.combiner is not None:
        return None
    dims = [dim for dim in stmt.dims if dim.extent is not const(1)]

    def widened(node: Expr) -> Expr:
        element = node.a if isinstance(node, Cast) and node.type is f32 else None
        if not isinstance(element, Load) or element.buffer is not old:
            return node
        order = whole(stmt, View(old, element.index, element.mask))
        if order is None or len(order) < len(dims):
            return node
        return load(new, element.index, element.mask)

    value = rewrite(result.values[0], widened)
    if any(other.buffer is old for other in loads_in(value)):
        return None
    return with_results(stmt, (replace(result, values=(value,)),))
