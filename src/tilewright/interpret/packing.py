"""Arrays of a logical shape as the flat memory of a buffer, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.errors import ArgumentError
from tilewright.ir.buffer import Buffer


def pack(buffer: Buffer, array: Any) -> Any:
    """Flat memory of ``buffer``'s layout that holds ``array`` (of the logical shape).

    Padding is zero. The result has ``layout.extent`` elements. `ArgumentError` for a wrong shape.
    """
    array = np.asarray(array)
    if array.shape != buffer.shape:
        raise ArgumentError(
            f"{buffer.name!r} has the shape {list(buffer.shape)}, the array {list(array.shape)}",
            cure="pass an array of the logical shape, without padding",
        )
    flat = np.zeros(buffer.layout.extent, buffer.dtype.numpy)
    if array.size:
        padded = np.zeros(buffer.layout.padded_shape(array.ndim), buffer.dtype.numpy)
        padded[tuple(slice(0, n) for n in array.shape)] = array
        split, order = _split(buffer)
        _blocked(buffer, flat)[...] = padded.reshape(split).transpose(order)
    places = _places(buffer)
    if places is None:
        return flat
    moved = np.empty_like(flat)
    moved[places] = flat
    return moved


def unpack(buffer: Buffer, flat: Any) -> Any:
    """The array of the logical shape that ``flat`` memory holds in ``buffer``'s layout."""
    if 0 in buffer.shape:
        return np.zeros(buffer.shape, buffer.dtype.numpy)
    places = _places(buffer)
    if places is not None:
        flat = flat[places]
    _, order = _split(buffer)
    blocks = _blocked(buffer, flat).transpose(np.argsort(order))
    padded = blocks.reshape(buffer.layout.padded_shape(len(buffer.shape)))
    # (`ascontiguousarray` would give an array without dims one.)
    return np.asarray(padded[tuple(slice(0, n) for n in buffer.shape)], order="C")


def _split(buffer: Buffer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padded shape with each dim split in its blocks, and the axis of each block in it."""
    blocks = buffer.layout.blocks
    by_dim = sorted(range(len(blocks)), key=lambda position: (blocks[position].dim, position))
    axis_of = {position: axis for axis, position in enumerate(by_dim)}
    shape = tuple(blocks[position].size for position in by_dim)
    return shape, tuple(axis_of[position] for position in range(len(blocks)))


def _places(buffer: Buffer) -> Any:
    """The place of each element of the memory by the swizzle; None without one."""
    offset, swizzle = buffer.layout.offset, buffer.layout.swizzle
    if swizzle is None:
        return None
    rest = np.arange(buffer.layout.extent - offset)
    return np.concatenate([np.arange(offset), offset + swizzle.place(rest)])


def _blocked(buffer: Buffer, flat: Any) -> Any:
    """``flat`` with one axis per block, outermost first; a view."""
    blocks = buffer.layout.blocks
    item = flat.itemsize
    # As plain bits: numpy has no text for the type of ml_dtypes' e5m2.
    bits = as_strided(
        flat[buffer.layout.offset :].view(f"u{item}"),
        tuple(b.size for b in blocks),
        tuple(b.stride * item for b in blocks),
    )
    return bits.view(flat.dtype)
