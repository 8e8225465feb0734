"""The value of an expression, as defined in `docs/ir.md`: a second evaluation, element by element.

It shares no code with the interpreter, constant folding or any target: integers are Python's,
rounding is done in exact fractions, without arrays or a library's narrow types. So it decides which
side is right where all of those agree. Functions with errors (``exp``) are not included.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from tilewright.dtypes import DType
from tilewright.ir.expr import Binary, Bitcast, Cast, Const, Expr, Fma, Select, Unary, Var
from tilewright.ir.load import Load

Scalar = bool | int | float
# Gives the value of a load, which may be masked.
Loads = Callable[[Load], Scalar]


class Format(NamedTuple):
    """A binary float format: digits of the significand, the least exponent of a normal number, the
    greatest finite number, bits of its code, and whether there are infinities."""

    digits: int
    least: int
    greatest: float
    bits: int
    infinite: bool = True


FORMATS = {
    "f64": Format(53, -1022, math.ldexp(2 - 2.0**-52, 1023), 64),
    "f32": Format(24, -126, math.ldexp(2 - 2.0**-23, 127), 32),
    "tf32": Format(11, -126, math.ldexp(2 - 2.0**-10, 127), 32),
    "f16": Format(11, -14, 65504.0, 16),
    "bf16": Format(8, -126, math.ldexp(2 - 2.0**-7, 127), 16),
    "f8_e4m3": Format(4, -6, 448.0, 8, infinite=False),
    "f8_e5m2": Format(3, -14, 57344.0, 8),
}


def nearest(value: Fraction | float, form: Format) -> float:
    """``value`` rounded once, to nearest even; too great a value is infinite, or NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return value if form.infinite else math.nan
    if value == 0:
        return float(value)
    exact = abs(Fraction(value))
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    if exact < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, form.least) - form.digits + 1)
    rounded = round(exact / step) * step  # Python rounds fractions to even
    beyond = math.inf if form.infinite else math.nan
    size = float(rounded) if rounded <= form.greatest else beyond
    return -size if value < 0 else size


def wrapped(value: int, type: DType) -> int:
    """``value`` modulo 2 to the number of bits of an integer type."""
    low = value % (1 << type.bits)
    return low - (1 << type.bits) if type.kind == "int" and low >> (type.bits - 1) else low


def converted(value: Scalar, type: DType) -> Scalar:
    """``value``, of any type, as ``type``."""
    if type.kind == "bool":
        return value != 0
    if type.is_float:
        return nearest(value if isinstance(value, float) else Fraction(value), FORMATS[type.name])
    if not isinstance(value, float):
        return wrapped(int(value), type)
    if math.isnan(value):
        return 0
    least, greatest = wrapped_ends(type)
    if math.isinf(value):
        return greatest if value > 0 else least
    return min(max(math.trunc(value), least), greatest)


def wrapped_ends(type: DType) -> tuple[int, int]:
    """The least and the greatest integer of ``type``."""
    if type.kind == "uint":
        return 0, (1 << type.bits) - 1
    return -(1 << (type.bits - 1)), (1 << (type.bits - 1)) - 1


def evaluated(expr: Expr, values: Mapping[Var, Scalar], loads: Loads) -> Scalar:
    """The value of ``expr``; a select evaluates only the chosen branch."""

    def of(node: Expr) -> Scalar:
        return evaluated(node, values, loads)

    match expr:
        case Const():
            value: Scalar = expr.value
            return value
        case Var():
            return values[expr]
        case Select():
            return of(expr.a if of(expr.condition) else expr.b)
        case Fma():
            return of_type(_fused(of(expr.a), of(expr.b), of(expr.c)), expr.type)
        case Cast():
            return converted(of(expr.a), expr.type)
        case Bitcast():
            return with_bits(bits_of(of(expr.a), expr.a.type), expr.type)
        case Binary():
            a, b = of(expr.a), of(expr.b)
            return of_type(_binary(expr.op, a, b, expr.a.type), expr.type)
        case Unary():
            return of_type(_unary(expr.op, of(expr.a), expr.type), expr.type)
        case Load():
            return loads(expr)
        case _:
            raise TypeError(f"no meaning of {type(expr).__name__}")


