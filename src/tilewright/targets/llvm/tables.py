"""Values that depend on a few bits of a number, looked up in a register by a permutation: so
weights of 4 bits become bf16."""

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

# Entries of 16 bits in a register, and lookups at a time.
_ENTRIES = 32


class Field(NamedTuple):
    """A range of bits of ``number``, from ``first`` on, and ``value``, an expression that depends
    on no other bits or variables."""

    value: Expr
    number: Expr
    first: int


def few_bits(expr: Cast, variables: Mapping[Var, Result]) -> Field | None:
    """The bits that ``expr``, a float of 16 bits made of an integer, depends on, if there are few
    and all are of one number of 16 bits that is loaded or has a name; else None."""
    if expr.type.bits != 16 or not expr.type.is_float:
        return None
    integer: Expr = expr
    while isinstance(integer, Cast) and integer.type.is_float:
        integer = integer.a
    if not integer.type.is_integer:
        return None
    used: dict[Expr, int] = {}
    value = _resolved(expr, variables)
    integer = _resolved(integer, variables)
    if not _collect(integer, _all(integer), used) or len(used) != 1:
        return None
    ((number, bits),) = used.items()
    first = (bits & -bits).bit_length() - 1
    return Field(value, number, first) if 0 < bits < _ENTRIES << first else None


def _resolved(expr: Expr, variables: Mapping[Var, Result]) -> Expr:
    """``expr`` with the variables that are known now replaced, but for those in addresses."""
    if isinstance(expr, Var):
        value = variables.get(expr)
        return const(value, expr.type) if isinstance(value, bool | int | float) else expr
    parts = () if isinstance(expr, Load) else children(expr)
    return rebuild(expr, tuple(_resolved(part, variables) for part in parts)) if parts else expr


def _all(expr: Expr) -> int:
    return (1 << expr.type.bits) - 1


def _sign(expr: Expr) -> int:
    """The sign bit of ``expr``; 0 for types without a sign."""
    return 1 << (expr.type.bits - 1) if expr.type.kind == "int" else 0


def _collect(expr: Expr, bits: int, used: dict[Expr, int]) -> bool:
    """Adds to ``used`` the bits of numbers that the ``bits`` of ``expr`` depend on; False if they
    are not known."""
    match expr:
        case Const():
            return True
        case Load() | Var() if expr.type.is_integer and expr.type.bits == 16:
            used[expr] = used.get(expr, 0) | bits
            return True
        case Cast() if expr.a.type.is_integer:
            beyond = _sign(expr.a) if bits & ~_all(expr.a) else 0
            return _collect(expr.a, bits & _all(expr.a) | beyond, used)
        case Binary(b=Const(value=number)):
            inside = _inside(expr, bits, int(number))
            return inside is not None and _collect(expr.a, inside, used)
        case _:
            return False


def _inside(expr: Binary, bits: int, number: int) -> int | None:
    """The bits of the first operand on which ``bits`` of the result depend."""
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
            return (1 << bits.bit_length()) - 1  # carries go upwards
        case _:
            return None


def look_up(w: Writer, field: Field, number: Value) -> Value:
    """The value of ``field`` for ``number``. The instruction ignores bits above those of a table's
    index."""
    dtype, lanes, type_ = field.value.type, number.lanes, llvm_type(field.value.type, _ENTRIES)
    values = (constant(_value(field, entry), dtype) for entry in range(_ENTRIES))
    table = ", ".join(f"{llvm_type(dtype)} {value}" for value in values)
    indices = number.text
    if field.first:
        by = splat(constant(field.first, u16), u16, lanes)
        indices = w.assign(f"lshr {number.typed}, {by}")

    def pick(index: str) -> str:
        arguments = f"{type_} <{table}>, {type_} {index}"
        return w.call(type_, w.dialect.permute_words, arguments, f"{type_}, {type_}")

    return Value(by_parts(w, number.type, lanes, indices, _ENTRIES, pick, dtype), dtype, lanes)


def _value(field: Field, entry: int) -> float | int:
    """The field's value for the bits ``entry``."""
    number = cast(field.number.type, const(entry << field.first & 0xFFFF, u16))
    folded = rewrite(field.value, lambda node: number if node is field.number else node)
    assert isinstance(folded, Const)
    value: float | int = folded.value
    return value
