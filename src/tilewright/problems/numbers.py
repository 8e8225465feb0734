"""Numbers as Python callers give them: which ones a parameter of a problem may be."""

from __future__ import annotations

import math
import numbers
from contextlib import suppress

from tilewright.conversions import rounded
from tilewright.dtypes import DType
from tilewright.errors import ProblemError, UnsupportedError, short

# What a zero point may be: the greatest type that holds one is s32.
_ZERO_POINTS = range(-(2**31), 2**31)


def real_number(value: object, meaning: str, where: str, *, finite: bool = False) -> float:
    """``value`` as a float. Raises `ProblemError` for what is no number, or (with ``finite``) not
    finite; numpy's numbers are taken."""
    number = math.nan
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
    if math.isnan(number) or (finite and not math.isfinite(number)):
        raise ProblemError(
            f"{meaning} must be a {'finite ' if finite else ''}number, not {short(value)}",
            where=where,
            cure="write a decimal number, such as 0.5",
        )
    return number


def whole_number(value: object, meaning: str, where: str) -> int:
    """``value`` as an int that s32 holds. Raises `ProblemError` for anything else."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise ProblemError(
            f"{meaning} must be a whole number, not {short(value)}",
            where=where,
            cure="write digits only, such as 1",
        )
    if int(value) not in _ZERO_POINTS:
        raise ProblemError(
            f"{meaning} does not fit s32", where=where, cure="stay between -2^31 and 2^31 - 1"
        )
    return int(value)


def held(value: float, type: DType) -> float:
    """``value``, which ``type`` may round, but not to infinity. Raises `UnsupportedError`."""
    if math.isfinite(value) and not math.isfinite(rounded(value, type)):
        raise UnsupportedError(
            f"{type} does not hold {value}",
            why="kernels compute with this number in that type",
            cure=f"stay below the greatest {type}, or compute in a wider type",
        )
    return value
