"""Another framework's results of a graph, to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

# As in ONNX's tests of backends, relative to a result's size.
TOLERANCE = 1e-3
# It has no type annotations.
_FINFO: Any = ml_dtypes.finfo


@dataclass(frozen=True)
class SecondOpinion:
    """``results`` gives those of ``who`` for arguments by name, or raises `UnsupportedError`."""

    who: str
    results: Callable[[Arrays], Arrays]

    def fault(self, arguments: Arrays, results: Arrays) -> str | None:
        """The first difference of ``results`` from the framework's; None if there is none."""
        for name, want in self.results(arguments).items():
            fault = _difference(np.asarray(results[name]), np.asarray(want))
            if fault is not None:
                return f"{name}: {fault} by {self.who}"
        return None


def _difference(got: NDArray[Any], want: NDArray[Any]) -> str | None:
    if got.shape != want.shape:
        return f"the shape is {got.shape}, {want.shape}"
    if got.dtype.kind in "biu":
        wrong = got != want
    else:
        wide, exact = got.astype(np.complex128), want.astype(np.complex128)
        unit = max(TOLERANCE, 16 * float(_FINFO(got.dtype).eps))
        slack = unit * np.maximum(np.abs(exact), 1)
        with np.errstate(invalid="ignore"):
            near = np.isfinite(exact) & (np.abs(wide - exact) <= slack)
        wrong = ~(near | (wide == exact) | (np.isnan(wide) & np.isnan(exact)))
    if not wrong.any():
        return None
    place = tuple(map(int, np.argwhere(wrong)[0]))
    count = f"{int(wrong.sum())} of {got.size} elements differ"
    return f"{count}, the first at {place}: {got[place]}, {want[place]}"
