"""Channels of images in another order: blocks of pixels, groups."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.library.lists import Numbers, Part
from tilewright.problems.library.moves import Move
from tilewright.problems.library.record import Slot
from tilewright.problems.problem import Answer, Array, Shape


@dataclass(frozen=True)
class PixelsProblem(Move):
    """Blocks of pixels to channels, and back: images (N, C, H, W) with, or of, blocks of ``block``
    squared. The descriptor's shape is that of the tensor with less channels, on either way."""

    block: Numbers = ()
    algorithm: str = "pixel_unshuffle"
    name: str = ""

    driver: ClassVar[str] = "pixels"
    example: ClassVar[str] = "2x3x4x6:2"
    parts: ClassVar[tuple[Part, ...]] = (Part("shape"), Part("block"))
    knobs: ClassVar[tuple[str, ...]] = ("alg",)
    algorithms: ClassVar[tuple[str, ...]] = (
        *("pixel_unshuffle", "pixel_shuffle"),
        *("space_to_depth", "depth_to_space"),
    )

    @property
    def deepens(self) -> bool:
        """Whether pixels become channels."""
        return self.algorithm in ("pixel_unshuffle", "space_to_depth")

    @property
    def blocks_first(self) -> bool:
        """Whether the place in a block is the slowest part of a channel's number."""
        return self.algorithm in ("space_to_depth", "depth_to_space")

    def _complete(self) -> None:
        if len(self.shape) != 4 or len(self.block) != 1:
            raise ProblemError(
                "pixels takes images of four dims and one size of blocks",
                where="shape",
                cure=f"write {self.example}",
            )
        if self.shape[2] % self.block[0] or self.shape[3] % self.block[0]:
            raise ProblemError(
                f"blocks of {self.block[0]} do not divide {self.shape}",
                where="block",
                cure="choose a divisor of height and width",
            )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        b = rng.choice((1, 2, 3))
        n, c, h, w = (rng.choice((1, 2, 3, 5)) for _ in range(4))
        return cls((n, c, h * b, w * b), (b,), rng.choice(cls.algorithms))

    def smallest(self) -> Self:
        return replace(self, shape=(1, 1, 1, 1), block=(1,))

    @property
    def _deep(self) -> Shape:
        b, (n, c, h, w) = self.block[0], self.shape
        return n, c * b * b, h // b, w // b

    @property
    def made(self) -> Shape:
        return self._deep if self.deepens else self.shape

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        src = self.shape if self.deepens else self._deep
        return Slot("src", src, "in", "src"), Slot("dst", self.made, "out", "dst")

    def moved(self, src: Array) -> Array:
        b, (n, c, h, w) = self.block[0], self.shape
        if self.deepens:
            split = src.reshape(n, c, h // b, b, w // b, b)
            order = (0, 3, 5, 1, 2, 4) if self.blocks_first else (0, 1, 3, 5, 2, 4)
        elif self.blocks_first:
            split, order = src.reshape(n, b, b, c, h // b, w // b), (0, 3, 4, 1, 5, 2)
        else:
            split, order = src.reshape(n, c, b, b, h // b, w // b), (0, 1, 4, 2, 5, 3)
        return split.transpose(order).reshape(self.made)

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        if self.blocks_first:
            raise UnsupportedError("PyTorch has channels outside of blocks")
        run = getattr(torch.nn.functional, self.algorithm)
        return lambda: run(arrays["src"], self.block[0])


@dataclass(frozen=True)
class ShuffleProblem(Move):
    """The dim ``axis``, seen as a matrix with rows of ``group`` elements, transposed. Backward: the
    other way. Source: oneDNN's developer guide, "Shuffle"."""

    axis: int = 1
    group: int = 1
    name: str = ""

    driver: ClassVar[str] = "shuffle"
    example: ClassVar[str] = "2x12x5"
    knobs: ClassVar[tuple[str, ...]] = ("axis", "group")
    directions: ClassVar[tuple[Direction, ...]] = (Direction.FWD_D, Direction.BWD_D)
    usual_axis: ClassVar[int] = 1

    def _check_shapes(self) -> None:
        super()._check_shapes()
        if type(self.group) is not int or self.group < 1:
            raise ProblemError("a group has one element at least", where="group")

    def check(self, types: Mapping[str, DType], direction: Direction) -> None:
        super().check(types, direction)
        if self.shape[self.axis] % self.group:
            raise ProblemError(
                f"groups of {self.group} do not divide {self.shape[self.axis]}",
                where="group",
                cure="choose a divisor",
            )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = list(shape_of(rng))
        axis, group = rng.randrange(len(shape)), rng.choice((1, 2, 3, 4))
        shape[axis] = group * rng.choice((1, 2, 3, 5))
        return cls(tuple(shape), axis, group)

    def smallest(self) -> Self:
        return replace(self, shape=(1,) * len(self.shape), group=1)

    @property
    def made(self) -> Shape:
        return self.shape

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        if direction.is_forward:
            return super().slots(direction)
        back = Slot("diff_dst", self.shape, "in", "dst")
        return back, Slot("diff_src", self.shape, "out", "src")

    def moved(self, src: Array) -> Array:
        return self._shuffled(src, self.group)

    def _shuffled(self, src: Array, group: int) -> Array:
        front, rest = self.shape[: self.axis], self.shape[self.axis + 1 :]
        rows = self.shape[self.axis] // group
        split = src.reshape(*front, rows, group, *rest)
        return np.swapaxes(split, self.axis, self.axis + 1).reshape(self.shape)

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        if direction.is_forward:
            return super().answers(arrays, direction)
        back = self._shuffled(arrays["diff_dst"], self.shape[self.axis] // self.group)
        return {"diff_src": Answer(back)}

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        if self.axis != 1 or len(self.shape) < 3 or not direction.is_forward:
            raise UnsupportedError("PyTorch shuffles channels of images")
        rows = self.shape[1] // self.group
        return lambda: torch.nn.functional.channel_shuffle(arrays["src"], rows)
