"""The work-items of a workgroup: their loops and numbers, and what each does of a compute that
stands for what all of them do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tilewright.ir.expr import Const, Expr, Var, all_of, conjuncts, const, var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Compute, Dim, For, Let, LoopKind, Operand, Stmt, View
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import map_compute, map_exprs, substitute, variables
from tilewright.schedule.queries.digits import digits_of
from tilewright.schedule.queries.place import Place, fresh, perfect_nest, size_of
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.runs import uniform

# The dim of what a work-item does at once is called so, with a number where others are.
_ELEMENT = "element"


def work_items(outermost: For, place: Place) -> tuple[tuple[For, ...], Place]:
    """The loops over work-items, nested directly in one another, and the place inside them."""
    loops, _ = perfect_nest(outermost, THREADS)
    for loop in loops:
        place = place.inside(loop)
        if not isinstance(loop.extent, Const):
            raise refusal(
                f"the number of work-items along '{loop.var.name}' is not constant",
                loop,
                "pad the computes to whole tiles before they are divided among work-items",
            )
    return loops, place


def own_values(here: Place, items: Sequence[For]) -> set[Var]:
    """The lets around here that differ between work-items; refuses where these do not all come
    here, and equally often."""
    varying: set[Var] = {loop.var for loop in items}
    vars_: set[Var] = set()
    steps = here.steps
    inside = next(i for i, step in enumerate(steps) if step is items[-1]) + 1
    for step in steps[inside:]:
        match step:
            case Let():
                if variables(step.value) & (varying | vars_):
                    vars_.add(step.var)
            case For() | Expr():
                decides = step.extent if isinstance(step, For) else step
                if variables(decides) & (varying | vars_):
                    raise refusal(
                        "some work-items may not get to the barrier",
                        headline(step) if isinstance(step, For) else to_text(step),
                        "stage at a loop outside of this, or pad to whole tiles first",
                        why="it depends on the work-item",
                    )
            case _:
                pass
    return vars_


def run_of_item(compute: Compute) -> str:
    """The dim of ``compute``, which `together` gave, along which a work-item does neighbours at
    once; "" where it does single elements."""
    last = compute.dims[-1].var.name if compute.dims else ""
    return last if last.startswith(_ELEMENT) else ""


def item_number(loops: Sequence[For]) -> tuple[Expr, int]:
    """The number of a work-item in its workgroup, and how many there are."""
    number: Expr = const(0)
    count = 1
    for loop in loops:
        number = number * size_of(loop) + loop.var
        count *= size_of(loop)
    return number, count


def by_items(
    compute: Compute,
    items: Sequence[For],
    here: Place,
    runs: tuple[Sequence[Dim], View, int],
    lanes: int,
    across: bool = False,
) -> Stmt:
    """What one of the ``items`` does of ``compute``, as `together` has it; where subgroups act as
    one, in a loop over their ``lanes``."""
    if not lanes:
        return together(compute, items, here, runs, across)
    lane = var(fresh("lane", here.names | {d.var.name for d in compute.dims}))
    loop = For(lane, const(lanes), compute, LoopKind.LANE)
    return replace(loop, body=together(compute, [*items, loop], here.inside(loop), runs, across))


def together(
    compute: Compute,
    items: Sequence[For],
    here: Place,
    runs: tuple[Sequence[Dim], View, int],
    across: bool,
) -> Compute:
    """The part of ``compute``, which stands for what all ``items`` do, that one work-item does.

    ``runs``: the dims, the one along which neighbours do neighbours last, and how many elements of
    a view one does at a time (or half as many, ...), where these are neighbours in memory there
    (``across``: as `run_start` has it).
    """
    order, view, vector = runs
    number, count = item_number(items)
    sizes = {dim.var: size_of(dim) for dim in compute.dims}
    inner = order[-1].var
    wide, same = vector, None
    while wide > 1 and same is None:
        if sizes[inner] % wide == 0:
            same = uniform(compute, view, inner, wide, here, across)
        wide = wide if same is not None else wide // 2
    total = prod(sizes.values())
    taken = here.names | {o.var.name for o in compute.operands}
    part = var(fresh("part", taken))
    lane = var(fresh(_ELEMENT, taken))
    rounds = -(-total // (count * wide))

    def at(element: Expr) -> dict[Var, Expr]:
        position = (part * count + number) * wide + element
        digits = digits_of(position, [sizes[dim.var] for dim in order])
        return {dim.var: digit for dim, digit in zip(order, digits, strict=True)}

    first = at(const(0))
    values = at(lane) if wide > 1 else first
    # What holds for all of a run or for none of it is asked once.
    asked = {condition: substitute(condition, first) for condition in same or ()}
    compute = map_compute(
        replace(compute, dims=()),
        lambda v: replace(v, mask=all_of(asked.get(c, c) for c in conjuncts(v.mask))),
    )
    moved = map_exprs(compute, lambda e: substitute(e, values))
    assert isinstance(moved, Compute)
    run = [Dim(lane, const(wide))] if wide > 1 else []
    moved = replace(moved, dims=(Dim(part, const(rounds)), *run))
    if rounds * count * wide == total:
        return moved
    # The run, not the element: all of a vector is copied, or nothing.
    return _bounded(moved, part * count + number < total // wide)


def _bounded(compute: Compute, inside: Expr) -> Compute:
    """``compute`` where ``inside`` holds; elsewhere it touches nothing."""
    out = replace(compute.out, mask=all_of((inside, *conjuncts(compute.out.mask))))
    return zero_outside(compute, inside).with_result(out)


def zero_outside(compute: Compute, inside: Expr) -> Compute:
    """``compute`` with operands that are zero where ``inside`` does not hold."""
    operands = tuple(
        Operand(o.var, replace(o.view, mask=all_of((inside, *conjuncts(o.view.mask)))))
        for o in compute.operands
    )
    return replace(compute, operands=operands)
