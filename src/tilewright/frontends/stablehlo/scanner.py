"""Words of MLIR's text, one at a time.

A `Scanner` holds the text and a place in it. It reads words on demand, since in ``tensor<2x3xf32>``
the dims are read by their letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tilewright.errors import ParseError, Span

_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_NAME = r"[A-Za-z_$.\-][\w$.\-]*"
_WORD = re.compile(
    r'(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<hex>0x[0-9A-Fa-f]+)"
    r"|(?P<float>\d+\.\d*(?:[eE][+-]?\d+)?)"
    r"|(?P<int>\d+)"
    r"|(?P<word>[A-Za-z_][\w$.]*)"
    rf"|(?P<value>%(?:\d+|{_NAME})(?:\#\d+)?)"
    rf'|(?P<symbol>@(?:[A-Za-z_][\w$.\-]*|"(?:[^"\\\n]|\\.)*"))'
    r"|(?P<block>\^[\w$.\-]+)"
    rf"|(?P<type>!{_NAME})"
    rf"|(?P<attribute>\#(?:\d+|{_NAME}))"
    r"|(?P<mark>->|::|[-+*/=:,.?<>()\[\]{}|@])"
)
_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))")
_LETTERS = {"n": "\n", "t": "\t"}
# Regions in regions, lists in lists: no program is so deep, and Python's stack is not endless.
_DEEPEST = 40


class Token(NamedTuple):
    """A word: ``kind`` is the mark itself for marks, otherwise the name of its class; ``end`` at
    the end of the text."""

    kind: str
    text: str
    start: int
    end: int


class Scanner:
    """A text and a place in it, with what every part of the parser asks of it."""

    def __init__(self, text: str, file: str | None = None) -> None:
        self.text = text
        self.file = file
        self.position = 0
        self._ahead: Token | None = None
        self._depth = 0
        self.skips = False  # what has no meaning is a word, too

    def peek(self) -> Token:
        """The next word, which stays."""
        if self._ahead is None:
            start = self._skip_space()
            match = _WORD.match(self.text, start)
            if match is not None:
                kind = str(match.lastgroup)
                word = match.group()
                self._ahead = Token(word if kind == "mark" else kind, word, start, match.end())
            elif start == len(self.text):
                self._ahead = Token("end", "", start, start)
            elif self.skips:
                self._ahead = Token("stray", self.text[start], start, start + 1)
            else:
                raise self._meaningless(start)
        return self._ahead

    def next(self) -> Token:
        """The next word, which is then read."""
        token = self.peek()
        self.position = token.end
        self._ahead = None
        return token

    def at(self, *kinds: str) -> bool:
        """Whether the next word is one of these kinds or marks."""
        return self.peek().kind in kinds

    def at_word(self, *words: str) -> bool:
        """Whether the next word is one of these names."""
        token = self.peek()
        return token.kind == "word" and token.text in words

    def accept(self, kind: str) -> Token | None:
        """The next word if it is of this kind."""
        return self.next() if self.peek().kind == kind else None

    def accept_word(self, word: str) -> bool:
        """Whether the next word was this name, which is then read."""
        is_next = self.at_word(word)
        if is_next:
            self.next()
        return is_next

    def expect(self, kind: str, what: str | None = None) -> Token:
        """The next word, which has to be of this kind; ``what`` says what it would be."""
        if self.peek().kind != kind:
            raise self.unexpected(what or repr(kind))
        return self.next()

    def expect_word(self, word: str) -> Token:
        """The next word, which has to be this name."""
        if not self.at_word(word):
            raise self.unexpected(repr(word))
        return self.next()

    def entries(self, closing: str, *, trailing: bool = False) -> Iterator[None]:
        """Once for each entry of a list with commas in between, up to the word ``closing``;
        ``trailing``: behind the last one may be a comma, too."""
        if self.accept(closing):
            return
        yield
        while not self.accept(closing):
            self.expect(",", f"',' or {closing!r}")
            if trailing and self.accept(closing):
                return
            yield

    def separated(self) -> Iterator[None]:
        """Once for each of one or more entries with commas in between."""
        yield
        while self.accept(","):
            yield

    def letters(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What ``pattern`` matches at the place, without regard to words; it is then read."""
        match = pattern.match(self.text, self._skip_space())
        if match is not None:
            self.position = match.end()
            self._ahead = None
        return match

    def back_to(self, position: int) -> None:
        """Goes back to a place where it was before."""
        self.position = position
        self._ahead = None

    @property
    def here(self) -> int:
        """Where the next word begins."""
        return self.peek().start

    def span(self, start: int, end: int | None = None) -> Span:
        """A place in the text, up to where the scanner is."""
        return Span(
            self.text, start, max(start + 1, self.position if end is None else end), self.file
        )

    def where(self, token: Token) -> Span:
        """The place of a word."""
        return self.span(token.start, token.end)

    def unexpected(self, wanted: str, cure: str | None = None) -> ParseError:
        """An error about the next word."""
        token = self.peek()
        actual = "the text ends" if token.kind == "end" else f"found {token.text[:40]!r}"
        return ParseError(
            f"expected {wanted}, {actual}",
            where=self.where(token),
            cure=cure or ("complete the text" if token.kind == "end" else f"write {wanted} here"),
        )

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Around what may stand in itself: refuses what is too deep for Python's stack."""
        if self._depth >= _DEEPEST:
            raise ParseError(
                "this is nested too deeply",
                where=self.where(self.peek()),
                why=f"regions and lists stand at most {_DEEPEST} deep in each other",
                cure="move inner regions to functions of their own",
            )
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _skip_space(self) -> int:
        match = _SPACE.match(self.text, self.position)
        return match.end() if match is not None else self.position

    def _meaningless(self, start: int) -> ParseError:
        character = self.text[start]
        cure = "remove it"
        if character == '"':
            cure = "close the string with a second quote on the same line"
        return ParseError(
            f"the character {character!r} has no meaning here",
            where=self.span(start, start + 1),
            cure=cure,
        )


def unquoted(word: str) -> str:
    """The content of a string as it is written, with its quotes and escapes."""
    return _ESCAPE.sub(_unescape, word[1:-1])


def _unescape(match: re.Match[str]) -> str:
    digits, letter = match.groups()
    return chr(int(digits, 16)) if digits else _LETTERS.get(letter, letter)
