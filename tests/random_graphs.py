"""Random graphs, as front ends would build them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from graphs import numbers
from tilewright.graph.library import library
from tilewright.ir import Kernel, maximum, unary
from tilewright.problems.library import SoftmaxProblem
from tilewright.tensor import views
from tilewright.tensor.contractions import dot_general
from tilewright.tensor.convolution import convolution
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.reductions import reduce, scan
from tilewright.tensor.tensor import Builder, Tensor

FUNCTIONS: tuple[Callable[[Any], Any], ...] = (
    lambda x: maximum(x, 0.0),
    lambda x: unary("exp", x * 0.25),
    lambda x: x * x - 1.0,
    lambda x: unary("tanh", x),
    lambda x: x + -0.0,
)
PAIRS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a - b * 0.5,
    lambda a, b: maximum(a, b),
)


class Graphs:
    """One random graph: `kernel`, and `inputs` to run it on."""

    def __init__(self, seed: int, steps: int = 10) -> None:
        self.rng = random.Random(seed)
        self.builder = Builder(f"graph{seed}")
        self.inputs: dict[str, Any] = {}
        self.pool: list[Tensor] = []
        for n in range(self.rng.randint(1, 3)):
            shape = self._shape()
            value = numbers(*shape, seed=seed + n)
            self.inputs[f"x{n}"] = value
            self.pool.append(self.builder.input(f"x{n}", "f32", shape))
        self.pool.insert(0, self._constant(self._shape(), seed))
        for n in range(steps):
            self.pool.append(self._step(seed * 100 + n))
        for n, tensor in enumerate(self.rng.sample(self.pool, min(3, len(self.pool)))):
            self.builder.output(f"y{n}", tensor)
        self.kernel: Kernel = self.builder.kernel()

    def _shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice((1, 2, 3, 4, 6)) for _ in range(self.rng.randint(1, 3)))

    def _constant(self, shape: Any, seed: int) -> Tensor:
        if self.rng.random() < 0.2:
            return self.builder.splat(self.rng.choice((0.0, 1.0, 0.5)), "f32", shape)
        return self.builder.constant(numbers(*shape, seed=seed))

    def _step(self, seed: int) -> Tensor:
        rng, builder = self.rng, self.builder
        x = rng.choice(self.pool[-4:] if rng.random() < 0.9 else self.pool)
        with builder.at(rng.choice((None, "layer", "block.1"))):
            match rng.randrange(12):
                case 0 | 1:
                    return elementwise(rng.choice(FUNCTIONS), x)
                case 2:
                    shared = [tensor for tensor in self.pool if tensor.shape == x.shape]
                    return elementwise(rng.choice(PAIRS), x, rng.choice(shared))
                case 3:
                    return elementwise(rng.choice(PAIRS), x, self._constant(x.shape, seed))
                case 4:
                    return self._view(x)
                case 5:
                    return self._product(x, seed)
                case 6 if x.rank:
                    dims = rng.sample(range(x.rank), rng.randint(1, x.rank))
                    how = rng.choice(("add", "max", "min"))
                    first = {"add": 0.0, "max": -np.inf, "min": np.inf}[how]
                    (y,) = reduce([x], [builder.splat(first, "f32")], dims, how)
                    return y if rng.random() < 0.5 else self._spread(x, y, dims)
                case 7:
                    # The same once more: what is shared.
                    return elementwise(FUNCTIONS[1], x)
                case 8 if x.rank > 1:
                    axis = rng.randrange(x.rank)
                    return library(builder, SoftmaxProblem(x.shape, axis), src=x)["dst"]
                case 9 if x.rank:
                    return views.concatenate([x, self._constant(x.shape, seed)], x.rank - 1)
                case 10 if x.rank:
                    zero = builder.splat(0.0, "f32")
                    add = PAIRS[0]
                    return scan([x], [zero], 0, lambda old, new: [add(old[0], new[0])])[0]
                case _:
                    return convert(convert(x, "f64"), "f32")

    def _spread(self, x: Tensor, y: Tensor, dims: list[int]) -> Tensor:
        kept = [n for n in range(x.rank) if n not in dims]
        return elementwise(PAIRS[2], x, views.broadcast_in_dim(y, x.shape, kept))

    def _view(self, x: Tensor) -> Tensor:
        rng, builder = self.rng, self.builder
        match rng.randrange(5):
            case 0:
                shape = [size for size in (x.elements, 1) if size > 1] or [1]
                half = [2, x.elements // 2] if x.elements % 2 == 0 and x.elements else shape
                result = views.reshape(x, rng.choice((shape, half)))
            case 1:
                result = views.transpose(x, rng.sample(range(x.rank), x.rank))
            case 2 if x.rank:
                value = builder.splat(rng.choice((0.0, 1.5)), "f32")
                low, high, between = ([rng.randint(0, 1) for _ in x.shape] for _ in "lhb")
                result = views.pad(x, value, low, high, between)
            case 3 if x.rank:
                result = views.reverse(x, [rng.randrange(x.rank)])
            case _:
                result = views.broadcast_in_dim(x, (2, *x.shape), range(1, x.rank + 1))
        # Some are copies, as a kernel in text may have them.
        return builder.materialize(result, "copied") if rng.random() < 0.5 else result

    def _product(self, x: Tensor, seed: int) -> Tensor:
        rng = self.rng
        if not x.rank:
            return elementwise(FUNCTIONS[0], x)
        if x.rank == 3 and rng.random() < 0.5:
            weight = self._constant((rng.choice((1, 3)), x.shape[1], 2), seed)
            y = convolution(x, weight, padding=[(1, 1)])
        else:
            weight = self._constant((x.shape[-1], rng.choice((1, 4))), seed)
            y = dot_general(x, weight, contracting=((x.rank - 1,), (0,)))
        if rng.random() < 0.3 or not y.rank:
            return y
        channel = 1 if y.rank == 3 and rng.random() < 0.5 else y.rank - 1
        parts = [self._constant((y.shape[channel],), seed + n) for n in range(3)]
        mean, scale, shift = (views.broadcast_in_dim(p, y.shape, (channel,)) for p in parts)
        if rng.random() < 0.5:
            return elementwise(lambda a, b, c, d: (a - b) * c + d, y, mean, scale, shift)
        y = elementwise(lambda a, b: (a - b) * 0.5, y, mean)
        y = elementwise(lambda a, b: b * a, y, scale)
        return elementwise(lambda a, b: b - a, y, shift)
