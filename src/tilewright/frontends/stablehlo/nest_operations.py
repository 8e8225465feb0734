"""Sorts, factorizations, transforms, random bits, loops over slices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.dtypes import DType, boolean, f32, s64, u32, u64
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.frontends.stablehlo.elementwise_operations import mapped, spread
from tilewright.frontends.stablehlo.real_numbers import total_order
from tilewright.frontends.stablehlo.regions import (
    arrays_of,
    function_of,
    grouped,
    parts_of,
    region_of,
)
from tilewright.frontends.stablehlo.syntax import Operation
from tilewright.frontends.stablehlo.translation import (
    Translation,
    arrays,
    flag,
    integer,
    integers,
    result_tensor,
    word,
    wrong,
)
from tilewright.frontends.stablehlo.types import (
    Complex,
    Float,
    Integer,
    computed_type,
    numpy_type,
    part_count,
)
from tilewright.frontends.stablehlo.types import Tensor as TensorType
from tilewright.frontends.stablehlo.values import Array, Value
from tilewright.ir.expr import Expr, binary, cast, const, select
from tilewright.tensor import nests, views
from tilewright.tensor.control import while_
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.fourier import fourier, mirrored
from tilewright.tensor.indexing import dynamic_slice, dynamic_update_slice
from tilewright.tensor.places import axes, axis, linear_index
from tilewright.tensor.random_bits import halves, joined, philox, threefry
from tilewright.tensor.tensor import Tensor


def _sort(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands)
    elements = [array.element for array in sources]
    dim = integer(o, "dimension", -1)
    rank = sources[0].rank if sources else 0
    dim = dim + rank if dim < 0 else dim
    if not sources or not 0 <= dim < rank:
        raise wrong(o, "dimension", "a dim of what is sorted")
    pairs = [part_type for element in elements for part_type in (element, element)]
    function = function_of(t, region_of(o, takes=2 * len(sources)), pairs)

    def less(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
        left, right = grouped(a, elements), grouped(b, elements)
        (exprs,) = function(
            [argument for pair in zip(left, right, strict=True) for argument in pair]
        )
        if exprs[0].type is not boolean:
            raise t.builder.refuse("a comparison gives no truth value", "return tensor<i1>")
        return exprs[0]

    return arrays_of(nests.sort(parts_of(sources), dim, less), elements)


def _top_k(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    """The greatest along the last dim in order, and where they are; NaN counts as the greatest."""
    (array,) = arrays(o, operands, 1)
    k = integer(o, "k")
    if isinstance(array.element, Complex) or not array.rank or not 0 <= k <= array.shape[-1]:
        raise wrong(o, "k", f"how many to take of {array.type}")
    order = views.iota(t.builder, "s32", array.shape, array.rank - 1)

    def less(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
        if isinstance(array.element, Float):
            return total_order(b[0]) < total_order(a[0])
        return b[0] < a[0]

    tensors = nests.sort([array.parts[0], order], array.rank - 1, less)
    values, places = (views.part(tensor, array.rank - 1, 0, k) for tensor in tensors)
    return [Array(array.element, (values,)), Array(Integer(32), (places,))]


def _widened(array: Array) -> tuple[Tensor, ...]:
    """Floats narrower than f32 as f32, in which sums lose less."""
    return tuple(
        convert(part, f32) if part.dtype.is_float and part.dtype.bits < 32 else part
        for part in array.parts
    )


def _narrowed(array: Array, parts: Sequence[Tensor]) -> Array:
    type_ = computed_type(array.element)
    return Array(array.element, tuple(convert(part, type_) for part in parts))


def _need_floats(o: Operation, values: Sequence[Array]) -> None:
    for array in values:
        if not isinstance(array.element, Float | Complex):
            raise ProblemError(
                f"{o.name} of {array.element}", where=o.span, cure="convert it to floats"
            )


def _triangular_solve(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    a, b = arrays(o, operands, 2)
    _need_floats(o, [a, b])
    if a.element != b.element:
        raise ProblemError(f"{o.name} of {a.element} and {b.element}", where=o.span, cure="convert")
    how = word(o, "transpose_a", ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), "NO_TRANSPOSE")
    tensors = nests.triangular_solve(
        _widened(a),
        _widened(b),
        left=flag(o, "left_side", True),
        lower=flag(o, "lower", True),
        transposed=how != "NO_TRANSPOSE",
        conjugated=how == "ADJOINT",
        unit=flag(o, "unit_diagonal"),
    )
    return [_narrowed(b, tensors)]


def _cholesky(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    (a,) = arrays(o, operands, 1)
    _need_floats(o, [a])
    return [_narrowed(a, nests.cholesky(_widened(a), lower=flag(o, "lower")))]


def _fft(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    (array,) = arrays(o, operands, 1)
    _need_floats(o, [array])
    kind = word(o, "fft_type", ("FFT", "IFFT", "RFFT", "IRFFT"))
    length = integers(o, "fft_length")
    result = result_tensor(o)
    count, rank = len(length), array.rank
    dims = list(range(rank - count, rank))
    if not 1 <= count <= min(3, rank):
        raise wrong(o, "fft_length", "1 to 3 sizes")
    real_in, real_out = kind == "RFFT", kind == "IRFFT"
    if isinstance(array.element, Complex) == real_in:
        raise ProblemError(f"{kind} of {array.element}", where=o.span, cure="convert it")
    sizes = [array.shape[n] for n in dims]
    wanted = [*length[:-1], length[-1] // 2 + 1] if real_out else length
    if sizes != wanted:
        raise wrong(o, "fft_length", f"of what is given, {sizes}")
    type_ = array.parts[0].dtype
    if real_in:
        z = (array.parts[0], t.builder.splat(0.0, type_, array.shape))
    elif real_out:
        z = mirrored((array.parts[0], array.parts[1]), length[-1], dims)
    else:
        z = (array.parts[0], array.parts[1])
    results = fourier(z, dims, inverse=kind in ("IFFT", "IRFFT"))
    if real_out:
        return [Array(result.element, (results[0],))]
    if real_in:
        last = length[-1] // 2 + 1
        return [Array(result.element, tuple(views.part(z, rank - 1, 0, last) for z in results))]
    return [Array(result.element, results)]


def _map(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands)
    if not sources or any(array.shape != sources[0].shape for array in sources):
        raise ProblemError(f"{o.name} takes tensors of one shape", where=o.span, cure="broadcast")
    elements = [array.element for array in sources]
    result = result_tensor(o).element
    function = function_of(t, region_of(o, takes=len(sources)), elements)
    return [mapped(t, lambda numbers: function(numbers)[0], sources, result, "map")]


def _scan(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    """``chlo.scan``: the region takes a slice of each input and what is carried, and gives a slice
    of each output and what is carried on. A loop over the slices."""
    sources = arrays(o, operands)
    segments = integers(o, "operandSegmentSizes", default=())
    count = o.attributes.get("inputs", segments[0] if segments else len(sources) // 2)
    inputs, carried = sources[:count], sources[count:]
    dim = integer(o, "dimension")
    if not inputs or any(not 0 <= dim < array.rank for array in inputs):
        raise wrong(o, "dimension", "a dim of what is scanned")
    size = inputs[0].shape[dim]
    region = region_of(o, takes=len(sources))
    back = flag(o, "is_reverse")
    outs = [result_tensor(o, n) for n in range(len(o.results) - len(carried))]
    builder = t.builder
    first = [_empty(t, out, dim, size) for out in outs]
    elements = [*(array.element for array in first), *(array.element for array in carried)]
    zero = builder.splat(0, s64)

    def place(values: Sequence[Tensor]) -> Tensor:
        if not back:
            return values[0]
        return Tensor(builder, (), const(size - 1) - values[0].value)

    def test(values: Sequence[Tensor]) -> Tensor:
        return Tensor(builder, (), values[0].value < size)

    def step(values: Sequence[Tensor]) -> Sequence[Tensor]:
        here = place(values)
        state = arrays_of(values[1:], elements)
        slices = [_slice_at(array, dim, here) for array in inputs]
        results = arrays(o, t.region(region, [*slices, *state[len(outs) :]]))
        outputs = [
            _put_at(old, new, dim, here)
            for old, new in zip(state[: len(outs)], results[: len(outs)], strict=True)
        ]
        following = Tensor(builder, (), values[0].value + 1)
        return [following, *parts_of(outputs), *parts_of(results[len(outs) :])]

    with t.control():
        tensors = while_([zero, *parts_of(first), *parts_of(carried)], test, step, builder)
    return arrays_of(tensors[1:], elements)


def _empty(t: Translation, type_: TensorType, dim: int, size: int) -> Array:
    shape = [size if n == dim else (length or 0) for n, length in enumerate(type_.shape)]
    element = type_.element
    kind = computed_type(element)
    parts = (t.builder.splat(0, kind, shape) for _ in range(part_count(element)))
    return Array(element, tuple(parts))


def _slice_at(array: Array, dim: int, place: Tensor) -> Array:
    zero = place.builder.splat(0, s64)
    starts = [place if n == dim else zero for n in range(array.rank)]
    sizes = [1 if n == dim else size for n, size in enumerate(array.shape)]
    shape = [size for n, size in enumerate(array.shape) if n != dim]
    parts = (views.reshape(dynamic_slice(p, starts, sizes), shape) for p in array.parts)
    return Array(array.element, tuple(parts))


def _put_at(old: Array, new: Array, dim: int, place: Tensor) -> Array:
    zero = place.builder.splat(0, s64)
    starts = [place if n == dim else zero for n in range(old.rank)]
    shape = [1 if n == dim else size for n, size in enumerate(old.shape)]
    parts = (
        dynamic_update_slice(a, views.reshape(b, shape), starts)
        for a, b in zip(old.parts, new.parts, strict=True)
    )
    return Array(old.element, tuple(parts))


_ALGORITHMS = ("DEFAULT", "THREE_FRY", "PHILOX")


def _random_bits(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    """As XLA lays the words of its generators out: DEFAULT is Philox, as XLA has it on
    processors."""
    (state,) = arrays(o, operands, 1)
    algorithm = word(o, "rng_algorithm", _ALGORITHMS, "DEFAULT")
    result = result_tensor(o, 1)
    type_ = computed_type(result.element)
    if state.element != Integer(64, False) or state.shape not in ((2,), (3,)):
        raise UnsupportedError(
            f"a state of {state.type}",
            where=o.span,
            why="the generators have a key and a counter of 64 bits",
            cure="give tensor<2xui64>, or tensor<3xui64> to Philox",
        )
    if not isinstance(result.element, Integer) or result.element.bits < 8 or type_ is None:
        raise UnsupportedError(
            f"random bits as {result.element}", where=o.span, cure="take integers of 8 bits on"
        )
    make = _threefry if algorithm == "THREE_FRY" else _philox
    words, steps = make(t, state.parts[0], result.sizes, type_)

    def moved(x: Expr, place: Expr) -> Expr:
        there = binary("eq", place, const(1))
        return select(there, x + const(steps, u64), x)

    places = views.iota(t.builder, s64, state.shape, 0)
    after = elementwise(moved, state.parts[0], places, name="state")
    return [Array(state.element, (after,)), Array(result.element, (words,))]


def _single(state: Tensor, place: int) -> Expr:
    return state.at(const(place))


def _threefry(
    t: Translation, state: Tensor, shape: Sequence[int], type_: DType
) -> tuple[Tensor, int]:
    """Words of 64 bits take both of a counter; of 32, a dim is split in halves: the first even one,
    or the longest."""
    key = halves(_single(state, 0))
    start = _single(state, 1)
    sizes = list(shape) or [1]
    wide = type_.bits == 64
    dim = next((n for n, size in enumerate(sizes) if size % 2 == 0), sizes.index(max(sizes)))
    half = [-(-size // 2) if n == dim and not wide else size for n, size in enumerate(sizes)]
    index = [axis(n) if shape else const(0) for n in range(len(sizes))]
    along = [
        position // 2 if n == dim and not wide else position for n, position in enumerate(index)
    ]
    place = linear_index(along, half)
    x, y = threefry(key, halves(start + cast(u64, place)))
    value = joined(x, y)
    if not wide:
        value = select(binary("eq", index[dim] % 2, const(0)), x, y)
    return _words(t, shape, value, type_), prod(half)


def _philox(
    t: Translation, state: Tensor, shape: Sequence[int], type_: DType
) -> tuple[Tensor, int]:
    """Four words of 32 bits, or two of 64, of each counter."""
    key = halves(_single(state, 0))
    start = _single(state, 1)
    other = halves(_single(state, 2 if state.shape == (3,) else 0))
    per_block = 2 if type_.bits == 64 else 4
    place = linear_index(axes(len(shape)), shape)
    words = philox(key, (*halves(start + cast(u64, place // per_block)), *other))
    which = place % per_block
    if per_block == 2:
        first, second = joined(words[0], words[1]), joined(words[2], words[3])
        value = select(binary("eq", which, const(0)), first, second)
    else:
        value = words[3]
        for n in reversed(range(3)):
            value = select(binary("eq", which, const(n)), words[n], value)
    return _words(t, shape, value, type_), -(-prod(shape) // per_block)


def _words(t: Translation, shape: Sequence[int], value: Expr, type_: DType) -> Tensor:
    plain = t.builder.splat(0, u32, shape)
    return elementwise(lambda _: cast(type_, value), plain, name="random")


def _rng(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    raise UnsupportedError(
        "stablehlo.rng is not translated",
        where=o.span,
        why="its numbers come from a hidden state of the device, which a graph does not have",
        cure="use stablehlo.rng_bit_generator, whose state is a value",
    )


def _constant_like(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    (array,) = arrays(o, operands, 1)
    value = o.attributes.get("value")
    if not isinstance(value, int | float):
        raise wrong(o, "value", "a number")
    result = result_tensor(o).element
    number = t.constant_of(np.array(value, dtype=numpy_type(result)), result)
    return [spread(number, array.shape)]


HANDLERS = {
    "chlo.constant_like": _constant_like,
    "chlo.scan": _scan,
    "chlo.top_k": _top_k,
    "stablehlo.cholesky": _cholesky,
    "stablehlo.fft": _fft,
    "stablehlo.map": _map,
    "stablehlo.rng": _rng,
    "stablehlo.rng_bit_generator": _random_bits,
    "stablehlo.sort": _sort,
    "stablehlo.triangular_solve": _triangular_solve,
}
