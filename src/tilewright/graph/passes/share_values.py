"""Common subexpressions: what is computed twice from the same is computed once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tilewright.graph.passes.loaded import with_loads
from tilewright.graph.passes.values import Values, with_blocks
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Block, Combiner, Compute, Kernel, Stmt, View
from tilewright.ir.visit import substitute


def share_values(kernel: Kernel) -> Kernel:
    """Who reads a value that was computed before reads that one.

        compute a(i): a[i] = exp(x[i])
        compute b(i): b[i] = exp(x[i])
        compute y(i): y[i] = a[i] + b[i]
    ->  compute a(i): a[i] = exp(x[i])
        compute b(i): b[i] = exp(x[i])
        compute y(i): y[i] = a[i] + a[i]

    `drop_dead` leaves out what is no longer read.
    """
    values = Values.of(kernel)
    first: dict[Any, Buffer] = {}
    instead: dict[Buffer, Buffer] = {}
    for param in kernel.arrays:
        if param.digest is not None:
            buffer = first.setdefault((*_described(param.buffer), param.digest), param.buffer)
            if buffer is not param.buffer:
                instead[param.buffer] = buffer
    stmts = _shared(values, first, instead)
    return kernel if stmts is values.stmts else replace(kernel, body=Block(stmts))


def _shared(
    values: Values, first: dict[Any, Buffer], instead: dict[Buffer, Buffer]
) -> tuple[Stmt, ...]:
    """The statements of a block; ``first`` are the values that there are, by what they are, and
    ``instead`` who is read in place of whom. Both grow by what is in the block."""
    ends: dict[int, list[Buffer]] = {}
    for buffer, makers in values.made.items():
        ends.setdefault(makers[-1], []).append(buffer)
    stmts = list(values.stmts)

    def other(node: Load) -> Expr:
        memory = instead.get(node.buffer)
        return node if memory is None else load(memory, node.index, node.mask)

    for n, stmt in enumerate(stmts):
        if isinstance(stmt, Compute):
            if instead and _is_free(stmt, instead):
                stmts[n] = with_loads(stmt, other)
        else:
            stmts[n] = with_blocks(stmt, partial(_shared_inside, values, n, first, instead))
        for buffer in ends.get(n, ()):
            key = _key(values, buffer, instead)
            first_buffer = buffer if key is None else first.setdefault(key, buffer)
            # What is a result has to be made.
            if first_buffer is not buffer and buffer in values.allocated:
                instead[buffer] = first_buffer
    same = all(a is b for a, b in zip(stmts, values.stmts, strict=True))
    return values.stmts if same else tuple(stmts)


def _shared_inside(
    values: Values,
    position: int,
    first: dict[Any, Buffer],
    instead: dict[Buffer, Buffer],
    stmts: tuple[Stmt, ...],
) -> tuple[Stmt, ...]:
    return _shared(values.inside(position, stmts), dict(first), dict(instead))


def _is_free(stmt: Compute, instead: dict[Buffer, Buffer]) -> bool:
    """Whether ``stmt`` does not make one of the values itself, which it may read as it goes."""
    return all(view.buffer not in instead for view in stmt.outputs)


def _described(buffer: Buffer) -> tuple[Any, ...]:
    return (buffer.dtype, buffer.sizes, buffer.layout, buffer.space)


def _key(values: Values, buffer: Buffer, instead: dict[Buffer, Buffer]) -> Any:
    """What a value is, whatever its parts are called; None where it is made from other than
    values."""
    parts: list[Any] = [*_described(buffer)]
    for compute in values.makers(buffer):
        key = _compute_key(values, compute, buffer, instead)
        if key is None:
            return None
        parts.append(key)
    return tuple(parts)


def _compute_key(
    values: Values, compute: Compute, buffer: Buffer, instead: dict[Buffer, Buffer]
) -> Any:
    if compute.instruction is not None or compute.completion is not None:
        return None
    names: dict[Var, Expr] = {d.var: var(f"dim {n}") for n, d in enumerate(compute.dims)}
    outputs = [view.buffer for view in compute.outputs]
    parts: list[Any] = [(d.extent, d.ordered) for d in compute.dims]
    for n, operand in enumerate(compute.operands):
        source = operand.view.buffer
        if source in outputs:
            parts.append(outputs.index(source))
        elif values.is_value(source):
            parts.append(instead.get(source, source))
        else:
            return None
        parts.append(_place(operand.view, names))
        names[operand.var] = var(f"operand {n}", operand.var.type)
    for result in compute.results:
        how = result.combiner
        parts.append(_combiner_key(how) if isinstance(how, Combiner) else how)
        parts.append(tuple(substitute(value, names) for value in result.values))
        parts.append(tuple((_place(v, names), _described(v.buffer)) for v in result.views))
        parts.append(result.unique)
    parts.append(tuple(n for n, output in enumerate(outputs) if output is buffer))
    # Several results in one buffer at different places are told apart by these.
    parts.append(tuple(outputs.index(output) for output in outputs))
    return tuple(parts)


def _place(view: View, names: dict[Var, Expr]) -> tuple[Expr | None, ...]:
    mask = None if view.mask is None else substitute(view.mask, names)
    return (*(substitute(index, names) for index in view.index), mask)


def _combiner_key(how: Combiner) -> tuple[Any, ...]:
    names: dict[Var, Expr] = {
        v: var(f"value {n}", v.type) for n, v in enumerate((*how.old, *how.new))
    }
    return (how.identity, tuple(substitute(value, names) for value in how.values))
