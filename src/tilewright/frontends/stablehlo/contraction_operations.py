"""Sums of products: ``dot_general``, ``dot``, ``einsum``, convolutions; complex ones by parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.dtypes import DType, boolean, s32
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.frontends.stablehlo.attributes import Convolved, Record
from tilewright.frontends.stablehlo.real_numbers import wrapped
from tilewright.frontends.stablehlo.syntax import Operation
from tilewright.frontends.stablehlo.translation import (
    Translation,
    arrays,
    computed,
    integer,
    integers,
    padding,
    result_tensor,
    wrong,
)
from tilewright.frontends.stablehlo.types import Complex, Element, Float, Integer, computed_type
from tilewright.frontends.stablehlo.values import Array, Value
from tilewright.frontends.stablehlo.view_operations import whole
from tilewright.tensor.contractions import complex_product, dot_general
from tilewright.tensor.convolution import Dims, convolution
from tilewright.tensor.einsum import einsum
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.tensor import Tensor

Product = Callable[[Tensor, Tensor, DType], Tensor]


def _products(o: Operation, a: Array, b: Array, result: Element, product: Product) -> Array:
    """``product`` of two tensors, whatever their elements are."""
    computed(result)
    if isinstance(result, Complex) != isinstance(a.element, Complex) or isinstance(
        a.element, Complex
    ) != isinstance(b.element, Complex):
        raise ProblemError(
            f"{o.name} of {a.element} and {b.element} as {result}",
            where=o.span,
            cure="convert all to complex numbers, or none",
        )
    type_ = computed_type(result)
    assert type_ is not None
    if isinstance(result, Complex):
        left, right = ((z.parts[0], z.parts[1]) for z in (a, b))
        return Array(result, complex_product(left, right, lambda x, y: product(x, y, type_)))
    if type_ is boolean:
        whole = product(convert(a.parts[0], s32), convert(b.parts[0], s32), s32)
        return Array(result, (convert(whole, boolean),))
    first, second = _alike(a, b, type_)
    tensor = product(first, second, type_)
    if isinstance(result, Integer) and result.bits in (2, 4):
        bits = result.bits
        tensor = elementwise(lambda x: wrapped(x, bits), tensor, name="wrap")
    return Array(result, (tensor,))


def _alike(a: Array, b: Array, result: DType) -> tuple[Tensor, Tensor]:
    """Both operands in types whose product the result holds."""
    first, second = a.parts[0], b.parts[0]
    if isinstance(a.element, Float) and not isinstance(b.element, Float):
        second = convert(second, result)
    elif isinstance(b.element, Float) and not isinstance(a.element, Float):
        first = convert(first, result)
    return first, second


def _dot_general(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    a, b = arrays(o, operands, 2)
    record = o.attributes.get("dot_dimension_numbers")
    if not isinstance(record, Record) or record.name != "dot":
        raise wrong(o, "dot_dimension_numbers", "#stablehlo.dot<...>")
    named = {
        "lhs_batching_dimensions",
        "rhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    }
    fields = {}
    for name in sorted(named):
        dims = record.fields.get(name, [])
        if not isinstance(dims, list) or not all(isinstance(dim, int) for dim in dims):
            raise wrong(o, "dot_dimension_numbers", "lists of dims")
        fields[name] = dims
    if set(record.fields) - named:
        raise wrong(o, "dot_dimension_numbers", f"of {', '.join(sorted(named))}")
    batch = (fields["lhs_batching_dimensions"], fields["rhs_batching_dimensions"])
    inner = (fields["lhs_contracting_dimensions"], fields["rhs_contracting_dimensions"])

    def product(x: Tensor, y: Tensor, type_: DType) -> Tensor:
        return dot_general(x, y, batch, inner, dtype=type_)

    return [_products(o, a, b, result_tensor(o).element, product)]


def _dot(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    a, b = arrays(o, operands, 2)
    if not a.rank or not b.rank or a.rank > 2 or b.rank > 2:
        raise ProblemError(
            f"{o.name} of {a.type} and {b.type}", where=o.span, cure="give vectors or matrices"
        )
    inner = ((a.rank - 1,), (0,))

    def product(x: Tensor, y: Tensor, type_: DType) -> Tensor:
        return dot_general(x, y, ((), ()), inner, dtype=type_)

    return [_products(o, a, b, result_tensor(o).element, product)]


_INPUT, _KERNEL, _OUTPUT = ("b", "f"), ("i", "o"), ("b", "f")


def _places(
    o: Operation, dims: Sequence[str], named: Sequence[str], rank: int
) -> tuple[int, int, tuple[int, ...]]:
    """Where two dims are that are called by letters, and those that are numbered, in order."""
    wanted = {*named, *(str(n) for n in range(rank - 2))}
    if len(dims) != rank or set(dims) != wanted:
        raise wrong(o, "dimension_numbers", f"{', '.join(sorted(wanted))} of each tensor")
    spatial = tuple(dims.index(str(n)) for n in range(rank - 2))
    return dims.index(named[0]), dims.index(named[1]), spatial


def _convolution(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands, 2, 3)
    a, b = sources[:2]
    if a.rank != b.rank or a.rank < 2:
        raise ProblemError(
            f"{o.name} takes an input and a kernel of one rank, 2 or more",
            where=o.span,
            cure="give both",
        )
    numbers = o.attributes.get("dimension_numbers")
    if not isinstance(numbers, Convolved):
        raise wrong(o, "dimension_numbers", "as [b, f, 0]x[o, i, 0]->[b, f, 0]")
    rank = a.rank
    dims = Dims(
        _places(o, numbers.input, _INPUT, rank),
        _places(o, numbers.kernel, _KERNEL, rank),
        _places(o, numbers.output, _OUTPUT, rank),
    )
    count = rank - 2
    ones = [1] * count
    pads = padding(o, "padding", count)
    if len(sources) == 3:
        if sources[2].known is None or sources[2].known.shape != (count, 2):
            raise UnsupportedError(
                "the padding of a dynamic convolution depends on data",
                where=o.span,
                cure="give it as a constant",
            )
        pads = [(whole(t, low), whole(t, high)) for low, high in sources[2].known]
    reversal = o.attributes.get("window_reversal")
    flipped = [bool(flag) for flag in _flags(o, reversal, count)]

    def product(x: Tensor, y: Tensor, type_: DType) -> Tensor:
        return convolution(
            x,
            y,
            dims,
            strides=integers(o, "window_strides", ones, count),
            padding=pads,
            base_dilations=integers(o, "lhs_dilation", ones, count),
            dilations=integers(o, "rhs_dilation", ones, count),
            reversal=flipped,
            feature_groups=integer(o, "feature_group_count", 1),
            batch_groups=integer(o, "batch_group_count", 1),
            dtype=type_,
        )

    return [_products(o, a, b, result_tensor(o).element, product)]


def _flags(o: Operation, value: object, count: int) -> Sequence[object]:
    if value is None:
        return [False] * count
    if hasattr(value, "value") and hasattr(value, "type"):
        value = value.value.reshape(-1)[:64].tolist()
    if not isinstance(value, list | tuple) or len(value) != count:
        raise wrong(o, "window_reversal", f"{count} truth values")
    return value


def _einsum(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands, 1 if o.name == "stablehlo.unary_einsum" else 2)
    config = o.attributes.get("einsum_config")
    if not isinstance(config, str) or "->" not in config:
        raise wrong(o, "einsum_config", 'lists of letters and a result, as "ij,jk->ik"')
    if len(sources) == 1:
        element = result_tensor(o).element
        computed(element)
        return [Array(element, tuple(einsum(config, part) for part in sources[0].parts))]
    a, b = sources

    def product(x: Tensor, y: Tensor, type_: DType) -> Tensor:
        return einsum(config, x, y, dtype=type_)

    return [_products(o, a, b, result_tensor(o).element, product)]


HANDLERS = {
    "stablehlo.convolution": _convolution,
    "stablehlo.dot": _dot,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dynamic_conv": _convolution,
    "stablehlo.einsum": _einsum,
    "stablehlo.unary_einsum": _einsum,
}
