"""What normalizations have in common: statistics of some elements, and what is done with them.

With the mean ``m`` and the variance ``v`` of each set of elements that are normalized together:
``dst = (src - m) / sqrt(v + eps) * scale + shift``. Root mean square: ``m`` is 0. Sources: oneDNN's
developer guide, "Layer Normalization", "Batch Normalization", "Group Normalization"; Zhang and
Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType, bf16, dtype, f16, f32, u8
from tilewright.errors import ProblemError, short
from tilewright.problems.knobs import Direction, parse_type
from tilewright.problems.library.record import Record, Slot, accumulator_for
from tilewright.problems.library.wording import number, stored
from tilewright.problems.numbers import real_number
from tilewright.problems.pieces import Piece
from tilewright.problems.problem import MAX_DIMS, Answer, Array, Shape

_UNITS = 32
# The letters of ``--flags``: benchdnn's, and I for benchdnn's direction FWD_I.
FLAGS = {
    "G": "statistics are given",
    "C": "with a scale",
    "H": "with a shift",
    "M": "root mean square",
    "I": "what gradients take is no result",
    "R": "with a relu, and where it passes as a result",
    "A": "with a tensor that is added in front of the relu",
}


@dataclass(frozen=True)
class Wording:
    """How a normalization's text says its points: dims of all, and of one for each set of
    statistics; indices of a tensor, of statistics, and of factors."""

    dims: str
    sets: str
    at: str
    set_at: str
    factor_dims: str
    factor_at: str


# Types that scale and shift may have of their own.
FACTORS = (f32, bf16, f16)


@dataclass(frozen=True)
class Normalization(Record):
    """The base of normalizations: subclasses say which elements belong together."""

    shape: Shape
    flags: str = ""
    eps: float = 1e-5
    name: str = ""
    ss_dt: str = ""

    directions: ClassVar[tuple[Direction, ...]] = (
        Direction.FWD_D,
        Direction.BWD_D,
        Direction.BWD_W,
    )
    knobs: ClassVar[tuple[str, ...]] = ("flags", "eps", "ss_dt")
    letters: ClassVar[str] = "GCHI"
    most_dims: ClassVar[int] = MAX_DIMS
    work: ClassVar[int] = 8

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple | list) or not 2 <= len(self.shape) <= self.most_dims:
            raise ProblemError(
                f"{short(self.shape)} is no shape for {self.driver}",
                where="shape",
                why=f"it has 2 to {self.most_dims} dims, as statistics have less",
                cure="write a dim of 1 in front, or make dims that are neighbours in memory one",
            )
        object.__setattr__(self, "shape", tuple(self.shape))
        for letter in self.flags if isinstance(self.flags, str) else "?":
            if letter not in self.letters:
                meant = ", ".join(f"{each} ({FLAGS[each]})" for each in self.letters)
                raise ProblemError(
                    f"unknown flag {letter!r}", where="flags", cure=f"choose some of {meant}"
                )
        flags = self.flags + "R" * ("A" in self.flags)
        sorted_flags = "".join(each for each in self.letters if each in flags)
        object.__setattr__(self, "flags", sorted_flags)
        eps = real_number(self.eps, "eps", "eps", finite=True)
        if eps < 0:
            raise ProblemError("eps must not be negative", where="eps", cure="write 1e-05")
        object.__setattr__(self, "eps", eps)
        if self.ss_dt:
            object.__setattr__(self, "ss_dt", parse_type(Piece.whole(self.ss_dt), FACTORS).name)
        if self.ss_dt == "f32":
            object.__setattr__(self, "ss_dt", "")
        self._check_shapes()

    def with_flags(self, text: str) -> Self:
        """The problem with the flags that ``--flags`` gives."""
        return self.changed(flags=text)

    def for_inference(self) -> Self:
        return self.changed(flags=self.flags + "I" * (not self.has("I")))

    def with_eps(self, text: str) -> Self:
        """The problem with the number that ``--eps`` gives."""
        return self.changed(eps=Piece.whole(text).number("eps"))

    def with_ss_dt(self, text: str) -> Self:
        """The problem with scale and shift of the type that ``--ss_dt`` gives."""
        return self.changed(ss_dt=text)

    @property
    @abstractmethod
    def wording(self) -> Wording:
        """The words for this problem."""

    @property
    @abstractmethod
    def set_shape(self) -> Shape:
        """The shape of statistics."""

    @property
    @abstractmethod
    def factors(self) -> Shape:
        """The shape of scale and shift."""

    @abstractmethod
    def split(self, array: Array) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
        """The array with a dim for each part, those that are reduced, and those that factors
        vary along."""

    @property
    def count(self) -> int:
        """Elements that are normalized together."""
        return math.prod(self.shape) // math.prod(self.set_shape)

    @property
    def tags(self) -> str | None:
        """Letters of the dims in tags."""
        return None

    def has(self, letter: str) -> bool:
        """Whether the flag is given."""
        return letter in self.flags

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        sets, factors = self.set_shape, self.factors
        kind = dtype(self.ss_dt) if self.ss_dt else None
        mean = () if self.has("M") else (Slot("mean", sets, "in", ""),)
        given = (*mean, Slot("variance", sets, "in", ""))
        scale = (Slot("scale", factors, "in", "", dtype=kind),) if self.has("C") else ()
        shift = (Slot("shift", factors, "in", "", dtype=kind),) if self.has("H") else ()
        src = Slot("src", self.shape, "in", "src", self.tags)
        passed = "out" if direction.is_forward else "in"
        mask = Slot("workspace", self.shape, passed, "", self.tags, u8)
        masks = (mask,) if self.has("R") and not (direction.is_forward and self.has("I")) else ()
        added = (replace(src, name="src1"),) if self.has("A") else ()
        if direction.is_forward:
            made = tuple(Slot(slot.name, sets, "out", "") for slot in given)
            statistics = given if self.has("G") else ()
            made = () if self.has("G") or self.has("I") else made
            dst = Slot("dst", self.shape, "out", "dst", self.tags)
            return (src, *added, *statistics, *scale, *shift, dst, *made, *masks)
        back = Slot("diff_dst", self.shape, "in", "dst", self.tags)
        if direction is Direction.BWD_D:
            result = Slot("diff_src", self.shape, "out", "src", self.tags)
            results = (result, *(replace(result, name="diff_src1") for _ in added))
            return (src, *given, back, *masks, *scale, *results)
        diff_scale = Slot("diff_scale", factors, "out", "", dtype=kind)
        diff_shift = Slot("diff_shift", factors, "out", "", dtype=kind)
        return (src, *given, back, *masks, diff_scale, diff_shift)

    def body(self, types: Mapping[str, DType], direction: Direction) -> str:
        if direction.is_forward:
            return self._forward(types)
        return self._by_data(types) if direction is Direction.BWD_D else self._by_factors(types)

    def _forward(self, types: Mapping[str, DType]) -> str:
        w, acc = self.wording, accumulator_for(types)
        rms, lines = self.has("M"), []
        shifted = f"{acc}(x)" if rms else f"({acc}(x) - mean)"
        mean = "" if rms else f"mean = mean[{w.set_at}]"
        kept = [] if rms else ["mean"]
        if not self.has("G"):
            sets = ", ".join(map(str, self.set_shape))
            hidden = [*kept, "variance"] if self.has("I") else []
            lines += [f"alloc {each}: {acc}[{sets}]" for each in [*hidden, "total", "squares"]]
            lines += [
                f"compute init({w.sets}):",
                f"  total[{w.set_at}] = {number(0.0, acc)}",
                f"  squares[{w.set_at}] = {number(0.0, acc)}",
            ]
            if not rms:
                lines += [
                    f"compute total({w.dims}):",
                    f"  x = src[{w.at}]",
                    f"  total[{w.set_at}] add= {acc}(x)",
                    f"compute mean({w.sets}):",
                    f"  total = total[{w.set_at}]",
                    f"  mean[{w.set_at}] = total / {number(float(self.count), acc)}",
                ]
            lines += [
                f"compute squares({w.dims}):",
                f"  x = src[{w.at}]",
                f"  {mean}",
                f"  squares[{w.set_at}] add= {shifted} * {shifted}",
                f"compute variance({w.sets}):",
                f"  squares = squares[{w.set_at}]",
                f"  variance[{w.set_at}] = squares / {number(float(self.count), acc)}",
            ]
        value = f"{shifted} * factor"
        value += f" * {acc}(scale)" if self.has("C") else ""
        value += f" + {acc}(shift)" if self.has("H") else ""
        value += f" + {acc}(added)" if self.has("A") else ""
        loads = [
            f"  x = src[{w.at}]",
            f"  {mean}",
            f"  factor = factor[{w.set_at}]",
            f"  scale = scale[{w.factor_at}]" if self.has("C") else "",
            f"  shift = shift[{w.factor_at}]" if self.has("H") else "",
            f"  added = src1[{w.at}]" if self.has("A") else "",
        ]
        zero = number(0.0, acc)
        result = f"max({value}, {zero})" if self.has("R") else value
        lines += [
            *self._factor(acc),
            f"compute result({w.dims}):",
            *loads,
            f"  dst[{w.at}] = {stored(result, acc, types['dst'])}",
        ]
        if self.has("R") and not self.has("I"):
            mask = f"  workspace[{w.at}] = select({zero} < {value}, u8(1), u8(0))"
            lines += [f"compute workspace({w.dims}):", *loads, mask]
        return "\n".join(lines)

    def _factor(self, acc: DType) -> list[str]:
        w = self.wording
        return [
            f"alloc factor: {acc}[{', '.join(map(str, self.set_shape))}]",
            f"compute factor({w.sets}):",
            f"  v = variance[{w.set_at}]",
            f"  factor[{w.set_at}] = {number(1.0, acc)} / sqrt(v + {number(self.eps, acc)})",
        ]

    def _loads(self, acc: DType, *, scaled: bool) -> tuple[list[str], str, str]:
        """What gradients read, the gradient after the scale, and what was normalized."""
        w = self.wording
        scaled = scaled and self.has("C")
        lines = [
            f"  x = src[{w.at}]",
            "" if self.has("M") else f"  mean = mean[{w.set_at}]",
            f"  factor = factor[{w.set_at}]",
            f"  back = diff_dst[{w.at}]",
            f"  passed = workspace[{w.at}]" if self.has("R") else "",
            f"  scale = scale[{w.factor_at}]" if scaled else "",
        ]
        came = f"{acc}(back)"
        if self.has("R"):
            came = f"select(u8(0) < passed, {came}, {number(0.0, acc)})"
        shifted = f"{acc}(x)" if self.has("M") else f"({acc}(x) - mean)"
        gradient = f"({came} * {acc}(scale))" if scaled else came
        return lines, gradient, f"({shifted} * factor)"

    def _by_data(self, types: Mapping[str, DType]) -> str:
        w, acc = self.wording, accumulator_for(types)
        loads, gradient, normal = self._loads(acc, scaled=True)
        lines = self._factor(acc)
        value = f"factor * {gradient}"
        if not self.has("G"):
            sets = ", ".join(map(str, self.set_shape))
            zero, count = number(0.0, acc), number(float(self.count), acc)
            sums = f"total[{w.set_at}] add= {gradient}"
            lines += [
                f"alloc total: {acc}[{sets}]",
                f"alloc product: {acc}[{sets}]",
                f"compute init({w.sets}):",
                f"  total[{w.set_at}] = {zero}",
                f"  product[{w.set_at}] = {zero}",
                f"compute sums({w.dims}):",
                *loads,
                "" if self.has("M") else f"  {sums}",
                f"  product[{w.set_at}] add= {gradient} * {normal}",
            ]
            less = "" if self.has("M") else f" - total / {count}"
            value = f"factor * ({gradient}{less} - {normal} * (product / {count}))"
        lines += [
            f"compute result({w.dims}):",
            *loads,
            "" if self.has("G") or self.has("M") else f"  total = total[{w.set_at}]",
            "" if self.has("G") else f"  product = product[{w.set_at}]",
            f"  diff_src[{w.at}] = {stored(value, acc, types['src'])}",
        ]
        if self.has("A"):
            loads, gradient, _ = self._loads(acc, scaled=False)
            lines += [
                f"compute added({w.dims}):",
                *loads[-3:-1],
                f"  diff_src1[{w.at}] = {stored(gradient, acc, types['src'])}",
            ]
        return "\n".join(lines)

    def _by_factors(self, types: Mapping[str, DType]) -> str:
        w, acc = self.wording, accumulator_for(types)
        loads, gradient, normal = self._loads(acc, scaled=False)
        names, sizes = ("scale", "shift"), ", ".join(map(str, self.factors))
        narrow = bool(self.ss_dt)
        sums = {name: f"{name}_sum" if narrow else f"diff_{name}" for name in names}
        lines = [
            *(f"alloc {sums[name]}: {acc}[{sizes}]" for name in names if narrow),
            *self._factor(acc),
            f"compute init({w.factor_dims}):",
            *(f"  {sums[name]}[{w.factor_at}] = {number(0.0, acc)}" for name in names),
            f"compute sums({w.dims}):",
            *loads,
            f"  {sums['scale']}[{w.factor_at}] add= {gradient} * {normal}",
            f"  {sums['shift']}[{w.factor_at}] add= {gradient}",
        ]
        for name in names if narrow else ():
            lines += [
                f"compute {name}({w.factor_dims}):",
                f"  x = {sums[name]}[{w.factor_at}]",
                f"  diff_{name}[{w.factor_at}] = {self.ss_dt}(x)",
            ]
        return "\n".join(lines)

    def answers(self, given: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        x, reduced, varying = self.split(given["src"])

        def spread(array: Array, dims: tuple[int, ...]) -> Array:
            """An array of the sizes of ``dims``, to compute with ``x``."""
            return np.reshape(array, [n if i in dims else 1 for i, n in enumerate(x.shape)])

        sets = tuple(i for i in range(x.ndim) if i not in reduced)
        rms = self.has("M")
        scale = spread(given["scale"], varying) if "scale" in given else 1.0
        if direction.is_forward and not self.has("G"):
            mean = 0.0 if rms else x.mean(axis=reduced, keepdims=True)
            size = np.abs(x) + (0.0 if rms else np.abs(x).mean(axis=reduced, keepdims=True))
            variance = ((x - mean) ** 2).mean(axis=reduced, keepdims=True)
            loose = (size**2).mean(axis=reduced, keepdims=True)
        else:
            mean = 0.0 if rms else spread(given["mean"], sets)
            variance = spread(given["variance"], sets)
            size, loose = np.abs(x) + np.abs(mean), variance
        factor = 1 / np.sqrt(variance + self.eps)
        normal, most = (x - mean) * factor, size * factor
        if direction.is_forward:
            shift = spread(given["shift"], varying) if "shift" in given else 0.0
            bound = most * (1 + loose / (variance + self.eps)) * np.abs(scale) + np.abs(shift)
            terms = self.count + _UNITS
            added = self.split(given["src1"])[0] if "src1" in given else 0.0
            value, bound = normal * scale + shift + added, bound + np.abs(added)
            found = {"dst": Answer(np.maximum(value, 0) if self.has("R") else value, bound, terms)}
            if self.has("R") and not self.has("I"):
                # What rounding may turn over is open.
                near = np.where(np.abs(value) <= 1e-6 * terms * bound, np.inf, 0.0)
                found["workspace"] = Answer(value > 0, near, 1)
            if not (self.has("G") or self.has("I")):
                if not rms:
                    near = np.abs(x).mean(axis=reduced, keepdims=True)
                    found["mean"] = Answer(mean, near, terms)
                found["variance"] = Answer(variance, loose, terms)
        else:
            g = self.split(given["diff_dst"])[0]
            g = g * self.split(given["workspace"])[0] if self.has("R") else g
            found = self._gradients(g, scale, normal, most, factor, direction, reduced, varying)
            if self.has("A") and direction is Direction.BWD_D:
                found["diff_src1"] = Answer(g, np.abs(g), 1)
        shapes = {slot.name: slot.shape for slot in self.slots(direction)}
        return {
            name: Answer(
                each.value.reshape(shapes[name]),
                np.broadcast_to(each.magnitude, each.value.shape).reshape(shapes[name]),
                each.roundings,
            )
            for name, each in found.items()
        }

    def _gradients(
        self,
        g: Array,
        scale: Array,
        normal: Array,
        most: Array,
        factor: Array,
        direction: Direction,
        reduced: tuple[int, ...],
        varying: tuple[int, ...],
    ) -> dict[str, Answer]:
        if direction is Direction.BWD_W:
            over = tuple(i for i in range(g.ndim) if i not in varying)
            terms = math.prod(g.shape[i] for i in over) + _UNITS
            return {
                "diff_scale": Answer(
                    (g * normal).sum(axis=over), (np.abs(g) * most).sum(axis=over), terms
                ),
                "diff_shift": Answer(g.sum(axis=over), np.abs(g).sum(axis=over), terms),
            }
        g = g * scale
        if self.has("G"):
            return {"diff_src": Answer(factor * g, factor * np.abs(g), _UNITS)}

        def mean(array: Array) -> Array:
            return array.mean(axis=reduced, keepdims=True)

        less = 0.0 if self.has("M") else mean(g)
        value = factor * (g - less - normal * mean(g * normal))
        size = factor * (np.abs(g) + mean(np.abs(g)) + most * mean(np.abs(g) * most))
        return {"diff_src": Answer(value, size, self.count + _UNITS)}

    def data(
        self, name: str, shape: Shape, dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        if name == "workspace":
            return rng.integers(0, 2, shape)
        return rng.uniform(0.5, 2.0, shape) if name == "variance" else None
