"""Convolution in one, two or three dims, with groups, stride, dilation and padding."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import ClassVar, Self

from tilewright.errors import ProblemError
from tilewright.problems.descriptor import Fields, tokenize
from tilewright.problems.draws import CHANNELS
from tilewright.problems.knobs import Direction
from tilewright.problems.problem import Shape, name_suffix
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
class ConvProblem(WindowProblem):
    """A convolution's sizes, the same for its three directions.

    ``g`` groups; ``mb`` images; ``ic``, ``oc`` channels of all groups together; tuples hold one
    number per spatial dim, from d to w, in elements. Dilation 0 is dense. ``pad_r`` is what the
    output size needs, and negative (down to ``-stride``) where input stays unread at the end.

    Raises `ProblemError` when the numbers contradict each other.
    """

    driver: ClassVar[str] = "conv"
    keys: ClassVar[tuple[str, ...]] = ("g", "mb", "ic", *SPATIAL_KEYS[:3], "oc", *SPATIAL_KEYS[3:])
    roles: ClassVar[tuple[str, ...]] = ("src", "weights", "dst")
    directions: ClassVar[tuple[Direction, ...]] = tuple(Direction)

    g: int
    mb: int
    ic: int
    oc: int
    src_size: Shape
    kernel: Shape
    dst_size: Shape
    stride: Shape
    dilation: Shape
    pad_l: Shape
    name: str = ""

    def __post_init__(self) -> None:
        check_window_fields(self)
        self._check_fields(
            g=self.g,
            mb=self.mb,
            ic=self.ic,
            oc=self.oc,
            src_size=self.src_size,
            kernel=self.kernel,
            dst_size=self.dst_size,
            stride=self.stride,
        )
        for field, channels in (("ic", self.ic), ("oc", self.oc)):
            if channels % self.g:
                raise _indivisible(field, channels, self.g)

    @property
    def weights_shape(self) -> Shape:
        """``(oc, ic, *kernel)``; with groups ``(g, oc / g, ic / g, *kernel)``."""
        if self.g == 1:
            return (self.oc, self.ic, *self.kernel)
        return (self.g, self.oc // self.g, self.ic // self.g, *self.kernel)

    @property
    def dst_shape(self) -> Shape:
        """``(mb, oc, *spatial)``."""
        return (self.mb, self.oc, *self.dst_size)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Logical shapes of ``src``, ``weights`` and ``dst`` (the bias has ``(oc,)``)."""
        return {"src": self.src_shape, "weights": self.weights_shape, "dst": self.dst_shape}

    @property
    def is_depthwise(self) -> bool:
        """Whether each group reads one channel; ``oc / g`` is the channel multiplier."""
        return self.g > 1 and self.ic == self.g

    @property
    def nominal_flops(self) -> int:
        """Twice the multiply-adds, padding taps counted, in any direction."""
        return self._flops(math.prod(self.dst_size) * math.prod(self.kernel))

    @property
    def valid_flops(self) -> int:
        """Twice the multiply-adds that read the input and not padding, in any direction."""
        return self._flops(math.prod(window.valid_taps for window in self.windows))

    def _flops(self, taps: int) -> int:
        return 2 * self.mb * self.oc * (self.ic // self.g) * taps

    def descriptor(self) -> str:
        """The shortest benchdnn descriptor that parses back to this problem."""
        part = describe(self.windows)
        groups = f"g{self.g}" if self.g != 1 else ""
        batch = f"mb{self.mb}" if self.mb != 2 else ""
        tail = "".join(part(letter) for letter in "okspd")
        return f"{groups}{batch}ic{self.ic}{part('i')}oc{self.oc}{tail}{name_suffix(self.name)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The convolution that a benchdnn descriptor asks for, ``ic64ih56oc64kh3ph1``.

        Raises `ProblemError`, with the place in ``text``, for anything malformed or impossible.
        """
        fields = tokenize(text, cls.keys)
        fields.refuse_zeros(("g", "mb", "ic", "oc"))
        g = fields.get("g") or 1
        ic, oc = (fields.require(key, "the number of channels") for key in ("ic", "oc"))
        for key, channels in (("ic", ic), ("oc", oc)):
            if channels % g:
                raise _indivisible(key, channels, g, fields)
        windows = deduce_windows(fields)
        return cls(
            g=g, mb=fields.get("mb") or 2, ic=ic, oc=oc, **window_fields(windows), name=fields.name
        )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """A random problem, small enough for the interpreter."""
        groups = rng.choice((1, 1, 1, 1, 2, 3, 5, 8, 17))
        ic, oc = (rng.choice(CHANNELS) for _ in range(2))
        if groups > 1:
            depthwise = rng.random() < 0.5
            ic = groups if depthwise else groups * rng.choice((2, 3, 4, 8))
            oc = groups * (rng.choice((1, 1, 2, 3)) if depthwise else rng.choice((1, 2, 5, 8)))
        sizes = {"g": groups, "mb": rng.choice((1, 1, 2, 3)), "ic": ic, "oc": oc}
        return cls.from_sizes(**sizes, **drawn_sizes(rng))

    def smallest(self) -> Self:
        """A convolution of 16 channels to 16 of one pixel."""
        return self.from_sizes(mb=1, ic=16, oc=16, **self.unit_sizes())


def _indivisible(key: str, channels: int, g: int, fields: Fields | None = None) -> ProblemError:
    return ProblemError(
        f"{key}{channels} does not divide into g{g} groups",
        where=key if fields is None else fields.locate(key),
        why=f"{key} counts the channels of all groups together, the same number in each",
        cure=f"write {key}{-(-channels // g) * g}, or a g that divides {channels}",
    )
