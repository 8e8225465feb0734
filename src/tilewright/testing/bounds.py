"""Error bounds of a correct kernel against the float64 reference.

For a dot product of ``n`` terms, evaluated in any order with unit roundoff ``u``, each term enters
the sum with at most ``n`` factors ``1 + d``, ``|d| <= u`` (Higham, "Accuracy and Stability of
Numerical Algorithms", 2nd ed., section 3.1), or their inverses where it is divided:
``|error| <= gamma_n * sum |a| |b|`` with ``gamma_n = (1 - u)**-n - 1``. That is less than Higham's
``n u / (1 - n u)``, and a bound for any ``n``, also for ``1 / u`` terms and more.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilewright.dtypes import DType

_TF32_ROUNDOFF = 2.0**-11


def roundoff(dtype: DType) -> float:
    """The unit roundoff of rounding to nearest; 0 for integers."""
    return _TF32_ROUNDOFF if dtype.name == "tf32" else dtype.epsilon / 2


def gamma(terms: int, dtype: DType) -> float:
    """gamma_n in the arithmetic of ``dtype``; infinite where no float64 holds it."""
    with np.errstate(over="ignore"):
        return float(np.expm1(-terms * np.log1p(-roundoff(dtype))))


def dot_bound(
    magnitudes: Any,
    reference: Any,
    *,
    terms: int,
    accumulator: DType,
    dst: DType,
    operands: tuple[DType, ...] = (),
) -> Any:
    """Elementwise bound on ``|kernel - reference|`` for sums of ``terms`` products.

    ``magnitudes`` is ``sum |a| |b|`` and ``reference`` ``sum a b`` in float64, of the original
    operands. ``operands`` names the types to which the kernel rounds them before it multiplies
    (bf16 for f32 operands, say); none if it does not. At the end the sum is rounded to ``dst``, to
    nearest; for integers, that is half a unit.
    """
    total = np.asarray(magnitudes, np.float64)
    growth = 1.0
    for operand in operands:
        growth *= 1.0 + roundoff(operand)
    error = (growth * (1.0 + gamma(terms, accumulator)) - 1.0) * total
    # Below the least normal number, a rounding error is absolute.
    error = error + terms * _half_step(accumulator)
    if accumulator.is_integer and dst.is_integer:
        return error
    if dst.is_integer:
        return error + 0.5
    if dst is accumulator:
        return error  # the sum is rounded already
    size = np.abs(np.asarray(reference, np.float64)) + error
    return error + roundoff(dst) * size + _half_step(dst)


def _half_step(dtype: DType) -> float:
    if not dtype.is_float:
        return 0.0
    finfo: Any = ml_dtypes.finfo  # has no type annotations
    return float(finfo(dtype.numpy).smallest_subnormal) / 2
