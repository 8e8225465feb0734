"""Elementwise problems: a function of one tensor, a copy, and a function of two with broadcast."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from tilewright.errors import ProblemError, UnsupportedError
from tilewright.problems.binary_functions import BINARY_FUNCTIONS, BINARY_RECORDS
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.post_ops import Unary, parse_unary
from tilewright.problems.problem import Problem, Shape, check_minibatch, name_suffix
from tilewright.problems.shapes import join, parse_shapes
from tilewright.problems.slopes import SLOPES

# The function of two tensors that a third one chooses from.
SELECT = "select"


@dataclass(frozen=True, slots=True)
class ShapeProblem(Problem):
    """What is said of one shape: that of ``src`` and ``dst``."""

    shape: Shape
    name: str = ""

    def __post_init__(self) -> None:
        self._check_fields(shape=self.shape)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Logical shapes of ``src`` and ``dst``."""
        return {"src": self.shape, "dst": self.shape}

    @property
    def nominal_flops(self) -> int:
        """One operation per element."""
        return math.prod(self.shape)

    def descriptor(self) -> str:
        """The benchdnn descriptor that parses back to this problem, ``2x3x4``."""
        return join(self.shape) + name_suffix(self.name)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The problem that ``AxBxC`` asks for.

        Raises `ProblemError`, with the place in ``text``, for anything malformed.
        """
        parsed = parse_shapes(text, ("src",))
        return cls(parsed.tensors[0].sizes, parsed.name)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """A random problem, small enough for the interpreter."""
        return cls(shape_of(rng, 1, 5))


@dataclass(frozen=True, slots=True)
class EltwiseProblem(ShapeProblem):
    """``dst = f(src)``; the algorithm is a function with its parameters, ``elu:0.5``."""

    driver: ClassVar[str] = "eltwise"
    directions: ClassVar[tuple[Direction, ...]] = (Direction.FWD_D, Direction.BWD_D)
    knobs: ClassVar[tuple[str, ...]] = ("alg",)

    algorithm: str = "relu"

    @property
    def function(self) -> Unary:
        """The function that the algorithm names."""
        return parse_unary(self.algorithm)

    def check_direction(self, direction: Direction) -> None:
        """Raises `UnsupportedError` for a gradient of a function without derivative here."""
        super(EltwiseProblem, self).check_direction(direction)
        if not direction.is_forward and self.function.function not in SLOPES:
            raise UnsupportedError(
                f"eltwise {self.function.function} has no gradient",
                cure="choose one of " + ", ".join(SLOPES),
            )

    def _check_algorithm(self) -> None:
        super(EltwiseProblem, self)._check_algorithm()
        parse_unary(self.algorithm)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """A random problem, small enough for the interpreter."""
        return cls(shape_of(rng, 1, 5), algorithm=Unary.drawn(rng).describe())

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        """PyTorch's function."""
        function = self.function.peer(torch) if direction.is_forward else None
        if function is None:
            raise UnsupportedError(f"PyTorch has no {self.algorithm}")
        return partial(function, arrays["src"], arrays["dst"])


@dataclass(frozen=True, slots=True)
class ReorderProblem(ShapeProblem):
    """``dst = src``; types and layouts are knobs."""

    driver: ClassVar[str] = "reorder"

    @property
    def nominal_flops(self) -> int:
        """0: a copy computes nothing, it is measured in bytes."""
        return 0

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        """PyTorch's copy."""
        return partial(arrays["dst"].copy_, arrays["src"])


