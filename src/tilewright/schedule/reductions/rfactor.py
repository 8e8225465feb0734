"""A reduction in parts, each into partial results, and then a reduction of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space, as_size, buffer
from tilewright.ir.expr import Const, Expr, Var, all_of, conjuncts, const, maximum, minimum, var
from tilewright.ir.stmt import Compute, Dim, If, Kernel, Stmt, View
from tilewright.ir.visit import block, map_exprs, map_views, substitute, walk_stmts
from tilewright.schedule.dims.pad import within
from tilewright.schedule.queries.place import (
    computes_named,
    dim_of,
    expanded,
    fresh,
    rewrite_computes,
    size_of,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_compute, asks, new_name, positive
from tilewright.schedule.records.transform import give, transform
from tilewright.schedule.reductions.partial_results import (
    at_points,
    begun,
    check_reduced,
    combined,
    if_there,
    kept_dims,
    on_views,
    part_of,
    prefixes,
)
from tilewright.schedule.reductions.private_parts import in_private_parts
from tilewright.simplify import simplify


@transform
@asks(
    compute=a_compute,
    parts=positive,
    name=new_name(),
    lanes=positive,
    multiple=positive,
    least=positive,
)
def rfactor(
    kernel: Kernel,
    compute: str,
    dim: str,
    parts: int,
    name: str | None = None,
    *,
    lanes: int | None = None,
    multiple: int = 1,
    least: int = 1,
    masked: bool = False,
    private: bool = False,
    atomic: bool = False,
    storage: Sequence[str] = (),
) -> Kernel:
    """Reduces along ``dim`` in ``parts`` parts, and then their partial results, in order.

        compute main(i in 8, k in 103): acc[i] add= x    (x = src[i, k])
    ->  rfactor("main", "k", 4)
        alloc main_pieces: f32[4, 8]
        compute main_pieces_init(piece in 4, i in 8): main_pieces[piece, i] = 0.0
        compute main(piece in 4, i in 8, k in 25):
          main_pieces[piece, i] add= x    (x = src[i, piece*25 + k])
        compute main_end(i in 8, k in 3): acc[i] add= x    (x = src[i, k + 100])
        compute main_combine(i in 8, piece in 4): acc[i] add= main_pieces[piece, i]

    The parts are of neighbouring points, so that each reads memory that lies together, as many as
    are a ``multiple`` (of those in a cache line). ``name`` is the dim that counts them. Of a length
    that a call passes, there are fewer parts, one at least, where they would have fewer points than
    ``least``. The compute may have several results and combiners of their own; whatever is in them
    before takes part. What the partial results begin with is ``begin`` among the results of the
    step, what combines them, ``combine``.

    With ``lanes``, neighbours are partial results: the lanes of ``parts`` vectors, which shorten
    the chain of dependent operations.

        compute main(k in 136): acc[0] add= x    (x = src[i, k])
    ->  rfactor("main", "k", 4, lanes=16)
        alloc main_parts: f32[4, 16] private
        compute main_parts_init(k_part in 4, k_lane in 16): main_parts[k_part, k_lane] = 0.0
        compute main(k in 2, k_part in 4, k_lane in 16):
          main_parts[k_part, k_lane] add= x    (x = src[i, k*64 + k_part*16 + k_lane])
        compute main_rest(k_lane in 8): main_parts[0, k_lane] add= x    (x = src[i, k_lane + 128])
        alloc main_lanes: f32[16] private
        compute main_lanes_init(k_lane in 16): main_lanes[k_lane] = 0.0
        compute main_lanes(k_lane in 16, k_part in 4): main_lanes[k_lane] add= main_parts[...]
        compute main_across(k_lane in 16): acc[0] add= main_lanes[k_lane]

    The other dims of the compute stay; the partial results have those that the output depends on.
    What is left of ``dim`` after whole vectors goes to the first lanes of ``main_rest``, what is
    left after whole rounds to ``main_vectors``; of a length that a call passes, to the first part.
    Of several results, each has partial ones, called after its buffer. With ``masked``,
    ``main_rest`` has all lanes, of which those after the end do nothing, for vectors that would be
    no registers if they were written in part; what a call may pass no rest for stands under a
    condition, so that nothing waits for masks then. A single element goes straight to the result.

    With ``private``, parts accumulate in memory of their own, for a grid of workgroups, and are
    stored; the result begins after that. Their parts divide ``dim``. Among the results of the step,
    ``store`` stores them, ``begin`` is what the result begins with, and ``combine`` adds them up.

        alloc acc: f32[8]
        compute init(i in 8): acc[i] = 0.0
        compute main(i in 8, k in 100): acc[i] add= x    (x = src[i, k])
    ->  rfactor("main", "k", 4, "slice", private=True)
        alloc acc_parts: f32[4, 8]
        alloc acc_slice: f32[4, 8] private
        compute init(slice in 4, i in 8): acc_slice[slice, i] = 0.0
        compute main(slice in 4, i in 8, k in 25):
          acc_slice[slice, i] add= x    (x = src[i, slice*25 + k])
        compute slice_store(slice in 4, i in 8): acc_parts[slice, i] = acc_slice[slice, i]
        alloc acc: f32[8]
        compute slice_init(i in 8): acc[i] = 0.0
        compute slice_sum(i in 8, slice in 4): acc[i] add= x    (x = acc_parts[slice, i])

    The compute and the one that initializes its result stand in one block, one after the other. In
    memory parts lie in the order of the dims in ``storage`` (innermost last; others are outermost).
    With ``atomic`` besides, they are added to the one result as they come, without memory for each:

    ->  rfactor("main", "k", 4, "slice", private=True, atomic=True)
        alloc acc: f32[8]
        compute slice_zero(i in 8): acc[i] = 0.0
        alloc acc_slice: f32[4, 8] private
        compute init(slice in 4, i in 8): acc_slice[slice, i] = 0.0
        compute main(slice in 4, i in 8, k in 25): ...
        compute slice_store<atomic_add>(slice in 4, i in 8): acc[i] add= acc_slice[slice, i]

    Their order is then another in each run, and so is what rounding makes of a sum of floats.
    """
    for stmt, _ in computes_named(kernel, compute, any_kind=not private):
        check_reduced(stmt, dim)
        if lanes is None:
            _check_size(stmt, dim, parts, multiple)
    taken = taken_names(kernel)
    number = var(name or fresh("piece", taken))
    if private:
        return in_private_parts(kernel, compute, dim, (number, parts), storage, atomic)
    if lanes is None:
        neighbours = _Neighbours(dim, parts, number, multiple, least, _again(kernel, compute))
        return expanded(kernel, compute, lambda stmt, place: neighbours.of(stmt, place.facts))
    part, lane = (var(fresh(f"{dim}_{what}", taken)) for what in ("part", "lane"))
    widened = _Lanes(dim, Dim(part, const(parts)), Dim(lane, const(lanes)), masked)
    # In a block of their own: registers live no longer than that.
    return rewrite_computes(
        kernel, {compute}, lambda stmt, place: block(*widened.of(stmt, place.facts))
    )


def _again(kernel: Kernel, compute: str) -> str:
    """What tells the parts of ``compute`` from those that it was divided in before."""
    times = 1
    taken = {stmt.name for stmt in walk_stmts(kernel.body) if isinstance(stmt, Compute)}
    while f"{compute}_combine{_numbered(times)}" in taken:
        times += 1
    return _numbered(times)


def _numbered(times: int) -> str:
    return str(times) if times > 1 else ""


def _check_size(compute: Compute, dim: str, parts: int, multiple: int) -> None:
    """Refuses more parts than there are points for."""
    extent = dim_of(compute, dim).extent
    if isinstance(extent, Const) and int(extent.value) < parts * multiple:
        raise refusal(
            f"'{dim}' has no {parts} parts",
            compute,
            "choose fewer parts",
            why=f"it has {extent.value} points, and a part has {multiple} or more",
        )


def _buffers(
    compute: Compute, what: str, sizes: Sequence[int | Expr], space: Space
) -> list[Buffer]:
    """Partial results of each of the compute's results."""
    named = zip(prefixes(compute), compute.outputs, strict=True)
    return [buffer(f"{name}_{what}", view.buffer.dtype, sizes, space=space) for name, view in named]


