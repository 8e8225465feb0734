"""``C = epilogue(sum of A * B)`` over views: what convolution and matmul are both made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from tilewright.dtypes import DType, f32
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Expr, Var, cast, const, maximum, minimum, select
from tilewright.ir.stmt import Allocate, Compute, Dim, Operand, Stmt, View
from tilewright.ir.visit import substitute, variables
from tilewright.layout.roles import INIT, MAIN, RESULT
from tilewright.ops.attributes import Attributes
from tilewright.ops.domain import accumulator, dim, extents, fill, operand
from tilewright.ops.epilogue import Result, epilogue, factor_at


@dataclass(frozen=True)
class Contraction:
    """Which tensor is A, B and C, where each is read, and which dims C keeps.

    ``middle``: of dims of C that A's mask depends on, the first and the last position in a row at
    which it hides nothing; without an entry where there is none.
    """

    a: View
    b: View
    c: View
    kept: tuple[Dim, ...]
    reduced: tuple[Dim, ...]
    middle: Mapping[Var, tuple[int, int]] = field(default_factory=dict)


def contract(
    views: Contraction,
    type: DType,
    result: Result,
    attributes: Attributes,
    buffers: Mapping[str, Buffer],
) -> Iterable[Stmt]:
    """The statements of the naive kernel; sums are kept in ``type``."""
    acc = accumulator("acc", type, views.kept)
    out = View(acc, tuple(other.var for other in views.kept))
    _check_fpmath(attributes, views)
    a = operand("a", views.a.buffer, views.a.index, views.a.mask)
    b, factor = _weights(views.b, type, result, attributes, buffers)
    total = operand("acc", acc, out.index)
    operands, value = [total], cast(type, total.var)
    point = attributes.zero_point("src")
    if point is not None:
        sums, summed, statements = _compensation(views, type, result, attributes, buffers)
        yield from statements
        added, zero = factor_at(point, type, result, buffers)
        operands += [*sums, *added]
        value = value - zero * summed
    yield Allocate(acc)
    yield fill(INIT, acc, views.kept, 0)
    body = cast(type, _rounded(a.var, attributes)) * factor
    yield Compute.single(MAIN, (*views.kept, *views.reduced), out, (a, *b), body, "add")
    yield epilogue(RESULT, operands, value, result, attributes, buffers)


def _check_fpmath(attributes: Attributes, views: Contraction) -> None:
    if attributes.fpmath is None or f32 in (views.a.buffer.dtype, views.b.buffer.dtype):
        return
    raise UnsupportedError(
        f"fpmath {attributes.fpmath} for operands of {views.a.buffer.dtype} and "
        f"{views.b.buffer.dtype}",
        why="it says to what operands of f32 are rounded before they are multiplied",
        cure="leave it out, or use f32",
    )


def _rounded(element: Var, attributes: Attributes) -> Expr:
    """An operand's element as it is multiplied."""
    if attributes.fpmath is None or element.type is not f32:
        return element
    return cast(attributes.fpmath, element)


def _weights(
    view: View,
    type: DType,
    result: Result,
    attributes: Attributes,
    buffers: Mapping[str, Buffer],
) -> tuple[tuple[Operand, ...], Expr]:
    """B as operands, and its value less its zero point.

    That one is subtracted inside of the sum, unlike the source's: where A is masked it is 0, so
    nothing is left to compensate.
    """
    b = operand("b", view.buffer, view.index, view.mask)
    point = attributes.zero_point("weights")
    if point is None:
        return (b,), cast(type, _rounded(b.var, attributes))
    added, value = factor_at(point, type, result, buffers)
    return (b, *added), cast(type, b.var) - value


def _compensation(
    views: Contraction,
    type: DType,
    result: Result,
    attributes: Attributes,
    buffers: Mapping[str, Buffer],
) -> tuple[tuple[Operand, ...], Expr, list[Stmt]]:
    """The sum of B, less its zero point, over the terms whose A exists: operands, the value of
    them, and the statements that compute what they read.

    In two steps where A has a mask: first over the reduced dims that the mask does not depend on
    (input channels), then over the others (taps). The first is a sum of B as it lies, and the
    second is only made of that, unless B has a zero point that is an array: where B may be packed
    before the kernel runs, so may they (`schedule.hoist`).
    """
    b = operand("b", views.b.buffer, views.b.index, views.b.mask)
    mask = views.a.mask
    depends = variables(mask) if mask is not None else frozenset()
    first = [other for other in views.reduced if other.var not in depends]
    second = [other for other in views.reduced if other.var in depends]
    used = index_variables(b.view)
    columns = [other for other in views.kept if other.var in used]
    partial = accumulator("weight_sums", type, (*second, *columns))
    view = View(partial, tuple(other.var for other in (*second, *columns)))
    statements: list[Stmt] = [
        Allocate(partial),
        fill("weight_sums_init", partial, (*second, *columns), 0),
        Compute.single(
            "weight_sums_main", (*columns, *second, *first), view, (b,), cast(type, b.var), "add"
        ),
    ]
    term = operand("sums", view.buffer, view.index)
    terms: tuple[Operand, ...] = (term,)
    value: Expr = term.var
    point = attributes.zero_point("weights")
    if point is not None:
        added, zero = factor_at(point, type, result, buffers)
        terms, value = (term, *added), value - zero * prod(extents(first))
    if mask is None or not (second or depends):
        return terms, value, statements
    alike = [_alike(other, views) for other in views.kept if other.var in depends]
    stands_for = {group.dim: group.first for group in alike}
    kept = (*(group.kind for group in alike), *(d for d in columns if d.var not in stands_for))
    total = accumulator("compensation", type, kept)
    out = View(total, tuple(other.var for other in kept))
    hidden = substitute(mask, stands_for)
    if point is None:
        terms = (operand("sums", view.buffer, view.index, hidden),)
    else:
        # B's zero point does not count either where there is no term.
        value = select(hidden, value, const(0, type))
    statements += [
        Allocate(total),
        fill("compensation_init", total, kept, 0),
        Compute.single("compensation_main", (*kept, *second), out, terms, value, "add"),
    ]
    read = operand("sums", total, [*(e.of for e in alike), *out.index[len(alike) :]])
    return (read,), read.var, statements


@dataclass(frozen=True)
class _Alike:
    """A dim of C along which A's mask hides other terms near the borders only, by kinds of
    positions: ``kind`` numbers them, ``of`` is the kind of a position, ``first`` one of the
    positions of a kind."""

    dim: Var
    kind: Dim
    of: Expr
    first: Expr


def _alike(other: Dim, views: Contraction) -> _Alike:
    (size,) = extents((other,))
    low, high = views.middle.get(other.var, (0, 0))
    kind = dim(f"{other.var.name}_kind", size - (high - low))
    if high == low:
        return _Alike(other.var, kind, other.var, kind.var)
    of = minimum(other.var, const(low))
    if high + 1 == size:
        return _Alike(other.var, kind, of, kind.var)
    of = of + maximum(other.var - high, const(0))
    return _Alike(other.var, kind, of, select(kind.var <= low, kind.var, kind.var + (high - low)))
