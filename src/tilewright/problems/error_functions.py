"""The error function's complement and inverse, as expressions of floats."""

from __future__ import annotations

import math

from tilewright.ir.expr import Expr, select, unary
from tilewright.problems.functions import number, polynomial

# S. L. Moshier's Cephes library, erfc: rational functions on [1, 8] and beyond; and erf up to 1.
_P = (
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687,
    4.86371970985681366614e1,
    1.96520832956077098242e2,
    5.26445194995477358631e2,
    9.34528527171957607540e2,
    1.02755188689515710272e3,
    5.57535335369399327526e2,
)
_Q = (
    1.0,
    1.32281951154744992508e1,
    8.67072140885989742329e1,
    3.54937778887819891062e2,
    9.75708501743205489753e2,
    1.82390916687909736289e3,
    2.24633760818710981792e3,
    1.65666309194161350182e3,
    5.57535340817727675546e2,
)
_R = (
    5.64189583547755073984e-1,
    1.27536670759978104416,
    5.01905042251180477414,
    6.16021097993053585195,
    7.40974269950448939160,
    2.97886665372100240670,
)
_S = (
    1.0,
    2.26052863220117276590,
    9.39603524938001434673,
    1.20489539808096656605e1,
    1.70814450747565897222e1,
    9.60896809063285878198,
    3.36907645100081516050,
)
_T = (
    9.60497373987051638749,
    9.00260197203842689217e1,
    2.23200534594684319226e3,
    7.00332514112805075473e3,
    5.55923013010394962768e4,
)
_U = (
    1.0,
    3.35617141647503099647e1,
    5.21357949780152679795e2,
    4.59432382970980127987e3,
    2.26290000613890934246e4,
    4.92673942608635921086e4,
)


# exp(a^2) erfc(a) (1 + 2 a) in powers of (a - 2) / (a + 2) for a up to `_ZERO`, the last first: a
# Chebyshev fit for f32, error 1.3e-08. (The variable is that of M. Shepherd and J. Laframboise,
# "Chebyshev Approximation of (1 + 2x) exp(x^2) erfc x", Mathematics of Computation 36, 1981.)
_SINGLE = (
    2.20016527e-05,
    -0.000372358916,
    -0.0012512651,
    0.00128187223,
    0.00863924204,
    -0.00804781839,
    -0.0542056447,
    0.164053634,
    -0.166031304,
    -0.0927639166,
    1.27697839,
)
# From here on erfc is 0 in f32.
_ZERO = 10.125


def erfc(x: Expr) -> Expr:
    """1 - erf(x), exact where that is small."""
    one, size = number(1.0, x), unary("abs", x)
    if x.type.bits < 64:
        size = select(number(_ZERO, x) < size, number(_ZERO, x), size)
        two = number(2.0, x)
        slope, above = one + size + size, size + two
        # One division for both quotients.
        ratio = one / (slope * above)
        tail = _wave(size) * polynomial((size - two) * slope * ratio, _SINGLE) * (above * ratio)
        return select(x < number(0.0, x), two - tail, tail)
    square = size * size
    wave = _wave(size)
    near = wave * polynomial(size, _P) / polynomial(size, _Q)
    far = wave * polynomial(size, _R) / polynomial(size, _S)
    tail = select(size < number(8.0, x), near, far)
    tail = select(number(27.0, x) < size, number(0.0, x), tail)
    tail = select(x < number(0.0, x), number(2.0, x) - tail, tail)
    middle = one - x * polynomial(square, _T) / polynomial(square, _U)
    return select(size < one, middle, tail)


def _wave(size: Expr) -> Expr:
    """exp(-size * size) by two factors, as an error of the square would be multiplied by its size:
    the square of a part with few digits is exact, and of the rest, f32 needs few powers."""
    part = unary("round", size * number(128.0, size)) * number(1 / 128, size)
    rest = (part - size) * (part + size)
    powers = [1.0 / math.factorial(n) for n in range(_POWERS, -1, -1)]
    less = polynomial(rest, powers) if size.type.bits < 64 else unary("exp", rest)
    return unary("exp", -(part * part)) * less


