"""A part of a kernel, for models that try out transforms on it."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.stmt import Allocate, Block, Kernel, Let, Stmt
from tilewright.ir.visit import rewrite_stmts
from tilewright.schedule.queries.place import holds


def excerpt(kernel: Kernel, compute: str) -> Kernel:
    """``kernel`` without anything that runs before or after ``compute``: quicker to transform.

    It computes something else, and is no transform: what comes of it is never compiled.
    """

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Block):
            return stmt
        kept = [s for s in stmt.body if isinstance(s, Allocate | Let) or holds(s, compute)]
        return replace(stmt, body=tuple(kept)) if kept else stmt

    return replace(kernel, body=rewrite_stmts(kernel.body, change))
