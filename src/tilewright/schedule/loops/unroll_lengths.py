"""Rests of unknown length, written out for each length that they may have."""

from __future__ import annotations

from functools import partial

from tilewright.ir.expr import Const, Expr, const
from tilewright.ir.stmt import Allocate, Block, Compute, If, Kernel, Stmt
from tilewright.ir.visit import reads_memory, rewrite, rewrite_exprs, variables
from tilewright.schedule.queries.access import allocates_of_any_size
from tilewright.schedule.queries.place import Place, rewrite_kernel, walk_placed
from tilewright.schedule.records.asks import a_plain_compute, asks, positive
from tilewright.schedule.records.transform import transform


@transform
@asks(compute=a_plain_compute, longest=positive)
def unroll_lengths(kernel: Kernel, compute: str, dim: str, longest: int) -> Kernel:
    """Where a compute's ``dim`` has a length that is no number, writes what is around the compute
    out for each that it may have: what is in registers needs numbers.

        if 0 < m % 3:
          compute f(i in m % 3): ...[m - m % 3 + i]
    ->  unroll_lengths("f", "i", 4)
        if 0 < m % 3:
          if m % 3 == 1:
            compute f(i in 1): ...[m - 1 + i]
          else:
            compute f(i in 2): ...[m - 2 + i]

    That is done where the length is known, and known to be 1 or more: for the outermost statement
    that is no sequence of what may do without, and allocates nothing of a size that a call passes.
    One that may be more than ``longest`` stays as it is.
    """

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if isinstance(stmt, Block) and not isinstance(stmt.body[0], Allocate):
            return None
        if allocates_of_any_size(stmt):
            return None
        for extent in _lengths(stmt, place, compute, dim):
            if reads_memory(extent) or not {v.name for v in variables(extent)} <= place.names:
                continue
            low, high = place.facts.bounds(extent)
            if low is not None and high is not None and 1 <= low <= high <= longest:
                return _written_out(stmt, extent, low, high)
        return None

    return rewrite_kernel(kernel, change)


def _lengths(stmt: Stmt, place: Place, compute: str, dim: str) -> list[Expr]:
    """The extents that are no numbers of ``dim`` in the computes of that name."""
    exprs = [
        other.extent
        for inner, _ in walk_placed(stmt, place)
        if isinstance(inner, Compute) and inner.name == compute
        for other in inner.dims
        if other.var.name == dim and not isinstance(other.extent, Const)
    ]
    return list(dict.fromkeys(exprs))


def _written_out(stmt: Stmt, length: Expr, low: int, high: int) -> Stmt:
    """``stmt`` for each ``length`` from ``low`` to ``high``."""
    result: Stmt | None = None
    for number in reversed(range(low, high + 1)):
        specialized = rewrite_exprs(stmt, partial(_with, length, const(number)))
        result = specialized if result is None else If(length == const(number), specialized, result)
    assert result is not None
    return result


def _with(length: Expr, number: Expr, expr: Expr) -> Expr:
    """``expr`` with ``number`` for each ``length``."""
    return rewrite(expr, lambda node: number if node is length else node)
