"""Kernels as part of a graph: ops of the library, and any other whose sizes are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.dtypes import DType
from tilewright.graph.builder import Builder, buffers_allocated, described
from tilewright.graph.replacing import with_buffers
from tilewright.graph.tensor import Tensor
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Block, Compute, Kernel, Stmt
from tilewright.ir.visit import rewrite_stmts
from tilewright.ops.library import library_op
from tilewright.problems import Direction, Record


def library(
    builder: Builder,
    problem: Record,
    direction: Direction = Direction.FWD_D,
    types: Mapping[str, DType] | None = None,
    **tensors: Tensor,
) -> dict[str, Tensor]:
    """The op of ``problem`` on tensors by name; gives its results by name.

    ``types`` are by role, where they are not those of the tensors given; a result without one has
    the type of the first tensor.
    """
    builder.own(*tensors.values())
    known: dict[str, DType] = {}
    for slot in problem.slots(direction):
        if slot.role and slot.name in tensors:
            known.setdefault(slot.role, tensors[slot.name].dtype)
    usual = next(iter(tensors.values())).dtype if tensors else None
    chosen = {role: known.get(role, usual) for role in problem.roles} | dict(types or {})
    missing = [role for role, each in chosen.items() if each is None]
    if missing:
        raise builder.refuse(f"{problem.driver} of no tensor", f"give types for {missing[0]}")
    op = library_op(problem, direction, {r: t for r, t in chosen.items() if t is not None})
    with builder.at(builder.named(problem.driver)):
        return inline(builder, op.kernel(), tensors)


def inline(builder: Builder, kernel: Kernel, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The statements of ``kernel`` on ``tensors``, by the names of what it reads; gives what it
    writes, by name. Its sizes and types are those of the tensors."""
    if kernel.scalars or any(param.digest is not None for param in kernel.arrays):
        raise builder.refuse(
            f"{kernel.name} takes numbers, or has constants", "give arrays for all of them"
        )
    stem = builder.named(kernel.name)
    made: dict[Buffer, Buffer] = {}
    results: dict[str, Tensor] = {}
    for param in kernel.arrays:
        old = param.buffer
        if param.access == "in":
            made[old] = _given(builder, old, tensors).buffer or old
            continue
        made[old] = builder.allocate(stem, old.dtype, old.shape)
        if param.access == "inout":
            builder.store(made[old], _given(builder, old, tensors), f"{stem}_start")
        results[old.name] = builder.whole(made[old])
    unknown = [name for name in tensors if all(p.name != name for p in kernel.arrays)]
    if unknown:
        names = ", ".join(p.name for p in kernel.arrays if p.access != "out")
        raise builder.refuse(f"{kernel.name} has no argument {unknown[0]}", f"it takes {names}")
    for old in buffers_allocated((kernel.body,)):
        made[old] = replace(old, name=builder.fresh(f"{stem}_{old.name}"))

    def renamed(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Compute):
            return stmt
        return replace(stmt, name=builder.fresh_compute(f"{stem}_{stmt.name}"), span=builder.span)

    body = rewrite_stmts(with_buffers(kernel.body, made), renamed)
    builder.emit(*(body.body if isinstance(body, Block) else (body,)))
    return results


def _given(builder: Builder, wanted: Buffer, tensors: Mapping[str, Tensor]) -> Tensor:
    """The tensor for a buffer that is read, in memory as it wants it."""
    found = tensors.get(wanted.name)
    if found is None:
        raise builder.refuse(f"the argument {wanted.name} is missing", "pass it by name")
    if found.shape != wanted.shape or found.dtype is not wanted.dtype:
        cure = f"give it {wanted.dtype}{list(wanted.shape)}"
        raise builder.refuse(f"{wanted.name} is {described(found)}", cure)
    return builder.materialize(found, f"{builder.named('value')}_{wanted.name}")
