"""Reads types: ``tensor<2x?xf32>``, ``(a, b) -> c``, ``!quant.uniform<...>``."""

from __future__ import annotations

import math
import re
from math import prod

from tilewright.errors import ParseError
from tilewright.frontends.stablehlo import types
from tilewright.frontends.stablehlo.scanner import Scanner, Token
from tilewright.frontends.stablehlo.types import Element, Tensor, Type

_DIM = re.compile(r"(\d+|\?)[ \t]*x[ \t]*")
_ANY_RANK = re.compile(r"\*[ \t]*x[ \t]*")
_INTEGER = re.compile(r"(u|s)?i(\d+)")
# Those that quantized types store are ``u8``, too, which MLIR writes.
_STORED = re.compile(r"(ui?|si|i)(\d+)")
# More is no tensor in any memory, and numpy counts bytes in 63 bits.
_MOST_ELEMENTS = 1 << 48
_HIGHEST_RANK = 32
_WIDEST_SIZE = 15  # digits


def parse_type(scanner: Scanner) -> Type:
    """Any type."""
    with scanner.nested():
        if scanner.at("("):
            return parse_function_type(scanner)
        token = scanner.peek()
        if token.kind == "type":
            return _dialect_type(scanner)
        if token.kind != "word":
            raise scanner.unexpected("a type", "write one such as tensor<2x3xf32>")
        if token.text == "tensor":
            return _tensor(scanner)
        if token.text == "tuple":
            scanner.next()
            return types.Tuple(_listed(scanner, "<", ">"))
        return _element(scanner)


def parse_function_type(scanner: Scanner) -> types.Function:
    """``(a, b) -> c`` or ``(a, b) -> (c, d)``."""
    inputs = _listed(scanner, "(", ")")
    scanner.expect("->")
    results = _listed(scanner, "(", ")") if scanner.at("(") else (parse_type(scanner),)
    return types.Function(inputs, results)


def parse_types(scanner: Scanner) -> tuple[Type, ...]:
    """Types with commas between them."""
    results = [parse_type(scanner)]
    while scanner.accept(","):
        results.append(parse_type(scanner))
    return tuple(results)


def at_type(scanner: Scanner) -> bool:
    """Whether a type begins here."""
    token = scanner.peek()
    if token.kind == "type":
        return True
    named = token.text in ("tensor", "tuple", "complex", "index") or token.text in types.FLOATS
    return token.kind == "word" and (named or _INTEGER.fullmatch(token.text) is not None)


def _listed(scanner: Scanner, opening: str, closing: str) -> tuple[Type, ...]:
    scanner.expect(opening)
    if scanner.accept(closing):
        return ()
    result = parse_types(scanner)
    scanner.expect(closing)
    return result


def _tensor(scanner: Scanner) -> Type:
    start = scanner.next()
    scanner.expect("<")
    if scanner.letters(_ANY_RANK):
        element = _element(scanner)
        scanner.expect(">")
        return types.Unranked(element)
    shape: list[int | None] = []
    while result := scanner.letters(_DIM):
        if len(result[1]) > _WIDEST_SIZE:
            raise _too_large(scanner, start)
        shape.append(None if result[1] == "?" else int(result[1]))
    element = _element(scanner)
    bounds: tuple[int | None, ...] = ()
    if scanner.accept(","):
        bounds = _encoding(scanner)
    scanner.expect(">")
    sizes = [size for size in shape if size]
    if len(shape) > _HIGHEST_RANK or prod(sizes) > _MOST_ELEMENTS:
        raise _too_large(scanner, start)
    return Tensor(tuple(shape), element, bounds)


def _too_large(scanner: Scanner, start: Token) -> ParseError:
    return ParseError(
        "this tensor is too large",
        where=scanner.span(start.start),
        why=f"a tensor has at most {_HIGHEST_RANK} dims and {_MOST_ELEMENTS} elements",
        cure="make it smaller",
    )


def _encoding(scanner: Scanner) -> tuple[int | None, ...]:
    """``#stablehlo.bounds<?, 5>``; any other is read over."""
    name = scanner.expect("attribute", "an encoding").text
    if not name.endswith(".bounds"):
        skip_brackets(scanner)
        return ()
    scanner.expect("<")
    bounds: list[int | None] = []
    for _ in scanner.separated():
        if scanner.accept("?"):
            bounds.append(None)
        else:
            bounds.append(small_integer(scanner))
    scanner.expect(">")
    return tuple(bounds)


def _element(scanner: Scanner, integers: re.Pattern[str] = _INTEGER) -> Element:
    token = scanner.peek()
    if token.kind == "type":
        type_ = _dialect_type(scanner)
        if isinstance(type_, types.Quantized):
            return type_
        raise _no_element(scanner, token)
    if token.kind != "word":
        raise scanner.unexpected("an element type", "write one such as f32, i64, ui8, complex<f32>")
    if token.text == "complex":
        scanner.next()
        scanner.expect("<")
        part = _element(scanner)
        scanner.expect(">")
        if not isinstance(part, types.Float) or part.name not in ("f32", "f64"):
            raise _no_element(scanner, token, "complex numbers have parts of f32 or f64")
        return types.Complex(part)
    scanner.next()
    if token.text in types.FLOATS:
        return types.Float(token.text)
    if token.text == "index":
        return types.Index()
    integer = integers.fullmatch(token.text)
    if integer is None or len(integer[2]) > 3 or int(integer[2]) not in types.WIDTHS:
        raise _no_element(scanner, token)
    return types.Integer(int(integer[2]), not (integer[1] or "").startswith("u"))


