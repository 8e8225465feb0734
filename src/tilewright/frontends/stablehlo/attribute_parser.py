"""Reads attributes: numbers, strings, lists, dicts, ``dense<...>``, ``#stablehlo.gather<...>``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.errors import ParseError
from tilewright.frontends.stablehlo.attributes import (
    Convolved,
    Foreign,
    Paired,
    Record,
    Symbol,
    Word,
)
from tilewright.frontends.stablehlo.elements import parse_elements
from tilewright.frontends.stablehlo.scanner import Scanner, Token, unquoted
from tilewright.frontends.stablehlo.type_parser import at_type, parse_type, skip_brackets

_MOST_DIGITS = 25
# Of mhlo, from which StableHLO comes, attributes are the same.
_DIALECTS = ("stablehlo", "chlo", "mhlo")
_DICTS = (
    "scatter",
    "gather",
    "dot",
    "ragged_dot",
    "channel_handle",
    "dot_algorithm",
    "output_operand_alias",
    "result_accuracy",
)


def parse_attribute(scanner: Scanner) -> Any:
    """Any attribute, with its type where one follows."""
    with scanner.nested():
        token = scanner.peek()
        reader = _READERS.get(token.kind)
        if reader is not None:
            return reader(scanner)
        if token.kind == "word":
            return _word(scanner)
        if token.kind == "type":
            return parse_type(scanner)
        raise scanner.unexpected("an attribute", "write a number, a string, a list, or dense<...>")


def parse_dictionary(scanner: Scanner, places: dict[str, Token] | None = None) -> dict[str, Any]:
    """``{name = value, flag}``; ``places`` is told where each name stands."""
    scanner.expect("{")
    return _fields(scanner, "}", places)


def _fields(
    scanner: Scanner, closing: str, places: dict[str, Token] | None = None
) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for _ in scanner.entries(closing, trailing=closing == ">"):
        token = scanner.peek()
        if token.kind not in ("word", "string"):
            raise scanner.unexpected("the name of an attribute")
        scanner.next()
        name = unquoted(token.text) if token.kind == "string" else token.text
        if name in attributes:
            raise ParseError(
                f"the attribute {name!r} stands here twice",
                where=scanner.where(token),
                cure="remove one of them",
            )
        if places is not None:
            places[name] = token
        attributes[name] = parse_attribute(scanner) if scanner.accept("=") else True
    return attributes


def _word(scanner: Scanner) -> Any:
    token = scanner.peek()
    if token.text == "dense":
        return parse_elements(scanner)
    if token.text in ("true", "false"):
        scanner.next()
        return token.text == "true"
    if token.text == "array":
        return _array(scanner)
    if token.text in ("unit", "none"):
        scanner.next()
        return True
    if token.text in ("loc", "affine_map", "dense_resource", "sparse"):
        scanner.next()
        skip_brackets(scanner)
        return Foreign(scanner.text[token.start : scanner.position])
    if at_type(scanner):
        return parse_type(scanner)
    scanner.next()
    return Word(token.text)


def _array(scanner: Scanner) -> tuple[Any, ...]:
    """``array<i64: 1, 2>``."""
    scanner.next()
    scanner.expect("<")
    parse_type(scanner)
    numbers: list[Any] = []
    if scanner.accept(":"):
        for _ in scanner.separated():
            numbers.append(_plain_number(scanner))
    scanner.expect(">")
    return tuple(numbers)


def _number(scanner: Scanner) -> Any:
    value = _plain_number(scanner)
    if scanner.accept(":"):
        parse_type(scanner)
    return value


def _plain_number(scanner: Scanner) -> Any:
    if scanner.at_word("true", "false"):
        return scanner.next().text == "true"
    sign = -1 if scanner.accept("-") else 1
    token = scanner.peek()
    if token.kind not in ("int", "hex", "float"):
        raise scanner.unexpected("a number")
    if token.kind != "float" and len(token.text) > _MOST_DIGITS:
        raise ParseError(
            "this number is too large",
            where=scanner.where(token),
            cure="write one that 64 bits hold",
        )
    scanner.next()
    if token.kind == "float":
        return sign * float(token.text)
    return sign * int(token.text, 16 if token.kind == "hex" else 10)


def _string(scanner: Scanner) -> str:
    text = unquoted(scanner.next().text)
    if scanner.accept(":"):
        parse_type(scanner)
    return text


def _list(scanner: Scanner) -> Any:
    """``[a, b]``, or ``[0] x [1]``."""
    values = parse_list(scanner)
    if scanner.accept_word("x"):
        return Paired(tuple(values), tuple(parse_list(scanner)))
    return values


def parse_list(scanner: Scanner) -> list[Any]:
    """``[a, b]``."""
    scanner.expect("[")
    return [parse_attribute(scanner) for _ in scanner.entries("]")]


def parse_symbol(scanner: Scanner) -> Symbol:
    """``@name``."""
    text = scanner.expect("symbol", "a name such as @main").text[1:]
    symbol = Symbol(unquoted(text) if text.startswith('"') else text)
    while scanner.accept("::"):  # a symbol in a module in the module
        inner = scanner.expect("symbol").text[1:]
        symbol = Symbol(f"{symbol.name}::{inner}")
    return symbol


def _hash(scanner: Scanner) -> Any:
    """``#stablehlo<name WORD>``, ``#stablehlo.gather<...>``, an alias, or another dialect's."""
    start = scanner.next()
    name = start.text[1:]
    if name in _DIALECTS and scanner.accept("<"):
        scanner.expect("word")
        return _enumeration(scanner)
    dialect, _, kind = name.partition(".")
    if dialect in _DIALECTS and scanner.at("<"):
        if kind == "conv":
            scanner.next()
            if scanner.accept_word("raw"):
                return _raw_convolved(scanner, start)
            dims = parse_convolved(scanner)
            scanner.expect(">")
            return dims
        if kind in _DICTS:
            scanner.next()
            return Record(kind, _fields(scanner, ">"))
        scanner.next()
        return _enumeration(scanner)
    if scanner.at("<"):
        skip_brackets(scanner)
    return Foreign(scanner.text[start.start : scanner.position])


