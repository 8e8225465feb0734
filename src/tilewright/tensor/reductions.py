"""Reductions and scans of tensors, by named combiners or by any function of tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Expr, as_expr, cast, var
from tilewright.ir.load import load
from tilewright.ir.operators import KINDS, identity
from tilewright.ir.stmt import Combiner, Dim, Result, View
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.places import axis, guarded
from tilewright.tensor.tensor import Builder, Tensor, builder_of, described, domain

# What becomes of a tuple of values so far, and one of new values.
Combine = Callable[[Sequence[Expr], Sequence[Expr]], Sequence[Expr]]
NAMED = ("add", "mul", "min", "max", "and", "or")


def reduce(
    tensors: Sequence[Tensor],
    initials: Sequence[Tensor],
    dims: Sequence[int],
    combiner: str | Combine,
    *,
    in_order: bool = False,
    in_any_order: bool = False,
) -> tuple[Tensor, ...]:
    """Tensors of one shape, combined along ``dims``, which go; ``initials`` (rank 0) take part
    once.

    A named combiner (`NAMED`) combines in any order, and each tensor by itself; sums of narrow
    floats are kept in f32. A function ``combiner(old, new)`` of tuples with a value for each tensor
    is applied in row-major order, as a loop would; one that does no more than named ones do counts
    as these, unless it is to round ``in_order``, at each step. ``in_any_order`` says that neither
    order nor grouping matters to it, and that ``initials``, numbers, change nothing.
    """
    builder = builder_of(tensors, "a reduction")
    shape = tensors[0].shape
    check_tuples(builder, tensors, initials)
    if len(set(dims)) < len(dims) or any(not 0 <= n < len(shape) for n in dims):
        raise builder.refuse(
            f"dims {list(dims)} of {described(tensors[0])}", "name dims that are there, each once"
        )
    kept = [n for n in range(len(shape)) if n not in dims]
    names = None
    if isinstance(combiner, str):
        names = [combiner] * len(tensors)
    elif not in_order and not in_any_order:
        names = _names(tensors, combiner)
    if names is not None:
        return _named(tensors, initials, kept, names)
    assert not isinstance(combiner, str)
    name = builder.named("reduce")
    out_shape = [shape[n] for n in kept]
    memory = [
        begin(builder, name, tensor.dtype, out_shape, v)
        for tensor, v in zip(tensors, initials, strict=True)
    ]
    index = tuple(map(axis, kept))
    order = tuple(
        Dim(axis(n), as_expr(shape[n]), n not in kept and not in_any_order)
        for n in (*kept, *sorted(dims))
    )
    if in_any_order:
        views = tuple(View(buffer, index) for buffer in memory)
        exprs = tuple(tensor.value for tensor in tensors)
        builder.compute(name, order, (Result(views, exprs, _unordered(initials, combiner)),))
        return tuple(map(builder.whole, memory))
    old = [load(buffer, index) for buffer in memory]
    values = combiner(old, [tensor.value for tensor in tensors])
    builder.compute(name, order, assigned(builder, memory, index, values))
    return tuple(map(builder.whole, memory))


def _unordered(initials: Sequence[Tensor], combiner: Combine) -> Combiner:
    old, new = (
        tuple(var(f"{letter}{n}", initial.dtype) for n, initial in enumerate(initials))
        for letter in ("old", "new")
    )
    identity = tuple(initial.constant for initial in initials)
    assert all(number is not None for number in identity)
    numbers = tuple(number for number in identity if number is not None)
    return Combiner("better", old, new, numbers, tuple(combiner(old, new)))


def _names(tensors: Sequence[Tensor], combiner: Combine) -> list[str] | None:
    """The combiners' names, where ``combiner`` is a named one for each tensor."""
    old = [var(f"old {n}", tensor.dtype) for n, tensor in enumerate(tensors)]
    new = [var(f"new {n}", tensor.dtype) for n, tensor in enumerate(tensors)]
    values = combiner(old, new)
    names = []
    for value, a, b in zip(values, old, new, strict=False):
        if not isinstance(value, Binary) or value.op not in NAMED:
            return None
        if not (value.a is a and value.b is b) and not (value.a is b and value.b is a):
            return None
        names.append(value.op)
    return names if len(names) == len(tensors) == len(values) else None


