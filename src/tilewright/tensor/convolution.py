"""Convolutions of any rank and any order of dims, as sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.dtypes import dtype as type_of
from tilewright.ir.expr import Expr, Var, all_of, as_expr, cast, const, var
from tilewright.ir.open_sizes import surely_less
from tilewright.ir.stmt import Dim, Result, View
from tilewright.tensor.contractions import Product, contract, factor, sums_of
from tilewright.tensor.elementwise import plus
from tilewright.tensor.places import Shape, axes, axis, guarded
from tilewright.tensor.tensor import Builder, Tensor, described
from tilewright.tensor.views import broadcast_in_dim, reshape, transpose


@dataclass(frozen=True, slots=True)
class Window:
    """A dim along which a window slides: elements are ``base`` apart, taps ``dilation``, windows
    ``stride``; ``low`` and ``high`` elements of padding (negative: cut off)."""

    taps: int
    stride: int = 1
    low: int = 0
    high: int = 0
    base: int = 1
    dilation: int = 1

    def positions(self, size: int) -> int:
        """How many windows there are."""
        whole = self.low + self.high + (max(0, size - 1) * self.base + 1 if size else 0)
        reach = (self.taps - 1) * self.dilation + 1 if self.taps else 0
        return (whole - reach) // self.stride + 1 if whole >= reach else 0

    def place(self, out: Expr, tap: Expr, size: int) -> tuple[Expr, list[Expr]]:
        """The element that window ``out`` has at ``tap``, and the conditions under which there is
        one."""
        place = out * self.stride + tap * self.dilation - self.low
        least = -self.low
        greatest = (self.positions(size) - 1) * self.stride + (self.taps - 1) * self.dilation
        greatest -= self.low
        index = place if self.base == 1 else place // self.base
        conditions: list[Expr] = []
        if self.base > 1:
            conditions.append((place % self.base).__eq__(0))
        if not surely_less(-1, least):
            conditions.append(place >= 0)
        if not surely_less(greatest // self.base, size):
            conditions.append(index < size)
        return index, conditions

    def back(self, size: int) -> Window:
        """The window over those windows of ``size`` elements that have an element, for each of
        these; their taps go down where this one's go up."""
        reach = (self.taps - 1) * self.dilation
        low, length = reach - self.low, (self.positions(size) - 1) * self.stride + 1
        high = size + reach - length - low
        return Window(self.taps, 1, low, high, self.stride, self.dilation)


@dataclass(frozen=True, slots=True)
class Windowed:
    """The elements of windows along the last dims of a shape: those of dims before, of windows, and
    of taps make ``shape``, at each place of which ``index`` says the element, and ``inside``
    whether there is one (None: everywhere)."""

    shape: Shape
    index: tuple[Expr, ...]
    inside: Expr | None

    @classmethod
    def of(cls, shape: Sequence[int], windows: Sequence[Window]) -> Windowed:
        """Those of ``windows``, one for each of the last dims of ``shape``."""
        rank, first = len(shape), len(shape) - len(windows)
        index: list[Expr] = [*axes(first)]
        conditions: list[Expr] = []
        for n, window in enumerate(windows):
            place, needed = window.place(axis(first + n), axis(rank + n), shape[first + n])
            index.append(place)
            conditions += needed
        counts = [w.positions(size) for w, size in zip(windows, shape[first:], strict=True)]
        taps = [window.taps for window in windows]
        return cls((*shape[:first], *counts, *taps), tuple(index), all_of(conditions))

    def guarded(self, value: Expr, outside: Expr) -> Expr:
        """``value`` where there is an element, elsewhere ``outside``."""
        return value if self.inside is None else guarded(value, self.inside, outside)


def windows_of(
    builder: Builder,
    taps: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[Sequence[int]] | None = None,
    base_dilations: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
) -> tuple[Window, ...]:
    """A `Window` for each dim. Refuses lists of other lengths, and steps below 1."""
    count = len(taps)
    ones = (1,) * count
    parts = (
        strides or ones,
        padding or ((0, 0),) * count,
        base_dilations or ones,
        dilations or ones,
    )
    if any(len(part) != count for part in parts):
        lengths = ", ".join(str(len(part)) for part in parts)
        raise builder.refuse(
            f"windows of {count} dims with {lengths} strides, paddings, and dilations",
            "give one for each dim",
        )
    windows = []
    for tap, stride, (low, high), base, dilation in zip(taps, *parts, strict=True):
        if min(stride, base, dilation) < 1 or tap < 0:
            raise builder.refuse(
                f"a window of {tap} with stride {stride} and dilations {base} and {dilation}",
                "give steps of 1 or more",
            )
        windows.append(Window(tap, stride, low, high, base, dilation))
    return tuple(windows)


