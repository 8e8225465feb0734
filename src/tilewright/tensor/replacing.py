"""Buffers in place of others, all at once; which there are, and constants of one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Allocate, Opaque, Stmt, Store, View
from tilewright.ir.visit import (
    map_exprs,
    map_views,
    rename_declared,
    rewrite_loads,
    rewrite_stmts,
    walk_stmts,
)


def with_buffers(stmt: Stmt, new: Mapping[Buffer, Buffer]) -> Stmt:
    """``stmt`` with other buffers of the same shape where ``new`` says so."""
    if not new:
        return stmt
    names = {old.name: value.name for old, value in new.items()}

    def in_load(node: Load) -> Expr:
        buffer = new.get(node.buffer)
        return node if buffer is None else load(buffer, node.index, node.mask)

    def in_view(view: View) -> View:
        buffer = new.get(view.buffer)
        return view if buffer is None else View(buffer, view.index, view.mask)

    def in_stmt(node: Stmt) -> Stmt:
        node = map_exprs(node, lambda expr: rewrite_loads(expr, in_load))
        match node:
            case Store() | Allocate() if node.buffer in new:
                return replace(node, buffer=new[node.buffer])
            case Opaque():
                return rename_declared(node, names)
            case _:
                return map_views(node, in_view)

    return rewrite_stmts(stmt, in_stmt)


def buffers_allocated(stmts: Sequence[Stmt]) -> Iterator[Buffer]:
    """All that is allocated in ``stmts``, at any depth."""
    for stmt in stmts:
        for part in walk_stmts(stmt):
            if isinstance(part, Allocate):
                yield part.buffer


def is_splat(values: NDArray[Any]) -> bool:
    """Whether all elements have the same bits."""
    flat = values.reshape(-1)
    bits = flat.view(np.uint8).reshape(flat.size, flat.itemsize)
    return bool((bits[-1] == bits[0]).all() and (bits == bits[0]).all())
