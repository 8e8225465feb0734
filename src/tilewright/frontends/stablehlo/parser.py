"""Reads whole texts: one module, or several that ``// -----`` separates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tilewright.errors import ParseError
from tilewright.frontends.stablehlo.attribute_parser import (
    parse_attribute,
    parse_dictionary,
    parse_symbol,
)
from tilewright.frontends.stablehlo.operation_parser import OperationParser, is_terminator
from tilewright.frontends.stablehlo.scanner import Scanner, Token, unquoted
from tilewright.frontends.stablehlo.syntax import Function, Module, Region, Value
from tilewright.frontends.stablehlo.type_parser import parse_type, skip_brackets
from tilewright.frontends.stablehlo.types import Function as FunctionType
from tilewright.frontends.stablehlo.types import Type

_SEPARATOR = re.compile(r"^// -----[^\n]*$", re.MULTILINE)


def parse_modules(text: str, file: str | None = None, *, in_part: bool = False) -> list[Module]:
    """The modules of a text that ``// -----`` separates; parts without functions are left out.

    Raises `ParseError`, which names the place in the whole text; ``in_part``: those of single
    functions are kept in `Module.broken`.
    """
    modules = []
    start = 0
    for end in [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]:
        # In front of a part stand as many lines as in the text, so that places are the text's.
        scanner = Scanner(text[:end], file)
        scanner.back_to(start)
        module = _Parser(scanner).run()
        if module.broken and not in_part:
            raise next(iter(module.broken.values()))
        if module.functions or module.broken:
            modules.append(module)
        start = end
    return modules


def parse_module(text: str, file: str | None = None, *, in_part: bool = False) -> Module:
    """The one module of a text: ``module { func.func ... }``, or functions alone.

    Raises `ParseError` where the text is not StableHLO, with the place; ``in_part`` is as of
    `parse_modules`.
    """
    modules = parse_modules(text, file, in_part=in_part)
    if len(modules) != 1:
        where = modules[1].span if modules else Scanner(text, file).span(0, 1)
        raise ParseError(
            f"one module is expected, the text has {len(modules)}",
            where=where,
            cure="give each module as a text of its own" if modules else "write func.func @main",
        )
    return modules[0]


class _Parser:
    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.functions: dict[str, Function] = {}
        self.broken: dict[str, ParseError] = {}

    def run(self) -> Module:
        start = self.scanner.peek()
        name = None
        while not self.scanner.at("end"):
            if self.scanner.at_word("module", "builtin.module"):
                name = self._module()
            else:
                self._item()
        return Module(name, self.functions, self.scanner.where(start), self.broken)

    def _module(self) -> str | None:
        self.scanner.next()
        name = parse_symbol(self.scanner).name if self.scanner.at("symbol") else None
        if self.scanner.accept_word("attributes"):
            parse_dictionary(self.scanner)
        self.scanner.expect("{")
        with self.scanner.nested():
            while not self.scanner.accept("}"):
                if self.scanner.at_word("module", "builtin.module"):
                    self._module()
                else:
                    self._item()
        self._location()
        return name

    def _item(self) -> None:
        """A function, an alias, a mesh, or a whole module in the generic form."""
        token = self.scanner.peek()
        if token.kind == "attribute":
            self._alias()
        elif token.kind == "string" and unquoted(token.text) == "builtin.module":
            self._generic_module()
        elif token.kind == "string" and unquoted(token.text) == "func.func":
            self._generic_function()
        elif self.scanner.at_word("func.func", "func"):
            try:
                self._function()
            except ParseError as error:
                self._skip_function(token, error)
        elif self.scanner.at_word("sdy.mesh"):
            self._mesh()
        elif token.kind == "string" and unquoted(token.text) == "sdy.mesh":
            self.scanner.next()
            self._empty_operands()
            self._properties()
            self._ending()
        else:
            raise self.scanner.unexpected("a function", "write func.func @name(...) { ... }")

    def _alias(self) -> None:
        """``#loc = loc(...)``: names places and layouts, which nothing here reads."""
        self.scanner.next()
        self.scanner.expect("=")
        parse_attribute(self.scanner)

    def _mesh(self) -> None:
        """``sdy.mesh @mesh = <["x"=2]>``: names devices, over which what is computed may be divided
        as annotations say; it is the same on one."""
        self.scanner.next()
        parse_symbol(self.scanner)
        self.scanner.expect("=")
        skip_brackets(self.scanner)
        if self.scanner.at("{"):
            parse_dictionary(self.scanner)
        self._location()

    def _location(self) -> None:
        OperationParser(self.scanner).location()

    def _function(self) -> None:
        scanner = self.scanner
        start = scanner.next()
        visibility = None
        if scanner.at_word("public", "private", "nested"):
            visibility = scanner.next().text
        name = parse_symbol(scanner).name
        parser = OperationParser(scanner)
        arguments, argument_attributes = self._arguments()
        results, result_attributes = self._results()
        if scanner.accept_word("attributes"):
            parse_dictionary(scanner)
        if not scanner.at("{"):
            raise scanner.unexpected("the body of the function", "write { ... } with a return")
        body = parser.region(arguments)
        self._location()
        span = scanner.where(start)
        self._add(
            Function(name, body, results, span, visibility, argument_attributes, result_attributes),
            start,
        )

    def _skip_function(self, start: Token, error: ParseError) -> None:
        """Goes over a function that cannot be read. Raises its error where it has no end."""
        scanner = self.scanner
        scanner.back_to(start.start)
        scanner.skips = True
        try:
            scanner.next()
            while not scanner.at("symbol", "end"):
                scanner.next()
            name = parse_symbol(scanner).name
            skip_brackets(scanner)
            attributes = False
            while attributes or not scanner.at("{"):
                brackets = scanner.at("(", "<", "[", "{")
                attributes = scanner.at_word("attributes")
                skip_brackets(scanner) if brackets else scanner.expect(scanner.peek().kind)
                if scanner.at("end"):
                    raise error
            skip_brackets(scanner)
            self._location()
        except ParseError:
            raise error from None
        finally:
            scanner.skips = False
        self.broken.setdefault(name, error)

    def _arguments(self) -> tuple[list[Value], tuple[Mapping[str, Any], ...]]:
        scanner = self.scanner
        scanner.expect("(")
        values: list[Value] = []
        attributes: list[Mapping[str, Any]] = []
        for _ in scanner.entries(")"):
            token = scanner.expect("value", "an argument such as %arg0")
            scanner.expect(":")
            type_ = parse_type(scanner)
            attributes.append(parse_dictionary(scanner) if scanner.at("{") else {})
            self._location()
            values.append(Value(token.text[1:], type_, scanner.where(token)))
        return values, tuple(attributes)

    def _results(self) -> tuple[tuple[Type, ...], tuple[Mapping[str, Any], ...]]:
        scanner = self.scanner
        if not scanner.accept("->"):
            return (), ()
        if not scanner.accept("("):
            return (parse_type(scanner),), ({},)
        types: list[Type] = []
        attributes: list[Mapping[str, Any]] = []
        for _ in scanner.entries(")"):
            types.append(parse_type(scanner))
            attributes.append(parse_dictionary(scanner) if scanner.at("{") else {})
        return tuple(types), tuple(attributes)

    def _generic_module(self) -> None:
        """``"builtin.module"() <{...}> ({ ... }) : () -> ()``."""
        scanner = self.scanner
        scanner.next()
        self._empty_operands()
        self._properties()
        scanner.expect("(")
        scanner.expect("{")
        if scanner.accept("block"):
            scanner.expect("(")
            scanner.expect(")")
            scanner.expect(":")
        with scanner.nested():
            while not scanner.accept("}"):
                self._item()
        scanner.expect(")")
        self._ending()

    def _generic_function(self) -> None:
        """``"func.func"() <{sym_name = "main", function_type = ...}> ({ ... }) : () -> ()``."""
        scanner = self.scanner
        start = scanner.next()
        self._empty_operands()
        attributes = self._properties()
        scanner.expect("(")
        body = OperationParser(scanner).region()
        scanner.expect(")")
        attributes |= self._ending()
        name, type_ = attributes.get("sym_name"), attributes.get("function_type")
        if not isinstance(name, str) or not isinstance(type_, FunctionType):
            raise ParseError(
                "a function has a name and a type",
                where=scanner.where(start),
                cure='write sym_name = "main", function_type = (tensor<f32>) -> tensor<f32>',
            )
        if type_.inputs != tuple(argument.type for argument in body.arguments):
            raise ParseError(
                f"@{name} takes other types than its body",
                where=scanner.where(start),
                cure="write the types of function_type in ^bb0(...)",
            )
        visibility = attributes.get("sym_visibility")
        self._add(
            Function(
                name,
                body,
                type_.results,
                scanner.where(start),
                visibility if isinstance(visibility, str) else None,
                tuple({} for _ in type_.inputs),
                tuple({} for _ in type_.results),
            ),
            start,
        )

    def _empty_operands(self) -> None:
        self.scanner.expect("(")
        self.scanner.expect(")")

    def _properties(self) -> dict[str, Any]:
        if not self.scanner.accept("<"):
            return {}
        dictionary = parse_dictionary(self.scanner)
        self.scanner.expect(">")
        return dictionary

    def _ending(self) -> dict[str, Any]:
        """``{...} : () -> ()``."""
        attributes = parse_dictionary(self.scanner) if self.scanner.at("{") else {}
        self.scanner.expect(":")
        parse_type(self.scanner)
        self._location()
        return attributes

    def _add(self, function: Function, start: Token) -> None:
        if function.name in self.functions:
            raise ParseError(
                f"@{function.name} is defined twice",
                where=self.scanner.where(start),
                why=f"the first one stands at {self.functions[function.name].span.place}",
                cure="give it another name",
            )
        _check_return(self.scanner, function.body, function.results)
        self.functions[function.name] = function


def _check_return(scanner: Scanner, body: Region, results: tuple[Type, ...]) -> None:
    last = body.operations[-1] if body.operations else None
    if last is None or not is_terminator(last):
        raise ParseError(
            "a function ends with a return",
            where=body.span if last is None else last.span,
            cure="write return after its last operation",
        )
    if tuple(operand.type for operand in last.operands) != results:
        returned = ", ".join(str(operand.type) for operand in last.operands)
        declared = ", ".join(map(str, results))
        raise ParseError(
            f"the function returns ({returned}), but is declared to give ({declared})",
            where=last.span,
            cure="return values of these types, or declare others",
        )
