"""Partial results of a reduction, one per lane of a vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.computes import addressing, mentioned
from tilewright.ir.expr import Const, Expr, Var, const, var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import (
    Allocate,
    Combiner,
    Compute,
    Dim,
    Kernel,
    Operand,
    Result,
    Stmt,
    View,
)
from tilewright.ir.visit import block, map_exprs, substitute
from tilewright.schedule.asks import a_compute, asks, positive
from tilewright.schedule.place import (
    Place,
    computes_named,
    dim_of,
    fresh,
    rewrite_placed,
    size_of,
    taken_names,
)
from tilewright.schedule.transform import transform


@transform
@asks(compute=a_compute, lanes=positive, copies=positive)
def widen_reduction(kernel: Kernel, compute: str, dim: str, lanes: int, copies: int = 1) -> Kernel:
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
    behind whole copies to ``main_vectors``. Of several results, each has partial ones, called after
    its buffer.
    """
    for found, _ in computes_named(kernel, compute, "widen_reduction", any_kind=True):
        _check(found, dim)
    taken = taken_names(kernel)
    part, lane = (var(fresh(f"{dim}_{name}", taken)) for name in ("part", "lane"))
    widening = _Widening(dim, lanes, copies, part, lane)

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if isinstance(stmt, Compute) and stmt.name == compute:
            return widening.of(stmt)
        return None

    return replace(kernel, body=rewrite_placed(kernel.body, Place(), change))


def neutral(combiner: str, dtype: DType) -> float:
    """What a reduction starts from."""
    match combiner:
        case "max":
            return dtype.lowest
        case "min":
            return dtype.highest
        case _:
            return 1 if combiner == "mul" else 0


def _identities(result: Result) -> tuple[Const, ...]:
    """What the partial results of ``result`` start from, each of its views."""
    how = result.combiner
    if isinstance(how, Combiner):
        return how.identity
    assert how is not None
    dtypes = [view.buffer.dtype for view in result.views]
    return tuple(const(neutral(how, dtype), dtype) for dtype in dtypes)


def _check(compute: Compute, dim: str) -> None:
    found = dim_of(compute, dim, "widen_reduction")

    def refusal(what: str, why: str, cure: str) -> ScheduleError:
        return ScheduleError(
            f"widen_reduction: {what}", where=headline(compute), why=why, cure=cure
        )

    for result in compute.results:
        if result.combiner not in ("add", "mul", "max", "min") and not isinstance(
            result.combiner, Combiner
        ):
            raise refusal(
                f"'{compute.name}' does not accumulate",
                "its elements would not combine",
                "choose a compute with a combiner",
            )
    for view in compute.outputs:
        if found.var in mentioned(compute, view):
            raise refusal(
                f"'{dim}' is not reduced",
                f"the output is {to_text(view)}",
                "run it in lanes when the compute is lowered",
            )
        if view.mask is not None:
            raise refusal("the output is masked", "parts would pile up", "widen before padding")
    if compute.is_ordered or addressing(compute):
        raise refusal(
            "the compute has ordered dims, or places that are loaded",
            "partial results would be combined in another order, or somewhere else",
            "choose a compute whose places its dims say, in any order",
        )
    if any(not isinstance(each.extent, Const) for each in compute.dims):
        raise refusal(
            "the extents are not constant",
            "the partial results are held in registers",
            "widen before tiling, or partition first",
        )


