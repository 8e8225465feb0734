"""Matrix multiplication, batched, with broadcast batch dims."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import ClassVar, Self

from tilewright.errors import ProblemError
from tilewright.problems.knobs import Direction
from tilewright.problems.problem import Problem, Shape, name_suffix, no_minibatch
from tilewright.problems.shapes import TensorText, check_same_dims, join, parse_shapes


@dataclass(frozen=True, slots=True)
class MatmulProblem(Problem):
    """``dst[b, m, n] = sum over k of src[b, m, k] * weights[b, k, n]``.

    ``batch_src`` and ``batch_wei`` are the leading dims, equally many; a 1 is broadcast.

    Raises `ProblemError` when they contradict each other.
    """

    driver: ClassVar[str] = "matmul"
    roles: ClassVar[tuple[str, ...]] = ("src", "weights", "dst")
    directions: ClassVar[tuple[Direction, ...]] = (Direction.FWD_D, Direction.FWD_B)

    batch_src: Shape
    batch_wei: Shape
    m: int
    k: int
    n: int
    name: str = ""

    def __post_init__(self) -> None:
        if len(self.batch_src) != len(self.batch_wei) or any(
            1 not in pair and pair[0] != pair[1]
            for pair in zip(self.batch_src, self.batch_wei, strict=True)
        ):
            raise ProblemError(
                f"batch dims {self.batch_src} and {self.batch_wei} do not match",
                where="batch_wei",
                cure="make them equal, or 1 where one is broadcast",
            )
        self._check_fields(
            batch_src=self.batch_src, batch_wei=self.batch_wei, m=self.m, k=self.k, n=self.n
        )

    @property
    def batch(self) -> Shape:
        """The leading dims of ``dst``."""
        return tuple(map(max, self.batch_src, self.batch_wei))

    @property
    def src_shape(self) -> Shape:
        """``(*batch_src, m, k)``."""
        return (*self.batch_src, self.m, self.k)

    @property
    def weights_shape(self) -> Shape:
        """``(*batch_wei, k, n)``."""
        return (*self.batch_wei, self.k, self.n)

    @property
    def dst_shape(self) -> Shape:
        """``(*batch, m, n)``."""
        return (*self.batch, self.m, self.n)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Logical shapes of ``src``, ``weights`` and ``dst`` (the bias has ``(n,)``)."""
        return {"src": self.src_shape, "weights": self.weights_shape, "dst": self.dst_shape}

    @property
    def nominal_flops(self) -> int:
        """Twice the multiply-adds."""
        return 2 * math.prod(self.batch) * self.m * self.n * self.k

    def with_mb(self, mb: int) -> Self:
        """Always raises `ProblemError`: no dim of a matmul is a minibatch."""
        raise no_minibatch(self.driver)

    def descriptor(self) -> str:
        """The benchdnn descriptor that parses back to this problem, ``2x3x4:2x4x5``."""
        return join(self.src_shape, self.weights_shape) + name_suffix(self.name)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The matmul that ``MxK:KxN`` asks for; leading dims are the batch, ``:MxN`` may follow.

        Raises `ProblemError`, with the place in ``text``, for anything malformed or impossible.
        """
        parsed = parse_shapes(text, ("MxK", "KxN", "MxN"), optional=1)
        src, weights = parsed.tensors[:2]
        for tensor in parsed.tensors:
            if len(tensor.sizes) < 2:
                raise ProblemError(
                    "a matrix has at least two dims",
                    where=tensor.piece.span,
                    cure="write a vector as a matrix with one row or column, such as 1x8:8x4",
                )
            check_same_dims(src, tensor)
        if src.sizes[-1] != weights.sizes[-2]:
            raise ProblemError(
                f"src has K = {src.sizes[-1]} and the weights have K = {weights.sizes[-2]}",
                where=weights.places[-2],
                why="the form is MxK:KxN",
                cure=f"write {src.sizes[-1]} here, or change the last size of src",
            )
        _check_batch(src, weights)
        problem = cls(
            batch_src=src.sizes[:-2],
            batch_wei=weights.sizes[:-2],
            m=src.sizes[-2],
            k=src.sizes[-1],
            n=weights.sizes[-1],
            name=parsed.name,
        )
        for dst in parsed.tensors[2:]:
            for actual, size, place in zip(dst.sizes, problem.dst_shape, dst.places, strict=True):
                if actual != size:
                    raise ProblemError(
                        f"dst has {actual} where src and weights give {size}",
                        where=place,
                        cure="leave dst out: it is deduced",
                    )
        return problem

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """A random problem, small enough for the interpreter."""
        batch = tuple(rng.choice((1, 2, 3)) for _ in range(rng.choice((0, 0, 0, 1, 2))))
        src, wei = (tuple(rng.choice((size, size, 1)) for size in batch) for _ in range(2))
        m, k, n = (rng.choice((1, 2, 3, 7, 8, 16, 17, 31, 32, 48, 65)) for _ in range(3))
        return cls(src, wei, m, k, n)

    def smallest(self) -> Self:
        """A row times 16 columns."""
        batch = (1,) * len(self.batch)
        return self.changed(batch_src=batch, batch_wei=batch, m=1, k=16, n=16)


def _check_batch(src: TensorText, weights: TensorText) -> None:
    for ours, theirs, place in zip(
        src.sizes[:-2], weights.sizes[:-2], weights.places[:-2], strict=True
    ):
        if ours != theirs and 1 not in (ours, theirs):
            raise ProblemError(
                f"batch dims {ours} and {theirs} do not match",
                where=place,
                why="batch dims are equal, or one of them is 1 and broadcast",
                cure=f"write {ours} or 1 here",
            )
