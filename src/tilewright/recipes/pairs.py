"""Vectors two at a time, where functions are made of more constants than there are registers: each
constant that comes from memory then serves two."""

from __future__ import annotations

from tilewright.ir.expr import Binary, Unary
from tilewright.ir.stmt import Compute
from tilewright.ir.visit import walk

# Functions with more constants than AVX2 has registers; `exp` has less: pairs only cost it code.
_POLYNOMIALS = frozenset({"log", "log1p", "sin", "cos", "tanh", "erf"})


def wants_pairs(compute: Compute) -> bool:
    """Whether ``compute`` evaluates such functions."""
    return any(
        (isinstance(node, Unary) and node.op in _POLYNOMIALS)
        or (isinstance(node, Binary) and node.op == "pow")
        for result in compute.results
        for value in result.values
        for node in walk(value)
    )
