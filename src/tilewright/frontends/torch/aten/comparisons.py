"""Comparisons, logic and bits, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.dtypes import boolean
from tilewright.frontends.torch.aten.promotion import TO_BOOL, Given, pointwise
from tilewright.frontends.torch.table import Place, aten
from tilewright.ir.expr import Expr, binary, cast, const, unary
from tilewright.problems import functions
from tilewright.tensor.tensor import Tensor

Function = Callable[..., Expr]

_LOGIC: dict[str, Function] = {
    "logical_and": lambda a, b: cast(boolean, a) & cast(boolean, b),
    "logical_or": lambda a, b: cast(boolean, a) | cast(boolean, b),
    "logical_xor": lambda a, b: cast(boolean, a) ^ cast(boolean, b),
    "logical_not": lambda a: ~cast(boolean, a),
}
_BITS: dict[str, Function] = {
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
}


def _listed(function: Function) -> Callable[..., Tensor]:
    def build(at: Place, *given: Given) -> Tensor:
        return pointwise(at, function, *given, kind=TO_BOOL)

    return build


def _of_bits(function: Function) -> Callable[..., Tensor]:
    def build(at: Place, *given: Given) -> Tensor:
        return pointwise(at, function, *given)

    return build


for _name, _function in functions.COMPARISONS.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_listed(_function))
for _name, _function in _LOGIC.items():
    aten(f"{_name}.default")(_listed(_function))
for _name, _function in _BITS.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_of_bits(_function))


@aten("isnan.default")
def isnan(at: Place, x: Tensor) -> Tensor:
    return pointwise(at, functions.is_nan, x, kind=TO_BOOL)


@aten("isinf.default")
def isinf(at: Place, x: Tensor) -> Tensor:
    def value(s: Expr) -> Expr:
        if not s.type.is_float:
            return const(False, boolean)
        return binary("eq", unary("abs", s), const(math.inf, s.type))

    return pointwise(at, value, x, kind=TO_BOOL)
