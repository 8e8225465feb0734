"""Dims and index expressions that the constructors share.

Two dims of one name are the same variable, also in different computes of a kernel: that is what
lets a schedule loop over several computes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Expr, ExprLike, Var, all_of, const, var
from tilewright.ir.stmt import Compute, Dim, Operand, View
from tilewright.problems import Shape, Window


def dim(name: str, extent: int) -> Dim:
    """The dim ``name`` from 0 to ``extent``."""
    return Dim(var(name), const(extent))


def dims(extents: Mapping[str, int]) -> tuple[Dim, ...]:
    """One dim for each name, in order."""
    return tuple(dim(name, extent) for name, extent in extents.items())


def extents(domain: Iterable[Dim]) -> Shape:
    """The sizes of dims whose extents are constants."""
    return tuple(int(const_value(other.extent)) for other in domain)


def const_value(expr: Expr) -> int:
    """The value of a constant expression. Raises `TypeError` when it is none."""
    value = getattr(expr, "value", None)
    if not isinstance(value, int):
        raise TypeError(f"{expr!r} is not a constant")
    return value


def operand(
    name: str, source: Buffer, index: Sequence[ExprLike], mask: Expr | None = None
) -> Operand:
    """The element of ``source`` at ``index``, called ``name`` in a body."""
    exprs = tuple(i if isinstance(i, Expr) else const(i) for i in index)
    return Operand(var(name, source.dtype), View(source, exprs, mask))


def accumulator(name: str, type: DType, domain: Sequence[Dim]) -> Buffer:
    """A private buffer with one element for each point of ``domain``, in its order."""
    return buffer(name, type, extents(domain), space=Space.PRIVATE)


def fill(name: str, target: Buffer, domain: Sequence[Dim], value: float) -> Compute:
    """``target = value`` at each point of ``domain``, whose dims index it in order."""
    index = tuple(other.var for other in domain)
    return Compute.single(name, tuple(domain), View(target, index), (), const(value, target.dtype))


def combination(terms: Sequence[tuple[Var, int]], offset: int = 0) -> Expr:
    """The sum of variable times factor, plus ``offset``; factors of 1 and offsets of 0 left out."""
    result: Expr | None = None
    for variable, factor in terms:
        term: Expr = variable if factor == 1 else variable * factor
        result = term if result is None else result + term
    if result is None:
        return const(offset)
    if offset == 0:
        return result
    return result + offset if offset > 0 else result - -offset


@dataclass(frozen=True)
class Tap:
    """Where a sliding window touches a row: an index, and the conditions under which it exists."""

    index: Expr
    conditions: tuple[Expr, ...]


def source_of(window: Window, out: Var, tap: Var) -> Tap:
    """The input element that output ``out`` reads at ``tap``; conditions only where padding is."""
    step = window.dilation + 1
    index = combination(((out, window.stride), (tap, step)), -window.pad_l)
    last = (window.out - 1) * window.stride + (window.kernel - 1) * step - window.pad_l
    conditions: list[Expr] = []
    if window.pad_l > 0:
        conditions.append(index >= 0)
    if last >= window.size:
        conditions.append(index < window.size)
    return Tap(index, tuple(conditions))


def middle_of(window: Window) -> tuple[int, int] | None:
    """The first and the last output all of whose taps are there; None where no output has all."""
    reach = (window.kernel - 1) * (window.dilation + 1)
    first = max(0, -(-window.pad_l // window.stride))
    last = min(window.out - 1, (window.size - 1 - reach + window.pad_l) // window.stride)
    return (first, last) if first <= last else None


def target_of(window: Window, element: Var, tap: Var) -> Tap:
    """The output element that reads input ``element`` at ``tap``, the inverse of `source_of`.

    Where strides are 2 or more, most pairs have none: the conditions say which do.
    """
    step = window.dilation + 1
    position = combination(((element, 1),), window.pad_l)
    if window.kernel > 1:
        position = position - combination(((tap, step),))
    index = position if window.stride == 1 else position // window.stride
    first = window.pad_l - (window.kernel - 1) * step
    last = window.size - 1 + window.pad_l
    conditions: list[Expr] = []
    if window.stride > 1:
        conditions.append((position % window.stride).__eq__(0))
    if first < 0:
        conditions.append(position >= 0)
    if last // window.stride >= window.out:
        conditions.append(index < window.out)
    return Tap(index, tuple(conditions))


def mask_of(taps: Iterable[Tap]) -> Expr | None:
    """All conditions of ``taps`` together; None when there are none."""
    return all_of(condition for tap in taps for condition in tap.conditions)


def padding_fills(target: Buffer) -> list[Compute]:
    """``target``'s padding of blocks set to 0: one compute for each padded dim.

    Their indices go beyond the logical shape, and stay inside of what the layout holds. The
    regions do not meet: dims before the padded one run over all that is held, dims behind it over
    the logical sizes.
    """
    held = target.layout.padded_shape(len(target.shape))
    fills: list[Compute] = []
    for padded, (size, whole) in enumerate(zip(target.shape, held, strict=True)):
        if size == whole:
            continue
        sizes = [*held[:padded], whole - size, *target.shape[padded + 1 :]]
        domain = tuple(dim(f"{target.name}_d{i}", extent) for i, extent in enumerate(sizes))
        index = tuple(d.var + size if i == padded else d.var for i, d in enumerate(domain))
        name = f"{target.name}_padding{padded}"
        out = View(target, index)
        fills.append(Compute.single(name, domain, out, (), const(0, target.dtype)))
    return fills
