"""Reads ``dense<...>``: constants as numpy arrays. One value for all stays one in memory."""

from __future__ import annotations

import binascii
import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import ParseError
from tilewright.frontends.stablehlo import types
from tilewright.frontends.stablehlo.scanner import Scanner, Token, unquoted
from tilewright.frontends.stablehlo.type_parser import parse_type
from tilewright.frontends.stablehlo.types import Element, Tensor, numpy_type

# Decimal numbers in brackets, which Python's own reader of lists reads at once.
_PLAIN = re.compile(r"[\s\d,.\[\]eE+\-]*(?=>)")
_MOST_DIGITS = 25


@dataclass(frozen=True, eq=False)
class Elements:
    """A constant: ``value`` has the type's shape; for one value it is a view of that one."""

    type: Tensor
    value: NDArray[Any]


@dataclass(frozen=True)
class _Literal:
    """What stood between ``<`` and ``>``: a list of lists (or one value, or a string of bytes)."""

    value: Any
    token: Token
    bytes: bool = False


def parse_elements(scanner: Scanner) -> Elements:
    """``dense<[1, 2]> : tensor<2xi32>``, from the word ``dense`` on."""
    start = scanner.expect_word("dense")
    scanner.expect("<")
    literal = _literal(scanner)
    scanner.expect(">")
    scanner.expect(":", "':' and the type of the constant")
    type_ = parse_type(scanner)
    if not isinstance(type_, Tensor) or not type_.is_static:
        raise ParseError(
            f"a constant cannot be of type {type_}",
            where=scanner.span(start.start),
            why="all of its sizes have to be known",
            cure="write a type such as tensor<2xf32>",
        )
    if literal.bytes:
        return Elements(type_, _from_bytes(scanner, literal, type_))
    value = _converted(scanner, literal, type_)
    return Elements(type_, _shaped(scanner, literal, value, type_))


def _literal(scanner: Scanner) -> _Literal:
    token = scanner.peek()
    if token.kind == "string":
        scanner.next()
        return _Literal(unquoted(token.text), token, bytes=True)
    if token.kind == ">":
        return _Literal([], token)
    if plain := scanner.letters(_PLAIN):
        try:
            return _Literal(json.loads(plain.group()), token)
        except (ValueError, RecursionError):
            scanner.back_to(token.start)  # word by word, the error says what is wrong
    return _Literal(_nested_values(scanner), token)


def _nested_values(scanner: Scanner) -> Any:
    """A list of lists, word by word: hexadecimal numbers, truth values and complex numbers, too."""
    with scanner.nested():
        if not scanner.accept("["):
            return _value(scanner)
        return [_nested_values(scanner) for _ in scanner.entries("]")]


def _value(scanner: Scanner) -> Any:
    if scanner.accept("("):
        real = _number(scanner)
        scanner.expect(",")
        imaginary = _number(scanner)
        scanner.expect(")")
        return _Pair(real, imaginary)
    return _number(scanner)


@dataclass(frozen=True)
class _Pair:
    real: Any
    imaginary: Any


@dataclass(frozen=True)
class _Bits:
    """A number in hexadecimal: of a float, its bits."""

    value: int


def _number(scanner: Scanner) -> Any:
    token = scanner.peek()
    if token.kind == "word" and token.text in ("true", "false"):
        scanner.next()
        return token.text == "true"
    sign = -1 if scanner.accept("-") else 1
    token = scanner.peek()
    if token.kind == "hex" and len(token.text) <= _MOST_DIGITS:
        scanner.next()
        value = int(token.text, 16)
        return _Bits(value) if sign > 0 else -value
    if token.kind == "int" and len(token.text) <= _MOST_DIGITS:
        scanner.next()
        return sign * int(token.text)
    if token.kind == "float":
        scanner.next()
        return sign * float(token.text)
    raise scanner.unexpected("a number", "write numbers as 1, -2.5, 0x7FC0, true, or (1.0, 2.0)")


