"""Functions of complex numbers, as pairs of expressions in f64.

Formulas with sums that cancel follow W. Kahan, "Branch Cuts for Complex Elementary Functions".
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.dtypes import f64
from tilewright.ir.expr import Expr, binary, cast, const, maximum, minimum, select, unary
from tilewright.problems import functions as real

Pair = tuple[Expr, Expr]
Function = Callable[..., Pair]


def _number(value: float) -> Expr:
    return const(value, f64)


_ZERO, _ONE, _TWO, _HALF = _number(0.0), _number(1.0), _number(2.0), _number(0.5)
_QUARTER = _number(0.25)
_INFINITE = _number(math.inf)


def magnitude(z: Pair) -> Expr:
    """|z|, which overflows only where the result does."""
    a, b = unary("abs", z[0]), unary("abs", z[1])
    large, small = maximum(a, b), minimum(a, b)
    ratio = select((large == _ZERO) | (large == small), _ONE, small / large)
    expr = large * unary("sqrt", _ONE + ratio * ratio)
    expr = select(large == _ZERO, large, expr)
    infinite = (a == _INFINITE) | (b == _INFINITE)
    return select(infinite, _INFINITE, expr)


def add(x: Pair, y: Pair) -> Pair:
    """x + y."""
    return x[0] + y[0], x[1] + y[1]


def subtract(x: Pair, y: Pair) -> Pair:
    """x - y."""
    return x[0] - y[0], x[1] - y[1]


def multiply(x: Pair, y: Pair) -> Pair:
    """x * y."""
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def divide(x: Pair, y: Pair) -> Pair:
    """x / y, scaled so that squares of ``y`` do not overflow (Smith's way)."""
    (a, b), (c, d) = x, y
    wide = unary("abs", d) <= unary("abs", c)
    ratio = select(wide, d / c, c / d)
    below = select(wide, c + d * ratio, c * ratio + d)
    first = select(wide, a + b * ratio, a * ratio + b) / below
    second = select(wide, b - a * ratio, b * ratio - a) / below
    none = (c == _ZERO) & (d == _ZERO)
    return select(none, a / c, first), select(none, b / c, second)


def exponential(z: Pair) -> Pair:
    """e**z."""
    a, b = z
    root = unary("exp", a * _HALF)  # its square may overflow where a part of the result does not
    flat = b == _ZERO
    first = root * (root * unary("cos", b))
    second = root * (root * unary("sin", b))
    gone = a == _number(-math.inf)
    first, second = select(gone, _ZERO, first), select(gone, _ZERO, second)
    return select(flat, unary("exp", a), first), select(flat, b, second)


def exponential_minus_one(z: Pair) -> Pair:
    """e**z - 1."""
    a, b = z
    half = unary("sin", b * _HALF)
    first = real.expm1(a) * unary("cos", b) - _TWO * half * half
    flat = b == _ZERO
    return select(flat, real.expm1(a), first), exponential(z)[1]


def _by_size(z: Pair) -> Pair:
    """The greater and the lesser size of the parts."""
    a, b = unary("abs", z[0]), unary("abs", z[1])
    return maximum(a, b), minimum(a, b)


def _log_of_square(large: Expr, small: Expr) -> Expr:
    """log(large**2 + small**2) / 2, for ``large`` near 1, too."""
    near = unary("log1p", (large - _ONE) * (large + _ONE) + small * small) * _HALF
    ratio = select(large == _ZERO, _ZERO, small / large)
    ratio = select(large == _INFINITE, _ZERO, ratio)
    far = unary("log", large) + unary("log1p", ratio * ratio) * _HALF
    return select((large > _HALF) & (large < _TWO), near, far)


def log(z: Pair) -> Pair:
    """The natural logarithm."""
    return _log_of_square(*_by_size(z)), real.atan2(z[1], z[0])


def log_plus_one(z: Pair) -> Pair:
    """log(1 + z)."""
    a, b = z
    near = unary("log1p", a * (a + _TWO) + b * b) * _HALF
    small = (unary("abs", a) < _HALF) & (unary("abs", b) < _HALF)
    moved = (a + _ONE, b)
    return select(small, near, log(moved)[0]), real.atan2(b, a + _ONE)


def square_root(z: Pair) -> Pair:
    """The root with a real part of 0 or more."""
    a, b = z
    size = magnitude(z)
    # A quarter of each does not overflow.
    root = _TWO * unary("sqrt", (size * _QUARTER + unary("abs", a) * _QUARTER) * _HALF)
    other = select(root == _ZERO, _ZERO, unary("abs", b) / root * _HALF)
    ahead = a >= _ZERO
    first = select(ahead, root, other)
    second = real.with_sign_of(select(ahead, other, root), b)
    wide = unary("abs", b) == _INFINITE
    return select(wide, _INFINITE, first), select(wide, b, second)


def reciprocal_root(z: Pair) -> Pair:
    """1 / sqrt(z)."""
    return divide((_ONE, _ZERO), square_root(z))


def tanh(z: Pair) -> Pair:
    """The hyperbolic tangent."""
    a, b = z
    slope, s = real.tan(b), real.sinh(a)
    beta = _ONE + slope * slope
    rho = unary("sqrt", _ONE + s * s)
    below = _ONE + beta * s * s
    far = _number(20.0) < unary("abs", a)
    first = select(far, real.with_sign_of(_ONE, a), beta * rho * s / below)
    tail = _number(4.0) * unary("sin", b) * unary("cos", b)
    tail = tail * unary("exp", -_TWO * unary("abs", a))
    return first, select(far, tail, slope / below)


def sine(z: Pair) -> Pair:
    """The sine."""
    a, b = z
    return unary("sin", a) * real.cosh(b), unary("cos", a) * real.sinh(b)


def cosine(z: Pair) -> Pair:
    """The cosine."""
    a, b = z
    return unary("cos", a) * real.cosh(b), -(unary("sin", a) * real.sinh(b))


def sinh(z: Pair) -> Pair:
    """The hyperbolic sine."""
    a, b = z
    return real.sinh(a) * unary("cos", b), real.cosh(a) * unary("sin", b)


def cosh(z: Pair) -> Pair:
    """The hyperbolic cosine."""
    a, b = z
    return real.cosh(a) * unary("cos", b), real.sinh(a) * unary("sin", b)


def turned(function: Function) -> Function:
    """``-i * function(i * z)``."""

    def compute(z: Pair) -> Pair:
        first, second = function((-z[1], z[0]))
        return second, -first

    return compute


def _around_one(z: Pair) -> tuple[Pair, Pair]:
    """sqrt(1 - z), sqrt(1 + z)."""
    a, b = z
    return square_root((_ONE - a, -b)), square_root((_ONE + a, b))


def asin(z: Pair) -> Pair:
    """The arc sine."""
    below, above = _around_one(z)
    product = below[0] * above[0] - below[1] * above[1]
    first = real.atan2(z[0], product)
    second = real.asinh(below[0] * above[1] - below[1] * above[0])
    return first, second


def acos(z: Pair) -> Pair:
    """The arc cosine."""
    below, above = _around_one(z)
    first = _TWO * real.atan2(below[0], above[0])
    second = real.asinh(above[0] * below[1] - above[1] * below[0])
    return first, second


def acosh(z: Pair) -> Pair:
    """The inverse of the hyperbolic cosine."""
    a, b = z
    below, above = square_root((a - _ONE, b)), square_root((a + _ONE, b))
    first = real.asinh(below[0] * above[0] + below[1] * above[1])
    return first, _TWO * real.atan2(below[1], above[0])


def atanh(z: Pair) -> Pair:
    """The inverse of the hyperbolic tangent."""
    a, b = z
    below = (_ONE - a) * (_ONE - a) + b * b
    first = _QUARTER * unary("log1p", _number(4.0) * a / below)
    second = _HALF * real.atan2(_TWO * b, (_ONE - a) * (_ONE + a) - b * b)
    return first, second


def power(x: Pair, y: Pair) -> Pair:
    """x ** y: a power of |x| and a turn by the angle (an exponential of y log(x) would lose as many
    digits as that is great)."""
    (a, b), (c, d) = x, y
    size, turn = magnitude(x), real.atan2(b, a)
    # Half of each exponent, as the square of this root may overflow where a part of the result does
    # not; the sum of squares is nearer than its root, where it does not overflow itself.
    near = (_number(1e-140) < size) & (size < _number(1e140))
    base = select(near, a * a + b * b, size)
    root = binary("pow", base, c * select(near, _QUARTER, _HALF))
    root = root * unary("exp", d * turn * -_HALF)
    angle = c * turn + d * _log_of_square(*_by_size(x))
    flat = angle == _ZERO
    ways = (
        select(flat, root * root, root * (root * unary("cos", angle))),
        select(flat, _ZERO, root * (root * unary("sin", angle))),
    )
    zero = (x[0] == _ZERO) & (x[1] == _ZERO)
    none = (y[0] == _ZERO) & (y[1] == _ZERO)
    first = select(none, _ONE, select(zero, _ZERO, ways[0]))
    return first, select(none | zero, _ZERO, ways[1])


def cube_root(z: Pair) -> Pair:
    """The principal cube root."""
    return power(z, (_number(1.0 / 3.0), _ZERO))


def sign(z: Pair) -> Pair:
    """z / |z|, and 0 of 0."""
    size = magnitude(z)
    none = size == _ZERO
    return select(none, _ZERO, z[0] / size), select(none, _ZERO, z[1] / size)


def logistic(z: Pair) -> Pair:
    """1 / (1 + exp(-z))."""
    back = exponential((-z[0], -z[1]))
    return divide((_ONE, _ZERO), (_ONE + back[0], back[1]))


def angle(y: Pair, x: Pair) -> Pair:
    """atan2 of complex numbers: -i log((x + i y) / sqrt(x**2 + y**2))."""
    above = (x[0] - y[1], x[1] + y[0])
    below = square_root(add(multiply(x, x), multiply(y, y)))
    ratio = log(divide(above, below))
    return ratio[1], -ratio[0]


def _after(x: Pair, y: Pair) -> Expr:
    """Whether ``x`` is greater: by the real parts, where these are equal by the imaginary ones."""
    after: Expr = (y[0] < x[0]) | ((x[0] == y[0]) & (y[1] < x[1]))
    return after


def greater(x: Pair, y: Pair) -> Pair:
    """The greater one, in the order of `_after`."""
    first = _after(x, y)
    return select(first, x[0], y[0]), select(first, x[1], y[1])


def lesser(x: Pair, y: Pair) -> Pair:
    """The lesser one, in the order of `_after`."""
    first = _after(x, y)
    return select(first, y[0], x[0]), select(first, y[1], x[1])


def tan(z: Pair) -> Pair:
    """The tangent."""
    return turned(tanh)(z)


def wide(z: tuple[Expr, ...]) -> Pair:
    """The parts in f64, where these functions compute."""
    return cast(f64, z[0]), cast(f64, z[1])
