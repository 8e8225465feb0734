"""Arrays in .npy files; bf16 and fp8 are raw bytes there, as numpy has no names for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import ArgumentError
from tilewright.ir.buffer import Buffer


def load_array(path: Path | str, where: str) -> Any:
    """The array of a file. Raises `ArgumentError` for one that cannot be read."""
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArgumentError(f"cannot read {path}", where=where, why=str(error)) from error


def typed(buffer: Buffer, array: Any, where: str) -> Any:
    """``array`` in the type of ``buffer``, which for bf16 and fp8 are raw bytes; `ArgumentError`
    for an array of another type."""
    expected = buffer.dtype.numpy
    if array.dtype.kind == "V" and array.dtype.itemsize == expected.itemsize:
        return array.view(expected)
    if array.dtype != expected:
        raise ArgumentError(
            f"{buffer.name} has elements of type {array.dtype}, expected {buffer.dtype}",
            where=where,
            cure=f"save it as {buffer.dtype.numpy_name}",
        )
    return array


def raw(array: Any) -> Any:
    """``array`` as bytes, where numpy has no name for its type."""
    if array.dtype.isbuiltin == 1:
        return array
    return array.view(f"V{array.dtype.itemsize}")
