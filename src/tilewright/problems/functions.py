"""Scalar functions that the IR has no operator for, as expressions of those that it has.

Each takes and gives expressions of one float type; the error is a few units in the last place.
Formulas: Abramowitz and Stegun, "Handbook of Mathematical Functions", 4.3 to 4.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tilewright.dtypes import boolean, dtype, s64, u64
from tilewright.ir.expr import (
    Expr,
    as_expr,
    binary,
    bitcast,
    cast,
    const,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.ir.visit import reads_memory
from tilewright.problems.numbers import held

_ATAN_ABOVE = (
    -8.750608600031904122785e-1,
    -1.615753718733365076637e1,
    -7.500855792314704667340e1,
    -1.228866684490136173410e2,
    -6.485021904942025371773e1,
)
_ATAN_BELOW = (
    2.485846490142306297962e1,
    1.650270098316988542046e2,
    4.328810604912902668951e2,
    4.853903996359136964868e2,
    1.945506571482613964425e2,
)
# The square of what is greater overflows in f32, or 1 is nothing to it in f64.
_SQUARED = 1e9
# Whole exponents up to this are squares and products.
_BY_SQUARING = 16
_REST = 6.123233995736765886130e-17


def number(value: float, like: Expr) -> Expr:
    """A constant of the type of ``like``. Raises `UnsupportedError` for one that is too great."""
    return const(held(value, like.type), like.type)


def wrapping(op: str, a: Expr, b: Expr) -> Expr:
    """The sum ("add"), difference ("sub") or product ("mul"), of integers modulo 2 to their bits:
    s64 counts as unbounded in the IR, u64 wraps."""
    if a.type is not s64:
        return binary(op, a, b)
    return cast(s64, binary(op, cast(u64, a), cast(u64, b)))


def arithmetic(op: str, a: Expr, b: Expr) -> Expr:
    """`wrapping`, of elements; what follows from places alone stays a place."""
    return wrapping(op, a, b) if reads_memory(a) or reads_memory(b) else binary(op, a, b)


def negated(x: Expr) -> Expr:
    """``-x``, of integers as `arithmetic`."""
    return arithmetic("sub", const(0, x.type), x) if x.type is s64 else -x


COMPARISONS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "eq": lambda a, b: binary("eq", a, b),
    "ne": lambda a, b: binary("ne", a, b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: b < a,
    "ge": lambda a, b: b <= a,
}


def expm1_below(x: Expr) -> Expr:
    """exp(x) - 1 where ``x`` is 0 or less, exact near 0, too."""
    half = unary("tanh", x * 0.5)
    return (half + half) / (number(1.0, x) - half)


def expm1(x: Expr) -> Expr:
    """exp(x) - 1, exact near 0, too."""
    one = number(1.0, x)
    return select(unary("abs", x) < one, expm1_below(x), unary("exp", x) - one)


def is_negative(x: Expr) -> Expr:
    """Whether the sign is that of negative numbers, also that of a zero and a NaN."""
    if x.type.is_float:
        x = bitcast(dtype(f"s{x.type.bits}"), x)
    return x < const(0, x.type) if x.type.kind == "int" else const(False, boolean)


def copysign(x: Expr, sign: Expr) -> Expr:
    """The size of ``x`` with the sign of ``sign``."""
    size = unary("abs", x)
    return select(is_negative(sign), -size, size)


def hypot(x: Expr, y: Expr) -> Expr:
    """The root of the sum of both squares, which may overflow; infinite if one of them is."""
    a, b = unary("abs", x), unary("abs", y)
    large, small = maximum(a, b), minimum(a, b)
    zero, one, top = number(0.0, x), number(1.0, x), number(math.inf, x)
    part = small / large
    root = select(binary("eq", large, zero), zero, large * unary("sqrt", one + part * part))
    return select(binary("eq", a, top) | binary("eq", b, top), top, root)


def logaddexp(x: Expr, y: Expr) -> Expr:
    """The logarithm of the sum of both exponentials."""
    return maximum(x, y) + unary("log1p", unary("exp", -_distance(x, y)))


def logaddexp2(x: Expr, y: Expr) -> Expr:
    """The logarithm to base 2 of the sum of 2 to the power of both."""
    more = unary("log1p", unary("exp2", -_distance(x, y)))
    return maximum(x, y) + more * number(1.0 / math.log(2.0), x)


def _distance(x: Expr, y: Expr) -> Expr:
    """How far one is from the other: 0 where both are the same infinity."""
    return select(binary("eq", x, y), number(0.0, x), unary("abs", x - y))


def trunc(x: Expr) -> Expr:
    """Rounds towards zero."""
    return select(x < number(0.0, x), unary("ceil", x), unary("floor", x))


def log2(x: Expr) -> Expr:
    """The logarithm to base 2."""
    return unary("log", x) * number(1.0 / math.log(2.0), x)


def log10(x: Expr) -> Expr:
    """The logarithm to base 10."""
    return unary("log", x) * number(1.0 / math.log(10.0), x)


def tan(x: Expr) -> Expr:
    """The tangent."""
    return unary("sin", x) / unary("cos", x)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The value of a polynomial, the highest power's coefficient first."""
    result = number(coefficients[0], x)
    for coefficient in coefficients[1:]:
        result = result * x + number(coefficient, x)
    return result


