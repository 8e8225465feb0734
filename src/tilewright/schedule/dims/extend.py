"""Longer dims of a result and of all that makes it, so that every tile is whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, as_size, row_major
from tilewright.ir.expr import Const, Expr, Var, as_expr, const
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.visit import variables
from tilewright.schedule.dims.pad import within
from tilewright.schedule.queries.access import Access, accesses, masked, readdress
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    plain,
    rewrite_placed,
    walk_placed,
)
from tilewright.schedule.records.asks import a_plain_compute, asks, positive
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify


@transform
@asks(root=a_plain_compute, multiples=positive)
def extend(
    kernel: Kernel,
    root: str,
    extents: Mapping[str, int] = MappingProxyType({}),
    *,
    multiples: Mapping[str, int] = MappingProxyType({}),
) -> Kernel:
    """Extends dims of the compute ``root``, which stores a result, and of its producers: to
    ``extents``, or to the next of ``multiples``, where an extent need not be a number.

        alloc acc: f32[10]
        compute zero(i in 10): acc[i] = 0.0
        compute sum(i in 10, k in 5): acc[i] add= x    (x = src[i, k])
        compute store(i in 10): dst[i] = acc[i]
    ->  extend("store", {"i": 12})
        alloc acc: f32[12]
        compute zero(i in 12): acc[i] = 0.0
        compute sum(i in 12, k in 5): acc[i] add= x    (x = src[i, k | i < 10])
        compute store(i in 12): dst[i | i < 10] = acc[i]

    The producers stand in the block of the root, have the dims by the same names, and hand their
    results on in buffers of that block, which grow: what is there beyond the old extent is never
    stored.
    """
    found, place = computes_named(kernel, root, "extend")[0]
    old = {d.var.name: d for d in found.dims if d.var.name in {*extents, *multiples}}
    for name, extent in extents.items():
        length = old[name].extent if name in old else None
        if not isinstance(length, Const):
            raise _refusal(found, f"it has no dim '{name}' of constant extent")
        if int(length.value) > extent:
            raise _refusal(found, f"'{name}' is longer than {extent} already")
    longer: dict[str, Expr] = {
        name: const(extent)
        for name, extent in extents.items()
        if old[name].extent is not const(extent)
    }
    for name, by in multiples.items():
        if name not in old:
            raise _refusal(found, f"it has no dim '{name}'")
        if name in extents:
            raise _refusal(found, f"'{name}' is to have an extent, and a multiple")
        if not place.facts.divisible(old[name].extent, by):
            longer[name] = simplify((old[name].extent + (by - 1)) // by * by, place.facts)
    if not longer:
        return kernel
    local = _local_buffers(kernel, found, longer)
    names = {
        s.name
        for s, _ in walk_placed(kernel.body, Place())
        if isinstance(s, Compute)
        and (s is found or any(view.buffer in local for view in s.outputs))
    }

    def change(stmt: Stmt, here: Place) -> Stmt | None:
        if isinstance(stmt, Compute) and stmt.name in names:
            return _extended(plain(stmt, "extend"), here, longer, old, local)
        return None

    body = rewrite_placed(kernel.body, Place(), change)
    for buffer in local:
        body = _grown(body, buffer, found, longer)
    return replace(kernel, body=body)


def _refusal(compute: Compute, what: str) -> ScheduleError:
    return ScheduleError(
        f"extend: {what}",
        where=headline(compute),
        cure="extend the compute that stores a result, before it is tiled",
    )


def _local_buffers(kernel: Kernel, root: Compute, names: Collection[str]) -> list[Buffer]:
    """The buffers through which the root's producers hand their results on to it, and which can
    grow: all that touches them are computes that index them by the dims in the same places."""
    for stmt, place in walk_placed(kernel.body, Place()):
        if isinstance(stmt, Block) and any(part is root for part in stmt.body):
            allocated = {s.buffer for s in stmt.body if isinstance(s, Allocate)}
            read = dict.fromkeys(o.view.buffer for o in root.operands)
            found = list(accesses(stmt, place))
            return [b for b in read if b in allocated and _grows(b, found, names)]
    return []


def _grows(buffer: Buffer, found: list[Access], names: Collection[str]) -> bool:
    places = {_places(access, names) for access in found if access.view.buffer is buffer}
    return len(places) == 1 and None not in places


def _places(access: Access, names: Collection[str]) -> tuple[int, ...] | None:
    """Which dim of the buffer each of the dims called ``names`` indexes, alone (-1: none); None
    where some index is of another form."""
    if not isinstance(access.stmt, Compute):
        return None
    places: list[int] = []
    for name in names:
        own = next((d.var for d in access.stmt.dims if d.var.name == name), None)
        using = [i for i, e in enumerate(access.view.index) if name in _names(e)]
        if using and (len(using) > 1 or own is None or access.view.index[using[0]] is not own):
            return None
        places.append(using[0] if using else -1)
    return tuple(places)


def _names(index: Expr) -> set[str]:
    return {v.name for v in variables(index)}


def _extended(
    compute: Compute,
    place: Place,
    extents: Mapping[str, Expr],
    old: Mapping[str, Dim],
    local: list[Buffer],
) -> Compute:
    if compute.instruction is not None:
        raise _refusal(compute, "an instruction has its dims")
    dims: list[Dim] = []
    inside: dict[Var, Expr] = {}
    for dim in compute.dims:
        extent = extents.get(dim.var.name)
        if extent is None or dim.extent is extent:
            dims.append(dim)
            continue
        if dim.extent is not old[dim.var.name].extent:
            raise _refusal(compute, f"its '{dim.var.name}' is not as long as the result's")
        if not any(dim.var in variables(index) for index in compute.out.index):
            raise _refusal(compute, f"'{dim.var.name}' is reduced: the surplus would count")
        dims.append(Dim(dim.var, extent))
        inside[dim.var] = dim.var < dim.extent
    facts = place.facts_with(dims)

    def within_old(view: View) -> View:
        used = frozenset[Var]().union(*(variables(e) for e in view.index))
        conditions = [condition for v, condition in inside.items() if v in used]
        if view.buffer in local or not conditions:
            return view
        return masked(view, *conditions)

    operands = tuple(
        o if within(o.view, facts) else Operand(o.var, within_old(o.view)) for o in compute.operands
    )
    return replace(compute, dims=tuple(dims), operands=operands).with_result(
        within_old(compute.out)
    )


def _grown(body: Stmt, old: Buffer, root: Compute, extents: Mapping[str, Expr]) -> Stmt:
    """``body`` with room in ``old`` for the dims that index it."""
    view = next(o.view for o in root.operands if o.view.buffer is old)
    shape = tuple(
        as_size(extents.get(index.name, as_expr(size))) if isinstance(index, Var) else size
        for size, index in zip(old.sizes, view.index, strict=True)
    )
    new = Buffer(old.name, old.dtype, shape, row_major(shape), old.space)
    return readdress(body, old, lambda v: View(new, v.index, v.mask))
