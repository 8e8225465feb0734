"""Operands, settings and types of a pretty form, as they stand one after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tilewright.errors import ParseError
from tilewright.frontends.stablehlo.attribute_parser import (
    parse_attribute,
    parse_dictionary,
)
from tilewright.frontends.stablehlo.attributes import Paired, Record, Word
from tilewright.frontends.stablehlo.scanner import Scanner, Token, unquoted
from tilewright.frontends.stablehlo.syntax import Region, Value
from tilewright.frontends.stablehlo.type_parser import (
    parse_function_type,
    parse_types,
    signed_integer,
)
from tilewright.frontends.stablehlo.types import Type


@dataclass(frozen=True)
class Form:
    """What an operation's text says, in whichever form it is written."""

    operands: tuple[Value, ...]
    results: tuple[Type, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Region, ...] = ()
    places: Mapping[str, Token] = field(default_factory=dict)


class Reader(Protocol):
    """What the forms ask of the parser that knows values and regions."""

    scanner: Scanner

    def value(self) -> Value:
        """A value that is used."""
        ...

    def region(self, arguments: Sequence[Value] = ()) -> Region:
        """``{ operations }``."""
        ...

    def typed_arguments(self) -> tuple[Value, ...]:
        """``(%a: type, %b: type)``."""
        ...

    def check_types(self, operands: Sequence[Value], types: Sequence[Type], start: int) -> None:
        """That these are the operands' types."""
        ...


# What settings are called in the pretty form, and as attributes.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "dynamic_broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "broadcast": {"sizes": "broadcast_sizes"},
    "transpose": {"dims": "permutation"},
    "reverse": {"dims": "dimensions"},
    "concatenate": {"dim": "dimension"},
    "iota": {"dim": "iota_dimension"},
    "dynamic_iota": {"dim": "iota_dimension"},
    "get_dimension_size": {"dim": "dimension"},
    "set_dimension_size": {"dim": "dimension"},
    "pad": {
        "low": "edge_padding_low",
        "high": "edge_padding_high",
        "interior": "interior_padding",
    },
    "dynamic_slice": {"sizes": "slice_sizes"},
    "dot": {"precision": "precision_config"},
    "dot_general": {"precision": "precision_config"},
    "fft": {"type": "fft_type", "length": "fft_length"},
    "rng_bit_generator": {"algorithm": "rng_algorithm"},
    "rng": {"distribution": "rng_distribution"},
    "einsum": {"config": "einsum_config"},
    "unary_einsum": {"config": "einsum_config"},
}
# What stands without a name, in order.
_UNNAMED: Mapping[str, tuple[str, ...]] = {
    "compare": ("comparison_direction", "compare_type"),
    "constant": ("value",),
    "expect_eq_const": ("value",),
    "expect_almost_eq_const": ("value",),
    "custom_call": ("call_target_name",),
    "composite": ("name",),
    "call": ("callee",),
}
_WITHOUT_RESULTS = re.compile(r"(\w+\.)?return|check\.expect_\w+|interpreter\.print")
_AS_MANY_RESULTS = ("stablehlo.optimization_barrier",)
_FORMAT = re.compile(r"e(\d{1,4})m(\d{1,4})")


