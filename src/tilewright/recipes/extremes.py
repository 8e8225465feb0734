"""The greatest and the least of floats on a processor: where comparing their bits takes less."""

from __future__ import annotations

from math import prod

from tilewright.dtypes import tf32
from tilewright.ir.expr import Cast, Const, Expr, Unary, Var
from tilewright.ir.stmt import Compute
from tilewright.recipes.reducible import computes_in, kept_dims, reduces
from tilewright.recipes.roles import extents
from tilewright.schedule.schedule import KernelSchedule

# Points for each result from which on it pays: to make one of three extremes takes ten
# instructions, and each point saves two of five.
_WORTH = 8
# Of integers of more bytes, a vector has no maximum in one instruction.
_WIDEST = 4


def by_bits(s: KernelSchedule, name: str) -> None:
    """The minima or maxima of the compute ``name`` by their bits, if it has any and that takes
    less."""
    found = [each for each in computes_in(s.kernel) if each.name == name]
    # Of a tile and a shorter one, the former says what pays.
    if not all(map(_has_order, found)) or not any(map(_is_known, found)):
        return
    if max(map(_points, found), default=0) >= _WORTH:
        s.compare_bits(name)
        s.mark(f"bits {name}")


def _has_order(compute: Compute) -> bool:
    """Whether it finds extremes of floats whose bits can be compared, at so many places."""
    if not reduces(compute) or len(compute.outputs) > 1 or not _is_cheap(compute.body):
        return False
    dtype = compute.out.buffer.dtype
    if compute.combiner not in ("max", "min") or not dtype.is_float or dtype is tf32:
        return False
    return dtype.bytes <= _WIDEST


def _is_known(compute: Compute) -> bool:
    """Whether it is known how many results there are."""
    kept = kept_dims(compute)
    return all(isinstance(d.extent, Const) for d in compute.dims if d.var.name in kept)


def _points(compute: Compute) -> int:
    """How many are reduced to a result."""
    kept = kept_dims(compute)
    return prod(size for name, size in extents(compute).items() if name not in kept)


def _is_cheap(value: Expr) -> bool:
    """Whether to use ``value`` three times is no work: it is read, with another sign or type."""
    if isinstance(value, Cast):
        return value.a.type.is_float and _is_cheap(value.a)
    if isinstance(value, Unary):
        return value.op in ("abs", "neg") and _is_cheap(value.a)
    return isinstance(value, Var)
