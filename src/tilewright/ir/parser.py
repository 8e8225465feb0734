"""Reads what `printer` writes: kernels, statements, expressions.

Every refusal is a `ParseError` that marks the place. Statements carry the `Span` they came from
(for a loop or a structured op: its first line). What the text cannot say wrongly is checked here:
names, types, and the number of indices; the rest is `verify`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from numpy.typing import NDArray

from tilewright.dtypes import DType, boolean, s64
from tilewright.errors import ArgumentError, ParseError
from tilewright.ir.buffer import Buffer
from tilewright.ir.compute_parser import ComputeParser
from tilewright.ir.constants import contents_of
from tilewright.ir.expr import Expr
from tilewright.ir.scope import Scope
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Opaque,
    Param,
    ScalarParam,
    Stmt,
    Store,
    View,
    While,
)

_KINDS = {kind.value: kind for kind in LoopKind}
_ACCESSES = ("in", "out", "inout")
T = TypeVar("T")


def parse_kernel(
    text: str, *, file: str | None = None, constants: Mapping[str, Any] | None = None
) -> Kernel:
    """The kernel that ``text`` spells. Raises `ParseError`, and `ArgumentError` for ``constants``
    (contents by their digest, as they lie in memory) of another type or length than declared.

    ``file`` is what errors call the text: those of the parser, and of all who refuse a statement.
    """
    return _with_contents(_read(_StatementParser.kernel, text, None, None, file), constants)


def parse_kernels(
    text: str, *, file: str | None = None, constants: Mapping[str, Any] | None = None
) -> tuple[Kernel, ...]:
    """The kernels of a text that has one or more, one after the other; see `parse_kernel`."""
    kernels = _read(_StatementParser.kernels, text, None, None, file)
    return tuple(_with_contents(kernel, constants) for kernel in kernels)


def _with_contents(kernel: Kernel, by_digest: Mapping[str, Any] | None) -> Kernel:
    if by_digest is None:
        return kernel
    if not isinstance(by_digest, Mapping):
        raise ArgumentError(
            f"a {type(by_digest).__name__} is no contents of constants",
            where="constants",
            cure="pass a mapping from digests to arrays",
        )
    contents: dict[str, NDArray[Any]] = {}
    for param in kernel.arrays:
        if param.digest is not None and param.digest in by_digest:
            contents[param.digest] = contents_of(param.buffer, by_digest[param.digest])
    return replace(kernel, constants=contents) if contents else kernel


def parse_stmt(
    text: str,
    variables: Mapping[str, DType] | None = None,
    buffers: Mapping[str, Buffer] | None = None,
) -> Stmt:
    """The statements of ``text`` as one, with ``variables`` and ``buffers`` in scope."""
    return _read(_StatementParser.statements, text, variables, buffers)


def parse_expr(
    text: str,
    variables: Mapping[str, DType] | None = None,
    buffers: Mapping[str, Buffer] | None = None,
) -> Expr:
    """The expression that ``text`` spells, with ``variables`` and ``buffers`` in scope."""
    return _read(_StatementParser.expression_line, text, variables, buffers)


def _read(
    what: Callable[[_StatementParser], T],
    text: str,
    variables: Mapping[str, DType] | None,
    buffers: Mapping[str, Buffer] | None,
    file: str | None = None,
) -> T:
    if not isinstance(text, str):
        raise ParseError(
            f"a {type(text).__name__} is no text of a kernel",
            cure="pass a str, such as a file has or str(kernel) gives",
        )
    if file is not None and not isinstance(file, str):
        raise ArgumentError(
            f"a {type(file).__name__} is no name of a file", where="file", cure="pass a str"
        )
    parser = _StatementParser(text, variables or {}, buffers or {}, file)
    try:
        result = what(parser)
    except RecursionError:
        raise ParseError(
            "this nests too deeply",
            where=parser.span(parser.token.start, parser.token.end),
            cure="name the parts of the expression on lines before it: `x = ...`",
        ) from None
    parser.end()
    return result


class _StatementParser(ComputeParser):
    """Statements and kernels."""

    def end(self) -> None:
        if self.token.kind != "end":
            raise self.unexpected(
                "the end of the text", "remove what follows, or fix its indentation"
            )

    def expression_line(self) -> Expr:
        """An expression on a line of its own."""
        result = self.expression()
        self.accept("newline")
        return result

    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels of the text, each with a scope of its own; at least one."""
        kernels: list[Kernel] = []
        while not kernels or self.token.kind != "end":
            self.variables, self.buffers = Scope(), Scope()
            kernels.append(self.kernel())
        return tuple(kernels)

    def kernel(self) -> Kernel:
        """A kernel: its name, parameters and body."""
        if self.token.text != "kernel":
            raise self.unexpected(
                "`kernel`", "begin with `kernel name(in a: f32[8], out b: f32[8]):`"
            )
        start = self.take().start
        name = self.expect("name", "for the kernel").text
        self.expect("(", "before the parameters")
        params: list[Param | ScalarParam] = []
        while self.token.kind != ")":
            params.append(self._param())
            if not self.accept(","):
                break
        self.expect(")", "after the parameters")
        for param in params:
            if isinstance(param, Param):
                self.buffers.define(param.name, param.buffer)
        span = self.span(start)
        return Kernel(name, tuple(params), self._indented("body of the kernel"), span=span)

    def _param(self) -> Param | ScalarParam:
        numeric = self.token.kind == "name" and self.ahead(1).kind == ":"
        if numeric and self.ahead(3).kind != "[":
            return self.scalar_param()
        if self.token.text == "constant":
            self.take()
            buffer = self.buffer()
            return Param(buffer, "in", self.digest())
        if self.token.text not in _ACCESSES:
            cure = "say how it is used: `in`, `out` or `inout`; a number has none: `n: s64`"
            raise self.unexpected("a parameter", cure)
        access = self.take().text
        return Param(self.buffer(), access)

    # Blocks.

    def statements(self) -> Stmt:
        """Statements up to the end of their block, as one."""
        body = self._sequence()
        # A lone `block:` stays inside another block: its text would lose it otherwise.
        if len(body) == 1 and not (isinstance(body[0], Block) and body[0].body):
            return body[0]
        return Block(body)

    def _sequence(self) -> tuple[Stmt, ...]:
        body: list[Stmt] = []
        with self.variables.nested(), self.buffers.nested():
            while self.token.kind not in ("dedent", "end"):
                body.append(self._statement())
        if not body:
            raise self.unexpected("a statement", "write `pass` where nothing is to be done")
        return tuple(body)

    def _indented(self, what: str) -> Stmt:
        self._open(what)
        body = self.statements()
        self._close()
        return body

    # Statements.

    def _statement(self) -> Stmt:
        token, following = self.token, self.ahead(1)
        match token.kind, following.kind:
            case "for", _:
                return self._for()
            case "if", _:
                return self._if()
            case "while", _:
                return self._while()
            case "pass", _:
                self.take()
                self.line_end()
                return Block((), self.span(token.start, token.end))
            case "name", "for":
                return self._for()
            case "name", "name" if token.text == "alloc":
                return self._alloc()
            case "name", "name" if token.text == "opaque":
                return self._opaque()
            case "name", "name" if token.text == "compute":
                return self._compute()
            case "name", ":" if token.text == "block" and self.ahead(2).kind == "newline":
                return self._block()
            case "name", "[":
                return self._store()
            case "name", "name" if token.text == "stream":
                return self._store()
            case "name", "(":
                return self._function()
            case "name", "=" | ":":
                return self._let()
        raise self.unexpected(
            "a statement",
            "write a loop, `if`, `while`, `alloc`, `compute`, `opaque`, `name = value`, "
            "`buffer[...] = value`, a call or `pass`",
        )

    def _block(self) -> Block:
        token = self.take()
        self._open("block")
        body = self._sequence()
        self._close()
        return Block(body, self.span(token.start, token.end))

    def _for(self) -> For:
        start = self.token.start
        kind = LoopKind.SERIAL
        if self.token.kind == "name":
            word = self.take()
            if word.text not in _KINDS:
                choice = "write one of " + ", ".join(_KINDS)
                raise self.refusal(f"unknown kind of loop {word.text}", start, cure=choice)
            kind = _KINDS[word.text]
        self.expect("for", "to begin the loop")
        variable = self.index_variable()
        self.expect("in", "before the extent")
        extent = self.typed_expression(s64, "the extent of a loop")
        span = self.span(start)
        with self.variables.nested():
            self.variables.define(variable.name, variable.type)
            body = self._indented("body of the loop")
        return For(variable, extent, body, kind, span)

    def _if(self) -> If:
        start = self.take().start
        condition = self.typed_expression(boolean, "a condition", "compare it: `x != 0`")
        span = self.span(start)
        then = self._indented("body of the if")
        orelse = self._indented("body of the else") if self.accept("else") else None
        return If(condition, then, orelse, span)

    def _while(self) -> While:
        start = self.take().start
        condition = self.typed_expression(boolean, "a condition", "compare it: `x != 0`")
        span = self.span(start)
        return While(condition, self._indented("body of the while"), span)

    def _opaque(self) -> Opaque:
        start = self.take().start
        name = self.expect("name", "for the nest").text
        reads, writes = self._declared_names("reads"), self._declared_names("writes")
        span = self.span(start)
        return Opaque(name, reads, writes, self._indented("body of the nest"), span)

    def _declared_names(self, verb: str) -> tuple[str, ...]:
        """``verb a, b``, or nothing."""
        if self.token.text != verb:
            return ()
        self.take()
        names = [self.expect("name", "of a buffer").text]
        while self.accept(","):
            names.append(self.expect("name", "of a buffer").text)
        return tuple(names)

    def _let(self) -> Let:
        start = self.token.start
        variable = self.index_variable()
        self.expect("=", "and the value")
        value_start = self.token.start
        value = self.expression()
        if value.type is not variable.type:
            raise self.refusal(
                f"{variable.name} is {variable.type}, its value is {value.type}",
                value_start,
                cure=f"write `{variable.name}: {value.type} = ...`, or convert the value",
            )
        span = self.span(start)
        self.line_end()
        self.variables.define(variable.name, variable.type)
        return Let(variable, value, span)

    def _alloc(self) -> Allocate:
        start = self.take().start
        buffer = self.buffer()
        span = self.span(start)
        self.line_end()
        self.buffers.define(buffer.name, buffer)
        return Allocate(buffer, span)

    def _store(self) -> Store:
        start = self.token.start
        stream = self.token.text == "stream" and self.ahead(1).kind == "name"
        if stream:
            self.take()
        view = self.view()
        if view.mask is not None:
            raise self.refusal("a store has no mask", start, cure="put it in an `if`")
        self.expect("=", "and the value to store")
        value = self.typed_expression(view.buffer.dtype, f"what {view.buffer.name} holds")
        span = self.span(start)
        self.line_end()
        return Store(view.buffer, view.index, value, span, stream)

    def _function(self) -> Call:
        name = self.take()
        self.take()
        args: list[View | Expr] = []
        while self.token.kind != ")":
            args.append(self.view() if self.accept("&") else self.expression())
            if not self.accept(","):
                break
        self.expect(")", "to close the arguments")
        span = self.span(name.start)
        self.line_end()
        return Call(name.text, tuple(args), span)
