"""Layer, batch and group normalization: which elements belong together, and PyTorch's names."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from tilewright.errors import ProblemError, UnsupportedError, short
from tilewright.problems.descriptor import tokenize
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.library.normalizations import Normalization
from tilewright.problems.problem import MAX_ELEMENTS, Shape, name_suffix
from tilewright.problems.shapes import join, parse_shapes

_KEYS = ("mb", "ic", "id", "ih", "iw")


def _flags(rng: random.Random, letters: str) -> str:
    return "".join(letter for letter in letters if rng.random() < 0.4)


@dataclass(frozen=True)
class LayerNormProblem(Normalization):
    """Each row, the elements of the last dim, by itself."""

    driver: ClassVar[str] = "lnorm"
    example: ClassVar[str] = "32x128x768"
    finished: ClassVar[bool] = True
    letters: ClassVar[str] = "GCHMI"

    @classmethod
    def parse(cls, text: str) -> Self:
        parsed = parse_shapes(text, ("src",))
        return cls(parsed.tensors[0].sizes, name=parsed.name)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        flags = _flags(rng, cls.letters)
        return cls(shape_of(rng, 2, 4), flags, ss_dt=rng.choice(("", "", "", "", "bf16", "f16")))

    def descriptor(self) -> str:
        return join(self.shape) + name_suffix(self.name)

    @property
    def reduced(self) -> tuple[int, ...]:
        return (self.channel,)

    @property
    def channel(self) -> int:
        return len(self.shape) - 1

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        size, scale, shift = [self.shape[-1]], arrays.get("scale"), arrays.get("shift")
        if self.has("G") or (self.has("M") and (shift is not None or not direction.is_forward)):
            raise UnsupportedError("PyTorch has no layer normalization like this")
        src = arrays["src"]
        if self.has("M"):
            return lambda: torch.nn.functional.rms_norm(src, size, scale, self.eps)
        if direction.is_forward:
            return lambda: torch.native_layer_norm(src, size, scale, shift, self.eps)[:1]
        mean, inverse = (statistic.unsqueeze(-1) for statistic in _saved(self, arrays))
        run, back = torch.ops.aten.native_layer_norm_backward, arrays["diff_dst"]
        if direction is Direction.BWD_W:
            ones = torch.ones(size, dtype=src.dtype)
            wanted = [False, True, True]
            return lambda: run(back, src, size, mean, inverse, ones, ones, wanted)[1:]
        wanted = [True, False, False]
        return lambda: run(back, src, size, mean, inverse, scale, None, wanted)[0]


@dataclass(frozen=True)
class _Images(Normalization):
    """Normalizations of images, (N, C, spatial), by benchdnn's keys or as a shape."""

    keys: ClassVar[tuple[str, ...]] = _KEYS
    most_dims: ClassVar[int] = 5

    @property
    def tags(self) -> str | None:
        return "nc" + "dhw"[3 - max(0, len(self.shape) - 2) :]

    def descriptor(self) -> str:
        spatial = "dhw"[5 - len(self.shape) :]
        sizes = "".join(f"i{a}{n}" for a, n in zip(spatial, self.shape[2:], strict=True))
        return f"{self._lead}mb{self.shape[0]}ic{self.shape[1]}{sizes}{name_suffix(self.name)}"

    @property
    def _lead(self) -> str:
        return ""

    @classmethod
    def parse(cls, text: str) -> Self:
        fields = tokenize(text, cls.keys)
        fields.refuse_zeros(cls.keys)
        ic = fields.require("ic", "the number of channels")
        axes = next((axes for axes in ("dhw", "hw", "w") if fields.get(f"i{axes[0]}")), "")
        sizes: list[int] = []
        for axis in axes:
            # As in benchdnn: what is left out is like the dim in front of it.
            sizes.append(fields.get(f"i{axis}") or sizes[-1])
        shape = (fields.get("mb") or 2, ic, *sizes)
        more = {"groups": fields.require("g", "the number of groups")} if "g" in cls.keys else {}
        construct: Any = cls
        problem: Self = construct(shape, name=fields.name, **more)
        return problem


