"""Tiling: loops around the same structured op on sub-views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tilewright.facts.affine import affine
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Expr, Var, const, minimum, var
from tilewright.ir.stmt import Compute, Dim, Kernel, Stmt, View
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.queries.access import over_dims, readdress
from tilewright.schedule.queries.place import (
    Place,
    dim_of,
    fresh,
    holds_loop,
    loop_nest,
    rewrite_computes,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import ordered_layout
from tilewright.schedule.records.asks import a_compute, asks, positive
from tilewright.schedule.records.transform import give, parts_given, transform
from tilewright.simplify import simplify_kernel

Tail = Literal["mask", "apart", "borders"]


@dataclass(frozen=True)
class Split:
    """How a dim was split: ``loop`` is None where one tile holds all, ``inner`` where size is 1.

    A point of the dim is ``value``, in the loop's and the inner dim's variables; the tile begins at
    ``base`` and is at most ``size`` long.
    """

    name: str
    loop: tuple[Var, Expr] | None
    inner: Dim | None
    base: Expr
    value: Expr
    size: int

    def along(self, dim: Dim) -> Split:
        """The same split of ``dim``, of another compute."""
        if self.inner is None:
            return self
        value = dim.var if self.loop is None else self.base + dim.var
        return replace(self, inner=Dim(dim.var, self.inner.extent, dim.ordered), value=value)


@transform
@asks(compute=a_compute, sizes=positive)
def tile(
    kernel: Kernel,
    compute: str,
    sizes: Mapping[str, int],
    order: Sequence[str] = (),
    *,
    tail: Tail = "mask",
) -> Kernel:
    """Tiles the dims in ``sizes``; the loops nest as in ``order`` (outermost first).

        compute f(i in 10, j in 8): ...[i, j]
    ->  tile("f", {"i": 4, "j": 1}, order=["j", "i"])
        for j in 8:
          for i_o in 3:
            compute f(i in min(4, 10 - i_o*4)): ...[i_o*4 + i, j]

    A size of 1 takes the dim out of the compute. A size that holds the whole dim makes no loop, but
    for one tile or none of a dim whose size a call passes. Dims that ``order`` leaves out follow in
    the order of ``sizes``. The loop over tiles of a dim is called like it among the results.

    Of the last tile, ``tail`` says whether it is one of the others, whose length is masked, or
    ``apart`` (see `partition`), so that the others' lengths are numbers; with ``borders``, short
    pieces are written out.
    """
    check_tail(kernel, tail)

    tiled = rewrite_computes(
        kernel, {compute}, lambda stmt, place: tile_compute(stmt, place, sizes, order)
    )
    return kernel if tiled is kernel else with_tail(tiled, sizes, tail)


def check_tail(kernel: Kernel, tail: str) -> None:
    """Refuses a word for tails that no transform knows."""
    if tail not in get_args(Tail):
        raise refusal(
            f"tail={tail!r}",
            kernel,
            "choose one of " + ", ".join(map(repr, get_args(Tail))),
        )


def with_tail(kernel: Kernel, sizes: Mapping[str, int], tail: Tail) -> Kernel:
    """``kernel``, which the running transform tiled by ``sizes``, with the last tiles as ``tail``
    says."""
    if tail == "mask":
        return kernel
    kernel = simplify_kernel(kernel)
    loops = {part: name for part, (_, name) in parts_given().items() if sizes[part] > 1}
    for loop in loops.values():
        if holds_loop(kernel.body, loop):
            kernel = partition(kernel, loop, tail == "borders")
    return kernel


def tile_compute(
    compute: Compute, place: Place, sizes: Mapping[str, int], order: Sequence[str] = ()
) -> Stmt:
    """One compute as loops around itself (see `tile`)."""
    splits = split_dims(compute, place, sizes, order)
    _check_sequence(compute, splits)
    loops = [s.loop for s in splits.values() if s.loop is not None]
    return loop_nest(loops, on_tile(compute, splits))


def split_dims(
    compute: Compute,
    place: Place,
    sizes: Mapping[str, int],
    order: Sequence[str],
    reserved: Iterable[str] = (),
) -> dict[str, Split]:
    """How each dim in ``sizes`` splits, in the order of the loops. Names don't clash."""
    names = {d.var.name for d in compute.dims} | {o.var.name for o in compute.operands}
    taken = {*place.names, *names, *reserved}
    splits: dict[str, Split] = {}
    for name in in_order(compute, sizes, order):
        dim = dim_of(compute, name)
        split = split_dim(dim, sizes[name], place, taken, {*place.names, *reserved})
        if split.loop is not None:
            taken.add(split.loop[0].name)
            give(name, "loop", split.loop[0].name)
        splits[name] = split
    return splits


def in_order(compute: Compute, sizes: Mapping[str, int], order: Sequence[str]) -> tuple[str, ...]:
    """The dims in ``sizes`` as their loops nest: first those that ``order`` names."""
    unknown = [name for name in order if name not in sizes]
    if unknown:
        raise refusal(
            f"the order names '{unknown[0]}', which has no size",
            compute,
            "give it a size or leave it out",
        )
    twice = [name for n, name in enumerate(order) if name in order[:n]]
    if twice:
        raise refusal(f"the order names '{twice[0]}' twice", compute, None)
    return (*order, *(name for name in sizes if name not in order))