def _no_element(scanner: Scanner, token: Token, why: str | None = None) -> ParseError:
    return ParseError(
        f"unknown element type {token.text[:40]!r}",
        where=scanner.where(token),
        why=why,
        cure="use one of i1 to i64, ui2 to ui64, complex<f32>, complex<f64>, "
        + ", ".join(types.FLOATS),
    )


def _dialect_type(scanner: Scanner) -> Type:
    token = scanner.expect("type")
    if token.text == "!stablehlo.token":
        return types.Token()
    if token.text == "!quant.uniform":
        return _quantized(scanner, token)
    if scanner.at("<"):
        skip_brackets(scanner)
    return types.Foreign(scanner.text[token.start : scanner.position])


def _quantized(scanner: Scanner, start: Token) -> types.Quantized:
    """``<i8<-128:127>:f32:1, {0.1:-30, 0.5}>``; axes may have blocks."""
    scanner.expect("<")
    storage = _element(scanner, _STORED)
    if not isinstance(storage, types.Integer) or storage.bits == 1:
        raise _no_element(scanner, start, "quantized values are stored as integers")
    low, high = storage.low, storage.high
    if scanner.accept("<"):
        low = signed_integer(scanner)
        scanner.expect(":")
        high = signed_integer(scanner)
        scanner.expect(">")
    scanner.expect(":")
    expressed = _element(scanner)
    if not isinstance(expressed, types.Float):
        raise _no_element(scanner, start, "quantized values stand for floats")
    axis, blocks = _quantized_axes(scanner)
    scanner.expect(",")
    pairs: list[tuple[float, int]] = []
    _scales(scanner, pairs)
    scanner.expect(">")
    if axis is None and not blocks and len(pairs) != 1:
        raise ParseError(
            "several scales need an axis",
            where=scanner.span(start.start),
            cure="write the axis after the float: <i8:f32:1, {0.1, 0.2}>",
        )
    if not storage.low <= low <= high <= storage.high:
        raise ParseError(
            f"{low}:{high} is no range of {storage}",
            where=scanner.span(start.start),
            cure=f"choose it within {storage.low}:{storage.high}",
        )
    scales, zeros = zip(*pairs, strict=True)
    return types.Quantized(storage, expressed, scales, zeros, axis, low, high, blocks)


def _quantized_axes(scanner: Scanner) -> tuple[int | None, tuple[tuple[int, int], ...]]:
    if not scanner.accept(":"):
        return None, ()
    if not scanner.accept("{"):
        return small_integer(scanner), ()
    blocks: list[tuple[int, int]] = []
    while not scanner.accept("}"):
        dim = small_integer(scanner)
        scanner.expect(":")
        blocks.append((dim, small_integer(scanner)))
        scanner.accept(",")
    return None, tuple(blocks)


def _scales(scanner: Scanner, pairs: list[tuple[float, int]]) -> None:
    with scanner.nested():
        if scanner.accept("{"):
            for _ in scanner.separated():
                _scales(scanner, pairs)
            scanner.expect("}")
            return
        token = scanner.peek()
        negative = scanner.accept("-") is not None
        number = scanner.expect("float", "a scale such as 0.1")
        scale = -float(number.text) if negative else float(number.text)
        if not math.isfinite(scale) or scale <= 0:
            raise ParseError(
                f"the scale {number.text[:40]} is not positive and finite",
                where=scanner.where(token),
                cure="write a positive number such as 0.1",
            )
        pairs.append((scale, signed_integer(scanner) if scanner.accept(":") else 0))


def small_integer(scanner: Scanner) -> int:
    """A number that counts something: it has few digits."""
    token = scanner.expect("int", "a whole number")
    if len(token.text) > _WIDEST_SIZE:
        raise ParseError(
            "this number is too large",
            where=scanner.where(token),
            cure=f"write one of at most {_WIDEST_SIZE} digits",
        )
    return int(token.text)


def signed_integer(scanner: Scanner) -> int:
    """A number with or without a minus."""
    return -small_integer(scanner) if scanner.accept("-") else small_integer(scanner)


def skip_brackets(scanner: Scanner) -> None:
    """Goes over a bracket and all up to the one that closes it."""
    closing = {"<": ">", "(": ")", "[": "]", "{": "}"}
    first = scanner.peek()
    if first.kind not in closing:
        raise scanner.unexpected("'<'")
    open_ones: list[str] = []
    while True:
        token = scanner.next()
        if token.kind in closing:
            open_ones.append(closing[token.kind])
        elif open_ones and token.kind == open_ones[-1]:
            open_ones.pop()
            if not open_ones:
                return
        elif token.kind in (">", ")", "]", "}", "end"):
            raise ParseError(
                f"this {first.text!r} is not closed",
                where=scanner.where(first),
                cure=f"write {open_ones[-1] if open_ones else closing[first.kind]!r} after it",
            )
