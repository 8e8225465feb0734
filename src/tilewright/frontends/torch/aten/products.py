"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.frontends.torch.aten.promotion import Number, broadcast_to
from tilewright.frontends.torch.aten.sums import wide
from tilewright.frontends.torch.table import Place, aten
from tilewright.graph.contractions import dot_general, matmul
from tilewright.graph.convolution import Dims, convolution
from tilewright.graph.elementwise import convert, elementwise
from tilewright.graph.tensor import Tensor
from tilewright.graph.views import broadcast_in_dim, reshape, transpose
from tilewright.ir.expr import Expr, cast, const


@aten("mm.default", "bmm.default")
def mm(at: Place, a: Tensor, b: Tensor) -> Tensor:
    return matmul(a, b, dtype=at.dtype)


@aten("mv.default")
def mv(at: Place, a: Tensor, b: Tensor) -> Tensor:
    return dot_general(a, b, contracting=((1,), (0,)), dtype=at.dtype)


@aten("dot.default", "vdot.default")
def dot(at: Place, a: Tensor, b: Tensor) -> Tensor:
    return dot_general(a, b, contracting=((0,), (0,)), dtype=at.dtype)


@aten("addmm.default", "baddbmm.default")
def addmm(
    at: Place, bias: Tensor, a: Tensor, b: Tensor, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    return plus(at, matmul(a, b, dtype=wide(at.dtype)), bias, beta, alpha)


def plus(at: Place, product: Tensor, bias: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """``alpha * product + beta * bias``, rounded once."""
    type_ = product.dtype

    def value(x: Expr, c: Expr | None = None) -> Expr:
        found = x if alpha == 1 else x * const(alpha, type_)
        if c is None:
            return found
        c = cast(type_, c)
        return found + (c if beta == 1 else c * const(beta, type_))

    # A bias that counts nothing is not read: it may hold NaN.
    biases = [] if beta == 0 else [broadcast_to(bias, at.shape)]
    return elementwise(value, product, *biases, dtype=at.dtype)


@aten("convolution.default")
def convolution_op(
    at: Place,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    window = Sliding(tuple(stride), tuple(padding), tuple(dilation), groups)
    sums = wide(at.dtype)
    if transposed:
        found = spread(x, weight, window, at.shape[2:], sums)
    else:
        found = slid(x, weight, window, sums)
    if bias is None:
        return convert(found, at.dtype)
    return plus(at, found, broadcast_in_dim(bias, at.shape, (1,)))


@dataclass(frozen=True)
class Sliding:
    """How the window of a convolution slides, along each spatial dim; and its groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def slid(x: Tensor, weight: Tensor, window: Sliding, type_: DType) -> Tensor:
    """The convolution of ``x`` (N, C, ...) with ``weight`` (O, C / groups, ...)."""
    return convolution(
        x,
        weight,
        strides=window.stride,
        padding=[(p, p) for p in window.padding],
        dilations=window.dilation,
        feature_groups=window.groups,
        dtype=type_,
    )


def spread(
    x: Tensor, weight: Tensor, window: Sliding, sizes: Sequence[int], type_: DType
) -> Tensor:
    """What `slid` is the gradient of, and the other way round: elements of ``x`` (N, O, ...) go to
    an image of ``sizes`` through ``weight`` (O, C / groups, ...)."""
    spatial = range(len(sizes))
    taps, groups = weight.shape[2:], window.groups
    reach = [(taps[n] - 1) * window.dilation[n] for n in spatial]
    low = [reach[n] - window.padding[n] for n in spatial]
    length = [(x.shape[2 + n] - 1) * window.stride[n] + 1 for n in spatial]
    high = [sizes[n] + reach[n] - length[n] - low[n] for n in spatial]
    if groups > 1:
        inputs, outputs = weight.shape[0] // groups, weight.shape[1]
        parts = reshape(weight, (groups, inputs, outputs, *taps))
        parts = transpose(parts, (1, 0, 2, *range(3, parts.rank)))
        weight = reshape(parts, (inputs, groups * outputs, *taps))
    rest = tuple(range(2, x.rank))
    return convolution(
        x,
        weight,
        Dims((0, 1, rest), (0, 1, rest), (0, 1, rest)),
        padding=list(zip(low, high, strict=True)),
        base_dilations=window.stride,
        dilations=window.dilation,
        reversal=[True] * len(sizes),
        feature_groups=groups,
        dtype=type_,
    )


def weight_gradient(
    x: Tensor, grad: Tensor, window: Sliding, taps: Sequence[int], type_: DType
) -> Tensor:
    """The gradient of `slid` by its weight: of ``x`` (N, C, ...) and ``grad`` (N, O, ...)."""
    high = [
        (taps[n] - 1) * window.dilation[n]
        + (grad.shape[2 + n] - 1) * window.stride[n]
        + 1
        - x.shape[2 + n]
        - window.padding[n]
        for n in range(len(taps))
    ]
    rest = tuple(range(2, x.rank))
    return convolution(
        x,
        grad,
        Dims((1, 0, rest), (0, 1, rest), (1, 0, rest)),
        strides=window.dilation,
        padding=list(zip(window.padding, high, strict=True)),
        dilations=window.stride,
        batch_groups=window.groups,
        dtype=type_,
    )