def split_dim(dim: Dim, size: int, place: Place, taken: set[str], others: set[str]) -> Split:
    """How one dim splits. Of the names ``taken``, the dim's own is free unless in ``others``."""
    name, extent = dim.var.name, dim.extent
    longest = place.facts.bounds(extent)[1]
    # Of a size that a call passes, one whole tile or none is a loop, so that the tile is a number.
    whole = not isinstance(extent, Const) and place.facts.divisible(extent, size)
    if longest is not None and longest <= size and not whole and (size > 1 or extent is const(1)):
        if size == 1:
            return Split(name, None, None, const(0), const(0), 1)
        return Split(name, None, dim, const(0), dim.var, longest)
    if size == 1:
        # The dim leaves the compute, so that the loop can have its name.
        loop_var = var(fresh(name, taken - {name} | others))
        return Split(name, (loop_var, extent), None, loop_var, loop_var, 1)
    loop_var = var(fresh(f"{name}_o", taken))
    outer, inner = tile_extents(extent, size, loop_var, place.facts)
    base = loop_var * size
    return Split(
        name, (loop_var, outer), Dim(dim.var, inner, dim.ordered), base, base + dim.var, size
    )


def tile_extents(extent: Expr, size: int, loop_var: Var, facts: Facts) -> tuple[Expr, Expr]:
    """How many tiles there are, and how long the one at ``loop_var`` is."""
    if isinstance(extent, Const):
        tiles: Expr = const(-(-int(extent.value) // size))
        whole = int(extent.value) % size == 0
    else:
        tiles = (extent + (size - 1)) // size
        whole = facts.divisible(extent, size)
    return tiles, const(size) if whole else minimum(size, extent - loop_var * size)


def _check_sequence(compute: Compute, splits: Mapping[str, Split]) -> None:
    """Refuses where the points of ordered dims would come in another sequence: loops are outside of
    what is left of the dims, so only the innermost dim that has a loop may keep a part inside."""
    ordered = [dim.var.name for dim in compute.dims if dim.ordered]
    looped = [name for name in splits if splits[name].loop is not None and name in ordered]
    gone = [name for name, split in splits.items() if split.loop is None and split.inner is None]
    ordered = [name for name in ordered if name not in gone]
    whole = [name for name in ordered if name not in looped]
    cut = [name for name in looped if splits[name].inner is not None]
    if looped + whole != ordered or any(name != looped[-1] for name in cut):
        raise refusal(
            f"the ordered dims {', '.join(ordered)} would run in another sequence",
            compute,
            "take the first ones out of the compute (size 1), in their order, and tile the "
            "next one only",
            why="the loops of all of them are outside of what is left in the compute",
        )


def on_tile(compute: Compute, splits: Mapping[str, Split]) -> Compute:
    """``compute`` on the tile: the split dims shortened, or gone where the size is 1."""
    dims: list[Dim] = []
    values: dict[Var, Expr] = {}
    for dim in compute.dims:
        split = splits.get(dim.var.name)
        if split is None:
            dims.append(dim)
            continue
        values[dim.var] = split.value
        if split.inner is not None:
            dims.append(split.inner)
    return over_dims(compute, dims, values)


def rename_dims(compute: Compute, taken: frozenset[str] | set[str]) -> Compute:
    """``compute`` with fresh names for the dims whose names are taken."""
    clashes = [d for d in compute.dims if d.var.name in taken]
    if not clashes:
        return compute
    names = {d.var.name for d in compute.dims} | {o.var.name for o in compute.operands}
    splits: dict[str, Split] = {}
    for dim in clashes:
        new = var(fresh(dim.var.name, names | taken))
        names.add(new.name)
        splits[dim.var.name] = Split(
            dim.var.name, None, Dim(new, dim.extent, dim.ordered), const(0), new, 1
        )
    return on_tile(compute, splits)


def on_tile_of(stmt: Stmt, old: Buffer, tile: Buffer, bases: Sequence[Expr | None]) -> Stmt:
    """``stmt`` on the ``tile`` in the place of ``old``: the bases say of each dim where it begins;
    None: of a dim of one element, anywhere."""

    def view(access: View) -> View:
        index = (
            const(0) if base is None else (affine(at) - affine(base)).to_expr()
            for at, base in zip(access.index, bases, strict=True)
        )
        return View(tile, tuple(index), access.mask)

    return readdress(stmt, old, view)


def tile_of(
    buffer: Buffer,
    sizes: Sequence[int],
    names: Sequence[str],
    storage: Sequence[str],
    space: Space,
) -> Buffer:
    """Memory for a tile of ``buffer``, row-major in the order in which ``storage`` has the
    ``names`` of its dims; those that it leaves out are outermost."""
    places = [storage.index(name) if name in storage else -1 for name in names]
    inner_last = sorted(range(len(sizes)), key=lambda dim: (places[dim], dim))
    return Buffer(buffer.name, buffer.dtype, tuple(sizes), ordered_layout(sizes, inner_last), space)
