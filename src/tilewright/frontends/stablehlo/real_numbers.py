"""What elementwise operations compute of truth values, integers and floats: expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from tilewright.dtypes import DType, f64, s64
from tilewright.dtypes import dtype as type_of
from tilewright.ir.expr import Expr, binary, bitcast, cast, const, maximum, minimum, select, unary
from tilewright.problems import error_functions, functions
from tilewright.problems import special_functions as special
from tilewright.problems.unary_functions import UNARY_FUNCTIONS

Function = Callable[..., Expr]


def unsigned(type_: DType) -> DType:
    """The type without sign of as many bits."""
    return type_of(f"u{type_.bits}")


def signed(type_: DType) -> DType:
    """The type with sign of as many bits."""
    return type_of(f"s{type_.bits}")


def _wrapping(op: str) -> Function:
    return partial(functions.wrapping, op)


def _negated(a: Expr) -> Expr:
    return _wrapping("sub")(const(0, a.type), a)


def _divided(a: Expr, b: Expr) -> Expr:
    """Towards zero; by zero it gives all bits, as XLA does."""
    quotient = functions.truncated_division(a, b)
    none = const(-1 if a.type.kind == "int" else a.type.highest, a.type)
    return select(binary("eq", b, const(0, b.type)), none, quotient)


def _rest(a: Expr, b: Expr) -> Expr:
    """With the sign of ``a``; by zero it gives ``a``."""
    rest = functions.fmod(a, b)
    return select(binary("eq", b, const(0, b.type)), a, rest)


def _integer_power(a: Expr, b: Expr) -> Expr:
    """By squaring. Negative powers are 0, but of 1 and -1."""
    one, zero = const(1, a.type), const(0, a.type)
    multiply = _wrapping("mul")
    result: Expr = one
    square, rest = a, b
    count = a.type.bits - (1 if a.type.kind == "int" else 0)
    for bit in range(count):
        odd = binary("eq", rest & one, one)
        result = select(odd, multiply(result, square), result)
        if bit + 1 < count:
            square, rest = multiply(square, square), rest >> one
    if a.type.kind == "uint":
        return result
    minus = const(-1, a.type)
    sign = select(binary("eq", b & one, one), minus, one)
    inverse = select(binary("eq", a, one), one, zero)
    inverse = select(binary("eq", a, minus), sign, inverse)
    return select(b < zero, inverse, result)


def _shifted(op: str, unsigned_first: bool = False) -> Function:
    """A shift; where ``unsigned_first``, zeros come in at the left."""

    def compute(a: Expr, b: Expr) -> Expr:
        if unsigned_first or (op == "shl" and a.type is s64):
            plain = unsigned(a.type)
            return cast(a.type, binary(op, cast(plain, a), cast(plain, b)))
        return binary(op, a, b)

    return compute


def _arithmetic_shift(a: Expr, b: Expr) -> Expr:
    plain = signed(a.type)
    return cast(a.type, binary("shr", cast(plain, a), cast(plain, b)))


INTEGERS: Mapping[str, Function] = {
    "abs": lambda a: unary("abs", a),
    "add": _wrapping("add"),
    "and": lambda a, b: a & b,
    "clamp": lambda low, x, high: minimum(maximum(x, low), high),
    "count_leading_zeros": lambda a: unary("clz", a),
    "divide": _divided,
    "maximum": maximum,
    "minimum": minimum,
    "mulhi": lambda a, b: binary("mulhi", a, b),
    "multiply": _wrapping("mul"),
    "negate": _negated,
    "not": lambda a: ~a,
    "or": lambda a, b: a | b,
    "popcnt": lambda a: unary("popcount", a),
    "power": _integer_power,
    "remainder": _rest,
    "shift_left": _shifted("shl"),
    "shift_right_arithmetic": _arithmetic_shift,
    "shift_right_logical": _shifted("shr", unsigned_first=True),
    "sign": functions.sign,
    "subtract": _wrapping("sub"),
    "xor": lambda a, b: a ^ b,
}
BOOLEANS: Mapping[str, Function] = {
    "add": lambda a, b: a | b,
    "and": lambda a, b: a & b,
    "clamp": lambda low, x, high: (x | low) & high,
    "maximum": lambda a, b: a | b,
    "minimum": lambda a, b: a & b,
    "multiply": lambda a, b: a & b,
    "not": lambda a: ~a,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def _rounded_away(x: Expr) -> Expr:
    """To the nearest whole number, halves away from zero."""
    size = unary("abs", x)
    below = unary("floor", size)
    half = functions.number(0.5, x)
    whole = select(size - below < half, below, below + functions.number(1.0, x))
    whole = select(size < functions.number(math.inf, x), whole, size)
    return _signed(whole, x)


def _signed(size: Expr, like: Expr) -> Expr:
    """``size`` with the sign of ``like``, zeros included."""
    zero = functions.number(0.0, like)
    expr = select(like < zero, -size, size)
    return select(binary("eq", like, zero) | binary("ne", like, like), like, expr)


# Of floats in their own type, beside records: what the IR computes at once.
_OWN: Mapping[str, Function] = {
    "add": lambda a, b: a + b,
    "clamp": lambda low, x, high: minimum(maximum(x, low), high),
    "divide": lambda a, b: a / b,
    "is_finite": functions.is_finite,
    "is_inf": lambda a: binary("eq", unary("abs", a), functions.number(math.inf, a)),
    "is_neg_inf": lambda a: binary("eq", a, functions.number(-math.inf, a)),
    "is_pos_inf": lambda a: binary("eq", a, functions.number(math.inf, a)),
    "maximum": maximum,
    "minimum": minimum,
    "multiply": lambda a, b: a * b,
    "negate": lambda a: -a,
    "next_after": special.next_after,
    "power": lambda a, b: binary("pow", a, b),
    "remainder": functions.fmod,
    "round_nearest_afz": _rounded_away,
    "subtract": lambda a, b: a - b,
}
# Of many steps: f32 is computed in f64, where errors do not add up to what f32 sees.
_IN_F64: Mapping[str, Function] = {
    "atan2": functions.atan2,
    "bessel_i1e": special.bessel_i1e,
    "digamma": special.digamma,
    "erf_inv": error_functions.erf_inv,
    "erfc": error_functions.erfc,
    "lgamma": special.lgamma,
    "polygamma": special.polygamma,
    "zeta": special.zeta,
}


def _in(wide: DType, function: Function) -> Function:
    """``function`` of floats computed in ``wide``, and rounded to their type."""

    def compute(*operands: Expr) -> Expr:
        dtype = operands[0].type
        if dtype.bits >= wide.bits:
            return function(*operands)
        return cast(dtype, function(*(cast(wide, operand) for operand in operands)))

    return compute


FLOATS: Mapping[str, Function] = {
    **_OWN,
    **{name: _in(f64, function) for name, function in _IN_F64.items()},
    **{
        unary_function.stablehlo: unary_function.of
        if unary_function.least is None
        else _in(unary_function.least, unary_function.of)
        for unary_function in UNARY_FUNCTIONS.values()
        if unary_function.stablehlo
    },
}


def wrapped(x: Expr, bits: int) -> Expr:
    """An integer of 2 or 4 bits, held in a byte: what lies above is cut off."""
    up = const(8 - bits, x.type)
    return binary("shr", binary("shl", x, up), up)


def compared(direction: str, a: Expr, b: Expr) -> Expr:
    """``a direction b``, for one of `DIRECTIONS`."""
    return functions.COMPARISONS[direction.lower()](a, b)


DIRECTIONS = tuple(map(str.upper, functions.COMPARISONS))


def total_order(x: Expr) -> Expr:
    """An integer that orders floats as IEEE 754's totalOrder does: -NaN first, NaN last."""
    whole = type_of(f"s{x.type.bits}")
    bits = bitcast(whole, x)
    last = const(x.type.bits - 1, whole)
    mask = const(whole.highest, whole)
    return select(binary("shr", bits, last) < const(0, whole), bits ^ mask, bits)


