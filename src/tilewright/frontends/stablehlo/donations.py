"""Donated arguments: results are written in their place.

    func @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %g: tensor<4xf32>) -> tensor<4xf32>

The argument is updated when all that reads it is done; what is computed element by element goes
straight there (`graph.in_place`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from tilewright.frontends.stablehlo.syntax import Function
from tilewright.tensor.tensor import Tensor

_ALIAS, _DONOR = "tf.aliasing_output", "jax.buffer_donor"


def donated(
    function: Function, inputs: Mapping[str, Tensor], results: Mapping[int, Tensor]
) -> dict[int, Tensor]:
    """Which result, by its number, goes into which input of ``function``.

    ``tf.aliasing_output`` says it; what ``jax.buffer_donor`` gives goes to the first result of the
    same sizes and type that has none. A warning says what fits nowhere.
    """
    taken: dict[int, Tensor] = {}
    free: list[str] = []
    for argument, attributes in zip(
        function.body.arguments, function.argument_attributes, strict=False
    ):
        if argument.name not in inputs:
            continue
        number = attributes.get(_ALIAS)
        if isinstance(number, int) and _fits(inputs[argument.name], results.get(number)):
            taken.setdefault(number, inputs[argument.name])
        elif _ALIAS in attributes or attributes.get(_DONOR):
            free.append(argument.name)
    unused: list[str] = []
    for name in free:
        fitting = (
            n for n, result in results.items() if n not in taken and _fits(inputs[name], result)
        )
        number = next(fitting, None)
        if number is None:
            unused.append(name)
        else:
            taken[number] = inputs[name]
    if unused:
        warnings.warn(
            f"@{function.name} donates {', '.join(unused)}, and no result has its sizes and type; "
            "what is passed stays as it is",
            stacklevel=4,
        )
    return taken


def _fits(argument: Tensor, result: Tensor | None) -> bool:
    if result is None or argument.buffer is None:
        return False
    return (argument.shape, argument.dtype) == (result.shape, result.dtype)
