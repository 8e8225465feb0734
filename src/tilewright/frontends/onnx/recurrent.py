"""Recurrent layers: a loop over steps, whose products with the inputs are made in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType, s64
from tilewright.frontends.onnx.elements import NUMBERED, UNARY, Function
from tilewright.frontends.onnx.table import Place, op, refuse
from tilewright.ir.expr import Expr, cast, const, maximum, minimum, select, unary
from tilewright.ir.stmt import Result, View
from tilewright.problems import activations
from tilewright.problems.functions import number
from tilewright.tensor.builder import domain
from tilewright.tensor.contractions import accumulator_for, dot_general
from tilewright.tensor.control import while_
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.tensor import Tensor, axes, axis
from tilewright.tensor.views import (
    broadcast_in_dim,
    broadcast_to,
    concatenate,
    reshape,
    slice_,
    transpose,
)


@dataclass(frozen=True)
class _Weights:
    """What a layer has in one direction: matrices of (gates * hidden) rows, sums of (gates *
    hidden) numbers, and the functions that its gates go through."""

    inputs: Tensor
    states: Tensor
    input_bias: Tensor | None
    state_bias: Tensor | None
    peepholes: Tensor | None
    functions: tuple[Function, ...]


# What becomes of the states, from what the inputs give a step.
Cell = Callable[[_Weights, Tensor, Sequence[Tensor]], Sequence[Tensor]]


@op("LSTM")
def lstm(
    at: Place,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> tuple[Tensor, ...]:
    coupled = bool(at.attribute("input_forget", 0))

    def cell(own: _Weights, now: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
        f, g, last = own.functions
        total = _sum(now, _with_bias(_product(states[0], own.states), own.state_bias))
        i, o, forget, new = _parts(total, 4)
        old = states[1]
        p = [broadcast_to(each, old.shape) for each in _parts(own.peepholes, 3)]

        # Gates look at the old state, but for the last one.
        def remembered(i: Expr, k: Expr, n: Expr, c: Expr, *p: Expr) -> Expr:
            enter = f(i + p[0] * c if p else i)
            keep = number(1.0, c) - enter if coupled else f(k + p[1] * c if p else k)
            return keep * c + enter * g(n)

        kept = elementwise(remembered, i, forget, new, old, *(p[0], p[2]) if p else ())
        return (
            elementwise(
                lambda o, c, *p: f(o + p[0] * c if p else o) * last(c),
                o,
                kept,
                *p[1:2] if p else (),
            ),
            kept,
        )

    usual = ("Sigmoid", "Tanh", "Tanh")
    return _layer(at, x, (w, r, bias, peepholes), lengths, (h, c), usual, cell)


@op("GRU")
def gru(
    at: Place,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    before = bool(at.attribute("linear_before_reset", 0))

    def cell(own: _Weights, now: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
        f, g = own.functions
        old = states[0]
        hidden = old.shape[-1]
        together = 3 if before else 2

        def gates(x: Tensor, low: int, high: int) -> Tensor:
            rows = low * hidden, high * hidden
            matrix = slice_(own.states, (rows[0], 0), (rows[1], hidden))
            bias = own.state_bias
            shift = None if bias is None else slice_(bias, (rows[0],), (rows[1],))
            return _with_bias(_product(x, matrix), shift)

        known = _parts(gates(old, 0, together), together)
        update, reset, new = _parts(now, 3)
        z = elementwise(lambda a, b: f(a + b), update, known[0])
        if before:
            fresh = elementwise(
                lambda n, q, a, b: g(n + f(a + b) * q), new, known[2], reset, known[1]
            )
        else:
            part = elementwise(lambda a, b, s: f(a + b) * s, reset, known[1], old)
            fresh = elementwise(lambda a, b: g(a + b), new, gates(part, 2, 3))
        return (elementwise(lambda z, n, s: (number(1.0, z) - z) * n + z * s, z, fresh, old),)

    return _layer(at, x, (w, r, bias, None), lengths, (h,), ("Sigmoid", "Tanh"), cell)


@op("RNN")
def rnn(
    at: Place,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    def cell(own: _Weights, now: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
        known = _with_bias(_product(states[0], own.states), own.state_bias)
        return (elementwise(lambda a, b: own.functions[0](a + b), now, known),)

    return _layer(at, x, (w, r, bias, None), lengths, (h,), ("Tanh",), cell)


def _layer(
    at: Place,
    x: Tensor,
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    lengths: Tensor | None,
    begin: Sequence[Tensor | None],
    usual: tuple[str, ...],
    cell: Cell,
) -> tuple[Tensor, ...]:
    """All steps' states and the last ones, of both directions where there are two."""
    batched, type_ = bool(at.attribute("layout", 0)), accumulator_for(x.dtype)
    x = transpose(x, (1, 0, 2)) if batched else x
    count, hidden = weights[1].shape[0], weights[1].shape[2]
    turned = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    directions = turned.get(at.attribute("direction", "forward"), [])
    if len(directions) != count:
        refuse(f"{count} directions of weights for {at.attribute('direction')!r}")
    functions = _functions(at, usual * count)
    made: list[tuple[Tensor, ...]] = []
    for n, back in enumerate(directions):
        states = []
        for each in begin:
            if each is None:
                states.append(at.builder.splat(0.0, type_, (x.shape[1], hidden)))
            else:
                each = transpose(each, (1, 0, 2)) if batched else each
                states.append(_one(each, n, type_))
        own = _own(weights, n, type_, tuple(functions[n * len(usual) : (n + 1) * len(usual)]))
        made.append(_steps(at, x, own, lengths, states, cell, back))
    return tuple(
        convert(_joined([each[k] for each in made], batched, k == 0), x.dtype)
        for k in range(1 + len(begin))
    )


