"""How large computes and buffers are, as numbers that recipes decide by.

A size that a call passes has no number yet. What is decided by it is how work is cut, never what is
right, so that one that is usual stands for all of them.
"""

from __future__ import annotations

from tilewright.ir.buffer import Buffer, Size
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Compute
from tilewright.ir.visit import variables

# What a size that a call passes counts as.
USUAL = 1024


def usual(size: Size) -> int:
    """``size`` as a number."""
    if isinstance(size, int):
        return size
    if isinstance(size, Const):
        return int(size.value)
    found = int(evaluate(size, dict.fromkeys(variables(size), USUAL)))
    # Of a tile that may be shorter than others, the number may be that of one behind the end.
    return found if found > 0 else USUAL


def sizes(compute: Compute) -> dict[str, int]:
    """How long each dim of ``compute`` is."""
    return {dim.var.name: usual(dim.extent) for dim in compute.dims}


def bytes_of(held: Buffer) -> int:
    """How many bytes ``held`` spans."""
    return usual(held.span_bytes)