@dataclass(frozen=True)
class BatchNormProblem(_Images):
    """Each channel over the whole batch."""

    letters: ClassVar[str] = "GCHIRA"
    driver: ClassVar[str] = "bnorm"
    example: ClassVar[str] = "mb8ic64ih56"
    finished: ClassVar[bool] = True

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        return cls(shape_of(rng, 2, 4), _flags(rng, cls.letters))

    @property
    def reduced(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.shape)) if i != 1)

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        if self.has("R"):
            raise UnsupportedError("PyTorch has no batch normalization with a relu")
        src, scale, shift = arrays["src"], arrays.get("scale"), arrays.get("shift")
        trained = not self.has("G")
        mean, variance = arrays.get("mean"), arrays.get("variance")
        if direction.is_forward:
            run = torch.native_batch_norm
            if trained:
                mean = variance = None
            return lambda: run(src, scale, shift, mean, variance, trained, 0.0, self.eps)[:1]
        mean, inverse = _saved(self, arrays)
        run, back = torch.ops.aten.native_batch_norm_backward, arrays["diff_dst"]
        wanted = [direction is Direction.BWD_D] + [direction is Direction.BWD_W] * 2
        args = (None, None) if trained else (arrays["mean"], arrays["variance"])

        def work() -> Any:
            ones = torch.ones_like(mean) if scale is None else scale
            gradients = run(back, src, ones, *args, mean, inverse, trained, self.eps, wanted)
            return gradients[0] if direction is Direction.BWD_D else gradients[1:]

        return work


@dataclass(frozen=True)
class GroupNormProblem(_Images):
    """Each image's channels in groups; as many groups as channels: instance normalization."""

    groups: int = 1

    driver: ClassVar[str] = "gnorm"
    example: ClassVar[str] = "g8mb8ic64ih28"
    finished: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("g", *_KEYS)

    def __post_init__(self) -> None:
        if type(self.groups) is not int or not 1 <= self.groups <= MAX_ELEMENTS:
            raise ProblemError(
                f"{short(self.groups)} is no number of groups", where="groups", cure="write 1"
            )
        super().__post_init__()
        if self.shape[1] % self.groups:
            raise ProblemError(
                f"{self.groups} groups do not divide {self.shape[1]} channels",
                where="groups",
                cure="choose a divisor of the number of channels",
            )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        n, c, *spatial = shape_of(rng, 2, 4)
        groups = rng.choice((1, 2, 3, c))
        shape = (n, c if groups == c else groups * min(c, 4), *spatial)
        return cls(shape, _flags(rng, cls.letters), groups=groups)

    def smallest(self) -> Self:
        # PyTorch normalizes no single element.
        return replace(self, shape=(1, 2, *(1 for _ in self.shape[2:])), groups=1)

    @property
    def _lead(self) -> str:
        return f"g{self.groups}"

    @property
    def parts(self) -> Shape:
        n, c, *spatial = self.shape
        return n, self.groups, c // self.groups, *spatial

    @property
    def reduced(self) -> tuple[int, ...]:
        return tuple(range(2, len(self.parts)))

    @property
    def varying(self) -> tuple[int, ...]:
        return 1, 2

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        if self.has("G"):
            raise UnsupportedError("PyTorch's group normalization takes no statistics")
        if self.count == 1:
            raise UnsupportedError("PyTorch normalizes no single element")
        src, groups = arrays["src"], self.groups
        scale, shift = arrays.get("scale"), arrays.get("shift")
        if direction.is_forward:
            return lambda: torch.nn.functional.group_norm(src, groups, scale, shift, self.eps)
        n, c, *spatial = self.shape
        points = 1
        for size in spatial:
            points *= size
        mean, inverse = _saved(self, arrays)
        # PyTorch 2 crashes where it is asked for the gradients of the factors only.
        run, src = torch.ops.aten.native_group_norm_backward, src.contiguous()
        back = arrays["diff_dst"].contiguous()
        scale = torch.ones(c, dtype=src.dtype) if scale is None else scale
        wanted = [True] + [direction is Direction.BWD_W] * 2

        def work() -> Any:
            gradients = run(back, src, mean, inverse, scale, n, c, points, groups, wanted)
            return gradients[0] if direction is Direction.BWD_D else gradients[1:]

        return work


def _saved(problem: Normalization, arrays: Mapping[str, Any]) -> tuple[Any, Any]:
    """The statistics that a gradient is given, as PyTorch keeps them."""
    return arrays["mean"], (arrays["variance"] + problem.eps).rsqrt()