# Coefficients of (sinh(x) - x) / x^3 in powers of x^2, the last first: below 1, f64 holds no more.
_SINH = tuple(1.0 / math.factorial(n) for n in range(19, 1, -2))


def sinh(x: Expr) -> Expr:
    """The hyperbolic sine; it overflows only where the result does."""
    square = x * x
    near = x + x * square * polynomial(square, _SINH)
    root = unary("exp", unary("abs", x) * number(0.5, x))
    far = number(0.5, x) * root * root - number(0.5, x) / root / root
    return select(unary("abs", x) < number(1.0, x), near, select(x < number(0.0, x), -far, far))


def cosh(x: Expr) -> Expr:
    """The hyperbolic cosine; it overflows only where the result does."""
    root = unary("exp", unary("abs", x) * number(0.5, x))
    return number(0.5, x) * root * root + number(0.5, x) / root / root


def asinh(x: Expr) -> Expr:
    """The inverse of the hyperbolic sine."""
    a = unary("abs", x)
    one = number(1.0, x)
    near = unary("log1p", a + a * a / (one + unary("sqrt", one + a * a)))
    far = unary("log", a) + number(math.log(2.0), x)
    expr = select(a < number(_SQUARED, x), near, far)
    return select(x < number(0.0, x), -expr, select(x == number(0.0, x), x, expr))


def acosh(x: Expr) -> Expr:
    """The inverse of the hyperbolic cosine; NaN below 1."""
    t = x - number(1.0, x)
    near = unary("log1p", t + unary("sqrt", t * (t + number(2.0, x))))
    far = unary("log", x) + number(math.log(2.0), x)
    expr = select(x < number(_SQUARED, x), near, far)
    return select(x < number(1.0, x), number(math.nan, x), expr)


def atanh(x: Expr) -> Expr:
    """The inverse of the hyperbolic tangent."""
    a = unary("abs", x)
    expr = number(0.5, x) * unary("log1p", number(2.0, x) * a / (number(1.0, x) - a))
    return select(x < number(0.0, x), -expr, select(x == number(0.0, x), x, expr))


def atan(x: Expr) -> Expr:
    """The arc tangent, in [-pi/2, pi/2]: a rational function up to 0.66, which differences of
    angles lead to (S. L. Moshier, Cephes)."""
    zero, one = number(0.0, x), number(1.0, x)
    a = unary("abs", x)
    steep = number(math.tan(3 * math.pi / 8), x) < a
    middle = number(0.66, x) < a
    t = select(steep, -one / a, select(middle, (a - one) / (a + one), a))
    angle = select(steep, number(math.pi / 2, x), select(middle, number(math.pi / 4, x), zero))
    # What pi / 2 and pi / 4 have beyond f64.
    rest = select(steep, number(_REST, x), select(middle, number(_REST / 2, x), zero))
    square = t * t
    above, below = number(_ATAN_ABOVE[0], x), one
    for factor in _ATAN_ABOVE[1:]:
        above = above * square + number(factor, x)
    for factor in _ATAN_BELOW:
        below = below * square + number(factor, x)
    angle = angle + (t * (square * above / below) + t + rest)
    return select(x < zero, -angle, select(x == zero, x, angle))


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y), in [-pi, pi]; signs of zeros and infinities count."""
    zero, one = number(0.0, x), number(1.0, x)
    pi = number(math.pi, x)
    left = _negative(x)
    both = (unary("abs", x) == number(math.inf, x)) & (unary("abs", y) == number(math.inf, y))
    flat = (y == zero) & (x == zero)
    ratio = select(both, one, select(flat, zero, unary("abs", y) / unary("abs", x)))
    angle = atan(ratio)
    angle = select(left, pi - angle, angle)
    return with_sign_of(angle, y)


def asin(x: Expr) -> Expr:
    """The arc sine; NaN outside of [-1, 1]."""
    one = number(1.0, x)
    expr = atan(x / unary("sqrt", (one - x) * (one + x)))
    return select(unary("abs", x) == one, x * number(math.pi / 2, x), expr)


def acos(x: Expr) -> Expr:
    """The arc cosine; NaN outside of [-1, 1]."""
    one = number(1.0, x)
    return number(2.0, x) * atan(unary("sqrt", one - x) / unary("sqrt", one + x))


def cbrt(x: Expr) -> Expr:
    """The real cube root: a power, and a step of Newton's from there, as thirds are not exact."""
    zero, third = number(0.0, x), number(1.0 / 3.0, x)
    a = unary("abs", x)
    root = binary("pow", a, third)
    better = root - (root - a / (root * root)) * third
    root = select((a == zero) | (a == number(math.inf, x)), a, better)
    return select(x < zero, -root, select(x == zero, x, root))


