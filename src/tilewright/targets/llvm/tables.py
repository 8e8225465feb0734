"""What depends on a few bits of a number only is looked up in a register, where there is an
instruction for that: weights of 4 bits become bf16 so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tilewright.dtypes import u16
from tilewright.ir.expr import Binary, Cast, Const, Expr, Var, cast, const
from tilewright.ir.load import Load
from tilewright.ir.visit import children, rebuild, rewrite
from tilewright.targets.llvm.arithmetic import by_parts
from tilewright.targets.llvm.types import constant, llvm_type, splat
from tilewright.targets.llvm.values import Result, Value
from tilewright.targets.llvm.writer import Writer

# Numbers of 16 bits that a register holds, and so many are looked up at a time.
_ENTRIES = 32


class Field(NamedTuple):
    """Some bits of ``number``, from ``first`` on, of which ``value`` is made and of nothing else
    that varies."""

    value: Expr
    number: Expr
    first: int


def few_bits(expr: Cast, variables: Mapping[Var, Result]) -> Field | None:
    """The bits that ``expr``, a float of 16 bits made of an integer, depends on, where these are
    few and of one number of 16 bits that is loaded or has a name; None otherwise."""
    if expr.type.bits != 16 or not expr.type.is_float:
        return None
    made: Expr = expr
    while isinstance(made, Cast) and made.type.is_float:
        made = made.a
    if not made.type.is_integer:
        return None
    wanted: dict[Expr, int] = {}
    value = _resolved(expr, variables)
    made = _resolved(made, variables)
    if not _collect(made, _all(made), wanted) or len(wanted) != 1:
        return None
    ((number, bits),) = wanted.items()
    first = (bits & -bits).bit_length() - 1
    return Field(value, number, first) if 0 < bits < _ENTRIES << first else None


def _resolved(expr: Expr, variables: Mapping[Var, Result]) -> Expr:
    """``expr`` with the numbers of variables that are known now, but for places in memory."""
    if isinstance(expr, Var):
        value = variables.get(expr)
        return const(value, expr.type) if isinstance(value, bool | int | float) else expr
    parts = () if isinstance(expr, Load) else children(expr)
    return rebuild(expr, tuple(_resolved(each, variables) for each in parts)) if parts else expr


def _all(expr: Expr) -> int:
    return (1 << expr.type.bits) - 1


def _sign(expr: Expr) -> int:
    """The bit of ``expr`` that says all above it; 0 of types without a sign."""
    return 1 << (expr.type.bits - 1) if expr.type.kind == "int" else 0


def _collect(expr: Expr, bits: int, wanted: dict[Expr, int]) -> bool:
    """Adds to ``wanted`` which bits of numbers the ``bits`` of ``expr`` depend on; False where that
    is not known."""
    match expr:
        case Const():
            return True
        case Load() | Var() if expr.type.is_integer and expr.type.bits == 16:
            wanted[expr] = wanted.get(expr, 0) | bits
            return True
        case Cast() if expr.a.type.is_integer:
            beyond = _sign(expr.a) if bits & ~_all(expr.a) else 0
            return _collect(expr.a, bits & _all(expr.a) | beyond, wanted)
        case Binary(b=Const(value=number)):
            inside = _inside(expr, bits, int(number))
            return inside is not None and _collect(expr.a, inside, wanted)
        case _:
            return False


def _inside(expr: Binary, bits: int, number: int) -> int | None:
    """The bits of the first operand that ``bits`` of the result depend on."""
    match expr.op:
        case "and":
            return bits & number
        case "or" | "xor":
            return bits
        case "shl":
            return bits >> number
        case "shr":
            moved = bits << number
            return moved & _all(expr) | (_sign(expr) if moved & ~_all(expr) else 0)
        case "add" | "sub" | "mul":
            return (1 << bits.bit_length()) - 1  # what is carried goes upwards
        case _:
            return None


def look_up(w: Writer, field: Field, number: Value) -> Value:
    """What ``field`` is the value of, where its number is ``number``. The instruction takes no
    notice of bits above those that its table has entries for."""
    dtype, lanes, type_ = field.value.type, number.lanes, llvm_type(field.value.type, _ENTRIES)
    values = (constant(_value(field, entry), dtype) for entry in range(_ENTRIES))
    table = ", ".join(f"{llvm_type(dtype)} {each}" for each in values)
    indices = number.text
    if field.first:
        by = splat(constant(field.first, u16), u16, lanes)
        indices = w.assign(f"lshr {number.typed}, {by}")

    def pick(index: str) -> str:
        arguments = f"{type_} <{table}>, {type_} {index}"
        return w.call(type_, w.dialect.permute_words, arguments, f"{type_}, {type_}")

    return Value(by_parts(w, number.type, lanes, indices, _ENTRIES, pick, dtype), dtype, lanes)


def _value(field: Field, entry: int) -> float | int:
    """What the value is where the bits are ``entry``."""
    number = cast(field.number.type, const(entry << field.first & 0xFFFF, u16))
    known = rewrite(field.value, lambda each: number if each is field.number else each)
    assert isinstance(known, Const)
    value: float | int = known.value
    return value
