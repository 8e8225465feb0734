"""Stores past the caches, of what is not needed soon."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, all_of, as_expr, const
from tilewright.ir.stmt import If, Kernel, Stmt, Store
from tilewright.ir.visit import block, direct_exprs, loads_in, rewrite_stmts, walk_stmts
from tilewright.schedule.queries.place import sequence
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.transform import transform


@transform
def store_non_temporally(kernel: Kernel, buffers: Sequence[str], beyond: int = 0) -> Kernel:
    """Stores to arrays that the kernel only writes need not pass through caches.

        for i in 4096:
          y[i] = x[i] * 2.0
    ->  store_non_temporally(["y"])
        for i in 4096:
          stream y[i] = x[i] * 2.0

    That pays where the array is larger than the caches: a line that is stored whole is then not
    read before. What is computed stays the same, and computes that are not lowered stay as they
    are. Arrays whose size a call passes are stored so where they have ``beyond`` bytes or more:

        for i in n:
          y[i] = x[i] * 2.0
    ->  store_non_temporally(["y"], beyond=33554432)
        if 33554432 <= n * 4:
          for i in n:
            stream y[i] = x[i] * 2.0
        else:
          for i in n:
            y[i] = x[i] * 2.0
    """
    names = [param.name for param in kernel.arrays]
    for name in buffers:
        if name not in names:
            raise refusal(
                f"'{name}' is no array that a call passes",
                kernel,
                "choose one of " + ", ".join(names),
                why="what is allocated inside is there to be read soon",
            )
    for stmt in walk_stmts(kernel.body):
        for load in (load for expr in direct_exprs(stmt) for load in loads_in(expr)):
            if load.buffer.name in buffers:
                raise refusal(
                    f"'{load.buffer.name}' is read, too",
                    stmt,
                    "name arrays that the kernel only writes",
                    why="what is stored past the caches comes back from memory",
                )
    facts = Facts.of(kernel)
    conditions: dict[Buffer, Expr] = {}
    for param in kernel.arrays:
        condition = const(beyond) <= as_expr(param.buffer.span_bytes)
        passed = param.name in buffers and param.buffer.symbols
        if passed and facts.prove(condition) is not True:
            conditions[param.buffer] = condition
    change = partial(_streaming, buffers=buffers)
    body: list[Stmt] = []
    for part in sequence(kernel.body):
        stored = {stmt.buffer for stmt in walk_stmts(part) if isinstance(stmt, Store)}
        large = all_of(conditions[buffer] for buffer in conditions if buffer in stored)
        if large is None:
            body.append(rewrite_stmts(part, change))
        elif isinstance(part, If):
            body.append(part)  # The rest of tiles: little, and written out once.
        else:
            body.append(If(large, rewrite_stmts(part, change), part))
    return replace(kernel, body=block(*body))


def _streaming(stmt: Stmt, buffers: Collection[str]) -> Stmt:
    """``stmt``, past the caches where it stores to one of ``buffers``."""
    if isinstance(stmt, Store) and stmt.buffer.name in buffers and not stmt.stream:
        return replace(stmt, stream=True)
    return stmt
