"""Fused kernels, run beside the kernels that they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import FusionError
from tilewright.queues.events import Work
from tilewright.runtime.remote import copied, copy_elements


def checked(fused: Work, parts: Sequence[Work], written: Mapping[str, NDArray[Any]]) -> Work:
    """Runs ``parts`` one by one, then ``fused`` on what they began with, and compares what both
    have ``written``: bit by bit, but any NaN is as good as another one. Where they differ, it
    raises `FusionError`, and the results are those of the parts."""

    def work(threads: int) -> None:
        before = _copied(written)
        for part in parts:
            part(threads)
        wanted = _copied(written)
        _restore(written, before)
        try:
            fused(threads)
            _compare(written, wanted)
        except BaseException:
            _restore(written, wanted)
            raise

    return work


def _copied(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: copied(array) for name, array in arrays.items()}


def _restore(arrays: Mapping[str, NDArray[Any]], values: Mapping[str, NDArray[Any]]) -> None:
    for name, array in arrays.items():
        copy_elements(array, values[name])


def _compare(arrays: Mapping[str, NDArray[Any]], wanted: Mapping[str, NDArray[Any]]) -> None:
    for name, array in _copied(arrays).items():
        places = _differing(array, wanted[name])
        if places.any():
            place = tuple(map(int, np.argwhere(places)[0]))
            values = f"{array[place]} at {place}, and {wanted[name][place]} one by one"
            raise FusionError(
                f"the fused kernel gives another {name}",
                where=name,
                why=f"{int(places.sum())} of {places.size} elements differ: the first is {values}",
                cure="leave out trust=True and barriers=False, whose promises may not hold",
            )


def _differing(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Which elements are not the same: zeros of other signs are not."""
    same = np.equal(one, other)
    if not np.issubdtype(one.dtype, np.integer) and one.dtype != np.bool_:
        same = (same & (np.signbit(one) == np.signbit(other))) | (np.isnan(one) & np.isnan(other))
    different: NDArray[np.bool_] = ~same
    return different
