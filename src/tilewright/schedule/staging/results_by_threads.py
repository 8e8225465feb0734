"""Results that work-items stage in memory that they share, to be stored by all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import (
    Allocate,
    Call,
    Compute,
    Dim,
    For,
    Kernel,
    Operand,
    Stmt,
    View,
)
from tilewright.ir.uses import view_variables
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import block, rewrite_stmts, variables
from tilewright.schedule.loops.tile import rename_dims
from tilewright.schedule.queries.access import buffers_allocated, buffers_written
from tilewright.schedule.queries.place import (
    Place,
    around,
    fresh,
    holds,
    placed_computes,
    size_of,
    views_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.runs import is_aligned, run_start, steps, uniform
from tilewright.schedule.queries.storage import BlockList
from tilewright.schedule.records.transform import give
from tilewright.schedule.staging.copiers import Threads
from tilewright.schedule.staging.results import SharedResults, check_sizes, used_besides
from tilewright.schedule.staging.work_items import by_items, own_values, work_items


def stored_together(
    kernel: Kernel,
    compute: str,
    by: Threads,
    layout: BlockList,
    row_padding: Mapping[str, int],
) -> Kernel:
    """``kernel`` whose work-items do together, by way of shared memory, what ``compute`` stores."""
    by.check(kernel)
    shared = SharedResults.of(kernel, compute, layout, row_padding)
    return shared.made(
        kernel,
        _Storing(shared, by).on_stmt,
        who="work-items",
        why="it is they who make and store the result",
        cure="run loops around it as WORKGROUP, SUBGROUP or LANE first",
    )


@dataclass(frozen=True)
class _Storing:
    """What is stored, by whom, and the buffers for it."""

    shared: SharedResults
    by: Threads
    made: list[Buffer] = field(default_factory=list)

    def on_stmt(self, stmt: Stmt, place: Place) -> Stmt | None:
        """The work-items' loops with the buffers that they share around them."""
        if not (
            isinstance(stmt, For) and stmt.kind in THREADS and holds(stmt, self.shared.compute)
        ):
            return None
        items, inside = work_items(stmt, place)
        self.made.clear()
        new: dict[Compute, Stmt] = {
            compute: self._staged(compute, here, items)
            for compute, here in placed_computes(items[-1].body, inside, self.shared.compute)
        }
        body = rewrite_stmts(
            items[-1].body, lambda s: new.get(s, s) if isinstance(s, Compute) else s
        )
        return block(*(Allocate(b) for b in self.made), around(items, body))

    def _staged(self, compute: Compute, here: Place, items: Sequence[For]) -> Stmt:
        """What stands for ``compute``: what is held goes to shared memory, and is stored there."""
        held = _held(compute, items)
        _check(compute, held, here, items)
        item_dims = [Dim(loop.var, loop.extent) for loop in items]
        whole = replace(compute, dims=(*item_dims, *compute.dims))
        order = _memory_order(whole)
        copies: list[Stmt] = []
        operands = list(whole.operands)
        for operand in held:
            used = view_variables(operand.view)
            dims = [d for d in compute.dims if d.var in used]
            buffer = self._buffer(operand, [*item_dims, *dims], order)
            index = tuple(d.var for d in (*item_dims, *dims))
            name = fresh(f"{operand.var.name}_share", self.shared.names)
            give(operand.var.name, "compute", name)
            copies.append(
                Compute.single(
                    name,
                    tuple(dims),
                    View(buffer, index),
                    (operand,),
                    operand.var,
                )
            )
            operands[operands.index(operand)] = replace(operand, view=View(buffer, index))
        renamed = rename_dims(replace(whole, operands=tuple(operands)), here.names)
        # The dims by position: those of the work-items have other names now.
        places = [whole.dims.index(dim) for dim in order]
        ordered = [renamed.dims[i] for i in places]
        runs = (ordered, renamed.out, _longest(renamed, ordered[-1], self.by.vector, here))
        barrier = Call("barrier", ())
        stored = by_items(renamed, items, here, runs, self.by.lanes)
        return block(*copies, barrier, stored, barrier)

    def _buffer(self, operand: Operand, dims: Sequence[Dim], order: Sequence[Dim]) -> Buffer:
        old = operand.view.buffer
        layout = [d.var.name for d in order if d in dims]
        self.made.append(self.shared.buffer(f"{old.name}_shared", old.dtype, dims, layout))
        return self.made[-1]


def _held(compute: Compute, items: Sequence[For]) -> list[Operand]:
    """The operands that each work-item has in memory of its own."""
    buffers = buffers_allocated(items[-1].body)
    return [o for o in compute.operands if o.view.buffer in buffers]


def _check(compute: Compute, held: Sequence[Operand], here: Place, items: Sequence[For]) -> None:
    """Refuses where others cannot do what a work-item does."""
    if not held:
        raise refusal(
            f"'{compute.name}' reads nothing that its work-item holds",
            compute,
            "name the compute that stores what work-items accumulate in memory of their own",
            why="there is nothing to stage",
        )
    check_sizes(compute, "its dims become digits of a number")
    lets = own_values(here, items)
    views = [v for v in views_of(compute) if v not in [o.view for o in held]]
    if (variables(compute.body) | set().union(*map(view_variables, views))) & lets:
        raise refusal(
            f"'{compute.name}' depends on a let of the work-item",
            compute,
            "stage before the let is made",
            why="others that store for it have another value",
        )
    mine = {operand.view.buffer for operand in held}
    if compute.out.buffer in mine | buffers_allocated(items[-1].body):
        raise refusal(
            f"'{compute.out.buffer.name}' is the work-item's own",
            compute,
            "name the compute that stores to memory that all can reach",
            why="others cannot store there",
        )
    others = used_besides(compute, items[-1].body)
    _check_touched(compute, mine, others, buffers_written(items[-1]))


def _check_touched(
    compute: Compute, mine: set[Buffer], others: set[Buffer], written: set[Buffer]
) -> None:
    """Refuses where the order of what several statements do to one buffer would change."""
    for view in views_of(compute):
        buffer = view.buffer
        if buffer in mine or buffer not in written:
            continue
        same = buffer is not compute.out.buffer or view.index == compute.out.index
        if buffer in others or not same:
            raise refusal(
                f"'{buffer.name}' is also touched otherwise",
                compute,
                "let the compute alone write its result, and read none of it but what it replaces",
                why=f"{to_text(view)} would be reached by another work-item than before",
            )


def _longest(compute: Compute, dim: Dim, vector: int, here: Place) -> int:
    """The longest of ``vector``, its half, ... so that runs along ``dim`` begin at multiples of it,
    and no mask cuts them: others are no one access, and single elements are nearer to those of
    neighbouring work-items."""
    facts = here.facts_with(compute.dims)
    while vector > 1:
        start = run_start(compute.out, dim.var, vector, facts)
        if start is not None and size_of(dim) % vector == 0:
            whole = is_aligned(start, vector, facts)
            if whole and uniform(compute, compute.out, dim.var, vector, here) is not None:
                return vector
        vector //= 2
    return 1


def _memory_order(compute: Compute) -> list[Dim]:
    """The dims from the slowest to the one along which neighbours lie in the result."""
    apart = steps(compute.dims, compute.out)
    # A dim that moves no address at first (a mask's, a quotient's) has no neighbours to store.
    near = sorted(compute.dims, key=lambda dim: (apart[dim.var] == 0, apart[dim.var]))
    return near[::-1]
