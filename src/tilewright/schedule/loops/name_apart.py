"""Names that tell computes apart which were one before a loop was partitioned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir.stmt import Compute, Kernel, Stmt
from tilewright.ir.visit import rewrite_stmts
from tilewright.schedule.queries.place import fresh, names_in
from tilewright.schedule.records.asks import a_compute, asks
from tilewright.schedule.records.transform import transform


@transform
@asks(computes=a_compute)
def name_apart(kernel: Kernel, computes: Sequence[str]) -> Kernel:
    """Of each of ``computes``, all but the first by that name get names of their own.

        for i_o in 8:
          compute f(i in 4): ...[i_o*4 + i]
        compute f(i in 3): ...[i + 32]
    ->  name_apart(["f"])
        for i_o in 8:
          compute f(i in 4): ...[i_o*4 + i]
        compute f2(i in 3): ...[i + 32]
    """
    taken = names_in(kernel)[1]
    seen: set[str] = set()

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Compute) or stmt.name not in computes:
            return stmt
        if stmt.name not in seen:
            seen.add(stmt.name)
            return stmt
        name = fresh(stmt.name, taken)
        taken.add(name)
        return replace(stmt, name=name)

    return replace(kernel, body=rewrite_stmts(kernel.body, change))
