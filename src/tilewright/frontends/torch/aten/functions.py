"""Functions of one tensor, element by element: activations; comparisons, logic and bits."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.dtypes import boolean
from tilewright.frontends.torch.aten.promotion import (
    DEFAULT,
    TO_BOOL,
    TO_FLOAT,
    Number,
    pointwise,
    pointwise_op,
)
from tilewright.frontends.torch.table import Place, aten
from tilewright.ir.expr import Expr, binary, cast, const, maximum, select, unary
from tilewright.problems import functions
from tilewright.problems.error_functions import erf_inv, erfc
from tilewright.problems.special_functions import (
    bessel_i1e,
    digamma,
    lgamma,
    next_after,
    polygamma,
    zeta,
)
from tilewright.problems.unary_functions import UNARY_FUNCTIONS
from tilewright.tensor.tensor import Tensor

Function = Callable[..., Expr]


def _record(name: str, alpha: float = 0.0, beta: float = 0.0) -> Function:
    build = UNARY_FUNCTIONS[name].build
    return lambda x: build(x, alpha, beta)


def _sign(x: Expr) -> Expr:
    """The sign, which is 0 of NaN in PyTorch."""
    sign = functions.sign(x)
    return select(x == x, sign, const(0, x.type)) if x.type.is_float else sign


# Those that are no records, or records with numbers; they keep the type.
_KEEPING: dict[str, Function] = {
    "neg": functions.negated,
    "_neg_view": functions.negated,
    "sign": _sign,
    "relu": lambda x: maximum(x, const(0, x.type)),
    "bitwise_not": lambda x: ~x,
    "hardswish": _record("hardswish", 1 / 6, 0.5),
    "hardsigmoid": _record("hardsigmoid", 1 / 6, 0.5),
}


def _is_infinite(x: Expr) -> Expr:
    if not x.type.is_float:
        return const(False, boolean)
    return binary("eq", unary("abs", x), const(math.inf, x.type))


_LOGIC: dict[str, Function] = {
    "logical_and": lambda a, b: cast(boolean, a) & cast(boolean, b),
    "logical_or": lambda a, b: cast(boolean, a) | cast(boolean, b),
    "logical_xor": lambda a, b: cast(boolean, a) ^ cast(boolean, b),
    "logical_not": lambda a: ~cast(boolean, a),
    "isnan": functions.is_nan,
    "isinf": _is_infinite,
    "signbit": functions.is_negative,
}
_BITS: dict[str, Function] = {
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
}


for _unary in UNARY_FUNCTIONS.values():
    if _unary.aten:
        _kind = DEFAULT if _unary.keeps else TO_FLOAT
        pointwise_op(_unary.of, f"{_unary.aten}.default", kind=_kind)
for _name, _function in _KEEPING.items():
    pointwise_op(_function, f"{_name}.default")
pointwise_op(_record("swish", 1.0), "silu.default", kind=TO_FLOAT)
for _name, _function in functions.COMPARISONS.items():
    pointwise_op(_function, f"{_name}.Tensor", f"{_name}.Scalar", kind=TO_BOOL)
for _name, _function in _LOGIC.items():
    pointwise_op(_function, f"{_name}.default", kind=TO_BOOL)
for _name, _function in _BITS.items():
    pointwise_op(_function, f"{_name}.Tensor", f"{_name}.Scalar")


def _digamma(x: Expr) -> Expr:
    """It is infinite at both zeros."""
    return select(binary("eq", x, const(0, x.type)), const(-1, x.type) / x, digamma(x))


def _spherical_bessel_j0(x: Expr) -> Expr:
    """sin(x) / x, by its series near 0."""
    near: Expr = const(0, x.type)
    for n in range(6, 0, -1):
        near = x * x * (near + const((-1) ** n / math.factorial(2 * n + 1), x.type))
    size = unary("abs", x)
    usual = select(size < const(0.5, x.type), near + const(1, x.type), unary("sin", x) / x)
    return select(_is_infinite(x), const(0, x.type), usual)


def _angle(x: Expr) -> Expr:
    zero = const(0, x.type)
    return select(x < zero, const(math.pi, x.type), select(binary("eq", x, x), zero, x))


def _bessel_i1(x: Expr) -> Expr:
    return bessel_i1e(x) * unary("exp", unary("abs", x))


pointwise_op(_angle, "angle.default", kind=TO_FLOAT)
pointwise_op(_spherical_bessel_j0, "special_spherical_bessel_j0.default", kind=TO_FLOAT)
pointwise_op(bessel_i1e, "special_i1e.default", kind=TO_FLOAT)
pointwise_op(_bessel_i1, "special_i1.default", "special_modified_bessel_i1.default", kind=TO_FLOAT)
pointwise_op(
    zeta,
    *(f"special_zeta.{overload}" for overload in ("default", "self_scalar", "other_scalar")),
    kind=TO_FLOAT,
)
pointwise_op(lgamma, "lgamma.default", kind=TO_FLOAT)
pointwise_op(erfc, "erfc.default", kind=TO_FLOAT)
pointwise_op(erf_inv, "erfinv.default", kind=TO_FLOAT)
pointwise_op(_digamma, "digamma.default", kind=TO_FLOAT)


@aten("nextafter.default")
def nextafter(at: Place, x: Tensor, y: Tensor) -> Tensor:
    return pointwise(at, next_after, x, y, computed=at.dtype)


@aten("polygamma.default")
def derivative_of_digamma(at: Place, n: int, x: Tensor) -> Tensor:
    def value(s: Expr) -> Expr:
        if n == 0:
            return _digamma(s)
        pole = (s <= const(0, s.type)) & (s == unary("floor", s))
        sign = 1.0 if n % 2 else -1.0
        return select(pole, const(sign * math.inf, s.type), polygamma(const(n, s.type), s))

    return pointwise(at, value, x, kind=TO_FLOAT)


@aten("round.decimals")
def round_decimals(at: Place, x: Tensor, *, decimals: int) -> Tensor:
    def value(s: Expr) -> Expr:
        power = const(10.0 ** abs(decimals), s.type)
        if decimals < 0:
            return unary("round", s / power) * power
        return unary("round", s * power) / power

    return pointwise(at, value, x) if x.dtype.is_float else x


@aten("gelu.default")
def gelu(at: Place, x: Tensor, approximate: str = "none") -> Tensor:
    return pointwise(at, _record("gelu_tanh" if approximate == "tanh" else "gelu_erf"), x)


@aten("leaky_relu.default")
def leaky_relu(at: Place, x: Tensor, negative_slope: Number = 0.01) -> Tensor:
    return pointwise(
        at, lambda s: select(s > const(0, s.type), s, s * const(negative_slope, s.type)), x
    )


@aten("elu.default")
def elu(
    at: Place, x: Tensor, alpha: Number = 1.0, scale: Number = 1.0, input_scale: Number = 1.0
) -> Tensor:
    def value(s: Expr) -> Expr:
        below = functions.expm1_below(s * const(input_scale, s.type)) * const(alpha * scale, s.type)
        return select(s > const(0, s.type), s * const(scale, s.type), below)

    return pointwise(at, value, x)
