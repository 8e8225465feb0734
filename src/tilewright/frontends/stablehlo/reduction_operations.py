"""Reductions, of whole dims and of windows, and what selects and scatters."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import boolean, s64
from tilewright.errors import ProblemError
from tilewright.frontends.stablehlo.regions import (
    arrays_of,
    combiner_of,
    function_of,
    named_combiner,
    parts_of,
    region_of,
)
from tilewright.frontends.stablehlo.syntax import Operation, Region
from tilewright.frontends.stablehlo.translation import (
    Translation,
    arrays,
    integers,
    padding,
    wrong,
)
from tilewright.frontends.stablehlo.types import Complex, Element, Float
from tilewright.frontends.stablehlo.values import Array, Number, Value
from tilewright.ir.expr import Expr, binary, const, select
from tilewright.tensor.convolution import Windowed, windows_of
from tilewright.tensor.places import axes, linear_index
from tilewright.tensor.reductions import Combine, reduce
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.windows import reduce_window


def _halves(operation: Operation, operands: Sequence[Value]) -> tuple[list[Array], list[Array]]:
    """Inputs and initial values, as many of each."""
    sources = arrays(operation, operands)
    count = len(sources) // 2
    inputs, initials = sources[:count], sources[count:]
    fits = count > 0 and len(sources) == 2 * count
    if not fits or any(
        a.element != b.element or b.rank or a.shape != inputs[0].shape
        for a, b in zip(inputs, initials, strict=True)
    ):
        raise ProblemError(
            f"{operation.name} takes tensors of one shape, and an initial value for each",
            where=operation.span,
            cure="give initial values of rank 0, of the elements' types",
        )
    return inputs, initials


def _combiner(
    translation: Translation, region: Region, elements: Sequence[Element], windows: bool = False
) -> str | Combine:
    """What a region does. Sums of ``windows`` are mostly cumulative ones: those of floats narrower
    than f32 and of complex numbers round at each step, as the region says."""
    whole = isinstance(elements[0], Float) and elements[0].name in ("f32", "f64")
    in_order = windows and isinstance(elements[0], Float | Complex) and not whole
    if len(elements) == 1 and not in_order:
        named = named_combiner(region, elements[0])
        if named is not None:
            return named
    return combiner_of(translation, region, elements)


def _reduce(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    inputs, initials = _halves(o, operands)
    elements = [array.element for array in inputs]
    dims = integers(o, "dimensions")
    if len(set(dims)) < len(dims) or any(not 0 <= n < inputs[0].rank for n in dims):
        raise wrong(o, "dimensions", f"dims of {inputs[0].type}, each once")
    combiner = _combiner(t, region_of(o, takes=2 * len(inputs)), elements)
    tensors = reduce(parts_of(inputs), parts_of(initials), dims, combiner)
    return arrays_of(tensors, elements)


def _reduce_window(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    inputs, initials = _halves(o, operands)
    elements = [array.element for array in inputs]
    rank = inputs[0].rank
    ones = [1] * rank
    combiner = _combiner(t, region_of(o, takes=2 * len(inputs)), elements, windows=True)
    tensors = reduce_window(
        parts_of(inputs),
        parts_of(initials),
        combiner,
        integers(o, "window_dimensions", count=rank),
        strides=integers(o, "window_strides", ones, rank),
        padding=padding(o, "padding", rank),
        base_dilations=integers(o, "base_dilations", ones, rank),
        dilations=integers(o, "window_dilations", ones, rank),
        in_order=not isinstance(combiner, str),
    )
    return arrays_of(tensors, elements)


def _select_and_scatter(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    """Each window's selected element (the first that no later one beats) gets the window's source.

    Which one that is, is a reduction of windows to places; each element then combines the sources
    of those windows that have it and selected it.
    """
    tensor, source, initial = arrays(o, operands, 3)
    element, rank = tensor.element, tensor.rank
    ones = [1] * rank
    taps = integers(o, "window_dimensions", ones, rank)
    strides = integers(o, "window_strides", ones, rank)
    pads = padding(o, "padding", rank)
    windows = windows_of(t.builder, taps, strides, pads)
    counts = tuple(w.positions(size) for w, size in zip(windows, tensor.shape, strict=True))
    if counts != source.shape or source.element != element or initial.element != element:
        raise ProblemError(
            f"{o.name} of {tensor.type} has windows {list(counts)}, the source is {source.type}",
            where=o.span,
            cure="give a source with an element for each window",
        )
    if 0 in tensor.shape or 0 in counts:
        shaped = [t.builder.tensor(tensor.shape, part.value) for part in initial.parts]
        return [Array(element, tuple(shaped))]
    chosen = _chosen(t, o, tensor, taps, strides, pads)
    combine = combiner_of(t, region_of(o, 1, takes=2), [element])
    back = [window.back(size) for window, size in zip(windows, tensor.shape, strict=True)]
    windowed = Windowed.of(counts, back)

    def seen(value: Expr) -> Tensor:
        return t.builder.tensor(windowed.shape, windowed.guarded(value, const(0, value.type)))

    here = linear_index(axes(rank), tensor.shape)
    flags = seen(binary("eq", chosen.at(*windowed.index), here))
    tensors = [seen(part.at(*windowed.index)) for part in source.parts]

    def step(old: Sequence[Expr], new: Sequence[Expr]) -> Sequence[Expr]:
        combined = combine(old[:-1], new[:-1])
        picked = [select(new[-1], a, b) for a, b in zip(combined, old[:-1], strict=True)]
        return [*picked, new[-1]]

    none = t.builder.splat(False, boolean)
    results = reduce([*tensors, flags], [*initial.parts, none], range(rank, 2 * rank), step)
    return [Array(element, tuple(results[:-1]))]


def _chosen(
    t: Translation,
    o: Operation,
    tensor: Array,
    taps: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> Tensor:
    """The number of the element that each window selects, counted row by row; padding is never."""
    element = tensor.element
    choose = function_of(t, region_of(o, 0, takes=2), [element, element])
    parts = len(tensor.parts)
    places = t.builder.tensor(tensor.shape, linear_index(axes(tensor.rank), tensor.shape))

    def step(old: Sequence[Expr], new: Sequence[Expr]) -> Sequence[Expr]:
        kept: Number = choose([tuple(old[:parts]), tuple(new[:parts])])[0]
        none = old[-1] < 0
        padded = new[-1] < 0
        stays = ~none & kept[0] | padded
        return [select(stays, a, b) for a, b in zip(old, new, strict=True)]

    firsts = [t.builder.splat(0, part.dtype) for part in tensor.parts]
    outside = t.builder.splat(-1, s64)
    tensors = reduce_window(
        [*tensor.parts, places], [*firsts, outside], step, taps, strides=strides, padding=pads
    )
    return tensors[-1]


HANDLERS = {
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
