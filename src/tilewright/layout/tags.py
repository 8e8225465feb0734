"""Format tags, as oneDNN writes them, to layouts and back.

A tag names the dims from the outermost to the innermost: ``abcd`` is row-major, ``acdb`` has the
second dim innermost. A dim in upper case is blocked: its blocks follow, outermost first, each a
size and the dim: ``aBcd16b``, ``ABcd4b16a4b``. Sizes are padded up to whole blocks.

In place of ``abcd...`` a tensor's own letters may stand (``nchw``, ``OIhw16i16o``, ``gohwi``), and
``x`` for all dims not named, in order (benchdnn's ``axb``; of a tensor of one dim, that is ``a``).
cuDNN's ``N(C/4)HW4`` is ``nChw4c``.

Source: https://uxlfoundation.github.io/oneDNN/dev_guide_understanding_memory_formats.html and
``tests/benchdnn/doc/knobs_tag.md`` there.
"""

from __future__ import annotations

import difflib
import re
import string
from dataclasses import dataclass

from tilewright.errors import LayoutError, Span
from tilewright.ir.buffer import Layout, LayoutBlock, row_major

ANY = "any"
CANONICAL = "abcdefghijkl"
# The letters of each kind of tensor, in the order of its logical dims.
ALPHABETS = (
    *("nc", "ncw", "nchw", "ncdhw"),
    *("oi", "oiw", "oihw", "oidhw"),
    *("goiw", "goihw", "goidhw"),
    *("tn", "tnc"),
)
_CUDNN = re.compile(r"([A-Z]*)\(([A-Z])/([0-9]+)\)([A-Z]*)([0-9]+)")
_INNER = re.compile(r"([0-9]+)([A-Za-z])")


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag taken apart: dims from outermost to innermost, then (dim, size) of each inner block."""

    order: tuple[int, ...]
    inner: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        """The canonical form, ``aBcd16b``."""
        blocked = {dim for dim, _ in self.inner}
        outer = [CANONICAL[dim].upper() if dim in blocked else CANONICAL[dim] for dim in self.order]
        return "".join(outer) + "".join(f"{size}{CANONICAL[dim]}" for dim, size in self.inner)

    def layout(self, shape: tuple[int, ...]) -> Layout:
        """The dense layout of a tensor of ``shape``, padded up to whole blocks."""
        per_dim = [1] * len(shape)
        for dim, size in self.inner:
            per_dim[dim] *= size
        outer = [(dim, -(-shape[dim] // per_dim[dim])) for dim in self.order]
        blocks: list[LayoutBlock] = []
        stride = 1
        for dim, size in reversed((*outer, *self.inner)):
            blocks.append(LayoutBlock(dim, size, stride))
            stride *= size
        return Layout(tuple(reversed(blocks)))


def layout_of(tag: str, shape: tuple[int, ...], letters: str | None = None) -> Layout:
    """The layout that ``tag`` gives a tensor of ``shape``; ``any`` is row-major.

    ``letters`` are the tensor's own, in the order of its dims (``"nchw"``, ``"goihw"``); without
    them every alphabet of that many dims is tried.

    Raises `LayoutError` when the tag is unknown or has another number of dims.
    """
    if tag == ANY:
        return row_major(shape)
    return parse_tag(tag, len(shape), letters).layout(shape)


def canonical(tag: str, rank: int, letters: str | None = None) -> str:
    """``tag`` in the letters ``abcd...``; ``any`` stays. Raises `LayoutError` as `layout_of`."""
    return ANY if tag == ANY else str(parse_tag(tag, rank, letters))


def parse_tag(tag: str, rank: int, letters: str | None = None) -> Tag:
    """``tag`` taken apart, for a tensor of ``rank`` dims.

    Raises `LayoutError` with the place in the tag: a letter that is no dim, a dim missing or named
    twice, a block that upper case announces and does not follow, or the reverse.
    """
    text = _of_low_rank(_from_cudnn(tag), rank)
    split = next((i for i, char in enumerate(text) if not char.isalpha()), len(text))
    alphabet = _alphabet(tag, text, rank, letters)
    outer = _expand(text[:split], alphabet)
    for place, char in outer:
        if char.lower() not in alphabet:
            why = "x stands for the dims that are not named, which have no blocks"
            raise _error(tag, text, place, f"{char!r} is no dim", why)
    order = tuple(alphabet.index(char.lower()) for _, char in outer)
    for position, dim in enumerate(order):
        if dim in order[:position]:
            raise _error(tag, text, outer[position][0], f"dim {outer[position][1]!r} stands twice")
    if len(order) != rank:
        missing = [alphabet[dim] for dim in range(rank) if dim not in order]
        raise LayoutError(
            f"tag {tag!r} names {len(order)} dims, and the tensor has {rank}",
            where=Span(tag, 0, len(tag)),
            why=f"missing: {', '.join(missing)}",
            cure=_suggestion(tag, rank, letters),
        )
    inner = _inner_blocks(tag, text, split, alphabet)
    blocked = {dim for dim, _ in inner}
    for (place, char), dim in zip(outer, order, strict=True):
        if char.isupper() and dim not in blocked:
            why = "a letter in upper case announces blocks, which do not follow"
            raise _error(tag, text, place, f"dim {char!r} has no blocks", why)
        if char.islower() and dim in blocked:
            why = "a dim with blocks is written in upper case"
            raise _error(tag, text, place, f"dim {char!r} has blocks", why)
    return Tag(order, tuple(inner))


def _from_cudnn(tag: str) -> str:
    """``N(C/4)HW4`` as ``nChw4c``; any other text unchanged."""
    match = _CUDNN.fullmatch(tag)
    if match is None:
        return tag
    before, dim, size, after, inner = match.groups()
    if size != inner:
        raise LayoutError(
            f"tag {tag!r} divides by {size} and ends in {inner}",
            where=Span(tag, match.start(5), match.end(5)),
            why="the last number is the size of the blocks that the division makes",
            cure=f"write {tag[: match.start(5)]}{size}",
        )
    return f"{before.lower()}{dim}{after.lower()}{size}{dim.lower()}"


def _of_low_rank(text: str, rank: int) -> str:
    """A tag with ``x`` for a tensor that lacks dims which the tag names, without these."""
    if "x" not in text or not set(text.lower()) <= {*CANONICAL, *string.digits, "x"}:
        return text
    gone = CANONICAL[rank:]
    return re.sub(f"[0-9]*[{gone}{gone.upper()}]", "", text) if gone else text


def _alphabet(tag: str, text: str, rank: int, letters: str | None) -> str:
    """The letters of ``text``. Raises `LayoutError` when it is empty."""
    used = {char.lower() for char in text if char.isalpha()} - {"x"}
    if not text or not text[0].isalpha():
        raise LayoutError(
            f"tag {tag!r} does not start with a dim" if text else "the tag is empty",
            where=Span(tag, 0, 1),
            cure=_suggestion(tag, rank, letters),
        )
    alphabets = (letters,) if letters is not None else ALPHABETS
    choices = (CANONICAL[:rank], *(alphabet for alphabet in alphabets if len(alphabet) == rank))
    for alphabet in choices:
        if used <= set(alphabet):
            return alphabet
    others = [alphabet for alphabet in (*alphabets, *ALPHABETS, CANONICAL) if used <= set(alphabet)]
    if others and letters is not None and rank != len(others[0]):
        raise LayoutError(
            f"tag {tag!r} does not fit a tensor of {rank} dims",
            where=Span(tag, 0, len(tag)),
            why=f"its letters are those of {others[0]!r}" if others[0] != CANONICAL else None,
            cure=_suggestion(tag, rank, letters),
        )
    best = max(choices, key=lambda alphabet: len(used & set(alphabet)))
    allowed = {*best, "x"}
    place = next(i for i, c in enumerate(text) if c.isalpha() and c.lower() not in allowed)
    raise LayoutError(
        f"tag {tag!r}: {text[place]!r} is no dim of a tensor of {rank} dims",
        where=_place(tag, text, place),
        why=f"the dims are {' or '.join(', '.join(option) for option in dict.fromkeys(choices))}",
        cure=_suggestion(tag, rank, letters),
    )


def _expand(outer: str, alphabet: str) -> list[tuple[int, str]]:
    """The outer letters with their places; ``x`` stands for all that are not named."""
    named = outer.lower()
    result: list[tuple[int, str]] = []
    for place, char in enumerate(outer):
        if char == "x" and "x" not in alphabet:
            result.extend((place, other) for other in alphabet if other not in named)
        else:
            result.append((place, char))
    # A second x finds the same dims, which are then refused as standing twice.
    return result


def _inner_blocks(tag: str, text: str, start: int, alphabet: str) -> list[tuple[int, int]]:
    inner: list[tuple[int, int]] = []
    position = start
    while position < len(text):
        match = _INNER.match(text, position)
        if match is None:
            why = "after the dims come blocks, each a size and a dim"
            raise _error(tag, text, position, f"tag {tag!r} does not go on like this", why)
        if len(match[1]) > 9:
            raise _error(tag, text, position, "a block of so many elements is too large")
        if match[2].lower() not in alphabet:
            why = "x stands for dims that are not named, in front of blocks only"
            raise _error(tag, text, match.start(2), f"{match[2]!r} is no dim to be blocked", why)
        if int(match[1]) < 2:
            raise _error(tag, text, position, "a block holds at least 2 elements")
        if match[2].isupper():
            why = "upper case is for the outermost block of a dim"
            raise _error(tag, text, match.start(2), f"block of {match[2]!r} in upper case", why)
        inner.append((alphabet.index(match[2]), int(match[1])))
        position = match.end()
    return inner


def _place(tag: str, text: str, place: int) -> Span:
    """The place in the user's text, which is all of it for a tag in cuDNN's form."""
    return Span(tag, place, place + 1) if text == tag else Span(tag, 0, len(tag))


def _error(tag: str, text: str, place: int, what: str, why: str | None = None) -> LayoutError:
    return LayoutError(
        what if repr(tag) in what else f"tag {tag!r}: {what}",
        where=_place(tag, text, place),
        why=why,
        cure="write dims from the outermost to the innermost, then blocks: abcd, acdb, aBcd16b",
    )


def _suggestion(tag: str, rank: int, letters: str | None) -> str:
    """A cure: the tag of this many dims that looks most like ``tag``."""
    names = letters if letters is not None and len(letters) == rank else CANONICAL[:rank]
    choices = [names, names[0] + names[2:] + names[1:2], CANONICAL[:rank]]
    if rank > 1:
        channel = names[1]
        choices += [f"{names[0]}{channel.upper()}{names[2:]}{size}{channel}" for size in (8, 16)]
    close = difflib.get_close_matches(tag, choices, n=1, cutoff=0.5)
    examples = ", ".join(dict.fromkeys(choices))
    return f"did you mean {close[0]}? " if close else f"write a tag such as {examples}"