@dataclass(frozen=True, slots=True)
class Dims:
    """Where the dims are: batch and feature of the input, input and output features of the kernel,
    batch and feature of the output, and the spatial dims of each, in one order."""

    input: tuple[int, int, tuple[int, ...]]
    kernel: tuple[int, int, tuple[int, ...]]
    output: tuple[int, int, tuple[int, ...]]

    @classmethod
    def channels_first(cls, rank: int) -> Dims:
        """NC..., OI... and NC..., as in torch and ONNX."""
        spatial = tuple(range(2, rank))
        return cls((0, 1, spatial), (1, 0, spatial), (0, 1, spatial))


def convolution(
    x: Tensor,
    kernel: Tensor,
    dims: Dims | None = None,
    *,
    strides: Sequence[int] | None = None,
    padding: Sequence[Sequence[int]] | None = None,
    base_dilations: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    reversal: Sequence[bool] | None = None,
    feature_groups: int = 1,
    batch_groups: int = 1,
    accumulator: object = None,
    dtype: object = None,
) -> Tensor:
    """The convolution of ``x`` with ``kernel``, as StableHLO defines it.

    ``base_dilations`` spread elements of ``x`` (transposed convolution has them), ``dilations``
    taps; ``padding`` is (low, high) for each spatial dim; where ``reversal``, taps run backwards.
    Groups divide the kernel's output features, and the features or the batch of ``x``.
    """
    builder = x.builder
    builder.check_tensors(x, kernel)
    where = Dims.channels_first(x.rank) if dims is None else dims
    _check_dims(x, kernel, where)
    taps = [kernel.shape[n] for n in where.kernel[2]]
    windows = windows_of(builder, taps, strides, padding, base_dilations, dilations)
    flipped = tuple(reversal or (False,) * len(taps))
    if len(flipped) != len(taps):
        raise builder.refuse(f"{len(flipped)} reversals of {len(taps)} dims", "give one for each")
    groups = _checked_groups(x, kernel, where, feature_groups, batch_groups)
    whole = _Convolution(factor(x), factor(kernel), where, windows, flipped, groups)
    type_ = x.dtype if dtype is None else type_of(dtype)
    name = builder.named("convolution")
    if groups == (1, 1):
        return contract(builder, whole.product(), name, type_, accumulator)
    return whole.grouped(builder, name, type_, accumulator)


def transposed_convolution(
    x: Tensor,
    kernel: Tensor,
    padding: Sequence[Sequence[int]],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
    dtype: object = None,
) -> Tensor:
    """What the gradient of a convolution by its image is: elements of ``x`` (N, O, ...) go through
    ``kernel`` (O, C / groups, ...), ``strides`` apart. ``padding`` is that of the image, whose
    windows of all taps it cuts: (low, high) for each spatial dim."""
    taps = kernel.shape[2:]
    reach = [(size - 1) * step for size, step in zip(taps, dilations, strict=True)]
    if groups > 1:
        inputs, outputs = kernel.shape[0] // groups, kernel.shape[1]
        parts = reshape(kernel, (groups, inputs, outputs, *taps))
        parts = transpose(parts, (1, 0, 2, *range(3, parts.rank)))
        kernel = reshape(parts, (inputs, groups * outputs, *taps))
    rest = tuple(range(2, x.rank))
    return convolution(
        x,
        kernel,
        Dims((0, 1, rest), (0, 1, rest), (0, 1, rest)),
        padding=[(r - low, r - high) for r, (low, high) in zip(reach, padding, strict=True)],
        base_dilations=strides,
        dilations=dilations,
        reversal=[True] * len(taps),
        feature_groups=groups,
        dtype=dtype,
    )


def with_bias(sums: Tensor, bias: Tensor | None, dtype: DType) -> Tensor:
    """Images with a number added to each channel, as ``dtype``."""
    spread = None if bias is None else broadcast_in_dim(bias, sums.shape, (1,))
    return plus(sums, spread, dtype)


# What spatial dims are called, from the last one.
_LETTERS = "whd"


