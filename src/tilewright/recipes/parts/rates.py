"""What kernels attain of a machine's peak figures (`machines.rates`).

These are estimates from what is published of matrix products, until there are measurements of our
own.
"""

from __future__ import annotations

from tilewright.machines.machine import Machine
from tilewright.machines.rates import Rates

# Of the peak of each: products, shared memory, L2, memory.
PRODUCTS, SHARED, NEAR, MEMORY = 0.92, 0.95, 0.8, 0.9
# Part of L2 in which data waits to be read again.
KEPT = 0.5


def rates_of(machine: Machine) -> Rates:
    """The peak figures of a machine that is known to have them."""
    assert machine.rates is not None
    return machine.rates
