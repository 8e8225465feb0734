"""A copy of a tensor into another layout or type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from tilewright.problems.problem import Problem, Shape, check_minibatch, name_suffix
from tilewright.problems.shapes import join, parse_shapes


@dataclass(frozen=True, slots=True)
class ReorderProblem(Problem):
    """``dst = src`` of the given shape; types and layouts are knobs."""

    driver: ClassVar[str] = "reorder"

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
        """0: a copy computes nothing, it is measured in bytes."""
        return 0

    @property
    def valid_flops(self) -> int:
        """0: a copy computes nothing, it is measured in bytes."""
        return 0

    def with_mb(self, mb: int) -> Self:
        """The same with ``mb`` as the first dim."""
        check_minibatch(mb)
        return replace(self, shape=(mb, *self.shape[1:]))

    def descriptor(self) -> str:
        """The benchdnn descriptor that parses back to this problem, ``2x3x4``."""
        return join(self.shape) + name_suffix(self.name)


def parse_reorder(text: str) -> ReorderProblem:
    """The reorder that ``AxBxC`` asks for.

    Raises `ProblemError`, with the place in ``text``, for anything malformed.
    """
    parsed = parse_shapes(text, ("src",))
    return ReorderProblem(parsed.tensors[0].sizes, parsed.name)
