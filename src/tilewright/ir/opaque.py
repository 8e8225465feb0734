"""Opaque nests: the buffers that they access, checked against their declaration; opening them."""

from __future__ import annotations

from collections.abc import Iterator, Set
from operator import is_

from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Allocate, Block, Kernel, Opaque, Stmt
from tilewright.ir.uses import accesses
from tilewright.ir.visit import block, map_kernel, nested, walk_stmts, with_nested


def touched(stmt: Stmt) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the buffers that ``stmt`` reads, and of those that it may write, without those
    that it allocates itself."""
    names: dict[bool, set[str]] = {False: set(), True: set()}
    for buffer, writes in _outer_accesses(stmt):
        names[writes].add(buffer.name)
    return frozenset(names[False]), frozenset(names[True])


def buffers_touched(nest: Opaque) -> tuple[Buffer, ...]:
    """The buffers around ``nest`` that its statements access, sorted by name. One that it declares
    and does not access is not among them."""
    buffers = {buffer.name: buffer for buffer, _ in _outer_accesses(nest)}
    return tuple(buffers[name] for name in sorted(buffers))


def _outer_accesses(stmt: Stmt) -> Iterator[tuple[Buffer, bool]]:
    """The `accesses` in ``stmt`` to buffers that are allocated around it."""
    nodes = list(walk_stmts(stmt))
    inner = {node.buffer.name for node in nodes if isinstance(node, Allocate)}
    for node in nodes:
        yield from (access for access in accesses(node) if access[0].name not in inner)


def declaration_defect(nest: Opaque, in_scope: Set[str]) -> tuple[str, str] | None:
    """What is wrong with the declaration of ``nest``, and the cure; None where nothing is.

    ``in_scope`` names the buffers in scope. Buffers that are declared written may be read, too.
    """
    for name in (*nest.reads, *nest.writes):
        if name not in in_scope:
            return f"it declares {name}, which is no buffer here", "declare buffers in scope only"
    reads, writes = touched(nest.body)
    for verb, accessed, declared in (
        ("writes", writes, nest.writes),
        ("reads", reads, (*nest.reads, *nest.writes)),
    ):
        for name in sorted(accessed - set(declared)):
            return f"it {verb} {name}, and does not declare it", f"add `{verb} {name}`"
    return None


def opened(kernel: Kernel) -> Kernel:
    """``kernel`` with opaque nests replaced by their statements."""

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Opaque):
            return change(stmt.body)
        if isinstance(stmt, Block):
            parts = tuple(change(part) for part in stmt.body)
            same = all(map(is_, parts, stmt.body))
            return stmt if same else block(*parts)
        return with_nested(stmt, tuple(change(part) for part in nested(stmt)))

    return map_kernel(kernel, change)
