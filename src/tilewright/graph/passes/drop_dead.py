"""What no result depends on is left out."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from functools import partial
from operator import is_

from tilewright.graph.passes.loaded import loaded, with_results
from tilewright.graph.passes.values import reads_of, statements, with_blocks, writes_of
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Allocate, Block, Call, Compute, Kernel, Let, Opaque, Param, Stmt
from tilewright.ir.visit import nested, walk_stmts, with_nested


def drop_dead(kernel: Kernel) -> Kernel:
    """Leaves out statements whose results are not read, their memory, and constants.

        alloc t
        compute t(i): t[i] = x[i] * 2.0
        compute y(i): y[i] = x[i] + 1.0
    ->  compute y(i): y[i] = x[i] + 1.0
    """
    old = statements(kernel)
    stmts = _kept(old, _live(kernel))
    read = reads_of(Block(stmts))
    params = tuple(
        param
        for param in kernel.params
        if not isinstance(param, Param) or param.digest is None or param.buffer in read
    )
    same = stmts is old
    if same and len(params) == len(kernel.params):
        return kernel
    digests = {param.digest for param in params if isinstance(param, Param)}
    constants = {key: value for key, value in kernel.constants.items() if key in digests}
    body = kernel.body if same else Block(stmts)
    return replace(kernel, params=params, body=body, constants=constants)


def _live(kernel: Kernel) -> set[Buffer]:
    """The buffers on which some result depends, in whatever order statements run."""
    feeds: dict[Buffer, set[Buffer]] = {}
    buffers = {array.buffer for array in kernel.arrays if array.access != "in"}
    _connect(statements(kernel), frozenset(), feeds, buffers)
    pending = list(buffers)
    while pending:
        new = feeds.get(pending.pop(), set()) - buffers
        buffers |= new
        pending += new
    return buffers


def _connect(
    stmts: Sequence[Stmt],
    deciding: frozenset[Buffer],
    feeds: dict[Buffer, set[Buffer]],
    buffers: set[Buffer],
) -> None:
    """Notes what each buffer is made from; ``deciding`` say whether and how often all of this
    runs. What has an effect beside memory is ``buffers`` at once."""
    for stmt in stmts:
        if nested(stmt) and not _is_whole(stmt):
            _connect(nested(stmt), deciding | _own_reads(stmt), feeds, buffers)
            continue
        reads = deciding | reads_of(stmt)
        for together in _written_together(stmt):
            for buffer in together:
                feeds.setdefault(buffer, set()).update(reads, together)
        if isinstance(stmt, Let) or _has_effect(stmt):
            buffers |= reads | writes_of(stmt)


def _written_together(stmt: Stmt) -> list[frozenset[Buffer]]:
    """What ``stmt`` writes, in parts of which each is kept or left out as one."""
    if isinstance(stmt, Compute):
        return [frozenset(view.buffer for view in result.views) for result in stmt.results]
    return [writes_of(stmt)]


def _is_whole(stmt: Stmt) -> bool:
    """Whether ``stmt`` is kept or left out as one."""
    return isinstance(stmt, Opaque) or _has_effect(stmt)


def _has_effect(stmt: Stmt) -> bool:
    return any(isinstance(node, Call) for node in walk_stmts(stmt))


def _own_reads(stmt: Stmt) -> frozenset[Buffer]:
    """What the condition or the extent of ``stmt`` loads."""
    if isinstance(stmt, Block):
        return frozenset()
    return reads_of(with_nested(stmt, tuple(Block(()) for _ in nested(stmt))))


def _kept(stmts: tuple[Stmt, ...], live: Set[Buffer]) -> tuple[Stmt, ...]:
    """``stmts`` without what only dead buffers see; the same object where that is nothing."""
    kept: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Allocate):
            keep = stmt.buffer in live
        else:
            keep = (
                isinstance(stmt, Let) or _has_effect(stmt) or not live.isdisjoint(writes_of(stmt))
            )
        if keep and isinstance(stmt, Compute):
            kept.append(_living(stmt, live))
        elif keep and nested(stmt) and not _is_whole(stmt):
            kept.append(with_blocks(stmt, partial(_kept, live=live)))
        elif keep:
            kept.append(stmt)
    same = len(kept) == len(stmts) and all(map(is_, kept, stmts))
    return stmts if same else tuple(kept)


def _living(compute: Compute, live: Set[Buffer]) -> Compute:
    """``compute`` without results that are not read."""
    results = loaded(compute) if len(compute.results) > 1 else compute.results
    kept = tuple(r for r in results if any(view.buffer in live for view in r.views))
    return compute if len(kept) == len(compute.results) else with_results(compute, kept)
