"""Substitution of scalar parameters in sizes, layouts, buffers and whole kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilewright.ir.arguments import Scalar, scalar_argument, scalar_arguments
from tilewright.ir.buffer import Buffer, Layout, Size, as_size, part
from tilewright.ir.expr import Expr, Var, const
from tilewright.ir.stmt import Allocate, Kernel, Param, ScalarParam, Stmt
from tilewright.ir.visit import replace_buffer, substitute, substitute_stmt, walk_stmts


def scalar_constants(kernel: Kernel, arguments: Mapping[str, Any]) -> dict[Var, Expr]:
    """The scalar parameters of ``kernel`` with their values in a call with ``arguments`` by name.

    `ArgumentError` for a number that is missing, or breaks a promise.
    """
    numbers = scalar_arguments(kernel, arguments)
    return {param.var: const(numbers[param.name], param.dtype) for param in kernel.scalars}


def substitute_size(size: Size, values: Mapping[Var, Expr]) -> Size:
    """``size`` with scalar parameters replaced; an int where no others are left."""
    return as_size(substitute(size, values)) if isinstance(size, Expr) else size


def substitute_layout(layout: Layout, values: Mapping[Var, Expr]) -> Layout:
    """``layout`` with scalar parameters replaced; itself when it has none of them."""
    if layout.symbols.isdisjoint(values):
        return layout
    parts = tuple(
        part(
            old.dim,
            substitute_size(old.size, values),
            substitute_size(old.stride, values),
        )
        for old in layout.parts
    )
    return Layout(parts, substitute_size(layout.start, values), layout.swizzle)


def substitute_buffer(buffer: Buffer, values: Mapping[Var, Expr]) -> Buffer:
    """``buffer`` with scalar parameters replaced in its sizes; itself when it has none of them."""
    if buffer.symbols.isdisjoint(values):
        return buffer
    sizes = tuple(substitute_size(size, values) for size in buffer.sizes)
    return replace(buffer, sizes=sizes, layout=substitute_layout(buffer.layout, values))


def substitute_scalars(kernel: Kernel, values: Mapping[Var, Expr]) -> Kernel:
    """``kernel`` with scalar parameters replaced everywhere: in sizes, in the body, and among the
    parameters, where one that is replaced by another variable keeps what it promises."""
    params: list[Param | ScalarParam] = []
    body = kernel.body
    for param in kernel.params:
        if isinstance(param, ScalarParam):
            value = values.get(param.var)
            if value is None:
                params.append(param)
            elif isinstance(value, Var):
                params.append(replace(param, var=value))
            continue
        new = substitute_buffer(param.buffer, values)
        if new is not param.buffer:
            body = replace_buffer(body, param.buffer, new)
            param = Param(new, param.access, param.digest)
        params.append(param)
    body = substitute_allocations(substitute_stmt(body, values), values)
    return replace(kernel, params=tuple(params), body=body)


def substitute_allocations(stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """``stmt`` with scalar parameters replaced in the sizes of what it allocates."""
    for node in list(walk_stmts(stmt)):
        if isinstance(node, Allocate):
            new = substitute_buffer(node.buffer, values)
            if new is not node.buffer:
                stmt = replace_buffer(stmt, node.buffer, new)
    return stmt


def bind_scalars(kernel: Kernel, numbers: Mapping[str, Scalar]) -> Kernel:
    """``kernel`` without the scalar parameters that ``numbers`` names: they have these values.

    `ArgumentError` for a number that breaks a promise.
    """
    where = f"binding scalars of kernel {kernel.name}"
    values: dict[Var, Expr] = {
        param.var: const(scalar_argument(param, numbers[param.name], where), param.dtype)
        for param in kernel.scalars
        if param.name in numbers
    }
    return substitute_scalars(kernel, values)
