"""Products of matrices, and convolutions."""

from __future__ import annotations

from tilewright.frontends.torch.aten.promotion import Number, broadcast_to
from tilewright.frontends.torch.aten.sums import wide
from tilewright.frontends.torch.table import Place, aten
from tilewright.graph.contractions import dot_general, matmul
from tilewright.graph.elementwise import elementwise
from tilewright.graph.tensor import Tensor
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
