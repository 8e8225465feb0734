"""Reads declarations: new variables and buffers, their types and layouts, scalar parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from tilewright.dtypes import DType, s64
from tilewright.ir.buffer import (
    Buffer,
    Layout,
    Part,
    Size,
    Space,
    Swizzle,
    as_size,
    part,
    row_major,
)
from tilewright.ir.expr import Var, var
from tilewright.ir.expression_parser import TYPES, ExpressionParser
from tilewright.ir.stmt import ScalarParam
from tilewright.ir.visit import reads_memory

_DIGITS = re.compile("[0-9a-f]{64}")
T = TypeVar("T")

_SPACES = {space.value: space for space in Space}


class DeclarationParser(ExpressionParser):
    """Reads declarations of names."""

    def index_variable(self) -> Var:
        """A new variable, s64 unless it says otherwise."""
        name, type_ = self.declared()
        return var(name, type_ or s64)

    def declared(self) -> tuple[str, DType | None]:
        name = self.expect("name", "for the variable").text
        return name, self._type() if self.accept(":") else None

    def _type(self) -> DType:
        return self.one_of("element type", TYPES, "of an element type")

    def one_of(self, kind: str, words: Mapping[str, T], where: str) -> T:
        """What the next word stands for, of these."""
        word = self.expect("name", where)
        if word.text not in words:
            choice = "write one of " + ", ".join(words)
            raise self.refusal(f"unknown {kind} {word.text}", word.start, cure=choice)
        return words[word.text]

    def buffer(self) -> Buffer:
        name = self.expect("name", "for the buffer").text
        self.expect(":", "and the element type")
        dtype = self._type()
        self.expect("[", "and the shape")
        sizes: list[Size] = []
        while self.token.kind != "]":
            sizes.append(self._size("the size of a dim"))
            if not self.accept(","):
                break
        self.expect("]", "after the shape")
        layout = self._layout(len(sizes)) if self.token.kind == "{" else row_major(sizes)
        space = Space.GLOBAL
        if self.token.kind == "name":
            space = self.one_of("memory space", _SPACES, "of a memory space")
        return Buffer(name, dtype, tuple(sizes), layout, space)

    def _layout(self, rank: int) -> Layout:
        """``{dim:size:stride ... +offset ^bits:base:shift}``, the last two are optional."""
        self.take()
        blocks: list[Part] = []
        while self.token.kind not in ("+", "^", "}"):
            start = self.token.start
            dim = self.integer("as the dim of a block")
            if not 0 <= dim < rank:
                raise self.refusal(
                    f"a block of dim {dim}, but the shape has {rank} dims",
                    start,
                    cure="number the dims from 0",
                )
            self.expect(":", "and the size of the block")
            size = self._atomic_size("the size of the block")
            self.expect(":", "and the stride of the block")
            blocks.append(part(dim, size, self._atomic_size("the stride of the block")))
        offset = self._atomic_size("the offset") if self.accept("+") else 0
        swizzle = self._swizzle() if self.accept("^") else None
        self.expect("}", "to close the layout")
        return Layout(tuple(blocks), offset, swizzle)

    def _size(self, what: str) -> Size:
        """A number, or an expression of scalar parameters."""
        if self.token.kind == "int" and self.ahead(1).kind in (",", "]"):
            return self.integer(f"as {what}")
        if self.token.kind == "-" and self.ahead(1).kind == "int":
            return self.integer(f"as {what}")
        start = self.token.start
        size = self.typed_expression(s64, what)
        if reads_memory(size):
            cure = "pass the number as a scalar parameter, and use that"
            raise self.refusal(f"{what} depends on memory", start, cure=cure)
        return as_size(size)

    def _atomic_size(self, what: str) -> Size:
        """A number, a name, or an expression in parentheses."""
        if self.token.kind in ("int", "-"):
            return self.integer(f"as {what}")
        if self.token.kind == "name":
            return self._size_named(what)
        self.expect("(", f"before {what}, if it is an expression")
        size = self._size(what)
        self.expect(")", f"after {what}")
        return size

    def _size_named(self, what: str) -> Size:
        start = self.token.start
        name = self.variable()
        if name.type is not s64:
            cure = f"convert it, in parentheses: `(s64({name.name}))`"
            raise self.refusal(f"{what} must be s64, this is {name.type}", start, cure=cure)
        return name

    def digest(self) -> str:
        """``= sha256:`` and 64 digits: several tokens of the text."""
        self.expect("=", "and the digest of the constant")
        start = self.token.start
        if self.token.text != "sha256":
            raise self.unexpected("a digest", "write `sha256:` and 64 hexadecimal digits")
        self.take()
        self.expect(":", "and 64 hexadecimal digits")
        first = self.token.start
        digits = self.text[first : first + 64]
        if not _DIGITS.fullmatch(digits):
            cure = "write `sha256:` and 64 hexadecimal digits, small letters"
            raise self.refusal("this is no digest", start, cure=cure)
        while self.token.start < first + 64 and self.token.kind != "end":
            self.take()
        return f"sha256:{digits}"

    def _swizzle(self) -> Swizzle:
        bits = self.integer("as the bits of the swizzle")
        self.expect(":", "and the base of the swizzle")
        base = self.integer("as the base of the swizzle")
        self.expect(":", "and the shift of the swizzle")
        return Swizzle(bits, base, self.integer("as the shift of the swizzle"))

    def integer(self, purpose: str) -> int:
        sign = -1 if self.accept("-") else 1
        token = self.expect("int", purpose)
        if len(token.text) > 30:
            raise self.refusal(
                f"{token.text} is too large", token.start, cure="write a smaller integer"
            )
        return sign * int(token.text)

    def scalar_param(self) -> ScalarParam:
        """``name: type in low..high by divisor``, in scope from here on."""
        name = self.take().text
        self.take()
        variable = var(name, self._type())
        low = high = None
        if self.accept("in"):
            if self.token.kind != "..":
                low = self.integer("as the least value")
            self.expect("..", "between the bounds")
            if self.token.kind not in (",", ")") and self.token.text != "by":
                high = self.integer("as the greatest value")
        divisor = 1
        if self.token.kind == "name" and self.token.text == "by":
            self.take()
            divisor = self.integer("as the divisor")
        self.variables.define(name, variable.type)
        return ScalarParam(variable, low, high, divisor)
