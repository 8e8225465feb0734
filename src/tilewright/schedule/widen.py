"""Partial results of a reduction, one per lane of a vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Const, Expr, Var, const, var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Allocate, Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.visit import block, map_exprs, substitute, variables
from tilewright.schedule.asks import a_plain_compute, asks, positive
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
@asks(compute=a_plain_compute, lanes=positive, copies=positive)
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
    behind whole copies to ``main_vectors``.
    """
    for found, _ in computes_named(kernel, compute, "widen_reduction"):
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


def _check(compute: Compute, dim: str) -> None:
    found = dim_of(compute, dim, "widen_reduction")

    def refusal(what: str, why: str, cure: str) -> ScheduleError:
        return ScheduleError(
            f"widen_reduction: {what}", where=headline(compute), why=why, cure=cure
        )

    if compute.combiner not in ("add", "mul", "max", "min"):
        raise refusal(
            f"'{compute.name}' does not accumulate",
            "its elements would not combine",
            "choose a compute with a combiner",
        )
    if any(found.var in variables(index) for index in compute.out.index):
        raise refusal(
            f"'{dim}' is not reduced",
            f"the output is {to_text(compute.out)}",
            "run it in lanes when the compute is lowered",
        )
    if compute.out.mask is not None:
        raise refusal("the output is masked", "parts would pile up", "widen before padding")
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
        used = frozenset[Var]().union(*(variables(i) for i in compute.out.index))
        kept = tuple(d for d in compute.dims if d.var in used)
        others = tuple(d for d in compute.dims if d is not dim)
        parts = self._buffer(f"{compute.name}_parts", compute, kept, (self.copies, self.lanes))
        sums = self._buffer(f"{compute.name}_lanes", compute, kept, (self.lanes,))
        part, lane = Dim(self.part, const(self.copies)), Dim(self.lane, const(self.lanes))
        step = self.copies * self.lanes
        rounds, rest = divmod(size, step)
        vectors, single = divmod(rest, self.lanes)
        stmts: list[Stmt] = [Allocate(parts), _fill(compute, parts, (*kept, part, lane))]
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
        stmts += [Allocate(sums), _fill(compute, sums, (*kept, lane))]
        stmts.append(_gather(compute, sums, parts, (*kept, lane), (*kept, part, lane)))
        stmts.append(self._across(compute, sums, kept, lane))
        return block(*stmts)

    def _buffer(
        self, name: str, compute: Compute, kept: tuple[Dim, ...], shape: tuple[int, ...]
    ) -> Buffer:
        sizes = (*(size_of(dim) for dim in kept), *shape)
        return buffer(name, compute.out.buffer.dtype, sizes, space=Space.PRIVATE)

    def _piece(
        self,
        compute: Compute,
        name: str,
        parts: Buffer,
        kept: tuple[Dim, ...],
        dims: tuple[Dim, ...],
        value: Expr,
    ) -> Compute:
        """A part of the reduction, with ``value`` for the dim."""
        values: Mapping[Var, Expr] = {dim_of(compute, self.dim, "").var: value}
        moved = map_exprs(replace(compute, dims=()), lambda e: substitute(e, values))
        assert isinstance(moved, Compute)
        out = View(parts, (*(d.var for d in kept), self.part, self.lane))
        return replace(moved, name=name, dims=dims).with_result(out)

    def _across(self, compute: Compute, sums: Buffer, kept: tuple[Dim, ...], lane: Dim) -> Compute:
        x = Operand(var("x", sums.dtype), View(sums, (*(d.var for d in kept), lane.var)))
        return replace(
            compute,
            name=f"{compute.name}_across",
            dims=(*kept, lane),
            operands=(x,),
        ).with_result(body=x.var)


def _fill(compute: Compute, target: Buffer, dims: tuple[Dim, ...]) -> Compute:
    assert compute.combiner is not None
    value = const(neutral(compute.combiner, target.dtype), target.dtype)
    view = View(target, tuple(d.var for d in dims))
    return Compute.single(f"{target.name}_init", dims, view, (), value)


def _gather(
    compute: Compute,
    target: Buffer,
    source: Buffer,
    kept: tuple[Dim, ...],
    dims: tuple[Dim, ...],
) -> Compute:
    """``target`` combined with all of ``source`` that falls on it."""
    x = Operand(var("x", source.dtype), View(source, tuple(d.var for d in dims)))
    view = View(target, tuple(d.var for d in kept))
    return Compute.single(target.name, dims, view, (x,), x.var, compute.combiner)