def _views(buffers: Sequence[Buffer], dims: Sequence[Dim]) -> list[View]:
    return [View(memory, tuple(d.var for d in dims)) for memory in buffers]


@dataclass(frozen=True)
class _Neighbours:
    """Parts of neighbouring points, and a rest that goes to the result itself."""

    dim: str
    parts: int
    number: Var
    multiple: int
    least: int
    again: str

    def of(self, compute: Compute, facts: Facts) -> tuple[Stmt, ...]:
        """What stands in the place of ``compute``."""
        dim, kept = dim_of(compute, self.dim), kept_dims(compute)
        parts: Expr = const(self.parts)
        if not isinstance(dim.extent, Const):
            # In simplest form at once, as extents are: buffers are as long as dims to the letter.
            most = maximum(dim.extent // self.least, const(1))
            parts = simplify(minimum(most, parts), facts)
        size = dim.extent // parts // self.multiple * self.multiple
        rest = dim.extent - size * parts
        counted = (Dim(self.number, parts), *kept)
        sizes = (as_size(parts), *map(size_of, kept))
        begin, combine, end = (
            f"{compute.name}_{what}"
            for what in (f"pieces{self.again}_init", f"combine{self.again}", f"end{self.again}")
        )
        pieces = _buffers(compute, f"pieces{self.again}", sizes, Space.GLOBAL)
        views = _views(pieces, counted)
        stmts = begun(compute, pieces, begin, counted)
        stmts.append(part_of(compute, dim, counted[0], size, views))
        if rest is not const(0):
            left = at_points(compute, dim, dim.var + size * parts, rest)
            stmts.append(replace(left, name=end))
        dims = (*kept, counted[0])
        give("begin", "compute", begin)
        give("combine", "compute", combine)
        whole = combined(compute, combine, compute.outputs, views, dims)
        return (*stmts, if_there(compute, whole, facts))


@dataclass(frozen=True)
class _Lanes:
    """Vectors of neighbours, so many in turn, of which lanes are partial results."""

    dim: str
    part: Dim
    lane: Dim
    masked: bool

    def of(self, compute: Compute, facts: Facts) -> tuple[Stmt, ...]:
        """What stands in the place of ``compute``."""
        kept = kept_dims(compute)
        sizes = (*map(size_of, kept), size_of(self.part), size_of(self.lane))
        parts = _buffers(compute, "parts", sizes, Space.PRIVATE)
        sums = _buffers(compute, "lanes", (*sizes[:-2], sizes[-1]), Space.PRIVATE)
        counted, lanes = (*kept, self.part, self.lane), (*kept, self.lane)
        into, across = _views(parts, counted), _views(sums, lanes)
        give("combine", "compute", f"{compute.name}_across")
        return (
            *begun(compute, parts, f"{compute.name}_parts_init", counted),
            *self._portions(compute, into, facts),
            *begun(compute, sums, f"{compute.name}_lanes_init", lanes),
            combined(compute, f"{compute.name}_lanes", across, into, (*kept, self.part, self.lane)),
            if_there(
                compute,
                combined(compute, f"{compute.name}_across", compute.outputs, across, lanes),
                facts,
            ),
        )

    def _portions(self, compute: Compute, into: Sequence[View], facts: Facts) -> list[Stmt]:
        """Whole rounds of all vectors, then the vectors that are left, then the elements."""
        dim = dim_of(compute, self.dim)
        others = tuple(d for d in compute.dims if d is not dim)
        part, lane, size = self.part, self.lane, dim.extent
        lanes = size_of(lane)
        step = size_of(part) * lanes
        rounds, vectors, single = size // step, size % step // lanes, size % lanes
        stmts: list[Stmt] = []

        def portion(what: str, inner: tuple[Dim, ...], value: Expr) -> Compute:
            moved = at_points(compute, dim, value, const(1))
            results = on_views(moved.results, into, None)
            return replace(
                moved, name=f"{compute.name}{what}", dims=(*others, *inner), results=results
            )

        position = part.var * lanes + lane.var
        if rounds is not const(0):
            inner: tuple[Dim, ...] = (Dim(dim.var, rounds), part, lane)
            stmts.append(portion("", inner, dim.var * step + position))
        if isinstance(vectors, Const) and vectors is not const(0):
            inner = (Dim(part.var, vectors), lane)
            stmts.append(portion("_vectors", inner, position + rounds * step))
        elif vectors is not const(0):
            # Which of the partial results are registers has to be known: all go to the first.
            value = dim.var * lanes + lane.var + rounds * step
            piece = portion("_vectors", (Dim(dim.var, vectors), lane), value)
            stmts.append(self._of_the_first(piece))
        if self.masked and single is const(1):
            last = at_points(compute, dim, size - 1, 1)
            stmts.append(replace(last, name=f"{compute.name}_rest"))
        elif single is not const(0):
            inner = (lane if self.masked else Dim(lane.var, single),)
            rest = self._of_the_first(portion("_rest", inner, lane.var + (size - single)))
            stmts.append(_where(lane.var, single, rest, facts) if self.masked else rest)
        return stmts

    def _of_the_first(self, piece: Compute) -> Stmt:
        """``piece`` on the first of the vectors."""
        return map_exprs(piece, lambda e: substitute(e, {self.part.var: const(0)}))


def _where(lane: Var, number: Expr, piece: Stmt, facts: Facts) -> Stmt:
    """``piece`` on the first ``number`` of its lanes, if there are some: what it reads in any case
    has no mask."""
    assert isinstance(piece, Compute)
    inside = facts
    for dim in piece.dims:
        inside = inside.loop(dim.var, dim.extent)

    def masked(view: View) -> View:
        if view not in piece.outputs and within(view, inside):
            return view
        return replace(view, mask=all_of((lane < number, *conjuncts(view.mask))))

    stmt, some = map_views(piece, masked), const(0) < number
    return stmt if facts.prove(some) is True else If(some, stmt)
