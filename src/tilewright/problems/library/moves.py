"""Ops that only move elements: a result's element is a source's, whose place the index says."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import ProblemError, UnsupportedError, short
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.library.lists import ListsRecord, Numbers, Part
from tilewright.problems.library.record import Record, Slot, checked_axis
from tilewright.problems.problem import Answer, Array, Shape, name_suffix
from tilewright.problems.shapes import join, parse_shapes


@dataclass(frozen=True)
class Move(ListsRecord):
    """The base: ``dst`` has the shape ``made``, and takes each element from ``place``."""

    shape: Shape

    work: ClassVar[int] = 0

    @property
    @abstractmethod
    def made(self) -> Shape:
        """The shape of the result."""

    @abstractmethod
    def moved(self, src: Array) -> Array:
        """The same by numpy."""

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        return Slot("src", self.shape, "in", "src"), Slot("dst", self.made, "out", "dst")

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        return {"dst": Answer(self.moved(arrays["src"]))}


@dataclass(frozen=True)
class SliceProblem(Move):
    """``dst[i] = src[start + i * stride]``; strides below 0 run backwards."""

    start: Numbers = ()
    size: Numbers = ()
    stride: Numbers = ()
    name: str = ""

    driver: ClassVar[str] = "slice"
    example: ClassVar[str] = "8x9:1x8:3x4:2x-2"
    parts: ClassVar[tuple[Part, ...]] = (
        Part("shape"),
        Part("start", 0),
        Part("size"),
        Part("stride", -(2**60), optional=True),
    )

    def _complete(self) -> None:
        if not self.stride:
            object.__setattr__(self, "stride", (1,) * len(self.shape))
        self.same_length("shape", "start", "size", "stride")
        dims = zip(self.shape, self.start, self.size, self.stride, strict=True)
        for dim, (extent, start, size, stride) in enumerate(dims):
            last = start + (size - 1) * stride
            if start >= extent or not 0 <= last < extent:
                raise ProblemError(
                    f"dim {dim} has {extent} elements, and the slice goes from {start} to {last}",
                    where="start" if start >= extent else "size",
                    cure="stay inside",
                )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng)
        starts, sizes, strides = [], [], []
        for extent in shape:
            stride, start = rng.choice((1, 1, 2, 3, -1, -2)), rng.randrange(extent)
            room = (extent - 1 - start) // stride if stride > 0 else start // -stride
            starts.append(start)
            sizes.append(rng.randint(1, room + 1))
            strides.append(stride)
        return cls(shape, tuple(starts), tuple(sizes), tuple(strides))

    def smallest(self) -> Self:
        ones = (1,) * len(self.shape)
        return replace(self, shape=ones, start=(0,) * len(ones), size=ones, stride=ones)

    @property
    def made(self) -> Shape:
        return self.size

    def moved(self, src: Array) -> Array:
        every = zip(self.start, self.size, self.stride, strict=True)
        return src[np.ix_(*(start + np.arange(size) * step for start, size, step in every))]

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        if min(self.stride) < 1:
            raise UnsupportedError("PyTorch's slices run forward")
        every = zip(self.start, self.size, self.stride, strict=True)
        index = tuple(slice(b, b + (size - 1) * step + 1, step) for b, size, step in every)
        return lambda: arrays["dst"].copy_(arrays["src"][index])


@dataclass(frozen=True)
class TileProblem(Move):
    """``dst[i] = src[i % size]``: copies side by side."""

    repeats: Numbers = ()
    name: str = ""

    driver: ClassVar[str] = "tile"
    example: ClassVar[str] = "4x5:2x3"
    parts: ClassVar[tuple[Part, ...]] = (Part("shape"), Part("repeats"))

    def _complete(self) -> None:
        self.same_length("shape", "repeats")

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng, 1, 3)
        return cls(shape, tuple(rng.choice((1, 1, 2, 3)) for _ in shape))

    def smallest(self) -> Self:
        ones = (1,) * len(self.shape)
        return replace(self, shape=ones, repeats=ones)

    @property
    def made(self) -> Shape:
        return tuple(n * times for n, times in zip(self.shape, self.repeats, strict=True))

    def moved(self, src: Array) -> Array:
        return np.tile(src, self.repeats)

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        return lambda: torch.tile(arrays["src"], self.repeats)


@dataclass(frozen=True)
class TransposeProblem(Move):
    """Dims in another order: dim ``i`` of ``dst`` is dim ``order[i]`` of ``src``."""

    order: Numbers = ()
    name: str = ""

    driver: ClassVar[str] = "transpose"
    example: ClassVar[str] = "2x3x4:2x0x1"
    parts: ClassVar[tuple[Part, ...]] = (Part("shape"), Part("order", 0))

    def _complete(self) -> None:
        if sorted(self.order) != list(range(len(self.shape))):
            raise ProblemError(
                f"{self.order} is no order of {len(self.shape)} dims",
                where="order",
                cure="name each dim once, from 0 on",
            )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng)
        return cls(shape, tuple(rng.sample(range(len(shape)), len(shape))))

    @property
    def made(self) -> Shape:
        return tuple(self.shape[dim] for dim in self.order)

    def moved(self, src: Array) -> Array:
        return np.transpose(src, self.order)

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        return lambda: arrays["dst"].copy_(arrays["src"].permute(self.order))


@dataclass(frozen=True)
class ConcatProblem(Record):
    """Tensors one after the other along ``axis``: ``src0``, ``src1``, and so on."""

    sources: tuple[Shape, ...]
    axis: int = 1
    name: str = ""

    driver: ClassVar[str] = "concat"
    example: ClassVar[str] = "2x3x4:2x5x4"
    finished: ClassVar[bool] = True
    knobs: ClassVar[tuple[str, ...]] = ("axis",)
    work: ClassVar[int] = 0
    most: ClassVar[int] = 64

    def __post_init__(self) -> None:
        sources = self.sources
        if not isinstance(sources, tuple | list) or not sources:
            raise ProblemError(
                "concat has no tensors", where="sources", cure="give a tuple of shapes"
            )
        for shape in sources:
            if not isinstance(shape, tuple | list) or not shape:
                raise ProblemError(
                    f"{short(shape)} is no shape", where="sources", cure="give a tuple of shapes"
                )
        object.__setattr__(self, "sources", tuple(map(tuple, sources)))
        first = self.sources[0]
        object.__setattr__(self, "axis", checked_axis(self.axis, first, self.driver, usual=1))
        self._check_shapes()

    def check(self, types: Mapping[str, DType], direction: Direction) -> None:
        """Shapes differ along the axis only, which an option may say behind the descriptor."""
        super().check(types, direction)
        first = self.sources[0]
        for number, shape in enumerate(self.sources):
            if len(shape) != len(first) or any(
                a != b for i, (a, b) in enumerate(zip(shape, first, strict=True)) if i != self.axis
            ):
                raise ProblemError(
                    f"src{number} is {shape}, and src0 {first}",
                    where=f"src{number}",
                    why=f"they are joined along dim {self.axis}",
                    cure="make all other dims equal",
                )

    @classmethod
    def parse(cls, text: str) -> Self:
        count = min(text.count(":") + 1, cls.most)
        parsed = parse_shapes(text, tuple(f"src{i}" for i in range(count)))
        return cls(tuple(tensor.sizes for tensor in parsed.tensors), name=parsed.name)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng)
        axis = rng.randrange(len(shape))
        sizes = [rng.choice((1, 2, 3, 8, 9)) for _ in range(rng.randint(1, 4))]
        return cls(tuple((*shape[:axis], n, *shape[axis + 1 :]) for n in sizes), axis)

    def descriptor(self) -> str:
        return join(*self.sources) + name_suffix(self.name)

    def smallest(self) -> Self:
        ones = (1,) * len(self.sources[0])
        return replace(self, sources=(ones,) * len(self.sources))

    def with_mb(self, mb: int) -> Self:
        sources = tuple((mb, *shape[1:]) for shape in self.sources)
        return self.changed(sources=sources)

    @property
    def made(self) -> Shape:
        """The shape of the result."""
        whole = sum(shape[self.axis] for shape in self.sources if len(shape) > self.axis)
        first = self.sources[0]
        return (*first[: self.axis], whole, *first[self.axis + 1 :])

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        generator = (Slot(f"src{i}", s, "in", "src") for i, s in enumerate(self.sources))
        return (*generator, Slot("dst", self.made, "out", "dst"))

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        parts = [arrays[f"src{i}"] for i in range(len(self.sources))]
        return {"dst": Answer(np.concatenate(parts, self.axis))}

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        parts = [arrays[f"src{i}"] for i in range(len(self.sources))]
        return lambda: torch.cat(parts, self.axis, out=arrays["dst"])