def with_precision(x: Expr, exponent: int, mantissa: int) -> Expr:
    """``x`` rounded to a float of so many bits, and back: what is too great becomes infinite, what
    is too small zero."""
    type_ = x.type
    own_exponent, own_mantissa = _FORMATS[type_.name]
    whole = unsigned(type_)
    bits = bitcast(whole, x)

    def number(value: int) -> Expr:
        return const(value, whole)

    if mantissa < own_mantissa:
        cut = own_mantissa - mantissa
        last = (bits >> number(cut)) & number(1)
        bits = bits + number((1 << (cut - 1)) - 1) + last
        bits = bits & number(whole.highest & -(1 << cut))  # type: ignore[operator]  # an integer
    if exponent < own_exponent:
        sign = bits & number(1 << (type_.bits - 1))
        field = ((1 << own_exponent) - 1) << own_mantissa
        bias, own_bias = (1 << (exponent - 1)) - 1, (1 << (own_exponent - 1)) - 1
        expr = bits & number(field)
        over = number((own_bias + bias) << own_mantissa) < expr
        under = expr <= number((own_bias - bias) << own_mantissa)
        bits = select(over, sign | number(field), select(under, sign, bits))
    result = bitcast(type_, bits)
    nan = binary("ne", x, x)
    infinite = functions.number(math.inf, x)
    return select(nan, x if mantissa else infinite, result)


# Bits of exponent and mantissa.
_FORMATS = {"f64": (11, 52), "f32": (8, 23), "bf16": (8, 7), "f16": (5, 10)}
