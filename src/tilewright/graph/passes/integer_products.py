"""Products of quantized factors, as floats, become sums of products of integers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tilewright.dtypes import DType, f32, f64, s8, s32, u8
from tilewright.graph.passes.drop_dead import drop_dead
from tilewright.graph.passes.loaded import loaded, with_loads, with_results
from tilewright.graph.passes.masked_sums import Sums, extent
from tilewright.graph.passes.quantized_factors import Factor, Factors
from tilewright.graph.passes.values import Values
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Unary,
    all_of,
    cast,
    const,
    select,
    unary,
)
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Result, Stmt, View
from tilewright.ir.visit import map_exprs, rewrite, variables
from tilewright.schedule.queries.flow import whole
from tilewright.simplify import simplify
from tilewright.tensor.elementwise import is_exact
from tilewright.tensor.places import axes, is_factor
from tilewright.tensor.tensor import domain

# Sums of s32 are exact below this.
_LIMIT = 1 << 31
# From u8 to s8 and back.
_HALF = 128


def integer_products(kernel: Kernel) -> Kernel:
    """Sums of products of ``scale * (integer - zero)`` as sums of products of the integers.

        compute x(m, k): x[m, k] = (f32(p[m, k]) - 3.0) * 0.5         # p of u8
        compute w(k, n): w[k, n] = f32(q[k, n]) * scale[n]            # q of s8
        compute clear(m, n): y[m, n] = 0.0
        compute y(m, n, k): y[m, n] add= x[m, k] * w[k, n]
    ->  compute q_sums(n, k): q_sums[n] add= s32(q[k, n])
        compute clear(m, n): y_sums[m, n] = s32(0)
        compute y(m, n, k): y_sums[m, n] add= s32(p[m, k]) * s32(q[k, n])
        compute y(m, n): y[m, n] = f32(y_sums[m, n] - s32(3) * q_sums[n]) * (0.5 * scale[n])

    The sums are exact, where those of floats round at each step. Where s32 might not hold a sum,
    nothing changes. One factor is of u8, the other, which is the constant one if only one is, of
    s8, as dot products of processors take them: what is of the other type becomes it, with 128 more
    or less in its zero point; where the graph itself makes that one, it is made so.
    """
    if kernel.scalars:
        return kernel
    products = _Products(kernel)
    return products.kernel if products.changed() else kernel


@dataclass(frozen=True)
class _Product:
    """A sum of products of two quantized factors, over ``reduced`` dims."""

    main: Compute
    kept: tuple[Dim, ...]
    reduced: tuple[Dim, ...]
    a: Factor
    b: Factor

    @property
    def out(self) -> View:
        return self.main.out


class _Products:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.values = kernel, Values.of(kernel)
        self.factors = Factors(kernel, self.values)
        names = {param.name for param in kernel.params}
        self.sums = Sums(names | {memory.name for memory in self.values.allocated})
        self.stmts: list[tuple[Stmt, ...]] = [(stmt,) for stmt in self.values.stmts]
        # What takes the place of a buffer of the other sign.
        self.shifted: dict[Buffer, Buffer] = {}
        # Of those, the ones that the graph itself makes so.
        self.instead: dict[Buffer, Buffer] = {}
        # What makes the others of inputs and constants.
        self.before: list[Stmt] = []
        self.rewritten = False

    def changed(self) -> bool:
        """Whether there was a product to rewrite; `kernel` has them all then."""
        before = self.kernel
        for n, stmt in enumerate(self.values.stmts):
            product = self._product(stmt) if isinstance(stmt, Compute) else None
            if product is not None:
                self._rewrite(n, product)
        stmts = [
            _without_quotients(self._read_instead(stmt))
            for part in (self.before, *self.stmts)
            for stmt in part
        ]
        if not self.rewritten:
            return False
        self.kernel = drop_dead(replace(before, body=Block(tuple(stmts))))
        return True

    def _product(self, main: Compute) -> _Product | None:
        """``main`` as a product of quantized factors; None where it is none or may be inexact."""
        if len(main.results) != 1 or main.results[0].combiner != "add" or main.is_ordered:
            return None
        out = main.out
        makers = self.values.makers(out.buffer)
        if len(makers) != 2 or makers[1] is not main or not _is_cleared(makers[0]):
            return None
        order = whole(main, out)
        if order is None or not all(isinstance(dim.extent, Const) for dim in main.dims):
            return None
        body = _unconverted(loaded(main)[0].values[0])
        if not isinstance(body, Binary) or body.op != "mul":
            return None
        a, b = self.factors.find(body.a), self.factors.find(body.b)
        if a is None or b is None or a.element.buffer is b.element.buffer:
            return None
        kept = tuple(dim for dim in main.dims if dim.var in order)
        reduced = tuple(dim for dim in main.dims if dim.var not in order)
        product = _Product(main, kept, reduced, a, b)
        return product if self._is_wanted(product) else None

    def _is_wanted(self, product: _Product) -> bool:
        a, b, type_ = product.a, product.b, product.out.buffer.dtype
        if not (is_factor(a.element) and is_factor(b.element)):
            return False
        inside = {dim.var for dim in product.reduced}
        if any(variables(setting) & inside for setting in (*a.settings, *b.settings)):
            return False
        if type_ is s32:
            if a.scale is not None or b.scale is not None:
                return False
            return not _is_zero(a.zero) or not _is_zero(b.zero)
        return type_.is_float and self._is_exact(product)

    def _is_exact(self, product: _Product) -> bool:
        """Whether s32 holds all sums."""
        greatest = prod(extent(dim) for dim in product.reduced)
        for factor in (product.a, product.b):
            bounds = self.factors.bounds(factor.zero)
            if bounds is None:
                return False
            type_ = factor.element.type
            greatest *= max(int(type_.highest) - bounds[0], bounds[1] - int(type_.lowest))
        return greatest < _LIMIT

    def _rewrite(self, position: int, product: _Product) -> None:
        self.rewritten = True
        first, second = self.values.made[product.out.buffer]
        assert second == position
        product = self._of_two_signs(product)
        main, out = product.main, product.out
        self.sums.stmts = []
        total = self._corrected(product)
        if total is None and out.buffer.dtype is s32:
            self.stmts[position] = (_summed(product, out),)
            return
        held = buffer(self.sums.name(f"{out.buffer.name}_sums"), s32, out.buffer.shape)
        sums = View(held, out.index)
        element = load(held, out.index)
        value: Expr = element if total is None else element - total
        scale = self._scale(product)
        if scale is not None:
            value = cast(scale.type, value) * scale
        result = Result((out,), (simplify(cast(out.buffer.dtype, value)),))
        clear = Result((sums,), (const(0, s32),))
        self.stmts[first] = ()
        self.stmts[position] = (
            *self.sums.stmts,
            Allocate(held),
            with_results(Compute(f"{main.name}_clear", product.kept, (), (clear,)), (clear,)),
            _summed(product, sums),
            with_results(Compute(main.name, product.kept, (), (result,)), (result,)),
        )

    def _corrected(self, product: _Product) -> Expr | None:
        """What zero points take from the sum of products of the integers; None for 0."""
        a, b = product.a, product.b
        mask = all_of(e.element.mask for e in (a, b) if e.element.mask is not None)
        total: Expr | None = None
        if not _is_zero(a.zero):
            of_b = self.sums.constant(b.element, mask, product.kept, product.reduced)
            total = a.zero * of_b
        if not _is_zero(b.zero):
            term = cast(s32, load(a.element.buffer, a.element.index, mask)) - a.zero
            if mask is not None:
                term = select(mask, term, const(0, s32))
            used = variables(term)
            kept = [dim for dim in product.kept if dim.var in used]
            name = f"{a.element.buffer.name}_sums"
            of_a = b.zero * self.sums.added(name, simplify(term), kept, product.reduced)
            total = of_a if total is None else total + of_a
        return None if total is None else simplify(total)

    def _scale(self, product: _Product) -> Expr | None:
        """The product of both scales, of constants in a buffer of its own; None for 1."""
        out = product.out.buffer
        if out.dtype is s32:
            return None
        type_ = f64 if out.dtype is f64 else f32
        scales = [factor.scale for factor in (product.a, product.b) if factor.scale is not None]
        total: Expr = const(1.0, type_)
        for scale in scales:
            total = cast(type_, scale) if total is const(1.0, type_) else total * cast(type_, scale)
        total = simplify(total)
        if isinstance(total, Const | Load) or not self.factors.is_constant(total):
            return total
        used = variables(total)
        kept = [dim for dim in product.kept if dim.var in used]
        return self.sums.kept(f"{out.name}_scale", total, kept)

    def _of_two_signs(self, product: _Product) -> _Product:
        """``product`` with one factor of u8 and one of s8: the constant one, if only one is."""
        a, b = product.a, product.b
        if self.factors.is_constant(a.element) and not self.factors.is_constant(b.element):
            return replace(product, a=self._of_type(a, s8), b=self._of_type(b, u8))
        return replace(product, a=self._of_type(a, u8), b=self._of_type(b, s8))

    def _of_type(self, factor: Factor, to: DType) -> Factor:
        element = factor.element
        old = element.buffer
        if old.dtype is to:
            return factor
        more = -_HALF if to is s8 else _HALF
        if old not in self.shifted:
            self._shift(old, to, more)
        moved = load(self.shifted[old], element.index, element.mask)
        return replace(factor, element=moved, zero=simplify(factor.zero + const(more, s32)))

    def _shift(self, old: Buffer, to: DType, more: int) -> None:
        """Makes ``old`` of type ``to`` beside it, or in its place where a compute makes it."""
        new = buffer(self.sums.name(f"{old.name}_{to}"), to, old.shape)
        self.shifted[old] = new
        makers = self.values.made.get(old, ())
        compute = self.values.makers(old)[0] if len(makers) == 1 else None
        readers = [self.values.stmts[n] for n in self.values.readers.get(old, ())]
        alone = compute is not None and len(compute.outputs) == 1 and not compute.is_ordered
        if alone and old in self.values.allocated and all(isinstance(r, Compute) for r in readers):
            assert compute is not None
            (result,) = loaded(compute)
            if result.combiner is None:
                view = View(new, result.views[0].index)
                value = simplify(cast(to, cast(s32, result.values[0]) + const(more, s32)))
                changed = replace(result, views=(view,), values=(value,))
                self.stmts[makers[0]] = (Allocate(new), with_results(compute, (changed,)))
                self.instead[old] = new
                return
        index = axes(old.rank)
        value = cast(to, cast(s32, load(old, index)) + const(more, s32))
        result = Result((View(new, index),), (value,))
        filled = with_results(Compute(new.name, domain(old.shape), (), (result,)), (result,))
        if makers:
            self.stmts[makers[-1]] += (Allocate(new), filled)
        else:
            self.before += (Allocate(new), filled)

    def _read_instead(self, stmt: Stmt) -> Stmt:
        """``stmt`` with what it reads of buffers that are no longer made read of the others."""
        if not self.instead or not isinstance(stmt, Compute):
            return stmt

        def other(node: Load) -> Expr:
            new = self.instead.get(node.buffer)
            if new is None:
                return node
            more = const(_HALF if node.type is u8 else -_HALF, s32)
            value = cast(node.type, cast(s32, load(new, node.index, node.mask)) + more)
            return value if node.mask is None else select(node.mask, value, const(0, node.type))

        return with_loads(stmt, other)


def _summed(product: _Product, sums: View) -> Compute:
    """The sum of products of the integers, added to ``sums``."""
    value = cast(s32, product.a.element) * cast(s32, product.b.element)
    result = Result((sums,), (value,), "add")
    return with_results(replace(product.main, results=(result,)), (result,))


def _without_quotients(stmt: Stmt) -> Stmt:
    """``stmt`` with products in place of quotients that are rounded to whole numbers: these take
    several times as long, for a difference that counts where one is halfway between two. Of bf16
    and f16, the scale's reciprocal would be too inexact."""
    if not isinstance(stmt, Compute):
        return stmt
    return map_exprs(stmt, lambda expr: rewrite(expr, _rounded))


def _rounded(node: Expr) -> Expr:
    match node:
        case Unary(op="round", a=Binary(op="div", a=value, b=Const(value=number))) if (
            number and value.type.bits >= 32
        ):
            return unary("round", value * const(1 / number, value.type))
        case _:
            return node


def _unconverted(value: Expr) -> Expr:
    while isinstance(value, Cast) and is_exact(value.a.type, value.type):
        value = value.a
    return value


def _is_cleared(compute: Compute) -> bool:
    (result, *others) = compute.results
    return not others and result.combiner is None and _is_zero(result.values[0])


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and value.value == 0
