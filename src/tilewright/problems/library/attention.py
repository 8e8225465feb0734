"""Scaled dot-product attention. Sources: Vaswani et al., "Attention Is All You Need", 2017; grouped
heads: Ainslie et al., "GQA", 2023; PyTorch's documentation, `scaled_dot_product_attention`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType, bf16, boolean, f16, f32, f64
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.problems.knobs import Direction
from tilewright.problems.library.attention_words import Words
from tilewright.problems.library.lists import ListsRecord, Numbers, Part
from tilewright.problems.library.record import Slot, accumulator_for, checked_flags
from tilewright.problems.numbers import real_number
from tilewright.problems.problem import Answer, Array, Shape

# What functions of the library are off, in roundings.
_UNITS = 32
_MASKS = ("full", "causal", "lower_right", "mask", "bias")


@dataclass(frozen=True)
class AttentionProblem(ListsRecord):
    """``dst = softmax(scale * queries @ keys^T) @ values`` for each batch and head, of queries
    (batch, heads, queries, size), keys (batch, heads, keys, size) and values (batch, heads, keys,
    size of values). Heads of keys and values may be fewer: as many heads of queries share one.

    ``algorithm`` says which keys count: all (``full``), those up to the query's place
    (``causal``), counted from the end of both (``lower_right``), where ``mask`` is true, or all
    with ``bias`` added to the scores. ``mask_shape`` is that of either, 1 where all are alike. With
    ``window``, only so many keys up to the last that counts do. ``cap``: scores are
    ``cap * tanh(score / cap)`` before masks. ``scale`` of 0 is one over the root of the size. A
    query without keys gives 0. With the flag ``L``, the logarithms of the sums of exponentials
    of scores are results, too.
    """

    queries: Numbers
    keys: Numbers
    values_size: Numbers = ()
    mask_shape: Numbers = ()
    algorithm: str = "full"
    scale: float = 0.0
    cap: float = 0.0
    window: int = 0
    flags: str = ""
    name: str = ""

    driver: ClassVar[str] = "sdpa"
    example: ClassVar[str] = "1x12x128x64:1x12x128x64"
    parts: ClassVar[tuple[Part, ...]] = (
        Part("queries"),
        Part("keys"),
        Part("values_size", optional=True),
        Part("mask_shape", optional=True),
    )
    algorithms: ClassVar[tuple[str, ...]] = _MASKS
    directions: ClassVar[tuple[Direction, ...]] = (Direction.FWD_D, Direction.BWD_D)
    knobs: ClassVar[tuple[str, ...]] = ("alg", "scale", "cap", "window", "flags")
    data_types: ClassVar[tuple[DType, ...]] = (f32, bf16, f16, f64)

    def _complete(self) -> None:
        for name in ("queries", "keys"):
            if len(getattr(self, name)) != 4:
                raise ProblemError(
                    f"{name} of {self.driver} have {len(getattr(self, name))} dims",
                    where=name,
                    cure="give batch, heads, length and size, such as 1x12x128x64",
                )
        batch, heads, _, size = self.queries
        if self.keys[0] != batch or self.keys[3] != size or heads % self.keys[1]:
            raise ProblemError(
                f"keys of {'x'.join(map(str, self.keys))} do not fit queries of "
                f"{'x'.join(map(str, self.queries))}",
                where="keys",
                cure="give the same batch and size, and heads that divide those of the queries",
            )
        if len(self.values_size) > 1:
            raise ProblemError(
                "the size of values is one number", where="values_size", cure="write 64, say"
            )
        object.__setattr__(self, "values_size", self.values_size or (size,))
        self._check_mask()
        flags = checked_flags(self.flags, {"L": "logarithms"}, once=True)
        object.__setattr__(self, "flags", flags)
        for name in ("scale", "cap"):
            value = real_number(getattr(self, name), name, name, finite=True)
            object.__setattr__(self, name, value)
        if self.cap < 0 or type(self.window) is not int or self.window < 0:
            raise ProblemError(
                "cap and window are 0 or more", where="cap, window", cure="write 0 for none"
            )

    def _check_mask(self) -> None:
        whole = (*self.queries[:3], self.keys[2])
        shape = self.mask_shape or ((1, 1, *whole[2:]) if self.takes_mask else ())
        fits = len(shape) == 4 and all(n in (1, m) for n, m in zip(shape, whole, strict=False))
        if shape and not fits:
            raise ProblemError(
                f"a mask of {'x'.join(map(str, shape))} does not fit scores of "
                f"{'x'.join(map(str, whole))}",
                where="mask_shape",
                cure="give 1 or the size of each dim of the scores",
            )
        object.__setattr__(self, "mask_shape", shape)

    @property
    def takes_mask(self) -> bool:
        """Whether it has a mask or a bias as an argument."""
        return self.algorithm in ("mask", "bias")

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        batch, shared, group = rng.choice((1, 2)), rng.choice((1, 2, 3)), rng.choice((1, 1, 2, 4))
        rows, keys = rng.choice((1, 2, 5, 16, 33, 70)), rng.choice((1, 2, 5, 33, 70, 130))
        size = rng.choice((4, 8, 16, 24, 64))
        algorithm = rng.choice(_MASKS)
        mask: Numbers = ()
        if algorithm in ("mask", "bias"):
            whole = (batch, shared * group, rows, keys)
            mask = tuple(rng.choice((1, n)) for n in whole)
        return cls(
            (batch, shared * group, rows, size),
            (batch, shared, keys, size),
            (rng.choice((size, 8, 20)),),
            mask,
            algorithm,
            rng.choice((0.0, 0.0, 0.5)),
            rng.choice((0.0, 0.0, 5.0)),
            rng.choice((0, 0, 3)),
            rng.choice(("", "", "L")),
        )

    def smallest(self) -> Self:
        ones = (1, 1, 1, 1)
        mask = ones if self.takes_mask else ()
        return replace(self, queries=ones, keys=ones, values_size=(1,), mask_shape=mask)

    @property
    def nominal_flops(self) -> int:
        batch, heads, rows, size = self.queries
        return 2 * batch * heads * rows * self.keys[2] * (size + self.values_size[0])

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        batch, heads, rows, _ = self.queries
        values = (*self.keys[:3], *self.values_size)
        shape = (batch, heads, rows, *self.values_size)
        # Infinities of a bias are those of f32 and wider, as scores are.
        mask = Slot("bias", self.mask_shape, "in", "")
        if self.algorithm == "mask":
            mask = Slot("mask", self.mask_shape, "in", "", dtype=boolean)
        factors = (
            Slot("queries", self.queries, "in", "src"),
            Slot("keys", self.keys, "in", "src"),
            Slot("values", values, "in", "src"),
            *((mask,) if self.takes_mask else ()),
        )
        logarithms = Slot("logarithms", (batch, heads, rows), "out", "")
        if direction.is_forward:
            more = (logarithms,) if self.flags else ()
            return (*factors, Slot("dst", shape, "out", "dst"), *more)
        return (
            *factors,
            Slot("dst", shape, "in", "dst"),
            Slot("diff_dst", shape, "in", "dst"),
            replace(logarithms, access="in"),
            Slot("diff_queries", self.queries, "out", "src"),
            Slot("diff_keys", self.keys, "out", "src"),
            Slot("diff_values", values, "out", "src"),
        )

    def body(self, types: Mapping[str, DType], direction: Direction) -> str:
        words = Words(self, types["src"], types["dst"], accumulator_for(types))
        return words.forward() if direction.is_forward else words.backward()

    @property
    def offset(self) -> int:
        """The place of the last key that counts for the first query, where that is limited."""
        return self.keys[2] - self.queries[2] if self.algorithm == "lower_right" else 0

    @property
    def factor(self) -> float:
        """What scores are multiplied by."""
        return self.scale or 1 / math.sqrt(self.queries[3])

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        scores, sizes = self._scores(arrays)
        group = self.queries[1] // self.keys[1]
        values = np.repeat(arrays["values"], group, axis=1)
        terms = self.queries[3] + 2 * self.keys[2] + _UNITS
        if not direction.is_forward:
            return self._gradients(arrays, scores, sizes)
        greatest = scores.max(axis=3, keepdims=True, initial=-np.inf)
        greatest = np.where(np.isfinite(greatest), greatest, 0.0)
        powers = np.exp(scores - greatest)
        total = powers.sum(axis=3, keepdims=True)
        weights = powers / np.where(total == 0, 1.0, total)
        # What is off in a score is off in its exponential, relative to that.
        off = 2 + sizes + (weights * sizes).sum(axis=3, keepdims=True)
        magnitude = (weights * (off + 1)) @ np.abs(values)
        result = {"dst": Answer(weights @ values, magnitude, terms, between="queries")}
        if self.flags:
            logarithms = (greatest + np.log(total))[..., 0]
            size = np.abs(greatest[..., 0]) + (off - sizes).max(axis=3, initial=1.0) + 1
            result["logarithms"] = Answer(logarithms, size, terms, between="queries")
        return result

    def _scores(self, arrays: Mapping[str, Array]) -> tuple[Array, Array]:
        """The scores, -inf where a key does not count, and what their errors are relative to."""
        keys = np.repeat(arrays["keys"], self.queries[1] // self.keys[1], axis=1)
        queries = arrays["queries"]
        scores = queries @ keys.swapaxes(2, 3) * self.factor
        sizes = np.abs(queries) @ np.abs(keys).swapaxes(2, 3) * abs(self.factor)
        if self.cap:
            scores = np.tanh(scores / self.cap) * self.cap
            sizes = sizes + np.abs(scores)
        if self.algorithm == "bias":
            scores, sizes = scores + arrays["bias"], sizes + np.abs(arrays["bias"])
        scores = np.where(self._counts(arrays), scores, -np.inf)
        return scores, np.where(np.isfinite(scores), sizes, 0.0)

    def _slopes(self, arrays: Mapping[str, Array]) -> Array:
        """How much a score changes by one before the cap."""
        if not self.cap:
            return np.ones(())
        keys = np.repeat(arrays["keys"], self.queries[1] // self.keys[1], axis=1)
        scores = arrays["queries"] @ keys.swapaxes(2, 3) * self.factor
        return 1 - np.tanh(scores / self.cap) ** 2

    def _gradients(
        self, arrays: Mapping[str, Array], scores: Array, sizes: Array
    ) -> dict[str, Answer]:
        group = self.queries[1] // self.keys[1]
        keys, values = (np.repeat(arrays[name], group, axis=1) for name in ("keys", "values"))
        queries, output, back = arrays["queries"], arrays["dst"], arrays["diff_dst"]
        logarithms = arrays["logarithms"][..., None]
        weights = np.exp(scores - logarithms)
        off = weights * (2 + sizes + np.abs(logarithms))
        products = back @ values.swapaxes(2, 3) - (back * output).sum(axis=3, keepdims=True)
        size = np.abs(back) @ np.abs(values).swapaxes(2, 3)
        size = size + np.abs(back * output).sum(axis=3, keepdims=True)
        slopes = self._slopes(arrays)
        diff = weights * products * self.factor * slopes
        # A slope is off by as much as its score.
        size = off * size * abs(self.factor) * (slopes + (1 + sizes if self.cap else 0))
        terms = self.queries[3] + 2 * self.keys[2] + self.queries[2] * group + _UNITS

        def shared(array: Array) -> Array:
            """The sums over heads that share one."""
            parts = array.reshape(*self.keys[:2], group, *array.shape[2:])
            return parts.sum(axis=2)

        def answer(value: Array, magnitude: Array) -> Answer:
            return Answer(value, magnitude, terms, between="queries")

        turned = diff.swapaxes(2, 3), size.swapaxes(2, 3)
        of_values = weights.swapaxes(2, 3) @ back, (off + weights).swapaxes(2, 3) @ np.abs(back)
        return {
            "diff_queries": answer(diff @ keys, size @ np.abs(keys)),
            "diff_keys": answer(shared(turned[0] @ queries), shared(turned[1] @ np.abs(queries))),
            "diff_values": answer(*map(shared, of_values)),
        }

    def _counts(self, arrays: Mapping[str, Array]) -> Array:
        """Which keys count for which queries."""
        rows = np.arange(self.queries[2])[:, None] + self.offset
        keys = np.arange(self.keys[2])[None, :]
        counts = np.ones((1, 1, self.queries[2], self.keys[2]), bool)
        if self.algorithm == "mask":
            counts = counts & (arrays["mask"] != 0)
        if self.algorithm in ("causal", "lower_right"):
            counts = counts & (keys <= rows)
        if self.window:
            counts = counts & (rows < keys + self.window)
        return counts

    def data(
        self, name: str, shape: Shape, dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        if name == "mask":
            return rng.random(shape) < 0.7
        if name == "logarithms":
            return rng.uniform(2, 5, shape)
        if name == "bias":
            return np.where(rng.random(shape) < 0.1, -np.inf, rng.uniform(-2, 2, shape))
        # Weights of scores that are no others' maximum may be large.
        most = 2 if direction.is_forward else 1
        return rng.uniform(-most, most, shape)

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        if self.cap or self.window or self.algorithm == "lower_right":
            raise UnsupportedError("PyTorch's attention has no cap, no window, no other corner")
        if not direction.is_forward:
            raise UnsupportedError("PyTorch's gradients of attention take what it has saved")
        mask = arrays.get("mask", arrays.get("bias"))
        if mask is not None and mask.dtype is not torch.bool:
            mask = mask.to(arrays["queries"].dtype)
        return lambda: torch.nn.functional.scaled_dot_product_attention(
            arrays["queries"],
            arrays["keys"],
            arrays["values"],
            attn_mask=mask,
            is_causal=self.algorithm == "causal",
            scale=self.factor,
            enable_gqa=self.queries[1] != self.keys[1],
        )