def _converted(scanner: Scanner, literal: _Literal, type_: Tensor) -> NDArray[Any]:
    """The values as an array of the element's numpy type, as they are written."""
    element = type_.element
    try:
        values = np.array(literal.value, dtype=object)
    except ValueError:
        raise _refused(scanner, literal, "the lists of this constant differ in length") from None
    if values.size and any(isinstance(number, list) for number in values.flat):
        raise _refused(scanner, literal, "the lists of this constant differ in length")
    target = numpy_type(element)
    if values.size == 0:
        return np.zeros(values.shape, target)
    if isinstance(element, types.Float) and set(map(type, values.flat)) == {float}:
        with np.errstate(over="ignore"):
            return values.astype(np.float64).astype(target)
    try:
        converted = [_one(number, element, target) for number in values.flat]
    except MismatchError as error:
        raise _refused(scanner, literal, str(error)) from None
    if target.kind in "biufc":
        with np.errstate(over="ignore"):
            return np.array(converted, dtype=target).reshape(values.shape)
    with np.errstate(all="ignore"):
        stacked = np.stack([np.asarray(number, dtype=target) for number in converted])
    return stacked.reshape(values.shape)


class MismatchError(Exception):
    """A value that its type does not have."""


def _one(value: Any, element: Element, target: np.dtype[Any]) -> Any:
    if isinstance(element, types.Complex):
        if not isinstance(value, _Pair):
            raise MismatchError(
                f"complex numbers are written in pairs, (1.0, 2.0): {_written(value)}"
            )
        part = np.dtype("float64" if element.part.name == "f64" else "float32")
        real = _one(value.real, element.part, part)
        imaginary = _one(value.imaginary, element.part, part)
        return complex(float(real), float(imaginary))
    if isinstance(value, _Pair):
        raise MismatchError(f"a pair is no value of {element}")
    if isinstance(element, types.Float):
        if isinstance(value, _Bits):
            width = target.itemsize * 8
            if value.value >> width:
                raise MismatchError(f"{hex(value.value)} has more bits than {element}")
            bits = np.array(value.value, dtype=f"uint{width}")
            return bits.view(target)[()]
        if isinstance(value, bool):
            raise MismatchError(f"{_written(value)} is no value of {element}")
        return float(value)
    return _integer(value, element)


def _integer(value: Any, element: Element) -> int | bool:
    number = value.value if isinstance(value, _Bits) else value
    if isinstance(number, float):
        raise MismatchError(f"{number} is no value of {element}")
    if isinstance(element, types.Quantized):
        element = element.storage
    if isinstance(element, types.Integer):
        if element.bits == 1:
            if number not in (0, 1, -1):
                raise MismatchError(f"{number} is no value of i1")
            return bool(number)
        if isinstance(value, _Bits) and element.signed and number >> (element.bits - 1) == 1:
            number -= 1 << element.bits
        if not element.low <= number <= max(element.high, 0):
            # MLIR takes the bits of a number without sign for a signed type as well.
            raise MismatchError(f"{number} is no value of {element}")
    elif not -(1 << 63) <= number < 1 << 63:
        raise MismatchError(f"{number} is no value of {element}")
    return int(number)


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shaped(
    scanner: Scanner, literal: _Literal, value: NDArray[Any], type_: Tensor
) -> NDArray[Any]:
    shape = type_.sizes
    if value.ndim == 0:
        return np.broadcast_to(value, shape)
    if value.shape == shape:
        return value
    if value.size == 0 and type_.count == 0:
        return value.reshape(shape)
    raise _refused(
        scanner,
        literal,
        f"this constant has the shape {list(value.shape)}, but the type is {type_}",
    )


def _from_bytes(scanner: Scanner, literal: _Literal, type_: Tensor) -> NDArray[Any]:
    text = literal.value
    if not text.startswith("0x"):
        raise _refused(scanner, literal, "a string of bytes begins with 0x")
    try:
        data = binascii.unhexlify(text[2:])
    except ValueError:
        raise _refused(scanner, literal, "these are no bytes in hexadecimal digits") from None
    target = numpy_type(type_.element)
    count = type_.count
    if target == np.dtype(bool) and len(data) == (count + 7) // 8 != count:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return bits[:count].astype(bool).reshape(type_.sizes)
    if len(data) == target.itemsize:
        one = np.frombuffer(data, target.newbyteorder("<") if target.kind in "iufc" else target)
        return np.broadcast_to(one.astype(target)[0], type_.sizes)
    if len(data) != count * target.itemsize:
        raise _refused(
            scanner,
            literal,
            f"this constant has {len(data)} bytes, but {type_} has {count * target.itemsize}",
        )
    return np.frombuffer(data, target).reshape(type_.sizes)


def _refused(scanner: Scanner, literal: _Literal, what: str) -> ParseError:
    return ParseError(
        what,
        where=scanner.where(literal.token),
        cure="write as many values as the type has, each as its element type has them",
    )
