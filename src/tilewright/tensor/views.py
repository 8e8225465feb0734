"""Ops that move elements only: views of what they take, without a compute (but `concatenate`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from math import prod

from tilewright.dtypes import dtype as type_of
from tilewright.ir.expr import Binary, Const, Expr, StandIn, all_of, as_expr, cast, const, select
from tilewright.ir.stmt import Result, View
from tilewright.ir.visit import walk
from tilewright.problems.functions import clamped
from tilewright.tensor.places import Shape, axes, axis, divides, linear_index
from tilewright.tensor.tensor import Builder, Tensor, builder_of, described, domain


def reshape(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements in row-major order as another shape of as many."""
    builder = tensor.builder
    new = builder.checked(shape)
    if prod(new) != tensor.elements:
        raise builder.refuse(
            f"{described(tensor)} has {tensor.elements} elements, {list(new)} {prod(new)}",
            "give a shape of as many",
        )
    if new == tensor.shape:
        return tensor
    if not tensor.elements:
        return builder.tensor(new, const(0, tensor.dtype))
    index: list[Expr] = []
    runs = _runs(tensor.shape, new)
    if any(isinstance(tensor.shape[n], StandIn) for old_dims, _ in runs for n in old_dims[1:]):
        return _relabeled(tensor, new, [old_dims for old_dims, _ in runs])
    for old_dims, new_dims in runs:
        index += unflattened(
            linear_index([axis(n) for n in new_dims], [new[n] for n in new_dims]),
            [tensor.shape[n] for n in old_dims],
        )
    return tensor.viewed(new, index)