def _own(
    weights: Sequence[Tensor | None], n: int, type_: DType, functions: tuple[Function, ...]
) -> _Weights:
    """The weights of one direction."""
    w, r, bias, peepholes = (None if each is None else _one(each, n, type_) for each in weights)
    assert w is not None and r is not None
    of_inputs, of_states = _parts(bias, 2) if bias is not None else (None, None)
    return _Weights(w, r, of_inputs, of_states, peepholes, functions)


def _one(x: Tensor, n: int, type_: DType) -> Tensor:
    """What belongs to one direction."""
    return convert(x.viewed(x.shape[1:], [const(n), *axes(x.rank - 1)]), type_)


def _joined(parts: Sequence[Tensor], batched: bool, steps: bool) -> Tensor:
    """Results of the directions as one tensor: (steps, directions, batch, hidden) or without the
    steps, the batch in front where the layer is ``batched``."""
    at_ = 1 if steps else 0
    whole = concatenate(
        [reshape(each, (*each.shape[:at_], 1, *each.shape[at_:])) for each in parts], at_
    )
    if not batched:
        return whole
    return transpose(whole, (2, 0, 1, 3) if steps else (1, 0, 2))


def _steps(
    at: Place,
    x: Tensor,
    own: _Weights,
    lengths: Tensor | None,
    states: Sequence[Tensor],
    cell: Cell,
    back: bool,
) -> tuple[Tensor, ...]:
    """The first state at each step, and all states at the end, of one direction."""
    builder, (count, batch, _) = at.builder, x.shape
    inputs = _product(convert(x, own.inputs.dtype), own.inputs)
    inputs = builder.materialize(_with_bias(inputs, own.input_bias), "inputs")
    hidden = states[0].shape[-1]
    memory = builder.allocate(builder.named("states"), inputs.dtype, (count, batch, hidden))
    if lengths is not None:
        empty = builder.splat(0.0, inputs.dtype, (count, batch, hidden))
        builder.store(memory, empty, f"{memory.name}_begin")

    def body(carried: Sequence[Tensor]) -> Sequence[Tensor]:
        step, old = carried[0], carried[1:]
        time = step.value
        last: Expr = const(count)
        alive = None
        if lengths is not None:
            last = cast(s64, lengths.at(axis(0)))
            alive = builder.tensor((batch, hidden), time < last)
        place = maximum(last - 1 - time, const(0)) if back else time
        now = inputs.viewed((batch, inputs.shape[2]), [place, axis(0), axis(1)])
        new = [builder.materialize(each) for each in cell(own, now, old)]
        inside = None if alive is None else alive.value
        view = View(memory, (place, axis(0), axis(1)), inside)
        result = Result((view,), (new[0].value,), unique=True)
        builder.compute(f"{memory.name}_step", domain((batch, hidden)), (result,))
        if alive is not None:
            new = [elementwise(select, alive, n, o) for n, o in zip(new, old, strict=True)]
        return [elementwise(lambda t: t + const(1), step), *new]

    def more(carried: Sequence[Tensor]) -> Tensor:
        return builder.tensor((), carried[0].value < count)

    begin = [builder.splat(0, s64), *states]
    found = while_(begin, more, body, builder)
    return (builder.whole(memory), *found[1:])


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    return dot_general(x, matrix, ((), ()), ((x.rank - 1,), (1,)))


def _with_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return x
    return _sum(x, broadcast_in_dim(bias, x.shape, (x.rank - 1,)))


def _sum(a: Tensor, b: Tensor) -> Tensor:
    return elementwise(lambda x, y: x + y, a, b)


def _parts(x: Tensor | None, count: int) -> list[Tensor]:
    """Equal parts along the last dim; none of nothing."""
    if x is None:
        return []
    size, front = x.shape[-1] // count, [0] * (x.rank - 1)
    return [slice_(x, [*front, n * size], [*x.shape[:-1], (n + 1) * size]) for n in range(count)]


def _functions(at: Place, usual: Sequence[str]) -> list[Function]:
    """The activations by name; those that take numbers get them in turn."""
    names = [each.capitalize() for each in at.attribute("activations", usual)]
    if len(names) != len(usual):
        refuse(f"{len(names)} activations, not {len(usual)}")
    alphas, betas = (iter(at.attribute(f"activation_{n}", ())) for n in ("alpha", "beta"))
    limit = at.attribute("clip")
    return [_clipped(_activation(each, alphas, betas), limit) for each in names]


def _clipped(function: Function, limit: float | None) -> Function:
    if limit is None:
        return function
    return lambda x: function(maximum(minimum(x, number(limit, x)), number(-limit, x)))


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    known = {each.capitalize(): each for each in (*UNARY, *_OWN, *NUMBERED)}
    if name not in known:
        refuse(f"the activation {name}")
    found = known[name]
    if found in UNARY:
        return UNARY[found]
    function, usual = (_OWN | NUMBERED)[found]
    sources = {"alpha": alphas, "beta": betas}
    numbers = [next(sources[each], value) for each, value in usual.items()]
    return lambda x: function(x, *numbers)


_OWN: dict[str, tuple[Function, dict[str, float]]] = {
    "Affine": (activations.linear, {"alpha": 1.0, "beta": 0.0}),
    "ScaledTanh": (
        lambda x, a, b: activations.scaled(unary("tanh", activations.scaled(x, b)), a),
        {"alpha": 1.0, "beta": 1.0},
    ),
}
