"""Steps of optimizers, on any number of tensors each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.frontends.onnx.elements import Function
from tilewright.frontends.onnx.table import Place, op
from tilewright.ir.expr import Expr, binary, cast, const, select, unary
from tilewright.problems.functions import number
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to

_DOMAIN = "ai.onnx.preview.training"


def _each(
    at: Place, tensors: Sequence[Tensor], functions: Sequence[Function]
) -> tuple[Tensor, ...]:
    """Each of ``functions`` of the rate, the count, and the members of every group: groups of
    tensors, gradients and states follow one another."""
    rate, count, *others = tensors
    size = len(others) // (len(functions) + 1)
    states = []
    for function in functions:
        for n in range(size):
            group = others[n::size]
            shape = group[0].shape
            scalars = [broadcast_to(tensor, shape) for tensor in (rate, count)]
            states.append(elementwise(function, *scalars, *group))
    return tuple(states)


def _gradient(at: Place) -> Callable[[Expr, Expr], Expr]:
    norm = at.attribute("norm_coefficient", 0.0)
    return lambda x, g: g + x * number(norm, x)


@op(f"{_DOMAIN}.Momentum")
def momentum(at: Place, *tensors: Tensor) -> tuple[Tensor, ...]:
    gradient = _gradient(at)
    alpha, beta = at.attribute("alpha"), at.attribute("beta")

    def state(rate: Expr, count: Expr, x: Expr, g: Expr, v: Expr) -> Expr:
        enter = select(count > const(0, count.type), number(beta, v), number(1.0, v))
        return v * number(alpha, v) + enter * gradient(x, g)

    def value(rate: Expr, count: Expr, x: Expr, g: Expr, v: Expr) -> Expr:
        v = state(rate, count, x, g, v)
        if at.attribute("mode") == "nesterov":
            v = gradient(x, g) + v * number(alpha, v)
        return x - rate * v

    return _each(at, tensors, (value, state))


@op(f"{_DOMAIN}.Adagrad")
def adagrad(at: Place, *tensors: Tensor) -> tuple[Tensor, ...]:
    gradient = _gradient(at)

    def state(rate: Expr, count: Expr, x: Expr, g: Expr, h: Expr) -> Expr:
        return h + gradient(x, g) * gradient(x, g)

    def value(rate: Expr, count: Expr, x: Expr, g: Expr, h: Expr) -> Expr:
        slower = number(1.0, x) + cast(x.type, count) * number(at.attribute("decay_factor", 0.0), x)
        root = unary("sqrt", state(rate, count, x, g, h))
        least = number(at.attribute("epsilon", 1e-6), x)
        return x - rate / slower * gradient(x, g) / (root + least)

    return _each(at, tensors, (value, state))


@op(f"{_DOMAIN}.Adam")
def adam(at: Place, *tensors: Tensor) -> tuple[Tensor, ...]:
    gradient = _gradient(at)
    alpha, beta = at.attribute("alpha", 0.9), at.attribute("beta", 0.999)
    after = 1.0 - at.attribute("norm_coefficient_post", 0.0)

    def first(rate: Expr, count: Expr, x: Expr, g: Expr, v: Expr, h: Expr) -> Expr:
        return v * number(alpha, v) + gradient(x, g) * number(1 - alpha, x)

    def second(rate: Expr, count: Expr, x: Expr, g: Expr, v: Expr, h: Expr) -> Expr:
        return h * number(beta, h) + gradient(x, g) * gradient(x, g) * number(1 - beta, x)

    def value(rate: Expr, count: Expr, x: Expr, g: Expr, v: Expr, h: Expr) -> Expr:
        one, steps = number(1.0, x), cast(x.type, count)
        slow = one - binary("pow", number(alpha, x), steps)
        fast = unary("sqrt", one - binary("pow", number(beta, x), steps))
        expr = select(count > const(0, count.type), rate * fast / slow, rate)
        root = unary("sqrt", second(rate, count, x, g, v, h))
        step = first(rate, count, x, g, v, h) / (root + number(at.attribute("epsilon", 1e-6), x))
        return (x - expr * step) * number(after, x)

    return _each(at, tensors, (value, first, second))
