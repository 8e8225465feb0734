"""Ops whose places are data: gather, scatter, one-hot.

An index out of range never leaves memory: each op says what it does then. With the flag ``C``, they
are counted, in one more result.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType, f32, f64, s32
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.problems.draws import places_in, shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.library.lists import ListsRecord, Numbers, Part
from tilewright.problems.library.record import Slot, accumulator_for, checked_flags
from tilewright.problems.library.wording import Domain, number, stored
from tilewright.problems.problem import Answer, Array, Shape


@dataclass(frozen=True)
class _Indexed(ListsRecord):
    """The base: ``indices`` are places in the dim ``axis`` of a tensor of this shape."""

    shape: Shape
    indices_shape: Numbers = ()
    axis: int = 0
    flags: str = ""
    name: str = ""

    roles: ClassVar[tuple[str, ...]] = ("src", "indices", "dst")
    indices: ClassVar[tuple[str, ...]] = ("indices",)
    knobs: ClassVar[tuple[str, ...]] = ("alg", "axis", "flags")

    def _complete(self) -> None:
        flags = checked_flags(self.flags, {"C": "count those out of range"}, once=True)
        object.__setattr__(self, "flags", flags)

    @property
    def places(self) -> int:
        return self.shape[self.axis]

    @property
    def outside(self) -> tuple[Slot, ...]:
        """How many indices are out of range, where that is asked for."""
        return (Slot("outside", (1,), "out", "indices"),) if self.flags else ()

    @property
    def greatest_index(self) -> int:
        return math.prod(self.indices_shape) if self.flags else 0

    def counted(self, types: Mapping[str, DType]) -> str:
        """The statements that count."""
        if not self.flags:
            return ""
        kind, size = types["indices"], self.shape[self.axis]
        names = [f"p{i}" for i in range(len(self.indices_shape))]
        dims = ", ".join(f"{n} in {s}" for n, s in zip(names, self.indices_shape, strict=True))
        inside = f"0 <= s64(place) and s64(place) < {size}"
        return f"""
compute none(once in 1):
  outside[0] = {kind}(0)
compute outside({dims}):
  place = indices[{", ".join(names)}]
  outside[0] add= select({inside}, {kind}(0), {kind}(1))
"""

    def counts(self, indices: Array) -> dict[str, Answer]:
        """How many are out of range."""
        if not self.flags:
            return {}
        size = self.shape[self.axis]
        return {"outside": Answer(np.array([np.sum((indices < 0) | (indices >= size))]))}

    def data(
        self, name: str, shape: Shape, dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        if name != "indices":
            return None
        return places_in(self.places, shape, dtype, rng)


@dataclass(frozen=True)
class GatherProblem(_Indexed):
    """``dst[.., i, ..] = src[.., indices[i], ..]``. Out of range, ``clip`` takes the nearest place,
    ``zero`` gives 0."""

    algorithm: str = "clip"

    driver: ClassVar[str] = "gather"
    example: ClassVar[str] = "100x24:40"
    parts: ClassVar[tuple[Part, ...]] = (Part("shape"), Part("indices_shape"))
    algorithms: ClassVar[tuple[str, ...]] = ("clip", "zero")
    work: ClassVar[int] = 0

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape, places = shape_of(rng, 1, 3), shape_of(rng, 1, 2)
        problem = cls(shape, places, rng.randrange(len(shape)), rng.choice(("", "", "C")))
        return replace(problem, algorithm=rng.choice(cls.algorithms))

    def smallest(self) -> Self:
        ones = (1,) * len(self.shape)
        return replace(self, shape=ones, indices_shape=(1,) * len(self.indices_shape))

    @property
    def made(self) -> Shape:
        """The shape of the result: the axis is replaced by the dims of the indices."""
        return (*self.shape[: self.axis], *self.indices_shape, *self.shape[self.axis + 1 :])

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        return (
            Slot("src", self.shape, "in", "src"),
            Slot("indices", self.indices_shape, "in", "indices"),
            Slot("dst", self.made, "out", "dst"),
            *self.outside,
        )

    def body(self, types: Mapping[str, DType], direction: Direction) -> str:
        d, axis, many = Domain(self.made), self.axis, len(self.indices_shape)
        size = self.shape[axis]
        place, mask = "s64(place)", ""
        if self.algorithm == "clip":
            place = f"max(min({place}, {size - 1}), 0)"
        else:
            mask = f" | 0 <= {place} and {place} < {size}"
        front = [f"d{i}" for i in range(axis)]
        behind = [f"d{i + many - 1}" for i in range(axis + 1, len(self.shape))]
        at = ", ".join([*front, place, *behind])
        return f"""
