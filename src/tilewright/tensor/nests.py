"""Sorting, factorizations and solutions of triangular systems: opaque nests of loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.dtypes import s64
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Expr, binary, const, minimum, select, unary, var
from tilewright.ir.load import load
from tilewright.ir.opaque import touched
from tilewright.ir.stmt import Allocate, Block, For, If, Let, Opaque, Stmt, Store
from tilewright.tensor.tensor import Builder, Tensor, described

# Whether a tuple of values comes before another one.
Less = Callable[[Sequence[Expr], Sequence[Expr]], Expr]
Index = tuple[Expr, ...]


def sort(tensors: Sequence[Tensor], dim: int, less: Less) -> tuple[Tensor, ...]:
    """Tensors of one shape, whose tuples along ``dim`` are put in order: stable, by merging runs
    that are twice as long each time."""
    first, builder = tensors[0], tensors[0].builder
    builder.check_tensors(*tensors)
    if any(tensor.shape != first.shape for tensor in tensors) or not 0 <= dim < first.rank:
        operands = ", ".join(map(described, tensors))
        raise builder.refuse(
            f"{operands} sorted along dim {dim}", "give one shape, and one dim of it"
        )
    name = builder.named("sort")
    size = first.shape[dim]
    source = copies(builder, tensors, name)
    if size < 2 or 0 in first.shape:
        return tuple(map(builder.whole, source))
    other = [builder.allocate(f"{name}_other", tensor.dtype, tensor.shape) for tensor in tensors]
    outer = [var(f"p{n}") for n in range(first.rank)]

    def at(place: Expr) -> Index:
        return tuple(place if n == dim else outer[n] for n in range(first.rank))

    passes: list[Stmt] = []
    width = 1
    while width < size:
        passes.append(_merged(source, other, at, size, width, less))
        source, other = other, source
        width *= 2
    loops: Stmt = Block(tuple(passes))
    for n in reversed(range(first.rank)):
        if n != dim:
            loops = For(outer[n], const(first.shape[n]), loops)
    emit_nest(builder, name, loops)
    return tuple(map(builder.whole, source))


def _merged(
    source: Sequence[Buffer],
    target: Sequence[Buffer],
    at: Callable[[Expr], Index],
    size: int,
    width: int,
    less: Less,
) -> Stmt:
    """``target`` gets the sorted runs of ``width`` of ``source``, merged in pairs."""
    run, step = var("run"), var("step")
    left, right = (buffer(name, s64, (), space=Space.PRIVATE) for name in ("left", "right"))
    low = run * (2 * width)
    middle = minimum(low + width, const(size))
    high = minimum(low + 2 * width, const(size))
    i, j = load(left, ()), load(right, ())
    has_left, has_right = i < middle, j < high
    a = [load(part, at(i), has_left) for part in source]
    b = [load(part, at(j), has_right) for part in source]
    take = has_left & (~has_right | ~less(b, a))
    picked = var("take", take.type)
    moved: list[Stmt] = [Let(picked, take)]
    for old, new, x, y in zip(source, target, a, b, strict=True):
        assert old.dtype is new.dtype
        moved.append(Store(new, at(low + step), select(picked, x, y)))
    moved.append(If(picked, Store(left, (), i + const(1)), Store(right, (), j + const(1))))
    inner: Stmt = If(low + step < const(size), Block(tuple(moved)))
    body = Block(
        (
            Allocate(left),
            Allocate(right),
            Store(left, (), low),
            Store(right, (), middle),
            For(step, const(2 * width), inner),
        )
    )
    return For(run, const(-(-size // (2 * width))), body)


def copies(
    builder: Builder, tensors: Sequence[Tensor], name: str, end: str = "copy"
) -> list[Buffer]:
    """New memory that has the ``tensors``; the computes that fill it end in ``end``."""
    filled = []
    for tensor in tensors:
        memory = builder.allocate(name, tensor.dtype, tensor.shape)
        builder.store(memory, tensor, f"{name}_{end}")
        filled.append(memory)
    return filled


def emit_nest(builder: Builder, name: str, body: Stmt) -> None:
    """Emits an opaque nest, with what it reads and writes."""
    reads, writes = touched(body)
    builder.emit(
        Opaque(
            builder.fresh(f"{name}_nest"),
            tuple(sorted(reads - writes)),
            tuple(sorted(writes)),
            body,
            builder.span,
        )
    )


# Numbers of one part, or of a real and an imaginary one.
Number = tuple[Expr, ...]


def _minus(x: Number, y: Number) -> Number:
    return tuple(a - b for a, b in zip(x, y, strict=True))


def _times(x: Number, y: Number) -> Number:
    if len(x) == 1:
        return (x[0] * y[0],)
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _over(x: Number, y: Number) -> Number:
    if len(x) == 1:
        return (x[0] / y[0],)
    size = y[0] * y[0] + y[1] * y[1]
    first, second = _times(x, _conjugate(y))
    return first / size, second / size


def _conjugate(x: Number) -> Number:
    return x if len(x) == 1 else (x[0], -x[1])


class _Matrices:
    """Buffers with the parts of matrices in their last two dims, and loops over those in front."""

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self.parts = parts
        self.front = parts[0].sizes[:-2]

    def at(self, i: Expr, j: Expr) -> Number:
        return tuple(load(part, self._index(i, j)) for part in self.parts)

    def store(self, i: Expr, j: Expr, value: Number) -> list[Stmt]:
        return [
            Store(part, self._index(i, j), v) for part, v in zip(self.parts, value, strict=True)
        ]

    def _index(self, i: Expr, j: Expr) -> Index:
        return (*(var(f"p{n}") for n in range(len(self.front))), i, j)

    def loops(self, body: Stmt) -> Stmt:
        for n in reversed(range(len(self.front))):
            body = For(var(f"p{n}"), const(self.front[n]), body)
        return body


def triangular_solve(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    *,
    left: bool = True,
    lower: bool = True,
    transposed: bool = False,
    conjugated: bool = False,
    unit: bool = False,
) -> tuple[Tensor, ...]:
    """x of ``op(a) x = b``, or of ``x op(a) = b`` where not ``left``, for matrices in the last two
    dims; ``a`` and ``b`` are one tensor, or the real and the imaginary part.

    Of ``a`` only the triangle is read that ``lower`` says, of a ``unit`` one no diagonal.
    """
    builder = b[0].builder
    builder.check_tensors(*a, *b)
    size = b[0].shape[-2 if left else -1] if b[0].rank > 1 else -1
    if a[0].shape != (*b[0].shape[:-2], size, size) or a[0].dtype is not b[0].dtype:
        raise builder.refuse(
            f"{described(a[0])} is solved for {described(b[0])}",
            "give square matrices that fit, of one type",
        )
    name = builder.named("solve")
    x = _Matrices(copies(builder, b, name))
    if 0 in b[0].shape:
        return tuple(map(builder.whole, x.parts))
    buffers = []
    for tensor in a:
        memory = builder.materialize(tensor, f"{name}_matrix").buffer
        assert memory is not None
        buffers.append(memory)
    matrix = _Matrices(buffers)
    # Transposed, from the right: x op(a) = b is op(a)' x' = b'.
    swapped = transposed is left
    ascending = lower is not swapped
    other, row, step = var("other"), var("row"), var("step")
    i: Expr = row if ascending else const(size - 1) - row
    k: Expr = step if ascending else const(size - 1) - step

    def entry(p: Expr, q: Expr) -> Number:
        exprs = matrix.at(q, p) if swapped else matrix.at(p, q)
        return _conjugate(exprs) if conjugated else exprs

    def unknown(p: Expr) -> Number:
        return x.at(p, other) if left else x.at(other, p)

    def put(p: Expr, value: Number) -> list[Stmt]:
        return x.store(p, other, value) if left else x.store(other, p, value)

    inner = For(
        step, row, Block(tuple(put(i, _minus(unknown(i), _times(entry(i, k), unknown(k))))))
    )
    last = [] if unit else put(i, _named(_over(unknown(i), entry(i, i))))
    lets = [] if unit else _lets(_over(unknown(i), entry(i, i)))
    body: Stmt = For(row, const(size), Block((inner, *lets, *last)))
    count = b[0].shape[-1 if left else -2]
    emit_nest(builder, name, x.loops(For(other, const(count), body)))
    return tuple(map(builder.whole, x.parts))


def _lets(value: Number) -> list[Stmt]:
    """Names for the parts of a value, which is then stored part by part."""
    return [Let(var(f"part{n}", expr.type), expr) for n, expr in enumerate(value)]


def _named(value: Number) -> Number:
    return tuple(var(f"part{n}", expr.type) for n, expr in enumerate(value))


def cholesky(a: Sequence[Tensor], *, lower: bool = True) -> tuple[Tensor, ...]:
    """The triangular factor of positive definite matrices in the last two dims: ``l l* = a``, or
    ``u* u = a`` where not ``lower``; 0 in the other triangle."""
    builder, first = a[0].builder, a[0]
    builder.check_tensors(*a)
    if first.rank < 2 or first.shape[-1] != first.shape[-2]:
        raise builder.refuse(f"the factor of {described(first)}", "give square matrices")
    name = builder.named("cholesky")
    factor = _Matrices(copies(builder, a, name))
    if 0 in first.shape:
        return tuple(map(builder.whole, factor.parts))
    size = const(first.shape[-1])
    j, i, k = var("j"), var("i"), var("k")

    def entry(p: Expr, q: Expr) -> Number:
        return factor.at(p, q) if lower else _conjugate(factor.at(q, p))

    def put(p: Expr, q: Expr, value: Number) -> list[Stmt]:
        return factor.store(p, q, value) if lower else factor.store(q, p, _conjugate(value))

    zero = tuple(const(0.0, tensor.dtype) for tensor in a)
    product = _times(entry(i, k), _conjugate(entry(j, k)))
    left_over = _minus(entry(i, j), product)
    change: list[Stmt] = [*_lets(left_over), *put(i, j, _named(left_over))]
    reduced = For(k, j, Block(tuple(change)))
    root = (unary("sqrt", entry(j, j)[0]), *zero[1:])
    on_diagonal = Block(tuple(put(j, j, root)))
    quotient = _over(entry(i, j), entry(j, j))
    below = Block((*_lets(quotient), *put(i, j, _named(quotient))))
    column = For(
        i,
        size,
        If(
            i < j,
            Block(tuple(put(i, j, zero))),
            Block((reduced, If(binary("eq", i, j), on_diagonal, below))),
        ),
    )
    emit_nest(builder, name, factor.loops(For(j, size, column)))
    return tuple(map(builder.whole, factor.parts))
