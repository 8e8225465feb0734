"""What an opaque nest touches, and whether that is what it declares."""

from __future__ import annotations

from collections.abc import Iterator, Set
from operator import is_

from tilewright.ir.buffer import Buffer
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
    names: dict[bool, set[str]] = {False: set(), True: set()}
    for buffer, writes in _touches(stmt):
        names[writes].add(buffer.name)
    return frozenset(names[False]), frozenset(names[True])


def buffers_touched(nest: Opaque) -> tuple[Buffer, ...]:
    """The buffers that ``nest`` touches of those around it, by their names. What it only declares
    is not among them: no statement of it tells the buffer of that name."""
    found = {buffer.name: buffer for buffer, _ in _touches(nest)}
    return tuple(found[name] for name in sorted(found))


def _touches(stmt: Stmt) -> Iterator[tuple[Buffer, bool]]:
    """What `touched` names, with whether it is written, as often as statements say."""
    found: list[tuple[Buffer, bool]] = []
    own: set[str] = set()
    for node in walk_stmts(stmt):
        match node:
            case Allocate():
                own.add(node.buffer.name)
            case Store():
                found.append((node.buffer, True))
            case Compute():
                found += [(view.buffer, True) for view in node.outputs]
                found += [(operand.view.buffer, False) for operand in node.operands]
                if isinstance(node.completion, View):
                    found.append((node.completion.buffer, True))
            case Call():
                found += [(arg.buffer, True) for arg in node.args if isinstance(arg, View)]
            case _:
                pass
        found += [(load.buffer, False) for expr in direct_exprs(node) for load in loads_in(expr)]
    return (each for each in found if each[0].name not in own)


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
            same = all(map(is_, parts, stmt.body))
            return stmt if same else block(*parts)
        return with_nested(stmt, tuple(change(part) for part in nested(stmt)))

    return map_kernel(kernel, change)
