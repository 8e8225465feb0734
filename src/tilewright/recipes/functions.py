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
    them. With ``tails``, a length may be open (0), as what is behind whole vectors goes apart, in a
    vector with masks: of two registers where no length is known, so that little is in vain."""
    values = [value for result in compute.results for value in result.values]
    wanted = any(any(made_functions(each)) for each in values) or moves(compute)
    if machine.hierarchy is not None or not wanted:
        return vector
    found = list(lengths)
    if not found or (0 in found and not tails):
        return vector
    for registers in range(_REGISTERS if any(found) else 2, 1, -1):
        if all(n % (registers * vector) == 0 for n in found):
            return registers * vector
    return vector
