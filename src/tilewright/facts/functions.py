"""Functions of floats that processors have no instruction for: what computing them takes."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.expr import Binary, Expr, Unary
from tilewright.ir.visit import walk

# The constants of which a function of a vector of f32 is made, as counted in AVX2's assembly: they
# come from memory where registers don't suffice.
MADE = {
    "exp": 11,
    "exp2": 9,
    "log": 20,
    "log1p": 18,
    "sin": 26,
    "cos": 26,
    "tanh": 14,
    "erf": 19,
    "pow": 31,
}


def made_functions(value: Expr) -> Iterator[str]:
    """Those that ``value`` evaluates, once for each time: keys of `MADE`."""
    for node in walk(value):
        if isinstance(node, Unary | Binary) and node.op in MADE:
            yield node.op
