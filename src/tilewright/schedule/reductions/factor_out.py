"""Sums in two levels: factors that do not vary along the inner one leave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import prod
from operator import add, mul

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Binary, Const, Expr, Unary, Var, const, var
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import block, reads_memory, variables
from tilewright.schedule.queries.place import (
    Place,
    claim,
    computes_named,
    dim_of,
    names_in,
    rewrite_kernel,
    size_of,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import give, transform

# Products that a value may be a sum of; more would be more sums than it is worth.
_TERMS = 4


@transform
@asks(compute=a_plain_compute)
def factor_out(kernel: Kernel, compute: str, dims: Sequence[str]) -> Kernel:
    """Sums along ``dims`` first, without the factors that do not vary there.

        compute main(n in 8, g in 4, r in 64): acc[n] add= a * ((q - z) * s)
            (a = x[g*64 + r], q = w[g*64 + r, n], z = zeros[g, n], s = scales[g, n])
    ->  factor_out("main", ["r"])
        alloc main_sums: f32[8, 4]
        compute main_sums_init(n in 8, g in 4): main_sums[n, g] = 0.0
        compute main(n in 8, g in 4, r in 64): main_sums[n, g] add= a * q
        alloc main_sums2: f32[4]
        compute main_sums2_init(g in 4): main_sums2[g] = 0.0
        compute main2(g in 4, r in 64): main_sums2[g] add= a
        compute main_total(n in 8, g in 4): acc[n] add= s * sum - z * s * sum2
            (sum = main_sums[n, g], sum2 = main_sums2[g])

    The value is multiplied out into products. Those with the same factors inside are one sum, which
    has the dims that these vary along; that of most dims keeps the compute's name. What it begins
    with is ``begin`` among the results, what adds the products up, ``total``. As with the
    order of a sum, floats are rounded otherwise than before; where a factor is infinite, what was
    so may be NaN.
    """
    root, _ = computes_named(kernel, compute)[0]
    factoring = _Factoring(root, tuple(dims), *names_in(kernel), frozenset(taken_names(kernel)))
    factoring.check(len(computes_named(kernel, compute)))

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if stmt is root:
            return block(*factoring.stmts())
        if isinstance(stmt, Block) and any(part is root for part in stmt.body):
            at = stmt.body.index(root)
            return block(*stmt.body[:at], *factoring.stmts(), *stmt.body[at + 1 :])
        return None

    return rewrite_kernel(kernel, change)


@dataclass(frozen=True)
class _Product:
    """A product: of what varies along the inner dims, and of what does not."""

    inner: tuple[Expr, ...] = ()
    outer: tuple[Expr, ...] = ()

    def times(self, other: _Product) -> _Product:
        return _Product((*self.inner, *other.inner), (*self.outer, *other.outer))

    def scaled(self, factor: int) -> _Product:
        type = (*self.inner, *self.outer)[0].type
        return replace(self, outer=(const(factor, type), *self.outer))


@dataclass(frozen=True)
class _Factoring:
    compute: Compute
    inner: tuple[str, ...]
    buffers: set[str]
    computes: set[str]
    taken: frozenset[str]

    def check(self, number: int) -> None:
        """Refuses what is no sum over ``inner``."""
        compute = self.compute
        if number > 1:
            raise refusal(
                f"there are {number} computes called '{compute.name}'",
                self.compute,
                "factor out before what partitions the kernel",
                why="each would have sums of its own, by the same names",
            )
        if compute.combiner != "add" or compute.instruction or compute.completion is not None:
            raise refusal(
                f"'{compute.name}' does not add up, or an instruction carries it out",
                self.compute,
                "choose a compute with `add=`, before it is tensorized",
                why="only of a sum may factors be taken",
            )
        if compute.out.mask is not None or reads_memory(compute.body):
            raise refusal(
                f"'{compute.name}' stores under a mask, or loads in its value",
                self.compute,
                "factor out before padding, and name what is loaded as operands",
                why="the sums have neither",
            )
        if not self.inner:
            raise refusal(
                "no dims are named", self.compute, "name some", why="nothing would be summed first"
            )
        kept = index_variables(compute.out)
        for name in self.inner:
            dim = dim_of(compute, name)
            if dim.var in kept:
                raise refusal(
                    f"'{name}' is not reduced",
                    self.compute,
                    "name reduced dims",
                    why="each of its points has a result of its own",
                )
        if any(not isinstance(dim.extent, Const) for dim in compute.dims):
            raise refusal(
                "the extents are not constant",
                self.compute,
                "factor out before tiling",
                why="the sums are buffers, as long as their dims",
            )

    @cached_property
    def _dims(self) -> tuple[Dim, ...]:
        return tuple(dim_of(self.compute, name) for name in self.inner)

    @cached_property
    def _varying(self) -> frozenset[Var]:
        """The dims that are summed first, and the operands that vary along them."""
        dims = frozenset(dim.var for dim in self._dims)
        operands = self.compute.operands
        return dims | {operand.var for operand in operands if view_variables(operand.view) & dims}

    def _products(self, value: Expr) -> list[_Product]:
        """``value`` as a sum of products, as far as it is one."""
        inside = variables(value)
        if not inside & self._varying:
            return [_Product(outer=(value,))]
        products: list[_Product] = []
        match value:
            case Binary(op="mul"):
                first, second = self._products(value.a), self._products(value.b)
                products = [a.times(b) for a in first for b in second]
            case Binary(op="add" | "sub"):
                second = self._products(value.b)
                if value.op == "sub":
                    second = [product.scaled(-1) for product in second]
                products = [*self._products(value.a), *second]
            case Unary(op="neg"):
                products = [product.scaled(-1) for product in self._products(value.a)]
        return products if 0 < len(products) <= _TERMS else [_Product(inner=(value,))]

    def stmts(self) -> list[Stmt]:
        """What takes the place of the compute."""
        compute, type = self.compute, self.compute.out.buffer.dtype
        sums: dict[tuple[Expr, ...], list[tuple[Expr, ...]]] = {}
        for product in self._products(compute.body):
            sums.setdefault(product.inner, []).append(product.outer)
        order = sorted(sums, key=lambda inner: -len(self._depends(inner)))
        parts: list[Stmt] = []
        operands = [operand for operand in compute.operands if operand.var not in self._varying]
        names = set(self.taken) | {operand.var.name for operand in compute.operands}
        total: Expr | None = None
        for number, inner in enumerate(order):
            factor = reduce(add, (_product(exprs, type) for exprs in sums[inner]))
            if inner:
                target, stmts = self._sum(inner, number)
                parts += stmts
                name = claim("sum" if number == 0 else f"sum{number + 1}", names)
                operands.append(Operand(var(name, type), target))
                term = (
                    factor * operands[-1].var if factor is not const(1, type) else operands[-1].var
                )
            else:
                term = factor * const(prod(map(size_of, self._dims)), type)
            total = term if total is None else total + term
        assert total is not None
        used = variables(total)
        dims = tuple(dim for dim in compute.dims if dim not in self._dims)
        total_name = claim(f"{compute.name}_total", self.computes)
        give("total", "compute", total_name)
        parts.append(
            replace(
                compute,
                name=total_name,
                dims=dims,
                operands=tuple(operand for operand in operands if operand.var in used),
            ).with_result(body=total)
        )
        return parts

    def _sum(self, inner: tuple[Expr, ...], number: int) -> tuple[View, list[Stmt]]:
        """The sum of the product of ``inner``, and the statements that make it."""
        compute = self.compute
        value = _product(inner, inner[0].type)
        used, depends = variables(value), self._depends(inner)
        operands = tuple(operand for operand in compute.operands if operand.var in used)
        kept = tuple(d for d in compute.dims if d.var in depends and d not in self._dims)
        suffix = str(number + 1) if number else ""
        name = claim(f"{compute.name}_sums{suffix}", self.buffers)
        target: Buffer = buffer(name, compute.out.buffer.dtype, tuple(map(size_of, kept)) or (1,))
        index = tuple(dim.var for dim in kept) or (const(0),)
        out = View(target, index)
        dims = tuple(d for d in compute.dims if d in kept or d in self._dims)
        main = compute.name if number == 0 else claim(compute.name + suffix, self.computes)
        begin = claim(f"{name}_init", self.computes)
        give("begin", "compute", begin)
        return out, [
            Allocate(target),
            Compute.single(begin, kept, out, (), const(0, target.dtype)),
            replace(compute, name=main, dims=dims, operands=operands).with_result(out, value),
        ]

    def _depends(self, factors: Sequence[Expr]) -> frozenset[Var]:
        """The dims and operands that the product of ``factors`` varies with."""
        used = frozenset[Var]().union(*map(variables, factors))
        views = (operand.view for operand in self.compute.operands if operand.var in used)
        return used.union(*map(view_variables, views))


def _product(factors: Sequence[Expr], type: DType) -> Expr:
    return reduce(mul, factors) if factors else const(1, type)
