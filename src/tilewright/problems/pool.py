"""Pooling in one, two or three dims: a reduction over sliding windows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from tilewright.problems.descriptor import tokenize, write
from tilewright.problems.problem import Problem, Shape, check_minibatch, name_suffix
from tilewright.problems.window import (
    AXES,
    SPATIAL_KEYS,
    Window,
    check_window_fields,
    deduce_windows,
    describe,
    window_fields,
    windows_of,
)

KEYS = ("mb", "ic", *SPATIAL_KEYS)


@dataclass(frozen=True, slots=True)
class PoolProblem(Problem):
    """A pooling's sizes; the algorithm (max, average) is a knob.

    ``mb`` images of ``ic`` channels; tuples hold one number per spatial dim, from d to w, in
    elements, and mean what they mean in a convolution.

    Raises `ProblemError` when the numbers contradict each other.
    """

    driver: ClassVar[str] = "pool"

    mb: int
    ic: int
    src_size: Shape
    kernel: Shape
    dst_size: Shape
    stride: Shape
    dilation: Shape
    pad_l: Shape
    pad_r: Shape
    name: str = ""

    def __post_init__(self) -> None:
        check_window_fields(self)
        self._check_sizes(
            mb=self.mb,
            ic=self.ic,
            src_size=self.src_size,
            kernel=self.kernel,
            dst_size=self.dst_size,
            stride=self.stride,
        )

    @property
    def ndims(self) -> int:
        """Spatial dims: 1, 2 or 3."""
        return len(self.kernel)

    @property
    def spatial_names(self) -> tuple[str, ...]:
        """``("h", "w")`` for 2D."""
        return tuple(AXES[-self.ndims :])

    @property
    def windows(self) -> tuple[Window, ...]:
        """One sliding window per spatial dim."""
        return windows_of(self)

    @property
    def src_shape(self) -> Shape:
        """``(mb, ic, *spatial)``."""
        return (self.mb, self.ic, *self.src_size)

    @property
    def dst_shape(self) -> Shape:
        """``(mb, ic, *spatial)``."""
        return (self.mb, self.ic, *self.dst_size)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Logical shapes of ``src`` and ``dst``."""
        return {"src": self.src_shape, "dst": self.dst_shape}

    @property
    def has_empty_windows(self) -> bool:
        """Whether some output reads padding only: a maximum or average of nothing."""
        return any(window.empty_outputs for window in self.windows)

    @property
    def nominal_flops(self) -> int:
        """One operation per element of a window, padding counted."""
        return self.mb * self.ic * math.prod(self.dst_size) * math.prod(self.kernel)

    @property
    def valid_flops(self) -> int:
        """One operation per element of a window that is not padding."""
        return self.mb * self.ic * math.prod(window.valid_taps for window in self.windows)

    def with_mb(self, mb: int) -> Self:
        """The same pooling of ``mb`` images."""
        check_minibatch(mb)
        return replace(self, mb=mb)

    def descriptor(self) -> str:
        """The shortest benchdnn descriptor that parses back to this problem."""
        part = describe(self.windows)
        batch = f"mb{self.mb}" if self.mb != 2 else ""
        tail = "".join(part(letter) for letter in "iokspd")
        return f"{batch}ic{self.ic}{tail}{name_suffix(self.name)}"


def parse_pool(text: str) -> PoolProblem:
    """The pooling that a benchdnn descriptor asks for, ``ic64ih112kh3sh2ph1``.

    Raises `ProblemError`, with the place in ``text``, for anything malformed or impossible.
    """
    fields = tokenize(text, KEYS)
    fields.refuse_zeros(("mb", "ic"))
    ic = fields.require("ic", "the number of channels")
    windows = deduce_windows(fields)
    return PoolProblem(mb=fields.get("mb") or 2, ic=ic, **window_fields(windows), name=fields.name)


def pool_from_sizes(name: str = "", /, **sizes: int) -> PoolProblem:
    """The pooling with the given sizes by benchdnn's keys; see `conv_from_sizes`."""
    return parse_pool(write(KEYS, sizes, name))
