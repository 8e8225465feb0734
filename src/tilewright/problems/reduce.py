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
from tilewright.problems.numbers import real_number
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
# A norm is the sum of ``|src|^p``, which ``eps`` is the least of or is added to; without
# ``power_p`` its p-th root.
NORMS = ("norm_lp_max", "norm_lp_sum", "norm_lp_power_p_max", "norm_lp_power_p_sum")
# What powers are off, in roundings.
_UNITS = 16
_PEERS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}


@dataclass(frozen=True, slots=True)
class ReduceProblem(Problem):
    """``src`` reduced to ``dst``, along the dims that are 1 in ``dst`` only.

    Raises `ProblemError` unless every dim of ``dst`` is that of ``src`` or 1, and one at least is
    reduced.
    """

    driver: ClassVar[str] = "reduce"
    knobs: ClassVar[tuple[str, ...]] = ("alg", "p", "eps")
    algorithms: ClassVar[tuple[str, ...]] = ("sum", "max", "min", "mul", "mean", *NORMS)

    src_shape: Shape
    dst_shape: Shape
    name: str = ""
    algorithm: str = "sum"
    p: float = 1.0
    eps: float = 0.0

    def __post_init__(self) -> None:
        if len(self.src_shape) != len(self.dst_shape) or not all(
            d in (1, s) for s, d in zip(self.src_shape, self.dst_shape, strict=True)
        ):
            raise ProblemError(
                f"{self.src_shape} does not reduce to {self.dst_shape}",
                where="dst_shape",
                cure="give each dim of dst the size of src, or 1 where it is reduced",
            )
        object.__setattr__(self, "p", real_number(self.p, "p", "p", finite=True))
        object.__setattr__(self, "eps", real_number(self.eps, "eps", "eps", finite=True))
        if self.p < 1 or self.eps < 0:
            raise ProblemError(
                f"a norm with p={self.p} and eps={self.eps}",
                where="p" if self.p < 1 else "eps",
                cure="choose p of 1 or more, and eps of 0 or more",
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
    def is_norm(self) -> bool:
        """Whether powers are summed."""
        return self.algorithm in NORMS

    def with_norm(self, p: float | None, eps: float | None) -> Self:
        """The norm with these numbers (None: as they are). Raises `ProblemError` for another
        reduction."""
        said = {"p": p, "eps": eps}
        numbers = {name: number for name, number in said.items() if number is not None}
        return self._norm(next(iter(numbers), "p")).changed(**numbers)

    def with_option(self, name: str, text: str) -> Self:
        """Raises `ProblemError` for numbers of a norm where there is none."""
        problem = self if name == "alg" else self._norm(name)
        return super(ReduceProblem, problem).with_option(name, text)

    def _norm(self, knob: str) -> Self:
        if not self.is_norm:
            raise ProblemError(
                f"reduce {self.algorithm} takes no --{knob}",
                where=f"--{knob}",
                cure=f"leave it out, or choose --alg of {', '.join(NORMS)}",
            )
        return self

    def settings(self) -> dict[str, str]:
        """What options say of the problem, by their names."""
        norm = {"p": f"{self.p:g}", "eps": f"{self.eps:g}"} if self.is_norm else {}
        return {"alg": self.algorithm} | norm

    @property
    def shapes(self) -> dict[str, Shape]:
        """Logical shapes of ``src`` and ``dst``."""
        return {"src": self.src_shape, "dst": self.dst_shape}

    @property
    def nominal_flops(self) -> int:
        """One operation per element of ``src``."""
        return math.prod(self.src_shape)

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
        for size, reduced, place in zip(src.sizes, dst.sizes, dst.places, strict=True):
            if reduced not in (1, size):
                raise ProblemError(
                    f"dst has {reduced} where src has {size}",
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
        algorithm = rng.choice((*cls.algorithms[: -len(NORMS)], rng.choice(NORMS)))
        if algorithm not in NORMS:
            return cls(shape, kept, algorithm=algorithm)
        p, eps = rng.choice((1.0, 2.0, 2.0, 3.0, 2.5)), rng.choice((0.0, 0.5, 1.0))
        return cls(shape, kept, algorithm=algorithm, p=p, eps=eps)

    def smallest(self) -> Self:
        """Two elements along the first dim that is reduced."""
        first, rank = self.reduced_dims[0], len(self.src_shape)
        src = tuple(2 if dim == first else 1 for dim in range(rank))
        return self.changed(src_shape=src, dst_shape=(1,) * rank)

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        """What ``dst`` is, of ``src`` in float64."""

        def reduced(array: Array) -> Array:
            function = _REFERENCES[self.algorithm]
            return function(array, axis=self.reduced_dims, keepdims=True)

        src = arrays["src"]
        if self.is_norm:
            total = (np.abs(src) ** self.p).sum(axis=self.reduced_dims, keepdims=True)
            least = self.algorithm.endswith("max")
            total = np.maximum(total, self.eps) if least else total + self.eps
            value = total if "power" in self.algorithm else total ** (1 / self.p)
            return {"dst": Answer(value, value, src.size // max(1, value.size) + 2 * _UNITS)}
        value, size = reduced(src), reduced(np.abs(src))
        if self.algorithm in ("max", "min"):
            return {"dst": Answer(value)}
        terms = math.prod(src.shape[axis] for axis in self.reduced_dims)
        # A mean is a sum that is divided, or multiplied by the rounded inverse.
        last = 3 if self.algorithm == "mean" else 0
        return {"dst": Answer(value, size, terms, last, summed=True)}

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        """PyTorch's reduction, of floats."""
        name = _PEERS.get(self.algorithm)
        if name is None:
            raise UnsupportedError(f"PyTorch has no reduction {self.algorithm}")
        src = arrays["src"]
        if not src.is_floating_point():
            raise UnsupportedError("PyTorch sums integers in another type")
        return partial(getattr(torch, name), src, list(self.reduced_dims), True, out=arrays["dst"])
