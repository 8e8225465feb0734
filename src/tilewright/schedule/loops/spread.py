"""Independent iterations over workgroups and their work-items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir.expr import Const, Expr, const, var
from tilewright.ir.stmt import For, If, Kernel, LoopKind, Stmt
from tilewright.ir.visit import substitute_stmt
from tilewright.schedule.loops.kinds import parallel_loops
from tilewright.schedule.loops.merge_loops import merged_loop
from tilewright.schedule.queries.place import Place, fresh, rewrite_placed, taken_names
from tilewright.schedule.records.asks import a_loop, asks, positive, some
from tilewright.schedule.records.transform import transform


@transform
@asks(loops=some(a_loop), items=positive)
def spread(kernel: Kernel, loops: Sequence[str], items: int) -> Kernel:
    """Runs the iterations of ``loops``, nested directly in one another, on work-items.

        for mb in 2:
          for x_o in 49: ... x_o ...
    ->  spread(["mb", "x_o"], 64)
        grid for group in 2:
          workgroup for item in 64:
            if group*64 + item < 98: ... (group*64 + item) % 49 ...

    ``items`` neighbours make a workgroup, all of them if there are no more; the last workgroup is
    guarded. No two iterations may touch the same element if one writes it.
    """
    # Whether they may is asked of the loops as they are, of which more is known.
    parallel = parallel_loops(kernel, loops, LoopKind.GRID, "spread")
    taken = taken_names(kernel)
    group, item, iteration = (fresh(name, taken) for name in ("group", "item", "iteration"))

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if isinstance(stmt, For) and stmt.var.name == loops[0]:
            return _on_items(merged_loop(stmt, loops, iteration), items, (group, item))
        return None

    return replace(kernel, body=rewrite_placed(parallel.body, Place(), change))


def _on_items(loop: For, items: int, names: tuple[str, str]) -> Stmt:
    total = loop.extent
    whole = False
    if isinstance(total, Const):
        count = int(total.value)
        items = min(items, max(1, count))
        whole = count % items == 0
    group, item = var(names[0]), var(names[1])
    number: Expr = group * items + item
    body = substitute_stmt(loop.body, {loop.var: number})
    if not whole:
        body = If(number < total, body)
    inner = For(item, const(items), body, LoopKind.WORKGROUP)
    return For(group, (total + (items - 1)) // items, inner, LoopKind.GRID)
