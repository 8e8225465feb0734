"""The part that each dim of a contraction plays: batch, M, N or K.

With operands A and B and the result C: M dims are shared by A and C, N dims by B and C, batch dims
by all three, and K dims are summed over. This holds for matmul and for the three directions of
convolution alike, and schedules depend on nothing else.
"""

from __future__ import annotations

from enum import Enum

from tilewright.ir.expr import Var
from tilewright.ir.stmt import Compute
from tilewright.ir.uses import view_variables

# A contraction's computes, as ops and `as_contraction` name them: what sums begin with, the sums of
# products, and what stores the results.
INIT, MAIN, RESULT = "init", "main", "epilogue"


class Role(Enum):
    """The part of a dim in a contraction."""

    BATCH = "batch"
    M = "m"
    N = "n"
    K = "k"


def roles(compute: Compute) -> dict[str, Role]:
    """The role of each dim of ``compute``, by name, in the order of its dims.

    A dim that the result lacks is K. Of the others, one that only the second operand has is N, one
    that both have is batch, and the rest (with one operand, all) is M.
    """
    out = view_variables(compute.out)
    views = [operand.view for operand in compute.operands]
    first = view_variables(views[0]) if views else frozenset[Var]()
    second = view_variables(views[1]) if len(views) > 1 else frozenset[Var]()
    by_name: dict[str, Role] = {}
    for dim in compute.dims:
        if dim.var not in out:
            by_name[dim.var.name] = Role.K
        elif dim.var in second:
            by_name[dim.var.name] = Role.BATCH if dim.var in first else Role.N
        else:
            by_name[dim.var.name] = Role.M
    return by_name
