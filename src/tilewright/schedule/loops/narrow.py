"""Tiles whose masks leave points out, as long as there are points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.facts.affine import Affine, difference
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, conjuncts, const
from tilewright.ir.stmt import Compute, If, Kernel, Stmt
from tilewright.ir.visit import reads_memory, rewrite_stmts, variables, walk_stmts
from tilewright.schedule.queries.access import accesses, allocates_of_any_size, buffers_allocated
from tilewright.schedule.queries.place import Place, is_called, rewrite_kernel
from tilewright.schedule.records.asks import a_plain_compute, asks, positive
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify


@transform
@asks(compute=a_plain_compute, multiple=positive, producers=a_plain_compute)
def narrow(
    kernel: Kernel, compute: str, dim: str, multiple: int, producers: Sequence[str] = ()
) -> Kernel:
    """Where a mask lets ``compute``, which stores a tile, store only the first points of ``dim``,
    makes no more of the tile than the next ``multiple`` of points.

        compute sum(i in 12, k in 5): acc[i] add= x    (x = src[i, k])
        compute store(i in 12): dst[i | i < 10] = acc[i]
    ->  narrow("store", "i", 1)
        compute sum(i in 10, k in 5): acc[i] add= x    (x = src[i, k])
        compute store(i in 10): dst[i] = acc[i]

    Where a call's numbers say how many they are, what makes the tile is written out for each
    ``multiple`` that may be enough.

        if 0 < n % 16:
          alloc acc: f32[16]
          compute zero(j in 16): acc[j] = 0.0
          compute store(j in 16): c[n - n % 16 + j | j < n % 16] = a    (a = acc[j])
    ->  narrow("store", "j", 8)
        if 0 < n % 16:
          if n % 16 < 9:
            alloc acc: f32[16]
            compute zero(j in 8): acc[j] = 0.0
            compute store(j in 8): c[n - n % 16 + j | j < n % 16] = a    (a = acc[j])
          else:
            alloc acc: f32[16]
            compute zero(j in 16): acc[j] = 0.0
            compute store(j in 16): c[n - n % 16 + j | j < n % 16] = a    (a = acc[j])

    That is done for the outermost statement before which the number is known, and known to be 1 or
    more, and which allocates nothing of a size that a call passes, if all computes in it that have
    such a dim, or the ``producers`` alone, hand on what they make by that dim, in memory of its
    own. Others stay as they are, but for a ``compute`` that stores a constant number of points,
    which no other has to know.
    """

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if allocates_of_any_size(stmt):
            return None
        stores = [s for s in walk_stmts(stmt) if is_called(s, compute)]
        places = {_stored(store, dim) for store in stores}
        if len(places) != 1 or (one := places.pop()) is None:
            return None
        length, number = one
        if reads_memory(number) or not {v.name for v in variables(number)} <= place.names:
            return None
        number = simplify(number, place.facts)
        if place.facts.prove(const(1) <= number) is not True:
            return None
        names = {compute, *producers} if producers else None
        tile = _tile(stmt, place, compute, dim, length, names)
        if isinstance(number, Const):
            most = -(-int(number.value) // multiple) * multiple
            tile = tile or frozenset(s for s in stores if s.instruction is None)
            return _shorter(stmt, tile, dim, most) if most < length else stmt
        return stmt if tile is None else _written_out(stmt, tile, dim, number, length, multiple)

    return rewrite_kernel(kernel, change)


def _stored(compute: Compute, dim: str) -> tuple[int, Expr] | None:
    """How long ``dim`` is, and how many of its first points are stored; None where no mask says
    so."""
    split = next((d for d in compute.dims if d.var.name == dim), None)
    if split is None or not isinstance(split.extent, Const) or len(compute.outputs) != 1:
        return None
    for condition in conjuncts(compute.outputs[0].mask):
        form = difference(condition)
        if form is None or form.terms.get(split.var) != -1:
            continue
        rest = form.plus(Affine({split.var: 1}), 1)
        if all(split.var not in variables(atom) for atom in rest.terms):
            return int(split.extent.value), rest.shifted(1).to_expr()
    return None


def _tile(
    stmt: Stmt, place: Place, compute: str, dim: str, length: int, names: set[str] | None
) -> frozenset[Compute] | None:
    """The computes in ``stmt`` (of those ``names``, if any) that have such a dim; None where what
    they make at some points may be needed at others, or elsewhere."""
    tile = frozenset(
        part
        for part in walk_stmts(stmt)
        if isinstance(part, Compute)
        and (names is None or part.name in names)
        and any(d.var.name == dim and d.extent is const(length) for d in part.dims)
    )
    local = buffers_allocated(stmt)
    buffers = {view.buffer for part in tile if part.name != compute for view in part.outputs}
    if not buffers <= local or any(part.instruction is not None for part in tile):
        return None
    places: set[tuple[Buffer, int]] = set()
    for access in accesses(stmt, place):
        if access.view.buffer not in buffers:
            continue
        if not isinstance(access.stmt, Compute) or access.stmt not in tile:
            return None
        var = next(d.var for d in access.stmt.dims if d.var.name == dim)
        where = [n for n, index in enumerate(access.view.index) if var in variables(index)]
        if len(where) != 1 or access.view.index[where[0]] is not var:
            return None
        places.add((access.view.buffer, where[0]))
    return tile if len(places) == len(buffers) else None


def _written_out(
    stmt: Stmt, tile: frozenset[Compute], dim: str, number: Expr, length: int, multiple: int
) -> Stmt:
    """``stmt`` for each number of points that may be enough."""
    result = stmt
    for most in reversed(range(multiple, length, multiple)):
        result = If(number <= const(most), _shorter(stmt, tile, dim, most), result)
    return result


def _shorter(stmt: Stmt, tile: frozenset[Compute], dim: str, most: int) -> Stmt:
    """``stmt`` with ``most`` points along ``dim`` of the ``tile``."""

    def shorter(part: Stmt) -> Stmt:
        if not isinstance(part, Compute) or part not in tile:
            return part
        dims = (replace(d, extent=const(most)) if d.var.name == dim else d for d in part.dims)
        return replace(part, dims=tuple(dims))

    return rewrite_stmts(stmt, shorter)
