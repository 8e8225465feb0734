"""Conversion between scalar types, as `ir.expr.Cast` specifies it: on numbers and numpy arrays.

numpy and ml_dtypes narrow f64 to bf16 and fp8 through f32, which rounds twice; here every
conversion rounds once, to nearest even. The trick is rounding to odd in between: an inexact f32 has
its last bit set, so the second rounding sees that something was cut off (Boldo and Melquiond,
"Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.dtypes import DType, f16, f32, f64, s64, tf32, u64

# Mantissa bits of f32 that tf32 does not have.
_TF32_CUT = 13


def convert(values: Any, source: DType, target: DType) -> Any:
    """``values`` (an array or a scalar of ``source``) as ``target``.

    Float to integer truncates and saturates, NaN gives 0; integer to integer wraps; anything to
    float rounds to nearest even; anything to bool asks whether it is not zero.
    """
    if source is target:
        return values
    array = np.asarray(values)
    if source.is_nibble:
        array = array.astype(np.int8)  # ml_dtypes looks at the lower 4 bits only
    with np.errstate(all="ignore"):
        if target.kind == "bool":
            return (array.astype(np.float64) if source.is_float else array) != 0
        if target.is_integer:
            if source.is_float:
                return _truncate(array.astype(np.float64), target)
            if target.is_nibble:
                return (array.astype(np.uint8) & np.uint8(0xF)).astype(target.numpy)
            return array.astype(target.numpy)
        if source.is_float:
            return _round(array, target)
        return _from_integer(array, target)


def reinterpret(values: Any, source: DType, target: DType) -> Any:
    """The bits of ``values`` (an array or a scalar of ``source``) as ``target``, of as many."""
    array = np.asarray(values).astype(source.numpy, copy=False)
    # Through plain bits: numpy has no text for the type of ml_dtypes' e5m2.
    return array.view(f"u{source.bytes}").view(target.numpy)[()]


def represented(value: Any, type: DType) -> Any:
    """``value`` as the Python bool, int or float that a constant of ``type`` has for it."""
    if type.kind == "bool":
        return bool(value)
    if type.is_integer:
        if value.__class__ is int and type.lowest <= value <= type.highest:
            return value
        if isinstance(value, float | np.floating):
            if math.isnan(value):
                return 0
            value = min(max(value, float(type.lowest)), float(type.highest))
            return min(max(int(value), int(type.lowest)), int(type.highest))
        wrapped = int(value) & (2**type.bits - 1)
        signed = type.kind == "int" and wrapped >= 2 ** (type.bits - 1)
        return wrapped - 2**type.bits if signed else wrapped
    number = rounded(value, type)
    return math.nan if number != number else number  # constants know one NaN


def reinterpreted(value: Any, source: DType, type: DType) -> Any:
    """The bits of a constant's ``value``, of type ``source``, as the value of another type."""
    converted = reinterpret(np.array(value, source.numpy), source, type)
    return represented(converted, type)


def rounded(value: Any, target: DType) -> float:
    """A number (a float counts as f64, an integer as exact) as the nearest one of a float type."""
    if isinstance(value, int | np.integer):
        if -(2**63) <= value < 2**63:
            return float(convert(np.int64(value), s64, target))
        if 0 <= value < 2**64:
            return float(convert(np.uint64(value), u64, target))
    return float(convert(np.float64(value), f64, target))


def _truncate(array: Any, target: DType) -> Any:
    whole = np.trunc(np.where(np.isnan(array), 0.0, array))
    # 2**63 - 1 is not a float64: compare with the power of two above the greatest value.
    too_big = whole >= float(int(target.highest) + 1)
    too_small = whole < float(target.lowest)
    inside = np.where(too_big | too_small, 0.0, whole).astype(target.numpy)
    highest = target.numpy.type(target.highest)
    lowest = target.numpy.type(target.lowest)
    return np.where(too_big, highest, np.where(too_small, lowest, inside))


def _from_integer(array: Any, target: DType) -> Any:
    if target.numpy in (np.float32, np.float64) and target is not tf32:
        return array.astype(target.numpy)
    if array.dtype not in (np.int64, np.uint64):
        return _round(array.astype(np.float64), target)
    # Beyond 2**53 a float64 is inexact: round to odd, so that the narrowing rounds once.
    low, next_ = array.dtype.type(0x7FF), array.dtype.type(0x800)
    sticky = np.where(array & low != 0, (array | next_) & ~low, array)
    exact = array <= array.dtype.type(2**53)
    if array.dtype == np.int64:
        exact &= array >= -(2**53)
    return _round(np.where(exact, array, sticky).astype(np.float64), target)


def _round(array: Any, target: DType) -> Any:
    if target in (f64, f32, f16):
        return array.astype(target.numpy)
    single = _to_odd(array) if array.dtype == np.float64 else array.astype(np.float32)
    return _to_tf32(single) if target is tf32 else single.astype(target.numpy)


def _to_odd(array: Any) -> Any:
    """f64 to f32, inexact results rounded to the neighbour whose last bit is set."""
    single = np.asarray(array.astype(np.float32))
    bits = single.view(np.uint32)
    back = single.astype(np.float64)
    even_and_inexact = (back != array) & ~np.isnan(array) & (bits & 1 == 0)
    away = np.abs(back) > np.abs(array)
    moved = np.where(away, bits - np.uint32(1), bits + np.uint32(1))
    return np.where(even_and_inexact, moved, bits).astype(np.uint32).view(np.float32)


def _to_tf32(single: Any) -> Any:
    """f32 with a mantissa of 10 bits, rounded to nearest even."""
    bits = np.asarray(single).view(np.uint32)
    last = (bits >> np.uint32(_TF32_CUT)) & np.uint32(1)
    half = np.uint32((1 << (_TF32_CUT - 1)) - 1)
    rounded = (bits + half + last) & ~np.uint32((1 << _TF32_CUT) - 1)
    return np.where(np.isfinite(single), rounded.view(np.float32), single)
