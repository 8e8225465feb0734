"""Functions on several registers of a vector at a time.

Each step of a polynomial waits for the one before, and a processor looks ahead by less than one
vector's steps: those of several, side by side, fill its units. Constants that come from memory then
serve them all. So do the instructions of a loop that only moves elements.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.facts.functions import made_functions
from tilewright.ir.stmt import Compute
from tilewright.machines.machine import Machine
from tilewright.recipes.moving import moves

# Registers of numbers that are computed side by side: with more, they no longer stay there.
_REGISTERS = 4


def lanes_for(
    compute: Compute,
    lengths: Iterable[int],
    vector: int,
    machine: Machine,
    *,
    tails: bool = False,
) -> int:
    """The lanes of ``compute``, of which one register has ``vector``: those of several registers
    where it evaluates functions or only moves elements, and all ``lengths`` are whole vectors of
    them. With ``tails``, what is behind whole vectors goes apart, in vectors of one register: a
    length may then be open (0) or anything else, and whatever combines nothing goes so."""
    results = compute.results
    values = [value for result in results for value in result.values]
    wanted = any(any(made_functions(each)) for each in values) or moves(compute)
    wanted = wanted or all(each.combiner is None for each in results)
    found = list(lengths)
    if machine.hierarchy is not None or not wanted or not found:
        return vector
    if tails and all(n == 0 or n >= _REGISTERS * vector for n in found):
        return _REGISTERS * vector
    for registers in range(_REGISTERS, 1, -1):
        if all(n > 0 and n % (registers * vector) == 0 for n in found):
            return registers * vector
    return vector
