"""Fourier transforms, and what goes with them."""

from __future__ import annotations

from tilewright.frontends.onnx.table import Place, axis_of, op, refuse
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.fourier import Pair, fourier, mirrored
from tilewright.tensor.places import axis
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import (
    broadcast_in_dim,
    index_in_dim,
    pad,
    slice_,
    stack,
    transpose,
)


@op("DFT")
def transform(
    at: Place, x: Tensor, length: Tensor | None = None, dim: Tensor | None = None
) -> Tensor:
    if dim is not None:
        values = at.integers(2)[0]
    else:
        values = at.attribute("axis", 1 if at.version < 20 else -2)
    n = axis_of(values, x.rank)
    if n == x.rank - 1:
        refuse("a transform along the parts of complex numbers")
    inverse, half = bool(at.attribute("inverse", 0)), bool(at.attribute("onesided", 0))
    size = 2 * (x.shape[n] - 1) if inverse and half else x.shape[n]
    if length is not None:
        size = at.integers(1)[0]
    last = x.rank - 2
    order = [*(k for k in range(last + 1) if k != n), n]
    z = _parts(x)
    rows = (transpose(z[0], order), transpose(z[1], order))
    transformed = _along_last(rows, size, inverse, half)
    back = [order.index(k) for k in range(last + 1)]
    parts = [transpose(tensor, back) for tensor in transformed]
    return convert(stack(parts[:1] if inverse and half else parts, x.rank - 1), x.dtype)


def _parts(x: Tensor) -> Pair:
    """The real and the imaginary parts that lie in the last dim, if there are any."""
    values = convert(x, accumulator_for(x.dtype))
    real = index_in_dim(values, x.rank - 1, 0)
    if x.shape[-1] == 1:
        return real, x.builder.splat(0.0, values.dtype, x.shape[:-1])
    return real, index_in_dim(values, x.rank - 1, 1)


def _along_last(z: Pair, size: int, inverse: bool, half: bool) -> Pair:
    """The transform of ``size`` points along the last dim; of ``half`` of them, where they belong
    to real numbers."""
    count = size // 2 + 1
    last = z[0].rank - 1
    z = mirrored(_sized(z, count), size, [last]) if inverse and half else _sized(z, size)
    transformed = fourier(z, [last], inverse=inverse)
    return _sized(transformed, count) if half and not inverse else transformed


def _sized(z: Pair, size: int) -> Pair:
    """``size`` points along the last dim: zeros at the end, or less."""
    first, second = (_cut(tensor, size) for tensor in z)
    return first, second


def _cut(x: Tensor, size: int) -> Tensor:
    if x.shape[-1] >= size:
        return slice_(x, [0] * x.rank, [*x.shape[:-1], size])
    rest = [0] * (x.rank - 1)
    more = size - x.shape[-1]
    return pad(x, x.builder.splat(0.0, x.dtype), [0] * x.rank, [*rest, more])


@op("STFT")
def short_time_transform(
    at: Place,
    signal: Tensor,
    step: Tensor,
    window: Tensor | None = None,
    length: Tensor | None = None,
) -> Tensor:
    stride = at.integers(1)[0]
    if length is not None:
        size = at.integers(3)[0]
    else:
        size = signal.shape[1] if window is None else window.shape[0]
    count = max(0, 1 + (signal.shape[1] - size) // stride)
    shape = (signal.shape[0], count, size)
    frames = [part.viewed(shape, [axis(0), axis(1) * stride + axis(2)]) for part in _parts(signal)]
    if window is not None:
        factor = broadcast_in_dim(convert(window, frames[0].dtype), shape, (2,))
        frames = [elementwise(lambda s, w: s * w, frame, factor) for frame in frames]
    transformed = _along_last(
        (frames[0], frames[1]), size, False, bool(at.attribute("onesided", 1))
    )
    return convert(stack(transformed, len(shape)), signal.dtype)
