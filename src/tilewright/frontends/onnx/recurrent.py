"""Recurrent layers: their attributes, directions and activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.dtypes import DType
from tilewright.frontends.onnx.elements import NUMBERED, UNARY, Function
from tilewright.frontends.onnx.table import Place, op, refuse
from tilewright.ir.expr import unary
from tilewright.problems import activations
from tilewright.problems.functions import clamped
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert
from tilewright.tensor.nn import recurrent
from tilewright.tensor.nn.recurrent import Cell, Weights
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import index_in_dim, stack, transpose


@op("LSTM", "GRU", "RNN")
def layer(
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
    """All steps' states and the last ones, of both directions where there are two."""
    usual, cell = _cell(at)
    begin = (h, c) if at.op == "LSTM" else (h,)
    batched, type_ = bool(at.attribute("layout", 0)), accumulator_for(x.dtype)
    x = transpose(x, (1, 0, 2)) if batched else x
    count, hidden = r.shape[0], r.shape[2]
    reverses = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    directions = reverses.get(at.attribute("direction", "forward"), [])
    if len(directions) != count:
        refuse(f"{count} directions of weights for {at.attribute('direction')!r}")
    functions = _functions(at, usual * count)
    results: list[tuple[Tensor, ...]] = []
    for n, reverse in enumerate(directions):
        states = []
        for state in begin:
            if state is None:
                states.append(at.builder.splat(0.0, type_, (x.shape[1], hidden)))
            else:
                state = transpose(state, (1, 0, 2)) if batched else state
                states.append(convert(index_in_dim(state, 0, n), type_))
        of_gates = tuple(functions[n * len(usual) : (n + 1) * len(usual)])
        direction = _weights((w, r, bias, peepholes), n, type_, of_gates)
        results.append(recurrent.layer(x, direction, states, cell, lengths, reverse))
    return tuple(
        convert(_joined([result[k] for result in results], batched, k == 0), x.dtype)
        for k in range(1 + len(begin))
    )


def _cell(at: Place) -> tuple[tuple[str, ...], Cell]:
    """The activations that a layer usually has, and its cell."""
    if at.op == "LSTM":
        cell = recurrent.lstm(coupled=bool(at.attribute("input_forget", 0)))
        return ("Sigmoid", "Tanh", "Tanh"), cell
    if at.op == "GRU":
        cell = recurrent.gru(linear_before_reset=bool(at.attribute("linear_before_reset", 0)))
        return ("Sigmoid", "Tanh"), cell
    return ("Tanh",), recurrent.elman


def _weights(
    weights: Sequence[Tensor | None], n: int, type_: DType, functions: tuple[Function, ...]
) -> Weights:
    """The weights of one direction."""
    w, r, bias, peepholes = (
        None if x is None else convert(index_in_dim(x, 0, n), type_) for x in weights
    )
    assert w is not None and r is not None
    of_inputs, of_states = recurrent.parts(bias, 2) if bias is not None else (None, None)
    return Weights(w, r, of_inputs, of_states, functions, peepholes)


def _joined(parts: Sequence[Tensor], batched: bool, steps: bool) -> Tensor:
    """Results of the directions as one tensor: (steps, directions, batch, hidden) or without the
    steps, the batch in front where the layer is ``batched``."""
    whole = stack(parts, 1 if steps else 0)
    if not batched:
        return whole
    return transpose(whole, (2, 0, 1, 3) if steps else (1, 0, 2))


def _functions(at: Place, usual: Sequence[str]) -> list[Function]:
    """The activations by name; those that take numbers get them in turn."""
    names = [name.capitalize() for name in at.attribute("activations", usual)]
    if len(names) != len(usual):
        refuse(f"{len(names)} activations, not {len(usual)}")
    alphas, betas = (iter(at.attribute(f"activation_{n}", ())) for n in ("alpha", "beta"))
    limit = at.attribute("clip")
    return [_clipped(_activation(name, alphas, betas), limit) for name in names]


def _clipped(function: Function, limit: float | None) -> Function:
    if limit is None:
        return function
    return lambda x: function(clamped(x, -limit, limit))


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    names = {ours.capitalize(): ours for ours in (*UNARY, *_OF_LAYERS, *NUMBERED)}
    if name not in names:
        refuse(f"the activation {name}")
    ours = names[name]
    if ours in UNARY:
        return UNARY[ours]
    function, usual = (_OF_LAYERS | NUMBERED)[ours]
    sources = {"alpha": alphas, "beta": betas}
    numbers = [next(sources[parameter], value) for parameter, value in usual.items()]
    return lambda x: function(x, *numbers)


# Activations that only recurrent layers have.
_OF_LAYERS: dict[str, tuple[Function, dict[str, float]]] = {
    "Affine": (activations.linear, {"alpha": 1.0, "beta": 0.0}),
    "ScaledTanh": (
        lambda x, a, b: activations.scaled(unary("tanh", activations.scaled(x, b)), a),
        {"alpha": 1.0, "beta": 1.0},
    ),
}
