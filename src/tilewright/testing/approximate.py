"""Numbers with error bounds: float64 values, and how far a correct kernel may be off.

Arithmetic here follows a kernel's, operation by operation. An operation on exact numbers whose
result the kernel's type can hold is exact; any other adds a rounding error. So data made for it
(`testing.inputs`) leaves no tolerance, and other data only as much as the bound needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.conversions import convert
from tilewright.dtypes import DType, f32, f64, tf32
from tilewright.problems import BINARY_RECORDS, UNARY_FUNCTIONS, Unary
from tilewright.testing.bounds import roundoff
from tilewright.testing.functions import binary, eltwise

# Roundings of a function that is composed of arithmetic, on inexact numbers.
_UNITS = 16


@dataclass(frozen=True)
class Approximate:
    """``value`` with ``|kernel - value| <= error``, both float64 and of one shape; infinities and
    NaN have no error. An infinite error means undecided: any result is right, NaN included."""

    value: Any
    error: Any
    arithmetic: DType

    def __post_init__(self) -> None:
        # 0 times an undecided number is undecided.
        error = np.where(np.isnan(self.error), np.inf, self.error)
        object.__setattr__(self, "error", np.where(np.isfinite(self.value), error, 0.0))

    @staticmethod
    def exact(value: Any, arithmetic: DType) -> Approximate:
        """Numbers as a kernel loads them."""
        array = np.asarray(value, np.float64)
        return Approximate(array, np.zeros(array.shape), arithmetic)

    @staticmethod
    def constant(value: float, arithmetic: DType) -> Approximate:
        """A constant of the problem, rounded to the arithmetic's type."""
        return Approximate.exact(value, arithmetic)._rounded()

    def add(self, other: Approximate) -> Approximate:
        """The sum, rounded."""
        return self._with(self.value + other.value, self.error + other.error)._rounded()

    def where(self, condition: Any, other: Approximate) -> Approximate:
        """These where ``condition`` holds, else the other ones."""
        return self._with(
            np.where(condition, self.value, other.value),
            np.where(condition, self.error, other.error),
        )

    def subtract(self, other: Approximate) -> Approximate:
        """The difference, rounded."""
        return self._with(self.value - other.value, self.error + other.error)._rounded()

    def multiply(self, other: Approximate) -> Approximate:
        """The product, rounded."""
        error = (
            _times(other.error, np.abs(self.value))
            + _times(self.error, np.abs(other.value))
            + _times(self.error, other.error)
        )
        return self._with(self.value * other.value, error)._rounded()

    def divide(self, other: Approximate) -> Approximate:
        """The quotient, rounded, or multiplied by the divisor's rounded inverse."""
        with np.errstate(all="ignore"):
            value = self.value / other.value
            least = np.abs(other.value) - other.error
            error = (self.error + _times(other.error, np.abs(value))) / least
        power = np.frexp(np.abs(other.value))[0] == 0.5
        result = self._with(value, np.where(least > 0, error, np.inf))
        # The inverse of a power of two is exact.
        return result._rounded(times=2, sure=power)

    def convert(self) -> Approximate:
        """The value in the arithmetic's type."""
        return self._rounded()

    def unary(self, function: Unary) -> Approximate:
        """A function of oneDNN, with its scale."""
        alpha, beta = function.alpha, function.beta
        record = UNARY_FUNCTIONS[function.function]

        def at(x: Any) -> Any:
            return eltwise(function.function, x, alpha, beta)

        value = at(self.value)
        spread = np.where(np.isinf(self.error), np.inf, 0.0)
        if np.any(self.error):
            ends = _ends(self.value, self.error)
            for end in map(at, ends):
                spread = np.fmax(spread, np.abs(end - value))
                # The edge of the domain or a pole: a logarithm of nearly 0, of either sign.
                spread[_kind(end) != _kind(value)] = np.inf
            if record.breaks is not None:
                spread[(self.error > 0) & record.breaks(*ends, beta)] = np.inf
            value = np.where(np.isinf(spread), 0.0, value)
        exact = record.units == 0 and all(map(self._holds, (alpha, beta)))
        size = np.where(np.isfinite(self.value), np.abs(self.value), 1.0)
        scale = (1 + size) * np.abs(value) + abs(alpha) * size + abs(alpha) + abs(beta) + 1
        inexact = (record.units or _UNITS) * roundoff(self.arithmetic) * scale
        sure = (self.error == 0) & self._holds(value) & exact
        result = self._with(value, spread + np.where(sure, 0.0, inexact))
        if function.scale == 1:
            return result
        return result.multiply(Approximate.constant(function.scale, self.arithmetic))

    def binary(self, function: str, other: Approximate) -> Approximate:
        """A function of two arguments; ``prelu`` too."""
        match function:
            case "add":
                return self.add(other)
            case "sub":
                return self.subtract(other)
            case "mul":
                return self.multiply(other)
            case "div":
                return self.divide(other)
        value = binary(function, self.value, other.value)
        either = self.error + other.error
        if function in BINARY_RECORDS and BINARY_RECORDS[function].compares:
            # Too close to decide: both answers are right.
            unsure = np.abs(self.value - other.value) <= either
            return self._with(value, np.where(unsure & (either > 0), 1.0, 0.0))
        if function == "prelu":
            steep = np.maximum(1.0, np.abs(other.value))
            return self._with(value, _times(self.error, steep) + other.error)._rounded()
        return self._with(value, np.maximum(self.error, other.error))

    def _with(self, value: Any, error: Any) -> Approximate:
        """The result of an operation on this number: undecided where the number does not fit in
        the arithmetic, as some kernels have an infinity there and some a number."""
        error = np.where(np.abs(self.value) > float(_finfo(self.arithmetic).max), np.inf, error)
        shape = np.broadcast_shapes(np.shape(value), np.shape(error))
        return Approximate(
            np.broadcast_to(value, shape), np.broadcast_to(error, shape), self.arithmetic
        )

    def _rounded(self, times: int = 1, sure: Any = True) -> Approximate:
        size = np.abs(self.value) + self.error
        step = times * (roundoff(self.arithmetic) * size + _half_step(self.arithmetic))
        exact = (self.error == 0) & self._holds(self.value) & sure
        error = np.where(exact, self.error, self.error + step)
        return Approximate(self.value, error, self.arithmetic)

    def _holds(self, value: Any) -> Any:
        """Whether numbers are exact in the arithmetic.

        f64 is treated as f32: a float64 reference cannot tell whether a result that fills all of
        float64 was rounded.
        """
        with np.errstate(all="ignore"):
            return np.float64(np.float32(value)) == value