def sign(x: Expr) -> Expr:
    """-1, 0 or 1 of any type; of floats, zeros and NaN stay as they are."""
    if x.type is boolean:
        return x
    zero, one = const(0, x.type), const(1, x.type)
    same = x if x.type.is_float else zero
    above = select(zero < x, one, same)
    return above if x.type.kind == "uint" else select(x < zero, -one, above)


def fmod(a: Expr, b: Expr) -> Expr:
    """What truncating division leaves; it has the sign of ``a``. Of integers, too."""
    if a.type.is_integer:
        rest = a % b
        zero = const(0, a.type)
        if a.type.kind == "uint":
            return rest
        other = (rest != zero) & ((a < zero) ^ (b < zero))
        return select(other, rest - b, rest)
    return binary("fmod", a, b)


def remainder(a: Expr, b: Expr) -> Expr:
    """What floor division leaves; it has the sign of ``b``. Of integers, too."""
    if a.type.is_integer:
        return a % b
    rest = fmod(a, b)
    zero = number(0.0, a)
    return select((rest != zero) & ((rest < zero) ^ (b < zero)), rest + b, rest)


def truncated_division(a: Expr, b: Expr) -> Expr:
    """``a / b`` towards zero, of integers or floats."""
    if a.type.is_float:
        return trunc(a / b)
    quotient = a // b
    if a.type.kind == "uint":
        return quotient
    zero, one = const(0, a.type), const(1, a.type)
    down = (quotient < zero) & (quotient * b != a)
    return select(down, quotient + one, quotient)


def floored_division(a: Expr, b: Expr) -> Expr:
    """``a / b`` towards minus infinity, of integers or floats: the whole number that `remainder`
    leaves its rest of."""
    if a.type.is_integer:
        return a // b
    rest, zero = fmod(a, b), number(0.0, a)
    exact = unary("round", (a - rest) / b)
    down = (rest != zero) & ((rest < zero) ^ (b < zero))
    quotient = a / b
    is_settled = (b == zero) | (quotient != quotient)
    return select(is_settled, quotient, select(down, exact - number(1.0, a), exact))


def integer_power(x: Expr, exponent: int) -> Expr:
    """``x ** exponent`` by squaring, for a whole exponent of 0 or more; of integers, too."""
    result: Expr | None = None
    square = x
    while exponent:
        if exponent & 1:
            result = square if result is None else arithmetic("mul", result, square)
        exponent >>= 1
        if exponent:
            square = arithmetic("mul", square, square)
    return const(1, x.type) if result is None else result


def power(x: Expr, exponent: float) -> Expr:
    """``x ** exponent`` of a float, without a call of pow for the exponents that need none."""
    if exponent == 0.5:
        return unary("sqrt", x)
    if exponent == -0.5:
        return unary("rsqrt", x)
    if float(exponent).is_integer() and abs(exponent) <= _BY_SQUARING:
        whole = integer_power(x, abs(int(exponent)))
        return whole if exponent >= 0 else const(1.0, x.type) / whole
    return binary("pow", x, const(float(exponent), x.type))


def clamped(x: Expr, low: float, high: float) -> Expr:
    """``x``, or the nearest number between ``low`` and ``high``, which may be sizes."""
    least, most = (cast(x.type, as_expr(bound, x)) for bound in (low, high))
    return maximum(minimum(x, most), least)


# Of the types that are computed in: bits of the mantissa, and what exponents are biased by.
_EXPONENTS = {32: (23, 127), 64: (52, 1023)}


def scaled(x: Expr, exponent: Expr) -> Expr:
    """``x * 2 ** exponent`` of an f32 or f64 and an integer: three products, as a power of 2 may be
    no number of the type where the result is one."""
    mantissa, bias = _EXPONENTS[x.type.bits]
    whole = dtype(f"s{x.type.bits}")
    most = min(3 * (bias - 1), exponent.type.highest)
    low = 0 if exponent.type.kind == "uint" else max(-most, exponent.type.lowest)
    left = cast(whole, clamped(exponent, low, most))
    for parts in (3, 2, 1):
        part = left // const(parts, whole)
        biased = (part + const(bias, whole)) << const(mantissa, whole)
        x, left = x * bitcast(x.type, biased), left - part
    return x


def is_nan(x: Expr) -> Expr:
    """Whether a number is NaN."""
    return binary("ne", x, x)


def is_finite(x: Expr) -> Expr:
    """Whether a float is neither infinite nor NaN."""
    return unary("abs", x) < number(math.inf, x)


def _negative(x: Expr) -> Expr:
    """Whether the sign is minus, of zeros, too."""
    zero = number(0.0, x)
    negative: Expr = (x < zero) | ((x == zero) & (number(1.0, x) / x < zero))
    return negative


def with_sign_of(size: Expr, like: Expr) -> Expr:
    """``size`` with the sign of ``like``, of zeros, too."""
    return select(_negative(like), -size, size)


def reciprocal(x: Expr) -> Expr:
    """``1 / x``."""
    return number(1.0, x) / x
