"""Special functions of floats, as expressions: of the gamma and Bessel families.

They are meant for f64, or for f32 where a few units in the last place more do no harm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.dtypes import dtype as type_of
from tilewright.ir.expr import Expr, binary, bitcast, const, fma, minimum, select, unary
from tilewright.problems import functions
from tilewright.problems.functions import number, polynomial


def _chebyshev(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A sum of Chebyshev polynomials by Clenshaw's recurrence, the highest first: without those
    that are together a hundredth of a rounding of the greatest, as each is between -1 and 1."""
    least = max(map(abs, coefficients)) * float(np.finfo(x.type.numpy).eps) / 100
    sums = np.cumsum(np.abs(coefficients))
    last = before = number(0.0, x)
    older = last
    for coefficient in coefficients[int(np.searchsorted(sums, least)) :]:
        older, before = before, last
        last = fma(x, before, number(coefficient, x) - older, exact=False)
    return number(0.5, x) * (last - older)


def _infinity(x: Expr) -> Expr:
    return number(math.inf, x)


# The gamma function by C. Lanczos, "A Precision Approximation of the Gamma Function", SIAM Journal
# on Numerical Analysis B 1 (1964), with g = 7 and 9 terms.
_G = 7.0
_FIRST = 0.99999999999980993227684700473478
_LANCZOS = (
    676.520368121885098567009190444019,
    -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,
    -176.61502916214059906584551354,
    12.507343278686904814458936853,
    -0.13857109526572011689554707,
    9.984369578019570859563e-6,
    1.50563273514931155834e-7,
)


def _quotient(first: int) -> tuple[list[float], list[float]]:
    """Four terms from the one of index ``first`` on as a quotient of polynomials of z."""
    roots = [-float(n + 1) for n in range(first, first + 4)]
    above = np.poly1d([0.0])
    for n in range(4):
        above = above + _LANCZOS[first + n] * np.poly1d([*roots[:n], *roots[n + 1 :]], r=True)
    return above.coeffs.tolist(), np.poly1d(roots, r=True).coeffs.tolist()


_QUOTIENTS = tuple(map(_quotient, (0, 4)))


def lgamma(x: Expr) -> Expr:
    """log |gamma(x)|; by reflection below 1/2."""
    half, one = number(0.5, x), number(1.0, x)
    reflected = x < half
    z = select(reflected, -x, x - one)
    # Four terms are one quotient: divisions are what takes long. Beyond, they are next to nothing.
    near = minimum(z, number(1e17 if x.type.bits == 64 else 2e9, x))
    total = number(_FIRST, x)
    for above, below in _QUOTIENTS:
        total = total + polynomial(near, above) / polynomial(near, below)
    t = z + number(_G + 0.5, x)
    log_t = number(math.log(_G + 0.5), x) + unary("log1p", z / number(_G + 0.5, x))
    # As a product, which does not overflow before the result does.
    main = (z + half - t / log_t) * log_t
    expr = number(math.log(2.0 * math.pi) / 2.0, x) + main + unary("log", total)
    size = unary("abs", x)
    part = size - unary("floor", size)
    part = select(half < part, one - part, part)
    wave = unary("log", unary("sin", number(math.pi, x) * part))
    mirror = number(math.log(math.pi), x) - wave - expr
    mirror = select(functions.is_finite(wave), mirror, -wave)
    expr = select(reflected, mirror, expr)
    # Where pi times it has lost digits.
    expr = select(size < number(1e-20, x), -unary("log", size), expr)
    roots = binary("eq", x, one) | binary("eq", x, number(2.0, x))
    expr = select(roots, number(0.0, x), expr)
    return select(size == _infinity(x), _infinity(x), expr)


# Numerators of Bernoulli's numbers over their indices, of the asymptotic series of digamma.
_DIGAMMA = (
    1 / 12,
    -1 / 120,
    1 / 252,
    -1 / 240,
    1 / 132,
    -691 / 32760,
    1 / 12,
)
_FAR = 10