compute gather({d.dims()}):
  place = indices[{", ".join(f"d{axis + i}" for i in range(many))}]
  x = src[{at}{mask}]
  dst[{d.at()}] = {stored("x", types["src"], types["dst"])}
{self.counted(types)}"""

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        places, size = arrays["indices"], self.shape[self.axis]
        value = np.take(arrays["src"], np.clip(places, 0, size - 1), self.axis)
        if self.algorithm == "zero":
            inside = (places >= 0) & (places < size)
            rest = len(self.shape) - self.axis - 1
            value = np.where(inside.reshape((*inside.shape, *(1,) * rest)), value, 0)
        return {"dst": Answer(value), **self.counts(places)}

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        places, size = arrays["indices"], self.shape[self.axis]
        if self.algorithm == "zero" or self.flags:
            raise UnsupportedError("PyTorch takes no index that is out of range")
        inside = places.clamp(0, size - 1)
        if places.dim() == 1:
            return lambda: torch.index_select(arrays["src"], self.axis, inside, out=arrays["dst"])
        index = (slice(None),) * self.axis + (inside.long(),)
        return lambda: arrays["src"][index]


@dataclass(frozen=True)
class ScatterProblem(_Indexed):
    """``dst[.., indices[i], ..]`` combined with ``src[.., i, ..]``, in place: added, or the greater
    or the less of them. What is out of range is left out."""

    algorithm: str = "add"

    driver: ClassVar[str] = "scatter"
    example: ClassVar[str] = "100x24:40"
    parts: ClassVar[tuple[Part, ...]] = (Part("shape"), Part("indices_shape"))
    algorithms: ClassVar[tuple[str, ...]] = ("add", "max", "min")
    # Sums are kept in the result's type: narrower ones would round at each step.
    data_types: ClassVar[tuple[DType, ...]] = (f32, f64, s32)

    def _complete(self) -> None:
        super()._complete()
        if len(self.indices_shape) != 1:
            raise ProblemError(
                "scatter takes indices of one dim",
                where="indices_shape",
                cure="make their dims one",
            )

    def check(self, types: Mapping[str, DType], direction: Direction) -> None:
        super().check(types, direction)
        if types["src"] is not types["dst"]:
            raise UnsupportedError(
                f"scatter combines {types['dst']} with {types['src']}",
                why="results are combined in memory, in their own type",
                cure="give both the same type",
            )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape, places = shape_of(rng, 1, 3), shape_of(rng, 1, 1)
        problem = cls(shape, places, rng.randrange(len(shape)), rng.choice(("", "", "C")))
        return replace(problem, algorithm=rng.choice(cls.algorithms))

    def smallest(self) -> Self:
        return replace(self, shape=(1,) * len(self.shape), indices_shape=(1,))

    @property
    def given(self) -> Shape:
        """The shape of the source."""
        return (*self.shape[: self.axis], *self.indices_shape, *self.shape[self.axis + 1 :])

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        return (
            Slot("src", self.given, "in", "src"),
            Slot("indices", self.indices_shape, "in", "indices"),
            Slot("dst", self.shape, "inout", "dst"),
            *self.outside,
        )

    def body(self, types: Mapping[str, DType], direction: Direction) -> str:
        d, axis = Domain(self.given), self.axis
        inside = f"0 <= s64(place) and s64(place) < {self.shape[axis]}"
        return f"""
compute scatter({d.dims()}):
  place = indices[d{axis}]
  x = src[{d.at()}]
  dst[{d.at({axis: "s64(place)"})} | {inside}] {self.algorithm}= x
{self.counted(types)}"""

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        places = arrays["indices"]
        inside = (places >= 0) & (places < self.shape[self.axis])
        run = {"add": np.add, "max": np.maximum, "min": np.minimum}[self.algorithm]
        # The axis in front, as numpy's methods of functions take it.
        parts = np.moveaxis(arrays["src"], self.axis, 0)[inside]
        value = np.moveaxis(arrays["dst"].copy(), self.axis, 0)
        run.at(value, places[inside], parts)
        size = np.moveaxis(np.abs(arrays["dst"]), self.axis, 0)
        np.add.at(size, places[inside], np.abs(parts))
        terms = len(places) + 2 if self.algorithm == "add" and value.dtype.kind == "f" else 0
        back = np.moveaxis(value, 0, self.axis), np.moveaxis(size, 0, self.axis)
        return {"dst": Answer(*back, terms), **self.counts(places)}

    def peer(
        self, torch: Any, values: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        raise UnsupportedError("PyTorch takes no index that is out of range")


@dataclass(frozen=True)
class OneHotProblem(ListsRecord):
    """``dst[.., c]`` is 1 where the index is ``c``, else 0; all 0 out of range."""

    shape: Shape
    classes: Numbers = ()
    name: str = ""

    driver: ClassVar[str] = "onehot"
    example: ClassVar[str] = "32x128:1000"
    parts: ClassVar[tuple[Part, ...]] = (Part("shape"), Part("classes"))
    indices: ClassVar[tuple[str, ...]] = ("src",)
    work: ClassVar[int] = 0

    def _complete(self) -> None:
        if len(self.classes) != 1:
            raise ProblemError("onehot has one number of classes", where="classes")

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        return cls(shape_of(rng, 1, 3), shape_of(rng, 1, 1))

    def smallest(self) -> Self:
        return replace(self, shape=(1,) * len(self.shape), classes=(1,))

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        slot = Slot("dst", (*self.shape, *self.classes), "out", "dst")
        return Slot("src", self.shape, "in", "src"), slot

    def body(self, types: Mapping[str, DType], direction: Direction) -> str:
        d, last, dst = Domain((*self.shape, *self.classes)), len(self.shape), types["dst"]
        acc = accumulator_for({"dst": dst})
        zero, one = (number(value, acc) for value in (0.0, 1.0))
        return f"""
compute onehot({d.dims()}):
  place = src[{Domain(self.shape).at()}]
  dst[{d.at()}] = {stored(f"select(s64(place) == d{last}, {one}, {zero})", acc, dst)}
"""

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        return {"dst": Answer(arrays["src"][..., None] == np.arange(self.classes[0]))}

    def data(
        self, name: str, shape: Shape, dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        return places_in(self.places, shape, dtype, rng)

    @property
    def places(self) -> int:
        return self.classes[0]

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        places = arrays["src"].long()
        return lambda: places.unsqueeze(-1) == torch.arange(self.classes[0])
