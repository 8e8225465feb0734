"""Ops with sliding windows beside those of `problems.conv` and `problems.pool`: the transposed
convolution, and the maximum with its place.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.problems.conv import ConvProblem
from tilewright.problems.descriptor import tokenize
from tilewright.problems.draws import places_in, with_nonfinite
from tilewright.problems.knobs import Direction
from tilewright.problems.library.record import Record, Slot
from tilewright.problems.pool import PoolProblem
from tilewright.problems.problem import Answer, Array, name_suffix


@dataclass(frozen=True)
class DeconvProblem(Record):
    """A transposed convolution: what ``conv`` is backward by data."""

    conv: ConvProblem
    name: str = ""

    driver: ClassVar[str] = "deconv"
    example: ClassVar[str] = "mb2ic8oc4ih5kh3sh2ph1"
    roles: ClassVar[tuple[str, ...]] = ("src", "weights", "dst")

    @classmethod
    def parse(cls, text: str) -> Self:
        fields = tokenize(text, ConvProblem.keys)
        fields.refuse_zeros(tuple(key for key in ConvProblem.keys if key[0] not in "pd"))
        fields.require("ic", "the number of channels")
        fields.require("oc", "the number of channels")
        axes = next((axes for axes in ("dhw", "hw", "w") if fields.get(f"i{axes[0]}")), "w")
        sizes = {"g": fields.get("g") or 1, "mb": fields.get("mb") or 2}
        sizes |= {"ic": fields.require("oc", ""), "oc": fields.require("ic", "")}
        before = ""
        for axis in axes:
            values = {letter: fields.get(f"{letter}{axis}") for letter in "ioksdp"}
            if before and all(entry is None for entry in values.values()):
                # As in benchdnn: what is left out is like the dim in front of it.
                values = {letter: sizes[f"{letter}{before}"] for letter in "ksdp"}
                values |= {"i": sizes[f"o{before}"], "o": sizes[f"i{before}"]}
            size = values["i"] or fields.require(f"i{axis}", "the size of the image")
            kernel = values["k"] or fields.require(f"k{axis}", "the size of the kernel")
            stride, dilation, padding = values["s"] or 1, values["d"] or 0, values["p"] or 0
            result = (size - 1) * stride + (kernel - 1) * (dilation + 1) + 1 - 2 * padding
            if values["o"] is None and result < 1:
                raise ProblemError(
                    f"nothing is left of dim {axis} behind the padding",
                    where=fields.locate(f"p{axis}"),
                    cure="pad less",
                )
            sizes |= {f"i{axis}": values["o"] or result, f"o{axis}": size, f"k{axis}": kernel}
            sizes |= {f"s{axis}": stride, f"d{axis}": dilation, f"p{axis}": padding}
            before = axis
        return cls(ConvProblem.from_sizes(**sizes), fields.name)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        groups = rng.choice((1, 1, 2))
        sizes = {"g": groups, "mb": rng.choice((1, 2))}
        sizes |= {key: groups * rng.choice((1, 2, 3, 8)) for key in ("ic", "oc")}
        for axis in rng.choice(("w", "hw", "hw", "dhw")):
            size, kernel = rng.choice((1, 2, 3, 4, 6)), rng.choice((1, 2, 3))
            stride, dilation = rng.choice((1, 2, 3)), rng.choice((0, 0, 1))
            reach = (kernel - 1) * (dilation + 1) + 1
            padding = rng.choice((0, 0, min(1, reach - 1)))
            length = (size - 1) * stride + reach - 2 * padding + rng.choice((0, 0, stride - 1))
            sizes |= {f"i{axis}": max(1, length), f"o{axis}": size, f"k{axis}": kernel}
            sizes |= {f"s{axis}": stride, f"d{axis}": dilation, f"p{axis}": padding}
        return cls(ConvProblem.from_sizes(**sizes))

    def descriptor(self) -> str:
        c = self.conv
        lead = f"g{c.g}mb{c.mb}ic{c.oc}oc{c.ic}"
        parts = [
            f"i{axis}{w.out}o{axis}{w.size}k{axis}{w.kernel}s{axis}{w.stride}"
            f"d{axis}{w.dilation}p{axis}{w.pad_l}"
            for axis, w in zip(c.spatial_names, c.windows, strict=True)
        ]
        return lead + "".join(parts) + name_suffix(self.name)

    def smallest(self) -> Self:
        unit = ConvProblem.from_sizes(mb=1, ic=1, oc=1, **self.conv.unit_sizes())
        return replace(self, conv=unit)

    def with_mb(self, mb: int) -> Self:
        return replace(self, conv=self.conv.with_mb(mb))

    @property
    def nominal_flops(self) -> int:
        return self.conv.nominal_flops

    @property
    def valid_flops(self) -> int:
        return self.conv.valid_flops

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        c = self.conv
        letters = "nc" + "".join(c.spatial_names)
        groups = (c.g,) if c.g > 1 else ()
        weights = (*groups, c.ic // c.g, c.oc // c.g, *c.kernel)
        return (
            Slot("src", (c.mb, c.oc, *c.dst_size), "in", "src", letters),
            Slot("weights", weights, "in", "weights"),
            Slot("dst", (c.mb, c.ic, *c.src_size), "out", "dst", letters),
        )

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        c = self.conv
        shape = (c.mb, c.g, c.ic // c.g, *c.src_size)
        weights = arrays["weights"].reshape(c.g, c.ic // c.g, c.oc // c.g, *c.kernel)
        src = arrays["src"].reshape(c.mb, c.g, c.oc // c.g, *c.dst_size)
        value, size = np.zeros(shape), np.zeros(shape)
        # Each element of src goes to as many places as the kernel has taps.
        for tap, outputs, elements in c.taps():
            part, factor = src[outputs], weights[(..., *tap)]
            value[elements] += np.einsum("ngi...,goi->ngo...", part, factor)
            size[elements] += np.einsum("ngi...,goi->ngo...", np.abs(part), np.abs(factor))
        terms = c.oc // c.g * math.prod(c.kernel) + 1
        whole = arrays["src"].dtype.kind in "iu" and arrays["weights"].dtype.kind in "iu"
        full = (c.mb, c.ic, *c.src_size)
        return {"dst": Answer(value.reshape(full), size.reshape(full), 0 if whole else terms)}

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        c = self.conv
        more = []
        for window in c.windows:
            usual = (window.out - 1) * window.stride + window.reach - 2 * window.pad_l
            more.append(window.size - usual)
            if not 0 <= more[-1] < max(window.stride, window.dilation + 1):
                raise UnsupportedError("PyTorch pads both sides of a dim alike")
        functions = torch.nn.functional
        run = (functions.conv_transpose1d, functions.conv_transpose2d, functions.conv_transpose3d)
        split = arrays["weights"].reshape(c.g, c.ic // c.g, c.oc // c.g, *c.kernel)
        weights = split.transpose(1, 2).reshape(c.oc, c.ic // c.g, *c.kernel).contiguous()
        wide = [step + 1 for step in c.dilation]
        arguments = (None, c.stride, c.pad_l, more, c.g, wide)
        return lambda: run[c.ndims - 1](arrays["src"], weights, *arguments)


@dataclass(frozen=True)
class MaxPoolProblem(Record):
    """The maximum of each window and its place, counted through the image; and the gradient, which
    goes to these places. Each window has an element."""

    pool: PoolProblem
    name: str = ""

    driver: ClassVar[str] = "maxpool"
    example: ClassVar[str] = "mb2ic8ih7kh3sh2ph1"
    roles: ClassVar[tuple[str, ...]] = ("src", "dst", "indices")
    indices: ClassVar[tuple[str, ...]] = ("indices",)
    directions: ClassVar[tuple[Direction, ...]] = (Direction.FWD_D, Direction.BWD_D)

    @classmethod
    def parse(cls, text: str) -> Self:
        pool = PoolProblem.parse(text)
        return cls(replace(pool, name=""), pool.name)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        sizes = {"mb": rng.choice((1, 2)), "ic": rng.choice((1, 3, 8))}
        for axis in rng.choice(("w", "hw", "hw", "dhw")):
            kernel = rng.choice((1, 2, 3))
            sizes |= {f"i{axis}": rng.choice((3, 5, 8)), f"k{axis}": kernel}
            sizes |= {f"s{axis}": rng.choice((1, 2)), f"p{axis}": rng.choice((0, kernel // 2))}
        return cls(PoolProblem.from_sizes(**sizes))

    def descriptor(self) -> str:
        return self.pool.descriptor() + name_suffix(self.name)

    def smallest(self) -> Self:
        return replace(self, pool=self.pool.smallest())

    def with_mb(self, mb: int) -> Self:
        return replace(self, pool=self.pool.with_mb(mb))

    @property
    def nominal_flops(self) -> int:
        return self.pool.nominal_flops

    @property
    def greatest_index(self) -> int:
        return math.prod(self.pool.src_size) - 1

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        p = self.pool
        letters = "nc" + "".join(p.spatial_names)
        src, result_shape = (p.mb, p.ic, *p.src_size), (p.mb, p.ic, *p.dst_size)
        if direction.is_forward:
            return (
                Slot("src", src, "in", "src", letters),
                Slot("dst", result_shape, "out", "dst", letters),
                Slot("indices", result_shape, "out", "indices", letters),
            )
        return (
            Slot("indices", result_shape, "in", "indices", letters),
            Slot("diff_dst", result_shape, "in", "dst", letters),
            Slot("diff_src", src, "out", "src", letters),
        )

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        p = self.pool
        if not direction.is_forward:
            return self._gradient(arrays["indices"], arrays["diff_dst"])
        src = arrays["src"].astype(np.float64)
        best = np.full((p.mb, p.ic, *p.dst_size), -np.inf)
        place = np.full(best.shape, -1)
        numbers = np.arange(math.prod(p.src_size)).reshape(p.src_size)
        for _, outputs, elements in p.taps():
            seen, before = src[elements], best[outputs]
            new = (place[outputs] < 0) | (seen > before) | (np.isnan(seen) & ~np.isnan(before))
            best[outputs] = np.where(new, seen, before)
            place[outputs] = np.where(new, numbers[elements], place[outputs])
        return {"dst": Answer(best), "indices": Answer(place)}

    def _gradient(self, places: Array, back: Array) -> dict[str, Answer]:
        p = self.pool
        images, points = p.mb * p.ic, math.prod(p.src_size)
        value, size = np.zeros((images, points)), np.zeros((images, points))
        flat, parts = places.reshape(images, -1), back.reshape(images, -1).astype(np.float64)
        inside = (flat >= 0) & (flat < points)
        rows = np.broadcast_to(np.arange(images)[:, None], flat.shape)[inside]
        np.add.at(value, (rows, flat[inside]), parts[inside])
        np.add.at(size, (rows, flat[inside]), np.abs(parts[inside]))
        shape = (p.mb, p.ic, *p.src_size)
        terms = math.prod(p.dst_size) + 1
        return {"diff_src": Answer(value.reshape(shape), size.reshape(shape), terms)}

    @property
    def places(self) -> int:
        return math.prod(self.pool.src_size)

    def data(
        self, name: str, shape: tuple[int, ...], dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        if name == "indices":
            return places_in(self.places, shape, dtype, rng)
        if name == "src" and dtype.is_float:
            # Ties, infinities and NaN.
            return with_nonfinite(rng.integers(-4, 5, shape).astype(np.float64), rng)
        return None

    def check(self, types: Mapping[str, DType], direction: Direction) -> None:
        super().check(types, direction)
        if self.pool.has_empty_windows:
            raise UnsupportedError("a window of a maxpool has no element", cure="pad less")

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        p = self.pool
        usual = all(
            (w.size + 2 * w.pad_l - w.reach) // w.stride + 1 == w.out and 2 * w.pad_l <= w.kernel
            for w in p.windows
        )
        if not direction.is_forward or not usual:
            raise UnsupportedError("PyTorch's side has no such maximum")
        functions = torch.nn.functional
        run = (functions.max_pool1d, functions.max_pool2d, functions.max_pool3d)[p.ndims - 1]
        wide = [step + 1 for step in p.dilation]
        return lambda: run(arrays["src"], p.kernel, p.stride, p.pad_l, wide, False, True)
