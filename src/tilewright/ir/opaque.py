"""What an opaque nest touches, and whether that is what it declares."""

from __future__ import annotations

from collections.abc import Set

from tilewright.ir.stmt import Allocate, Block, Call, Compute, Kernel, Opaque, Stmt, Store, View
from tilewright.ir.visit import (
    block,
    direct_exprs,
    loads_in,
    map_kernel,
    nested,
    walk_stmts,
    with_nested,
)


def touched(stmt: Stmt) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the buffers that ``stmt`` reads, and of those that it writes (or may, as a
    function that gets a view of one), without those that it allocates itself."""
    reads: set[str] = set()
    writes: set[str] = set()
    own: set[str] = set()
    for node in walk_stmts(stmt):
        match node:
            case Allocate():
                own.add(node.buffer.name)
            case Store():
                writes.add(node.buffer.name)
            case Compute():
                writes.update(view.buffer.name for view in node.outputs)
                reads.update(operand.view.buffer.name for operand in node.operands)
                if isinstance(node.completion, View):
                    writes.add(node.completion.buffer.name)
            case Call():
                writes.update(arg.buffer.name for arg in node.args if isinstance(arg, View))
            case _:
                pass
        reads.update(load.buffer.name for expr in direct_exprs(node) for load in loads_in(expr))
    return frozenset(reads - own), frozenset(writes - own)


def declaration_defect(nest: Opaque, known: Set[str]) -> tuple[str, str] | None:
    """What is wrong with what ``nest`` declares, where ``known`` are the buffers in scope, and the
    cure; None where nothing is. What is declared written may be read, too."""
    for name in (*nest.reads, *nest.writes):
        if name not in known:
            return f"it declares {name}, which is no buffer here", "declare what there is"
    reads, writes = touched(nest.body)
    for verb, found, declared in (
        ("writes", writes, nest.writes),
        ("reads", reads, (*nest.reads, *nest.writes)),
    ):
        for name in sorted(found - set(declared)):
            return f"it {verb} {name}, and does not declare it", f"add `{verb} {name}`"
    return None


def opened(kernel: Kernel) -> Kernel:
    """``kernel`` with the statements of opaque nests in their place."""

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Opaque):
            return change(stmt.body)
        if isinstance(stmt, Block):
            parts = tuple(change(part) for part in stmt.body)
            same = all(a is b for a, b in zip(parts, stmt.body, strict=True))
            return stmt if same else block(*parts)
        return with_nested(stmt, tuple(change(part) for part in nested(stmt)))

    return map_kernel(kernel, change)
