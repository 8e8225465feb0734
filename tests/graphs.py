"""Graphs that tests run, against numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.ir import Kernel, parse_kernel, same, unary
from tilewright.tensor.contractions import matmul
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.reductions import reduce
from tilewright.tensor.tensor import Builder, Tensor
from tilewright.tensor.views import broadcast_in_dim, broadcast_to

Arrays = Mapping[str, Any]


def graph(build: Callable[..., Any], **inputs: Any) -> Kernel:
    """The graph of ``build(tensors...)``, which gives a tensor or several: results ``y``, ``y1``,
    and so on. Its text reads back as itself."""
    builder = Builder("g")
    values = [builder.input(name, a.dtype, a.shape) for name, a in inputs.items()]
    result = build(*values)
    for number, tensor in enumerate(result if isinstance(result, tuple | list) else (result,)):
        assert isinstance(tensor, Tensor)
        builder.output(f"y{number or ''}", tensor)
    kernel = builder.kernel()
    contents = dict(kernel.constants)
    assert same(parse_kernel(str(kernel), constants=contents), kernel)
    return kernel


def run(kernel: Kernel, target: str = "interpreter", **inputs: Any) -> list[Any]:
    """The results of a call, in order, as float64 where they are floats."""
    result = tw.compile(kernel, target=target)(**inputs)
    names = [p.name for p in kernel.arrays if p.access != "in"]
    values = [result] if len(names) == 1 else [result[name] for name in names]
    return [np.asarray(value) for value in values]


def check(
    build: Callable[..., Any], expected: Any, *, exact: bool = False, **inputs: Any
) -> Kernel:
    """That ``build`` of the inputs gives ``expected`` in the interpreter; gives the graph."""
    kernel = graph(build, **inputs)
    wanted = expected if isinstance(expected, tuple | list) else (expected,)
    for got, want in zip(run(kernel, **inputs), wanted, strict=True):
        want = np.asarray(want)
        assert got.shape == want.shape
        if exact:
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got.astype(float), want.astype(float), 2e-5, 2e-5)
    return kernel


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """Random numbers, small ones where they are integers."""
    rng = np.random.default_rng((seed, *shape))
    if np.dtype(dtype).kind in "iub":
        return rng.integers(0, 2 if np.dtype(dtype).kind == "b" else 9, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """softmax(x @ w + b), as a front end says it."""
    builder = x.builder
    with builder.at("linear"):
        y = matmul(x, w)
    y = elementwise(lambda a, c: a + c, y, broadcast_to(b, y.shape), name="add")
    (peak,) = reduce([y], [builder.splat(-np.inf, "f32")], [1], "max")
    peak = broadcast_in_dim(peak, y.shape, [0])
    power = elementwise(lambda a, c: unary("exp", a - c), y, peak, name="exp")
    (total,) = reduce([power], [builder.splat(0.0, "f32")], [1], "add")
    total = broadcast_in_dim(total, y.shape, [0])
    return elementwise(lambda a, c: a / c, power, total, name="divide")


def expected_softmax(x: Any, w: Any, b: Any) -> Any:
    y = x.astype(float) @ w + b
    power = np.exp(y - y.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)
