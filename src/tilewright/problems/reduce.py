"""Reduction of a tensor along some of its dims."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.errors import ProblemError, UnsupportedError
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.problem import Answer, Array, Problem, Shape, check_minibatch, name_suffix
from tilewright.problems.shapes import check_same_dims, join, parse_shapes

# numpy's functions, and PyTorch's names.
_REFERENCES: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "mul": np.prod,
}
_PEERS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}


@dataclass(frozen=True, slots=True)
class ReduceProblem(Problem):
    """``src`` reduced to ``dst``, along the dims that are 1 in ``dst`` only.

    Raises `ProblemError` unless every dim of ``dst`` is that of ``src`` or 1, and one at least is
    reduced.
    """

    driver: ClassVar[str] = "reduce"
    knobs: ClassVar[tuple[str, ...]] = ("alg",)
    algorithms: ClassVar[tuple[str, ...]] = ("sum", "max", "min", "mul", "mean")

    src_shape: Shape
    dst_shape: Shape
    name: str = ""
    algorithm: str = "sum"

    def __post_init__(self) -> None:
        if len(self.src_shape) != len(self.dst_shape) or not all(
            d in (1, s) for s, d in zip(self.src_shape, self.dst_shape, strict=True)
        ):
            raise ProblemError(
                f"{self.src_shape} does not reduce to {self.dst_shape}",
                where="dst_shape",
                cure="give each dim of dst the size of src, or 1 where it is reduced",
            )
        self._check_fields(src_shape=self.src_shape, dst_shape=self.dst_shape)
        if not self.reduced_dims:
            raise ProblemError(
                "no dim is reduced",
                where="dst_shape",
                why="src and dst have the same shape",
                cure="write 1 for a dim of dst, or use reorder for a copy",
            )

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        """The dims that the reduction runs over."""
        sizes = zip(self.src_shape, self.dst_shape, strict=True)
        return tuple(dim for dim, (src, dst) in enumerate(sizes) if src != dst)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Logical shapes of ``src`` and ``dst``."""
        return {"src": self.src_shape, "dst": self.dst_shape}

    @property
    def nominal_flops(self) -> int:
        """One operation per element of ``src``."""
        return math.prod(self.src_shape)

    @property
    def valid_flops(self) -> int:
        """One operation per element of ``src``."""
        return self.nominal_flops

    def with_mb(self, mb: int) -> Self:
        """The same with ``mb`` as the first dim of ``src``, and of ``dst`` unless it is reduced."""
        check_minibatch(mb)
        kept = 0 not in self.reduced_dims
        return self.changed(
            src_shape=(mb, *self.src_shape[1:]),
            dst_shape=(mb, *self.dst_shape[1:]) if kept else self.dst_shape,
        )

    def descriptor(self) -> str:
        """The benchdnn descriptor that parses back to this problem, ``2x3x4:2x1x4``."""
        return join(self.src_shape, self.dst_shape) + name_suffix(self.name)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The reduction that ``AxBxC:Ax1xC`` asks for.

        Raises `ProblemError`, with the place in ``text``, for anything malformed or impossible.
        """
        parsed = parse_shapes(text, ("src", "dst"))
        src, dst = parsed.tensors
        check_same_dims(src, dst)
        for size, given, place in zip(src.sizes, dst.sizes, dst.places, strict=True):
            if given not in (1, size):
                raise ProblemError(
                    f"dst has {given} where src has {size}",
                    where=place,
                    why="a dim is kept whole or reduced to 1",
                    cure=f"write {size} or 1 here",
                )
        if src.sizes == dst.sizes:
            raise ProblemError(
                "no dim is reduced",
                where=dst.piece.span,
                why="src and dst have the same shape",
                cure="write 1 for a dim of dst, or use reorder for a copy",
            )
        return cls(src.sizes, dst.sizes, parsed.name)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """A random problem, small enough for the interpreter."""
        shape = shape_of(rng, 1, 5)
        kept = tuple(rng.choice((1, size)) for size in shape)
        return cls(shape, kept, algorithm=rng.choice(cls.algorithms))

    def smallest(self) -> Self:
        """Two elements along the first dim that is reduced."""
        first, rank = self.reduced_dims[0], len(self.src_shape)
        src = tuple(2 if dim == first else 1 for dim in range(rank))
        return self.changed(src_shape=src, dst_shape=(1,) * rank)

    def answers(self, given: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        """What ``dst`` is, of ``src`` in float64."""

        def reduced(array: Array) -> Array:
            function = _REFERENCES[self.algorithm]
            return function(array, axis=self.reduced_dims, keepdims=True)

        src = given["src"]
        value, size = reduced(src), reduced(np.abs(src))
        if self.algorithm in ("max", "min"):
            return {"dst": Answer(value)}
        terms = math.prod(src.shape[axis] for axis in self.reduced_dims)
        # A mean is a sum that is divided, or multiplied by the rounded inverse.
        last = 3 if self.algorithm == "mean" else 0
        return {"dst": Answer(value, size, terms, last, summed=True)}

    def peer(self, torch: Any, given: Mapping[str, Any], direction: Direction) -> Callable[[], Any]:
        """PyTorch's reduction, of floats."""
        name = _PEERS.get(self.algorithm)
        if name is None:
            raise UnsupportedError(f"PyTorch has no reduction {self.algorithm}")
        src = given["src"]
        if not src.is_floating_point():
            raise UnsupportedError("PyTorch sums integers in another type")
        return partial(getattr(torch, name), src, list(self.reduced_dims), True, out=given["dst"])