def digamma(x: Expr) -> Expr:
    """The logarithmic derivative of gamma: its asymptotic series from 10 on, recurrence below, and
    reflection below 1/2. NaN at the poles (Abramowitz and Stegun, 6.3)."""
    half, one = number(0.5, x), number(1.0, x)
    reflected = x < half
    z = select(reflected, one - x, x)
    shift = number(0.0, x)
    for _ in range(_FAR):
        near = z < number(float(_FAR), x)
        shift = select(near, shift + one / z, shift)
        z = select(near, z + one, z)
    square = one / (z * z)
    series = number(0.0, x)
    for coefficient in reversed(_DIGAMMA):
        series = (series + number(coefficient, x)) * square
    expr = unary("log", z) - half / z - series - shift
    near_zero = x - unary("floor", x + half)
    angle = number(math.pi, x) * near_zero
    mirror = expr - number(math.pi, x) * unary("cos", angle) / unary("sin", angle)
    expr = select(reflected, mirror, expr)
    pole = (x <= number(0.0, x)) & (x == unary("floor", x))
    return select(pole, number(math.nan, x), expr)


# 1 / (B(2n) / (2n)!), from n = 12 down to 1.
_ZETA = (
    -7.1661652561756670113e18,
    1.8152105401943546773e17,
    -4.5979787224074726105e15,
    1.1646782814350067249e14,
    -2.950130727918164224e12,
    7.47242496e10,
    -1.8924375803183791606e9,
    47900160.0,
    -1209600.0,
    30240.0,
    -720.0,
    12.0,
)
_ZETA_TERMS = 10


def zeta(x: Expr, q: Expr) -> Expr:
    """The sum of (q + n) ** -x over n from 0, also of ``q`` below 0 where ``x`` is a whole number:
    over all whole n, less those below 0, of which both are sums of numbers above 0."""
    zero, one, two = number(0.0, x), number(1.0, x), number(2.0, x)
    below, whole = q < zero, x == unary("floor", x)
    even = whole & (functions.fmod(x, two) == zero)
    expr = _zeta_above(x, select(below, q - unary("floor", q), q))
    mirrored = _zeta_above(x, unary("ceil", q) - q) - _zeta_above(x, one - q)
    expr = select(below, expr + select(even, mirrored, -mirrored), expr)
    nan, infinite = number(math.nan, x), _infinity(x)
    at_pole = (q <= zero) & (q == unary("floor", q))
    expr = select(x < one, nan, expr)
    expr = select((q <= zero) & ~whole, nan, expr)
    expr = select(at_pole, select(even, infinite, nan), expr)
    return select(x == one, infinite, expr)


def _zeta_above(x: Expr, q: Expr) -> Expr:
    """`zeta` of ``q`` above 0: its first terms, and the rest by Euler and Maclaurin (F. Johansson,
    "Rigorous high-precision computation of the Hurwitz zeta function", 2015)."""
    one, half = number(1.0, x), number(0.5, x)
    total, place = number(0.0, x), q
    for _ in range(_ZETA_TERMS):
        total = total + binary("pow", place, -x)
        place = place + one
    last = binary("pow", place, -x)
    square = one / (place * place)
    series = number(1.0 / _ZETA[0], x)
    for step, coefficient in enumerate(_ZETA[1:]):
        low = float(2 * len(_ZETA) - 2 - 2 * step)
        factors = (x + number(low, x)) * (x + number(low - 1.0, x))
        series = factors * square * series + number(1.0 / coefficient, x)
    tail = last * (half + x / place * series) + last * place / (x - one)
    small = unary("abs", last) <= unary("abs", total) * number(0.0, x)
    return select(small, total, total + tail)


