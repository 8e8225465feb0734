"""What elementwise operations compute of complex numbers, by StableHLO's names."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.problems import complex_functions as complex
from tilewright.problems.complex_functions import Function

COMPLEX: Mapping[str, Function] = {
    "acos": complex.acos,
    "acosh": complex.acosh,
    "add": complex.add,
    "asin": complex.asin,
    "asinh": complex.turned(complex.asin),
    "atan": complex.turned(complex.atanh),
    "atan2": complex.angle,
    "atanh": complex.atanh,
    "cbrt": complex.cube_root,
    "conj": lambda z: (z[0], -z[1]),
    "cosh": complex.cosh,
    "cosine": complex.cosine,
    "divide": complex.divide,
    "exponential": complex.exponential,
    "exponential_minus_one": complex.exponential_minus_one,
    "log": complex.log,
    "log_plus_one": complex.log_plus_one,
    "logistic": complex.logistic,
    "maximum": complex.greater,
    "minimum": complex.lesser,
    "multiply": complex.multiply,
    "negate": lambda z: (-z[0], -z[1]),
    "power": complex.power,
    "rsqrt": complex.reciprocal_root,
    "sign": complex.sign,
    "sine": complex.sine,
    "sinh": complex.sinh,
    "sqrt": complex.square_root,
    "square": lambda z: complex.multiply(z, z),
    "subtract": complex.subtract,
    "tan": complex.tan,
    "tanh": complex.tanh,
}
