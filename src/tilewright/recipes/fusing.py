"""Which reduced dims are made one, before products of matrices add them up in whole steps.

An instruction adds up 16 or so elements of one reduced dim, and pads it to a multiple: three
channels take as long as sixteen. Three channels of seven times seven taps are 147 elements of one
dim, which end in 160. What that may cost: elements that lay side by side along one dim are copied
one by one where runs end in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.ir.stmt import Compute, View
from tilewright.ir.visit import variables
from tilewright.machines.machine import Machine
from tilewright.recipes.matrix_model import COPIED, ROW
from tilewright.recipes.roles import extents, roles
from tilewright.schedule.queries.runs import strides

# Joined dims are worth their divisions where there is so much less to do.
_LESS = 0.9
# What a product costs more whose operands are copied one element at a time.
_SINGLY = 2


def fused_dims(main: Compute, machine: Machine) -> tuple[str, ...]:
    """The reduced dims of ``main``, as its op has them, to make one, outermost first; none where
    each by its own is as good, or no instruction on matrices multiplies the op's types."""
    a, b = (operand.var.type for operand in main.operands[:2])
    products = machine.products(main.out.buffer.dtype, a, b)
    whole = next((i.sizes["k"] for i in products if i.lanes > 1), 0)
    order = outermost_first(main)
    if not whole or len(order) < 2:
        return ()
    work = _Work(main, whole)
    alone = min(work.of((dim,)) for dim in order)
    # All of them, which parts of the reduction cut most evenly, or those that lie innermost in A.
    fused = (order[first:] for first in range(len(order) - 1))
    cost, _, best = min((work.of(dims), -len(dims), dims) for dims in fused)
    return best if cost <= _LESS * alone else ()


def outermost_first(main: Compute) -> tuple[str, ...]:
    """The reduced dims of ``main`` as A has them in memory."""
    steps = strides(main, main.operands[0].view)
    return tuple(sorted(roles(main).k, key=lambda dim: -(steps[dim] or 0)))


@dataclass(frozen=True)
class _Work:
    """Counts what ``main`` has to do, whose instruction adds up ``whole`` elements."""

    main: Compute
    whole: int

    def of(self, dims: tuple[str, ...]) -> int:
        """Products with those of the padding, if ``dims`` are one and fill whole steps; as if they
        were more where an operand has no runs to be copied at once."""
        sizes = extents(self.main)
        reduced = roles(self.main).k
        views = [operand.view for operand in self.main.operands[:2]]
        size = prod(sizes[d] for d in dims)
        row = ROW // min(view.buffer.dtype.bytes for view in views)
        step = -(-min(row, size) // self.whole) * self.whole
        products = prod(sizes[d] for d in reduced if d not in dims) * -(-size // step) * step
        runs = all(self._has_runs(view, dims) for view in views)
        return products if runs else products * _SINGLY

    def _has_runs(self, view: View, dims: tuple[str, ...]) -> bool:
        """Whether elements lie together along a dim that is kept, or along ``dims``, as many as are
        copied at once, and are there all or none."""
        sizes, steps = extents(self.main), strides(self.main, view)
        asked = set() if view.mask is None else {v.name for v in variables(view.mask)}
        count = COPIED // view.buffer.dtype.bytes
        kept = [d for d in roles(self.main).kept if steps[d] == 1 and d not in asked]
        if any(sizes[d] % count == 0 for d in kept):
            return True
        run = 1
        for dim in reversed(dims):
            if steps[dim] != run or dim in asked:
                break
            run *= sizes[dim]
        return run > 1 and run % count == 0
