"""Constants, and operations that move elements only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.errors import ProblemError, UnsupportedError
from tilewright.frontends.stablehlo.elements import Elements
from tilewright.frontends.stablehlo.syntax import Operation
from tilewright.frontends.stablehlo.translation import (
    Handler,
    Translation,
    arrays,
    computed,
    integer,
    integers,
    result_tensor,
    wrong,
)
from tilewright.frontends.stablehlo.types import Complex, Integer, computed_type, numpy_type
from tilewright.frontends.stablehlo.values import Array, Value
from tilewright.ir.expr import StandIn, const
from tilewright.tensor import views
from tilewright.tensor.elementwise import bitcast
from tilewright.tensor.tensor import Tensor


def sizes_of(t: Translation, operation: Operation, shape: Array) -> list[int]:
    """A shape that constants, and sizes that calls pass, decide."""
    if shape.known is None or shape.known.ndim != 1:
        raise UnsupportedError(
            f"the shape that {operation.name} gives depends on data",
            where=operation.span,
            why="the sizes of a graph follow from those of its arguments",
            cure="compute the shape from constants and get_dimension_size",
        )
    return [whole(t, number) for number in shape.known]


def whole(t: Translation, number: Any) -> int:
    """A number that is known, as a size."""
    if not isinstance(number, StandIn):
        return int(number)
    assert t.builder.open_sizes is not None
    return t.builder.open_sizes.settled(number)


def _is_small(shape: Sequence[int]) -> bool:
    """Whether contents of a tensor of this shape are kept while the graph is made."""
    return not any(isinstance(size, StandIn) for size in shape) and prod(shape) <= 4096


def _constant(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    value = o.attributes.get("value")
    if not isinstance(value, Elements):
        raise wrong(o, "value", "dense<...>")
    if value.type.element != result_tensor(o).element:
        raise wrong(o, "value", "of the type of the result")
    return [t.constant(value)]


def _iota(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    result = result_tensor(o)
    if operands:
        shape = sizes_of(t, o, arrays(o, operands, 1)[0])
    elif result.is_static:
        shape = list(result.sizes)
    else:
        raise wrong(o, "iota_dimension", "of a result whose sizes are known")
    computed(result.element)
    type_ = computed_type(result.element)
    dim = integer(o, "iota_dimension")
    first = views.iota(t.builder, type_, shape, dim)
    contents = None
    if isinstance(result.element, Integer) and result.element.bits >= 8 and _is_small(shape):
        along = np.arange(shape[dim]).astype(numpy_type(result.element))
        contents = np.broadcast_to(
            along.reshape([-1 if n == dim else 1 for n in range(len(shape))]), shape
        )
    parts: tuple[Tensor, ...] = (first,)
    if isinstance(result.element, Complex):
        assert type_ is not None
        parts = (first, t.builder.tensor(shape, const(0.0, type_)))
    return [t.array(result.element, *parts, known=contents)]


def moved(t: Translation, array: Array, function: Any, known: Any = None) -> list[Array]:
    """A view of each part, and what is known of it."""
    parts = tuple(function(part) for part in array.parts)
    return [t.array(array.element, *parts, known=known)]


def _reshape(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands, 1, 2)
    result = result_tensor(o)
    shape = sizes_of(t, o, sources[1]) if len(sources) == 2 else None
    if shape is None:
        if not result.is_static:
            shape = _only_open(result.shape, sources[0].parts[0].elements)
        else:
            shape = list(result.sizes)
    if shape is None:
        raise UnsupportedError(
            f"the shape {result} of {o.name} is open", where=o.span, cure="write its sizes"
        )
    contents = sources[0].known
    same = contents is not None and _is_small(shape) and prod(shape) == contents.size
    contents = contents.reshape(shape) if contents is not None and same else None
    return moved(t, sources[0], lambda part: views.reshape(part, shape), contents)


def _only_open(shape: Sequence[int | None], count: int) -> list[int] | None:
    """A shape with one size open, of so many elements."""
    product = prod(size for size in shape if size is not None)
    if shape.count(None) != 1 or product == 0 or count % product:
        return None
    return [count // product if size is None else size for size in shape]


def _transpose(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    (array,) = arrays(o, operands, 1)
    order = integers(o, "permutation", count=array.rank)
    if sorted(order) != [*range(array.rank)]:
        raise wrong(o, "permutation", f"an order of the {array.rank} dims")
    contents = None if array.known is None else array.known.transpose(order)
    return moved(t, array, lambda part: views.transpose(part, order), contents)


def _broadcast_in_dim(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands, 1, 2)
    result = result_tensor(o)
    shape = sizes_of(t, o, sources[1]) if len(sources) == 2 else list(result.sizes)
    if len(shape) != result.rank:
        raise UnsupportedError(
            f"the shape {result} of {o.name} is open", where=o.span, cure="write its sizes"
        )
    dims = integers(o, "broadcast_dimensions", default=(), count=sources[0].rank)
    contents = None
    if sources[0].known is not None and _is_small(shape) and len(set(dims)) == len(dims):
        fits = all(0 <= n < len(shape) for n in dims)
        order = sorted(range(len(dims)), key=lambda n: dims[n])
        places = [1] * len(shape)
        for n, dim in enumerate(dims):
            if fits:
                places[dim] = sources[0].shape[n]
        if fits and all(a in (1, b) for a, b in zip(places, shape, strict=True)):
            contents = np.broadcast_to(sources[0].known.transpose(order).reshape(places), shape)
    return moved(t, sources[0], lambda p: views.broadcast_in_dim(p, shape, dims), contents)


def _broadcast(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    (array,) = arrays(o, operands, 1)
    shape = [*integers(o, "broadcast_sizes"), *array.shape]
    return moved(t, array, lambda part: views.broadcast_to(part, shape))


def _slice(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands, 1, 4)
    if len(sources) == 4:
        starts, limits, strides = (sizes_of(t, o, array) for array in sources[1:])
    else:
        starts, limits, strides = (
            integers(o, name, count=sources[0].rank)
            for name in ("start_indices", "limit_indices", "strides")
        )
    ranges = list(zip(starts, limits, strides, strict=True))
    contents = sources[0].known
    if any(isinstance(number, StandIn) for numbers in ranges for number in numbers):
        contents = None
    if contents is not None and all(0 <= a <= b and c > 0 for a, b, c in ranges):
        contents = contents[tuple(slice(a, b, c) for a, b, c in ranges)]
    return moved(t, sources[0], lambda part: views.slice_(part, starts, limits, strides), contents)


def _reverse(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    (array,) = arrays(o, operands, 1)
    dims = integers(o, "dimensions")
    if any(not 0 <= n < array.rank for n in dims) or len(set(dims)) < len(dims):
        raise wrong(o, "dimensions", f"dims of {array.type}, each once")
    return moved(t, array, lambda part: views.reverse(part, dims))


def _pad(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands, 2, 5)
    rank = sources[0].rank
    if len(sources) == 5:
        low, high, interior = (sizes_of(t, o, array) for array in sources[2:])
    else:
        low, high, interior = (
            integers(o, name, count=rank)
            for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
        )
    if sources[1].element != sources[0].element:
        raise ProblemError(
            f"{o.name} takes a tensor and what it is padded by",
            where=o.span,
            cure="give a single number of the tensor's element type",
        )
    parts = tuple(
        views.pad(part, value, low, high, interior)
        for part, value in zip(sources[0].parts, sources[1].parts, strict=True)
    )
    return [Array(sources[0].element, parts)]


def _concatenate(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands)
    if not sources or any(array.element != sources[0].element for array in sources):
        raise ProblemError(
            f"{o.name} takes tensors of one element type",
            where=o.span,
            cure="give one or more",
        )
    dim = integer(o, "dimension")
    if not 0 <= dim < sources[0].rank:
        raise wrong(o, "dimension", f"a dim of {sources[0].type}")
    pieces = [array.known for array in sources if array.known is not None]
    shapes = {array.shape[:dim] + array.shape[dim + 1 :] for array in sources}
    if len(pieces) == len(sources) and len(shapes) == 1:
        return [t.constant_of(np.concatenate(pieces, axis=dim), sources[0].element)]
    parts = tuple(
        views.concatenate([array.parts[n] for array in sources], dim)
        for n in range(len(sources[0].parts))
    )
    return [Array(sources[0].element, parts)]


def _dimension_size(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    (array,) = arrays(o, operands, 1)
    dim = integer(o, "dimension")
    if not 0 <= dim < array.rank:
        raise wrong(o, "dimension", f"a dim of {array.type}")
    size = array.shape[dim]
    sizes = np.array(size, object if isinstance(size, StandIn) else np.int32)
    return [t.constant_of(sizes, Integer(32))]


def _same(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Value]:
    return list(operands)


def _uniform(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    """Quantizing and dequantizing: `quantized` does both around every operation."""
    return arrays(o, operands, 1)


def _bitcast_convert(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    (array,) = arrays(o, operands, 1)
    result = result_tensor(o)
    computed(result.element)
    narrow = [
        element
        for element in (array.element, result.element)
        if isinstance(element, Complex) or (isinstance(element, Integer) and element.bits < 8)
    ]
    if array.element == result.element:
        return [array]
    if isinstance(array.element, Complex) and isinstance(result.element, Complex):
        return [_other_complex(o, array, result.element)]
    if narrow:
        return [_of_parts(o, array, result.element)]
    return [Array(result.element, (bitcast(array.parts[0], computed_type(result.element)),))]


def _other_complex(o: Operation, array: Array, element: Complex) -> Array:
    """The bits of complex numbers as complex numbers of other floats."""
    floats = bitcast(stacked(array.parts), computed_type(element.part))
    if floats.rank > array.rank + 1:  # each float became two, and a pair of these is a number
        return Array(element, split_parts(floats))
    raise UnsupportedError(
        f"the bits of {array.element} as {element}",
        where=o.span,
        cure="convert to floats first: stablehlo.real and stablehlo.imag",
    )


def _of_parts(o: Operation, array: Array, element: Any) -> Array:
    """Complex numbers are a last dim of two floats, the real one first."""
    part = computed_type(element)
    if isinstance(element, Complex) and not isinstance(array.element, Complex):
        cells = array.parts[0]
        if cells.dtype.bits == 2 * (part.bits if part else 0):
            cells = bitcast(cells, part)
        if cells.rank and cells.shape[-1] == 2 and cells.dtype is part:
            return Array(element, split_parts(cells))
    if isinstance(array.element, Complex) and isinstance(element, Complex):
        return array
    if isinstance(array.element, Complex) and part is not None:
        joined = stacked(array.parts)
        if part.bits <= joined.dtype.bits or part.bits == 2 * joined.dtype.bits:
            return Array(element, (bitcast(joined, part),))
    raise UnsupportedError(
        f"the bits of {array.element} as {element}",
        where=o.span,
        cure="convert to types of 8 bits and more first",
    )


def split_parts(whole: Tensor) -> tuple[Tensor, ...]:
    """The two places of a last dim of 2."""
    return tuple(views.index_in_dim(whole, whole.rank - 1, place) for place in range(2))


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """Tensors as the places of a last dim."""
    return parts[0] if len(parts) == 1 else views.stack(parts, parts[0].rank)


HANDLERS: Mapping[str, Handler] = {
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.broadcast": _broadcast,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    "chlo.constant": _constant,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.dynamic_pad": _pad,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.get_dimension_size": _dimension_size,
    "stablehlo.iota": _iota,
    "stablehlo.optimization_barrier": _same,
    "sdy.sharding_constraint": _same,
    "stablehlo.pad": _pad,
    "stablehlo.real_dynamic_slice": _slice,
    "stablehlo.reshape": _reshape,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
    "stablehlo.uniform_dequantize": _uniform,
    "stablehlo.uniform_quantize": _uniform,
}
