"""Functions on several registers of a vector at a time.

Each step of a polynomial waits for the one before, and a processor looks ahead by less than one
vector's steps: those of several, side by side, fill its units. Constants that come from memory then
serve them all. So do the instructions of a loop that only moves elements.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir.stmt import Compute
from tilewright.machines.machine import Machine

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
    where it combines nothing, and all ``lengths`` are whole vectors of them. With ``tails``, what
    is behind whole vectors goes apart, in vectors of one register: a length may then be open (0).
    """
    found = list(lengths)
    combines = any(result.combiner is not None for result in compute.results)
    if not machine.threaded or combines or not found:
        return vector
    for registers in range(_REGISTERS, 1, -1):
        if all(n > 0 and n % (registers * vector) == 0 for n in found):
            return registers * vector
    enough = all(n == 0 or n >= _REGISTERS * vector for n in found)
    return _REGISTERS * vector if tails and enough else vector
