"""Arithmetic of two tensors, or of a tensor and a number; clamping and interpolating."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.dtypes import boolean, s64
from tilewright.frontends.torch.aten.promotion import (
    TO_FLOAT,
    Given,
    Number,
    pointwise,
    pointwise_op,
    promoted,
)
from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.ir.expr import Expr, binary, cast, const, maximum, minimum, select
from tilewright.problems import functions
from tilewright.problems.functions import arithmetic
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to


def _scaled(b: Expr, alpha: Number) -> Expr:
    return b if alpha == 1 else arithmetic("mul", b, const(alpha, b.type))


def _add(a: Expr, b: Expr, alpha: Number = 1) -> Expr:
    if a.type is boolean:
        return a | (b if alpha else const(False, boolean))
    return arithmetic("add", a, _scaled(b, alpha))


def multiply(a: Expr, b: Expr) -> Expr:
    """The product; of conditions, whether both hold."""
    return a & b if a.type is boolean else arithmetic("mul", a, b)


@aten("add.Tensor", "add.Scalar")
def add(at: Place, a: Given, b: Given, alpha: Number = 1) -> Tensor:
    return pointwise(at, lambda x, y: _add(x, y, alpha), a, b)


@aten("sub.Tensor", "sub.Scalar")
def sub(at: Place, a: Given, b: Given, alpha: Number = 1) -> Tensor:
    return pointwise(at, lambda x, y: arithmetic("sub", x, _scaled(y, alpha)), a, b)


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(at: Place, a: Given, b: Given, alpha: Number = 1) -> Tensor:
    return pointwise(at, lambda x, y: arithmetic("sub", y, _scaled(x, alpha)), a, b)


def _divide(a: Expr, b: Expr) -> Expr:
    return a / b


pointwise_op(multiply, "mul.Tensor", "mul.Scalar")
pointwise_op(_divide, "div.Tensor", "div.Scalar", kind=TO_FLOAT)
pointwise_op(maximum, "maximum.default")
pointwise_op(minimum, "minimum.default")
pointwise_op(functions.atan2, "atan2.default", kind=TO_FLOAT)
pointwise_op(functions.copysign, "copysign.Tensor", "copysign.Scalar", kind=TO_FLOAT)
pointwise_op(functions.hypot, "hypot.default")
pointwise_op(functions.logaddexp, "logaddexp.default", kind=TO_FLOAT)
pointwise_op(functions.logaddexp2, "logaddexp2.default", kind=TO_FLOAT)


def _without_nan(better: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """What is better of two, or the one that is a number."""

    def chosen(a: Expr, b: Expr) -> Expr:
        if not a.type.is_float:
            return better(a, b)
        return select(functions.is_nan(a), b, select(functions.is_nan(b), a, better(a, b)))

    return chosen


pointwise_op(_without_nan(maximum), "fmax.default")
pointwise_op(_without_nan(minimum), "fmin.default")


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(at: Place, a: Given, b: Given, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return pointwise(at, _divide, a, b, kind=TO_FLOAT)
    _check_divisor(at, a, b)
    by = functions.truncated_division
    return pointwise(at, by if rounding_mode == "trunc" else functions.floored_division, a, b)


def _check_divisor(at: Place, a: Given, b: Given) -> None:
    """An integer by which integers are divided must not be 0."""
    if not promoted((a, b))[0].is_integer:
        return
    at.check_divisor(b if isinstance(b, Tensor) else at.builder.splat(b, s64))


_DIVISIONS = {
    **dict.fromkeys(("floor_divide.default", "floor_divide.Scalar"), functions.floored_division),
    **dict.fromkeys(("fmod.Tensor", "fmod.Scalar"), functions.fmod),
    **dict.fromkeys(("remainder.Tensor", "remainder.Scalar"), functions.remainder),
}


@aten(*_DIVISIONS)
def division(at: Place, a: Given, b: Given) -> Tensor:
    _check_divisor(at, a, b)
    return pointwise(at, _DIVISIONS[at.op], a, b)


@aten("pow.Tensor_Scalar")
def pow_number(at: Place, a: Tensor, exponent: Number) -> Tensor:
    computed, _ = promoted((a, exponent))
    if not computed.is_float and (exponent < 0 or computed is boolean):
        refuse(f"{computed} to the power of {exponent} is PyTorch's")
    if not computed.is_float:
        return pointwise(
            at, lambda x: functions.integer_power(x, int(exponent)), a, computed=computed
        )
    return pointwise(at, lambda x: functions.power(x, exponent), a, computed=computed)


@aten("pow.Tensor_Tensor", "pow.Scalar")
def pow_tensors(at: Place, a: Given, b: Given) -> Tensor:
    if not promoted((a, b))[0].is_float:
        refuse("powers of integers by a tensor of exponents are PyTorch's")
    return pointwise(at, lambda x, y: binary("pow", x, y), a, b)


@aten("clamp.default", "clamp.Tensor")
def clamp(at: Place, x: Tensor, low: Given | None = None, high: Given | None = None) -> Tensor:
    if low is None:
        return x if high is None else pointwise(at, minimum, x, high)
    if high is None:
        return pointwise(at, maximum, x, low)
    return pointwise(at, lambda a, least, most: minimum(maximum(a, least), most), x, low, high)


@aten("hardtanh.default")
def hardtanh(at: Place, x: Tensor, low: Number = -1, high: Number = 1) -> Tensor:
    return clamp(at, x, low, high)


@aten("where.self")
def where(at: Place, condition: Tensor, a: Given, b: Given) -> Tensor:
    type_ = at.dtype
    values = (v if isinstance(v, Tensor) else at.builder.splat(v, type_) for v in (a, b))
    return elementwise(
        lambda c, x, y: select(cast(boolean, c), cast(type_, x), cast(type_, y)),
        *(broadcast_to(tensor, at.shape) for tensor in (condition, *values)),
        dtype=type_,
    )


@aten("addcmul.default")
def addcmul(at: Place, x: Tensor, a: Tensor, b: Tensor, value: Number = 1) -> Tensor:
    return pointwise(at, lambda s, p, q: _add(s, multiply(_scaled(p, value), q)), x, a, b)


@aten("addcdiv.default")
def addcdiv(at: Place, x: Tensor, a: Tensor, b: Tensor, value: Number = 1) -> Tensor:
    return pointwise(at, lambda s, p, q: s + _scaled(p, value) / q, x, a, b)


@aten("lerp.Scalar")
def lerp(at: Place, a: Tensor, b: Tensor, weight: Number) -> Tensor:
    return pointwise(at, lambda x, y: x + const(weight, x.type) * (y - x), a, b)


@aten("threshold_backward.default")
def threshold_backward(at: Place, grad: Tensor, x: Tensor, threshold: Number) -> Tensor:
    return pointwise(
        at, lambda g, s: select(s <= const(threshold, s.type), const(0, g.type), g), grad, x
    )
