"""What depends on a few bits of a number only is looked up in a register, where there is an
instruction for that: weights of 4 bits become bf16 so."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.dtypes import u16
from tilewright.ir.expr import Binary, Cast, Const, Expr, Load, Var, const
from tilewright.ir.visit import children, rewrite
from tilewright.targets.llvm.arithmetic import joined, shuffled
from tilewright.targets.llvm.types import constant, llvm_type
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

# Numbers of 16 bits that a register holds, and so many are looked up at a time.
_ENTRIES = 32


def few_bits(expr: Cast) -> Binary | None:
    """The only thing that varies in ``expr``, if that is the lowest bits of a number of 16 bits:
    ``x and 15`` in ``bf16(x and 15)``; None otherwise."""
    if expr.type.bits != 16:
        return None
    varying = set(_varying(expr))
    only = varying.pop() if len(varying) == 1 else None
    return only if isinstance(only, Binary) else None


def _varying(expr: Expr) -> Iterator[Expr]:
    """The lowest bits of numbers in ``expr``, and what else is no constant."""
    if _is_low(expr) or isinstance(expr, Var | Load):
        yield expr
    else:
        for each in children(expr):
            yield from _varying(each)


def _is_low(expr: Expr) -> bool:
    if not isinstance(expr, Binary) or expr.op != "and" or not isinstance(expr.b, Const):
        return False
    mask = expr.b.value
    return expr.type is u16 and 0 < mask < _ENTRIES and mask & (mask + 1) == 0


def look_up(w: Writer, expr: Cast, bits: Binary, number: Value) -> Value:
    """``expr``, in which only the lowest ``bits`` of ``number`` vary. The instruction takes no
    notice of higher ones than its table has entries for."""
    assert isinstance(bits.b, Const)
    values = [_value(expr, bits, entry & bits.b.value) for entry in range(_ENTRIES)]
    type_ = llvm_type(expr.type, _ENTRIES)
    table = ", ".join(f"{llvm_type(expr.type)} {constant(each, expr.type)}" for each in values)
    parts: list[str] = []
    for first in range(0, number.lanes, _ENTRIES):
        order = range(first, first + _ENTRIES)
        index = shuffled(w, llvm_type(u16), number.lanes, number.text, order)
        arguments = f"{type_} <{table}>, {type_} {index}"
        parts.append(w.call(type_, w.dialect.picks_words, arguments, f"{type_}, {type_}"))
    return Value(joined(w, expr.type, parts, _ENTRIES, number.lanes), expr.type, number.lanes)


def _value(expr: Expr, bits: Binary, number: int) -> float | int:
    """What ``expr`` is where ``bits`` are ``number``."""
    known = rewrite(expr, lambda each: const(number, u16) if each is bits else each)
    assert isinstance(known, Const)
    value: float | int = known.value
    return value