def polygamma(n: Expr, x: Expr) -> Expr:
    """The derivative of `digamma` of order ``n``, a whole number of 0 or more; otherwise NaN."""
    zero, one, two = number(0.0, x), number(1.0, x), number(2.0, x)
    sign = two * functions.fmod(n, two) - one
    expr = sign * unary("exp", lgamma(n + one)) * zeta(n + one, x)
    expr = select(n == zero, digamma(x), expr)
    wrong = binary("ne", n, unary("floor", n)) | (n < zero)
    return select(wrong, number(math.nan, x), expr)


# S. L. Moshier's Cephes library, i1e: Chebyshev series on [0, 8] and beyond.
_BESSEL_NEAR = (
    2.77791411276104639959e-18,
    -2.11142121435816608115e-17,
    1.55363195773620046921e-16,
    -1.10559694773538630805e-15,
    7.60068429473540693410e-15,
    -5.04218550472791168711e-14,
    3.22379336594557470981e-13,
    -1.98397439776494371520e-12,
    1.17361862988909016308e-11,
    -6.66348972350202774223e-11,
    3.62559028155211703701e-10,
    -1.88724975172282928790e-9,
    9.38153738649577178388e-9,
    -4.44505912879632808065e-8,
    2.00329475355213526229e-7,
    -8.56872026469545474066e-7,
    3.47025130813767847674e-6,
    -1.32731636560394358279e-5,
    4.78156510755005422638e-5,
    -1.61760815825896745588e-4,
    5.12285956168575772895e-4,
    -1.51357245063125314899e-3,
    4.15642294431288815669e-3,
    -1.05640848946261981558e-2,
    2.47264490306265168283e-2,
    -5.29459812080949914269e-2,
    1.02643658689847095384e-1,
    -1.76416518357834055153e-1,
    2.52587186443633654823e-1,
)
_BESSEL_FAR = (
    7.51729631084210481353e-18,
    4.41434832307170791151e-18,
    -4.65030536848935832153e-17,
    -3.20952592199342395980e-17,
    2.96262899764595013876e-16,
    3.30820231092092828324e-16,
    -1.88035477551078244854e-15,
    -3.81440307243700780478e-15,
    1.04202769841288027642e-14,
    4.27244001671195135429e-14,
    -2.10154184277266431302e-14,
    -4.08355111109219731823e-13,
    -7.19855177624590851209e-13,
    2.03562854414708950722e-12,
    1.41258074366137813316e-11,
    3.25260358301548823856e-11,
    -1.89749581235054123450e-11,
    -5.58974346219658380687e-10,
    -3.83538038596423702205e-9,
    -2.63146884688951950684e-8,
    -2.51223623787020892529e-7,
    -3.88256480887769039346e-6,
    -1.10588938762623716291e-4,
    -9.76109749136146840777e-3,
    7.78576235018280120474e-1,
)


def bessel_i1e(x: Expr) -> Expr:
    """exp(-|x|) I1(x), of the modified Bessel function of order 1."""
    two = number(2.0, x)
    size = unary("abs", x)
    near = size * _chebyshev(number(0.5, x) * size - two, _BESSEL_NEAR)
    far = _chebyshev(number(32.0, x) / size - two, _BESSEL_FAR) / unary("sqrt", size)
    return functions.sign(x) * select(size <= number(8.0, x), near, far)


def next_after(x: Expr, y: Expr) -> Expr:
    """The next float of ``x`` on the way to ``y``."""
    whole = type_of(f"s{x.type.bits}")
    bits = bitcast(whole, x)
    one = const(1, whole)
    zero = number(0.0, x)
    away = ((x == x) & (x < y)) ^ (x < zero)
    moved = bitcast(x.type, select(away, bits + one, bits - one))
    least = bitcast(x.type, select(y < zero, const(whole.lowest, whole) + one, one))
    expr = select(x == zero, least, moved)
    expr = select(x == y, y, expr)
    return select(binary("ne", x, x) | binary("ne", y, y), x + y, expr)
