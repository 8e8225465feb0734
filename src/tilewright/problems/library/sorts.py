"""Sorting along a dim, and the first of what is sorted, with places.

A bitonic network: steps of pairs that change places, of the next power of two. Equal elements stay
in their order, as each carries its place. Source: Batcher, "Sorting Networks and Their
Applications", 1968.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType, f32, f64, s32
from tilewright.errors import ProblemError
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.library.lists import ListsRecord, Numbers, Part
from tilewright.problems.library.record import Slot, checked_axis
from tilewright.problems.library.wording import Domain, number, stored
from tilewright.problems.problem import Answer, Array, Shape

# Of rows in random problems: networks have more steps the longer these are.
_LONGEST = 64


@dataclass(frozen=True)
class _Sorted(ListsRecord):
    """The base: values in order, and the places that they come from."""

    shape: Shape
    axis: int = -1
    name: str = ""

    roles: ClassVar[tuple[str, ...]] = ("src", "dst", "indices")
    indices: ClassVar[tuple[str, ...]] = ("indices",)

    def _complete(self) -> None:
        object.__setattr__(self, "axis", checked_axis(self.axis, self.shape, self.driver))

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
        made = tuple(self.kept if i == self.axis else n for i, n in enumerate(self.shape))
        return (
            Slot("src", self.shape, "in", "src"),
            Slot("dst", made, "out", "dst"),
            Slot("indices", made, "out", "indices"),
        )

    def body(self, types: Mapping[str, DType], direction: Direction) -> str:
        src, places = types["src"], types["indices"]
        acc = src if src is f64 else f32 if src.is_float else s32
        axis, size = self.axis, self.shape[self.axis]
        steps = list(_steps(size))
        whole = 1 << (size - 1).bit_length()
        d = Domain(tuple(whole if i == axis else n for i, n in enumerate(self.shape)))
        # Behind all others, as places tell equal ones apart: numbers of the last rank.
        last = acc.lowest if self.descends else acc.highest
        if acc.is_float:
            last = float("-inf") if self.descends else float("nan")
        here = f"d{axis} < {size}"
        lines = [
            *(f"alloc v{i}: {acc}[{d.sizes()}]" for i in range(min(2, len(steps) + 1))),
            *(f"alloc p{i}: {places}[{d.sizes()}]" for i in range(min(2, len(steps) + 1))),
            f"compute load({d.dims()}):",
            f"  x = src[{d.at()} | {here}]",
            f"  v0[{d.at()}] = select({here}, {acc}(x), {number(last, acc)})",
            f"  p0[{d.at()}] = {places}(d{axis})",
        ]
        for count, (run, apart) in enumerate(steps):
            lines += self._step(d, acc, count, run, apart)
        end = len(steps) % 2
        kept = Domain(tuple(self.kept if i == axis else n for i, n in enumerate(self.shape)))
        return "\n".join(
            [
                *lines,
                f"compute result({kept.dims()}):",
                f"  v = v{end}[{kept.at()}]",
                f"  p = p{end}[{kept.at()}]",
                f"  dst[{kept.at()}] = {stored('v', acc, types['dst'])}",
                f"  indices[{kept.at()}] = p",
            ]
        )

    def _step(self, d: Domain, acc: DType, count: int, run: int, apart: int) -> list[str]:
        """Each element takes its partner's place, ``apart`` from it, where they are out of order:
        runs of ``run`` go up and down in turns."""
        axis = self.axis
        lower = f"d{axis} // {apart} % 2 == 0"
        up = f"d{axis} // {run} % 2 == 0"
        other = f"select({lower}, d{axis} + {apart}, d{axis} - {apart})"
        sign = "w < v" if self.descends else "v < w"
        before = f"{sign} or (p < q and v == w)"
        if acc.is_float:
            number_first = "v != v and w == w" if self.descends else "v == v and w != w"
            before = f"{sign} or ({number_first}) or (p < q and (v == w or (v != v and w != w)))"
        stays = f"({before}) ^ (({lower}) ^ ({up}))"
        old, new = count % 2, 1 - count % 2
        return [
            f"compute step{count}({d.dims()}):",
            f"  v = v{old}[{d.at()}]",
            f"  p = p{old}[{d.at()}]",
            f"  w = v{old}[{d.at({axis: other})}]",
            f"  q = p{old}[{d.at({axis: other})}]",
            f"  v{new}[{d.at()}] = select({stays}, v, w)",
            f"  p{new}[{d.at()}] = select({stays}, p, q)",
        ]

    def answers(self, given: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        src = given["src"]
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
            return rng.integers(0, 6, shape)
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

    def peer(self, torch: Any, given: Mapping[str, Any], direction: Direction) -> Callable[[], Any]:
        src, axis, down = given["src"], self.axis, self.descends
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

    def peer(self, torch: Any, given: Mapping[str, Any], direction: Direction) -> Callable[[], Any]:
        # Which of equal ones it gives is not said: their values only are ours.
        return lambda: torch.topk(given["src"], self.kept, self.axis)[0]


def _steps(size: int) -> Iterator[tuple[int, int]]:
    """Runs that are merged, and how far partners are apart, in each step."""
    whole = 1 << (size - 1).bit_length()
    run = 2
    while run <= whole:
        apart = run // 2
        while apart:
            yield run, apart
            apart //= 2
        run *= 2
