"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.frontends.torch.aten.promotion import Number
from tilewright.frontends.torch.table import Place, aten, for_dims
from tilewright.ir.expr import cast
from tilewright.ir.load import Load
from tilewright.tensor.contractions import accumulator_for, dot_general, matmul
from tilewright.tensor.convolution import Dims, convolution, transposed_convolution, with_bias
from tilewright.tensor.elementwise import convert, elementwise, plus
from tilewright.tensor.places import axis
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to, reshape, transpose


@aten("mm.default", "bmm.default")
def mm(at: Place, a: Tensor, b: Tensor) -> Tensor:
    return convert(_product(a, b, at.dtype), at.dtype)


@aten("mv.default")
def mv(at: Place, a: Tensor, b: Tensor) -> Tensor:
    row = reshape(b, (1, b.shape[0]))
    return reshape(mm(at, row, transpose(a, (1, 0))), at.shape)


def _product(a: Tensor, b: Tensor, type_: DType) -> Tensor:
    """The product of matrices, in ``type_`` or as it is added up. One row by a matrix whose columns
    lie in one piece, as weights of PyTorch do, reads each element of it once: lanes go along the
    columns, and nothing is put into another order for them."""
    sums = accumulator_for(type_)
    if a.shape[:-1] != (1,) or not (sums.is_float and _has_columns(b)):
        return matmul(a, b, dtype=type_)
    columns = transpose(b, (1, 0))
    products = elementwise(
        lambda x, y: cast(sums, x) * cast(sums, y), broadcast_to(a, columns.shape), columns
    )
    return reshape(combined(products, (1,), "add"), (1, b.shape[1]))


def _has_columns(matrix: Tensor) -> bool:
    """Whether the elements of a column lie side by side in memory."""
    value = matrix.value
    return isinstance(value, Load) and value.mask is None and value.index[-1] is axis(0)


@aten("dot.default", "vdot.default")
def dot(at: Place, a: Tensor, b: Tensor) -> Tensor:
    return dot_general(a, b, contracting=((0,), (0,)), dtype=at.dtype)


@aten("addmm.default", "baddbmm.default")
def addmm(
    at: Place, bias: Tensor, a: Tensor, b: Tensor, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    product = _product(a, b, accumulator_for(at.dtype))
    return plus(product, broadcast_to(bias, at.shape), at.dtype, alpha, beta)


@aten("addbmm.default")
def addbmm(
    at: Place, bias: Tensor, a: Tensor, b: Tensor, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    sums = accumulator_for(at.dtype)
    product = dot_general(a, b, contracting=((0, 2), (0, 1)), dtype=sums)
    return plus(product, broadcast_to(bias, at.shape), at.dtype, alpha, beta)


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
    window = Sliding.of(len(at.shape) - 2, stride, padding, dilation, groups)
    sums = accumulator_for(at.dtype)
    if transposed:
        tensor = spread(x, weight, window, at.shape[2:], sums)
    else:
        tensor = slid(x, weight, window, sums)
    return with_bias(tensor, bias, at.dtype)


@dataclass(frozen=True)
class Sliding:
    """How the window of a convolution slides, along each spatial dim; and its groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(
        cls,
        rank: int,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> Sliding:
        """Along ``rank`` dims."""
        strides, pads, dilations = (
            for_dims(option, rank) for option in (stride, padding, dilation)
        )
        return cls(strides, pads, dilations, groups)


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
    padding = []
    for n, size in enumerate(sizes):
        reach = (weight.shape[2 + n] - 1) * window.dilation[n]
        length = (x.shape[2 + n] - 1) * window.stride[n] + reach + 1
        padding.append((window.padding[n], length - size - window.padding[n]))
    return transposed_convolution(
        x, weight, padding, window.stride, window.dilation, window.groups, type_
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
