"""Statements that leave a function or a loop, and whether that needs a flag.

The IR has no jumps: statements after one that may leave run only where it did not. Where one `if`
decides that, they go into its other arm. Otherwise a flag is set.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

_NONE: frozenset[str] = frozenset()
_OF_LOOPS = frozenset({"break", "continue"})


def exits(stmt: ast.stmt) -> frozenset[str]:
    """The ways in which ``stmt`` may leave its block: ``return``, ``break``, ``continue``."""
    match stmt:
        case ast.Return():
            return frozenset({"return"})
        case ast.Break():
            return frozenset({"break"})
        case ast.Continue():
            return frozenset({"continue"})
        case ast.If():
            return _any(stmt.body) | _any(stmt.orelse)
        case ast.For() | ast.While():
            return (_any(stmt.body) - _OF_LOOPS) | _any(stmt.orelse)
        case _:
            return _NONE


def _any(body: Sequence[ast.stmt]) -> frozenset[str]:
    return _NONE.union(*map(exits, body))


def always(body: Sequence[ast.stmt]) -> bool:
    """Whether no path reaches the end of ``body``."""
    for stmt in body:
        if isinstance(stmt, ast.Return | ast.Break | ast.Continue):
            return True
        if isinstance(stmt, ast.If) and always(stmt.body) and always(stmt.orelse):
            return True
    return False


def flagged(body: Sequence[ast.stmt], kind: str) -> bool:
    """Whether leaving ``body`` by ``kind`` needs a flag."""
    for i, stmt in enumerate(body):
        leaves, rest = exits(stmt), body[i + 1 :]
        if not leaves:
            continue
        if not isinstance(stmt, ast.If):
            loop = isinstance(stmt, ast.For | ast.While) and kind in leaves
            return loop or flagged(rest, kind)
        if always(stmt.body) and not _any(stmt.orelse):
            return flagged(stmt.body, kind) or flagged([*stmt.orelse, *rest], kind)
        if always(stmt.orelse) and not _any(stmt.body):
            return flagged(stmt.orelse, kind) or flagged([*stmt.body, *rest], kind)
        if kind in leaves and rest and not always([stmt]):
            return True
        inside = flagged(stmt.body, kind) or flagged(stmt.orelse, kind)
        return inside or flagged(rest, kind)
    return False
