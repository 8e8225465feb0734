"""Definitions of operations in float64, on plain numpy arrays of logical shape.

Nothing here uses the compiler: these are the definitions, written a second time, to test against.
Spatial parameters are tuples with one entry per spatial dim. A dilation of 0 is dense. Padding on
the right is a parameter of its own, which may differ from the left one and may be negative.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Sizes = tuple[int, ...]


def output_size(size: int, kernel: int, stride: int, dilation: int, left: int, right: int) -> int:
    """The number of windows that fit in one spatial dim."""
    return (size + left + right - ((kernel - 1) * (dilation + 1) + 1)) // stride + 1


def output_sizes(
    sizes: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes, left: Sizes, right: Sizes
) -> Sizes:
    """`output_size` for each spatial dim."""
    dims = zip(sizes, kernel, stride, dilation, left, right, strict=True)
    return tuple(output_size(*dim) for dim in dims)


def _last(index: tuple[Any, ...]) -> Any:
    """``index`` as one into the last dims."""
    return (..., *index)


class _Windows:
    """The elements that each tap of a kernel sees: strided slices of a padded image."""

    def __init__(
        self, sizes: Sizes, kernel: Sizes, out: Sizes, stride: Sizes, dilation: Sizes, left: Sizes
    ) -> None:
        self.sizes, self.kernel, self.out = sizes, kernel, out
        self.stride, self.dilation, self.left = stride, dilation, left
        self.padded = tuple(
            max((o - 1) * s + (k - 1) * (d + 1) + 1, p + i, 1)
            for i, k, o, s, d, p in zip(sizes, kernel, out, stride, dilation, left, strict=True)
        )

    def pad(self, array: Array) -> Array:
        """``array`` (spatial dims last) with zeros around it."""
        lead = array.shape[: -len(self.sizes)]
        result = np.zeros(lead + self.padded)
        result[self._inside()] = array
        return result

    def crop(self, padded: Array) -> Array:
        """The part of a padded image that is not padding."""
        return np.asarray(padded[self._inside()])

    def _inside(self) -> Any:
        return ..., *(slice(p, p + i) for p, i in zip(self.left, self.sizes, strict=True))

    def taps(self) -> Iterator[tuple[Sizes, Any]]:
        """Each position in the kernel, and the index of its elements in the padded image."""
        for tap in itertools.product(*map(range, self.kernel)):
            dims = zip(tap, self.stride, self.dilation, self.out, strict=True)
            elements = tuple(
                slice(t * (d + 1), t * (d + 1) + (o - 1) * s + 1, s) for t, s, d, o in dims
            )
            yield tap, _last(elements)


def convolution_forward(
    src: Any,
    weights: Any,
    *,
    stride: Sizes,
    dilation: Sizes,
    left: Sizes,
    right: Sizes,
    groups: int = 1,
    bias: Any = None,
) -> Array:
    """dst (N, OC, spatial) of src (N, IC, spatial) and weights.

    ``weights`` is (OC, IC / groups, kernel) or (groups, OC / groups, IC / groups, kernel); ``left``
    and ``right`` are the padding.
    """
    source = np.asarray(src, np.float64)
    n, ic, *spatial = source.shape
    grouped = _grouped(weights, groups, ic, len(spatial))
    kernel = grouped.shape[3:]
    out = output_sizes(tuple(spatial), kernel, stride, dilation, left, right)
    windows = _Windows(tuple(spatial), kernel, out, stride, dilation, left)
    padded = windows.pad(source)
    result = np.zeros((n, groups, grouped.shape[1], math.prod(out)))
    for tap, elements in windows.taps():
        inputs = padded[elements].reshape(n, groups, ic // groups, math.prod(out))
        result += grouped[_last(tap)] @ inputs
    dst = result.reshape(n, groups * grouped.shape[1], *out)
    if bias is not None:
        dst += np.asarray(bias, np.float64).reshape(-1, *(1 for _ in out))
    return dst


def convolution_backward_data(
    diff_dst: Any,
    weights: Any,
    *,
    src_shape: Sizes,
    stride: Sizes,
    dilation: Sizes,
    left: Sizes,
    groups: int = 1,
) -> Array:
    """diff_src (N, IC, spatial) of diff_dst (N, OC, spatial): the adjoint of the forward one."""
    diff = np.asarray(diff_dst, np.float64)
    n, ic, *spatial = src_shape
    out = diff.shape[2:]
    grouped = _grouped(weights, groups, ic, len(spatial))
    windows = _Windows(tuple(spatial), grouped.shape[3:], out, stride, dilation, left)
    flat = diff.reshape(n, groups, grouped.shape[1], math.prod(out))
    padded = np.zeros((n, ic, *windows.padded))
    for tap, elements in windows.taps():
        gradient = grouped[_last(tap)].swapaxes(1, 2) @ flat
        padded[elements] += gradient.reshape(n, ic, *out)
    return windows.crop(padded)


def convolution_backward_weights(
    src: Any,
    diff_dst: Any,
    *,
    weights_shape: Sizes,
    stride: Sizes,
    dilation: Sizes,
    left: Sizes,
    groups: int = 1,
) -> Array:
    """diff_weights, of shape ``weights_shape`` (with or without a dim for the groups)."""
    source, diff = np.asarray(src, np.float64), np.asarray(diff_dst, np.float64)
    n, ic, *spatial = source.shape
    oc, out = diff.shape[1], diff.shape[2:]
    kernel = weights_shape[len(weights_shape) - len(spatial) :]
    windows = _Windows(tuple(spatial), kernel, out, stride, dilation, left)
    padded = windows.pad(source)
    points = math.prod(out)
    rows = diff.reshape(n, groups, oc // groups, points)
    result = np.zeros((groups, oc // groups, ic // groups, *kernel))
    for tap, elements in windows.taps():
        inputs = padded[elements].reshape(n, groups, ic // groups, points)
        result[_last(tap)] = (rows @ inputs.swapaxes(2, 3)).sum(axis=0)
    return result.reshape(weights_shape)


def convolution_backward_bias(diff_dst: Any) -> Array:
    """diff_bias (OC) of diff_dst (N, OC, spatial)."""
    diff = np.asarray(diff_dst, np.float64)
    return np.asarray(diff.sum(axis=(0, *range(2, diff.ndim))))


def _grouped(weights: Any, groups: int, ic: int, spatial: int) -> Array:
    """Weights as (groups, OC / groups, IC / groups, kernel)."""
    array = np.asarray(weights, np.float64)
    kernel = array.shape[array.ndim - spatial :]
    oc = math.prod(array.shape[: array.ndim - spatial]) // (ic // groups)
    return array.reshape(groups, oc // groups, ic // groups, *kernel)


def matmul(a: Any, b: Any, bias: Any = None) -> Array:
    """(..., M, K) times (..., K, N); leading dims broadcast, and so does the bias."""
    product = np.matmul(np.asarray(a, np.float64), np.asarray(b, np.float64))
    return np.asarray(product if bias is None else product + np.asarray(bias, np.float64))


def halves(pairs_of_nibbles: Any, *, signed: bool) -> Array:
    """The 4-bit numbers in bytes of shape (..., K / 2, N), as (..., K, N): the lower half of a byte
    comes first."""
    pairs = np.stack([pairs_of_nibbles & 15, pairs_of_nibbles >> 4], axis=-2)
    numbers = pairs.reshape(
        *pairs_of_nibbles.shape[:-2], 2 * pairs_of_nibbles.shape[-2], pairs_of_nibbles.shape[-1]
    ).astype(np.float64)
    return np.where(numbers < 8, numbers, numbers - 16) if signed else numbers
