"""Layers of recurrent cells as statements: the cells are those of `tensor.nn.recurrent`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tilewright.ir.expr import unary
from tilewright.ops.formulas.call import Call
from tilewright.problems import activations
from tilewright.problems.library import RecurrentProblem
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.control import for_
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.nn.recurrent import Cell, Function, Weights, elman, gru, layer, lstm
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import concatenate, index_in_dim, slice_, stack, transpose

_TANH: Function = partial(unary, "tanh")
_FUNCTIONS: Mapping[str, Function] = {
    "RELU": lambda x: activations.relu(x, 0.0, 0.0),
    "TANH": _TANH,
    "LOGISTIC": activations.logistic,
}
# The functions of gates, and the cell.
_GATED: Mapping[str, tuple[tuple[Function, ...], Cell]] = {
    "VANILLA_LSTM": ((activations.logistic, _TANH, _TANH), lstm(places=(0, 3, 1, 2))),
    "VANILLA_GRU": ((activations.logistic, _TANH), gru()),
    "LBR_GRU": ((activations.logistic, _TANH), gru(linear_before_reset=True)),
    "VANILLA_AUGRU": ((activations.logistic, _TANH), gru()),
    "LBR_AUGRU": ((activations.logistic, _TANH), gru(linear_before_reset=True)),
}


def layers(problem: RecurrentProblem, call: Call) -> Mapping[str, Tensor]:
    """The states after each step, and at the ends."""
    inputs, types = call.inputs, call.types
    wide = accumulator_for(types["src"])
    usual = (_FUNCTIONS.get(problem.activation, _TANH),), elman
    functions, cell = _GATED.get(problem.algorithm, usual)
    names = ("src_iter", "src_iter_c") if problem.has_cell_states else ("src_iter",)
    tops: list[Tensor] = []
    ends: list[list[tuple[Tensor, ...]]] = [[] for _ in range(problem.layers)]
    for d, backwards in enumerate(problem.reversed_orders):
        x = inputs["src"]
        for n in range(problem.layers):
            parts = {k: _at(t, n, d) for k, t in inputs.items() if k not in ("src", "attention")}
            states = [convert(parts[name], wide) for name in names]
            weights = _weights(problem, parts, functions)
            if problem.has_attention:
                weights = replace(weights, attention=convert(inputs["attention"], wide))
            x, *end = layer(
                x, weights, states, cell, reverse=backwards, repeat=for_, hidden=problem.dic
            )
            ends[n].append(tuple(end))
        tops.append(x)
    if problem.order == "sum":
        top = elementwise(lambda a, b: a + b, *tops)
    else:
        top = concatenate(tops, 2) if len(tops) > 1 else tops[0]
    results = {"dst": convert(top, types["dst"])}
    for k, name in enumerate(names):
        name = name.replace("src", "dst")
        whole = stack([stack([end[k] for end in stacks], 0) for stacks in ends], 0)
        results[name] = convert(whole, types[name])
    return results


def _at(tensor: Tensor, layer: int, stack_: int) -> Tensor:
    return index_in_dim(index_in_dim(tensor, 0, layer), 0, stack_)


def _weights(
    problem: RecurrentProblem, arrays: Mapping[str, Tensor], functions: tuple[Function, ...]
) -> Weights:
    """The weights of a layer in one order of steps."""
    bias, rows = arrays["bias"], problem.gates * problem.dhc
    further = None
    if bias.shape[0] > rows:
        # The gates before have no bias of their own.
        none = bias.builder.splat(0.0, bias.dtype, (rows - problem.dhc,))
        further = concatenate([none, slice_(bias, (rows,), bias.shape)], 0)
        bias = slice_(bias, (0,), (rows,))
    inputs, states = (transpose(arrays[f"weights_{name}"], (1, 0)) for name in ("layer", "iter"))
    peepholes, projection = arrays.get("weights_peephole"), arrays.get("weights_projection")
    if peepholes is not None:
        # Input, forget, output: cells have the forget gate last.
        order = [index_in_dim(peepholes, 0, gate) for gate in (0, 2, 1)]
        peepholes = concatenate(order, 0)
    if projection is not None:
        projection = transpose(projection, (1, 0))
    return Weights(inputs, states, bias, further, functions, peepholes, projection)