@dataclass(frozen=True, slots=True)
class BinaryProblem(Problem):
    """``dst = f(src0, src1)``; a dim of 1 is broadcast. ``select``: src0 where src2, of the shape
    of dst, is not 0, else src1.

    Both shapes have the same number of dims. Raises `ProblemError` when they do not match.
    """

    driver: ClassVar[str] = "binary"
    roles: ClassVar[tuple[str, ...]] = ("src0", "src1", "dst")
    knobs: ClassVar[tuple[str, ...]] = ("alg",)
    algorithms: ClassVar[tuple[str, ...]] = (*BINARY_FUNCTIONS, SELECT)

    src0_shape: Shape
    src1_shape: Shape
    name: str = ""
    algorithm: str = "add"

    def __post_init__(self) -> None:
        if len(self.src0_shape) != len(self.src1_shape) or any(
            1 not in pair and pair[0] != pair[1]
            for pair in zip(self.src0_shape, self.src1_shape, strict=True)
        ):
            raise ProblemError(
                f"{self.src0_shape} and {self.src1_shape} do not broadcast",
                where="src1_shape",
                cure="make the dims equal, or 1 where one is broadcast",
            )
        self._check_fields(src0_shape=self.src0_shape, src1_shape=self.src1_shape)

    @property
    def dst_shape(self) -> Shape:
        """The larger of the two in each dim."""
        return tuple(map(max, self.src0_shape, self.src1_shape))

    @property
    def shapes(self) -> dict[str, Shape]:
        """Logical shapes of ``src0``, ``src1``, of a selection the condition ``src2``, ``dst``."""
        sources = {"src0": self.src0_shape, "src1": self.src1_shape}
        if self.algorithm == SELECT:
            sources["src2"] = self.dst_shape
        return sources | {"dst": self.dst_shape}

    @property
    def nominal_flops(self) -> int:
        """One operation per element of ``dst``."""
        return math.prod(self.dst_shape)

    def with_mb(self, mb: int) -> Self:
        """The same with ``mb`` as the first dim of ``dst``, and of the sources not broadcast."""
        check_minibatch(mb)
        size = self.dst_shape[0]
        src0, src1 = (
            (mb, *shape[1:]) if shape[0] == size else shape
            for shape in (self.src0_shape, self.src1_shape)
        )
        return self.changed(src0_shape=src0, src1_shape=src1)

    def descriptor(self) -> str:
        """The shortest benchdnn descriptor that parses back to this problem, ``2x3x4:2x3``."""
        src1 = self.src1_shape
        while len(src1) > 1 and src1[-1] == 1:
            src1 = src1[:-1]
        return join(self.src0_shape, src1) + name_suffix(self.name)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The binary problem that ``AxBxC:AxBx1`` asks for; dims that src1 lacks at its end are 1.

        Raises `ProblemError`, with the place in ``text``, for anything malformed or impossible.
        """
        parsed = parse_shapes(text, ("src0", "src1"))
        src0, src1 = parsed.tensors
        if len(src1.sizes) > len(src0.sizes):
            raise ProblemError(
                f"src1 has {len(src1.sizes)} dims and src0 only {len(src0.sizes)}",
                where=src1.piece.span,
                cure="give src0 as many dims; a dim that is broadcast is 1",
            )
        for ours, theirs, place in zip(src0.sizes, src1.sizes, src1.places, strict=False):
            if ours != theirs and 1 not in (ours, theirs):
                raise ProblemError(
                    f"src1 has {theirs} where src0 has {ours}",
                    where=place,
                    why="dims are equal, or one of them is 1 and broadcast",
                    cure=f"write {ours} or 1 here",
                )
        padding = (1,) * (len(src0.sizes) - len(src1.sizes))
        return cls(src0.sizes, src1.sizes + padding, parsed.name)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """A random problem, small enough for the interpreter."""
        shape = shape_of(rng, 1, 5)
        src0, src1 = (tuple(rng.choice((size, size, 1)) for size in shape) for _ in range(2))
        return cls(src0, src1, algorithm=rng.choice(cls.algorithms))

    def smallest(self) -> Self:
        """The same of one element."""
        ones = (1,) * len(self.src0_shape)
        return self.changed(src0_shape=ones, src1_shape=ones)

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        """PyTorch's function."""
        if self.algorithm == SELECT:
            condition = arrays["src2"] != 0
            return partial(
                torch.where, condition, arrays["src0"], arrays["src1"], out=arrays["dst"]
            )
        run = getattr(torch, BINARY_RECORDS[self.algorithm].peer)
        return partial(run, arrays["src0"], arrays["src1"], out=arrays["dst"])
