"""Pooling: maximum or average over sliding windows, and the gradient of the average.

Dims: ``mb``, ``c``, ``od oh ow`` (positions) and ``kd kh kw`` (taps); by data ``id ih iw``. A
masked tap loads 0, which is right for a sum; a maximum takes the least value of the type in its
place, which is also the maximum of a window that lies in the padding altogether. The average of
nothing is 0.

Source: oneDNN's developer guide, "Pooling".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from math import prod

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, cast, const, maximum, minimum, select, var
from tilewright.ir.stmt import Allocate, Compute, Dim, Stmt, View
from tilewright.ops.domain import (
    Tap,
    accumulator,
    dim,
    fill,
    mask_of,
    operand,
    source_of,
    target_of,
)
from tilewright.ops.epilogue import Result, epilogue, float_type
from tilewright.ops.op import Op, accumulator_of
from tilewright.problems import Direction, PoolProblem, Window


def pooled(p: PoolProblem, op: Op, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
    """The maximum or the average of each window, or the gradient of averages."""
    forward = op.direction.is_forward
    kept = _dims(p, "o" if forward else "i")
    reduced = _dims(p, "k")[2:]
    taps = tuple(
        _tap(window, axis, forward) for axis, window in zip(p.spatial_names, p.windows, strict=True)
    )
    source, target = (buffers[tensor.name] for tensor in op.tensors)
    mask = mask_of(taps)
    index = (var("mb"), var("c"), *(tap.index for tap in taps))
    acc = accumulator("acc", op.accumulator, kept)
    out = View(acc, tuple(other.var for other in kept))
    a = operand("a", source, index, mask)
    body = cast(op.accumulator, a.var)
    is_max = p.algorithm == "max"
    least = const(op.accumulator.lowest if is_max else 0, op.accumulator)
    if is_max and mask is not None:
        body = select(mask, body, least)
    if not forward:
        # A masked tap has a position outside, where the count may be 0.
        body = body / _count(p, tuple(tap.index for tap in taps), op.accumulator, may_be_empty=True)
    yield Allocate(acc)
    yield fill("init", acc, kept, least.value)
    combiner = "max" if is_max else "add"
    yield Compute.single("main", (*kept, *reduced), out, (a,), body, combiner)
    total = operand("acc", acc, out.index)
    value: Expr = total.var
    if forward and not is_max:
        type_ = float_type(op.accumulator, target.dtype)
        positions = tuple(other.var for other in kept[2:])
        count = _count(p, positions, type_, may_be_empty=p.has_empty_windows)
        value = cast(type_, value) / count
    result = Result(kept, target, out.index, driver="pool", inputs={"src": a.view})
    yield epilogue("epilogue", (total,), value, result, op.attributes, buffers)


def pool_accumulator(p: PoolProblem, types: Mapping[str, DType], direction: Direction) -> DType:
    """What windows are reduced in. Raises `UnsupportedError` for the gradient of a maximum."""
    if direction.is_forward:
        return types["src"] if p.algorithm == "max" else accumulator_of(types["src"])
    if p.algorithm == "max":
        raise UnsupportedError(
            "the gradient of max pooling is not available",
            why="it needs the place of each maximum, which the forward pass does not keep",
            cure="use avg_np or avg_p, or compute it elsewhere",
        )
    return float_type(types["dst"], types["src"])


def _dims(problem: PoolProblem, letter: str) -> tuple[Dim, ...]:
    sizes = {"i": problem.src_size, "k": problem.kernel, "o": problem.dst_size}[letter]
    spatial = zip(problem.spatial_names, sizes, strict=True)
    head = (dim("mb", problem.mb), dim("c", problem.ic))
    return (*head, *(dim(f"{letter}{axis}", size) for axis, size in spatial))


def _count(p: PoolProblem, positions: tuple[Expr, ...], type: DType, *, may_be_empty: bool) -> Expr:
    """What the sum at an output position is divided by; an empty window has the average 0."""
    if p.algorithm == "avg_p":
        return const(prod(p.kernel), type)
    windows = zip(p.windows, positions, strict=True)
    factors = [_valid_taps(window, position) for window, position in windows]
    fixed = prod(factor for factor in factors if isinstance(factor, int))
    varying = [factor for factor in factors if not isinstance(factor, int)]
    if not varying:
        return const(fixed, type)
    count = reduce(lambda a, b: a * b, varying)
    count = count if fixed == 1 else count * fixed
    return cast(type, maximum(count, 1) if may_be_empty else count)


def _tap(window: Window, axis: str, forward: bool) -> Tap:
    if forward:
        return source_of(window, var(f"o{axis}"), var(f"k{axis}"))
    return target_of(window, var(f"i{axis}"), var(f"k{axis}"))


def _valid_taps(window: Window, out: Expr) -> int | Expr:
    """How many taps of output ``out`` are not padding: a number where that is the same for all."""
    if window.valid_taps == window.out * window.kernel:
        return window.kernel
    # Tap k reads input start - pad_l + k * step.
    step = window.dilation + 1
    start = out * window.stride if window.stride > 1 else out
    before = const(window.pad_l + step - 1) - start
    reach = const(window.pad_l + window.size - 1) - start
    first = maximum(before // step if step > 1 else before, 0)
    last = minimum(reach // step if step > 1 else reach, window.kernel - 1)
    return maximum(last - first + 1, 0)
