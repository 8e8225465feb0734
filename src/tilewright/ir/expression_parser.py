"""Reads expressions and views: precedence climbing over the tokens of `syntax`."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import ParamSpec

from tilewright.dtypes import ALL, DType, boolean, f32, s64
from tilewright.errors import ParseError, Span
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import (
    Const,
    Expr,
    Var,
    binary,
    bitcast,
    cast,
    const,
    fma,
    select,
    unary,
    var,
)
from tilewright.ir.load import load
from tilewright.ir.operators import BINARY, COMPARISONS, UNARY
from tilewright.ir.scope import Scope
from tilewright.ir.stmt import View
from tilewright.ir.syntax import INFIX, NOT, Token, tokenize

TYPES = {t.name: t for t in ALL}
# Symbol to operator and strength; `a > b` and `a >= b` are read as `b < a` and `b <= a`.
_OPERATORS = {symbol: (op, strength) for op, (symbol, strength) in INFIX.items()}
_OPERATORS |= {">": ("gt", _OPERATORS["<"][1]), ">=": ("ge", _OPERATORS["<"][1])}
_FLIPPED = {"gt": "lt", "ge": "le"}
_OF_THREE: dict[str, Callable[..., Expr]] = {
    "select": select,
    "fma": fma,
    "mad": partial(fma, exact=False),
}
_FUNCTIONS = {op: 2 for op in BINARY if op not in INFIX} | dict.fromkeys(_OF_THREE, 3)
_FUNCTIONS |= {op: 1 for op in UNARY if op not in ("neg", "not")}
# How errors call tokens that are not written as their kind.
_CLASSES = {"name": "a name", "int": "an integer"}
_LINES = {
    "newline": "the end of the line",
    "end": "the end of the text",
    "indent": "a deeper indented line",
    "dedent": "the end of the block",
}
_LITERALS = frozenset({"int", "float", "inf", "nan"})


P = ParamSpec("P")


class ExpressionParser:
    """A cursor over tokens, and the names in scope. Variables and buffers don't share names."""

    def __init__(
        self,
        text: str,
        variables: Mapping[str, DType],
        buffers: Mapping[str, Buffer],
        file: str | None = None,
    ) -> None:
        self.text = text
        self.file = file
        self.variables: Scope[DType] = Scope(variables)
        self.buffers: Scope[Buffer] = Scope(buffers)
        self._tokens = tokenize(text, file)
        self._position = 0

    # The cursor.

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._position]

    def ahead(self, count: int) -> Token:
        """The token ``count`` after the next one; ``end`` beyond the last."""
        return self._tokens[min(self._position + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Consumes the next token, and returns it."""
        token = self.token
        self._position = min(self._position + 1, len(self._tokens) - 1)
        return token

    def accept(self, kind: str) -> bool:
        """Consumes the next token if it is of that kind; returns whether it was."""
        if self.token.kind != kind:
            return False
        self.take()
        return True

    def expect(self, kind: str, purpose: str) -> Token:
        """Consumes the next token, which must be of that kind; ``purpose`` completes the error."""
        if self.token.kind != kind:
            what = _CLASSES.get(kind, f"`{kind}`")
            raise self.unexpected(f"{what} {purpose}", f"write {what} here")
        return self.take()

    def unexpected(self, what: str, cure: str) -> ParseError:
        """The error for a next token other than ``what``."""
        token = self.token
        actual = _LINES.get(token.kind, f"`{self.text[token.start : token.end]}`")
        return self.refusal(f"expected {what}, found {actual}", token.start, token.end, cure)

    def refusal(
        self, what: str, start: int, end: int | None = None, cure: str | None = None
    ) -> ParseError:
        """The error that marks the text from ``start`` to ``end`` (default: to the last token)."""
        return ParseError(what, where=self.span(start, end), cure=cure)

    def span(self, start: int, end: int | None = None) -> Span:
        """The text from ``start`` to ``end`` (default: to the last token)."""
        return Span(self.text, start, self.last_end if end is None else end, self.file)

    @property
    def last_end(self) -> int:
        """The end of the last consumed token."""
        return self._tokens[max(self._position - 1, 0)].end

    # Expressions.

    def expression(self, least: int = 0) -> Expr:
        """An expression whose operators bind at least as strongly as ``least``."""
        start = self.token.start
        left = self._prefix()
        while True:
            op, strength = _OPERATORS.get(self.token.kind, ("", -1))
            if strength < max(least, 0):
                break
            self.take()
            right = self.expression(strength + 1)
            left = self._checked(start, _infix, op, left, right)
            if op in COMPARISONS or op in _FLIPPED:
                self._refuse_chain(strength)
        return left

    def typed_expression(self, type_: DType, what: str, cure: str | None = None) -> Expr:
        """An expression of that type."""
        start = self.token.start
        result = self.expression()
        if result.type is not type_:
            raise self.refusal(
                f"{what} must be {type_}, this is {result.type}",
                start,
                cure=cure or f"convert it: `{type_}(...)`",
            )
        return result

    def _refuse_chain(self, strength: int) -> None:
        token = self.token
        if _OPERATORS.get(token.kind, ("", -1))[1] == strength:
            raise self.refusal(
                "comparisons don't chain",
                token.start,
                token.end,
                "write `a < b and b < c`, or parentheses around one of them",
            )

    def _checked(
        self, start: int, build: Callable[P, Expr], *args: P.args, **kwargs: P.kwargs
    ) -> Expr:
        """``build(*args)``; its `TypeError` becomes an error that marks the text from ``start``."""
        try:
            return build(*args, **kwargs)
        except TypeError as error:
            what, _, cure = str(error).partition("; ")
            cure = cure or "convert the operands, for example `f32(...)`"
            raise self.refusal(what, start, cure=cure) from None

    def _prefix(self) -> Expr:
        token = self.token
        if token.kind == "-":
            self.take()
            if self.token.kind in _LITERALS:
                return self._number(None, token)
            return self._checked(token.start, unary, "neg", self._prefix())
        if token.kind == "not":
            self.take()
            return self._checked(token.start, unary, "not", self.expression(NOT))
        return self._atom()

    def _atom(self) -> Expr:
        token = self.token
        if token.kind in _LITERALS:
            return self._number(None, None)
        if token.kind in ("True", "False"):
            return const(self.take().kind == "True")
        if self.accept("("):
            result = self.expression()
            self.expect(")", "to close the parenthesis")
            return result
        if token.kind != "name":
            raise self.unexpected(
                "an expression", "write a number, a variable, `buffer[...]` or `f(...)`"
            )
        following = self.ahead(1).kind
        if following == "(":
            return self._call()
        if following == "[":
            view = self.view()
            return load(view.buffer, view.index, view.mask)
        return self.variable()

    def variable(self) -> Var:
        """A variable in scope."""
        token = self.take()
        type_ = self.variables.get(token.text)
        if type_ is not None:
            return var(token.text, type_)
        buffer = self.buffers.get(token.text)
        if buffer is not None:
            raise self.refusal(
                f"{token.text} is a buffer, not a value",
                token.start,
                cure=f"give its {buffer.rank} indices: `{token.text}[...]`",
            )
        raise self._unknown("variable", token, self.variables.names())

    def _unknown(self, what: str, token: Token, names: Iterable[str]) -> ParseError:
        close = difflib.get_close_matches(token.text, list(names), 1)
        cure = f"did you mean `{close[0]}`?" if close else f"define the {what} before this line"
        return self.refusal(f"unknown {what} {token.text}", token.start, token.end, cure)

    def _call(self) -> Expr:
        name = self.take()
        self.take()
        type_ = TYPES.get(name.text)
        if type_ is not None:
            result = self._conversion(type_, name.start)
            self.expect(")", "to close the conversion")
            return result
        if name.text == "bitcast":
            return self._bitcast(name.start)
        count = _FUNCTIONS.get(name.text)
        if count is None:
            raise self._unknown("function", name, [*_FUNCTIONS, "bitcast", *TYPES])
        args = [self.expression()]
        while self.accept(","):
            args.append(self.expression())
        self.expect(")", "to close the arguments")
        if len(args) != count:
            raise self.refusal(
                f"{name.text} takes {count} arguments, not {len(args)}",
                name.start,
                cure=f"write `{name.text}({', '.join('abc'[:count])})`",
            )
        return self._checked(name.start, _apply, name.text, args)

    def _conversion(self, type_: DType, start: int) -> Expr:
        """What stands between the parentheses of ``f64(...)``: its constant, or a cast to it."""
        negative = self.token if self.token.kind == "-" else None
        literal, closing = (1, 2) if negative else (0, 1)
        if self.ahead(literal).kind in _LITERALS and self.ahead(closing).kind == ")":
            if negative:
                self.take()
            return self._number(type_, negative)
        return self._checked(start, cast, type_, self.expression())

    def _bitcast(self, start: int) -> Expr:
        """What follows ``bitcast(``: the type, and whose bits it takes."""
        name = self.expect("name", "of the type that bitcast gives")
        type_ = TYPES.get(name.text)
        if type_ is None:
            choice = "write one of " + ", ".join(TYPES)
            what = f"there is no type {name.text}"
            raise self.refusal(what, name.start, name.end, choice)
        self.expect(",", "and the value whose bits it takes")
        value = self.expression()
        self.expect(")", "to close the arguments")
        return self._checked(start, bitcast, type_, value)

    def _number(self, type_: DType | None, minus: Token | None) -> Const:
        """The literal that comes next as a constant of ``type_`` (default: s64 or f32)."""
        token = self.take()
        start = token.start if minus is None else minus.start
        sign = "" if minus is None else "-"
        if type_ is None:
            type_ = s64 if token.kind == "int" else f32
        if type_.is_float:
            return self._float(sign + token.text, type_, start)
        if type_ is boolean or token.kind != "int":
            raise self.refusal(
                f"{token.text} is not a constant of type {type_}",
                start,
                cure="write True or False" if type_ is boolean else "write an integer",
            )
        # Python refuses to read integers of thousands of digits; none of our types holds them.
        value = int(sign + token.text) if len(token.text) < 100 else math.inf
        if not type_.lowest <= value <= type_.highest:
            cure = f"{type_} holds {type_.lowest} to {type_.highest}"
            raise self.refusal(f"{sign}{token.text} does not fit {type_}", start, cure=cure)
        return const(value, type_)

    def _float(self, text: str, type_: DType, start: int) -> Const:
        result = const(float(text), type_)
        if text[-1].isdigit() and not math.isfinite(result.value):
            cure = f"write inf, or stay below the greatest {type_}"
            raise self.refusal(f"{text} is too large for {type_}", start, cure=cure)
        return result

    def view(self) -> View:
        """``buffer[index, ... | mask]``."""
        name = self.expect("name", "of a buffer")
        buffer = self.buffers.get(name.text)
        if buffer is None:
            if self.variables.get(name.text) is not None:
                cure = "leave the brackets away, or name a buffer"
                raise self.refusal(
                    f"{name.text} is a variable, not a buffer", name.start, cure=cure
                )
            raise self._unknown("buffer", name, self.buffers.names())
        self.expect("[", f"and the indices of {name.text}")
        index: list[Expr] = []
        while self.token.kind not in ("]", "|"):
            index.append(self.typed_expression(s64, "an index"))
            if not self.accept(","):
                break
        mask = self.typed_expression(boolean, "a mask") if self.accept("|") else None
        self.expect("]", "to close the indices")
        if len(index) != buffer.rank:
            raise self.refusal(
                f"{name.text} has {buffer.rank} dims, but {len(index)} indices are given",
                name.start,
                cure=f"write one index per dim of {buffer}",
            )
        return View(buffer, tuple(index), mask)


def _infix(op: str, a: Expr, b: Expr) -> Expr:
    return binary(_FLIPPED[op], b, a) if op in _FLIPPED else binary(op, a, b)


def _apply(function: str, args: list[Expr]) -> Expr:
    if len(args) == 3:
        return _OF_THREE[function](*args)
    return binary(function, *args) if len(args) == 2 else unary(function, *args)