def in_digits(tensor: Tensor, whole: Collection[int]) -> tuple[Tensor, list[int]] | None:
    """``tensor`` reshaped such that no element of it is reached by a division, with all but the
    ``whole`` dims taken apart, and the number that each dim has then, or its first part; None where
    nothing is divided, or dims of it do not do."""
    if tensor.is_factor:
        return None
    shape: list[int] = []
    at: list[int] = []
    for n, size in enumerate(tensor.shape):
        at.append(len(shape))
        steps = set() if n in whole or isinstance(size, StandIn) else _steps(tensor.value, axis(n))
        for step in sorted(steps, reverse=True):
            if not 1 < step < size or size % step:
                continue
            shape.append(size // step)
            size = step
        shape.append(size)
    if len(shape) == tensor.rank:
        return None
    digits = reshape(tensor, shape)
    return (digits, at) if digits.is_factor else None


def _steps(value: Expr, along: Expr) -> set[int]:
    """By what ``along`` is divided in ``value``, digit by digit."""
    result: set[int] = set()
    for node in walk(value):
        if isinstance(node, Binary) and divides(node) and isinstance(node.b, Const):
            below = int(node.b.value)
            inner = node.a
            if isinstance(inner, Binary) and inner.op == "floordiv" and isinstance(inner.b, Const):
                below, inner = below * int(inner.b.value), inner.a
            if inner is along:
                result.add(below)
    return result


def _relabeled(tensor: Tensor, shape: Shape, runs: Sequence[Sequence[int]]) -> Tensor:
    """``tensor`` in memory as another ``shape``, where places would be divided by sizes that calls
    pass: each of ``runs`` of its dims becomes one, by a copy that only gives memory another shape
    (`graph.relabels` leaves it out)."""
    builder = tensor.builder
    whole = builder.materialize(tensor)
    sizes = [prod(tensor.shape[n] for n in run) for run in runs]
    return reshape(merged(whole, sizes, "reshape"), shape)


def merged(tensor: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """The same elements in memory of ``shape``, each of whose dims is a run of those of ``tensor``:
    computed in loops over the latter, without quotients of places."""
    builder = tensor.builder
    memory = builder.allocate(builder.named(name), tensor.dtype, shape)
    index: list[Expr] = []
    for run, new in _runs(tensor.shape, tuple(shape)):
        place = linear_index([axis(n) for n in run], [tensor.shape[n] for n in run])
        # Of several new dims in one run, all but one are of size 1.
        index += [place if shape[n] > 1 else const(0) for n in new]
    result = Result((View(memory, tuple(index)),), (tensor.value,))
    builder.compute(memory.name, domain(tensor.shape), (result,))
    return builder.whole(memory)


def transpose(tensor: Tensor, permutation: Sequence[int]) -> Tensor:
    """Dim ``i`` of the result is dim ``permutation[i]``."""
    order = tuple(permutation)
    if sorted(order) != [*range(tensor.rank)]:
        raise tensor.builder.refuse(
            f"{list(order)} is no order of {tensor.rank} dims", "name each dim once, from 0"
        )
    index = [axis(order.index(n)) for n in range(tensor.rank)]
    return tensor.viewed([tensor.shape[n] for n in order], index)


def common_shape(*shapes: Sequence[int]) -> Shape:
    """The shape that tensors of these are broadcast to, as numpy does. Raises `ValueError` where
    there is none."""
    common: list[int] = [1] * max(map(len, shapes))
    for shape in shapes:
        for n, size in enumerate(shape, len(common) - len(shape)):
            if common[n] == 1:
                common[n] = size
            elif size != 1 and size != common[n]:
                raise ValueError(f"shapes {list(map(list, shapes))} do not broadcast")
    return tuple(common)


def broadcast_in_dim(tensor: Tensor, shape: Sequence[int], dims: Sequence[int]) -> Tensor:
    """A tensor of ``shape`` of which dim ``dims[i]`` is dim ``i`` of this, which is as long, or of
    size 1; along the others it repeats."""
    builder = tensor.builder
    new, places = builder.checked(shape), tuple(dims)
    fits = len(places) == tensor.rank and len(set(places)) == len(places)
    fits = fits and all(0 <= n < len(new) for n in places)
    if not fits or any(s not in (1, new[n]) for s, n in zip(tensor.shape, places, strict=True)):
        raise builder.refuse(
            f"{described(tensor)} does not broadcast to {list(new)} along {list(places)}",
            "name a dim of the same size for each, or give it size 1",
        )
    if 0 in new:
        return builder.tensor(new, const(0, tensor.dtype))
    index = [const(0) if s == 1 else axis(n) for s, n in zip(tensor.shape, places, strict=True)]
    return tensor.viewed(new, index)


def broadcast_to(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """`broadcast_in_dim` with the dims at the end, as numpy does."""
    if tensor.rank == len(shape) and tensor.shape == tuple(shape):
        return tensor
    return broadcast_in_dim(tensor, shape, range(len(shape) - tensor.rank, len(shape)))


def along(tensor: Tensor, shape: Sequence[int], dims: Sequence[int]) -> Tensor:
    """A tensor without ``dims``, repeated along these to ``shape``."""
    return broadcast_in_dim(tensor, shape, [n for n in range(len(shape)) if n not in dims])


def slice_(
    tensor: Tensor, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None
) -> Tensor:
    """From ``start`` to ``stop`` (exclusive) by ``step`` (1 or more), in each dim."""
    builder, steps = tensor.builder, tuple(step or (1,) * tensor.rank)
    bounds = list(zip(start, stop, steps, strict=False))
    if not len(start) == len(stop) == len(steps) == tensor.rank or any(
        not 0 <= a <= b <= size or c < 1
        for (a, b, c), size in zip(bounds, tensor.shape, strict=True)
    ):
        raise builder.refuse(
            f"{described(tensor)} has no slice {list(start)} to {list(stop)} by {list(steps)}",
            "give 0 <= start <= stop <= size, and steps of 1 or more, for each dim",
        )
    shape = [-(-(b - a) // c) for a, b, c in bounds]
    if 0 in shape:
        return builder.tensor(shape, const(0, tensor.dtype))
    return tensor.viewed(shape, [axis(n) * c + a for n, (a, _, c) in enumerate(bounds)])


def part(x: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Tensor:
    """From ``start`` to ``stop`` along ``dim``, all of the others."""
    first = [start if n == dim else 0 for n in range(x.rank)]
    last = [stop if n == dim else size for n, size in enumerate(x.shape)]
    return slice_(x, first, last, [step if n == dim else 1 for n in range(x.rank)])


def index_in_dim(x: Tensor, dim: int, place: int) -> Tensor:
    """The elements at ``place`` along ``dim``, without this dim."""
    index: list[Expr] = list(axes(x.rank - 1))
    index.insert(dim, const(place))
    return x.viewed((*x.shape[:dim], *x.shape[dim + 1 :]), index)


def reverse(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """The other way round along ``dims``."""
    if any(not 0 <= n < tensor.rank for n in dims):
        raise tensor.builder.refuse(
            f"{described(tensor)} is reversed along {list(dims)}", "name dims that are there"
        )
    index = [
        as_expr(size - 1) - axis(n) if n in dims else axis(n) for n, size in enumerate(tensor.shape)
    ]
    return tensor.viewed(tensor.shape, index)


def pad(
    tensor: Tensor,
    value: Tensor,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] | None = None,
) -> Tensor:
    """With so many elements of ``value`` (rank 0) before, after, and between two; negative
    numbers before and after cut off."""
    builder, between = tensor.builder, tuple(interior or (0,) * tensor.rank)
    if not len(low) == len(high) == len(between) == tensor.rank or any(n < 0 for n in between):
        raise builder.refuse(
            f"{described(tensor)} is padded by {list(low)}, {list(high)}, {list(between)}",
            "give three numbers for each dim, 0 or more between elements",
        )
    if value.shape or value.dtype is not tensor.dtype:
        cure = f"pad by one {tensor.dtype}"
        raise builder.refuse(f"{described(tensor)} is padded by {described(value)}", cure)
    sizes = [
        a + size + max(0, size - 1) * c + b
        for a, b, c, size in zip(low, high, between, tensor.shape, strict=True)
    ]
    shape = builder.checked(sizes)
    if 0 in shape or 0 in tensor.shape:
        return builder.tensor(shape, value.value)
    index: list[Expr] = []
    conditions: list[Expr] = []
    for n, (a, b, c) in enumerate(zip(low, high, between, strict=True)):
        place: Expr = axis(n) - a if a else axis(n)
        inner = place // (c + 1) if c else place
        if c:
            conditions.append((place % (c + 1)).__eq__(0))
        if a > 0:
            conditions.append(place >= 0)
        if b > 0:
            conditions.append(inner < tensor.shape[n])
        index.append(inner)
    inside = all_of(conditions)
    if inside is None:
        return tensor.viewed(shape, index)
    return tensor.within(shape, index, inside, value.value)


def extended(tensor: Tensor, low: Sequence[int], high: Sequence[int], mode: str) -> Tensor:
    """``tensor`` with ``low`` of its elements before and ``high`` after it along each dim; negative
    numbers cut off. ``mode`` says which elements: "reflect" (its mirror image, without the edge),
    "edge" (the nearest one), or "wrap" (from the other end)."""
    index: list[Expr] = []
    for n, (before, size) in enumerate(zip(low, tensor.shape, strict=True)):
        place: Expr = axis(n) - before
        if not before and not high[n]:
            pass
        elif mode == "reflect":
            if max(before, high[n]) >= size:
                raise tensor.builder.refuse(
                    f"dim {n} of {described(tensor)} has too few elements to reflect",
                    "pad by less than their number",
                )
            place = select(place < 0, -place, place)
            place = select(place < size, place, as_expr(2 * (size - 1)) - place)
        elif mode == "edge":
            place = clamped(place, 0, size - 1)
        elif mode == "wrap":
            place = place % size
        else:
            cure = "use reflect, edge or wrap"
            raise tensor.builder.refuse(f"elements outside are those of {mode!r}", cure)
        index.append(place)
    shape = [a + size + b for a, size, b in zip(low, tensor.shape, high, strict=True)]
    return tensor.viewed(shape, index)


def tile(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Repeated to ``shape``, whose last dims are multiples of its own; those in front are new."""
    builder, first = tensor.builder, len(shape) - tensor.rank
    if 0 in shape:
        return builder.tensor(builder.checked(shape), const(0, tensor.dtype))
    return tensor.viewed(shape, [axis(first + n) % size for n, size in enumerate(tensor.shape)])


def concatenate(tensors: Sequence[Tensor], dim: int) -> Tensor:
    """One after the other along ``dim``: each is copied to its place."""
    builder = builder_of(tensors, "a concatenation")
    first = tensors[0]
    builder.check_tensors(*tensors)
    for other in tensors:
        same = other.dtype is first.dtype and other.rank == first.rank
        if not same or not 0 <= dim < first.rank or _without(other, dim) != _without(first, dim):
            raise builder.refuse(
                f"{described(first)} and {described(other)} do not meet along dim {dim}",
                "give them one type and rank, and the same sizes in other dims",
            )
    if len(tensors) == 1:
        return first
    size = sum(tensor.shape[dim] for tensor in tensors)
    shape = builder.checked([*first.shape[:dim], size, *first.shape[dim + 1 :]])
    name = builder.named("concatenate")
    memory = builder.allocate(name, first.dtype, shape)
    start = 0
    for tensor in tensors:
        index = tuple(
            a + start if n == dim and start else a for n, a in enumerate(axes(tensor.rank))
        )
        result = Result((View(memory, index),), (tensor.value,))
        builder.compute(f"{name}_part", domain(tensor.shape), (result,))
        start += tensor.shape[dim]
    return builder.whole(memory)


def stack(tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Tensors of one shape side by side along a new dim, which is number ``dim`` of the result."""
    return concatenate([reshape(x, (*x.shape[:dim], 1, *x.shape[dim:])) for x in tensors], dim)


def split(tensor: Tensor, dim: int, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Parts of ``sizes`` along ``dim``, one after the other."""
    ends = accumulate(sizes)
    return tuple(part(tensor, dim, end - size, end) for end, size in zip(ends, sizes, strict=True))


def iota(builder: Builder, dtype: object, shape: Sequence[int], dim: int) -> Tensor:
    """Each element is its place along ``dim``."""
    new = builder.checked(shape)
    if not 0 <= dim < len(new):
        raise builder.refuse(f"iota along dim {dim} of {list(new)}", "name one of the dims")
    return builder.tensor(new, cast(type_of(dtype), axis(dim)))


def _without(tensor: Tensor, dim: int) -> Shape:
    return tensor.shape[:dim] + tensor.shape[dim + 1 :]


def _runs(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """The least runs of dims of ``old`` and ``new`` that have as many elements, in order: only
    inside of these, places are counted through."""
    runs: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = [i] if i < len(old) else [], [j] if j < len(new) else []
        i, j = i + len(a), j + len(b)
        size, other = prod(old[n] for n in a), prod(new[n] for n in b)
        while size != other:
            if size < other:
                a, size, i = [*a, i], size * old[i], i + 1
            else:
                b, other, j = [*b, j], other * new[j], j + 1
        runs.append((a, b))
    return runs


def unflattened(place: Expr, sizes: Sequence[int]) -> list[Expr]:
    """The place of a number, counted row by row."""
    index: list[Expr] = []
    below = prod(sizes)
    for number, size in enumerate(sizes):
        below //= size
        part = place // below if below > 1 else place
        outermost = prod(sizes[:number]) == 1
        index.append(const(0) if size == 1 else part if outermost else part % size)
    return index
