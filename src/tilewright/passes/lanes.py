"""Private memory of vector loops: a part for each lane."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.expr import Const
from tilewright.ir.stmt import Allocate, For, Kernel, LoopKind, Stmt
from tilewright.ir.visit import block, map_kernel, nested, walk_stmts, with_nested
from tilewright.passes.spmd.nests import names_of
from tilewright.passes.spmd.varying import Varying
from tilewright.passes.spmd.vectors import Lanes, expanded_buffers, initial_stores


def expand_private_memory(kernel: Kernel) -> Kernel:
    """Gives each lane of a vector loop a part of private memory whose contents differ by lane.

        vector for i in 8:
          alloc t: f32[2] private
          t[0] = x[i]
          y[i] = t[0] * t[0]
    ->  alloc t: f32[2, 8] private
        vector for i in 8:
          t[0, i] = x[i]
          y[i] = t[0, i] * t[0, i]
    """
    loops = [
        stmt
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, For)
        and stmt.kind is LoopKind.VECTOR
        and any(isinstance(part, Allocate) for part in walk_stmts(stmt.body))
    ]
    if not loops:
        return kernel
    taken = names_of(kernel)
    return map_kernel(kernel, lambda body: _visit(body, taken))


def _visit(stmt: Stmt, taken: set[str]) -> Stmt:
    if not isinstance(stmt, For) or stmt.kind is not LoopKind.VECTOR:
        return with_nested(stmt, tuple(_visit(part, taken) for part in nested(stmt)))
    if not isinstance(stmt.extent, Const) or stmt.extent.value <= 1:
        return stmt
    width = int(stmt.extent.value)
    varying = Varying([stmt.var], stmt.body)
    parts = expanded_buffers(stmt.body, varying, width)
    if not parts:
        return stmt
    lanes = Lanes(stmt.var, varying, parts, width, taken)
    inside = block(*initial_stores(stmt.body, parts, stmt.var), lanes.visit(stmt.body))
    return block(*map(Allocate, parts.values()), replace(stmt, body=inside))
