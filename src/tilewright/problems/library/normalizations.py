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
from tilewright.problems.library.record import Record, Slot, checked_flags
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
        meanings = {letter: FLAGS[letter] for letter in self.letters}
        flags = checked_flags(self.flags, meanings)
        if "A" in flags:
            flags = checked_flags(flags + "R", meanings)
        object.__setattr__(self, "flags", flags)
        eps = real_number(self.eps, "eps", "eps", finite=True)
        if eps < 0:
            raise ProblemError("eps must not be negative", where="eps", cure="write 1e-05")
        object.__setattr__(self, "eps", eps)
        if self.ss_dt:
            object.__setattr__(self, "ss_dt", parse_type(Piece.whole(self.ss_dt), FACTORS).name)
        if self.ss_dt == "f32":
            object.__setattr__(self, "ss_dt", "")
        self._check_shapes()

    def for_inference(self) -> Self:
        return self.changed(flags=self.flags + "I" * (not self.has("I")))

    @property
    def set_shape(self) -> Shape:
        """The shape of statistics."""
        return tuple(n for i, n in enumerate(self.parts) if i not in self.reduced)

    @property
    def factors(self) -> Shape:
        """The shape of scale and shift."""
        return (self.shape[self.channel],)

    @property
    def parts(self) -> Shape:
        """The shape with a dim for each part of a dim."""
        return self.shape

    @property
    @abstractmethod
    def reduced(self) -> tuple[int, ...]:
        """The dims of `parts` along which elements are normalized together."""

    @property
    def channel(self) -> int:
        """The dim that factors vary along."""
        return 1

    @property
    def varying(self) -> tuple[int, ...]:
        """The same, as dims of `parts`."""
        return (self.channel,)

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
        inputs = (*mean, Slot("variance", sets, "in", ""))
        scale = (Slot("scale", factors, "in", "", dtype=kind),) if self.has("C") else ()
        shift = (Slot("shift", factors, "in", "", dtype=kind),) if self.has("H") else ()
        src = Slot("src", self.shape, "in", "src", self.tags)
        passed = "out" if direction.is_forward else "in"
        mask = Slot("workspace", self.shape, passed, "", self.tags, u8)
        masks = (mask,) if self.has("R") and not (direction.is_forward and self.has("I")) else ()
        added = (replace(src, name="src1"),) if self.has("A") else ()
        if direction.is_forward:
            outputs = tuple(Slot(slot.name, sets, "out", "") for slot in inputs)
            statistics = inputs if self.has("G") else ()
            outputs = () if self.has("G") or self.has("I") else outputs
            dst = Slot("dst", self.shape, "out", "dst", self.tags)
            return (src, *added, *statistics, *scale, *shift, dst, *outputs, *masks)
        back = Slot("diff_dst", self.shape, "in", "dst", self.tags)
        if direction is Direction.BWD_D:
            result = Slot("diff_src", self.shape, "out", "src", self.tags)
            results = (result, *(replace(result, name="diff_src1") for _ in added))
            return (src, *inputs, back, *masks, *scale, *results)
        diff_scale = Slot("diff_scale", factors, "out", "", dtype=kind)
        diff_shift = Slot("diff_shift", factors, "out", "", dtype=kind)
        return (src, *inputs, back, *masks, diff_scale, diff_shift)

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        x, reduced, varying = arrays["src"].reshape(self.parts), self.reduced, self.varying

        def spread(array: Array, dims: tuple[int, ...]) -> Array:
            """An array of the sizes of ``dims``, to compute with ``x``."""
            return np.reshape(array, [n if i in dims else 1 for i, n in enumerate(x.shape)])

        sets = tuple(i for i in range(x.ndim) if i not in reduced)
        rms = self.has("M")
        scale = spread(arrays["scale"], varying) if "scale" in arrays else 1.0
        if direction.is_forward and not self.has("G"):
            mean = 0.0 if rms else x.mean(axis=reduced, keepdims=True)
            size = np.abs(x) + (0.0 if rms else np.abs(x).mean(axis=reduced, keepdims=True))
            variance = ((x - mean) ** 2).mean(axis=reduced, keepdims=True)
            loose = (size**2).mean(axis=reduced, keepdims=True)
        else:
            mean = 0.0 if rms else spread(arrays["mean"], sets)
            variance = spread(arrays["variance"], sets)
            size, loose = np.abs(x) + np.abs(mean), variance
        factor = 1 / np.sqrt(variance + self.eps)
        normal, most = (x - mean) * factor, size * factor
        if direction.is_forward:
            shift = spread(arrays["shift"], varying) if "shift" in arrays else 0.0
            bound = most * (1 + loose / (variance + self.eps)) * np.abs(scale) + np.abs(shift)
            terms = self.count + _UNITS
            added = arrays["src1"].reshape(self.parts) if "src1" in arrays else 0.0
            value, bound = normal * scale + shift + added, bound + np.abs(added)
            result = {"dst": Answer(np.maximum(value, 0) if self.has("R") else value, bound, terms)}
            if self.has("R") and not self.has("I"):
                # What rounding may turn over is open.
                near = np.where(np.abs(value) <= 1e-6 * terms * bound, np.inf, 0.0)
                result["workspace"] = Answer(value > 0, near, 1)
            if not (self.has("G") or self.has("I")):
                if not rms:
                    near = np.abs(x).mean(axis=reduced, keepdims=True)
                    result["mean"] = Answer(mean, near, terms)
                result["variance"] = Answer(variance, loose, terms)
        else:
            g = arrays["diff_dst"].reshape(self.parts)
            g = g * arrays["workspace"].reshape(self.parts) if self.has("R") else g
            result = self._gradients(g, scale, normal, most, factor, direction, reduced, varying)
            if self.has("A") and direction is Direction.BWD_D:
                result["diff_src1"] = Answer(g, np.abs(g), 1)
        shapes = {slot.name: slot.shape for slot in self.slots(direction)}
        return {
            name: Answer(
                answer.value.reshape(shapes[name]),
                np.broadcast_to(answer.magnitude, answer.value.shape).reshape(shapes[name]),
                answer.roundings,
            )
            for name, answer in result.items()
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
