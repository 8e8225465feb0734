"""Arrays of any library as numpy's."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime.arrays import describe


def memory_of(array: Any, name: str) -> NDArray[Any]:
    """``array``, of any library, as numpy's array on the same memory, which it keeps.

    Raises `ArgumentError`, which calls it ``name``, for what is no array in the host's memory.
    """
    info = describe(array, name)
    if isinstance(array, np.ndarray):
        return np.asarray(array)
    start, end = info.span
    raw = (ctypes.c_uint8 * (end - start))()
    if end > start:
        raw = (ctypes.c_uint8 * (end - start)).from_address(start)
    raw.owner = info  # type: ignore[attr-defined]
    view: NDArray[Any] = np.ndarray(
        info.shape,
        info.dtype.numpy,
        memoryview(raw).cast("B"),
        offset=info.pointer - start,
        strides=tuple(stride * info.dtype.bytes for stride in info.strides),
    )
    if info.writable is False or info.writable is None:
        view.flags.writeable = False
    return view
