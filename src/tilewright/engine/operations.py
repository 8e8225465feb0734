"""The arithmetic operations of a kernel, counted."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilewright.dtypes import DType
from tilewright.ir.expr import Binary, Const, Expr, Unary
from tilewright.ir.operators import COMPARISONS
from tilewright.ir.stmt import Combiner, Compute, For, Kernel, Stmt, While
from tilewright.ir.visit import direct_exprs, nested, walk


def operations_of(kernel: Kernel) -> tuple[int | None, DType | None]:
    """How many operations on floats a kernel does, masks and conditions taken as true, and the type
    of most of them; None where it depends on the numbers of a call, or on what the kernel
    computes."""
    counts: dict[DType, int] = {}
    if not _counted(kernel.body, 1, counts):
        return None, None
    return sum(counts.values()), max(counts, key=lambda count: counts[count], default=None)


def _counted(stmt: Stmt, times: int, counts: dict[DType, int]) -> bool:
    """Adds what ``stmt`` does ``times`` times; whether that is known."""
    points = times
    if isinstance(stmt, While):
        return False
    if isinstance(stmt, For | Compute):
        extents = [stmt.extent] if isinstance(stmt, For) else [dim.extent for dim in stmt.dims]
        if not all(isinstance(extent, Const) for extent in extents):
            return False
        points *= math.prod(int(extent.value) for extent in extents if isinstance(extent, Const))
    if not isinstance(stmt, For):
        for type_ in _operations(stmt):
            counts[type_] = counts.get(type_, 0) + points
    return all([_counted(part, points, counts) for part in nested(stmt)])


def _operations(stmt: Stmt) -> Iterator[DType]:
    """The type of each operation on floats that ``stmt`` does once."""
    exprs = list(direct_exprs(stmt))
    if isinstance(stmt, Compute):
        # What a combiner of one's own computes stands in a scope of its own.
        exprs += [
            e for r in stmt.results if isinstance(r.combiner, Combiner) for e in r.combiner.values
        ]
        for result in stmt.results:
            if isinstance(result.combiner, str) and result.values[0].type.is_float:
                yield result.values[0].type
    seen: set[Expr] = set()
    for expr in exprs:
        for node in walk(expr):
            if node not in seen and isinstance(node, Binary | Unary):
                seen.add(node)
                if node.a.type.is_float and not (
                    isinstance(node, Binary) and node.op in COMPARISONS
                ):
                    yield node.a.type
