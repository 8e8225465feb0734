"""Pieces of a text that remember where they stand, so that an error can point at them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.errors import ProblemError, Span, one_of

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf")

# What benchdnn writes before and behind the names of algorithms, and longer names of some.
_KIND = re.compile("^(eltwise|binary|reduction|pooling|resampling)_")
_GRADIENT = re.compile("(_use_dst_for_bwd|_dst)$")
_LONG_NAMES = {
    "pooling_avg_exclude_padding": "avg_np",
    "pooling_avg_include_padding": "avg_p",
    "softmax_accurate": "softmax",
    "softmax_log": "logsoftmax",
    "srelu": "soft_relu",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters ``start`` to ``end`` (exclusive) of ``text``."""

    text: str
    start: int
    end: int

    @staticmethod
    def whole(text: str) -> Piece:
        """All of ``text`` but the blanks around it."""
        start = len(text) - len(text.lstrip())
        return Piece(text, start, max(start, len(text.rstrip())))

    @property
    def word(self) -> str:
        """The characters themselves."""
        return self.text[self.start : self.end]

    @property
    def span(self) -> Span:
        """The place, for an error."""
        return Span(self.text, self.start, self.end)

    def split(self, separator: str) -> list[Piece]:
        """The pieces between separators (one character); an empty one where two meet."""
        pieces, start = [], self.start
        for position in range(self.start, self.end):
            if self.text[position] == separator:
                pieces.append(Piece(self.text, start, position))
                start = position + 1
        return [*pieces, Piece(self.text, start, self.end)]

    def integer(self, meaning: str) -> int:
        """The whole number that the piece spells. Raises `ProblemError` when it spells none."""
        self._check(_INTEGER, meaning, "a whole number", "write digits only, such as 1")
        return int(self.word)

    def number(self, meaning: str) -> float:
        """The real number that the piece spells. Raises `ProblemError` when it spells none."""
        self._check(_NUMBER, meaning, "a number", "write a decimal number, such as 0.5")
        return float(self.word)

    def _check(self, form: re.Pattern[str], meaning: str, kind: str, cure: str) -> None:
        if form.fullmatch(self.word) is None:
            wrong = f"must be {kind}, not {self.word!r}" if self.word else "is missing"
            raise ProblemError(f"{meaning} {wrong}", where=self.span, cure=cure)


def unknown(kind: str, piece: Piece, allowed: Iterable[str]) -> ProblemError:
    """The error for a name that is not one of ``allowed``; ``kind`` says what it should name."""
    what = f"unknown {kind} {piece.word!r}" if piece.word else f"the {kind} is missing"
    return ProblemError(what, where=piece.span, cure=one_of(piece.word, allowed))


def plain_name(word: str, allowed: Iterable[str]) -> str:
    """The one of ``allowed`` that benchdnn's ``word`` means: in any case, with its kind in front,
    ``eltwise_relu``, or as a gradient that reads the result, ``relu_dst``, which is the same
    forward. ``word`` itself where that is none of them."""
    names = {name.lower(): name for name in allowed}
    lower = word.lower()
    for plain in (lower, _LONG_NAMES.get(lower, lower), _KIND.sub("", lower)):
        for name in (plain, _GRADIENT.sub("", plain)):
            if name in names:
                return names[name]
    return word


def split_name(text: str) -> tuple[Piece, str]:
    """What stands before the name, and the name (``""`` when there is none).

    benchdnn lets a problem end with its name, ``n"resnet_50:conv1"``; a shell that eats the
    quotes makes it ``nresnet_50:conv1``. No key or number holds an ``n``, so the first one starts
    the name, which takes the rest of the text, with ``_`` in front at will. A repetition count may
    stand in the quotes or behind them (``n"res2a*3"``, ``n"res2a"*3``).

    Raises `ProblemError` for an empty or an unclosed name.
    """
    whole = Piece.whole(text)
    position = text.find("n", whole.start, whole.end)
    if position < 0:
        return whole, ""
    named = Piece(text, position + 1, whole.end)
    word = named.word
    if word.startswith('"'):
        close = word.find('"', 1)
        count = word[close + 1 :]
        if close < 0 or not re.fullmatch(r"(\*[0-9]+)?", count):
            raise ProblemError(
                "the name is not closed" if close < 0 else "text follows the name",
                where=named.span if close < 0 else Span(text, position + 2 + close, whole.end),
                why="a name takes the rest of the descriptor",
                cure='end the descriptor with n"name"',
            )
        word = word[1:close] + count
    if not word or '"' in word:
        raise ProblemError(
            "the name is empty" if not word else "the name holds a quote",
            where=Span(text, position, whole.end),
            cure='write n"name", or leave the n out',
        )
    return Piece(text, whole.start, position - text.startswith("_", position - 1)), word
