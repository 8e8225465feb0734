"""Functions of floats that processors have no instruction for."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.expr import Binary, Expr, Unary
from tilewright.ir.visit import walk

MADE = frozenset(("exp", "exp2", "log", "log1p", "sin", "cos", "tanh", "erf", "pow", "fmod"))


def made_functions(value: Expr) -> Iterator[str]:
    """Those that ``value`` evaluates, once for each time: of `MADE`."""
    for node in walk(value):
        if isinstance(node, Unary | Binary) and node.op in MADE:
            yield node.op
