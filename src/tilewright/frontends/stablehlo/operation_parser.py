"""Reads operations, in the generic form (``"stablehlo.add"(%0, %1) : ...``) and the pretty ones.

What the pretty forms of single operations look like is in `forms`; here are values, regions, types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.errors import ParseError
from tilewright.frontends.stablehlo import forms
from tilewright.frontends.stablehlo.attribute_parser import parse_dictionary
from tilewright.frontends.stablehlo.listed import Form
from tilewright.frontends.stablehlo.scanner import Scanner, Token, unquoted
from tilewright.frontends.stablehlo.syntax import Operation, Region, Value
from tilewright.frontends.stablehlo.type_parser import (
    parse_function_type,
    parse_type,
    skip_brackets,
)
from tilewright.frontends.stablehlo.types import Type

_TERMINATORS = ("stablehlo.return", "func.return", "chlo.return", "return")
_MOST_RESULTS = 10_000
# Dialects that programs are lowered to, whose syntax is their own.
_LOWER = ("affine", "cf", "flow", "linalg", "memref", "scf", "vector")


class OperationParser:
    """Reads operations of one function; it knows which values have been defined where."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self._scopes: list[dict[str, Value]] = [{}]

    def body(self, arguments: Sequence[Value]) -> Region:
        """``{ operations }``, with what the block takes already read."""
        start = self.scanner.expect("{", "'{' and the body")
        self._scopes.append({})
        for argument in arguments:
            self._define(argument)
        if not arguments and self.scanner.at("block"):
            arguments = self._block_head()
        operations = []
        while not self.scanner.accept("}"):
            if self.scanner.at("block"):
                raise ParseError(
                    "a region has one block",
                    where=self.scanner.where(self.scanner.peek()),
                    why="jumps between blocks are none of StableHLO's operations",
                    cure="write stablehlo.if, stablehlo.case or stablehlo.while",
                )
            operations.append(self.operation())
        self._scopes.pop()
        return Region(tuple(arguments), tuple(operations), self.scanner.where(start))

    def _block_head(self) -> tuple[Value, ...]:
        """``^bb0(%arg0: tensor<f32>, ...):``."""
        self.scanner.next()
        arguments: tuple[Value, ...] = ()
        if self.scanner.at("("):
            arguments = self.typed_arguments()
        self.scanner.expect(":")
        for argument in arguments:
            self._define(argument)
        return arguments

    def typed_arguments(self) -> tuple[Value, ...]:
        """``(%a: type, %b: type loc(...))``."""
        self.scanner.expect("(")
        values: list[Value] = []
        for _ in self.scanner.entries(")"):
            token = self.scanner.expect("value", "an argument such as %arg0")
            self.scanner.expect(":")
            type_ = parse_type(self.scanner)
            self.location()
            values.append(Value(token.text[1:], type_, self.scanner.where(token)))
        return tuple(values)

    def region(self, arguments: Sequence[Value] = ()) -> Region:
        with self.scanner.nested():
            return self.body(arguments)

    def operation(self) -> Operation:
        """``%0:2 = name ...``."""
        names = self._result_names() if self.scanner.at("value") else []
        token = self.scanner.peek()
        if token.kind == "string":
            form = self._generic()
            name = _full_name(unquoted(token.text))
        elif token.kind == "word":
            self.scanner.next()
            name = _full_name(token.text)
            if name.partition(".")[0] in _LOWER:
                raise ParseError(
                    f"{name} is none of StableHLO's operations",
                    where=self.scanner.where(token),
                    cure="give the program as it was before it was lowered",
                )
            form = forms.read(self, name, token)
        else:
            raise self.scanner.unexpected("an operation such as stablehlo.add")
        self.location()
        return self._made(name, token, form, names)

    def _made(
        self, name: str, token: Token, form: Form, names: list[tuple[str, Token, int]]
    ) -> Operation:
        span = self.scanner.where(token)
        count = sum(entry[2] for entry in names)
        if names and count != len(form.results):
            raise ParseError(
                f"{name} gives {len(form.results)} results, {count} are named",
                where=self.scanner.where(names[0][1]),
                cure="name as many as it gives: %0:2 names two",
            )
        results = []
        types = iter(form.results)
        for base, place, many in names:
            for index in range(many):
                title = base if many == 1 else f"{base}#{index}"
                results.append(Value(title, next(types), self.scanner.where(place)))
        if not names:
            results = [Value("", result, span) for result in form.results]
        for (base, _, many), first in zip(names, _firsts(results, names), strict=True):
            for value in results[first : first + many]:
                self._define(value)
            if many == 1:
                self._scopes[-1][f"{base}#0"] = results[first]
        places = {key: self.scanner.where(place) for key, place in form.places.items()}
        return Operation(
            name, form.operands, tuple(results), form.attributes, form.regions, span, places
        )

    def _result_names(self) -> list[tuple[str, Token, int]]:
        names = []
        for _ in self.scanner.separated():
            token = self.scanner.expect("value", "a result such as %0")
            if "#" in token.text:
                raise ParseError(
                    "'#' picks one of several results and defines none",
                    where=self.scanner.where(token),
                    cure="write %0:2 for two results",
                )
            count = 1
            if self.scanner.accept(":"):
                number = self.scanner.expect("int", "how many results there are")
                count = int(number.text) if len(number.text) < 6 else _MOST_RESULTS + 1
                if not 0 < count <= _MOST_RESULTS:
                    raise ParseError(
                        f"no operation gives {number.text[:20]} results",
                        where=self.scanner.where(number),
                        cure="write how many there are",
                    )
            names.append((token.text[1:], token, count))
        self.scanner.expect("=")
        return names

    def _define(self, value: Value) -> None:
        if value.name in self._scopes[-1]:
            raise ParseError(
                f"%{value.name} is defined twice",
                where=value.span,
                cure="give it another name",
            )
        self._scopes[-1][value.name] = value

    def value(self) -> Value:
        """A value that is used."""
        token = self.scanner.expect("value", "a value such as %0")
        for scope in reversed(self._scopes):
            result = scope.get(token.text[1:])
            if result is not None:
                return result
        raise ParseError(
            f"{token.text} is not defined here",
            where=self.scanner.where(token),
            why="a value is defined before its use, in the same region or one around it",
            cure="define it, or correct its name",
        )

    def location(self) -> None:
        """Goes over ``loc(...)``, if one stands here."""
        if self.scanner.at_word("loc"):
            self.scanner.next()
            skip_brackets(self.scanner)

    def _generic(self) -> Form:
        self.scanner.next()
        self.scanner.expect("(", "'(' and the operands")
        operands: list[Value] = []
        for _ in self.scanner.entries(")"):
            operands.append(self.value())
        attributes: dict[str, Any] = {}
        places: dict[str, Token] = {}
        if self.scanner.accept("<"):
            attributes |= parse_dictionary(self.scanner, places)
            self.scanner.expect(">")
        regions: list[Region] = []
        if self.scanner.accept("("):
            for _ in self.scanner.separated():
                regions.append(self.region())
            self.scanner.expect(")")
        if self.scanner.at("{"):
            attributes |= parse_dictionary(self.scanner, places)
        self.scanner.expect(":", "':' and the types")
        start = self.scanner.here
        type_ = parse_function_type(self.scanner)
        self.check_types(operands, type_.inputs, start)
        return Form(tuple(operands), type_.results, attributes, tuple(regions), places)

    def check_types(self, operands: Sequence[Value], types: Sequence[Type], start: int) -> None:
        """That the types that are written are those of the operands."""
        if len(operands) != len(types):
            raise ParseError(
                f"{len(operands)} operands have {len(types)} types",
                where=self.scanner.span(start),
                cure="write the type of each operand",
            )
        for operand, type_ in zip(operands, types, strict=True):
            if operand.type != type_:
                raise ParseError(
                    f"%{operand.name} is of type {operand.type}, not {type_}",
                    where=self.scanner.span(start),
                    why=f"it is defined at {operand.span.place}",
                    cure="write the type that it has there",
                )


# Operations by names of other dialects; all others of mhlo are called as StableHLO's are.
_OTHER_NAMES = {
    "return": "func.return",
    "call": "func.call",
    "mhlo.copy": "stablehlo.optimization_barrier",
    "mhlo.erf": "chlo.erf",
    "mhlo.topk": "chlo.top_k",
    "mhlo.scan": "chlo.scan",
    "arith.constant": "stablehlo.constant",
    "util.unfoldable_constant": "stablehlo.constant",
    "util.optimization_barrier": "stablehlo.optimization_barrier",
}


def _full_name(name: str) -> str:
    name = _OTHER_NAMES.get(name, name)
    return f"stablehlo.{name[5:]}" if name.startswith("mhlo.") else name


def _firsts(results: Sequence[Value], names: Sequence[tuple[str, Token, int]]) -> list[int]:
    firsts, total = [], 0
    for _, _, many in names:
        firsts.append(total)
        total += many
    return firsts


def is_terminator(operation: Operation) -> bool:
    """Whether a region ends with it."""
    return operation.name in _TERMINATORS
