"""Functions of two arguments, each in one record, as `unary_functions` has those of one.

Formulas: oneDNN's developer guide, "Binary".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.expr import Expr, binary, cast, maximum, minimum
from tilewright.problems.unary_functions import Array


@dataclass(frozen=True, slots=True)
class BinaryFunction:
    """``build`` gives the expression of two floats of one type; ``reference`` the numbers in
    float64. ``peer`` is PyTorch's name of it. Comparisons (``compares``) give 1 or 0: they are
    exact, and a rounding before them may turn one over; the others round once at most."""

    name: str
    formula: str
    build: Callable[[Expr, Expr], Expr]
    reference: Callable[[Array, Array], Any]
    peer: str
    compares: bool = False


def _comparison(
    name: str, sign: str, build: Callable[[Expr, Expr], Expr], reference: Callable[..., Any]
) -> BinaryFunction:
    return BinaryFunction(
        name,
        f"1 if a {sign} b else 0",
        lambda a, b: cast(a.type, build(a, b)),
        reference,
        name,
        compares=True,
    )


BINARY_RECORDS = {
    function.name: function
    for function in (
        BinaryFunction("add", "a + b", lambda a, b: a + b, np.add, "add"),
        BinaryFunction("div", "a / b", lambda a, b: a / b, np.true_divide, "div"),
        _comparison("eq", "=", lambda a, b: binary("eq", a, b), np.equal),
        _comparison("ge", ">=", lambda a, b: b <= a, np.greater_equal),
        _comparison("gt", ">", lambda a, b: b < a, np.greater),
        _comparison("le", "<=", lambda a, b: binary("le", a, b), np.less_equal),
        _comparison("lt", "<", lambda a, b: binary("lt", a, b), np.less),
        BinaryFunction("max", "max(a, b)", maximum, np.maximum, "maximum"),
        BinaryFunction("min", "min(a, b)", minimum, np.minimum, "minimum"),
        BinaryFunction("mul", "a * b", lambda a, b: a * b, np.multiply, "mul"),
        _comparison("ne", "!=", lambda a, b: binary("ne", a, b), np.not_equal),
        BinaryFunction("sub", "a - b", lambda a, b: a - b, np.subtract, "sub"),
    )
}
BINARY_FUNCTIONS = tuple(BINARY_RECORDS)
