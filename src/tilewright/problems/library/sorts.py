"""Sorting along a dim, and the first of what is sorted, with places.

Equal elements stay in their order. Short rows are sorted by networks, whose steps compare many
elements at once, long ones by the digits of keys, which takes time and text of fewer steps.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType, f32, f64, s8, s16, s32, s64, u8, u16, u32, u64
from tilewright.errors import ProblemError
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.library.lists import ListsRecord, Numbers, Part
from tilewright.problems.library.radix_sorts import RadixSort
from tilewright.problems.library.record import FLOATS, Slot
from tilewright.problems.library.sort_networks import Order, network
from tilewright.problems.problem import Answer, Array, Shape

# Of rows in random problems: some go through networks, others do not.
_LONGEST = 200
# Steps of networks grow with rows: of longer ones they take more time, and more text.
_LONGEST_OF_NETWORKS = 64
_INTEGERS = (s8, s16, s32, s64, u8, u16, u32, u64)


@dataclass(frozen=True)
class _Sorted(ListsRecord):
    """The base: values in order, and the places that they come from."""

    shape: Shape
    axis: int = -1
    name: str = ""

    roles: ClassVar[tuple[str, ...]] = ("src", "dst", "indices")
    indices: ClassVar[tuple[str, ...]] = ("indices",)
    data_types: ClassVar[tuple[DType, ...]] = (*FLOATS, *_INTEGERS)

    @property
    @abstractmethod
    def kept(self) -> int:
        """How many of them are results."""

    @property
    @abstractmethod
    def descends(self) -> bool:
        """Whether the greatest comes first."""

    @property
    def greatest_index(self) -> int:
        return self.shape[self.axis] - 1

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        shape = tuple(self.kept if i == self.axis else n for i, n in enumerate(self.shape))
        return (
            Slot("src", self.shape, "in", "src"),
            Slot("dst", shape, "out", "dst"),
            Slot("indices", shape, "out", "indices"),
        )

    def body(self, types: Mapping[str, DType], direction: Direction) -> str:
        source, places, result = types["src"], types["indices"], types["dst"]
        order = Order(self.shape, self.axis, self.descends, self.kept)
        if order.size <= _LONGEST_OF_NETWORKS:
            return network(order, _compared(source), places, result)
        return RadixSort(order, source, places, result).text()

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        src = arrays["src"]
        if self.descends:
            # NaN first, then the greatest; equal ones by their places.
            missing = np.isnan(src) if src.dtype.kind == "f" else np.zeros(src.shape, bool)
            order = np.lexsort((np.where(missing, 0, -src), ~missing), axis=self.axis)
        else:
            order = np.argsort(src, axis=self.axis, kind="stable")
        order = np.take(order, range(self.kept), self.axis)
        values = np.take_along_axis(src, order, self.axis)
        return {"dst": Answer(values), "indices": Answer(order)}

    def data(
        self, name: str, shape: Shape, dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        if not dtype.is_float:
            wide = rng.integers(int(dtype.lowest) // 4, int(dtype.highest) // 4, shape)
            return np.where(rng.random(shape) < 0.5, rng.integers(0, 6, shape), wide)
        values = rng.integers(-4, 5, shape).astype(np.float64)
        values[rng.random(shape) < 0.05] = np.nan
        return values


@dataclass(frozen=True)
class SortProblem(_Sorted):
    """All of them: ``sort`` the least first, ``sort_descending`` the greatest."""

    algorithm: str = "sort"

    driver: ClassVar[str] = "sort"
    example: ClassVar[str] = "32x100"
    knobs: ClassVar[tuple[str, ...]] = ("alg", "axis")
    algorithms: ClassVar[tuple[str, ...]] = ("sort", "sort_descending")

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng, 1, 3, longest=_LONGEST)
        chosen = rng.choice(cls.algorithms)
        return cls(shape, rng.randrange(len(shape)), algorithm=chosen)

    @property
    def kept(self) -> int:
        return self.shape[self.axis]

    @property
    def descends(self) -> bool:
        return self.algorithm == "sort_descending"

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        src, axis, down = arrays["src"], self.axis, self.descends
        return lambda: torch.sort(src, dim=axis, descending=down, stable=True)


@dataclass(frozen=True)
class TopKProblem(_Sorted):
    """The ``amount`` greatest, in order."""

    amount: Numbers = ()

    driver: ClassVar[str] = "topk"
    example: ClassVar[str] = "32x100:5"
    knobs: ClassVar[tuple[str, ...]] = ("axis",)
    parts: ClassVar[tuple[Part, ...]] = (Part("shape"), Part("amount"))

    def _complete(self) -> None:
        super()._complete()
        if len(self.amount) != 1:
            raise ProblemError("topk has one amount", where="amount")

    def check(self, types: Mapping[str, DType], direction: Direction) -> None:
        super().check(types, direction)
        if self.amount[0] > self.shape[self.axis]:
            raise ProblemError(
                f"there are {self.shape[self.axis]} elements, and {self.amount[0]} are asked for",
                where="amount",
                cure="ask for less",
            )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng, 1, 3, longest=_LONGEST)
        axis = rng.randrange(len(shape))
        return cls(shape, axis, amount=(rng.randint(1, shape[axis]),))

    def smallest(self) -> Self:
        return replace(self, shape=(1,) * len(self.shape), amount=(1,))

    @property
    def kept(self) -> int:
        return self.amount[0]

    @property
    def descends(self) -> bool:
        return True

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        # Which of equal ones it gives is not said: their values only are ours.
        return lambda: torch.topk(arrays["src"], self.kept, self.axis)[0]


def _compared(type_: DType) -> DType:
    """What networks compare elements in: f32 or s32 where these hold them."""
    if type_.is_float:
        return type_ if type_ is f64 else f32
    return s32 if type_.lowest >= s32.lowest and type_.highest <= s32.highest else type_
