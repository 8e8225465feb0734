"""What values load becomes operands, whose views schedules can change."""

from __future__ import annotations

from tilewright.ir.stmt import Compute, Kernel, Stmt
from tilewright.schedule.queries.flow import with_operands
from tilewright.schedule.queries.place import Place, rewrite_kernel
from tilewright.schedule.records.transform import transform


@transform
def name_operands(kernel: Kernel) -> Kernel:
    """Names what computes load in their values, so that it is an operand.

        compute e(i in 64): t[i] = exp(x[i] - m[0])
    ->  name_operands()
        compute e(i in 64): t[i] = exp(x - m)    (x = x[i]; m = m[0])

    Stays as it is where one load says where another is.
    """

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        return with_operands(stmt) if isinstance(stmt, Compute) else None

    return rewrite_kernel(kernel, change)
