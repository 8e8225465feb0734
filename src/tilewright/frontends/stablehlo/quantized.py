"""Uniform quantized types: integers that stand for floats, computed on as these.

An operation on them takes the floats that its operands stand for, and what it gives is rounded to
the nearest integer of its result's type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.frontends.stablehlo.syntax import Operation
from tilewright.frontends.stablehlo.types import (
    Quantized,
    Tensor,
    Type,
    computed_type,
)
from tilewright.frontends.stablehlo.values import Array, Value
from tilewright.ir.expr import Expr, cast, unary
from tilewright.problems.functions import clamped
from tilewright.tensor import tensor as graph
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Builder
from tilewright.tensor.views import broadcast_in_dim

Handler = Callable[[Operation, Sequence[Value]], Sequence[Value]]
# What takes values as they are: their bits, or all values alike.
_AS_THEY_ARE = frozenset(
    {
        "func.call",
        "func.return",
        "stablehlo.bitcast_convert",
        "stablehlo.case",
        "stablehlo.composite",
        "stablehlo.constant",
        "stablehlo.custom_call",
        "stablehlo.get_tuple_element",
        "stablehlo.if",
        "stablehlo.optimization_barrier",
        "stablehlo.return",
        "stablehlo.tuple",
        "stablehlo.while",
    }
)


def _is_quantized(type_: Type) -> bool:
    return isinstance(type_, Tensor) and isinstance(type_.element, Quantized)


def concerns(operation: Operation) -> bool:
    """Whether an operation computes on quantized types."""
    if operation.name in _AS_THEY_ARE:
        return False
    return any(_is_quantized(value.type) for value in (*operation.operands, *operation.results))


def computed_as_floats(
    builder: Builder, operation: Operation, operands: Sequence[Value], handler: Handler
) -> Sequence[Value]:
    """What ``handler`` gives for the floats that operands stand for, rounded to the results."""
    plain_operands = [
        dequantized(builder, operand) if isinstance(operand, Array) else operand
        for operand in operands
    ]
    plain = tuple(replace(result, type=_expressed(result.type)) for result in operation.results)
    outputs = handler(replace(operation, results=plain), plain_operands)
    results: list[Value] = []
    for named, value in zip(operation.results, outputs, strict=True):
        type_ = named.type
        target = type_.element if isinstance(type_, Tensor) else None
        if isinstance(value, Array) and isinstance(target, Quantized) and value.element != target:
            value = quantized(builder, value, target)
        results.append(value)
    return results


def _expressed(type_: Type) -> Type:
    if isinstance(type_, Tensor) and isinstance(type_.element, Quantized):
        return replace(type_, element=type_.element.expressed)
    return type_


def dequantized(builder: Builder, array: Array) -> Array:
    """The floats that integers stand for: ``(value - zero) * scale``."""
    element = array.element
    if not isinstance(element, Quantized):
        return array
    type_ = _float_type(element)
    scale, zero = _settings(builder, element, array.shape, type_)

    def value(x: Expr, s: Expr, z: Expr) -> Expr:
        return (cast(type_, x) - z) * s

    tensor = elementwise(value, array.parts[0], scale, zero, name="dequantize")
    return Array(element.expressed, (tensor,))


def quantized(builder: Builder, array: Array, element: Quantized) -> Array:
    """The integers next to floats: ``value / scale + zero``, rounded to even and clamped."""
    type_ = _float_type(element)
    storage = computed_type(element)
    assert storage is not None
    scale, zero = _settings(builder, element, array.shape, type_)

    def value(x: Expr, s: Expr, z: Expr) -> Expr:
        rounded = unary("round", cast(type_, x) / s) + z
        return cast(storage, clamped(rounded, element.low, element.high))

    tensor = elementwise(value, array.parts[0], scale, zero, name="quantize")
    return Array(element, (tensor,))


def _float_type(element: Quantized) -> DType:
    type_ = computed_type(element.expressed)
    if type_ is None or element.blocks:
        raise UnsupportedError(
            f"nothing computes on {element}",
            why="scales by blocks are not translated" if element.blocks else None,
            cure="quantize per tensor or per axis, of bf16, f16, f32 or f64",
        )
    return type_


def _settings(
    builder: Builder, element: Quantized, shape: Sequence[int], type_: DType
) -> tuple[graph.Tensor, graph.Tensor]:
    """Scales and zeros at each place of ``shape``."""
    axis = element.axis
    if axis is None:
        return (
            builder.splat(element.scales[0], type_, shape),
            builder.splat(float(element.zeros[0]), type_, shape),
        )
    if not axis < len(shape) or shape[axis] != len(element.scales):
        raise builder.refuse(
            f"{len(element.scales)} scales along dim {axis} of {list(shape)}",
            "give one for each place of the axis",
        )
    places = []
    for values in (element.scales, element.zeros):
        along = builder.constant(np.array(values).astype(type_.numpy))
        places.append(broadcast_in_dim(along, shape, [axis]))
    return places[0], places[1]