class Collected:
    """Operands and attributes, as they are read."""

    def __init__(self, reader: Reader, name: str) -> None:
        self.reader = reader
        self.scanner = reader.scanner
        self.name = name
        self.short = name.partition(".")[2] or name
        self.operands: list[Value] = []
        self.attributes: dict[str, Any] = {}
        self.places: dict[str, Token] = {}

    def items(self, *closing: str) -> None:
        """Operands and settings with commas between them."""
        if self.scanner.at(*closing):
            return
        for _ in self.scanner.separated():
            self._item()

    def parenthesized(self) -> None:
        """The same in parentheses."""
        self.scanner.expect("(")
        self.items(")")
        self.scanner.expect(")")

    def _item(self) -> None:
        scanner = self.scanner
        token = scanner.peek()
        if token.kind == "value":
            self.operands.append(self.reader.value())
            return
        if token.kind == "word":
            scanner.next()
            if scanner.accept("="):
                name = _NAMES.get(self.short, {}).get(token.text, token.text)
                self.add(name, self._setting(), token)
                return
            scanner.back_to(token.start)
        unnamed = _UNNAMED.get(self.short, ())
        free = [label for label in unnamed if label not in self.attributes]
        if not free or token.kind not in ("word", "string", "symbol"):
            raise scanner.unexpected(f"an operand of {self.name}")
        self.add(free[0], parse_attribute(scanner), token)

    def _setting(self) -> Any:
        scanner = self.scanner
        sign = -1 if scanner.accept("-") else 1
        if scanner.at("int"):
            return sign * signed_integer(scanner)
        if scanner.at("float"):
            return sign * float(scanner.next().text)
        if scanner.at("string"):
            return unquoted(scanner.next().text)
        if scanner.accept("<"):
            return _angled(scanner)
        return parse_attribute(scanner)

    def add(self, name: str, value: Any, token: Token) -> None:
        """An attribute that a setting stands for."""
        if name in self.attributes:
            raise ParseError(
                f"{name} is said twice",
                where=self.scanner.where(token),
                cure="remove one of them",
            )
        self.places[name] = token
        self.attributes[name] = value

    def dictionary(self) -> None:
        """``{name = value}``, if it stands here."""
        self.scanner.accept_word("attributes")
        if self.scanner.at("{"):
            for name, value in parse_dictionary(self.scanner, self.places).items():
                self.attributes.setdefault(name, value)

    def dictionary_behind_word(self) -> None:
        """``attributes {name = value}``, where braces alone would begin a region."""
        if self.scanner.at_word("attributes"):
            self.dictionary()

    def finish(self, regions: tuple[Region, ...] = ()) -> Form:
        """Reads the types, and puts all together."""
        self.dictionary()
        results = self._types()
        self.dictionary()
        return self.form(results, regions)

    def form(self, results: tuple[Type, ...], regions: tuple[Region, ...] = ()) -> Form:
        """All that was read."""
        _normalize(self)
        return Form(tuple(self.operands), results, self.attributes, regions, self.places)

    def _types(self) -> tuple[Type, ...]:
        scanner = self.scanner
        without = _WITHOUT_RESULTS.fullmatch(self.name) is not None
        if not scanner.accept(":"):
            value = self.attributes.get("value")
            if without or (not self.operands and value is None):
                return ()
            if value is not None and hasattr(value, "type"):
                return (value.type,)
            raise scanner.unexpected(f"':' and the type of what {self.name} gives")
        start = scanner.here
        if scanner.at("("):
            type_ = parse_function_type(scanner)
            self.reader.check_types(self.operands, type_.inputs, start)
            return type_.results
        types = parse_types(scanner)
        if scanner.accept(":"):  # what stood there was a number's type
            types = parse_types(scanner)
        if scanner.accept("->"):
            self.reader.check_types(self.operands, types, start)
            return self._behind_arrow()
        if without:
            if len(types) == len(self.operands):
                self.reader.check_types(self.operands, types, start)
            return ()
        if self.name in _AS_MANY_RESULTS:
            self.reader.check_types(self.operands, types, start)
            return types
        return types[-1:]

    def _behind_arrow(self) -> tuple[Type, ...]:
        scanner = self.scanner
        if not scanner.accept("("):
            return parse_types(scanner)
        if scanner.accept(")"):
            return ()
        types = parse_types(scanner)
        scanner.expect(")")
        return types


def _angled(scanner: Scanner) -> Record:
    """``<lhs_precision_type = tf32, ...>``, after its ``<``."""
    fields: dict[str, Any] = {}
    for _ in scanner.entries(">"):
        name = scanner.expect("word", "the name of a field").text
        scanner.expect("=")
        fields[name] = parse_attribute(scanner)
    return Record("dot_algorithm", fields)


def _normalize(form: Collected) -> None:
    """Gives settings that have another shape in the pretty form the shape of the generic one."""
    attributes = form.attributes
    if form.short == "dot_general" and "dot_dimension_numbers" not in attributes:
        fields: dict[str, Any] = {}
        for setting, kind in (("batching_dims", "batching"), ("contracting_dims", "contracting")):
            pair = attributes.pop(setting, Paired((), ()))
            if not isinstance(pair, Paired):
                raise ParseError(
                    f"{setting} are dims of both operands",
                    where=form.scanner.where(form.places[setting]),
                    cure=f"write {setting} = [1] x [0]",
                )
            fields[f"lhs_{kind}_dimensions"] = list(pair.left)
            fields[f"rhs_{kind}_dimensions"] = list(pair.right)
        attributes["dot_dimension_numbers"] = Record("dot", fields)
    if form.short == "reduce_precision" and "format" in attributes:
        word = attributes.pop("format")
        match = _FORMAT.fullmatch(word.text) if isinstance(word, Word) else None
        if match is None:
            raise ParseError(
                "the format of reduce_precision has another shape",
                where=form.scanner.where(form.places["format"]),
                cure="write bits of exponent and mantissa, as e5m10",
            )
        attributes["exponent_bits"] = int(match[1])
        attributes["mantissa_bits"] = int(match[2])


def read_listed(reader: Reader, name: str) -> Form:
    """Operands and settings, maybe in parentheses, then types."""
    form = Collected(reader, name)
    if reader.scanner.at("("):
        form.parenthesized()
    else:
        form.items(":", "{", "}", "end")
    return form.finish()
