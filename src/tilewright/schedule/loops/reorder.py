"""Reordering perfectly nested loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir.stmt import For, Kernel, Stmt
from tilewright.ir.verify import may_nest
from tilewright.ir.visit import variables
from tilewright.schedule.queries.dependence import accumulates_only, conflict, conflict_text
from tilewright.schedule.queries.place import Place, rewrite_loops
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_loop, asks, some
from tilewright.schedule.records.transform import transform


@transform
@asks(loops=some(a_loop))
def reorder(kernel: Kernel, loops: Sequence[str]) -> Kernel:
    """Nests loops in another order, outermost first. They are nested directly in one another.

        for i in 4:
          for j in 8: ...
    ->  reorder(["j", "i"])
        for j in 8:
          for i in 4: ...

    At most one of the loops may have iterations that depend on each other, unless all that they do
    is to accumulate.
    """
    if len(set(loops)) != len(loops):
        raise refusal(
            f"the order {', '.join(loops)} names a loop twice",
            kernel,
            "name each loop once, outermost first",
        )
    return rewrite_loops(kernel, loops, lambda s, place: _reordered(s, place, tuple(loops)))


def _reordered(outermost: For, place: Place, order: tuple[str, ...]) -> Stmt:
    nest: dict[str, tuple[For, Place]] = {}
    node: Stmt = outermost
    here = place
    between: list[For] = []
    while isinstance(node, For) and len(nest) < len(order):
        if node.var.name in order:
            nest[node.var.name] = (node, here)
        else:
            between.append(node)
        here = here.inside(node)
        node = node.body
    missing = [name for name in order if name not in nest]
    if missing or between:
        raise refusal(
            "the loops are not nested directly in one another",
            outermost,
            "name all loops of the nest, or split what stands between them",
            why=f"'{missing[0]}' is not inside"
            if missing
            else f"'{between[0].var.name}' is in between",
        )
    _check_order([nest[name][0] for name in order])
    _check_dependences(list(nest.values()))
    for name in reversed(order):
        node = replace(nest[name][0], body=node)
    return node


def _check_order(loops: list[For]) -> None:
    for i, loop in enumerate(loops):
        later = {other.var for other in loops[i:]}
        if variables(loop.extent) & later:
            raise refusal(
                f"the extent of '{loop.var.name}' depends on a loop that would be inside",
                loop,
                "keep it inside that loop",
            )
        for outer in loops[:i]:
            if not may_nest(loop.kind, outer.kind):
                raise refusal(
                    f"'{loop.var.name}' cannot be inside '{outer.var.name}'",
                    loop,
                    "change the kind of one of them first",
                    why=f"one is {loop.kind.value} and the other {outer.kind.value}",
                )


def _check_dependences(nest: list[tuple[For, Place]]) -> None:
    """All but one of the loops are free of conflicts, or all that is shared is accumulated."""
    if all(accumulates_only(loop, place) for loop, place in nest[:1]):
        return
    blocked = [(loop, c) for loop, place in nest if (c := conflict(loop, place)) is not None]
    if len(blocked) > 1:
        loop, access = blocked[0]
        raise refusal(
            "the iterations of "
            + " and ".join(f"'{other.var.name}'" for other, _ in blocked)
            + " depend on each other",
            loop,
            "move at most one of these loops",
            why=conflict_text(access, loop.var),
        )
