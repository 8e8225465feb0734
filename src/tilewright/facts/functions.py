"""Functions of floats that processors have no instruction for: what computing them takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilewright.ir.expr import Binary, Expr, Unary
from tilewright.ir.visit import walk


class Made(NamedTuple):
    """What a function of a vector of f32 is made of, as counted in AVX2's assembly: instructions,
    and constants that come from memory where registers don't suffice."""

    instructions: int
    constants: int


MADE = {
    "exp": Made(30, 11),
    "exp2": Made(27, 9),
    "log": Made(58, 20),
    "log1p": Made(63, 18),
    "sin": Made(110, 26),
    "cos": Made(112, 26),
    "tanh": Made(38, 14),
    "erf": Made(48, 19),
    "pow": Made(90, 31),
}


def made_functions(value: Expr) -> Iterator[Made]:
    """Those that ``value`` evaluates, once for each time."""
    for node in walk(value):
        if isinstance(node, Unary | Binary) and node.op in MADE:
            yield MADE[node.op]