def of_type(value: Any, type: DType) -> Scalar:
    """The exact ``value`` of an operation in its ``type``: rounded, or wrapped."""
    if type.is_integer:
        return wrapped(value, type)
    return nearest(value, FORMATS[type.name]) if type.is_float else bool(value)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
}
_BITS: dict[str, Callable[[Any, Any], Any]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def _binary(op: str, a: Any, b: Any, type: DType) -> Any:
    """The result of ``op`` before rounding."""
    if op in _COMPARISONS:
        return _COMPARISONS[op](a, b)
    if op in ("min", "max"):
        return min_or_max(op, a, b)
    if type.is_float:
        return _of_floats(op, a, b)
    if op in _BITS:
        return _BITS[op](a, b)
    if op in ("floordiv", "mod"):
        return 0 if b == 0 else a // b if op == "floordiv" else a % b
    if op == "mulhi":
        return (a * b) >> type.bits
    amount = b % (1 << type.bits)  # unsigned
    if op == "shl":
        return a << amount if amount < type.bits else 0
    if op == "shr":
        return a >> min(amount, type.bits)
    return {"add": a + b, "sub": a - b, "mul": a * b}[op]


def min_or_max(op: str, a: Any, b: Any) -> Any:
    """``min`` or ``max``: NaN if either is, and -0.0 is less than 0.0."""
    if a != a or b != b:
        return math.nan
    if a == b == 0 and isinstance(a, float):
        negative = [math.copysign(1.0, x) < 0 for x in (a, b)]
        return -0.0 if (any if op == "min" else all)(negative) else 0.0
    return min(a, b) if op == "min" else max(a, b)


def _of_floats(op: str, a: float, b: float) -> Fraction | float:
    if op == "sub":
        op, b = "add", -b
    if op == "fmod":
        valid = a == a and b == b and math.isfinite(a) and b != 0
        return math.fmod(a, b) if valid else math.nan
    negative = (math.copysign(1.0, a) < 0) != (math.copysign(1.0, b) < 0)
    sign = -1.0 if negative else 1.0
    if op == "div" and b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, sign)
    if not (math.isfinite(a) and math.isfinite(b)) or (op == "add" and a == b == 0):
        return {"add": a + b, "mul": a * b}[op] if op != "div" else a / b
    x, y = Fraction(a), Fraction(b)
    exact = x + y if op == "add" else x * y if op == "mul" else x / y
    # A zero fraction has no sign: a sum of zero is positive.
    return exact or (0.0 if op == "add" else math.copysign(0.0, sign))


def _fused(a: float, b: float, c: float) -> Fraction | float:
    if not all(map(math.isfinite, (a, b, c))):
        return c if math.isfinite(a) and math.isfinite(b) else a * b + c
    return (Fraction(a) * Fraction(b) + Fraction(c)) or a * b + c


_WHOLE: dict[str, Callable[[float], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,  # Python's, to even
}


def _unary(op: str, a: Any, type: DType) -> Any:
    match op:
        case "neg":
            return -a
        case "not":
            return not a if type.kind == "bool" else ~a
        case "abs":
            return abs(a)
        case "popcount":
            return bin(a % (1 << type.bits)).count("1")
        case "clz":
            return type.bits - (a % (1 << type.bits)).bit_length()
        case "floor" | "ceil" | "round":
            if not math.isfinite(a):
                return a
            return math.copysign(float(_WHOLE[op](a)), a)
        case "sqrt":
            # 53 digits suffice for a root that is rounded again to 24 or fewer.
            return math.sqrt(a) if a >= 0 else math.nan
        case _:
            raise TypeError(f"{op} has no exact meaning")


def _in_memory(type: DType) -> Format:
    """The format in memory: that of tf32 is f32's."""
    return FORMATS["f32" if type.name == "tf32" else type.name]


def bits_of(value: Scalar, type: DType) -> int:
    """The code of ``value``; for NaN, one of its codes."""
    if not type.is_float:
        return int(value) % (1 << type.bits)
    form = _in_memory(type)
    number = float(value)
    sign = int(math.copysign(1.0, number) < 0) << (form.bits - 1)
    width = form.bits - form.digits  # bits of the exponent
    if number != number:
        return sign | ((1 << (form.bits - 1)) - 1)
    if math.isinf(number):
        return sign | ((1 << width) - 1) << (form.digits - 1)
    if number == 0:
        return sign
    exponent = max(math.frexp(abs(number))[1] - 1, form.least)
    significand = int(Fraction(abs(number)) / Fraction(2) ** (exponent - form.digits + 1))
    biased = exponent - form.least  # one less than the exponent's code of a normal number
    return sign | (biased << (form.digits - 1)) + significand


def with_bits(code: int, type: DType) -> Scalar:
    """The value of ``type`` with this code."""
    if not type.is_float:
        return wrapped(code, type) if type.is_integer else bool(code)
    form = _in_memory(type)
    magnitude = code % (1 << (form.bits - 1))
    exponent, fraction = divmod(magnitude, 1 << (form.digits - 1))
    special = (1 << (form.bits - form.digits)) - 1
    if form.infinite and exponent == special:
        size = math.nan if fraction else math.inf
    elif not form.infinite and magnitude == (1 << (form.bits - 1)) - 1:
        size = math.nan
    else:
        significand = fraction + (1 << (form.digits - 1) if exponent else 0)
        size = math.ldexp(significand, max(exponent, 1) - 1 + form.least - form.digits + 1)
    return -size if code >> (form.bits - 1) else size
