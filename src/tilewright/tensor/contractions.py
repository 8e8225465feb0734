"""Sums of products of two tensors: in the form that schedules know, dims called by their role."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.dtypes import DType, boolean, f32
from tilewright.dtypes import dtype as type_of
from tilewright.ir.expr import Expr, as_expr, binary, cast, const, var
from tilewright.ir.open_sizes import surely_less
from tilewright.ir.stmt import Dim, Result, View
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Builder, Tensor, described
from tilewright.tensor.views import in_digits, reshape

Pairs = tuple[Sequence[int], Sequence[int]]
_NONE: Pairs = ((), ())
# Rows of one factor, up to which a copy of the other takes as long as the product.
_FEW = 4


def dot_general(
    a: Tensor,
    b: Tensor,
    batch: Pairs = _NONE,
    contracting: Pairs = _NONE,
    *,
    accumulator: object = None,
    dtype: object = None,
) -> Tensor:
    """Sums of ``a * b`` over pairs of ``contracting`` dims, for each place of the ``batch`` dims.

    The result has the batch dims, the others of ``a``, the others of ``b``, in order. Products are
    added in ``accumulator`` (f32 for narrower floats, else the type of the result); the result is
    of ``dtype`` (that of ``a``).
    """
    builder = a.builder
    builder.check_tensors(a, b)
    _check_pairs(a, b, batch, contracting)
    type_ = a.dtype if dtype is None else type_of(dtype)
    factors, named = [a, b], [[*batch[n], *contracting[n]] for n in (0, 1)]
    sizes = [[s for i, s in enumerate(factors[n].shape) if i not in named[n]] for n in (0, 1)]
    for n in (0, 1):
        apart = (
            in_digits(factors[n], named[n]) if surely_less(prod(sizes[1 - n]), _FEW + 1) else None
        )
        if apart is not None:
            factors[n], at = apart
            whole = dot_general(
                factors[0],
                factors[1],
                _renumbered(batch, n, at),
                _renumbered(contracting, n, at),
                accumulator=accumulator,
                dtype=type_,
            )
            return reshape(whole, [*(a.shape[i] for i in batch[0]), *sizes[0], *sizes[1]])
    left, right = factor(a), factor(b)
    names_a: dict[int, str] = {}
    names_b: dict[int, str] = {}
    for role, pairs in (("batch", batch), ("k", contracting)):
        for n, (i, j) in enumerate(zip(*pairs, strict=True), 1):
            names_a[i] = names_b[j] = role if n == 1 else f"{role}{n}"
    kept: list[tuple[str, int]] = [(names_a[i], a.shape[i]) for i in batch[0]]
    for role, tensor, names in (("m", a, names_a), ("n", b, names_b)):
        free = [i for i in range(tensor.rank) if i not in names]
        for n, i in enumerate(free, 1):
            names[i] = role if n == 1 else f"{role}{n}"
            kept.append((names[i], tensor.shape[i]))
    reduced = [(names_a[i], a.shape[i]) for i in contracting[0]]
    index_a = [var(names_a[i]) for i in range(a.rank)]
    index_b = [var(names_b[i]) for i in range(b.rank)]
    product = Product(left.at(*index_a), right.at(*index_b), kept, reduced)
    return contract(builder, product, builder.named("dot"), type_, accumulator)


def _renumbered(pairs: Pairs, side: int, at: Sequence[int]) -> Pairs:
    """``pairs``, where dims of one ``side`` have the numbers that ``at`` says."""
    first, second = ([at[i] for i in dims] if n == side else dims for n, dims in enumerate(pairs))
    return first, second


def matmul(a: Tensor, b: Tensor, *, accumulator: object = None, dtype: object = None) -> Tensor:
    """The product of matrices; dims in front are the same in both, and batch dims."""
    if min(a.rank, b.rank) < 2 or a.rank != b.rank:
        raise a.builder.refuse(
            f"the product of {described(a)} and {described(b)}",
            "give both the same rank, 2 or more",
        )
    front = tuple(range(a.rank - 2))
    inner = ((a.rank - 1,), (b.rank - 2,))
    return dot_general(a, b, (front, front), inner, accumulator=accumulator, dtype=dtype)


def complex_product(
    a: tuple[Tensor, Tensor],
    b: tuple[Tensor, Tensor],
    product: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """``product``, a sum of products, of tensors with the real and the imaginary part."""
    (ar, ai), (br, bi) = a, b
    return (
        elementwise(lambda x, y: x - y, product(ar, br), product(ai, bi), name="real"),
        elementwise(lambda x, y: x + y, product(ar, bi), product(ai, br), name="imaginary"),
    )


@dataclass(frozen=True, eq=False, slots=True)
class Product:
    """What is multiplied at a point of dims (name and size): those of the result, in its order, and
    those that are summed over."""

    a: Expr
    b: Expr
    kept: Sequence[tuple[str, int]]
    reduced: Sequence[tuple[str, int]]


def contract(
    builder: Builder, product: Product, name: str, type_: DType, accumulator: object = None
) -> Tensor:
    """The sums of ``product``, added up in ``accumulator``, as ``type_``.

    compute dot_clear(m, n): dot[m, n] = 0.0
    compute dot(m, n, k): dot[m, n] add= a * b
    """
    shape = [size for _, size in product.kept]
    if 0 in shape:
        return builder.tensor(shape, const(0, type_))
    sums = accumulator_for(type_) if accumulator is None else type_of(accumulator)
    total = sums_of(builder, product, name if sums is type_ else f"{name}_sums", type_, accumulator)
    if total.dtype is type_:
        return total
    return builder.materialize(builder.tensor(shape, cast(type_, total.value)), name)


def sums_of(
    builder: Builder, product: Product, name: str, type_: DType, accumulator: object = None
) -> Tensor:
    """The sums of ``product`` as they are added up, for a result of ``type_``."""
    sums = accumulator_for(type_) if accumulator is None else type_of(accumulator)
    memory = builder.allocate(name, sums, [size for _, size in product.kept])
    kept = _dims(product.kept)
    out = View(memory, tuple(dim.var for dim in kept))
    builder.compute(f"{name}_clear", kept, (Result((out,), (const(0, sums),)),))
    # Of bool, products are `and`, and sums `or`.
    multiply, add = ("and", "or") if sums is boolean else ("mul", "add")
    value = binary(multiply, cast(sums, product.a), cast(sums, product.b))
    builder.compute(name, (*kept, *_dims(product.reduced)), (Result((out,), (value,), add),))
    return builder.whole(memory)


def factor(tensor: Tensor) -> Tensor:
    """``tensor`` as contractions take it: copied where its elements are no plain loads."""
    if tensor.is_factor:
        return tensor
    builder = tensor.builder
    return builder.materialize(tensor, f"{builder.named('dot')}_factor")


def accumulator_for(type_: DType) -> DType:
    """In what sums are kept that become ``type_``: f32 for narrower floats."""
    return f32 if type_.is_float and type_.bits < 32 else type_


def _dims(named: Iterable[tuple[str, int]]) -> tuple[Dim, ...]:
    return tuple(Dim(var(name), as_expr(size)) for name, size in named)


def _check_pairs(a: Tensor, b: Tensor, batch: Pairs, contracting: Pairs) -> None:
    for what, pairs in (("batch", batch), ("contracting", contracting)):
        if len(pairs[0]) != len(pairs[1]):
            raise a.builder.refuse(
                f"{what} dims {list(pairs[0])} and {list(pairs[1])}", "name them in pairs"
            )
    for tensor, side in ((a, 0), (b, 1)):
        named = [*batch[side], *contracting[side]]
        if len(set(named)) < len(named) or any(not 0 <= n < tensor.rank for n in named):
            raise a.builder.refuse(
                f"dims {named} of {described(tensor)}", "name dims that are there, each once"
            )
    for i, j in zip((*batch[0], *contracting[0]), (*batch[1], *contracting[1]), strict=True):
        if a.shape[i] != b.shape[j]:
            raise a.builder.refuse(
                f"dim {i} of {described(a)} and dim {j} of {described(b)}", "make them one size"
            )
