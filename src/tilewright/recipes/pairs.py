"""Vectors two at a time, where functions are made of more constants than there are registers: each
constant that comes from memory then serves two."""

from __future__ import annotations

from tilewright.facts.functions import MADE, made_functions
from tilewright.ir.stmt import Compute

# Of AVX2's 16, some hold what is computed. With fewer constants, pairs only cost code.
_REGISTERS = 12


def wants_pairs(compute: Compute) -> bool:
    """Whether ``compute`` evaluates such functions."""
    return any(
        MADE[function] > _REGISTERS
        for result in compute.results
        for value in result.values
        for function in made_functions(value)
    )
