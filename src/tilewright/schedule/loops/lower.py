"""Lowering structured ops to loops, loads and stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.facts.scope import Facts
from tilewright.ir.computes import loading, mentioned
from tilewright.ir.expr import Const, Expr, Var, const, var
from tilewright.ir.functions import atomic_operator
from tilewright.ir.opaque import opened
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Compute, Dim, For, If, Kernel, LoopKind, Opaque, Stmt, View
from tilewright.ir.visit import block, with_nested
from tilewright.schedule.loops.points import lower_point
from tilewright.schedule.loops.tile import tile_extents
from tilewright.schedule.queries.access import over_dims
from tilewright.schedule.queries.dependence import conflict
from tilewright.schedule.queries.place import Place, fresh, rewrite_kernel, rewrite_placed
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import asks, positive
from tilewright.schedule.records.transform import transform


@transform
def open_nests(kernel: Kernel) -> Kernel:
    """Takes away what says of statements that schedules leave them as they are.

        opaque sort reads x writes y:
          for i in 64: ...
    ->  open_nests()
        for i in 64: ...

    Transforms then see the loops and computes inside.
    """
    return opened(kernel)


@transform
@asks(lanes=positive)
def lower_computes(
    kernel: Kernel,
    computes: Sequence[str] | None = None,
    *,
    vector: str | Mapping[str, str] | None = None,
    lanes: int = 1,
    order: Sequence[str] = (),
    unroll: Sequence[str] = (),
    tails: int = 0,
) -> Kernel:
    """Lowers computes without an instruction to loops around a store.

        compute f(i in 4, j in 20): dst[i, j] add= s    (s = src[i, j | j < n])
    ->  lower_computes(vector="j", lanes=16)
        for i in 4:
          for j_o in 2:
            vector for j in 16:
              if j_o*16 + j < 20:
                dst[i, j_o*16 + j] = dst[... | j_o*16 + j < 20] + src[... | j_o*16 + j < 20 and ...]

    ``computes`` names those to lower (default: all). ``vector`` is the dim whose elements are the
    lanes, for all that have it, or a mapping from computes to dims; at most ``lanes`` at a time. It
    must not be reduced. Vectors have a constant length, so a shorter last piece masks lanes; with
    ``tails``, it stands after the others, which then have no masks: in vectors of so many lanes,
    and what is left of them. Loops
    nest as in ``order`` (dims that it leaves out come first, in their own order), the vector
    innermost. Ordered dims come after all others but the vector, in their own order: that of the
    points. Dims in ``unroll`` are unrolled where their extent is constant. A masked operand becomes
    a masked load, a masked output an ``if``. Several results are all evaluated, and
    then stored. A compute that names a function which updates atomically becomes calls of that
    function. What an instruction carries out, and what runs asynchronously, stays as it is. Where
    all are lowered, so are those in opaque nests.
    """
    lowering = _Lowering(vector, lanes, tuple(order), frozenset(unroll), tails)

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if isinstance(stmt, Opaque) and computes is None:
            return with_nested(stmt, (rewrite_placed(stmt.body, place, change),))
        if not isinstance(stmt, Compute):
            return None
        if stmt.instruction is not None and atomic_operator(stmt.instruction) is None:
            return None
        if stmt.completion is not None:
            return None
        if computes is not None and stmt.name not in computes:
            return None
        return lowering.lower(stmt, place)

    return rewrite_kernel(kernel, change)


@dataclass(frozen=True)
class _Lowering:
    vector: str | Mapping[str, str] | None
    lanes: int
    order: tuple[str, ...]
    unroll: frozenset[str]
    tails: int

    def lower(self, compute: Compute, place: Place) -> Stmt:
        lane_dim = self._lane_dim(compute, place)
        rest = [d for d in compute.dims if d is not lane_dim and not d.ordered]
        rest.sort(key=lambda d: self.order.index(d.var.name) if d.var.name in self.order else -1)
        rest += [d for d in compute.dims if d.ordered]
        here = place
        for dim in rest:
            here = here.inside(For(dim.var, dim.extent, compute))
        if lane_dim is None:
            body = lower_point(compute, None, Facts.empty(), here.names)
        else:
            body = self._lanes(compute, lane_dim, here)
        for dim in reversed(rest):
            unrolled = dim.var.name in self.unroll and isinstance(dim.extent, Const)
            kind = LoopKind.UNROLLED if unrolled else LoopKind.SERIAL
            body = For(dim.var, dim.extent, body, kind)
        return body

    def _lane_dim(self, compute: Compute, place: Place) -> Dim | None:
        """The dim to run in lanes, if the compute has it."""
        if self.vector is None or self.lanes == 1:
            return None
        if isinstance(self.vector, str):
            dims = [d for d in compute.dims if d.var.name == self.vector]
            if not dims:
                return None
            dim = dims[0]
        elif compute.name in self.vector:
            # A border of one element has lost its dim.
            dims = [d for d in compute.dims if d.var.name == self.vector[compute.name]]
            if not dims:
                return None
            dim = dims[0]
        else:
            return None
        _check_lanes(compute, dim, place)
        return dim

    def _lanes(self, compute: Compute, dim: Dim, place: Place) -> Stmt:
        """The vector loop over a dim, in pieces of ``lanes``."""
        if isinstance(dim.extent, Const) and int(dim.extent.value) <= self.lanes:
            names = place.names | {dim.var.name}
            body = lower_point(compute, None, Facts.empty(), names)
            return For(dim.var, dim.extent, body, LoopKind.VECTOR)
        lanes = const(self.lanes)
        longest = place.facts.bounds(dim.extent)[1]
        if longest is not None and longest <= self.lanes:
            facts = place.facts.loop(dim.var, lanes)
            names = place.names | {dim.var.name}
            body = lower_point(compute, dim.var < dim.extent, facts, names)
            return For(dim.var, lanes, body, LoopKind.VECTOR)
        outer = var(fresh(f"{dim.var.name}_o", place.names | {dim.var.name}))
        if self.tails and dim.extent % self.lanes is not const(0):
            return self._with_tail(compute, dim, outer, place)
        pieces, extent = tile_extents(dim.extent, self.lanes, outer, place.facts)
        position = outer * self.lanes + dim.var
        inside = over_dims(compute, (), {dim.var: position})
        facts = place.facts.loop(outer, pieces).loop(dim.var, lanes)
        lane = None if extent is lanes else position < dim.extent
        body = lower_point(inside, lane, facts, place.names | {outer.name, dim.var.name})
        vector = For(dim.var, lanes, body, LoopKind.VECTOR)
        unrolled = dim.var.name in self.unroll and isinstance(pieces, Const)
        return For(outer, pieces, vector, LoopKind.UNROLLED if unrolled else LoopKind.SERIAL)

    def _with_tail(self, compute: Compute, dim: Dim, outer: Var, place: Place) -> Stmt:
        """Vectors of all lanes, shorter ones after them, and one of the rest, if there is any."""
        names, pieces = place.names | {outer.name, dim.var.name}, list[Stmt]()
        start: Expr = const(0)
        left: Expr = dim.extent
        for size in sorted({self.lanes, min(self.lanes, self.tails)}, reverse=True):
            lanes, count = const(size), left // size
            facts = place.facts.loop(outer, count).loop(dim.var, lanes)
            inside = over_dims(compute, (), {dim.var: start + outer * lanes + dim.var})
            body = lower_point(inside, None, facts, names)
            if count is not const(0):
                unrolled = dim.var.name in self.unroll and isinstance(count, Const)
                kind = LoopKind.UNROLLED if unrolled else LoopKind.SERIAL
                vector = For(dim.var, lanes, body, LoopKind.VECTOR)
                pieces.append(For(outer, count, vector, kind))
            start, left = dim.extent // size * size, dim.extent % size
        if left is const(0):
            return block(*pieces)
        facts = place.facts.assume(const(0) < left).loop(dim.var, const(size))
        last = over_dims(compute, (), {dim.var: start + dim.var})
        if isinstance(left, Const):
            body = lower_point(last, None, facts, names)
            return block(*pieces, For(dim.var, left, body, LoopKind.VECTOR))
        body = lower_point(last, dim.var < left, facts, names)
        return block(*pieces, If(const(0) < left, For(dim.var, const(size), body, LoopKind.VECTOR)))


def _check_lanes(compute: Compute, dim: Dim, place: Place) -> None:
    """Refuses lanes that come one after the other, or may write one element."""
    if dim.ordered:
        raise refusal(
            f"'{dim.var.name}' is ordered, so it cannot run in lanes",
            compute,
            "choose a dim that is not ordered",
            why="its points come one after the other, and lanes are at once",
        )
    for result in compute.results:
        for view in result.views:
            if dim.var not in mentioned(compute, view):
                raise refusal(
                    f"'{dim.var.name}' is reduced, so it cannot run in lanes",
                    compute,
                    "choose a dim of the output",
                    why=f"all lanes would write {to_text(view)}",
                )
            if dim.var in loading(compute, view) and not result.unique:
                raise refusal(
                    f"'{dim.var.name}' cannot run in lanes",
                    compute,
                    "choose another dim, or promise that places are `unique`",
                    why=f"{to_text(view)} is a loaded place: two lanes may write one element",
                )
            if result.combiner is not None and not _tells_apart(compute, dim, view, place):
                raise refusal(
                    f"'{dim.var.name}' cannot run in lanes",
                    compute,
                    "choose another dim",
                    why=f"two lanes may add to one element of {to_text(view)}",
                )


def _tells_apart(compute: Compute, dim: Dim, view: View, place: Place) -> bool:
    """Whether points that differ along ``dim`` alone combine with different elements of ``view``:
    lanes have the other dims in common."""
    if any(expr is dim.var for expr in view.index):
        return True
    point = replace(compute, dims=())
    for other in compute.dims:
        if other is not dim:
            place = place.inside(For(other.var, other.extent, point))
    access = conflict(For(dim.var, dim.extent, point, LoopKind.VECTOR), place)
    return access is None or access.view.buffer is not view.buffer
