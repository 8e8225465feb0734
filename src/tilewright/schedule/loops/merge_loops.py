"""Nested loops as one, and the numbers of the old ones from the new one's by division."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tilewright.ir.expr import Const, var
from tilewright.ir.stmt import For, Kernel
from tilewright.ir.visit import substitute_stmt, variables
from tilewright.schedule.queries.digits import digits_of
from tilewright.schedule.queries.place import rewrite_loops
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_loop, asks, new_name, some
from tilewright.schedule.records.transform import transform


@transform
@asks(loops=some(a_loop), name=new_name("loops"))
def merge_loops(kernel: Kernel, loops: Sequence[str], name: str) -> Kernel:
    """Makes one loop of several of one kind, nested directly in one another.

        for kh in 3:
          for ic_o in 4: ... src[kh, ic_o]
    ->  merge_loops(["kh", "ic_o"], "k")
        for k in 12: ... src[k // 4, k % 4]

    The order of the iterations stays. Extents do not depend on the loops around them.
    """
    return rewrite_loops(kernel, loops[:1], lambda loop, _: merged_loop(loop, loops, name))


def merged_loop(outermost: For, loops: Sequence[str], name: str) -> For:
    """``outermost`` and the loops inside it as one (see `merge_loops`)."""
    nest = [outermost]
    for each in loops[1:]:
        inner = nest[-1].body
        if not isinstance(inner, For) or inner.var.name != each:
            raise refusal(
                f"'{each}' is not directly inside '{nest[-1].var.name}'",
                nest[-1],
                "reorder the loops first",
            )
        if inner.kind is not outermost.kind or variables(inner.extent) & {n.var for n in nest}:
            raise refusal(
                f"'{each}' is of another kind, or its extent depends on a loop around",
                inner,
                "merge loops that run alike, before their extents vary",
            )
        nest.append(inner)
    whole = var(name)
    # How often the outermost runs does not matter to the digits.
    inside = [loop.extent for loop in nest[1:]]
    sizes = [1, *(int(e.value) if isinstance(e, Const) else e for e in inside)]
    values = dict(zip((loop.var for loop in nest), digits_of(whole, sizes), strict=True))
    body = substitute_stmt(nest[-1].body, values)
    return replace(outermost, var=whole, extent=outermost.extent * prod(sizes), body=body)
