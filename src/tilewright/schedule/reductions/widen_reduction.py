"""Partial results of a reduction, one per lane of a vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.computes import mentioned
from tilewright.ir.expr import Const, Expr, Var, all_of, conjuncts, const, var
from tilewright.ir.stmt import (
    Compute,
    Dim,
    If,
    Kernel,
    Stmt,
    View,
)
from tilewright.ir.visit import block, map_exprs, map_views, substitute
from tilewright.schedule.dims.pad import within
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    dim_of,
    fresh,
    rewrite_placed,
    size_of,
    taken_names,
)
from tilewright.schedule.records.asks import a_compute, asks, positive
from tilewright.schedule.records.transform import transform
from tilewright.schedule.reductions.partial_results import (
    at_points,
    begun,
    check_reduced,
    combined,
    if_there,
    on_views,
    prefixes,
)


@transform
@asks(compute=a_compute, lanes=positive, copies=positive)
def widen_reduction(
    kernel: Kernel, compute: str, dim: str, lanes: int, copies: int = 1, *, masked: bool = False
) -> Kernel:
    """Reduces along ``dim`` in ``lanes`` partial results (``copies`` times as many), then those.

        compute main(k in 136): acc[0] add= x    (x = src[i, k])
    ->  widen_reduction("main", "k", 16, copies=4)
        alloc main_parts: f32[4, 16] private
        compute main_parts_init(k_part in 4, k_lane in 16): main_parts[k_part, k_lane] = 0.0
        compute main(k in 2, k_part in 4, k_lane in 16):
          main_parts[k_part, k_lane] add= x    (x = src[i, k*64 + k_part*16 + k_lane])
        compute main_rest(k_lane in 8): main_parts[0, k_lane] add= x    (x = src[i, k_lane + 128])
        alloc main_lanes: f32[16] private
        compute main_lanes_init(k_lane in 16): main_lanes[k_lane] = 0.0
        compute main_lanes(k_lane in 16, k_part in 4): main_lanes[k_lane] add= main_parts[...]
        compute main_across(k_lane in 16): acc[0] add= main_lanes[k_lane]

    Lanes are neighbours along ``dim``; copies shorten the chain of dependent operations. The other
    dims of the compute stay; the partial results have those that the output depends on. What is
    left of ``dim`` behind whole vectors goes to the first lanes of ``main_rest``, what is left
    behind whole copies to ``main_vectors``; of a length that a call passes, to the first copy. Of
    several results, each has partial ones, called after its buffer.

    With ``masked``, ``main_rest`` has all lanes, of which those behind the end do nothing, for
    vectors that would be no registers if they were written in part; what a call may pass no rest
    for stands under a condition, so that nothing waits for masks then. A single element goes
    straight to the result.
    """
    for found, _ in computes_named(kernel, compute, "widen_reduction", any_kind=True):
        check_reduced(found, dim, "widen_reduction")
    taken = taken_names(kernel)
    part, lane = (var(fresh(f"{dim}_{name}", taken)) for name in ("part", "lane"))
    widening = _Widening(dim, lanes, copies, part, lane, masked)

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if isinstance(stmt, Compute) and stmt.name == compute:
            return widening.of(stmt, place.facts)
        return None

    return replace(kernel, body=rewrite_placed(kernel.body, Place(), change))


@dataclass(frozen=True)
class _Widening:
    dim: str
    lanes: int
    copies: int
    part: Var
    lane: Var
    masked: bool

    def of(self, compute: Compute, facts: Facts) -> Stmt:
        """What stands in the place of ``compute``."""
        dim = dim_of(compute, self.dim, "widen_reduction")
        used = frozenset[Var]().union(*(mentioned(compute, view) for view in compute.outputs))
        kept = tuple(d for d in compute.dims if d.var in used)
        others = tuple(d for d in compute.dims if d is not dim)
        parts = self._buffers(compute, "parts", kept, (self.copies, self.lanes))
        sums = self._buffers(compute, "lanes", kept, (self.lanes,))
        part, lane = Dim(self.part, const(self.copies)), Dim(self.lane, const(self.lanes))
        rounds, vectors, single = self._portions(dim.extent)
        stmts = begun(compute, parts, f"{compute.name}_parts_init", (*kept, part, lane))
        step = self.copies * self.lanes
        position = self.part * self.lanes + self.lane
        if rounds is not const(0):
            loop = Dim(dim.var, rounds)
            value = dim.var * step + position
            dims = (*others, loop, part, lane)
            stmts.append(self._piece(compute, compute.name, parts, kept, dims, value))
        if isinstance(vectors, Const) and vectors is not const(0):
            dims = (*others, Dim(self.part, vectors), lane)
            value = position + rounds * step
            stmts.append(self._piece(compute, f"{compute.name}_vectors", parts, kept, dims, value))
        elif vectors is not const(0):
            # Which of the partial results are registers has to be known: all go to the first.
            loop = Dim(dim.var, vectors)
            value = dim.var * self.lanes + self.lane + rounds * step
            dims = (*others, loop, lane)
            piece = self._piece(compute, f"{compute.name}_vectors", parts, kept, dims, value)
            stmts.append(self._of_the_first(piece))
        name = f"{compute.name}_rest"
        if self.masked and single is const(1):
            stmts.append(replace(at_points(compute, dim, dim.extent - 1, 1), name=name))
        elif single is not const(0):
            last = lane if self.masked else Dim(self.lane, single)
            value = self.lane + (dim.extent - single)
            dims = (*others, last)
            rest: Stmt = self._of_the_first(self._piece(compute, name, parts, kept, dims, value))
            if self.masked:
                rest = _where(self.lane < single, rest, facts)
                there = facts.prove(const(0) < single) is True
                rest = rest if there else If(const(0) < single, rest)
            stmts.append(rest)
        stmts += begun(compute, sums, f"{compute.name}_lanes_init", (*kept, lane))
        own = tuple(View(each, tuple(d.var for d in (*kept, lane))) for each in sums)
        dims = (*kept, part, lane)
        stmts.append(combined(compute, f"{compute.name}_lanes", own, parts, dims))
        across = combined(compute, f"{compute.name}_across", compute.outputs, sums, (*kept, lane))
        stmts.append(if_there(compute, across, facts))
        return block(*stmts)

    def _portions(self, size: Expr) -> tuple[Expr, Expr, Expr]:
        """How many rounds of all copies ``size`` is, how many vectors, and how many elements."""
        step = self.copies * self.lanes
        return size // step, size % step // self.lanes, size % self.lanes

    def _of_the_first(self, piece: Compute) -> Stmt:
        """``piece`` on the first of the copies."""
        return map_exprs(piece, lambda e: substitute(e, {self.part: const(0)}))

    def _buffers(
        self, compute: Compute, what: str, kept: tuple[Dim, ...], shape: tuple[int, ...]
    ) -> list[Buffer]:
        """The partial results, of each of the compute's."""
        sizes = (*(size_of(dim) for dim in kept), *shape)
        named = zip(prefixes(compute), compute.outputs, strict=True)
        return [
            buffer(f"{name}_{what}", view.buffer.dtype, sizes, space=Space.PRIVATE)
            for name, view in named
        ]

    def _piece(
        self,
        compute: Compute,
        name: str,
        parts: Sequence[Buffer],
        kept: tuple[Dim, ...],
        dims: tuple[Dim, ...],
        value: Expr,
    ) -> Compute:
        """A part of the reduction, with ``value`` for the dim."""
        values: Mapping[Var, Expr] = {dim_of(compute, self.dim, "").var: value}
        moved = map_exprs(replace(compute, dims=()), lambda e: substitute(e, values))
        assert isinstance(moved, Compute)
        index = (*(d.var for d in kept), self.part, self.lane)
        out = [View(each, index) for each in parts]
        return replace(moved, name=name, dims=dims, results=on_views(moved.results, out, None))


def _where(condition: Expr, piece: Stmt, facts: Facts) -> Stmt:
    """``piece`` at those of its points: what it reads in any case has no mask."""
    assert isinstance(piece, Compute)
    for dim in piece.dims:
        facts = facts.loop(dim.var, dim.extent)

    def masked(view: View) -> View:
        if view not in piece.outputs and within(view, facts):
            return view
        return replace(view, mask=all_of((condition, *conjuncts(view.mask))))

    return map_views(piece, masked)