def _named(
    tensors: Sequence[Tensor], initials: Sequence[Tensor], kept: Sequence[int], names: Sequence[str]
) -> tuple[Tensor, ...]:
    """Reductions by named combiners, in one compute."""
    builder, first = tensors[0].builder, tensors[0]
    shape, out = [first.shape[n] for n in kept], tuple(map(axis, kept))
    results: list[Result] = []
    for tensor, initial, combiner in zip(tensors, initials, names, strict=True):
        type_ = tensor.dtype
        if combiner not in NAMED:
            cure = "use one of " + ", ".join(NAMED) + ", or give a function"
            raise builder.refuse(f"{combiner!r} combines no values", cure)
        if type_.kind not in KINDS[combiner]:
            fitting = ", ".join(named for named in NAMED if type_.kind in KINDS[named])
            raise builder.refuse(f"{combiner!r} combines no {type_}", f"use one of {fitting}")
        sums = accumulator_for(type_) if combiner in ("add", "mul") else type_
        name = builder.named(f"reduce_{combiner}")
        start = builder.tensor((), cast(sums, initial.value))
        memory = begin(builder, name if sums is type_ else f"{name}_sums", sums, shape, start)
        results.append(Result((View(memory, out),), (cast(sums, tensor.value),), combiner))
    order = (*kept, *(n for n in range(first.rank) if n not in kept))
    dims = tuple(Dim(axis(n), as_expr(first.shape[n])) for n in order)
    builder.compute(builder.named(f"reduce_{names[0]}"), dims, results)
    totals = [builder.whole(result.views[0].buffer) for result in results]
    return tuple(
        total
        if total.dtype is tensor.dtype
        else builder.materialize(
            builder.tensor(shape, cast(tensor.dtype, total.value)),
            builder.named(f"reduce_{combiner}"),
        )
        for total, tensor, combiner in zip(totals, tensors, names, strict=True)
    )


def scan(
    tensors: Sequence[Tensor],
    initials: Sequence[Tensor],
    dim: int,
    combiner: Combine,
    *,
    reverse: bool = False,
) -> tuple[Tensor, ...]:
    """At each place along ``dim`` what `reduce` gives of the elements up to it, in order; from the
    end with ``reverse``."""
    builder = builder_of(tensors, "a scan")
    shape = tensors[0].shape
    check_tuples(builder, tensors, initials)
    if not 0 <= dim < len(shape):
        raise builder.refuse(f"a scan along dim {dim} of {described(tensors[0])}", "name a dim")
    name, step = builder.named("scan"), axis(dim)
    memory = [builder.allocate(name, tensor.dtype, shape) for tensor in tensors]
    place: Expr = as_expr(shape[dim] - 1) - step if reverse else step
    index = tuple(place if n == dim else axis(n) for n in range(len(shape)))
    before = place + 1 if reverse else place - 1
    earlier = tuple(before if n == dim else axis(n) for n in range(len(shape)))
    started = step > 0
    old = [
        guarded(load(buffer, earlier), started, first.value)
        for buffer, first in zip(memory, initials, strict=True)
    ]
    values = combiner(old, [tensor.at(*index) for tensor in tensors])
    dims = tuple(Dim(d.var, d.extent, n == dim) for n, d in enumerate(domain(shape)))
    builder.compute(name, dims, assigned(builder, memory, index, values))
    return tuple(map(builder.whole, memory))


def begin(
    builder: Builder, name: str, type_: DType, shape: Sequence[int], initial: Tensor
) -> Buffer:
    """New memory that holds ``initial`` (rank 0) everywhere."""
    memory = builder.allocate(name, type_, shape)
    value = builder.tensor(shape, initial.value)
    builder.store(memory, value, f"{name}_clear")
    return memory


def assigned(
    builder: Builder, memory: Sequence[Buffer], index: tuple[Expr, ...], values: Sequence[Expr]
) -> tuple[Result, ...]:
    """Results that store a value in each of ``memory``. Refuses what its types do not fit."""
    if len(values) != len(memory):
        cure = "give a value for each tensor"
        raise builder.refuse(f"{len(values)} values for {len(memory)} tensors", cure)
    for buffer, value in zip(memory, values, strict=True):
        if buffer.dtype is not value.type:
            cure = f"convert it to {buffer.dtype}"
            raise builder.refuse(f"the combiner gives {value.type} for {buffer.dtype}", cure)
    return tuple(Result((View(m, index),), (v,)) for m, v in zip(memory, values, strict=True))


def check_tuples(builder: Builder, tensors: Sequence[Tensor], initials: Sequence[Tensor]) -> None:
    """Refuses tensors of different shapes, and initial values of other types than theirs."""
    builder.check_tensors(*tensors, *initials)
    if len(tensors) != len(initials):
        raise builder.refuse(
            f"{len(tensors)} tensors, {len(initials)} initial values", "give one for each"
        )
    for tensor, first in zip(tensors, initials, strict=True):
        if tensor.shape != tensors[0].shape:
            raise builder.refuse(
                f"{described(tensors[0])} and {described(tensor)} are reduced together",
                "give them one shape",
            )
        if first.shape or first.dtype is not tensor.dtype:
            raise builder.refuse(
                f"{described(first)} begins a reduction of {described(tensor)}",
                f"begin with one {tensor.dtype}",
            )


def sums_along(tensors: Sequence[Tensor], dims: Sequence[int]) -> tuple[Tensor, ...]:
    """The sums of tensors of one shape without ``dims``."""
    zeros = [tensor.builder.splat(0, tensor.dtype) for tensor in tensors]
    return reduce(tensors, zeros, dims, "add")


def combined(x: Tensor, dims: Sequence[int], combiner: str) -> Tensor:
    """``x`` without ``dims``, which a named combiner reduces from its identity on."""
    return reduce([x], [x.builder.splat(identity(combiner, x.dtype), x.dtype)], dims, combiner)[0]