def _enumeration(scanner: Scanner) -> Any:
    """What follows in ``#stablehlo<comparison_direction LT>``; some have angle brackets more."""
    if scanner.accept("<"):
        value = _enumeration(scanner)
    else:
        word = scanner.next()
        value = Word(word.text)
        if word.kind != "word":
            scanner.back_to(word.start)
            raise scanner.unexpected("a name such as LT")
    scanner.expect(">")
    return value


def parse_convolved(scanner: Scanner) -> Convolved:
    """``[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]``."""
    input = _dims(scanner)
    scanner.expect_word("x")
    kernel = _dims(scanner)
    scanner.expect("->")
    return Convolved(input, kernel, _dims(scanner))


def _raw_convolved(scanner: Scanner, start: Token) -> Convolved:
    """``input_batch_dimension = 0, input_spatial_dimensions = [1, 2], ...>``."""
    fields = _fields(scanner, ">")

    def letters(tensor: str, first: str, second: str) -> tuple[str, ...]:
        named = {fields.pop(f"{tensor}_{first}_dimension", None): first[0]}
        named[fields.pop(f"{tensor}_{second}_dimension", None)] = second[0]
        spatial = fields.pop(f"{tensor}_spatial_dimensions", ())
        for number, dim in enumerate(spatial if isinstance(spatial, list | tuple) else ()):
            named[dim] = str(number)
        if set(named) != set(range(len(named))):
            raise ParseError(
                f"the dims of the {tensor} do not go from 0 on",
                where=scanner.where(start),
                cure=f"write {tensor}_{first}_dimension = 0 and so on, each dim once",
            )
        return tuple(named[dim] for dim in range(len(named)))

    convolved = Convolved(
        letters("input", "batch", "feature"),
        letters("kernel", "input_feature", "output_feature"),
        letters("output", "batch", "feature"),
    )
    if fields:
        raise ParseError(
            f"a convolution has no {next(iter(fields))!r}",
            where=scanner.where(start),
            cure="leave it out",
        )
    return convolved


def _dims(scanner: Scanner) -> tuple[str, ...]:
    scanner.expect("[")
    words: list[str] = []
    for _ in scanner.entries("]"):
        token = scanner.next()
        if token.kind not in ("word", "int", "?"):
            scanner.back_to(token.start)
            raise scanner.unexpected("what the dim is: b, f, i, o, or a number")
        words.append(token.text)
    return tuple(words)


_READERS: Mapping[str, Callable[[Scanner], Any]] = {
    "int": _number,
    "hex": _number,
    "float": _number,
    "-": _number,
    "string": _string,
    "[": _list,
    "{": parse_dictionary,
    "symbol": parse_symbol,
    "attribute": _hash,
    "(": parse_type,
}
