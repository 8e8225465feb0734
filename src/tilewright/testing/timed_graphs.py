"""Kernels of several computes that are timed: what front ends build, printed and parsed back, so
that nothing but their text says what they are."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tilewright.dtypes import DType
from tilewright.ir.expr import Expr, const, maximum
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.problems import Shape
from tilewright.tensor.contractions import matmul
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.nn.norms import softmax, standardized
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Builder, Tensor
from tilewright.tensor.views import broadcast_in_dim, transpose

# What a product has of a dim that no shape says.
_HIDDEN = (16, 64, 100, 256)


def random_graph(rng: random.Random, shape: Shape, dtype: DType) -> Kernel:
    """A kernel on a matrix of this shape and type."""
    name = rng.choice(tuple(GRAPHS))
    builder = Builder(name)
    x = builder.input("x", dtype, shape)
    builder.output("y", GRAPHS[name](builder, x, rng))
    return parse_kernel(to_text(builder.kernel()))


def _relu(x: Tensor) -> Tensor:
    def positive(s: Expr) -> Expr:
        return maximum(s, const(0, s.type))

    return elementwise(positive, x, name="relu")


def _weights(builder: Builder, name: str, x: Tensor, columns: int) -> Tensor:
    return builder.input(name, x.dtype, (x.shape[-1], columns))


def _perceptron(builder: Builder, x: Tensor, rng: random.Random) -> Tensor:
    """Two products, and a function between them."""
    hidden = _relu(matmul(x, _weights(builder, "first", x, rng.choice(_HIDDEN))))
    return matmul(hidden, _weights(builder, "second", hidden, rng.choice(_HIDDEN)))


def _classifier(builder: Builder, x: Tensor, rng: random.Random) -> Tensor:
    """A product, and probabilities of its rows."""
    return softmax(matmul(x, _weights(builder, "weights", x, rng.choice(_HIDDEN))), 1, x.dtype)


def _residual(builder: Builder, x: Tensor, rng: random.Random) -> Tensor:
    """A sum of two matrices, of which rows are normalized."""
    other = builder.input("other", x.dtype, x.shape)
    total = elementwise(lambda a, b: a + b, x, other, name="sum")
    return standardized(total, [1], (None, None), 1e-5, x.dtype).result


def _biased(builder: Builder, x: Tensor, rng: random.Random) -> Tensor:
    """Four operands for each element: factors of rows and of columns, and another matrix."""
    rows = builder.input("rows", x.dtype, x.shape[:1])
    columns = builder.input("columns", x.dtype, x.shape[1:])
    other = builder.input("other", x.dtype, x.shape)
    wide = broadcast_in_dim(rows, x.shape, (0,)), broadcast_in_dim(columns, x.shape, (1,))
    return elementwise(lambda a, r, c, o: a * r + c * o, x, *wide, other, name="biased")


def _squares(builder: Builder, x: Tensor, rng: random.Random) -> Tensor:
    """Sums of squares, along rows or columns."""
    return combined(elementwise(lambda s: s * s, x, name="squares"), [rng.randrange(2)], "add")


def _mirrored(builder: Builder, x: Tensor, rng: random.Random) -> Tensor:
    """A matrix and its transpose."""
    side = builder.input("side", x.dtype, (x.shape[1], x.shape[0]))
    return elementwise(lambda a, b: a - b, x, transpose(side, (1, 0)), name="difference")


GRAPHS: Mapping[str, Callable[[Builder, Tensor, random.Random], Tensor]] = {
    "perceptron": _perceptron,
    "classifier": _classifier,
    "residual": _residual,
    "biased": _biased,
    "squares": _squares,
    "mirrored": _mirrored,
}
