"""Functions of one tensor, element by element; activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dtypes import boolean
from tilewright.frontends.torch.aten.promotion import TO_FLOAT, Number, pointwise
from tilewright.frontends.torch.table import Place, aten
from tilewright.ir.expr import Expr, const, maximum, select, unary
from tilewright.problems.unary_functions import UNARY_FUNCTIONS
from tilewright.tensor import functions
from tilewright.tensor.tensor import Tensor

Function = Callable[[Expr], Expr]


def _operator(name: str) -> Function:
    return lambda x: unary(name, x)


def _record(name: str, alpha: float = 0.0, beta: float = 0.0) -> Function:
    """A function of the library of elementwise functions."""
    build = UNARY_FUNCTIONS[name].build
    return lambda x: build(x, alpha, beta)


# Of integers, these give floats.
_FLOATING: dict[str, Function] = {
    **{name: _operator(name) for name in ("exp", "log", "log1p", "sqrt", "rsqrt")},
    **{name: _operator(name) for name in ("sin", "cos", "tanh", "erf", "exp2")},
    "expm1": functions.expm1,
    "log2": functions.log2,
    "log10": functions.log10,
    "tan": functions.tan,
    "sinh": functions.sinh,
    "cosh": functions.cosh,
    "asin": functions.asin,
    "acos": functions.acos,
    "atan": functions.atan,
    "asinh": functions.asinh,
    "acosh": functions.acosh,
    "atanh": functions.atanh,
    "sigmoid": _record("logistic"),
    "reciprocal": lambda x: const(1.0, x.type) / x,
    "silu": _record("swish", 1.0),
    "mish": _record("mish"),
}


def _of_floats(function: Function) -> Function:
    """``function`` of floats; whole numbers stay what they are."""
    return lambda x: function(x) if x.type.is_float else x


def _sign(x: Expr) -> Expr:
    """The sign, which is 0 of NaN in PyTorch."""
    found = functions.sign(x)
    return select(x == x, found, const(0, x.type)) if x.type.is_float else found


# These keep the type.
_KEEPING: dict[str, Function] = {
    "abs": lambda x: x if x.type is boolean else unary("abs", x),
    "neg": functions.negated,
    "sign": _sign,
    "floor": _of_floats(_operator("floor")),
    "ceil": _of_floats(_operator("ceil")),
    "round": _of_floats(_operator("round")),
    "trunc": _of_floats(functions.truncate),
    "relu": lambda x: maximum(x, const(0, x.type)),
    "bitwise_not": lambda x: ~x,
    "hardswish": _record("hardswish", 1 / 6, 0.5),
    "hardsigmoid": _record("hardsigmoid", 1 / 6, 0.5),
}


def _listed(function: Function, **settings: Any) -> Callable[..., Tensor]:
    def build(at: Place, x: Tensor) -> Tensor:
        return pointwise(at, function, x, **settings)

    return build


for _name, _function in _FLOATING.items():
    aten(f"{_name}.default")(_listed(_function, kind=TO_FLOAT))
for _name, _function in _KEEPING.items():
    aten(f"{_name}.default")(_listed(_function))


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
        below = functions.expm1(s * const(input_scale, s.type)) * const(alpha * scale, s.type)
        return select(s > const(0, s.type), s * const(scale, s.type), below)

    return pointwise(at, value, x)
