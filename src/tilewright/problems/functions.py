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
    fma,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.ir.visit import reads_memory
from tilewright.problems.numbers import held

# (atan(x) / x - 1) / x^2 up to tan(pi / 8), and (asin(x) / x - 1) / x^2 up to a half, in powers of
# x^2, the last first: Chebyshev fits, of f32 (errors of 3e-9) and of f64 (below 5e-18).
_ATAN = (
    (-6.45192821e-2, 1.07437315e-1, -1.42639556e-1, 1.99995405e-1, -3.33333318e-1),
    (
        *(-1.9176887119062258989e-2, 3.9231658295587191303e-2, -5.0854497379402598613e-2),
        *(5.8581489128022098816e-2, -6.6645114473819480001e-2, 7.6921831908260865637e-2),
        *(-9.0909045781239018905e-2, 1.1111111015256361727e-1, -1.4285714284666542922e-1),
        *(1.9999999999995520678e-1, -3.3333333333333330160e-1),
    ),
)
_ASIN = (
    (3.36908472e-2, 1.71492384e-2, 3.11006627e-2, 4.45994015e-2, 7.50009454e-2, 1.66666663e-1),
    (
        *(2.8757851367421564708e-2, -1.4851887071247203224e-2, 1.7400879442694022443e-2),
        *(5.4575067186403583004e-3, 1.0322814350185779287e-2, 1.1479177415184905896e-2),
        *(1.3971212973552933304e-2, 1.7352392720869972942e-2, 2.2372172942149887875e-2),
        *(3.0381944138531247287e-2, 4.4642857146355429783e-2, 7.4999999999984329332e-2),
        *(1.6666666666666667827e-1,),
    ),
)
# What pi / 2 has beyond f32, and beyond f64.
_REST = (-4.371139000186241e-8, 6.123233995736765886130e-17)
# The square of what is greater overflows in f32, or 1 is nothing to it in f64.
_SQUARED = 1e9
# Whole exponents up to this are squares and products.
_BY_SQUARING = 16


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
        result = fma(result, x, number(coefficient, x), exact=False)
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


def _quarter(x: Expr) -> tuple[Expr, Expr]:
    """pi / 2, and what it has beyond the type of ``x``."""
    return number(math.pi / 2, x), number(_REST[x.type.bits > 32], x)


def atan(x: Expr) -> Expr:
    """The arc tangent, in [-pi/2, pi/2]: a polynomial up to tan(pi/8), which differences of angles
    lead to."""
    zero, one = number(0.0, x), number(1.0, x)
    a = unary("abs", x)
    is_steep = number(math.tan(3 * math.pi / 8), x) < a
    is_middle = number(math.tan(math.pi / 8), x) < a
    above = select(is_steep, -one, select(is_middle, a - one, a))
    below = select(is_steep, a, select(is_middle, a + one, one))
    t = above / below
    # Angles of pi / 2, pi / 4 and none.
    quarter, rest = (
        select(is_steep, part, select(is_middle, part * number(0.5, x), zero))
        for part in _quarter(x)
    )
    square = t * t
    part = t * square * polynomial(square, _ATAN[x.type.bits > 32])
    return copysign(quarter + (t + (part + rest)), x)


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


def _asin_below(a: Expr) -> tuple[Expr, Expr]:
    """Whether ``a``, of 0 or more, is above a half; and its arc sine, or above half of what that is
    short of pi / 2, as 1 - 2 sin(t)^2 = cos(2t)."""
    half = number(0.5, a)
    is_large = half < a
    square = select(is_large, (number(1.0, a) - a) * half, a * a)
    s = select(is_large, unary("sqrt", square), a)
    return is_large, s + s * square * polynomial(square, _ASIN[a.type.bits > 32])


def asin(x: Expr) -> Expr:
    """The arc sine; NaN outside of [-1, 1]."""
    quarter, rest = _quarter(x)
    is_large, angle = _asin_below(unary("abs", x))
    large = quarter - (angle + angle - rest)
    return copysign(select(is_large, large, angle), x)


def acos(x: Expr) -> Expr:
    """The arc cosine; NaN outside of [-1, 1]."""
    quarter, rest = _quarter(x)
    is_large, angle = _asin_below(unary("abs", x))
    left = quarter - (select(is_large, angle, copysign(angle, x)) - rest)
    large = select(x < number(0.0, x), left, angle)
    return select(is_large, large + large, left)


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
