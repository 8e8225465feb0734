"""Images of another size: each element from its nearest ones.

Output ``o`` of ``O`` lies at ``(o + 0.5) * I / O - 0.5`` among ``I`` inputs; what lies outside is
the nearest inside. Sources: oneDNN's developer guide, "Resampling"; Keys, "Cubic Convolution
Interpolation for Digital Image Processing", 1981 (with -0.75 for its parameter, as PyTorch has it).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.problems.descriptor import tokenize
from tilewright.problems.knobs import Direction
from tilewright.problems.library.record import Record, Slot, accumulator_for
from tilewright.problems.library.wording import Domain, number, stored
from tilewright.problems.problem import Answer, Array, Shape, name_suffix

_KEYS = ("mb", "ic", "id", "ih", "iw", "od", "oh", "ow")
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_UNITS = 32


@dataclass(frozen=True)
class ResamplingProblem(Record):
    """``dst`` (N, C, spatial) of the sizes ``out``, from ``src`` of ``shape``."""

    shape: Shape
    out: Shape = ()
    algorithm: str = "nearest"
    name: str = ""

    driver: ClassVar[str] = "resampling"
    example: ClassVar[str] = "mb2ic3ih8oh16"
    finished: ClassVar[bool] = True
    knobs: ClassVar[tuple[str, ...]] = ("alg",)
    algorithms: ClassVar[tuple[str, ...]] = tuple(_TAPS)
    directions: ClassVar[tuple[Direction, ...]] = (Direction.FWD_D, Direction.BWD_D)

    def __post_init__(self) -> None:
        for field in ("shape", "out"):
            sizes = getattr(self, field)
            if not isinstance(sizes, tuple | list):
                raise ProblemError(f"{field} is no shape", where=field, cure="give a tuple")
            object.__setattr__(self, field, tuple(sizes))
        if not 3 <= len(self.shape) <= 5 or len(self.out) != len(self.shape) - 2:
            raise ProblemError(
                "resampling takes images of one to three dims, and a size for each",
                where="out",
                cure=f"write {self.example}",
            )
        self._check_shapes()

    @classmethod
    def parse(cls, text: str) -> Self:
        fields = tokenize(text, _KEYS)
        fields.refuse_zeros(_KEYS)
        axes = next((axes for axes in ("dhw", "hw", "w") if fields.get(f"i{axes[0]}")), "w")
        sizes: dict[str, list[int]] = {"i": [], "o": []}
        for axis in axes:
            for side, size in sizes.items():
                key = f"{side}{axis}"
                # As in benchdnn: what is left out is like the dim in front of it.
                repeated = size[-1] if size and fields.get(key) is None else None
                size.append(fields.require(key, "a size") if repeated is None else repeated)
        shape = (fields.get("mb") or 2, fields.require("ic", "the number of channels"))
        return cls((*shape, *sizes["i"]), tuple(sizes["o"]), name=fields.name)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        rank = rng.choice((1, 2, 2, 3))
        sizes = [[rng.choice((1, 2, 3, 5, 8)) for _ in range(rank)] for _ in range(2)]
        shape = (rng.choice((1, 2)), rng.choice((1, 3, 8, 16)), *sizes[0])
        return cls(shape, tuple(sizes[1]), rng.choice(cls.algorithms))

    def descriptor(self) -> str:
        axes = "dhw"[3 - len(self.out) :]
        pairs = zip(axes, self.shape[2:], self.out, strict=True)
        sizes = "".join(f"i{axis}{i}o{axis}{o}" for axis, i, o in pairs)
        return f"mb{self.shape[0]}ic{self.shape[1]}{sizes}{name_suffix(self.name)}"

    def smallest(self) -> Self:
        return replace(self, shape=(1,) * len(self.shape), out=(1,) * len(self.out))

    @property
    def made(self) -> Shape:
        """The shape of the result."""
        return (*self.shape[:2], *self.out)

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        letters = "nc" + "dhw"[3 - len(self.out) :]
        if direction.is_forward:
            dst = Slot("dst", self.made, "out", "dst", letters)
            return Slot("src", self.shape, "in", "src", letters), dst
        back = Slot("diff_dst", self.made, "in", "dst", letters)
        return back, Slot("diff_src", self.shape, "out", "src", letters)

    def _weights(self, dim: int, acc: DType) -> list[str]:
        """The compute that says how much each tap of an output counts."""
        size, out = self.shape[2 + dim], self.out[dim]
        rest = (
            f"({acc}(((2 * o + 1) * {size} - {out}) % {2 * out}) / {number(float(2 * out), acc)})"
        )

        def c(value: float) -> str:
            return number(value, acc)

        if self.algorithm == "linear":
            value = f"select(t == 0, {c(1.0)} - {rest}, {rest})"
        else:
            # Taps are from the second before to the second behind.
            far = f"abs({rest} + {c(1.0)} - {acc}(t))"
            near = f"(({c(1.25)} * {far} - {c(2.25)}) * {far} * {far} + {c(1.0)})"
            wide = f"((({c(-0.75)} * {far} + {c(3.75)}) * {far} - {c(6.0)}) * {far} + {c(3.0)})"
            value = f"select({far} <= {c(1.0)}, {near}, {wide})"
        return [
            f"alloc weight{dim}: {acc}[{out}, {_TAPS[self.algorithm]}]",
            f"compute weights{dim}(o in {out}, t in {_TAPS[self.algorithm]}):",
            f"  weight{dim}[o, t] = {value}",
        ]

    def _place(self, dim: int) -> str:
        """The input that a tap of an output reads."""
        size, out, o = self.shape[2 + dim], self.out[dim], f"d{2 + dim}"
        if self.algorithm == "nearest":
            return f"(2 * {o} + 1) * {size} // {2 * out}"
        first = 0 if self.algorithm == "linear" else -1
        start = f"((2 * {o} + 1) * {size} - {out}) // {2 * out} + t{dim}"
        start += f" - {-first}" if first else ""
        return f"max(min({start}, {size - 1}), 0)"

    def body(self, types: Mapping[str, DType], direction: Direction) -> str:
        acc, d, taps = accumulator_for(types), Domain(self.made), _TAPS[self.algorithm]
        many = range(len(self.out)) if taps > 1 else range(0)
        lines = [line for dim in many for line in self._weights(dim, acc)]
        spots = {2 + dim: self._place(dim) for dim in range(len(self.out))}
        dims = ", ".join([d.dims(), *(f"t{dim} in {taps}" for dim in many)])
        factors = "".join(f" * w{dim}" for dim in many)
        loads = [f"  w{dim} = weight{dim}[d{2 + dim}, t{dim}]" for dim in many]
        forward = direction.is_forward
        if forward and taps == 1:
            value = stored("x", types["src"], types["dst"])
            return "\n".join(
                [
                    f"compute nearest({d.dims()}):",
                    f"  x = src[{d.at(spots)}]",
                    f"  dst[{d.at()}] = {value}",
                ]
            )
        held = Domain(self.made if forward else self.shape)
        source, to = ("src", "dst") if forward else ("diff_dst", "diff_src")
        read, write = (d.at(spots), d.at()) if forward else (d.at(), d.at(spots))
        kind = types["dst" if forward else "src"]
        return "\n".join(
            [
                *lines,
                f"alloc total: {acc}[{held.sizes()}]",
                f"compute init({held.dims()}):",
                f"  total[{held.at()}] = {number(0.0, acc)}",
                f"compute main({dims}):",
                f"  x = {source}[{read}]",
                *loads,
                f"  total[{write}] add= {acc}(x){factors}",
                f"compute result({held.dims()}):",
                f"  total = total[{held.at()}]",
                f"  {to}[{held.at()}] = {stored('total', acc, kind)}",
            ]
        )

    def _taps(self, dim: int) -> list[tuple[Array, Array, Array]]:
        """Of each tap, the inputs that outputs read, their weights in float64, and the sizes of the
        terms that these are sums of: weights near 0 are as wrong as large ones."""
        size, out = self.shape[2 + dim], self.out[dim]
        at = (np.arange(out) + 0.5) * size / out - 0.5
        if self.algorithm == "nearest":
            place = np.floor((2 * np.arange(out) + 1) * size / (2 * out)).astype(int)
            return [(place, np.ones(out), np.ones(out))]
        low = ((2 * np.arange(out) + 1) * size - out) // (2 * out)
        taps = []
        for tap in (0, 1) if self.algorithm == "linear" else (-1, 0, 1, 2):
            far = np.abs(at - (low + tap))
            if self.algorithm == "linear":
                terms = [np.ones(out), -far]
            else:
                near = [1.25 * far**3, -2.25 * far**2, np.ones(out), np.zeros(out)]
                beyond = [-0.75 * far**3, 3.75 * far**2, -6 * far, np.full(out, 3)]
                terms = [*np.where(far <= 1, near, beyond)]
            taps.append((np.clip(low + tap, 0, size - 1), sum(terms), sum(map(np.abs, terms))))
        return taps

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        forward = direction.is_forward
        source = arrays["src" if forward else "diff_dst"].astype(np.float64)
        shape = self.made if forward else self.shape
        value, size = np.zeros(shape), np.zeros(shape)
        for taps in product(*(self._taps(dim) for dim in range(len(self.out)))):
            places = np.ix_(*map(np.arange, self.shape[:2]), *(place for place, _, _ in taps))
            weight, terms = np.ones(()), np.ones(())
            for _, tap_weights, sizes in taps:
                weight, terms = weight[..., None] * tap_weights, terms[..., None] * sizes
            for sums, array, w in ((value, source, weight), (size, np.abs(source), terms)):
                if forward:
                    sums += array[places] * w
                else:
                    np.add.at(sums, places, array * w)
        exact = self.algorithm == "nearest" and forward
        most = 1
        for i, o in zip(self.shape[2:], self.out, strict=True):
            most *= 4 * -(-o // i) + 4
        return {
            "dst" if forward else "diff_src": Answer(value, size, 0 if exact else most + _UNITS)
        }

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        modes = {
            ("nearest", 1): "nearest-exact",
            ("nearest", 2): "nearest-exact",
            ("nearest", 3): "nearest-exact",
            ("linear", 1): "linear",
            ("linear", 2): "bilinear",
            ("linear", 3): "trilinear",
            ("cubic", 2): "bicubic",
        }
        mode = modes.get((self.algorithm, len(self.out)))
        if mode is None or not direction.is_forward:
            raise UnsupportedError(f"PyTorch has no {self.algorithm} resampling like this")
        run, src = torch.nn.functional.interpolate, arrays["src"]
        corners = {} if self.algorithm == "nearest" else {"align_corners": False}
        return lambda: run(src, size=self.out, mode=mode, **corners)
