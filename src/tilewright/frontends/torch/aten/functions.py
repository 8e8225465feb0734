"""Functions of one tensor, element by element; activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.frontends.torch.aten.promotion import DEFAULT, TO_FLOAT, Number, pointwise
from tilewright.frontends.torch.table import Place, aten
from tilewright.ir.expr import Expr, const, maximum, select
from tilewright.problems import functions
from tilewright.problems.unary_functions import UNARY_FUNCTIONS
from tilewright.tensor.tensor import Tensor

Function = Callable[[Expr], Expr]


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
    "sign": _sign,
    "relu": lambda x: maximum(x, const(0, x.type)),
    "bitwise_not": lambda x: ~x,
    "hardswish": _record("hardswish", 1 / 6, 0.5),
    "hardsigmoid": _record("hardsigmoid", 1 / 6, 0.5),
}


def _listed(function: Function, **settings: Any) -> Callable[..., Tensor]:
    def build(at: Place, x: Tensor) -> Tensor:
        return pointwise(at, function, x, **settings)

    return build


for _each in UNARY_FUNCTIONS.values():
    if _each.aten:
        aten(f"{_each.aten}.default")(_listed(_each.of, kind=DEFAULT if _each.keeps else TO_FLOAT))
for _name, _function in _KEEPING.items():
    aten(f"{_name}.default")(_listed(_function))
aten("silu.default")(_listed(_record("swish", 1.0), kind=TO_FLOAT))


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