@dataclass(frozen=True)
class Accepted:
    """For each element: the expected value, and the least and greatest that are right."""

    want: Any
    low: Any
    high: Any

    @staticmethod
    def stored(result: Approximate, dst: DType) -> Accepted:
        """The accepted results after conversion to ``dst``, to nearest and saturated."""
        value, error = result.value, result.error
        if dst.is_integer:
            value = np.where(np.isnan(value), 0.0, value)
            ends = (np.clip(np.rint(end), dst.lowest, dst.highest) for end in _ends(value, error))
            return Accepted(np.clip(np.rint(value), dst.lowest, dst.highest), *ends)
        with np.errstate(all="ignore"):
            want = np.asarray(convert(value, f64, dst)).astype(np.float64)
            low, high = _ends(value, error)
            step = roundoff(dst) * np.maximum(np.abs(low), np.abs(high)) + _half_step(dst)
            low, high = low - step, high + step
        exact = (error == 0) | ~np.isfinite(value)
        top = float(_finfo(dst).max)
        return Accepted(
            want,
            np.where(exact, want, np.where(low < -top, -np.inf, low)),
            np.where(exact, want, np.where(high > top, np.inf, high)),
        )


def within(got: Any, low: Any, high: Any) -> Any:
    """Where float64 numbers are between two limits; NaN is where there are none."""
    with np.errstate(invalid="ignore"):
        inside = (low <= got) & (got <= high)
    return inside | (np.isneginf(low) & np.isposinf(high))


def _kind(value: Any) -> Any:
    """0 for finite numbers, 1 for infinities, 2 for NaN."""
    return 2 * np.isnan(value) + np.isinf(value)


def _ends(value: Any, error: Any) -> tuple[Any, Any]:
    return value - error, value + error


def _times(error: Any, factor: Any) -> Any:
    """The product, where an error of 0 stays 0 for an infinite factor."""
    with np.errstate(invalid="ignore"):
        return np.where(error == 0, 0.0, error * factor)


def _half_step(dtype: DType) -> float:
    """Half of the least positive number: the rounding error of subnormal numbers."""
    least = float(_finfo(dtype).smallest_subnormal)
    # numpy's type for tf32 is f32, which has smaller steps.
    return least * (roundoff(dtype) / roundoff(f32) if dtype is tf32 else 1) / 2


def _finfo(dtype: DType) -> Any:
    finfo: Any = ml_dtypes.finfo  # has no type annotations
    return finfo(dtype.numpy)
