"""Computes of all work-items of a workgroup on memory that they share, as one structured op.

A structured op in work-items is a part for each of them: of a matrix that they hold together, its
elements. All parts are an op over the whole memory, which schedules can cut in other ways: into
tiles for the registers of one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

from tilewright.facts import Facts
from tilewright.facts.affine import affine, flattened
from tilewright.ir.buffer import Space
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Const, Expr, Var, const, var
from tilewright.ir.renaming import fresh
from tilewright.ir.stmt import Block, Compute, Dim, For, If, Kernel, Let, Stmt, View, While
from tilewright.ir.visit import (
    direct_exprs,
    loads_in,
    map_exprs,
    nested,
    reads_memory,
    substitute,
    variables,
    with_nested,
)
from tilewright.passes.spmd.nests import ItemNest, map_nests
from tilewright.passes.spmd.varying import Varying
from tilewright.simplify import simplify

# Names of the dims of memory in an op over all of it, from the last one on.
_NAMES = ("col", "row")


def joinable(kernel: Kernel) -> set[str]:
    """The names of the computes that `together` joins into one of all work-items: all computes of a
    name, or none."""
    by_name: dict[str, bool] = {}

    def look(nest: ItemNest) -> Stmt:
        joining = _Joining(nest, set())
        joining.visit(nest.body, {}, False)
        for name, joined in joining.computes:
            by_name[name] = joined and by_name.get(name, True)
        return nest.around(nest.body)

    map_nests(kernel.body, look)
    return {name for name, joined in by_name.items() if joined}


def together(
    nest: ItemNest, taken: set[str], wanted: Callable[[Compute], bool] = lambda _: True
) -> tuple[ItemNest, frozenset[str]]:
    """``nest`` with computes of all work-items instead of each one's, as far as they are
    ``wanted``, and their names. Each stands for one execution by all, wherever it is.

        lane for l in 16:
          compute zero(r in 8, p in 2): acc[r, p * 16 + l] = 0.0
    ->  lane for l in 16:
          compute zero(row in 8, col in 32): acc[row, col] = 0.0

    All work-items reach them, equally often. They access no private memory, and each element of
    workgroup memory belongs to one work-item.
    """
    joining = _Joining(nest, taken, wanted)
    body = joining.visit(nest.body, {}, False)
    names = frozenset(name for name, joined in joining.computes if joined)
    return (replace(nest, body=body) if names else nest), names


@dataclass
class _Joining:
    nest: ItemNest
    taken: set[str]
    wanted: Callable[[Compute], bool] = lambda _: True

    def __post_init__(self) -> None:
        self.varying = Varying(self.nest.vars, self.nest.body)
        self.computes: list[tuple[str, bool]] = []

    def visit(self, stmt: Stmt, lets: dict[Var, Expr], apart: bool) -> Stmt:
        """``stmt`` where names that differ by work-item have the values ``lets``; ``apart``:
        control has diverged here."""
        match stmt:
            case Block():
                inside = dict(lets)
                return with_nested(stmt, tuple(self.visit(p, inside, apart) for p in stmt.body))
            case Let():
                if self.varying.of(stmt.value) and not reads_memory(stmt.value):
                    lets[stmt.var] = substitute(stmt.value, lets)
                return stmt
            case Compute():
                alone = apart or not self.wanted(stmt)
                joined = None if alone else self._joined(stmt, lets)
                self.computes.append((stmt.name, joined is not None))
                return stmt if joined is None else joined
            case For() | If() | While():
                apart = apart or self.varying.any_of(direct_exprs(stmt))
            case _:
                pass
        parts = tuple(self.visit(part, dict(lets), apart) for part in nested(stmt))
        return with_nested(stmt, parts)

    def _joined(self, compute: Compute, lets: Mapping[Var, Expr]) -> Compute | None:
        """The compute of all work-items; None where they have none."""
        views = [*compute.outputs, *(operand.view for operand in compute.operands)]
        if compute.is_ordered or compute.completion is not None or compute.instruction:
            return None
        if any(view.buffer.space is Space.PRIVATE for view in views):
            return None
        items = {v: n for v, n in zip(self.nest.vars, self.nest.extents, strict=True) if n > 1}
        alone: dict[Var, Expr] = {v: const(0) for v in self.nest.vars if v not in items}
        values = {name: substitute(value, alone) for name, value in lets.items()} | alone
        whole = map_exprs(compute, lambda expr: substitute(expr, values))
        assert isinstance(whole, Compute)
        dims_of_all = {d.var for d in whole.dims} | items.keys()
        used = frozenset[Var]().union(*(variables(e) for e in direct_exprs(whole)))
        differing = self.varying.names - set(self.nest.vars)
        if used & differing or any(_private(e) for e in direct_exprs(whole)):
            return None
        dims = (*whole.dims, *(Dim(v, const(n)) for v, n in items.items()))
        whole = replace(whole, dims=dims)
        views = [*whole.outputs, *(operand.view for operand in whole.operands)]
        for view in views:
            joined = self._over(whole, view, items) if dims_of_all & index_variables(view) else None
            if joined is not None:
                return joined
        return None

    def _over(self, compute: Compute, view: View, items: Mapping[Var, int]) -> Compute | None:
        """``compute`` over the elements of the memory of ``view``, if each work-item has its own
        elements; else None."""
        memory = view.buffer
        if memory.space is not Space.WORKGROUP or memory.symbols:
            return None
        facts = Facts.empty()
        for dim in compute.dims:
            facts = facts.loop(dim.var, dim.extent)
        dims = {d.var for d in compute.dims}
        # The first indices may be uniform: which of several matrices it is.
        first = next(n for n, index in enumerate(view.index) if variables(index) & dims)
        shape = memory.shape[first:]
        number: Expr = const(0)
        for index, size in zip(view.index[first:], shape, strict=True):
            number = number * size + index
        form = affine(simplify(flattened(number).to_expr(), facts))
        digits = _digits(form.terms, compute.dims)
        # A memory of one element has no digits.
        if form.constant or not digits or not items.keys() <= digits.keys():
            return None
        if any(not items.keys() <= index_variables(output) for output in compute.outputs):
            return None
        extents = {d.var: d.extent for d in compute.dims}
        if prod(int(e.value) for v in digits if isinstance(e := extents[v], Const)) < prod(shape):
            return None
        return self._renamed(compute, shape, digits)

    def _renamed(
        self, compute: Compute, shape: tuple[int, ...], digits: Mapping[Var, int]
    ) -> Compute:
        """``compute`` with dims of the memory instead of the ``digits`` of an element's number."""
        others = [d for d in compute.dims if d.var not in digits]
        names = {d.var.name for d in others} | {o.var.name for o in compute.operands} | self.taken
        dims: list[Dim] = []
        whole: Expr = const(0)
        for position, size in enumerate(shape):
            index: Expr = const(0)
            if size > 1:
                dims_after = len(shape) - 1 - position
                name = _NAMES[dims_after] if dims_after < len(_NAMES) else "group"
                dims.append(Dim(var(fresh(name, names)), const(size)))
                index = dims[-1].var
            whole = whole * size + index
        facts = Facts.empty()
        for dim in (*dims, *others):
            facts = facts.loop(dim.var, dim.extent)
        # Expressions of the whole number become such first, instead of sums of its digits.
        number = var(fresh("number", names))
        last = next(digit for digit, step in digits.items() if step == 1)
        rest: Expr = const(0)
        for digit, step in digits.items():
            rest = rest + digit * step if digit is not last else rest
        values = self._digits(compute, digits, whole, facts) | {number: whole}

        def by_new_dims(expr: Expr) -> Expr:
            by_number = simplify(substitute(expr, {last: number - rest}), Facts.empty())
            return simplify(substitute(by_number, values), facts)

        renamed = map_exprs(replace(compute, dims=()), by_new_dims)
        assert isinstance(renamed, Compute)
        return replace(renamed, dims=(*dims, *others))

    def _digits(
        self, compute: Compute, digits: Mapping[Var, int], number: Expr, facts: Facts
    ) -> dict[Var, Expr]:
        """The digits as expressions of the number."""
        extents = {d.var: d.extent for d in compute.dims}
        outermost = max(digits, key=lambda v: digits[v])
        by_digit: dict[Var, Expr] = {}
        for digit, step in digits.items():
            value = number // step
            value = value if digit is outermost else value % extents[digit]
            by_digit[digit] = simplify(value, facts)
        return by_digit


def _private(expr: Expr) -> bool:
    return any(node.buffer.space is Space.PRIVATE for node in loads_in(expr))


def _digits(terms: Mapping[Expr, int], dims: tuple[Dim, ...]) -> dict[Var, int] | None:
    """The steps of the dims that are the digits of a number with these ``terms``; None where it is
    no such number."""
    extents = {d.var: d.extent for d in dims}
    steps: dict[Var, int] = {}
    step = 1
    for atom, coefficient in sorted(terms.items(), key=lambda term: term[1]):
        extent = extents.get(atom) if isinstance(atom, Var) else None
        if not isinstance(extent, Const) or coefficient != step:
            return None
        assert isinstance(atom, Var)
        steps[atom] = step
        step *= int(extent.value)
    return steps
