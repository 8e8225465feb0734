"""A reduction in parts of neighbouring points, each with results of its own: work for more threads
than there are results."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.errors import ScheduleError
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, as_size, buffer
from tilewright.ir.computes import mentioned
from tilewright.ir.expr import Const, Expr, Var, const, maximum, minimum, var
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Compute, Dim, Kernel, Stmt, View
from tilewright.schedule.queries.place import (
    computes_named,
    dim_of,
    expanded,
    size_of,
)
from tilewright.schedule.records.asks import a_compute, asks, new_name, positive
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
from tilewright.simplify import simplify


@transform
@asks(compute=a_compute, parts=positive, name=new_name(), multiple=positive, least=positive)
def divide_reduction(
    kernel: Kernel,
    compute: str,
    dim: str,
    parts: int,
    name: str = "piece",
    multiple: int = 1,
    *,
    least: int = 1,
) -> Kernel:
    """Reduces along ``dim`` in ``parts`` parts, and combines what they give in order.

        compute main(i in 8, k in 103): acc[i] add= x    (x = src[i, k])
    ->  divide_reduction("main", "k", 4)
        alloc main_pieces: f32[4, 8]
        compute main_pieces_init(piece in 4, i in 8): main_pieces[piece, i] = 0.0
        compute main(piece in 4, i in 8, k in 25):
          main_pieces[piece, i] add= x    (x = src[i, piece*25 + k])
        compute main_end(i in 8, k in 3): acc[i] add= x    (x = src[i, k + 100])
        compute main_combine(i in 8, piece in 4): acc[i] add= main_pieces[piece, i]

    The parts are of neighbouring points, so that each reads memory that lies together, as many as
    are a ``multiple`` (of those in a cache line). Of a length that a call passes, there are fewer
    parts, one at least, where they would have fewer points than ``least``. The compute may have
    several results and combiners of their own; whatever is in them before takes part.
    (`slice_reduction` does the same to a sum that begins with nothing, for a grid of workgroups.)
    """
    found = computes_named(kernel, compute, "divide_reduction", any_kind=True)
    for each, _ in found:
        check_reduced(each, dim, "divide_reduction")
        extent = dim_of(each, dim, "divide_reduction").extent
        if isinstance(extent, Const) and (size := int(extent.value)) < parts * multiple:
            raise ScheduleError(
                f"divide_reduction: '{dim}' has no {parts} parts",
                where=headline(each),
                why=f"it has {size} points, and a part has {multiple} or more",
                cure="choose fewer parts",
            )
    division = _Division(dim, parts, var(name), multiple, least)
    return expanded(kernel, compute, lambda found, place: division.of(found, place.facts))


@dataclass(frozen=True)
class _Division:
    dim: str
    parts: int
    number: Var
    multiple: int
    least: int

    def of(self, compute: Compute, facts: Facts) -> tuple[Stmt, ...]:
        """What stands in the place of ``compute``."""
        dim = dim_of(compute, self.dim, "divide_reduction")
        used = frozenset[Var]().union(*(mentioned(compute, view) for view in compute.outputs))
        kept = tuple(d for d in compute.dims if d.var in used)
        parts: Expr = const(self.parts)
        if not isinstance(dim.extent, Const):
            # In simplest form at once, as extents are: buffers are as long as dims to the letter.
            most = maximum(dim.extent // self.least, const(1))
            parts = simplify(minimum(most, parts), facts)
        number = Dim(self.number, parts)
        pieces = self._buffers(compute, kept, parts)
        size = dim.extent // parts // self.multiple * self.multiple
        rest = dim.extent - size * parts
        stmts = begun(compute, pieces, f"{compute.name}_pieces_init", (number, *kept))
        index = (self.number, *(d.var for d in kept))
        main = at_points(compute, dim, self.number * size + dim.var, size)
        views = [View(each, index) for each in pieces]
        stmts.append(
            replace(
                main,
                dims=(number, *main.dims),
                results=on_views(main.results, views, None),
            )
        )
        if rest is not const(0):
            left = at_points(compute, dim, dim.var + size * parts, rest)
            stmts.append(replace(left, name=f"{compute.name}_end"))
        dims = (number, *kept)
        whole = combined(compute, f"{compute.name}_combine", compute.outputs, pieces, dims)
        whole = replace(whole, dims=(*kept, number))
        stmts.append(if_there(compute, whole, facts))
        return tuple(stmts)

    def _buffers(self, compute: Compute, kept: tuple[Dim, ...], parts: Expr) -> list[Buffer]:
        sizes = (as_size(parts), *(size_of(dim) for dim in kept))
        named = zip(prefixes(compute), compute.outputs, strict=True)
        return [buffer(f"{name}_pieces", view.buffer.dtype, sizes) for name, view in named]
