"""benchdnn's key-and-number descriptors, ``mb2ic64ih56kh3``, cut into fields with positions.

The grammar is that of benchdnn's convolution and pooling drivers: keys and numbers in any order,
``_`` between them at will, a name at the end. Unlike benchdnn, a key given twice is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.errors import ProblemError, Span, short
from tilewright.problems.pieces import Piece, split_name, unknown

_LETTERS = re.compile(r"[A-Za-z]*")
_DIGITS = re.compile(r"[0-9]+")
MAX_SIZE = 2**60


@dataclass(frozen=True, slots=True)
class Field:
    """One key with its number, ``ic64``, and its place."""

    key: str
    value: int
    span: Span


@dataclass(frozen=True, slots=True)
class Fields:
    """A descriptor's fields by key, and the problem's name (``""``: none)."""

    text: str
    by_key: Mapping[str, Field]
    name: str

    def get(self, key: str) -> int | None:
        """The number given for ``key``, or None."""
        field = self.by_key.get(key)
        return None if field is None else field.value

    def locate(self, *keys: str) -> Span:
        """The place of the first of ``keys`` that is there; otherwise all of the text."""
        for key in keys:
            if key in self.by_key:
                return self.by_key[key].span
        return Piece.whole(self.text).span

    def require(self, key: str, meaning: str) -> int:
        """The number given for ``key``, at least 1. Raises `ProblemError` when it is missing."""
        value = self.get(key)
        if value is None:
            raise ProblemError(
                f"{key} is missing",
                where=self.locate(),
                why=f"{meaning} cannot be deduced",
                cure=f"add {key} and a number, such as {key}8",
            )
        return value

    def refuse_zeros(self, keys: Sequence[str]) -> None:
        """Raises `ProblemError` where one of ``keys`` is given as 0."""
        for key in keys:
            if self.get(key) == 0:
                raise ProblemError(
                    f"{key} must be at least 1",
                    where=self.locate(key),
                    why="a size or a stride of 0 leaves nothing to compute",
                    cure=f"give {key} a positive number"
                    + (
                        ", or leave it out to have it deduced"
                        if key[0] in "os" and key != "oc"
                        else ""
                    ),
                )


def tokenize(text: str, keys: Sequence[str]) -> Fields:
    """Cuts ``text`` into fields with the given keys.

    Raises `ProblemError` for an unknown or repeated key, a missing, negative or huge number, and
    a name that does not end.
    """
    body, name = split_name(text)
    by_key: dict[str, Field] = {}
    position = body.start
    while position < body.end:
        if text[position] == "_":
            position += 1
            continue
        field = _field(Piece(text, position, body.end), keys)
        if field.key in by_key:
            raise ProblemError(
                f"{field.key} is given twice",
                where=field.span,
                why=f"it already stands at position {by_key[field.key].span.start}",
                cure="keep one of the two",
            )
        by_key[field.key] = field
        position = field.span.end
    return Fields(text, by_key, name)


def write(keys: Sequence[str], sizes: Mapping[str, int], name: str) -> str:
    """The descriptor that gives ``sizes`` by key: what keyword arguments are parsed as.

    Raises `ProblemError` for an unknown key or a value that is no whole number.
    """
    for key, size in sizes.items():
        if key not in keys:
            raise unknown("size", Piece.whole(key), keys)
        if not isinstance(size, int) or isinstance(size, bool):
            raise ProblemError(f"{key} must be a whole number, not {short(size)}", where=key)
        if abs(size) > MAX_SIZE:
            raise ProblemError(
                f"{key} is too large",
                where=key,
                why="offsets are 64-bit: a size is at most 2^60",
                cure="split the problem",
            )
    text = "".join(f"{key}{size}" for key, size in sizes.items())
    return f'{text}n"{name}"' if name else text


def _field(rest: Piece, keys: Sequence[str]) -> Field:
    text, start = rest.text, rest.start
    letters = _LETTERS.match(text, start, rest.end)
    word = letters[0] if letters else ""
    key = max((key for key in keys if word.startswith(key)), key=len, default="")
    # A known key that runs into other letters lacks its number, if a key follows.
    follows = word[len(key) :]
    if not key or (follows and not any(follows.startswith(other) for other in keys)):
        place = Piece(text, start, start + max(1, len(word)))
        raise unknown("key", place, keys)
    end = start + len(key)
    digits = _DIGITS.match(text, end, rest.end)
    if digits is None:
        negative = text.startswith("-", end)
        raise ProblemError(
            f"{key} must not be negative" if negative else f"{key} has no number",
            where=Span(text, start, end + negative),
            why="sizes and padding count elements" if negative else None,
            cure=f"write a number right behind the key, such as {key}1",
        )
    span = Span(text, start, digits.end())
    if len(digits[0]) > 19 or int(digits[0]) > MAX_SIZE:
        raise ProblemError(
            f"{key} is too large",
            where=span,
            why="offsets are 64-bit: a size is at most 2^60",
            cure="split the problem",
        )
    return Field(key, int(digits[0]), span)