@dataclass(frozen=True)
class _Widening:
    dim: str
    lanes: int
    copies: int
    part: Var
    lane: Var

    def of(self, compute: Compute) -> Stmt:
        """What stands in the place of ``compute``."""
        dim = dim_of(compute, self.dim, "widen_reduction")
        size = size_of(dim)
        used = frozenset[Var]().union(*(mentioned(compute, view) for view in compute.outputs))
        kept = tuple(d for d in compute.dims if d.var in used)
        others = tuple(d for d in compute.dims if d is not dim)
        parts = self._buffers(compute, "parts", kept, (self.copies, self.lanes))
        sums = self._buffers(compute, "lanes", kept, (self.lanes,))
        part, lane = Dim(self.part, const(self.copies)), Dim(self.lane, const(self.lanes))
        step = self.copies * self.lanes
        rounds, rest = divmod(size, step)
        vectors, single = divmod(rest, self.lanes)
        stmts = _begun(compute, parts, f"{compute.name}_parts_init", (*kept, part, lane))
        position = self.part * self.lanes + self.lane
        if rounds:
            loop = Dim(dim.var, const(rounds))
            value = dim.var * step + position
            dims = (*others, loop, part, lane)
            stmts.append(self._piece(compute, compute.name, parts, kept, dims, value))
        if vectors:
            dims = (*others, Dim(self.part, const(vectors)), lane)
            value = position + rounds * step
            stmts.append(self._piece(compute, f"{compute.name}_vectors", parts, kept, dims, value))
        if single:
            dims = (*others, Dim(self.lane, const(single)))
            value = self.lane + (size - single)
            piece = self._piece(compute, f"{compute.name}_rest", parts, kept, dims, value)
            stmts.append(map_exprs(piece, lambda e: substitute(e, {self.part: const(0)})))
        stmts += _begun(compute, sums, f"{compute.name}_lanes_init", (*kept, lane))
        own = tuple(View(each, tuple(d.var for d in (*kept, lane))) for each in sums)
        dims = (*kept, part, lane)
        stmts.append(_combined(compute, f"{compute.name}_lanes", own, parts, dims))
        across = _combined(compute, f"{compute.name}_across", compute.outputs, sums, (*kept, lane))
        stmts.append(across)
        return block(*stmts)

    def _buffers(
        self, compute: Compute, what: str, kept: tuple[Dim, ...], shape: tuple[int, ...]
    ) -> list[Buffer]:
        """The partial results, of each of the compute's."""
        sizes = (*(size_of(dim) for dim in kept), *shape)
        views = compute.outputs
        prefixes = [f"{compute.name}_{view.buffer.name}" for view in views]
        if len(views) == 1:
            prefixes = [compute.name]
        return [
            buffer(f"{prefix}_{what}", view.buffer.dtype, sizes, space=Space.PRIVATE)
            for prefix, view in zip(prefixes, views, strict=True)
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
        return replace(moved, name=name, dims=dims, results=_on(moved.results, out, None))


def _on(
    results: Sequence[Result], views: Sequence[View], values: Sequence[Expr] | None
) -> tuple[Result, ...]:
    """``results`` at other views, those of the first in front, and with other ``values``."""
    found: list[Result] = []
    start = 0
    for old in results:
        stop = start + len(old.views)
        own = old.values if values is None else tuple(values[start:stop])
        found.append(Result(tuple(views[start:stop]), own, old.combiner))
        start = stop
    return tuple(found)


def _begun(
    compute: Compute, targets: Sequence[Buffer], name: str, dims: tuple[Dim, ...]
) -> list[Stmt]:
    """The partial results, and what they start from."""
    index = tuple(d.var for d in dims)
    identities = [each for result in compute.results for each in _identities(result)]
    results = tuple(
        Result((View(target, index),), (value,))
        for target, value in zip(targets, identities, strict=True)
    )
    return [*map(Allocate, targets), Compute(name, dims, (), results)]


def _combined(
    compute: Compute,
    name: str,
    targets: Sequence[View],
    sources: Sequence[Buffer],
    dims: tuple[Dim, ...],
) -> Compute:
    """``targets`` combined with all of ``sources`` that falls on them."""
    index = tuple(d.var for d in dims)
    names = ["x"] if len(sources) == 1 else [f"x{n}" for n in range(1, len(sources) + 1)]
    operands = tuple(
        Operand(var(each, source.dtype), View(source, index))
        for each, source in zip(names, sources, strict=True)
    )
    results = _on(compute.results, targets, [o.var for o in operands])
    return Compute(name, dims, operands, results)
