"""The part that each dim of a contraction plays: batch, M, N or K.

With operands A and B and the result C: M dims are shared by A and C, N dims by B and C, batch dims
by all three, and K dims are summed over. It holds for matmul and for the three directions of
convolution alike, and is what schedules go by.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from tilewright.ir.expr import Var
from tilewright.ir.stmt import Compute, View
from tilewright.ir.visit import variables


class Role(Enum):
    """What a dim is to a contraction."""

    BATCH = "batch"
    M = "m"
    N = "n"
    K = "k"


def roles(compute: Compute) -> dict[str, Role]:
    """The role of each dim of ``compute``, by name, in the order of its dims.

    A dim that the result lacks is K. Of the others, one that only the second operand has is N, one
    that both have is batch, and the rest (with one operand, all) is M.
    """
    out = used(compute.out)
    views = [operand.view for operand in compute.operands]
    first = used(views[0]) if views else frozenset[Var]()
    second = used(views[1]) if len(views) > 1 else frozenset[Var]()
    found: dict[str, Role] = {}
    for dim in compute.dims:
        if dim.var not in out:
            found[dim.var.name] = Role.K
        elif dim.var in second:
            found[dim.var.name] = Role.BATCH if dim.var in first else Role.N
        else:
            found[dim.var.name] = Role.M
    return found


def used(view: View) -> frozenset[Var]:
    """The variables that a view depends on, by its index or its mask."""
    exprs = view.index if view.mask is None else (*view.index, view.mask)
    return _union(variables(expr) for expr in exprs)


def _union(sets: Iterable[frozenset[Var]]) -> frozenset[Var]:
    return frozenset[Var]().union(*sets)
