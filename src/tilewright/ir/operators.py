"""The operators of expressions: what each computes, and on which types it is defined.

They compute on Python numbers of a type of so many bits; `expr.const` then rounds or wraps the
result to the type. Every operation has a value for every operand, the same in the interpreter
and on every target: integers wrap, a division by zero gives 0, and a shift by the type's width or
more leaves none of the bits (for ``shr`` of a signed number: copies of its sign).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.dtypes import DType

# No type has more bits: an amount beyond shifts all of them out.
_MOST_BITS = 64


def _shift_left(a: int, b: int) -> int:
    # Amounts are unsigned: a negative one is a large one.
    return a << b if 0 <= b < _MOST_BITS else 0


def _multiply_high(a: int, b: int, bits: int) -> int:
    return (a * b) >> bits


def _leading_zeros(a: int, bits: int) -> int:
    return bits - (a & ((1 << bits) - 1)).bit_length()


def _population(a: int, bits: int) -> int:
    return (a & ((1 << bits) - 1)).bit_count()


def _in_f64(function: Callable[..., Any]) -> Callable[..., float]:
    """A function of numpy's on Python's floats, and the bits of their type."""

    def evaluate(*operands_and_bits: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(*map(np.float64, operands_and_bits[:-1])))

    return evaluate


def _is_negative(a: Any) -> bool:
    return isinstance(a, float) and math.copysign(1.0, a) < 0


def fused(a: float, b: float, c: float, bits: int) -> float:
    """``a * b + c``, computed exactly, as f64: rounded to nearest for a type of 64 bits, and to odd
    for a narrower one, whose own rounding then gives the nearest."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c) if math.isfinite(c) else None
    if not exact:
        return c if exact is None else a * b + c
    try:
        nearest = float(exact)
    except OverflowError:
        return math.copysign(math.inf, exact)
    if bits < 64 and Fraction(nearest) != exact and not int(np.float64(nearest).view(np.int64)) & 1:
        return math.nextafter(nearest, math.inf if exact > nearest else -math.inf)
    return nearest


# The value of each operator, by its operands and the bits of their type.
BINARY: dict[str, Callable[[Any, Any, int], Any]] = {
    "add": lambda a, b, _: a + b,
    "sub": lambda a, b, _: a - b,
    "mul": lambda a, b, _: a * b,
    "div": _in_f64(np.true_divide),
    "floordiv": lambda a, b, _: a // b if b else 0,
    "mod": lambda a, b, _: a % b if b else 0,
    "mulhi": _multiply_high,
    "shl": lambda a, b, _: _shift_left(a, b),
    "shr": lambda a, b, _: a >> (b if 0 <= b < _MOST_BITS else _MOST_BITS),
    "min": lambda a, b, _: a if a < b or a != a or (a == b and _is_negative(a)) else b,
    "max": lambda a, b, _: a if a > b or a != a or (a == b and (not _is_negative(a))) else b,
    "pow": _in_f64(np.power),
    "fmod": _in_f64(np.fmod),
    "lt": lambda a, b, _: a < b,
    "le": lambda a, b, _: a <= b,
    "eq": lambda a, b, _: a == b,
    "ne": lambda a, b, _: a != b,
    "and": lambda a, b, _: a & b,
    "or": lambda a, b, _: a | b,
    "xor": lambda a, b, _: a ^ b,
}
COMPARISONS = frozenset({"lt", "le", "eq", "ne"})
# Of conditions, and bit by bit of integers.
BITWISE = frozenset({"and", "or", "xor"})
INTEGER_ONLY = frozenset({"floordiv", "mod", "mulhi", "shl", "shr"})
FLOAT_ONLY = frozenset({"div", "pow", "fmod"})
# Functions of floats that processors have no instruction for.
SOFTWARE = frozenset(("exp", "exp2", "log", "log1p", "sin", "cos", "tanh", "erf", "pow", "fmod"))


def _erf(values: Any) -> Any:
    array = np.asarray(values)
    return np.fromiter(map(math.erf, array.ravel()), np.float64, array.size).reshape(array.shape)


# Functions of one float, on numpy's arrays of f64.
FLOAT_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,  # to nearest, ties to even
}
UNARY: dict[str, Callable[[Any, int], Any]] = {
    "neg": lambda a, _: -a,
    "not": lambda a, _: not a if isinstance(a, bool) else ~a,
    "abs": lambda a, _: abs(a),
    "clz": _leading_zeros,
    "popcount": _population,
    **{op: _in_f64(function) for op, function in FLOAT_FUNCTIONS.items()},
}
INTEGER_ONLY_UNARY = frozenset({"clz", "popcount"})
FLOAT_ONLY_UNARY = frozenset(FLOAT_FUNCTIONS)


def _kinds(op: str) -> frozenset[str]:
    if op in INTEGER_ONLY | INTEGER_ONLY_UNARY:
        return frozenset({"int", "uint"})
    if op in FLOAT_ONLY | FLOAT_ONLY_UNARY:
        return frozenset({"float"})
    if op in BITWISE or op == "not":
        return frozenset({"int", "uint", "bool"})
    if op in ("add", "sub", "mul", "neg", "abs"):
        return frozenset({"int", "uint", "float"})
    return frozenset({"int", "uint", "float", "bool"})


# The kinds of types (`DType.kind`) that each operator is defined on.
KINDS: dict[str, frozenset[str]] = {op: _kinds(op) for op in (*BINARY, *UNARY)}


def identity(combiner: str, dtype: DType) -> float:
    """What a reduction by a named combiner begins with: combining with it changes nothing."""
    ones = -1 if dtype.kind == "int" else dtype.highest
    identities = {
        "add": 0, "mul": 1, "min": dtype.highest, "max": dtype.lowest, "and": ones, "or": False
    }  # fmt: skip
    return identities[combiner]
