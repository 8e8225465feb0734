"""A function of one argument, applied to every element of a tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from tilewright.problems.problem import Problem, Shape, check_minibatch, name_suffix
from tilewright.problems.shapes import join, parse_shapes


@dataclass(frozen=True, slots=True)
class EltwiseProblem(Problem):
    """``dst = f(src)`` of the given shape; the function is a knob."""

    driver: ClassVar[str] = "eltwise"

    shape: Shape
    name: str = ""

    def __post_init__(self) -> None:
        self._check_sizes(shape=self.shape)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Logical shapes of ``src`` and ``dst``."""
        return {"src": self.shape, "dst": self.shape}

    @property
    def nominal_flops(self) -> int:
        """One operation per element."""
        return math.prod(self.shape)

    @property
    def valid_flops(self) -> int:
        """One operation per element."""
        return self.nominal_flops

    def with_mb(self, mb: int) -> Self:
        """The same with ``mb`` as the first dim."""
        check_minibatch(mb)
        return replace(self, shape=(mb, *self.shape[1:]))

    def descriptor(self) -> str:
        """The benchdnn descriptor that parses back to this problem, ``2x3x4``."""
        return join(self.shape) + name_suffix(self.name)


def parse_eltwise(text: str) -> EltwiseProblem:
    """The elementwise problem that ``AxBxC`` asks for.

    Raises `ProblemError`, with the place in ``text``, for anything malformed.
    """
    parsed = parse_shapes(text, ("src",))
    return EltwiseProblem(parsed.tensors[0].sizes, parsed.name)
