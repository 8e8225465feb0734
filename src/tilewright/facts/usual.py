"""How large what a call passes usually is: numbers that decisions go by.

A size that a call passes has no number yet. What is decided by it is how work is cut, never what is
right, so that one that is usual stands for all of them: as near to that as the kernel promises.
"""

from __future__ import annotations

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Size
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Const, Var
from tilewright.ir.stmt import Kernel
from tilewright.ir.symbols import bind_scalars
from tilewright.ir.visit import variables

# What a size that a call passes counts as.
USUAL = 1024


def usual(size: Size) -> int:
    """``size`` as a number."""
    if isinstance(size, int):
        return size
    if isinstance(size, Const):
        return int(size.value)
    facts = Facts.empty()
    value = int(
        evaluate(size, {variable: _number(variable, facts) for variable in variables(size)})
    )
    # Of a tile that may be shorter than others, the number may be that of one beyond the end.
    return value if value > 0 else USUAL


def typical(kernel: Kernel) -> Kernel:
    """``kernel`` with a usual number for each integer that a call passes; itself without any."""
    facts = Facts.of(kernel)
    numbers = {p.name: _number(p.var, facts) for p in kernel.scalars if p.dtype.is_integer}
    return bind_scalars(kernel, numbers) if numbers else kernel


def _number(variable: Var, facts: Facts) -> int:
    """The usual number for ``variable``, as near as what is known about it allows."""
    low, high = facts.bounds(variable)
    number = USUAL if high is None else min(USUAL, high)
    number = number if low is None else max(number, low)
    by = facts.divisor(variable)
    rounded = number // by * by if by else number
    return rounded if low is None or rounded >= low else rounded + by
