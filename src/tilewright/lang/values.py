"""The values of a kernel's names while it is translated.

A number that is known at compile time is a Python number, and weak: it takes the type of the other
operand. A number that work-items compute is an expression of the IR, with a type. Tuples, types,
strings and functions are themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tilewright.dtypes import DType, boolean, f32, f64, s16, s32, s64
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr, const

Literal = bool | int | float


@dataclass(frozen=True, eq=False)
class Array:
    """Memory with an index: a parameter, or local or private memory. ``sizes`` are expressions, or
    numbers where they are known at compile time."""

    buffer: Buffer
    sizes: tuple[Expr | int, ...]
    parameter: bool

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def private(self) -> bool:
        return self.buffer.space is Space.PRIVATE


@dataclass(frozen=True, eq=False)
class Range:
    """``range(...)``, or ``tw.static_range(...)``."""

    start: Any
    stop: Any
    step: Any
    static: bool


@dataclass(frozen=True, eq=False)
class Vector:
    """Numbers with elementwise operators."""

    parts: tuple[Any, ...]

    @property
    def in_words(self) -> str:
        return f"a vector of {len(self.parts)}"


@dataclass(frozen=True, eq=False)
class Lambda:
    """A lambda; ``scope`` is the translator of the function around it."""

    tree: Any
    scope: Any


def is_literal(value: object) -> bool:
    """Whether ``value`` is a number that is known at compile time."""
    return isinstance(value, bool | int | float)


def is_number(value: object) -> bool:
    """Whether ``value`` is a number, known or computed."""
    return isinstance(value, Expr) or is_literal(value)


def default_type(value: Literal) -> DType:
    """The type of a literal that meets no type."""
    if isinstance(value, bool):
        return boolean
    if isinstance(value, float):
        return f32
    return s32 if s32.lowest <= value <= s32.highest else s64


def common_type(a: DType, b: DType) -> DType | None:
    """The type that holds the values of both; None for integers without one (s64 and u64)."""
    if a is b:
        return a
    if a.kind == "bool" or b.kind == "bool":
        return b if a.kind == "bool" else a
    if a.is_float and b.is_float:
        if a.bits == b.bits or max(a.bits, b.bits) == 32:
            return f32
        return max(a, b, key=lambda dtype: dtype.bits) if max(a.bits, b.bits) < 64 else f64
    if a.is_float or b.is_float:
        return a if a.is_float else b
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    wider = {8: "s16", 16: "s32", 32: "s64"}.get(unsigned.bits)
    return None if wider is None else _SIGNED[wider]


_SIGNED = {dtype.name: dtype for dtype in (s16, s32, s64)}


def fits(value: Literal, dtype: DType) -> bool:
    """Whether a literal may become ``dtype``: an integer keeps its value, a float stays one."""
    if dtype.is_float:
        return True
    if isinstance(value, float):
        return False
    if dtype.kind == "bool":
        return isinstance(value, bool)
    return bool(dtype.lowest <= int(value) <= dtype.highest)


def literal(value: Literal, dtype: DType) -> Expr:
    """A literal as a constant of that type."""
    if dtype.kind == "bool":
        return const(bool(value), dtype)
    return const(float(value) if dtype.is_float else int(value), dtype)


def described(value: object) -> str:
    """``value`` in words."""
    if isinstance(value, Array):
        return f"the array {value.buffer.name}"
    if isinstance(value, Expr):
        return f"a {value.type} that work-items compute"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, Range):
        return "a range"
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, str | bool | int | float) or value is None:
        text = repr(value)
        return text if len(text) < 40 else f"{text[:36]}..."
    return str(getattr(value, "in_words", f"a {type(value).__name__}"))
