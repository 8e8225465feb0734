"""The pretty forms of operations.

Most are operands and named settings with commas between them, then types:
``stablehlo.pad %0, %1, low = [1], high = [0], interior = [0] : (...) -> ...``. Those that look
otherwise have a reader of their own; those with regions are in `region_forms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.errors import ParseError
from tilewright.frontends.stablehlo.attribute_parser import (
    parse_convolved,
    parse_dictionary,
    parse_symbol,
)
from tilewright.frontends.stablehlo.listed import Collected, Form, Reader, read_listed
from tilewright.frontends.stablehlo.region_forms import read_reduce, read_scan, read_while
from tilewright.frontends.stablehlo.scanner import Token, unquoted
from tilewright.frontends.stablehlo.type_parser import (
    signed_integer,
    skip_brackets,
)


def read(reader: Reader, name: str, token: Token) -> Form:
    """What follows the name of an operation in its pretty form."""
    from_table = _OWN.get(name)
    if from_table is not None:
        return from_table(reader, name)
    if "." not in name and name not in ("return", "call"):
        raise ParseError(
            f"{name[:40]!r} is no operation",
            where=reader.scanner.where(token),
            cure="an operation's name has a dialect in front, as stablehlo.add has",
        )
    return read_listed(reader, name)


def _called(reader: Reader, name: str) -> Form:
    """``@name(%0, %1) {...} : ...``."""
    form = Collected(reader, name)
    token = reader.scanner.peek()
    if token.kind == "string":
        reader.scanner.next()
        target: Any = unquoted(token.text)
    else:
        symbol = parse_symbol(reader.scanner)
        target = symbol if form.short == "call" else symbol.name
    key = "callee" if form.short == "call" else "call_target_name"
    form.add(key, target, token)
    form.parenthesized()
    return form.finish()


def _composite(reader: Reader, name: str) -> Form:
    """``"name" %0, %1 {...} : ...``."""
    form = Collected(reader, name)
    token = reader.scanner.expect("string", "the name of the composite")
    form.add("name", unquoted(token.text), token)
    form.items(":", "{")
    return form.finish()


def _slice(reader: Reader, name: str) -> Form:
    """``%0 [0:2, 1:7:2] : ...``."""
    scanner = reader.scanner
    form = Collected(reader, name)
    form.operands.append(reader.value())
    token = scanner.expect("[", "ranges such as [0:2]")
    starts: list[int] = []
    limits: list[int] = []
    strides: list[int] = []
    for _ in scanner.entries("]"):
        starts.append(signed_integer(scanner))
        scanner.expect(":")
        limits.append(signed_integer(scanner))
        strides.append(signed_integer(scanner) if scanner.accept(":") else 1)
    form.add("start_indices", starts, token)
    form.add("limit_indices", limits, token)
    form.add("strides", strides, token)
    return form.finish()


def _constrained(reader: Reader, name: str) -> Form:
    """``%0 <@mesh, [{}, {"x"}]> : ...``: how it is divided over devices says nothing here."""
    form = Collected(reader, name)
    form.operands.append(reader.value())
    skip_brackets(reader.scanner)
    return form.finish()


def _tuple_element(reader: Reader, name: str) -> Form:
    """``%0[1] : ...``."""
    form = Collected(reader, name)
    form.operands.append(reader.value())
    token = reader.scanner.expect("[")
    form.add("index", signed_integer(reader.scanner), token)
    reader.scanner.expect("]")
    return form.finish()


def _convolution(reader: Reader, name: str) -> Form:
    """``(%0, %1) dim_numbers = ..., window = {...} {...} : ...``."""
    scanner = reader.scanner
    form = Collected(reader, name)
    form.parenthesized()
    token = scanner.expect_word("dim_numbers")
    scanner.expect("=")
    form.add("dimension_numbers", parse_convolved(scanner), token)
    scanner.expect(",")
    token = scanner.expect_word("window")
    scanner.expect("=")
    window = parse_dictionary(scanner)
    for key, value in window.items():
        if key not in _WINDOW:
            raise ParseError(
                f"a window has no {key[:40]!r}",
                where=scanner.where(token),
                cure=f"use {', '.join(_WINDOW)}",
            )
        form.add(_WINDOW[key], value, token)
    return form.finish()


_WINDOW = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}


_OWN: Mapping[str, Callable[[Reader, str], Form]] = {
    "call": _called,
    "func.call": _called,
    "stablehlo.custom_call": _called,
    "stablehlo.composite": _composite,
    "stablehlo.slice": _slice,
    "stablehlo.get_tuple_element": _tuple_element,
    "stablehlo.convolution": _convolution,
    "stablehlo.reduce": read_reduce,
    "stablehlo.while": read_while,
    "chlo.scan": read_scan,
    "sdy.sharding_constraint": _constrained,
}
