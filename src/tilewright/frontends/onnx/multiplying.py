"""Products of matrices and sums of products."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import s32, u8
from tilewright.frontends.onnx.elements import mapped
from tilewright.frontends.onnx.table import Place, op, refuse
from tilewright.ir.expr import Expr, cast, unary
from tilewright.problems.functions import clamped
from tilewright.tensor.contractions import accumulator_for, dot_general
from tilewright.tensor.einsum import einsum
from tilewright.tensor.elementwise import convert, elementwise, plus
from tilewright.tensor.nn.group_weights import dequantized, nibbles
from tilewright.tensor.places import axis
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to, common_shape, reshape, transpose


def product(a: Tensor, b: Tensor, dtype: object = None) -> Tensor:
    """numpy's ``matmul``: batches are broadcast, vectors are rows or columns."""
    left = reshape(a, (1, *a.shape)) if a.rank == 1 else a
    right = reshape(b, (*b.shape, 1)) if b.rank == 1 else b
    batch = common_shape(left.shape[:-2], right.shape[:-2])
    left = broadcast_to(left, (*batch, *left.shape[-2:]))
    right = broadcast_to(right, (*batch, *right.shape[-2:]))
    rank = len(batch)
    front = tuple(range(rank))
    sums = dot_general(
        left,
        right,
        (front, front),
        ((rank + 1,), (rank,)),
        dtype=a.dtype if dtype is None else dtype,
    )
    shape = list(batch)
    shape += [] if a.rank == 1 else [a.shape[-2]]
    shape += [] if b.rank == 1 else [b.shape[-1]]
    return reshape(sums, shape)


@op("MatMul")
def matmul(at: Place, a: Tensor, b: Tensor) -> Tensor:
    return product(a, b)


@op("Einsum")
def einsum_op(at: Place, *tensors: Tensor) -> Tensor:
    return einsum(at.attribute("equation"), *tensors)


@op("Gemm")
def gemm(at: Place, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    if at.attribute("transA", 0):
        a = transpose(a, (1, 0))
    if at.attribute("transB", 0):
        b = transpose(b, (1, 0))
    type_ = accumulator_for(a.dtype)
    tensor = product(a, b, type_)
    alpha, beta = at.attribute("alpha", 1.0), at.attribute("beta", 1.0)
    addend = None if c is None else broadcast_to(c, tensor.shape)
    return plus(tensor, addend, a.dtype, alpha, beta)


@op("MatMulInteger")
def matmul_integer(
    at: Place, a: Tensor, b: Tensor, za: Tensor | None = None, zb: Tensor | None = None
) -> Tensor:
    return product(centered(a, za, a.rank - 2), centered(b, zb, b.rank - 1))


def centered(x: Tensor, zero: Tensor | None, along: int) -> Tensor:
    """An integer tensor less its zero point, in s32."""
    if zero is None:
        return convert(x, s32)
    if zero.elements == 1:
        zero = reshape(zero, ())
    elif zero.rank == 1:
        zero = zero.viewed(x.shape, [axis(along)])
    return elementwise(lambda s, z: cast(s32, s) - cast(s32, z), x, broadcast_to(zero, x.shape))


@op("QLinearMatMul")
def quantized_matmul(
    at: Place,
    a: Tensor,
    scale_a: Tensor,
    zero_a: Tensor,
    b: Tensor,
    scale_b: Tensor,
    zero_b: Tensor,
    scale: Tensor,
    zero: Tensor,
) -> Tensor:
    if scale_a.elements != 1 or scale.elements != 1:
        refuse("scales of rows")
    sums = product(centered(a, zero_a, a.rank - 2), centered(b, zero_b, b.rank - 1))
    return requantized(sums, (scale_a, scale_b, scale), zero)


def requantized(sums: Tensor, scales: Sequence[Tensor], zero: Tensor, along: int = -1) -> Tensor:
    """Sums of integers, times the first two scales by the third, rounded. The second may have one
    for each place of the dim ``along``."""
    type_ = zero.dtype
    first, second, third = scales
    shape = [1] * sums.rank
    if second.elements != 1:
        shape[along] = second.elements
        if second.elements != sums.shape[along]:
            refuse(f"{second.elements} scales along {sums.shape[along]} places")
    second = reshape(second, shape)
    ones = [reshape(tensor, ()) for tensor in (first, third, zero)]

    def value(s: Expr, b: Expr, a: Expr, c: Expr, z: Expr) -> Expr:
        expr = unary("round", cast(a.type, s) * (a * b / c)) + cast(a.type, z)
        return clamped(expr, type_.lowest, type_.highest)

    return mapped(value, sums, second, *ones, dtype=type_)


@op("com.microsoft.MatMulNBits")
def matmul_of_groups(
    at: Place,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    order: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """By weights of (N, K) with scales and zero points of groups along K, of onnxruntime."""
    n, k, group = at.attribute("N"), at.attribute("K"), at.attribute("block_size")
    bits = at.attribute("bits", 4)
    if bits not in (4, 8) or k % group or order is not None:
        refuse("such groups")
    groups = k // group
    zero: Tensor | float = float(1 << (bits - 1))
    if zeros is not None and zeros.dtype is u8 and bits == 4:
        zero = nibbles(reshape(zeros, (n, -(-groups // 2))))
    elif zeros is not None:
        zero = reshape(zeros, (n, groups))
    q = reshape(b, (n, k * bits // 8))
    w = dequantized(q, bits, reshape(scales, (n, groups)), zero, group)
    type_ = accumulator_for(a.dtype)
    sums = product(a, transpose(convert(w, type_), (1, 0)), type_)
    addend = None if bias is None else broadcast_to(bias, sums.shape)
    return plus(sums, addend, a.dtype)
