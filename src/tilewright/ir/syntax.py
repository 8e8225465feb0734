"""What the printer and the parser share: operators, precedence, names, and tokens.

The text form is indented like Python. Newlines inside brackets do not count; ``#`` starts a
comment. A name is an identifier (dots allowed inside); any other is written in backquotes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tilewright.errors import ParseError, Span

# Binding strength, weakest first. Operators of one strength associate to the left.
OR, AND, NOT, COMPARISON, XOR, SHIFT, SUM, PRODUCT, NEGATION, ATOM = range(1, 11)

# Those of `operators.BINARY` that are written between their operands; the others are functions.
INFIX: dict[str, tuple[str, int]] = {
    "or": ("or", OR),
    "and": ("and", AND),
    "lt": ("<", COMPARISON),
    "le": ("<=", COMPARISON),
    "eq": ("==", COMPARISON),
    "ne": ("!=", COMPARISON),
    "xor": ("^", XOR),
    "shl": ("<<", SHIFT),
    "shr": (">>", SHIFT),
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "floordiv": ("//", PRODUCT),
    "mod": ("%", PRODUCT),
}

KEYWORDS = frozenset(
    {"and", "else", "False", "for", "if", "in", "inf", "nan", "not", "or", "pass", "True", "while"}
)

_IDENTIFIER = re.compile(r"[A-Za-z_][\w.]*")
_TOKEN = re.compile(
    r"(?P<space>[ \r]+|\#[^\n]*)"
    r"|(?P<newline>\n)"
    r"|(?P<float>\d+\.(?!\.)\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)"
    r"|(?P<int>\d+)"
    r"|(?P<name>[A-Za-z_][\w.]*)"
    r"|(?P<quoted>`[^`\n]+`)"
    r"|(?P<symbol><<|>>|<=|>=|==|!=|//|\.\.|[-+*/%^<>=()\[\]{},:;|&])"
)


def quoted(name: str) -> str:
    """``name`` as it is written in the text."""
    plain = _IDENTIFIER.fullmatch(name) is not None and name not in KEYWORDS
    return name if plain else f"`{name}`"


class Token(NamedTuple):
    """A word of the text. ``kind`` is the word itself for keywords and symbols, otherwise
    ``name``, ``int``, ``float``, ``newline``, ``indent``, ``dedent`` or ``end``.
    """

    kind: str
    text: str
    start: int
    end: int


def tokenize(text: str, file: str | None = None) -> list[Token]:
    """The tokens of ``text``, with the indentation made explicit; the last one is ``end``.

    The first line's indentation is that of the whole text. Raises `ParseError`, which names
    ``file``.
    """
    return _Tokenizer(text, file).run()


class _Tokenizer:
    def __init__(self, text: str, file: str | None) -> None:
        self.text = text
        self.file = file
        self.tokens: list[Token] = []
        self.indents: list[int] = []
        self.brackets = 0
        self.line_start = 0
        self.fresh_line = True  # no token of this line seen yet

    def run(self) -> list[Token]:
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self._unknown(position)
            self._add(str(match.lastgroup), match.group(), position)
            position = match.end()
        # Errors at the end point after the last word, not at an empty last line.
        end = self.tokens[-1].end if self.tokens else 0
        if not self.fresh_line:
            self.tokens.append(Token("newline", "", end, end))
        self.tokens += [Token("dedent", "", end, end)] * (len(self.indents) - 1)
        self.tokens.append(Token("end", "", end, end))
        return self.tokens

    def _add(self, group: str, word: str, start: int) -> None:
        end = start + len(word)
        if group == "space":
            return
        if group == "newline":
            if not self.fresh_line and not self.brackets:
                self.tokens.append(Token("newline", "", start, end))
                self.fresh_line = True
            self.line_start = end
            return
        if self.fresh_line:
            self._indent(start)
            self.fresh_line = False
        if group == "symbol":
            if word in "([{":
                self.brackets += 1
            elif word in ")]}":
                self.brackets = max(0, self.brackets - 1)
        is_word = group == "symbol" or word in KEYWORDS
        kind = word if is_word else "name" if group == "quoted" else group
        self.tokens.append(Token(kind, word[1:-1] if group == "quoted" else word, start, end))

    def _indent(self, start: int) -> None:
        width = start - self.line_start
        if not self.indents:
            self.indents.append(width)
        elif width > self.indents[-1]:
            self.indents.append(width)
            self.tokens.append(Token("indent", "", start, start))
        while width < self.indents[-1]:
            self.indents.pop()
            if not self.indents or width > self.indents[-1]:
                raise ParseError(
                    "this line is indented like no line around it",
                    where=self._span(self.line_start, max(start, self.line_start + 1)),
                    cure="align it with the block that it belongs to",
                )
            self.tokens.append(Token("dedent", "", start, start))

    def _span(self, start: int, end: int) -> Span:
        return Span(self.text, start, end, self.file)

    def _unknown(self, position: int) -> ParseError:
        character = self.text[position]
        cure = "remove it, or write a name that holds it in backquotes"
        if character == "\t":
            cure = "indent and separate with spaces"
        elif character == "`":
            cure = "close the name with a second backquote on the same line"
        return ParseError(
            f"the character {character!r} has no meaning here",
            where=self._span(position, position + 1),
            cure=cure,
        )
