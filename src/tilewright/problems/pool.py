"""Pooling in one, two or three dims: a reduction over sliding windows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.errors import UnsupportedError
from tilewright.problems.descriptor import tokenize
from tilewright.problems.draws import CHANNELS
from tilewright.problems.knobs import Direction
from tilewright.problems.problem import Answer, Array, Shape, name_suffix
from tilewright.problems.window import (
    SPATIAL_KEYS,
    WindowProblem,
    check_window_fields,
    deduce_windows,
    describe,
    drawn_sizes,
    window_fields,
)


@dataclass(frozen=True, slots=True)
class PoolProblem(WindowProblem):
    """A pooling's sizes and its algorithm.

    ``mb`` images of ``ic`` channels; tuples hold one number per spatial dim, from d to w, in
    elements, and mean what they mean in a convolution.

    Raises `ProblemError` when the numbers contradict each other.
    """

    driver: ClassVar[str] = "pool"
    keys: ClassVar[tuple[str, ...]] = ("mb", "ic", *SPATIAL_KEYS)
    directions: ClassVar[tuple[Direction, ...]] = (Direction.FWD_D, Direction.BWD_D)
    knobs: ClassVar[tuple[str, ...]] = ("alg",)
    # The maximum, the average of elements, and that of elements and padding.
    algorithms: ClassVar[tuple[str, ...]] = ("max", "avg_np", "avg_p")

    mb: int
    ic: int
    src_size: Shape
    kernel: Shape
    dst_size: Shape
    stride: Shape
    dilation: Shape
    pad_l: Shape
    name: str = ""
    algorithm: str = "max"

    def __post_init__(self) -> None:
        check_window_fields(self)
        self._check_fields(
            mb=self.mb,
            ic=self.ic,
            src_size=self.src_size,
            kernel=self.kernel,
            dst_size=self.dst_size,
            stride=self.stride,
        )

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

    def descriptor(self) -> str:
        """The shortest benchdnn descriptor that parses back to this problem."""
        part = describe(self.windows)
        batch = f"mb{self.mb}" if self.mb != 2 else ""
        tail = "".join(part(letter) for letter in "iokspd")
        return f"{batch}ic{self.ic}{tail}{name_suffix(self.name)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The pooling that a benchdnn descriptor asks for, ``ic64ih112kh3sh2ph1``.

        Raises `ProblemError`, with the place in ``text``, for anything malformed or impossible.
        """
        fields = tokenize(text, cls.keys)
        fields.refuse_zeros(("mb", "ic"))
        ic = fields.require("ic", "the number of channels")
        windows = deduce_windows(fields)
        return cls(mb=fields.get("mb") or 2, ic=ic, **window_fields(windows), name=fields.name)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """A random problem, small enough for the interpreter."""
        sizes = {"mb": rng.choice((1, 2)), "ic": rng.choice(CHANNELS)}
        problem = cls.from_sizes(**sizes, **drawn_sizes(rng))
        return problem.with_alg(rng.choice(cls.algorithms))

    def smallest(self) -> Self:
        """The same of one pixel."""
        return self.from_sizes(mb=1, ic=1, **self.unit_sizes()).with_alg(self.algorithm)

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        """What the result is, of the input in float64: in ``dst``, or backward in ``src``.

        For a window of padding only, the maximum is minus infinity and the average 0.
        """
        if not direction.is_forward:
            return {"src": self._gradient(arrays["dst"])}
        src = arrays["src"]
        if self.algorithm == "max":
            best = np.full(self.dst_shape, -np.inf)
            for _, outputs, elements in self.taps():
                best[outputs] = np.maximum(best[outputs], src[elements])
            return {"dst": Answer(best)}
        value, size = np.zeros(self.dst_shape), np.zeros(self.dst_shape)
        for _, outputs, elements in self.taps():
            value[outputs] += src[elements]
            size[outputs] += np.abs(src[elements])
        count, terms = self._counts(), math.prod(self.kernel)
        # A sum is divided, or multiplied by the rounded inverse.
        return {"dst": Answer(value / count, size / count, terms, last=3, summed=True)}

    def _gradient(self, diff_dst: Array) -> Answer:
        """The sum of the shares that each element has in averages."""
        shares = diff_dst.astype(np.longdouble) / self._counts()
        value, size = (np.zeros(self.src_shape, np.longdouble) for _ in range(2))
        for _, outputs, elements in self.taps():
            value[elements] += shares[outputs]
            size[elements] += np.abs(shares[outputs])
        # Each share is rounded, and each addition.
        return Answer(value, size, math.prod(self.kernel) + 3)

    def _counts(self) -> Array:
        """What the sum of each window is divided by."""
        if self.algorithm == "avg_p":
            return np.full(self.dst_size, math.prod(self.kernel))
        count = np.zeros(self.dst_size)
        for _, outputs, _ in self.taps():
            count[outputs] += 1
        return np.maximum(count, 1)

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        """PyTorch's pooling, in 2D if there is one spatial dim."""
        if not direction.is_forward:
            raise UnsupportedError("PyTorch's side has no gradient of pooling")
        for w in self.windows:
            room = w.size + 2 * w.pad_l - w.reach
            if room < 0 or room // w.stride + 1 != w.out:
                raise UnsupportedError("PyTorch pads both sides of a dim alike")
            if 2 * w.pad_l > w.kernel:
                raise UnsupportedError("PyTorch pads pooling by half a window at most")
        src, flat = arrays["src"], self.ndims == 1
        ones, zeros = ((1,), (0,)) if flat else ((), ())
        sizes = (ones + self.kernel, ones + self.stride, zeros + self.pad_l)
        functions, rank = torch.nn.functional, max(2, self.ndims)
        if self.algorithm == "max":
            dilation = (*ones, *(step + 1 for step in self.dilation))
            run = getattr(functions, f"max_pool{rank}d")
            last: tuple[Any, ...] = (dilation,)
        elif any(self.dilation):
            raise UnsupportedError("PyTorch's average pooling has no dilation")
        else:
            run = getattr(functions, f"avg_pool{rank}d")
            last = (False, self.algorithm == "avg_p")
        call = partial(run, src.unsqueeze(2) if flat else src, *sizes, *last)
        return (lambda: call().squeeze(2)) if flat else call
