"""Tiles that all workgroups of a cluster read: each copies a part, to all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilewright.facts.affine import affine
from tilewright.ir.buffer import Buffer, Layout, Space, has_parts
from tilewright.ir.buffer import LayoutBlock as Steps
from tilewright.ir.expr import Const, Expr, Var, const, var
from tilewright.ir.printer import headline
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Stmt,
    View,
)
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import block, nested, substitute_stmt, variables, walk_stmts
from tilewright.machines.tile_unit import TileCopy
from tilewright.schedule.pipelines.barriers import is_barrier
from tilewright.schedule.queries.access import readdress
from tilewright.schedule.queries.place import (
    Place,
    around,
    fresh,
    perfect_nest,
    rewrite_loops,
    rewrite_placed,
    sequence,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_loop_of_plain_computes, asks
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify


@transform
@asks(loop=a_loop_of_plain_computes)
def multicast(kernel: Kernel, loop: str, unit: TileCopy) -> Kernel:
    """Has each workgroup of the cluster loop copy a part of what all of them read, to all of them.

        cluster for c in 2:
          alloc b_packed: bf16[2, 64, 128] workgroup
          alloc full: s64[2] workgroup
          alloc empty: s64[2] workgroup
          subgroup for w in 3:
            ... mbarrier_init(&full[slot], 1) ... mbarrier_init(&empty[slot], 2) ...
            barrier()
            if w == 2:
              for k in 8:
                mbarrier_wait(&empty[k % 2], ...)
                mbarrier_expect(&full[k % 2], 16384)
                compute b_pack<tma_load>(i in 64, j in 128) signals full[k % 2]:
                  b_packed[k % 2, i, j] = src[k*64 + i, j]
            else: ... mbarrier_arrive(&empty[k % 2]) ...
    ->  multicast("c", unit)
        alloc b_packed: bf16[2, 2, 64, 128] cluster
        alloc full: s64[2, 2] cluster
        alloc empty: s64[2, 2] cluster
        cluster for c in 2:
          subgroup for w in 3:
            ... mbarrier_init(&full[c, slot], 1) ... mbarrier_init(&empty[c, slot], 4) ...
            cluster_barrier()
            if w == 2:
              for k in 8:
                mbarrier_wait(&empty[c, k % 2], ...)
                mbarrier_expect(&full[c, k % 2], 16384)
                compute b_pack<tma_load>(peer in 2, i in 32, j in 128) signals full[peer, k % 2]:
                  b_packed[peer, k % 2, c*32 + i, j] = src[k*64 + c*32 + i, j]
            else: ... unrolled for peer in 2: mbarrier_arrive(&empty[peer, k % 2]) ...
            cluster_barrier()

    The kernel has the form that `specialize_warps` makes: copies after a wait for an mbarrier at
    which those arrive who have read what was there before. Now those of all workgroups do. What a
    workgroup alone reads it copies as before.
    """
    taken = taken_names(kernel)
    peer = fresh("peer", taken)
    return rewrite_loops(kernel, {loop}, lambda s, place: _Multicast(s, place, peer, unit).stmt())


class _Multicast:
    """One loop over the workgroups of a cluster."""

    def __init__(self, cluster: For, place: Place, peer: str, unit: TileCopy) -> None:
        self.unit = unit
        self.cluster, self.peer, self.inside = cluster, var(peer), place.inside(cluster)
        if cluster.kind is not LoopKind.CLUSTER or not isinstance(cluster.extent, Const):
            raise refusal(
                "it is no loop over the workgroups of a cluster",
                self.cluster,
                "name a cluster loop of constant extent",
            )
        loops = (*place.loops, *walk_stmts(cluster.body))
        if any(isinstance(loop, For) and loop.kind is LoopKind.CLUSTER for loop in loops):
            raise refusal(
                "it is one of several that make a cluster",
                self.cluster,
                "merge the cluster loops to one",
            )
        self.size = int(cluster.extent.value)
        self.own = _depending(cluster)
        # By the statements of a step that copy for all: the loops around, and the copy.
        self.shared: dict[int, tuple[tuple[For, ...], Compute]] = {}
        self.empty: dict[Buffer, None] = {}
        self._find()
        used = dict.fromkeys(self.empty)
        for _, copy in self.shared.values():
            assert isinstance(copy.completion, View)
            used |= dict.fromkeys((copy.out.buffer, copy.completion.buffer))
        self.buffers = {buffer: self._in_parts(buffer) for buffer in used}
        self._check_alike()

    # What is there.

    def _find(self) -> None:
        """The copies of what all workgroups read, and the mbarriers that their subgroup waits at
        before."""
        for stmt in walk_stmts(self.cluster):
            steps = nested(stmt) if isinstance(stmt, Block) else ()
            alike = {
                id(part): copy
                for part in steps
                if (copy := _copy(part)) is not None
                and self.own.isdisjoint(view_variables(copy[1].operands[0].view))
            }
            if not alike:
                continue
            self.shared |= alike
            for part in steps:
                if isinstance(part, Call) and part.function == "mbarrier_wait":
                    place = part.args[0]
                    assert isinstance(place, View)
                    self.empty[place.buffer] = None
        if not self.shared:
            raise refusal(
                "its workgroups read nothing in common that is copied asynchronously",
                self.cluster,
                "specialize warps first, with a cluster along a dim on which an operand does not "
                "depend",
            )
        if not self.empty:
            raise refusal(
                "no wait says that all have read what a copy writes over",
                self.cluster,
                "specialize warps first",
                why="a workgroup copies into the memory of the others",
            )

    def _in_parts(self, buffer: Buffer) -> Buffer:
        """``buffer`` as that of the cluster."""
        layout, extent = buffer.layout, buffer.layout.extent
        blocks = tuple(
            replace(layout_block, dim=layout_block.dim + 1) for layout_block in layout.blocks
        )
        shape = (self.size, *buffer.shape)
        whole = replace(layout, parts=(Steps(0, self.size, extent), *blocks))
        part = Buffer(buffer.name, buffer.dtype, shape, whole, Space.CLUSTER)
        if not has_parts(part):
            raise refusal(
                f"'{buffer.name}' ends inside of its swizzle's pattern",
                self.cluster,
                "choose larger tiles",
                why="the parts of a cluster's memory are alike",
            )
        return part

    def _check_alike(self) -> None:
        """Refuses workgroups that would wait for each other at different times."""
        for stmt in walk_stmts(self.cluster.body):
            decided = stmt.extent if isinstance(stmt, For) else None
            if isinstance(stmt, If):
                decided = stmt.condition
            if decided is None or self.own.isdisjoint(variables(decided)):
                continue
            if any(map(self._is_shared, walk_stmts(stmt))):
                raise refusal(
                    f"`{headline(stmt)}` differs from workgroup to workgroup",
                    self.cluster,
                    "grow the result to whole tiles of the cluster (`pad`)",
                    why="each waits for the parts that the others copy",
                )

    def _is_shared(self, stmt: Stmt) -> bool:
        """Whether ``stmt`` has to do with what workgroups have in common."""
        if isinstance(stmt, Call):
            return any(isinstance(arg, View) and arg.buffer in self.buffers for arg in stmt.args)
        return id(stmt) in self.shared

    # What becomes of it.

    def stmt(self) -> Stmt:
        """What stands in the place of the cluster loop."""
        *before, nest = sequence(self.cluster.body)
        items, nest = perfect_nest(nest, (LoopKind.SUBGROUP,))
        meet = Call("cluster_barrier", ())
        stmts = [meet if is_barrier(stmt) else stmt for stmt in sequence(nest)]
        if not items or meet not in stmts:
            raise refusal(
                "no barrier of its subgroups tells of the mbarriers",
                self.cluster,
                "specialize warps first",
            )
        changed = rewrite_placed(block(*stmts, meet), self.inside, self._changed)
        for old, new in self.buffers.items():
            changed = readdress(changed, old, partial(self._in, new))
        declared = [s for s in before if isinstance(s, Allocate) and s.buffer in self.buffers]
        kept = [stmt for stmt in before if stmt not in declared]
        allocates = [Allocate(self.buffers[stmt.buffer], stmt.span) for stmt in declared]
        return block(*allocates, replace(self.cluster, body=block(*kept, around(items, changed))))

    def _in(self, buffer: Buffer, view: View, whose: Var | None = None) -> View:
        """The place of ``view`` in the part of ``buffer`` that is that workgroup's (None: one's
        own)."""
        rank = self.cluster.var if whose is None else whose
        return View(buffer, (rank, *view.index), view.mask)

    def _changed(self, stmt: Stmt, place: Place) -> Stmt | None:
        if id(stmt) in self.shared:
            return self._to_all(stmt, place)
        if not isinstance(stmt, Call) or not stmt.args or not isinstance(stmt.args[0], View):
            return None
        where = stmt.args[0]
        if where.buffer not in self.empty:
            return None
        if stmt.function == "mbarrier_init":
            arrivals = stmt.args[1]
            assert isinstance(arrivals, Expr)
            return replace(stmt, args=(where, arrivals * self.size))
        if stmt.function == "mbarrier_arrive":
            there = self._in(self.buffers[where.buffer], where, self.peer)
            body = replace(stmt, args=(there,))
            return For(self.peer, const(self.size), body, LoopKind.UNROLLED)
        return None

    def _to_all(self, stmt: Stmt, place: Place) -> Stmt:
        """A copy, with the loops around, as the part of it that a workgroup makes for all."""
        loops, copy = self.shared[id(stmt)]
        for loop in loops:
            part = self._part(loop.extent)
            if part:
                shorter = [replace(o, extent=const(part)) if o is loop else o for o in loops]
                return around(shorter, self._with_peers(self._behind(copy, loop.var, part)))
        for loop in loops:
            place = place.inside(loop)
        for dim in copy.dims:
            part = self._part(dim.extent)
            compute = self._cut(copy, dim, part, place) if part else None
            if compute is not None:
                return around(loops, self._with_peers(compute))
        raise refusal(
            f"'{copy.name}' cannot be copied in {self.size} equal parts",
            self.cluster,
            "choose another cluster, or larger tiles",
        )

    def _part(self, extent: Expr) -> int:
        """What a workgroup copies of so many; 0 where these are no equal parts."""
        if not isinstance(extent, Const) or extent.value % self.size:
            return 0
        return int(extent.value) // self.size

    def _cut(self, copy: Compute, dim: Dim, part: int, place: Place) -> Compute | None:
        """``copy`` with ``part`` of the dim; None where that is no tile of its own."""
        out = copy.out.buffer
        plain = Layout(out.layout.blocks, out.layout.offset)
        where = simplify(plain.offset_of(copy.out.index), place.facts_with(copy.dims))
        apart = affine(where).terms.get(dim.var, 0)
        period = out.layout.swizzle.period if out.layout.swizzle is not None else 1
        if not apart or part * apart % max(period, self.unit.alignment // out.dtype.bytes):
            return None
        dims = tuple(Dim(d.var, const(part)) if d is dim else d for d in copy.dims)
        compute = replace(self._behind(copy, dim.var, part), dims=dims)
        return compute if self.unit.refuses(compute, place.facts) is None else None

    def _behind(self, copy: Compute, along: Var, part: int) -> Compute:
        """``copy`` after the parts of the workgroups before, ``part`` along a variable each."""
        moved = substitute_stmt(copy, {along: self.cluster.var * part + along})
        assert isinstance(moved, Compute)
        return moved

    def _with_peers(self, copy: Compute) -> Compute:
        """``copy`` into the memory of each workgroup, with a signal to each."""
        assert isinstance(copy.completion, View)
        out, full = (
            self._in(self.buffers[view.buffer], view, self.peer)
            for view in (copy.out, copy.completion)
        )
        dims = (Dim(self.peer, const(self.size)), *copy.dims)
        return replace(copy, dims=dims, completion=full).with_result(out)


def _depending(cluster: For) -> set[Var]:
    """The variables that differ from workgroup to workgroup."""
    varying = {cluster.var}
    for stmt in walk_stmts(cluster.body):
        if isinstance(stmt, Let) and variables(stmt.value) & varying:
            varying.add(stmt.var)
    return varying


def _copy(stmt: Stmt) -> tuple[tuple[For, ...], Compute] | None:
    """A copy that signals an mbarrier, and the loops that it alone stands in, outermost first, if
    ``stmt`` is that."""
    loops, copy = perfect_nest(stmt, (LoopKind.SERIAL, LoopKind.UNROLLED))
    if isinstance(copy, Compute) and isinstance(copy.completion, View):
        return loops, copy
    return None
