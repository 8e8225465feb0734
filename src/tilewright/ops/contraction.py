"""``C = epilogue(sum of A * B)`` over views: what convolution and matmul are both made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilewright.dtypes import DType, f32
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var, cast
from tilewright.ir.stmt import Allocate, Compute, Dim, Operand, Stmt, View
from tilewright.ir.visit import variables
from tilewright.ops.attributes import Attributes
from tilewright.ops.domain import accumulator, fill, operand
from tilewright.ops.epilogue import Result, epilogue, factor_at


@dataclass(frozen=True)
class Contraction:
    """Which tensor is A, B and C, where each is read, and which dims C keeps."""

    a: View
    b: View
    c: View
    kept: tuple[Dim, ...]
    reduced: tuple[Dim, ...]


def contract(
    views: Contraction,
    type: DType,
    result: Result,
    attributes: Attributes,
    buffers: Mapping[str, Buffer],
) -> Iterable[Stmt]:
    """The statements of the naive kernel; sums are kept in ``type``."""
    acc = accumulator("acc", type, views.kept)
    out = View(acc, tuple(each.var for each in views.kept))
    _check_fpmath(attributes, views)
    a = operand("a", views.a.buffer, views.a.index, views.a.mask)
    b, factor = _weights(views.b, type, result, attributes, buffers)
    total = operand("acc", acc, out.index)
    operands, value = [total], cast(type, total.var)
    point = attributes.zero_point("src")
    if point is not None:
        sums, statements = _compensation(views, type, result, attributes, buffers)
        yield from statements
        added, zero = factor_at(point, type, result, buffers)
        weights = operand("sums", sums.buffer, sums.index)
        operands += [weights, *added]
        value = value - zero * weights.var
    yield Allocate(acc)
    yield fill("init", acc, views.kept, 0)
    body = cast(type, _rounded(a.var, attributes)) * factor
    yield Compute.single("main", (*views.kept, *views.reduced), out, (a, *b), body, "add")
    yield epilogue("epilogue", operands, value, result, attributes, buffers)


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
) -> tuple[View, list[Stmt]]:
    """The sum of B over the terms whose A exists, as a view, and the statements that compute it.

    In two steps where A has a mask: first over the reduced dims that the mask does not depend on
    (input channels), then over the others (taps), so that the cost stays far below ``main``'s.
    """
    b, value = _weights(views.b, type, result, attributes, buffers)
    depends = variables(views.a.mask) if views.a.mask is not None else frozenset()
    first = [each for each in views.reduced if each.var not in depends]
    second = [each for each in views.reduced if each.var in depends]
    used = frozenset[Expr]().union(*(variables(i) for o in b for i in o.view.index))
    columns = [each for each in views.kept if each.var in used]
    partial = accumulator("weight_sums", type, (*columns, *second))
    view = View(partial, tuple(each.var for each in (*columns, *second)))
    statements: list[Stmt] = [
        Allocate(partial),
        fill("weight_sums_init", partial, (*columns, *second), 0),
        Compute.single("weight_sums_main", (*columns, *second, *first), view, b, value, "add"),
    ]
    if not second and not depends:
        return view, statements
    kept = [each for each in views.kept if each.var in used or each.var in depends]
    total = accumulator("compensation", type, kept)
    out = View(total, tuple(each.var for each in kept))
    term = operand("sums", view.buffer, view.index, views.a.mask)
    statements += [
        Allocate(total),
        fill("compensation_init", total, kept, 0),
        Compute.single("compensation_main", (*kept, *second), out, (term,), term.var, "add"),
    ]
    return out, statements