# Of the exponential of what is below 0.08: 0.08**6 / 6! is 4e-10.
_POWERS = 5


# M. Giles, "Approximating the erfinv function", GPU Computing Gems, 2011: in w = -log(1 - x**2)
# below 6.25, and in its root below and above 4.
_NEAR = (
    -3.6444120640178196996e-21,
    -1.685059138182016589e-19,
    1.2858480715256400167e-18,
    1.115787767802518096e-17,
    -1.333171662854620906e-16,
    2.0972767875968561637e-17,
    6.6376381343583238325e-15,
    -4.0545662729752068639e-14,
    -8.1519341976054721522e-14,
    2.6335093153082322977e-12,
    -1.2975133253453532498e-11,
    -5.4154120542946279317e-11,
    1.051212273321532285e-09,
    -4.1126339803469836976e-09,
    -2.9070369957882005086e-08,
    4.2347877827932403518e-07,
    -1.3654692000834678645e-06,
    -1.3882523362786468719e-05,
    0.0001867342080340571352,
    -0.00074070253416626697512,
    -0.0060336708714301490533,
    0.24015818242558961693,
    1.6536545626831027356,
)
_MIDDLE = (
    2.2137376921775787049e-09,
    9.0756561938885390979e-08,
    -2.7517406297064545428e-07,
    1.8239629214389227755e-08,
    1.5027403968909827627e-06,
    -4.013867526981545969e-06,
    2.9234449089955446044e-06,
    1.2475304481671778723e-05,
    -4.7318229009055733981e-05,
    6.8284851459573175448e-05,
    2.4031110387097893999e-05,
    -0.0003550375203628474796,
    0.00095328937973738049703,
    -0.0016882755560235047313,
    0.0024914420961078508066,
    -0.0037512085075692412107,
    0.005370914553590063617,
    1.0052589676941592334,
    3.0838856104922207635,
)
_TAIL = (
    -2.7109920616438573243e-11,
    -2.5556418169965252055e-10,
    1.5076572693500548083e-09,
    -3.7894654401267369937e-09,
    7.6157012080783393804e-09,
    -1.4960026627149240478e-08,
    2.9147953450901080826e-08,
    -6.7711997758452339498e-08,
    2.2900482228026654717e-07,
    -9.9298272942317002539e-07,
    4.5260625972231537039e-06,
    -1.9681778105531670567e-05,
    7.5995277030017761139e-05,
    -0.00021503011930044477347,
    -0.00013871931833623122026,
    1.0103004648645343977,
    4.8499064014085844221,
)


# The same paper's for single precision: below and above 5.
_SINGLE_NEAR = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_SINGLE_TAIL = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


def erf_inv(x: Expr) -> Expr:
    """The inverse of erf; infinite at -1 and 1, NaN beyond."""
    # (The first factor is exact where it is small: x * x would not be.)
    w = -unary("log", (number(1.0, x) - x) * (number(1.0, x) + x))
    root = unary("sqrt", w)
    if x.type.bits < 64:
        near = polynomial(w - number(2.5, x), _SINGLE_NEAR)
        expr = select(w < number(5.0, x), near, polynomial(root - number(3.0, x), _SINGLE_TAIL))
    else:
        near = polynomial(w - number(3.125, x), _NEAR)
        middle = polynomial(root - number(3.25, x), _MIDDLE)
        tail = polynomial(root - number(5.0, x), _TAIL)
        expr = select(w < number(16.0, x), middle, tail)
        expr = select(w < number(6.25, x), near, expr)
    edge = unary("abs", x) == number(1.0, x)
    return select(edge, x * number(math.inf, x), expr * x)
