"""Elementwise ops, with numpy's rule for shapes; narrow floats are computed in f32."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.dtypes import DType, boolean, f32, f64, s32, u8
from tilewright.frontends.onnx.table import Place, op, refuse, tensors
from tilewright.frontends.onnx.values import type_of
from tilewright.ir.expr import Expr, binary, cast, const, maximum, minimum, select, unary
from tilewright.problems import activations, functions
from tilewright.problems.unary_functions import UNARY_FUNCTIONS
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import bitcast, convert, elementwise
from tilewright.tensor.places import axes
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_in_dim, broadcast_to, common_shape, reshape

Function = Callable[..., Expr]


def mapped(function: Function, *values: Tensor, dtype: DType | None = None) -> Tensor:
    """``function`` of elements of tensors that are broadcast to one shape; of the first one's type
    without ``dtype``."""
    shape = common_shape(*(tensor.shape for tensor in values))
    result = values[0].dtype if dtype is None else dtype

    def value(*elements: Expr) -> Expr:
        return cast(
            result,
            function(*(cast(accumulator_for(element.type), element) for element in elements)),
        )

    return elementwise(value, *(broadcast_to(tensor, shape) for tensor in values), dtype=result)


UNARY: dict[str, Function] = {
    **{
        unary_function.onnx: unary_function.of
        for unary_function in UNARY_FUNCTIONS.values()
        if unary_function.onnx
    },
    "Neg": functions.negated,
    "Relu": lambda x: maximum(x, const(0, x.type)),
    "Softplus": lambda x: activations.soft_plus(x),
    "Not": lambda x: ~x,
    "BitwiseNot": lambda x: ~x,
    "Identity": lambda x: x,
}


_BINARY: dict[str, Function] = {
    "Add": partial(functions.arithmetic, "add"),
    "Sub": partial(functions.arithmetic, "sub"),
    "Mul": partial(functions.arithmetic, "mul"),
    "Div": lambda a, b: a / b if a.type.is_float else functions.truncated_division(a, b),
    "And": lambda a, b: a & b,
    "Or": lambda a, b: a | b,
    "Xor": lambda a, b: a ^ b,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
    "PRelu": lambda a, b: select(a < const(0, a.type), a * b, a),
}
_COMPARED = {
    "Equal": "eq", "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge"
}  # fmt: skip
_SEVERAL: dict[str, Function] = {
    "Max": maximum,
    "Min": minimum,
    "Sum": partial(functions.arithmetic, "add"),
    "Mean": partial(functions.arithmetic, "add"),
}


def _builds(function: Function, dtype: DType | None = None) -> Callable[..., Tensor]:
    def build(at: Place, *values: Tensor) -> Tensor:
        return mapped(function, *values, dtype=dtype)

    return build


for _name, _function in (UNARY | _BINARY).items():
    op(_name)(_builds(_function))
for _name, _comparison in _COMPARED.items():
    op(_name)(_builds(functions.COMPARISONS[_comparison], boolean))


@op(*_SEVERAL)
def several(at: Place, *values: Tensor) -> Tensor:
    function = _SEVERAL[at.op]
    count = len(values)

    def value(first: Expr, *others: Expr) -> Expr:
        for other in others:
            first = function(first, other)
        return first / const(count, first.type) if at.op == "Mean" else first

    return mapped(value, *values)


@op("Mod")
def modulo(at: Place, a: Tensor, b: Tensor) -> Tensor:
    return mapped(functions.fmod if at.attribute("fmod", 0) else functions.remainder, a, b)


@op("Pow")
def power(at: Place, a: Tensor, b: Tensor) -> Tensor:
    computed = a.dtype if a.dtype.is_float and a.dtype.bits >= 32 else f32
    if not a.dtype.is_float:
        computed = f64
    return mapped(lambda x, y: binary("pow", cast(computed, x), cast(computed, y)), a, b)


@op("BitShift")
def shift(at: Place, a: Tensor, b: Tensor) -> Tensor:
    left = at.attribute("direction") == "LEFT"
    return mapped(lambda x, y: x << y if left else x >> y, a, b)


@op("Where")
def where(at: Place, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    shape = common_shape(condition.shape, a.shape, b.shape)
    return elementwise(select, *(broadcast_to(tensor, shape) for tensor in (condition, a, b)))


@op("Clip")
def clip(at: Place, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    present = tensors((x, low, high))
    least, most = at.attribute("min"), at.attribute("max")

    def value(s: Expr, *bounds: Expr) -> Expr:
        left = list(bounds)
        if low is not None or least is not None:
            s = maximum(s, left.pop(0) if low is not None else const(least, s.type))
        if high is not None or most is not None:
            s = minimum(s, left.pop(0) if high is not None else const(most, s.type))
        return s

    return mapped(value, *present)


def _thresholded(s: Expr, alpha: float) -> Expr:
    return select(const(alpha, s.type) < s, s, const(0, s.type))


def _celu(s: Expr, alpha: float) -> Expr:
    a = const(alpha, s.type)
    return maximum(s, const(0, s.type)) + minimum(functions.expm1(s / a) * a, const(0, s.type))


# Functions of an element and of attributes, with what these usually are.
NUMBERED: dict[str, tuple[Function, dict[str, float]]] = {
    "LeakyRelu": (
        lambda s, a: select(s < const(0, s.type), s * const(a, s.type), s),
        {"alpha": 0.01},
    ),
    "ThresholdedRelu": (_thresholded, {"alpha": 1.0}),
    "Elu": (lambda s, a: activations.elu(s, a, 0.0), {"alpha": 1.0}),
    "Selu": (
        lambda s, a, g: activations.elu(s, a, 0.0) * const(g, s.type),
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ),
    "Celu": (_celu, {"alpha": 1.0}),
    "HardSigmoid": (activations.hardsigmoid, {"alpha": 0.2, "beta": 0.5}),
}


@op(*NUMBERED)
def of_attributes(at: Place, x: Tensor) -> Tensor:
    function, usual = NUMBERED[at.op]
    numbers = [at.attribute(name, value) for name, value in usual.items()]
    return mapped(lambda s: function(s, *numbers), x)


@op("IsNaN")
def is_nan(at: Place, x: Tensor) -> Tensor:
    return mapped(functions.is_nan, x, dtype=boolean)


@op("IsInf")
def is_infinite(at: Place, x: Tensor) -> Tensor:
    above, below = at.attribute("detect_positive", 1), at.attribute("detect_negative", 1)

    def value(s: Expr) -> Expr:
        infinite: Expr = const(False, boolean)
        if above:
            infinite = infinite | binary("eq", s, const(math.inf, s.type))
        if below:
            infinite = infinite | binary("eq", s, const(-math.inf, s.type))
        return infinite

    return mapped(value, x, dtype=boolean)


@op("Cast", "CastLike")
def cast_op(at: Place, x: Tensor, like: Tensor | None = None) -> Tensor:
    to = type_of(at.attribute("to")) if like is None else like.dtype
    if to.name.startswith("f8") and x.dtype.is_float and at.attribute("saturate", 1):
        most = 448.0 if to.name == "f8_e4m3" else 57344.0
        return mapped(lambda s: _saturated(s, most), x, dtype=to)
    if to.is_nibble and x.dtype.is_float:
        # What is too great wraps, as from an integer.
        return convert(convert(x, s32), to)
    return convert(x, to)


def _saturated(s: Expr, most: float) -> Expr:
    return select(functions.is_nan(s), s, functions.clamped(s, -most, most))


@op("BitCast")
def bit_cast(at: Place, x: Tensor) -> Tensor:
    to = type_of(at.attribute("to"))
    # A condition is a byte that is 0 or 1.
    return convert(x, to) if boolean in (to, x.dtype) else bitcast(x, to)


@op("Dropout")
def dropout(
    at: Place, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if training is not None and bool(at.values(2).any()) and (ratio is None or at.values(1).any()):
        refuse("dropout that trains draws random numbers")
    return x, at.builder.splat(True, boolean, x.shape)


def per_axis(at: Place, x: Tensor, values: Tensor, axis: int) -> Tensor:
    """Values along an axis, or of blocks, in the shape of ``x``."""
    if not values.rank or values.elements == 1:
        return broadcast_to(reshape(values, ()), x.shape)
    if values.rank == 1 and values.shape[0] == x.shape[axis]:
        return broadcast_in_dim(values, x.shape, (axis,))
    block = at.attribute("block_size", 0)
    if not block:
        refuse("scales of this shape")
    index: list[Any] = list(axes(x.rank))
    index[axis] = index[axis] // block
    return values.viewed(x.shape, index)


@op("DequantizeLinear")
def dequantize(at: Place, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    axis = at.attribute("axis", 1)
    axis = axis % x.rank if x.rank else 0
    type_ = scale.dtype
    number = at.attribute("output_dtype", 0)
    result = type_of(number) if number else type_
    factors = per_axis(at, x, scale, axis)
    if zero is None:
        return mapped(lambda s, f: cast(f.type, s) * f, x, factors, dtype=result)
    origin = per_axis(at, x, zero, axis)
    return mapped(
        lambda s, f, z: (cast(f.type, s) - cast(f.type, z)) * f, x, factors, origin, dtype=result
    )


@op("QuantizeLinear")
def quantize(at: Place, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    number = at.attribute("output_dtype", 0)
    to = zero.dtype if zero is not None else type_of(number) if number else u8
    axis = at.attribute("axis", 1)
    axis = axis % x.rank if x.rank else 0
    operands = [x, per_axis(at, x, scale, axis)]
    if zero is not None:
        operands.append(per_axis(at, x, zero, axis))

    def value(s: Expr, f: Expr, z: Expr | None = None) -> Expr:
        quotient = s / cast(s.type, f)
        if to.is_float:
            return _saturated(quotient, 448.0 if to.name == "f8_e4m3" else 57344.0)
        whole = unary("round", quotient)
        if z is not None:
            whole = whole + cast(whole.type, z)
        return functions.clamped(whole, to.lowest, to.highest)

    return mapped(value, *operands, dtype=to)
