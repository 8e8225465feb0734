"""Loops over neighbouring elements as vectors, in work-items that run one by one.

A work-item may have a whole row to itself. Work-items as lanes would then gather, and the elements
of the row lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.dtypes import s64
from tilewright.facts import Facts
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Expr, Var, const, maximum, var
from tilewright.ir.renaming import fresh
from tilewright.ir.stmt import Block, For, If, Kernel, Let, LoopKind, Stmt, Store
from tilewright.ir.visit import (
    block,
    direct_exprs,
    loads_in,
    map_kernel,
    nested,
    walk_stmts,
    with_nested,
)
from tilewright.passes.spmd.nests import names_of
from tilewright.passes.spmd.strides import Strides
from tilewright.passes.spmd.varying import Varying
from tilewright.passes.spmd.vectors import as_lanes, wider


def vectorize_runs(kernel: Kernel, register: int) -> Kernel:
    """Makes vectors of ``register`` bytes of loops over neighbouring elements.

        for j in n:
          y[i, j] = y[i, j] + a[k] * x[k, j]
    ->  for j_o in n // 8:
          vector for j_i in 8:
            y[i, j_o * 8 + j_i] = y[i, j_o * 8 + j_i] + a[k] * x[k, j_o * 8 + j_i]
        if 0 < n % 8:
          vector for j_i in 8:
            if n // 8 * 8 + j_i < n: ...
    """
    taken, facts = names_of(kernel), Facts.of(kernel)

    def visit(stmt: Stmt) -> Stmt:
        lanes = run_lanes(stmt, register) if isinstance(stmt, For) else 1
        if isinstance(stmt, For) and lanes > 1:
            extent = stmt.extent
            if facts.prove(const(0) <= extent) is not True:
                stmt = replace(stmt, extent=maximum(extent, 0))
            return _vectors(stmt, lanes, taken)
        parts = nested(stmt)
        changed = tuple(map(visit, parts))
        same = all(new is old for new, old in zip(changed, parts, strict=True))
        return stmt if same else with_nested(stmt, changed)

    return map_kernel(kernel, visit)


def run_lanes(loop: For, register: int) -> int:
    """The lanes of ``loop`` in vectors of ``register`` bytes; 1 where its iterations have to run in
    order, or access what is neither one element nor neighbours."""
    if loop.kind is not LoopKind.SERIAL:
        return 1
    if not all(isinstance(stmt, Block | Let | Store) for stmt in walk_stmts(loop.body)):
        return 1
    strides = Strides(loop.var, Varying([loop.var], loop.body))
    places: dict[Buffer, set[tuple[tuple[Expr, int], ...]]] = {}
    stored: set[Buffer] = set()
    for memory, index, stores in _accesses(loop.body, strides):
        steps = tuple(step for step in map(strides.of, index) if step is not None)
        if len(steps) < len(index) or any(step for _, step in steps[:-1]):
            return 1
        near = bool(steps) and steps[-1][1] == 1
        if stores and (memory.space is Space.PRIVATE or not near):
            return 1
        if not near and any(step for _, step in steps):
            return 1
        places.setdefault(memory, set()).add(steps)
        stored |= {memory} if stores else set()
    if not stored or any(len(places[memory]) > 1 for memory in stored):
        return 1
    lanes = register // max(memory.dtype.bytes for memory in places)
    is_short = isinstance(loop.extent, Const) and loop.extent.value < lanes
    return 1 if is_short else max(lanes, 1)


def _accesses(body: Stmt, strides: Strides) -> Iterator[tuple[Buffer, Sequence[Expr], bool]]:
    """The accesses of a loop's ``body``, and whether they store; ``strides`` learns its names."""
    for stmt in walk_stmts(body):
        for expr in direct_exprs(stmt):
            for node in loads_in(expr):
                yield node.buffer, node.index, False
        if isinstance(stmt, Let):
            strides.name(stmt)
        if isinstance(stmt, Store):
            yield stmt.buffer, stmt.index, True


def _vectors(loop: For, lanes: int, taken: set[str]) -> Stmt:
    """``loop`` as several vectors of ``lanes`` at once, single ones, and one of fewer."""
    names: list[Stmt] = []
    extent = loop.extent
    if not isinstance(extent, Const | Var):
        count = var(fresh(f"{loop.var.name}_count", taken), s64)
        names.append(Let(count, extent, loop.span))
        extent = count
    pieces: list[Stmt] = []
    start: Expr = const(0)
    left: Expr = extent
    for size in dict.fromkeys((wider(loop.body, lanes), lanes)):
        number = left // size
        if number is not const(0):
            outer = var(fresh(f"{loop.var.name}_o", taken), s64)
            first = outer * size if start is const(0) else start + outer * size
            inside = as_lanes(loop, first, size, taken)
            pieces.append(For(outer, number, inside, span=loop.span))
        start, left = extent // size * size, extent % size
    if isinstance(left, Const):
        if left.value:
            pieces.append(as_lanes(loop, start, int(left.value), taken))
        return block(*names, *pieces)
    rest = as_lanes(loop, start, lanes, taken)
    assert isinstance(rest, For)
    masked = replace(rest, body=If(start + rest.var < extent, rest.body, span=loop.span))
    return block(*names, *pieces, If(const(0) < left, masked, span=loop.span))
