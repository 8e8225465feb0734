"""What values load becomes operands, whose views schedules can change."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.stmt import Compute, Kernel, Stmt
from tilewright.schedule.queries.flow import with_operands
from tilewright.schedule.queries.place import Place, rewrite_placed
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

    body = rewrite_placed(kernel.body, Place(), change)
    return kernel if body is kernel.body else replace(kernel, body=body)
