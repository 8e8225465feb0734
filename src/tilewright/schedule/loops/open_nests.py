"""Opaque nests become the statements that they hold."""

from __future__ import annotations

from tilewright.ir.opaque import opened
from tilewright.ir.stmt import Kernel
from tilewright.schedule.records.transform import transform


@transform
def open_nests(kernel: Kernel) -> Kernel:
    """Takes away what says of statements that schedules leave them as they are.

        opaque sort reads x writes y:
          for i in 64: ...
    ->  open_nests()
        for i in 64: ...

    Transforms then see the loops and computes inside.
    """
    return opened(kernel)
