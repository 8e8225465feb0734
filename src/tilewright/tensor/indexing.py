"""Gathers, scatters, and slices at places that are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dtypes import boolean, s64
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, all_of, as_expr, cast, const, minimum, select
from tilewright.ir.load import load
from tilewright.ir.stmt import Dim, Result, View
from tilewright.problems.functions import clamped
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert
from tilewright.tensor.places import axes, axis, guarded
from tilewright.tensor.reductions import NAMED, Combine, assigned
from tilewright.tensor.tensor import Builder, Tensor, described, domain


def place_in(index: Expr, size: int) -> Expr:
    """A place along a dim of ``size``; negative ones count from the end, and what lies outside is
    moved inside, so that no other memory is touched."""
    place = cast(s64, index)
    if index.type.kind == "int":
        place = select(place < 0, place + size, place)
    return clamped(place, 0, max(0, size - 1))


def taken(tensor: Tensor, shape: Sequence[int], index: Sequence[Expr]) -> Tensor:
    """The elements of ``tensor`` at ``index``, in memory of their own."""
    builder = tensor.builder
    if 0 in shape or not tensor.elements:
        return builder.tensor(builder.checked(shape), const(0, tensor.dtype))
    elements = builder.tensor(builder.checked(shape), tensor.at(*index))
    return builder.materialize(elements, builder.named("gather"))


def places_along(indices: Tensor, shape: Sequence[int], dim: int) -> list[Expr]:
    """For each of ``indices`` its own place in ``shape``, but along ``dim`` what it says
    (`place_in`)."""
    places: list[Expr] = [*axes(len(shape))]
    places[dim] = place_in(indices.value, shape[dim])
    return places


@dataclass(frozen=True)
class Windows:
    """How windows of a tensor are addressed, as StableHLO's gather and scatter say it.

    Of the windowed tensor (the gathered result, the updates), ``window`` are the dims within a
    window; the others count windows, as the dims of the indices but ``vector`` do. Of the tensor
    that the windows lie in, ``collapsed`` dims have one element a window and no dim in it,
    ``batching`` dims are those of the indices in ``index_batching``, and ``addressed[k]`` is the
    dim that number ``k`` of an index vector is about.
    """

    window: tuple[int, ...] = ()
    collapsed: tuple[int, ...] = ()
    addressed: tuple[int, ...] = ()
    vector: int = 0
    batching: tuple[int, ...] = ()
    index_batching: tuple[int, ...] = ()


def gather(tensor: Tensor, indices: Tensor, windows: Windows, sizes: Sequence[int]) -> Tensor:
    """Windows of ``sizes`` (one for each dim of ``tensor``) at ``indices``. A window that would
    begin outside is moved inside."""
    builder = tensor.builder
    _check(tensor, indices, windows)
    kept = _kept(tensor, windows)
    if len(sizes) != tensor.rank or any(
        not 0 <= size <= whole for size, whole in zip(sizes, tensor.shape, strict=True)
    ):
        raise builder.refuse(
            f"windows of {list(sizes)} in {described(tensor)}", "give each a size within its dim"
        )
    for n in (*windows.collapsed, *windows.batching):
        if sizes[n] > 1:
            raise builder.refuse(
                f"windows are {sizes[n]} long in dim {n}, which they do not have",
                "give such dims size 1, or keep them",
            )
    counts = _counts(indices, windows)
    rank = len(counts) + len(kept)
    inner = iter([sizes[n] for n in kept])
    outer = iter(counts)
    if any(not 0 <= n < rank for n in windows.window) or len(windows.window) != len(kept):
        raise builder.refuse(
            f"windows have {len(kept)} dims, placed at {list(windows.window)}",
            "say where each of them is in the result",
        )
    shape = [next(inner) if n in windows.window else next(outer) for n in range(rank)]
    if 0 in shape:
        return builder.tensor(shape, const(0, tensor.dtype))
    starts = _starts(tensor, indices, windows, [axis(n) for n in range(rank)], rank)
    index: list[Expr] = []
    for n, size in enumerate(tensor.shape):
        place: Expr = const(0)
        if n in starts:
            place = within(starts[n], size - sizes[n])
        if n in kept:
            place = place + axis(windows.window[kept.index(n)])
        elif n in windows.batching:
            place = _batch_axis(indices, windows, windows.batching.index(n), rank)
        index.append(place)
    gathered = tensor.viewed(shape, index)
    if gathered.buffer is not None:
        return gathered
    return builder.materialize(gathered, builder.named("gather"))


def scatter(
    tensors: Sequence[Tensor],
    indices: Tensor,
    updates: Sequence[Tensor],
    windows: Windows,
    combiner: str | Combine | None,
    *,
    unique: bool = False,
    whole_windows: bool = False,
) -> tuple[Tensor, ...]:
    """``tensors`` with ``updates`` combined in at ``indices``; what lies outside is dropped, with
    ``whole_windows`` all of the window then.

    ``combiner`` is a name (`reductions.NAMED`), None (the update replaces what is there), or a
    function of old and new tuples. Without a name, updates come in row-major order, unless they
    are ``unique``: no place comes twice.
    """
    builder, first = tensors[0].builder, tensors[0]
    builder.check_tensors(*tensors, *updates)
    _check(first, indices, windows)
    kept, shape = _kept(first, windows), updates[0].shape
    _check_updates(tensors, indices, updates, windows)
    name = builder.named("scatter")
    memory = [_copied(builder, tensor, name) for tensor in tensors]
    if 0 in shape:
        return tuple(map(builder.whole, memory))
    rank = len(shape)
    starts = _starts(first, indices, windows, [axis(n) for n in range(rank)], rank)
    index: list[Expr] = []
    conditions: list[Expr] = []
    for n, size in enumerate(first.shape):
        place: Expr = const(0)
        extent = 1
        if n in kept:
            along = windows.window[kept.index(n)]
            place, extent = axis(along), shape[along]
        elif n in windows.batching:
            place = _batch_axis(indices, windows, windows.batching.index(n), rank)
        if n in starts:
            start = starts[n]
            reach = extent if whole_windows else 1
            held = start if whole_windows else start + place
            conditions += [held >= 0, held <= size - reach]
            place = start + place
        index.append(place)
    inside = all_of(conditions)
    _update(builder, name, memory, updates, tuple(index), inside, combiner, unique)
    return tuple(map(builder.whole, memory))


def _update(
    builder: Builder,
    name: str,
    memory: Sequence[Buffer],
    updates: Sequence[Tensor],
    index: tuple[Expr, ...],
    inside: Expr | None,
    combiner: str | Combine | None,
    unique: bool,
) -> None:
    """Emits the compute that puts updates in their places."""
    shape = updates[0].shape
    views = [View(buffer, index, inside) for buffer in memory]
    values = [update.value for update in updates]
    if isinstance(combiner, str):
        if combiner not in NAMED:
            cure = "use one of " + ", ".join(NAMED) + ", or give a function"
            raise builder.refuse(f"{combiner!r} combines no values", cure)
        dims = tuple(Dim(axis(n), as_expr(size)) for n, size in enumerate(shape))
        results = [Result((v,), (x,), combiner) for v, x in zip(views, values, strict=True)]
        builder.compute(name, dims, results)
        return
    in_order = not unique
    dims = tuple(Dim(axis(n), as_expr(size), in_order) for n, size in enumerate(shape))
    if combiner is not None:
        old = [load(buffer, index, inside) for buffer in memory]
        values = list(combiner(old, values))
    stored = assigned(builder, memory, index, values)
    builder.compute(
        name,
        dims,
        [
            Result(
                tuple(View(v.buffer, v.index, inside) for v in result.views),
                result.values,
                None,
                unique,
            )
            for result in stored
        ],
    )


_OF_TRUTHS = {"add": "or", "max": "or", "mul": "and", "min": "and"}


def updated(
    x: Tensor,
    places: Sequence[Expr],
    source: Tensor,
    combiner: str | None,
    inside: Expr | None = None,
) -> Tensor:
    """A copy of ``x`` in which elements at ``places`` (of ``source``'s dims) are combined with
    ``source``, or replaced by it: where several meet, by one of them. Only those ``inside``."""
    builder = x.builder
    if not source.elements or not x.elements:
        return x
    if x.dtype is boolean and combiner is not None:
        combiner = _OF_TRUTHS[combiner]
    type_ = accumulator_for(x.dtype) if combiner == "add" else x.dtype
    name = builder.named("scatter")
    memory = builder.allocate(name, type_, x.shape)
    builder.store(memory, convert(x, type_), f"{name}_start")
    view = View(memory, tuple(places), inside)
    value = convert(source, type_).value
    result = Result((view,), (value,), combiner, unique=combiner is None)
    builder.compute(name, domain(source.shape), (result,))
    return convert(builder.whole(memory), x.dtype)


def dynamic_slice(tensor: Tensor, starts: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """``sizes`` elements from ``starts`` (rank 0), moved so that all are within."""
    builder = tensor.builder
    _check_slices(tensor, starts, sizes)
    if 0 in sizes:
        return builder.tensor(sizes, const(0, tensor.dtype))
    index = [
        axis(n) + within(start.value, whole - size)
        for n, (start, whole, size) in enumerate(zip(starts, tensor.shape, sizes, strict=True))
    ]
    return builder.materialize(tensor.viewed(sizes, index), builder.named("slice"))


def dynamic_update_slice(tensor: Tensor, update: Tensor, starts: Sequence[Tensor]) -> Tensor:
    """``tensor`` with ``update`` from ``starts`` (rank 0) on, moved so that all of it is within."""
    builder = tensor.builder
    builder.check_tensors(tensor, update)
    if update.dtype is not tensor.dtype or update.rank != tensor.rank:
        raise builder.refuse(
            f"{described(update)} in {described(tensor)}", "give both one type and rank"
        )
    _check_slices(tensor, starts, update.shape)
    if 0 in update.shape:
        return tensor
    if update.shape == tensor.shape:
        return update
    index: list[Expr] = []
    conditions: list[Expr] = []
    for n, (start, whole, size) in enumerate(zip(starts, tensor.shape, update.shape, strict=True)):
        first = within(start.value, whole - size)
        place = axis(n) - first
        if size < whole:
            conditions += [place >= 0, place < size]
        index.append(place)
    inside = all_of(conditions)
    if inside is None:
        return update
    value = select(inside, guarded(update.at(*index), inside, const(0, update.dtype)), tensor.value)
    return builder.materialize(builder.tensor(tensor.shape, value), builder.named("update"))


def take(tensor: Tensor, indices: Tensor, dim: int) -> Tensor:
    """Slices of ``tensor`` along ``dim`` at ``indices`` (`place_in`), whose dims come in place of
    it."""
    rank, shape = indices.rank, tensor.shape
    place = place_in(indices.at(*(axis(dim + n) for n in range(rank))), shape[dim])
    after = (axis(n + rank - 1) for n in range(dim + 1, tensor.rank))
    return taken(
        tensor, (*shape[:dim], *indices.shape, *shape[dim + 1 :]), [*axes(dim), place, *after]
    )


def within(index: Expr, last: int) -> Expr:
    """``index`` as a place from 0 to ``last``: the nearest one."""
    if last <= 0:
        return const(0)
    if index.type.kind == "uint":
        top = min(last, int(index.type.highest))
        return cast(s64, minimum(index, const(top, index.type)))
    return clamped(cast(s64, index), 0, last)


def _kept(tensor: Tensor, windows: Windows) -> list[int]:
    """The dims of ``tensor`` that are dims of windows, in order."""
    return [n for n in range(tensor.rank) if n not in (*windows.collapsed, *windows.batching)]


def _counts(indices: Tensor, windows: Windows) -> list[int]:
    """How many windows there are along each dim of the indices."""
    return [size for n, size in enumerate(indices.shape) if n != windows.vector]


def _outer(windows: Windows, rank: int) -> list[int]:
    """The dims of the windowed tensor that count windows."""
    return [n for n in range(rank) if n not in windows.window]


def _starts(
    tensor: Tensor, indices: Tensor, windows: Windows, places: Sequence[Expr], rank: int
) -> dict[int, Expr]:
    """Where a window begins in each dim that indices address."""
    outer = [places[n] for n in _outer(windows, rank)]
    starts: dict[int, Expr] = {}
    for number, n in enumerate(windows.addressed):
        index = list(outer)
        if windows.vector < indices.rank:
            index.insert(windows.vector, const(number))
        start = indices.at(*index)
        # One of 64 bits without sign may be too great for s64: it is outside in any case.
        starts[n] = within(start, 2**62) if start.type.name == "u64" else cast(s64, start)
    return starts


def _batch_axis(indices: Tensor, windows: Windows, number: int, rank: int) -> Expr:
    """The place along a batching dim."""
    dim = windows.index_batching[number]
    position = dim - (1 if windows.vector < dim else 0)
    return axis(_outer(windows, rank)[position])


def _copied(builder: Builder, tensor: Tensor, name: str) -> Buffer:
    """New memory with the contents of ``tensor``."""
    memory = builder.allocate(name, tensor.dtype, tensor.shape)
    builder.store(memory, tensor, f"{name}_copy")
    return memory


def _check(tensor: Tensor, indices: Tensor, windows: Windows) -> None:
    builder = tensor.builder
    builder.check_tensors(tensor, indices)
    named = (*windows.collapsed, *windows.batching)
    vector = indices.shape[windows.vector] if 0 <= windows.vector < indices.rank else 1
    faults = (
        (not indices.dtype.is_integer, "indices that are no integers"),
        (not 0 <= windows.vector <= indices.rank, f"index vectors along dim {windows.vector}"),
        (len(windows.addressed) != vector, f"index vectors of {vector} numbers"),
        (len(set(windows.addressed)) < len(windows.addressed), "a dim that is addressed twice"),
        (len(set(named)) < len(named), "a dim that is left out twice"),
        (len(windows.batching) != len(windows.index_batching), "batching dims without partners"),
        (
            any(not 0 <= n < tensor.rank for n in (*named, *windows.addressed)),
            "dims that are not there",
        ),
        (
            any(not 0 <= n < indices.rank or n == windows.vector for n in windows.index_batching),
            "batching dims of the indices that are not there",
        ),
    )
    for fault, what in faults:
        if fault:
            raise builder.refuse(
                f"{what}, of {described(tensor)} by {described(indices)}",
                "name each dim that is there once, and give as many numbers as dims are addressed",
            )


def _check_updates(
    tensors: Sequence[Tensor], indices: Tensor, updates: Sequence[Tensor], windows: Windows
) -> None:
    first, builder = tensors[0], tensors[0].builder
    if len(tensors) != len(updates):
        cure = "give one for each"
        raise builder.refuse(f"{len(tensors)} tensors, {len(updates)} updates", cure)
    kept = _kept(first, windows)
    for tensor, update in zip(tensors, updates, strict=True):
        outer = [update.shape[n] for n in range(update.rank) if n not in windows.window]
        fits = tensor.shape == first.shape and update.shape == updates[0].shape
        fits = fits and update.dtype is tensor.dtype and len(windows.window) == len(kept)
        fits = fits and all(0 <= n < update.rank for n in windows.window)
        if not fits or outer != _counts(indices, windows):
            raise builder.refuse(
                f"updates {described(update)} of {described(tensor)} by {described(indices)}",
                "give updates the dims of the indices, and of windows where they are named",
            )


def _check_slices(tensor: Tensor, starts: Sequence[Tensor], sizes: Sequence[int]) -> None:
    builder = tensor.builder
    builder.check_tensors(tensor, *starts)
    if not len(starts) == len(sizes) == tensor.rank or any(
        not 0 <= size <= whole for size, whole in zip(sizes, tensor.shape, strict=True)
    ):
        raise builder.refuse(
            f"a slice of {list(sizes)} of {described(tensor)}",
            "give a start and a size within the tensor for each dim",
        )
    for start in starts:
        if start.shape or not start.dtype.is_integer:
            raise builder.refuse(f"a slice starts at {described(start)}", "give single integers")