class _Convolution:
    """The dims and views of one convolution, whose arguments have been checked."""

    def __init__(
        self,
        x: Tensor,
        kernel: Tensor,
        where: Dims,
        windows: tuple[Window, ...],
        flipped: tuple[bool, ...],
        groups: tuple[int, int],
    ) -> None:
        self.x, self.kernel, self.where, self.windows = x, kernel, where, windows
        self.flipped = flipped
        self.features, self.batches = groups
        self.count = self.features * self.batches
        names = [_LETTERS[n] if n < 3 else str(n + 1) for n in range(len(windows))][::-1]
        self.out = tuple(var(f"o{letter}") for letter in names)
        self.taps = tuple(var(f"k{letter}") for letter in names)
        self.sizes = {
            "n": x.shape[where.input[0]] // self.batches,
            "g": self.count,
            "oc": kernel.shape[where.kernel[1]] // self.count,
            "ic": kernel.shape[where.kernel[0]],
        }
        for place, out, tap, window in zip(
            where.input[2], self.out, self.taps, windows, strict=True
        ):
            self.sizes[out.name] = window.positions(x.shape[place])
            self.sizes[tap.name] = window.taps

    def product(self) -> Product:
        """What is multiplied; the dims that are kept are in the order of the output, the group in
        front of its features."""
        order: dict[int, list[str]] = {
            self.where.output[0]: ["n"],
            self.where.output[1]: ["oc"] if self.count == 1 else ["g", "oc"],
        }
        order |= {n: [v.name] for n, v in zip(self.where.output[2], self.out, strict=True)}
        kept = [name for n in sorted(order) for name in order[n]]
        reduced = ["ic", *(tap.name for tap in self.taps)]
        return Product(
            self._source(),
            self._weight(),
            [(name, self.sizes[name]) for name in kept],
            [(name, self.sizes[name]) for name in reduced],
        )

    def grouped(self, builder: Builder, name: str, type_: DType, accumulator: object) -> Tensor:
        """The sums with a dim of their own for groups, and after them in the output's shape."""
        product = self.product()
        shape = [size for _, size in product.kept]
        if 0 in shape:
            return builder.tensor(self._shape(), const(0, type_))
        sums = sums_of(builder, product, f"{name}_sums", type_, accumulator)
        memory = builder.allocate(name, type_, self._shape())
        index: list[Expr] = [var(letter) for letter, _ in product.kept]
        place = [letter for letter, _ in product.kept].index("g")
        index[place : place + 2] = [_part(var("g"), self.sizes["oc"], var("oc"), self.count)]
        dims = tuple(Dim(var(letter), as_expr(size)) for letter, size in product.kept)
        value = cast(type_, sums.at(*(dim.var for dim in dims)))
        builder.compute(name, dims, (Result((View(memory, tuple(index)),), (value,)),))
        return builder.whole(memory)

    def _shape(self) -> Shape:
        named = self.product().kept
        sizes = [size * (self.count if name == "oc" else 1) for name, size in named if name != "g"]
        return tuple(sizes)

    def _source(self) -> Expr:
        group = var("g")
        index: list[Expr] = [const(0)] * self.x.rank
        batch, feature, spatial = self.where.input
        index[batch] = _part(group, self.sizes["n"], var("n"), self.batches)
        index[feature] = _part(group, self.sizes["ic"], var("ic"), self.features)
        conditions: list[Expr] = []
        for n, out, tap, window, flipped in zip(
            spatial, self.out, self.taps, self.windows, self.flipped, strict=True
        ):
            # Taps that run backwards do so in the image: the kernel is read as it lies.
            place: Expr = const(window.taps - 1) - tap if flipped else tap
            index[n], needed = window.place(out, place, self.x.shape[n])
            conditions += needed
        inside = all_of(conditions)
        value = self.x.at(*index)
        zero = const(0, value.type)
        return value if inside is None else guarded(value, inside, zero)

    def _weight(self) -> Expr:
        index: list[Expr] = [const(0)] * self.kernel.rank
        ic, oc, spatial = self.where.kernel
        index[ic] = var("ic")
        index[oc] = _part(var("g"), self.sizes["oc"], var("oc"), self.count)
        for n, tap in zip(spatial, self.taps, strict=True):
            index[n] = tap
        return self.kernel.at(*index)


def _part(group: Var, size: int, inner: Var, groups: int) -> Expr:
    """Place ``inner`` in its group, of ``size`` each."""
    if groups == 1:
        return inner
    return group * size + inner if size > 1 else group


def _check_dims(x: Tensor, kernel: Tensor, dims: Dims) -> None:
    named = (("the input", x.rank, dims.input), ("the kernel", kernel.rank, dims.kernel))
    for what, rank, (a, b, spatial) in (*named, ("the output", x.rank, dims.output)):
        if sorted((a, b, *spatial)) != [*range(rank)] or rank != x.rank:
            raise x.builder.refuse(
                f"a convolution of {described(x)} with {described(kernel)}: {what} has the dims "
                f"{[a, b, *spatial]}",
                "give both one rank, and name each dim once",
            )


def _checked_groups(
    x: Tensor, kernel: Tensor, dims: Dims, features: int, batches: int
) -> tuple[int, int]:
    batch, channels = x.shape[dims.input[0]], x.shape[dims.input[1]]
    ic, oc = kernel.shape[dims.kernel[0]], kernel.shape[dims.kernel[1]]
    whole = min(features, batches) == 1 and max(features, batches) >= 1
    if not whole or batch % batches or oc % (features * batches) or channels != ic * features:
        raise x.builder.refuse(
            f"a convolution of {described(x)} with {described(kernel)} in {features} groups of "
            f"features, {batches} of the batch",
            "give one kind of groups; features of the input are the kernel's times its groups; "
            "groups divide the batch, and the output's features",
        )
    return features, batches
