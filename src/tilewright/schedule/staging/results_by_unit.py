"""Results that subgroups leave in memory of the workgroup, from where a unit stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Swizzle
from tilewright.ir.expr import Expr, const, var
from tilewright.ir.functions import Queue
from tilewright.ir.stmt import (
    Allocate,
    Call,
    Compute,
    Dim,
    For,
    Kernel,
    LoopKind,
    Operand,
    Stmt,
    View,
)
from tilewright.ir.visit import block, rewrite_stmts
from tilewright.machines.tile_unit import TileCopy
from tilewright.schedule.loops.tile import tile_compute
from tilewright.schedule.queries.place import (
    Place,
    around,
    claim,
    fresh,
    holds,
    placed_computes,
    sequence,
    walk_placed,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import BlockList
from tilewright.schedule.records.transform import give
from tilewright.schedule.staging.copiers import CopyUnit
from tilewright.schedule.staging.results import SharedResults, check_sizes, used_besides
from tilewright.schedule.staging.work_items import work_items


def stored_as_boxes(
    kernel: Kernel, compute: str, by: CopyUnit, layout: BlockList, swizzle: Swizzle | None
) -> Kernel:
    """``kernel`` in which the unit stores, as boxes, what subgroups make by ``compute``."""
    if by.instruction is None:
        raise refusal(
            "the copy unit has no instruction",
            kernel,
            "name the one that stores, as CopyUnit(instruction=...)",
        )
    shared = SharedResults.of(kernel, compute, layout, swizzle=swizzle)
    return shared.made(
        kernel,
        _Storing(shared, by).on_stmt,
        who="subgroups",
        why="a subgroup has its part stored as one",
        cure="run loops around it as SUBGROUP first",
    )


@dataclass(frozen=True)
class _Storing:
    """What is stored, and the unit that does it."""

    shared: SharedResults
    by: CopyUnit

    def on_stmt(self, stmt: Stmt, place: Place) -> Stmt | None:
        """The loops over subgroups with the tile around them."""
        if not (isinstance(stmt, For) and stmt.kind is LoopKind.SUBGROUP):
            return None
        compute = self.shared.compute
        if not holds(stmt, compute):
            return None
        items, inside = work_items(stmt, place)
        (member, here), *others = placed_computes(items[-1].body, inside, compute)
        if others:
            raise refusal(
                f"'{compute}' stands here more than once",
                member,
                "store before the compute is partitioned",
                why="its subgroups have one tile each",
            )
        _check(member, here, items, inside)
        dims = [*(Dim(loop.var, loop.extent) for loop in items), *member.dims]
        target = member.out.buffer
        tile = self.shared.buffer(f"{target.name}_tile", target.dtype, dims)
        again = len(here.loops) > len(inside.loops)
        stored = self._stored(member, here, View(tile, _index(items, member)), again)
        body = rewrite_stmts(items[-1].body, lambda s: stored if s is member else s)
        body = block(*sequence(body), Call("wait_stores", (const(0),)))
        return block(Allocate(tile), around(items, body))

    def _stored(self, compute: Compute, here: Place, part: View, again: bool) -> Stmt:
        """What stands for ``compute``: it writes its ``part`` of the tile, which is stored. Where
        it runs ``again``, the part may still be read."""
        wait, meet = Call("wait_stores", (const(0),)), Call("subgroup_barrier", ())
        # One lane waits for the unit, and tells the others at the barrier.
        free = (wait, meet) if again else ()
        return block(
            *free,
            compute.with_result(part),
            Call("fence_async", ()),
            meet,
            self._boxes(compute, here, part),
            Call("commit_stores", ()),
        )

    def _boxes(self, compute: Compute, here: Place, part: View) -> Stmt:
        name = claim(f"{compute.name}_box", self.shared.names)
        give("store", "compute", name)
        taken = here.names | {dim.var.name for dim in compute.dims}
        value = var(fresh("stored", taken), compute.out.buffer.dtype)
        whole = Compute.single(name, compute.dims, compute.out, (Operand(value, part),), value)
        stmt, copy = tile_compute(whole, here, self.by.boxes), self.by.instruction
        assert copy is not None
        for inner, place in walk_placed(stmt, here):
            if isinstance(inner, Compute):
                self._check_box(inner, place, copy)

        def change(inner: Stmt) -> Stmt:
            match inner:
                case For():
                    return replace(inner, kind=LoopKind.UNROLLED)
                case Compute():
                    return replace(inner, instruction=copy.name, completion=Queue.STORES)
                case _:
                    return inner

        return rewrite_stmts(stmt, change)

    def _check_box(self, store: Compute, place: Place, copy: TileCopy) -> None:
        """Refuses what is no box of the tensor."""
        reason = copy.refuses(store, place.facts)
        if reason is not None:
            raise refusal(
                f"'{self.shared.compute}' stores no box",
                store,
                "choose tiles that lie evenly in the tensor, or let work-items store",
                why=reason,
            )


def _index(items: Sequence[For], compute: Compute) -> tuple[Expr, ...]:
    """Where in the tile the compute writes."""
    return (*(loop.var for loop in items), *(dim.var for dim in compute.dims))


def _check(compute: Compute, here: Place, items: Sequence[For], inside: Place) -> None:
    """Refuses what no unit can store for the subgroup."""
    loops = here.loops[len(inside.loops) :]
    if any(loop.kind is not LoopKind.SUBGROUP for loop in items) or any(
        loop.kind is LoopKind.LANE for loop in loops
    ):
        raise refusal(
            f"lanes run '{compute.name}', each for itself",
            compute,
            "store tiles before work is divided among lanes",
            why="a subgroup has its part stored as one",
        )
    if compute.combiner is not None or compute.instruction or compute.completion is not None:
        raise refusal(
            f"'{compute.name}' does more than write its result",
            compute,
            "name a compute without a combiner or an instruction",
            why="the unit replaces what was there",
        )
    check_sizes(compute, "boxes have sizes that are known")
    target = compute.out.buffer
    others = {operand.view.buffer for operand in compute.operands}
    others |= used_besides(compute, items[-1].body)
    if target in others:
        raise refusal(
            f"'{target.name}' is also touched otherwise",
            compute,
            "let the compute alone write its result, and read none of it",
            why="nobody in the workgroup knows when the unit has written it",
        )
