"""Kernels as part of what a builder collects: on tensors, as statements beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var, const
from tilewright.ir.stmt import Block, Compute, Kernel, Stmt
from tilewright.ir.visit import rewrite_stmts, substitute_stmt
from tilewright.tensor.nests import emit_nest
from tilewright.tensor.replacing import buffers_allocated, with_buffers
from tilewright.tensor.tensor import Builder, Tensor, described


def inline(builder: Builder, kernel: Kernel, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The statements of ``kernel`` on ``tensors``, by the names of what it reads; gives what it
    writes, by name. Its sizes and types are those of the tensors."""
    if kernel.scalars or any(param.digest is not None for param in kernel.arrays):
        raise builder.refuse(
            f"{kernel.name} takes numbers, or has constants", "give arrays for all of them"
        )
    stem = builder.named(kernel.name)
    buffers: dict[Buffer, Buffer] = {}
    results: dict[str, Tensor] = {}
    for param in kernel.arrays:
        old = param.buffer
        if param.access == "in":
            buffers[old] = _given(builder, old, tensors).buffer or old
            continue
        buffers[old] = builder.allocate(stem, old.dtype, old.shape)
        if param.access == "inout":
            builder.store(buffers[old], _given(builder, old, tensors), f"{stem}_start")
        results[old.name] = builder.whole(buffers[old])
    unknown = [name for name in tensors if all(p.name != name for p in kernel.arrays)]
    if unknown:
        names = ", ".join(p.name for p in kernel.arrays if p.access != "out")
        raise builder.refuse(f"{kernel.name} has no argument {unknown[0]}", f"it takes {names}")
    for old in buffers_allocated((kernel.body,)):
        buffers[old] = replace(old, name=builder.fresh(f"{stem}_{old.name}"))

    def renamed(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Compute):
            return stmt
        return replace(stmt, name=builder.fresh_compute(f"{stem}_{stmt.name}"), span=builder.span)

    body = rewrite_stmts(with_buffers(kernel.body, buffers), renamed)
    builder.emit(*(body.body if isinstance(body, Block) else (body,)))
    return results


def launched(
    builder: Builder,
    kernel: Kernel,
    tensors: Mapping[str, Tensor],
    numbers: Mapping[str, float | bool],
    shapes: Mapping[str, Sequence[int]],
) -> dict[str, Tensor]:
    """A kernel of any statements as one nest of the graph: on ``tensors`` by the names of what it
    takes, for ``numbers``, and for sizes that follow from the tensors. Gives what it stores to, by
    name: memory of ``shapes``, of which it reads nothing before, and copies of tensors."""
    stem = builder.named(kernel.name)
    values: dict[Var, Expr] = {}
    buffers: dict[Buffer, Buffer] = {}
    for param in kernel.arrays:
        old = param.buffer
        tensor = tensors.get(old.name)
        if tensor is None and old.name not in shapes:
            raise builder.refuse(f"{kernel.name} has an argument {old.name}", "pass it by name")
        shape = shapes[old.name] if tensor is None else tensor.shape
        for size, number in zip(old.sizes, shape, strict=True):
            if isinstance(size, Var):
                values[size] = const(number, size.type)
        if tensor is not None and param.access == "in":
            buffer = builder.materialize(tensor, f"{builder.named('value')}_{old.name}").buffer
            assert buffer is not None
            buffers[old] = buffer
            continue
        buffers[old] = builder.allocate(stem, old.dtype, shape)
        if tensor is not None:
            builder.store(buffers[old], tensor, f"{stem}_start")
    for scalar in kernel.scalars:
        if scalar.var not in values:
            values[scalar.var] = const(numbers[scalar.name], scalar.var.type)
    for old in buffers_allocated((kernel.body,)):
        buffers[old] = replace(old, name=builder.fresh(f"{stem}_{old.name}"))

    body = substitute_stmt(with_buffers(kernel.body, buffers), values)
    emit_nest(builder, stem, body)
    return {
        param.name: builder.whole(buffers[param.buffer])
        for param in kernel.arrays
        if param.access != "in"
    }


def _given(builder: Builder, wanted: Buffer, tensors: Mapping[str, Tensor]) -> Tensor:
    """The tensor for a buffer that is read, in memory as it wants it."""
    tensor = tensors.get(wanted.name)
    if tensor is None:
        raise builder.refuse(f"the argument {wanted.name} is missing", "pass it by name")
    if tensor.shape != wanted.shape or tensor.dtype is not wanted.dtype:
        cure = f"give it {wanted.dtype}{list(wanted.shape)}"
        raise builder.refuse(f"{wanted.name} is {described(tensor)}", cure)
    return builder.materialize(tensor, f"{builder.named('value')}_{wanted.name}")
