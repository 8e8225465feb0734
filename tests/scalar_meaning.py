"""What numbers of kernels mean, said once more in numpy scalars and Python's integers: the common
type of two, conversions, and functions whose meaning numpy's differs from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "f64")
_NUMPY: dict[str, Any] = {
    **{name: np.dtype(name.replace("s", "int").replace("u", "uint")).type for name in INTEGERS},
    "f32": np.float32,
    "f64": np.float64,
}


def _bits(name: str) -> int:
    return int(name[1:])


def bounds(name: str) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    bits = _bits(name)
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if name[0] == "s" else (0, 2**bits - 1)


def common(a: str, b: str) -> str | None:
    """The type that holds both: the wider one, a float rather than an integer; None: there is none.
    A signed and an unsigned type meet in the least signed one that holds both."""
    if a == b:
        return a
    if (a in FLOATS) != (b in FLOATS):
        return a if a in FLOATS else b
    if a[0] == b[0]:
        return max(a, b, key=_bits)
    unsigned, signed = sorted((a, b), key=lambda each: each[0] == "s")
    bits = max(_bits(signed), 2 * _bits(unsigned))
    return f"s{bits}" if bits <= 64 else None


def fits(value: float, name: str) -> bool:
    """Whether a literal becomes that type without losing anything."""
    if name in FLOATS:
        return True
    low, high = bounds(name)
    return isinstance(value, int) and low <= value <= high


def weak_type(value: float, name: str) -> str | None:
    """The type in which a literal and a number of the type ``name`` meet."""
    if fits(value, name):
        return name
    if isinstance(value, float):
        return "f32"
    return common(name, "s32" if fits(value, "s32") else "s64")


def converted(value: Any, name: str) -> Any:
    """A number as that type: floats go towards 0 and stay within bounds, NaN becomes 0; integers
    wrap; all is rounded to the nearest float."""
    type_ = _NUMPY[name]
    if name in FLOATS:
        return (
            type_(value) if isinstance(value, float | np.floating) else _rounded(int(value), type_)
        )
    low, high = bounds(name)
    if isinstance(value, float | np.floating):
        if math.isnan(value):
            return type_(0)
        return type_(high if value >= high else low if value <= low else int(value))
    return type_((int(value) - low) % 2 ** _bits(name) + low)


def _rounded(value: int, type_: Any) -> Any:
    # A constructor of numpy rounds Python's integers to f64 first.
    wide = np.int64(value) if value < 2**63 else np.uint64(value)
    return wide.astype(type_)


def as_bool(value: Any) -> bool:
    return bool(value != 0)


def min_(a: Any, b: Any) -> Any:
    return np.minimum(a, b)


def max_(a: Any, b: Any) -> Any:
    return np.maximum(a, b)


def divide(a: Any, b: Any) -> Any:
    """Towards 0; 0 where ``b`` is."""
    if not b:
        return a * b
    quotient = abs(int(a)) // abs(int(b))
    sign = -1 if (int(a) < 0) != (int(b) < 0) else 1
    return converted(sign * quotient, _name(a))


def remainder(a: Any, b: Any) -> Any:
    return a - divide(a, b) * b


def _name(value: Any) -> str:
    return next(name for name, type_ in _NUMPY.items() if type(value) is type_)


NAMES: dict[str, Any] = {
    **{f"as_{t}": lambda value, t=t: converted(value, t) for t in _NUMPY},
    "as_bool": as_bool,
    "min_": min_,
    "max_": max_,
    "divide": divide,
    "remainder": remainder,
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
}
