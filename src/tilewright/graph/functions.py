"""Scalar functions that the IR has no operator for, as expressions of those that it has.

Each takes and gives expressions of one float type; the error is a few units in the last place.
Formulas: Abramowitz and Stegun, "Handbook of Mathematical Functions", 4.3 to 4.6.
"""

from __future__ import annotations

import math

from tilewright.dtypes import boolean, f64
from tilewright.ir.expr import Expr, binary, cast, const, select, unary

# arctan is a series on [0, tan(pi / 8)]: so many terms give 53 bits there, and 24.
_ATAN_TERMS, _ATAN_TERMS_OF_F32 = 20, 9


def number(value: float, like: Expr) -> Expr:
    """A constant of the type of ``like``."""
    return const(value, like.type)


def expm1(x: Expr) -> Expr:
    """exp(x) - 1, exact near 0, too."""
    half = unary("tanh", x * number(0.5, x))
    near = number(2.0, x) * half / (number(1.0, x) - half)
    return select(unary("abs", x) < number(1.0, x), near, unary("exp", x) - number(1.0, x))


def logistic(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return number(1.0, x) / (unary("exp", -x) + number(1.0, x))


def truncate(x: Expr) -> Expr:
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


def sinh(x: Expr) -> Expr:
    """The hyperbolic sine; it overflows only where the result does."""
    half = unary("tanh", x * number(0.5, x))
    near = number(2.0, x) * half / (number(1.0, x) - half * half)
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
    # Of these, the square would overflow, or add nothing.
    far = unary("log", a) + number(math.log(2.0), x)
    found = select(a < number(1e4, x), near, far)
    return select(x < number(0.0, x), -found, select(x == number(0.0, x), x, found))


def acosh(x: Expr) -> Expr:
    """The inverse of the hyperbolic cosine; NaN below 1."""
    t = x - number(1.0, x)
    near = unary("log1p", t + unary("sqrt", t * (t + number(2.0, x))))
    far = unary("log", x) + number(math.log(2.0), x)
    return select(x < number(1e4, x), near, far)


def atanh(x: Expr) -> Expr:
    """The inverse of the hyperbolic tangent."""
    a = unary("abs", x)
    found = number(0.5, x) * unary("log1p", number(2.0, x) * a / (number(1.0, x) - a))
    return select(x < number(0.0, x), -found, select(x == number(0.0, x), x, found))


def atan(x: Expr) -> Expr:
    """The arc tangent, in [-pi/2, pi/2]: a series on [-tan(pi/8), tan(pi/8)], to which angles are
    turned by pi/2 or pi/4."""
    # Each turn repeats its argument in the text of a kernel, hence few of them.
    one = number(1.0, x)
    a = unary("abs", x)
    steep, turned = a > number(1 + math.sqrt(2.0), x), a > number(math.sqrt(2.0) - 1, x)
    t = select(steep, -one / a, select(turned, (a - one) / (a + one), a))
    start = number(math.pi / 4, x)
    start = select(steep, number(math.pi / 2, x), select(turned, start, number(0.0, x)))
    square = t * t
    terms = _ATAN_TERMS if x.type.bits > 32 else _ATAN_TERMS_OF_F32
    series = number((-1.0) ** (terms - 1) / (2 * terms - 1), x)
    for term in reversed(range(terms - 1)):
        series = series * square + number((-1.0) ** term / (2 * term + 1), x)
    angle = start + t * series
    return select(x < number(0.0, x), -angle, select(x == number(0.0, x), x, angle))


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
    return select(_negative(y), -angle, angle)


def asin(x: Expr) -> Expr:
    """The arc sine; NaN outside of [-1, 1]."""
    one = number(1.0, x)
    found = atan(x / unary("sqrt", (one - x) * (one + x)))
    return select(unary("abs", x) == one, x * number(math.pi / 2, x), found)


def acos(x: Expr) -> Expr:
    """The arc cosine; NaN outside of [-1, 1]."""
    one = number(1.0, x)
    return number(2.0, x) * atan(unary("sqrt", one - x) / unary("sqrt", one + x))


def cbrt(x: Expr) -> Expr:
    """The real cube root."""
    zero = number(0.0, x)
    root = binary("pow", unary("abs", x), number(1.0 / 3.0, x))
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
    # In f64, the quotient of two f32 is right up to 2^53, and off by one at most.
    x, y = unary("abs", cast(f64, a)), unary("abs", cast(f64, b))
    rest = x - unary("floor", x / y) * y
    rest = select(rest < number(0.0, x), rest + y, select(y <= rest, rest - y, rest))
    infinite = (y == number(math.inf, y)) & (x < number(math.inf, x))
    rest = cast(a.type, select(infinite, x, rest))
    return select(_negative(a), -rest, rest)


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
        return truncate(a / b)
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
    known = (b == zero) | (quotient != quotient)
    return select(known, quotient, select(down, exact - number(1.0, a), exact))


def integer_power(x: Expr, exponent: int) -> Expr:
    """``x ** exponent`` by squaring, for a whole exponent of 0 or more; of integers, too."""
    result: Expr | None = None
    square = x
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return const(1, x.type) if result is None else result


def is_finite(x: Expr) -> Expr:
    """Whether a float is neither infinite nor NaN."""
    return unary("abs", x) < number(math.inf, x)


def _negative(x: Expr) -> Expr:
    """Whether the sign is minus, of zeros, too."""
    zero = number(0.0, x)
    return (x < zero) | ((x == zero) & (number(1.0, x) / x < zero))
