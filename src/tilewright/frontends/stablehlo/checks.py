"""What a program's own checks (``check.expect_*``) compare, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import Span

KINDS = ("eq", "close", "almost_eq")
# Further from exact, in units in the last place, what a file expects is wrong.
_ROUNDINGS = 64


@dataclass(frozen=True)
class Check:
    """That the results called ``actual`` are those called ``expected``: two names of outputs, or
    four for complex numbers, the real parts first. ``kind`` is ``eq``, ``close`` (so many units in
    the last place) or ``almost_eq`` (up to an absolute ``tolerance``)."""

    kind: str
    actual: tuple[str, ...]
    expected: tuple[str, ...]
    span: Span
    ulps: int = 3
    tolerance: float = 1e-4

    def fault(
        self,
        results: Mapping[str, NDArray[Any]],
        exact: Callable[[], Mapping[str, NDArray[Any]]] = dict,
    ) -> str | None:
        """What differs, in a sentence; None where nothing does.

        Where ``exact`` gives results without roundings, those of a tensor that only has to be close
        hold, too, if what is expected is some roundings off these, and they are no more anywhere.
        """
        for actual, expected in zip(self.actual, self.expected, strict=True):
            result, wanted = np.asarray(results[actual]), np.asarray(results[expected])
            wrong = ~self._holds(result, wanted)
            close = self.kind != "eq" and is_float(result.dtype)
            if wrong.any() and not (close and _as_exact(result, wanted, exact().get(actual))):
                place = tuple(int(n) for n in np.argwhere(wrong)[0])
                return (
                    f"{int(wrong.sum())} of {wrong.size} elements differ: at {list(place)} it is "
                    f"{result[place]}, expected {wanted[place]}"
                )
        return None

    def _holds(self, actual: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.bool_]:
        if actual.shape != wanted.shape:
            return np.zeros(wanted.shape or (1,), bool)
        same = np.asarray(actual == wanted)
        if not is_float(actual.dtype):
            return same
        both_nan = np.isnan(actual.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
        same = same | both_nan
        if self.kind == "eq":
            return np.asarray(same)
        finite = np.isfinite(actual.astype(np.float64)) & np.isfinite(wanted.astype(np.float64))
        if self.kind == "close":
            return np.asarray(same | (finite & (units_apart(actual, wanted) <= self.ulps)))
        apart = np.abs(
            np.where(finite, actual.astype(np.float64), 0)
            - np.where(finite, wanted.astype(np.float64), 0)
        )
        return np.asarray(same | (finite & (apart <= self.tolerance)))


def _as_exact(actual: NDArray[Any], wanted: NDArray[Any], exact: NDArray[Any] | None) -> bool:
    if exact is None or actual.shape != wanted.shape:
        return False
    rounded = exact.astype(actual.dtype)
    if not (np.isfinite(rounded).all() and np.isfinite(actual).all() and np.isfinite(wanted).all()):
        return False
    allowed = units_apart(wanted, rounded).max()
    return bool(units_apart(actual, rounded).max() <= allowed <= _ROUNDINGS)


def is_float(type_: np.dtype[Any]) -> bool:
    """Whether it is a float, those of `ml_dtypes` included."""
    return type_.kind == "f" or "float" in type_.name


def units_apart(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """How many floats lie between, in f64 (exact where it matters: for few)."""
    bits = a.dtype.itemsize * 8
    whole = np.dtype(f"uint{bits}")
    mask = whole.type((1 << (bits - 1)) - 1)

    def magnitude(x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.ascontiguousarray(x).view(whole).reshape(x.shape) & mask)

    one, other = magnitude(a), magnitude(b)
    between = np.maximum(one, other) - np.minimum(one, other)
    opposite = np.signbit(a.astype(np.float64)) != np.signbit(b.astype(np.float64))
    summed = one.astype(np.float64) + other.astype(np.float64)
    return np.where(opposite, summed, between.astype(np.float64))
