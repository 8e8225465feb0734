"""Post-ops: what happens to a result before it is stored, in order (``--attr-post-ops``).

The grammar is benchdnn's; entries are joined by ``+``:

    sum[:SCALE[:ZERO_POINT[:TYPE]]]        dst = result + SCALE * (old dst - ZERO_POINT)
    FUNCTION[:ALPHA[:BETA[:SCALE]]]        dst = SCALE * FUNCTION(result)
    BINARY:TYPE[:POLICY or MASK[:TAG]]     dst = BINARY(result, operand)
    prelu[:POLICY]                         dst = result if result > 0 else weight * result

As in benchdnn, alpha and beta are 0 unless given, for every function: say ``linear:1``.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any, Self

from tilewright.dtypes import DType
from tilewright.errors import ProblemError, UnsupportedError, one_of, short
from tilewright.problems.binary_functions import BINARY_FUNCTIONS
from tilewright.problems.knobs import parse_type, shortest
from tilewright.problems.numbers import real_number, whole_number
from tilewright.problems.pieces import Piece, plain_name, unknown
from tilewright.problems.policy import COMMON, Policy, parse_policy
from tilewright.problems.unary_functions import UNARY_ALIASES, UNARY_FUNCTIONS, PeerStep

POST_OPS = ("sum", "prelu", *UNARY_FUNCTIONS, *UNARY_ALIASES, *BINARY_FUNCTIONS)


@dataclass(frozen=True, slots=True)
class Unary:
    """``scale * function(s)``; ``function`` is a key of `UNARY_FUNCTIONS`, or of `UNARY_ALIASES`,
    which becomes the function that it means.

    Raises `ProblemError` for parameters that the function does not take or cannot work with.
    """

    function: str
    alpha: float = 0.0
    beta: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "scale"):
            number = real_number(getattr(self, name), name, "a unary function")
            object.__setattr__(self, name, number)
        fault = self._rename() or self._fault()
        if fault is not None:
            what, cure = fault
            where = self.describe() if isinstance(self.function, str) else None
            raise ProblemError(what, where=where, cure=cure)

    def _rename(self) -> tuple[str, str] | None:
        """Puts the function in the place of another name of it; what is wrong, and the cure."""
        if not isinstance(self.function, str) or self.function not in UNARY_ALIASES:
            return None
        name, alpha = UNARY_ALIASES[self.function]
        if self.alpha != 0 or self.beta != 0:
            cure = f"leave it out, or write {name}, which takes it"
            if not UNARY_FUNCTIONS[name].parameters:
                cure = "leave it out"
            return f"{self.function} takes no alpha and no beta", cure
        object.__setattr__(self, "function", name)
        object.__setattr__(self, "alpha", alpha)
        return None

    def _fault(self) -> tuple[str, str] | None:
        """What is wrong with the parameters, and the cure."""
        if not isinstance(self.function, str) or self.function not in UNARY_FUNCTIONS:
            cure = one_of(self.function, (*UNARY_FUNCTIONS, *UNARY_ALIASES))
            return f"unknown unary function {short(self.function)}", cure
        taken = UNARY_FUNCTIONS[self.function].parameters
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if value != 0 and name not in taken:
                return f"{self.function} takes no {name}", "write 0 for it, or leave it out"
        if self.function in ("clip", "clip_v2") and self.alpha > self.beta:
            return (
                f"{self.function} needs a lower bound (alpha) not above the upper (beta)",
                f"write {self.function}:{shortest(self.beta)}:{shortest(self.alpha)}",
            )
        if self.function == "soft_relu" and self.alpha == 0:
            return "soft_relu divides by alpha, which is 0", "write soft_relu:1"
        if not math.isfinite(self.scale):
            return "the scale must be finite", "write 1 for none"
        return None

    def describe(self) -> str:
        """The text that parses to this post-op, ``relu:0.1``."""
        values = [self.alpha, self.beta, self.scale]
        defaults = [0.0, 0.0, 1.0]
        while values and values[-1] == defaults[len(values) - 1]:
            values.pop()
        return ":".join([self.function, *map(shortest, values)])

    def peer(self, torch: Any) -> PeerStep | None:
        """The function in PyTorch, from an argument into a result; None if PyTorch lacks it."""
        plain = UNARY_FUNCTIONS[self.function].peer(torch, self.alpha, self.beta)
        if plain is None or self.scale == 1:
            return plain
        return lambda x, out: plain(x, out).mul_(self.scale)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """A random function with random parameters."""
        name = rng.choice(list(UNARY_FUNCTIONS))
        parameters = UNARY_FUNCTIONS[name].parameters
        alpha = rng.choice((0.1, 0.5, 1.0, 2.0)) if "alpha" in parameters else 0.0
        beta = alpha + rng.choice((0.0, 0.25, 1.0)) if "beta" in parameters else 0.0
        return cls(name, alpha, beta, rng.choice((1.0, 1.0, 1.0, 0.5)))


@dataclass(frozen=True, slots=True)
class Sum:
    """``result + scale * (old dst - zero_point)``; ``dtype`` None: read as the type of dst."""

    scale: float = 1.0
    zero_point: int = 0
    dtype: DType | None = None

    def __post_init__(self) -> None:
        scale = real_number(self.scale, "the scale of sum", "sum", finite=True)
        object.__setattr__(self, "scale", scale)
        point = whole_number(self.zero_point, "the zero point of sum", "sum")
        object.__setattr__(self, "zero_point", point)

    def describe(self) -> str:
        """The text that parses to this post-op, ``sum:0.5``."""
        values = [shortest(self.scale), str(self.zero_point), str(self.dtype)]
        defaults = ["1", "0", "None"]
        while values and values[-1] == defaults[len(values) - 1]:
            values.pop()
        return ":".join(["sum", *values])


@dataclass(frozen=True, slots=True)
class Binary:
    """``function(result, operand)``; the operand's shape is that of dst where ``policy`` says.

    ``function`` is one of `BINARY_FUNCTIONS`; comparisons give 1 or 0; ``tag`` is the operand's
    layout.
    """

    function: str
    dtype: DType
    policy: Policy = COMMON
    tag: str = "any"

    def describe(self) -> str:
        """The text that parses to this post-op, ``add:f32:per_oc``."""
        values = [self.policy.name, self.tag]
        defaults = ["common", "any"]
        while values and values[-1] == defaults[len(values) - 1]:
            values.pop()
        return ":".join([self.function, self.dtype.name, *values])


@dataclass(frozen=True, slots=True)
class Prelu:
    """``result if result > 0 else weight * result``; weights are f32, shaped by ``policy``."""

    policy: Policy = COMMON

    def describe(self) -> str:
        """The text that parses to this post-op, ``prelu:per_oc``."""
        return "prelu" if self.policy.name == "common" else f"prelu:{self.policy.name}"


PostOp = Unary | Sum | Binary | Prelu


def parse_post_ops(text: str) -> tuple[PostOp, ...]:
    """The post-ops that ``text`` lists, in order; empty for none.

    Raises `ProblemError` and, for types and post-ops that we lack, `UnsupportedError`, with the
    place in ``text``.
    """
    whole = Piece.whole(text)
    return tuple(_post_op(entry) for entry in _entries(whole)) if whole.word else ()


def describe_post_ops(post_ops: tuple[PostOp, ...]) -> str:
    """The text that parses to ``post_ops``."""
    return "+".join(post_op.describe() for post_op in post_ops)


def parse_unary(text: str) -> Unary:
    """One unary function with its parameters, ``elu:0.5``: the algorithm of eltwise."""
    whole = Piece.whole(text)
    name, *values = whole.split(":")
    names = (*UNARY_FUNCTIONS, *UNARY_ALIASES)
    word = plain_name(name.word, names)
    if word not in names:
        raise unknown("unary function", name, names)
    return _unary(whole, word, values)


def _entries(whole: Piece) -> list[Piece]:
    """The pieces between ``+``, but for those of exponents and signs, ``1e+3`` and ``:+3``."""
    entries: list[Piece] = []
    for piece in whole.split("+"):
        before = entries[-1] if entries else None
        if before is not None and before.word[-1:] in tuple(":eE") and piece.word[:1].isdigit():
            entries[-1] = Piece(whole.text, before.start, piece.end)
        else:
            entries.append(piece)
    return entries


def _post_op(entry: Piece) -> PostOp:
    name, *values = entry.split(":")
    for place in values:
        if not place.word:
            raise ProblemError(
                f"a value of {name.word} is missing",
                where=place.span,
                cure="write the value, or leave the : out",
            )
    word = plain_name(name.word, (*POST_OPS, "dw", "select"))
    if word in ("dw", "select"):
        raise UnsupportedError(
            f"post-op {word} is not available", where=name.span, cure="run it as its own op"
        )
    if word in UNARY_FUNCTIONS or word in UNARY_ALIASES:
        return _unary(entry, word, values)
    if word == "sum":
        return _sum(values)
    if word == "prelu":
        _check_number(name, values, 1)
        return Prelu(*(parse_policy(value) for value in values))
    if word in BINARY_FUNCTIONS:
        return _binary(word, name, values)
    raise unknown("post-op", name, POST_OPS)


def _unary(entry: Piece, function: str, values: list[Piece]) -> Unary:
    _check_number(entry, values, 3)
    names = ("alpha", "beta", "the scale")
    numbers = [value.number(name) for value, name in zip(values, names, strict=False)]
    try:
        return Unary(function, *numbers)
    except ProblemError as error:
        raise ProblemError(error.what, where=entry.span, cure=error.cure) from None


def _sum(values: list[Piece]) -> Sum:
    if values:
        _check_number(values[0], values, 3)
    scale = values[0].number("the scale of sum") if values else 1.0
    zero_point = values[1].integer("the zero point of sum") if len(values) > 1 else 0
    return Sum(scale, zero_point, parse_type(values[2]) if len(values) > 2 else None)


def _binary(function: str, name: Piece, values: list[Piece]) -> Binary:
    _check_number(name, values, 3)
    if not values:
        raise ProblemError(
            f"the type of {name.word}'s operand is missing",
            where=name.span,
            cure=f"write {name.word}:f32",
        )
    kind = parse_type(values[0])
    policy = parse_policy(values[1], masks=True) if len(values) > 1 else COMMON
    return Binary(function, kind, policy, values[2].word if len(values) > 2 else "any")


def _check_number(name: Piece, values: list[Piece], most: int) -> None:
    if len(values) > most:
        raise ProblemError(
            "there are too many values",
            where=values[most].span,
            why=f"at most {most} may follow",
            cure="leave the rest out, or join post-ops with +",
        )
