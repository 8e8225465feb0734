"""Pooling: maximum or average over sliding windows, and the gradient of the average.

Dims: ``mb``, ``c``, ``od oh ow`` (positions) and ``kd kh kw`` (taps); by data ``id ih iw``. A
masked tap loads 0, which is right for a sum; a maximum takes the least value of the type in its
place, which is also the maximum of a window that lies in the padding altogether. The average of
nothing is 0.

Source: oneDNN's developer guide, "Pooling".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import ClassVar

from tilewright.dtypes import DType, f32
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, cast, const, maximum, minimum, select, var
from tilewright.ir.stmt import Allocate, Compute, Dim, Stmt, View
from tilewright.ops.attribute_arguments import attribute_arguments
from tilewright.ops.attributes import Attributes, check_sources
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
from tilewright.ops.op import Argument, LayoutSpec, Op, Tensor, accumulator_of, check_types
from tilewright.problems import Direction, PoolProblem, Window


@dataclass(frozen=True, repr=False)
class Pooling(Op):
    """A pooling, forward, or backward by data for averages."""

    problem: PoolProblem

    kind: ClassVar[str] = "pool"
    function_name: ClassVar[str] = "pool"
    shares_tags: ClassVar[bool] = True

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """``src`` and ``dst``; the gradient of dst comes first when going backward."""
        letters = "nc" + "".join(self.problem.spatial_names)
        names = ("src", "dst") if self.direction.is_forward else ("dst", "src")
        accesses = ("in", self.attributes.result_access)
        return tuple(
            Tensor(name, self.problem.shapes[name], access, letters)
            for name, access in zip(names, accesses, strict=True)
        )

    def _settings(self) -> tuple[str, ...]:
        algorithm = self.problem.algorithm
        return () if algorithm == "max" else (f"algorithm={algorithm!r}",)

    def _attribute_arguments(self) -> tuple[Argument, ...]:
        source, target = (self._argument(tensor) for tensor in self.tensors)
        return attribute_arguments(self.attributes, target, {"src": source}, driver="pool")

    def _statements(self, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
        forward = self.direction.is_forward
        kept = self._dims("o" if forward else "i")
        reduced = self._dims("k")[2:]
        taps = tuple(
            _tap(window, axis, forward)
            for axis, window in zip(self.problem.spatial_names, self.problem.windows, strict=True)
        )
        source, target = (buffers[tensor.name] for tensor in self.tensors)
        mask = mask_of(taps)
        index = (var("mb"), var("c"), *(tap.index for tap in taps))
        acc = accumulator("acc", self.accumulator, kept)
        out = View(acc, tuple(each.var for each in kept))
        a = operand("a", source, index, mask)
        body = cast(self.accumulator, a.var)
        is_max = self.problem.algorithm == "max"
        least = const(self.accumulator.lowest if is_max else 0, self.accumulator)
        if is_max and mask is not None:
            body = select(mask, body, least)
        if not forward:
            body = body / self._count(tuple(tap.index for tap in taps), self.accumulator)
        yield Allocate(acc)
        yield fill("init", acc, kept, least.value)
        combiner = "max" if is_max else "add"
        yield Compute.single("main", (*kept, *reduced), out, (a,), body, combiner)
        total = operand("acc", acc, out.index)
        value: Expr = total.var
        if forward and not is_max:
            type_ = float_type(self.accumulator, target.dtype)
            positions = tuple(each.var for each in kept[2:])
            value = cast(type_, value) / self._count(positions, type_)
        result = Result(kept, target, out.index, driver="pool", inputs={"src": a.view})
        yield epilogue("epilogue", (total,), value, result, self.attributes, buffers)

    def _dims(self, letter: str) -> tuple[Dim, ...]:
        problem = self.problem
        sizes = {"i": problem.src_size, "k": problem.kernel, "o": problem.dst_size}[letter]
        spatial = zip(problem.spatial_names, sizes, strict=True)
        head = (dim("mb", problem.mb), dim("c", problem.ic))
        return (*head, *(dim(f"{letter}{axis}", size) for axis, size in spatial))

    def _count(self, positions: tuple[Expr, ...], type: DType) -> Expr:
        """What the sum at an output position is divided by."""
        if self.problem.algorithm == "avg_p":
            return const(prod(self.problem.kernel), type)
        windows = zip(self.problem.windows, positions, strict=True)
        factors = [_valid_taps(window, position) for window, position in windows]
        fixed = prod(each for each in factors if isinstance(each, int))
        varying = [each for each in factors if not isinstance(each, int)]
        if not varying:
            return const(fixed, type)
        count = reduce(lambda a, b: a * b, varying)
        count = count if fixed == 1 else count * fixed
        # An empty window has the sum 0, and its average is 0. Going backward, a masked tap has a
        # position outside, where the count may be 0 too.
        may_be_empty = self.problem.has_empty_windows or not self.direction.is_forward
        return cast(type, maximum(count, 1) if may_be_empty else count)


def pooling_op(
    problem: PoolProblem,
    direction: Direction = Direction.FWD_D,
    types: Mapping[str, DType] | DType = f32,
    layouts: Mapping[str, LayoutSpec] | None = None,
    attributes: Attributes | None = None,
) -> Pooling:
    """The pooling ``problem``; ``types`` for ``src`` and ``dst``.

    Raises `UnsupportedError` for the gradient of a maximum.
    """
    attributes = attributes if attributes is not None else Attributes()
    if isinstance(types, DType):
        types = dict.fromkeys(problem.shapes, types)
    check_types("pool", types)
    if direction.has_bias or direction.is_backward_weights or attributes.bias is not None:
        raise UnsupportedError(
            "a pooling has no weights and no bias",
            where=f"direction {direction.value}",
            cure="use FWD_D or BWD_D",
        )
    is_max = problem.algorithm == "max"
    check_sources(f"pool {problem.algorithm}", attributes, "positive" if is_max else "always")
    if is_max and not direction.is_forward:
        raise UnsupportedError(
            "the gradient of max pooling is not available",
            why="it needs the place of each maximum, which the forward pass does not keep",
            cure="use avg_np or avg_p, or compute it elsewhere",
        )
    if not direction.is_forward:
        acc = float_type(types["dst"], types["src"])
    else:
        acc = types["src"] if is_max else accumulator_of(types["src"])
    chosen = tuple((name, types[name]) for name in problem.shapes)
    given = tuple((layouts or {}).items())
    return Pooling(problem, chosen, acc, given, attributes, direction)


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
