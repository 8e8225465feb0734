"""The pretty forms of operations with regions: reductions, loops, scans."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import ParseError
from tilewright.frontends.stablehlo.attribute_parser import (
    parse_attribute,
    parse_list,
)
from tilewright.frontends.stablehlo.listed import Collected, Form, Reader
from tilewright.frontends.stablehlo.scanner import Scanner, Token
from tilewright.frontends.stablehlo.syntax import Operation, Region, Value
from tilewright.frontends.stablehlo.type_parser import (
    parse_types,
)
from tilewright.frontends.stablehlo.types import Tensor, Type


def read_reduce(reader: Reader, name: str) -> Form:
    """``(%0 init: %1), (%2 init: %3) applies stablehlo.add across dimensions = [0] : ...``, or with
    ``reducer(%a: t, %b: t) (%c: u, %d: u) { ... }`` after the types."""
    scanner = reader.scanner
    form = Collected(reader, name)
    inputs: list[Value] = []
    initials: list[Value] = []
    for _ in scanner.separated():
        scanner.expect("(", "'(' and what is reduced")
        inputs.append(reader.value())
        scanner.expect_word("init")
        scanner.expect(":")
        initials.append(reader.value())
        scanner.expect(")")
    form.operands = [*inputs, *initials]
    applied = None
    if scanner.accept_word("applies"):
        applied = scanner.expect("word", "an operation such as stablehlo.add")
    scanner.expect_word("across")
    token = scanner.expect_word("dimensions")
    scanner.expect("=")
    form.add("dimensions", parse_list(scanner), token)
    head = form.finish()
    if applied is not None:
        region = _applied(scanner, applied, inputs)
        return Form(head.operands, head.results, form.attributes, (region,), form.places)
    start = scanner.expect_word("reducer")
    pairs: list[tuple[Value, ...]] = []
    for _ in inputs:
        pairs.append(reader.typed_arguments())
        if len(pairs[-1]) != 2:
            raise ParseError(
                "a reducer takes two values of each input",
                where=scanner.where(start),
                cure="write (%a: tensor<f32>, %b: tensor<f32>)",
            )
    arguments = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
    return Form(
        head.operands, head.results, form.attributes, (reader.region(arguments),), form.places
    )


def _applied(scanner: Scanner, token: Token, inputs: Sequence[Value]) -> Region:
    """The region that ``applies stablehlo.add`` stands for."""
    span = scanner.where(token)
    if len(inputs) != 1 or not isinstance(inputs[0].type, Tensor):
        raise ParseError(
            "an operation is applied to one tensor",
            where=span,
            cure="write a reducer for several",
        )
    type_ = Tensor((), inputs[0].type.element)
    arguments = (Value("lhs", type_, span), Value("rhs", type_, span))
    result = Value("0", type_, span)
    applied = Operation(token.text, arguments, (result,), {}, (), span)
    back = Operation("stablehlo.return", (result,), (), {}, (), span)
    return Region(arguments, (applied, back), span)


def read_while(reader: Reader, name: str) -> Form:
    """``(%i = %0, ...) : types cond { ... } do { ... }``."""
    scanner = reader.scanner
    form = Collected(reader, name)
    scanner.expect("(")
    names: list[Token] = []
    for _ in scanner.entries(")"):
        names.append(scanner.expect("value", "what the loop carries, as %i = %0"))
        scanner.expect("=")
        form.operands.append(reader.value())
    types: tuple[Type, ...] = ()
    if scanner.accept(":"):
        start = scanner.here
        types = parse_types(scanner)
        reader.check_types(form.operands, types, start)
    form.dictionary()
    carried = [
        Value(token.text[1:], operand.type, scanner.where(token))
        for token, operand in zip(names, form.operands, strict=True)
    ]
    scanner.expect_word("cond")
    condition = reader.region(carried)
    scanner.expect_word("do")
    return form.form(types, (condition, reader.region(carried)))


def read_scan(reader: Reader, name: str) -> Form:
    """``(%0) inits(%1) dimension=0 {...} : ...``, with a region in front of the types."""
    scanner = reader.scanner
    form = Collected(reader, name)
    form.parenthesized()
    token = scanner.expect_word("inits")
    inputs = len(form.operands)
    form.parenthesized()
    form.add("inputs", inputs, token)
    while scanner.at("word") and not scanner.at_word("attributes"):
        setting = scanner.next()
        scanner.expect("=")
        form.add(setting.text, parse_attribute(scanner), setting)
        scanner.accept(",")
    form.dictionary_behind_word()
    region = reader.region()
    return form.finish((region,))
