"""Dims of extent 1 leave computes and buffers."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.buffer import Buffer, part
from tilewright.ir.expr import Expr, Var, const
from tilewright.ir.stmt import Allocate, Compute, Kernel, Stmt, View
from tilewright.ir.visit import map_exprs, rewrite_stmts, substitute, walk_stmts
from tilewright.schedule.queries.access import readdress
from tilewright.schedule.records.transform import transform


@transform
def drop_unit_dims(kernel: Kernel) -> Kernel:
    """Dims of extent 1 are substituted by 0, and allocated buffers lose their dims of size 1.

        alloc acc: f32[1, 16]
        compute f(mb in 1, oc in 16): acc[mb, oc] = src[mb, oc]
    ->  alloc acc: f32[16]
        compute f(oc in 16): acc[oc] = src[0, oc]

    Parameters keep their shape. A buffer keeps one dim.
    """
    body = rewrite_stmts(kernel.body, _without_unit_dims)
    for stmt in tuple(walk_stmts(body)):
        if isinstance(stmt, Allocate):
            body = squeeze(body, stmt.buffer)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _without_unit_dims(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Compute):
        return stmt
    gone: dict[Var, Expr] = {d.var: const(0) for d in stmt.dims if d.extent is const(1)}
    if not gone:
        return stmt
    kept = replace(stmt, dims=tuple(d for d in stmt.dims if d.var not in gone))
    return map_exprs(kept, lambda expr: substitute(expr, gone))


def squeeze(stmt: Stmt, old: Buffer) -> Stmt:
    """``stmt`` with a buffer that has lost its dims of size 1."""
    if not old.rank:
        return stmt
    kept = [d for d, size in enumerate(old.sizes) if not isinstance(size, int) or size != 1] or [0]
    if len(kept) == old.rank:
        return stmt
    number = {dim: position for position, dim in enumerate(kept)}
    blocks = tuple(
        part(number[b.dim], b.size, b.stride) for b in old.layout.parts if b.dim in number
    )
    shape = tuple(old.sizes[dim] for dim in kept)
    new = Buffer(old.name, old.dtype, shape, replace(old.layout, parts=blocks), old.space)

    def view(access: View) -> View:
        return View(new, tuple(access.index[dim] for dim in kept), access.mask)

    return readdress(stmt, old, view)
