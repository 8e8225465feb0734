"""Recurrent layers: a loop over steps, whose products with the inputs are computed before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.dtypes import s64
from tilewright.ir.expr import Expr, cast, const, maximum, select
from tilewright.ir.stmt import Result, View
from tilewright.problems.functions import number
from tilewright.tensor.contractions import accumulator_for, dot_general
from tilewright.tensor.control import Repeat, while_counted
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.places import axis
from tilewright.tensor.tensor import Tensor, domain
from tilewright.tensor.views import broadcast_in_dim, broadcast_to, slice_, split

Function = Callable[..., Expr]


@dataclass(frozen=True)
class Weights:
    """The weights of one direction: matrices of (gates * hidden) rows, whose type products have,
    biases of (gates * hidden) numbers, and the functions of its gates. ``peepholes`` of an LSTM are
    those of its input, output and forget gate, in order; its ``projection``, a matrix of rows of
    (hidden) numbers, makes the state of what it shows. ``attention`` of a GRU, of (steps, batch, 1)
    numbers, closes update gates; a cell has those of its step, for each number of a state."""

    inputs: Tensor
    states: Tensor
    input_bias: Tensor | None
    state_bias: Tensor | None
    functions: tuple[Function, ...]
    peepholes: Tensor | None = None
    projection: Tensor | None = None
    attention: Tensor | None = None


# The states after a step, from what its inputs give, and the states before.
Cell = Callable[[Weights, Tensor, Sequence[Tensor]], Sequence[Tensor]]


def lstm(coupled: bool = False, places: Sequence[int] = (0, 1, 2, 3)) -> Cell:
    """Hidden state and cell state. ``places`` are those of the input, output, forget and cell gate
    among the gates. ``coupled``: the forget gate is 1 less the input gate.

    Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997.
    """

    def cell(weights: Weights, now: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
        f, g, last = weights.functions
        gates = _sum(now, _with_bias(_product(states[0], weights.states), weights.state_bias))
        tensors = parts(gates, 4)
        i, o, forget, new = (tensors[place] for place in places)
        old = states[1]
        p = [broadcast_to(factor, old.shape) for factor in parts(weights.peepholes, 3)]

        # Gates look at the old state, but for the last one.
        def remembered(i: Expr, k: Expr, n: Expr, c: Expr, *p: Expr) -> Expr:
            enter = f(i + p[0] * c if p else i)
            keep = number(1.0, c) - enter if coupled else f(k + p[1] * c if p else k)
            return keep * c + enter * g(n)

        def shown(o: Expr, c: Expr, *p: Expr) -> Expr:
            return f(o + p[0] * c if p else o) * last(c)

        kept = elementwise(remembered, i, forget, new, old, *(p[0], p[2]) if p else ())
        state = elementwise(shown, o, kept, *p[1:2])
        if weights.projection is not None:
            state = _product(weights.inputs.builder.materialize(state), weights.projection)
        return state, kept

    return cell


def gru(linear_before_reset: bool = False) -> Cell:
    """Gates in the order update, reset, hidden. ``linear_before_reset``: the reset gate applies to
    the product with the state, not to the state.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014.
    """

    def cell(weights: Weights, now: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
        f, g = weights.functions
        old = states[0]
        hidden = old.shape[-1]
        count = 3 if linear_before_reset else 2

        def gates(x: Tensor, first: int, last: int) -> Tensor:
            low, high = first * hidden, last * hidden
            bias = weights.state_bias
            shift = None if bias is None else slice_(bias, (low,), (high,))
            return _with_bias(_product(x, slice_(weights.states, (low, 0), (high, hidden))), shift)

        before = parts(gates(old, 0, count), count)
        update, reset, new = parts(now, 3)
        z = elementwise(lambda a, b: f(a + b), update, before[0])
        if weights.attention is not None:
            z = elementwise(lambda z, a: z * (number(1.0, a) - a), z, weights.attention)
        if linear_before_reset:
            fresh = elementwise(
                lambda n, q, a, b: g(n + f(a + b) * q), new, before[2], reset, before[1]
            )
        else:
            part = elementwise(lambda a, b, s: f(a + b) * s, reset, before[1], old)
            fresh = elementwise(lambda a, b: g(a + b), new, gates(part, 2, 3))
        return (elementwise(lambda z, n, s: (number(1.0, z) - z) * n + z * s, z, fresh, old),)

    return cell


def elman(weights: Weights, now: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
    """One function of the sum (a `Cell`).

    Source: Elman, "Finding Structure in Time", 1990.
    """
    before = _with_bias(_product(states[0], weights.states), weights.state_bias)
    return (elementwise(lambda a, b: weights.functions[0](a + b), now, before),)


def layer(
    x: Tensor,
    weights: Weights,
    states: Sequence[Tensor],
    cell: Cell,
    lengths: Tensor | None = None,
    reverse: bool = False,
    repeat: Repeat = while_counted,
    hidden: int | None = None,
) -> tuple[Tensor, ...]:
    """The first state at each step of ``x`` (steps, batch, features), and all states at the end, in
    one direction. Sequences of the batch have ``lengths``: after them the first state is 0.
    ``repeat`` says how steps are repeated; ``hidden`` is the size of states, if that changes in the
    one step."""
    builder, (count, batch, _) = x.builder, x.shape
    inputs = _product(x, weights.inputs)
    inputs = builder.materialize(_with_bias(inputs, weights.input_bias), "inputs")
    hidden = states[0].shape[-1] if hidden is None else hidden
    memory = builder.allocate(builder.named("states"), inputs.dtype, (count, batch, hidden))
    if lengths is not None:
        empty = builder.splat(0.0, inputs.dtype, (count, batch, hidden))
        builder.store(memory, empty, f"{memory.name}_begin")

    def body(time: Expr, old: Sequence[Tensor]) -> Sequence[Tensor]:
        last: Expr = const(count)
        alive = None
        if lengths is not None:
            last = cast(s64, lengths.at(axis(0)))
            alive = builder.tensor((batch, hidden), time < last)
        place = maximum(last - 1 - time, const(0)) if reverse else time
        now = inputs.viewed((batch, inputs.shape[2]), [place, axis(0), axis(1)])
        seen = weights
        if weights.attention is not None:
            over = [place, axis(0), const(0)]
            seen = replace(weights, attention=weights.attention.viewed((batch, hidden), over))
        new = [builder.materialize(state) for state in cell(seen, now, old)]
        inside = None if alive is None else alive.value
        view = View(memory, (place, axis(0), axis(1)), inside)
        result = Result((view,), (new[0].value,), unique=True)
        builder.compute(f"{memory.name}_step", domain((batch, hidden)), (result,))
        if alive is not None:
            new = [elementwise(select, alive, n, o) for n, o in zip(new, old, strict=True)]
        return new

    return (builder.whole(memory), *repeat(states, count, body, builder))


def parts(x: Tensor | None, count: int) -> list[Tensor]:
    """Equal parts along the last dim; of None, none."""
    if x is None:
        return []
    return [*split(x, x.rank - 1, [x.shape[-1] // count] * count)]


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    type_ = accumulator_for(matrix.dtype)
    return dot_general(
        convert(x, matrix.dtype), matrix, ((), ()), ((x.rank - 1,), (1,)), dtype=type_
    )


def _with_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return x
    return _sum(x, broadcast_in_dim(bias, x.shape, (x.rank - 1,)))


def _sum(a: Tensor, b: Tensor) -> Tensor:
    return elementwise(lambda x, y: x + y, a, b)
