"""Loads: the expressions that read memory."""

from __future__ import annotations

from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, ExprLike, as_expr


class Load(Expr):
    """The element of ``buffer`` at ``index`` (one expression per tensor dim).

    Where ``mask`` is given and does not hold, memory is not touched and the value is 0.
    """

    __slots__ = ("buffer", "index", "mask")
    buffer: Buffer
    index: tuple[Expr, ...]
    mask: Expr | None

    def __reduce__(self) -> Any:
        return load, (self.buffer, self.index, self.mask)


def load(buffer: Buffer, index: tuple[ExprLike, ...], mask: Expr | None = None) -> Load:
    """The element of ``buffer`` at ``index``; 0 where ``mask`` is given and false."""
    exprs = tuple(as_expr(i) for i in index)
    key = (Load, id(buffer), *map(id, exprs), id(mask) if mask is not None else 0)
    result: Load = Load._intern(key, buffer.dtype, buffer=buffer, index=exprs, mask=mask)
    return result
