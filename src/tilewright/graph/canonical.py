"""A part of a graph as a kernel of its own, under names that say nothing.

    compute scores(q in 64, k in 64, c in 32):          kernel contraction(in p0, in p1, inout p2):
      a = query[q, c]                                     compute c0(i0 in 64, i1 in 64, i2 in 32):
      b = key[k, c]                               ->        x0 = p0[i0, i2]
      s[q, k] add= a * b                                    x1 = p1[i1, i2]
                                                            p2[i0, i1] add= x0 * x1

Two parts that do the same, as the layers of a network do, become one text, and are compiled once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from tilewright.graph.numbered import Numbered
from tilewright.ir.buffer import Buffer, Size, Space
from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    Dim,
    For,
    Kernel,
    Let,
    Opaque,
    Operand,
    Param,
    Result,
    ScalarParam,
    Stmt,
    Store,
    View,
)
from tilewright.ir.visit import (
    block,
    map_exprs,
    map_views,
    nested,
    rewrite_loads,
    substitute,
    with_nested,
)


def canonical(
    name: str,
    stmts: Sequence[Stmt],
    params: Sequence[tuple[Buffer, str]],
    inside: Sequence[Buffer],
    scalars: Sequence[ScalarParam] = (),
) -> tuple[Kernel, tuple[Size, ...]]:
    """The kernel of ``stmts`` on ``params``, buffers with how they are accessed, in this order;
    ``inside`` are the buffers that it allocates. Where sizes depend on ``scalars``, it takes
    numbers first: what these are, is given beside it."""
    numbers = Numbered.of(stmts, [*(buffer for buffer, _ in params), *inside], scalars)
    renaming = _Renaming(numbers)
    arrays: list[Param | ScalarParam] = [*numbers.params]
    for number, (buffer, access) in enumerate(params):
        renamed = replace(numbers.buffer(buffer), name=f"p{number}", space=Space.GLOBAL)
        renaming.buffers[buffer] = renamed
        arrays.append(Param(renamed, access))
    allocated = [Allocate(renaming.local(buffer)) for buffer in inside]
    body = [renaming.stmt(stmt, numbers.values) for stmt in stmts]
    return Kernel(name, tuple(arrays), block(*allocated, *body)), numbers.numbers


class _Renaming:
    """Gives everything that has a name the next one of its kind."""

    def __init__(self, numbers: Numbered) -> None:
        self._sizes = numbers
        self.buffers: dict[Buffer, Buffer] = {}
        self._numbers: dict[str, Iterator[int]] = {}

    def _name(self, kind: str) -> str:
        return f"{kind}{next(self._numbers.setdefault(kind, count()))}"

    def _var(self, old: Var, kind: str) -> Var:
        return var(self._name(kind), old.type)

    def local(self, buffer: Buffer) -> Buffer:
        """A buffer that the kernel allocates."""
        self.buffers[buffer] = replace(self._sizes.buffer(buffer), name=self._name("t"))
        return self.buffers[buffer]

    def stmt(self, stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
        """``stmt``, where ``values`` are what variables around it are called now."""
        match stmt:
            case Block():
                return self._block(stmt, values)
            case Compute():
                return self._compute(stmt, values)
            case Allocate():
                return replace(stmt, buffer=self.local(stmt.buffer))
            case For():
                new = self._var(stmt.var, "l")
                body = self.stmt(stmt.body, {**values, stmt.var: new})
                return replace(stmt, var=new, extent=self._expr(stmt.extent, values), body=body)
            case Opaque():
                names = {old.name: new.name for old, new in self.buffers.items()}
                # What it only declares, it need not be given.
                reads = tuple(names[name] for name in stmt.reads if name in names)
                writes = tuple(names[name] for name in stmt.writes if name in names)
                return replace(stmt, reads=reads, writes=writes, body=self.stmt(stmt.body, values))
            case _:
                stmt = map_exprs(stmt, lambda expr: self._expr(expr, values))
                if isinstance(stmt, Store):
                    return replace(stmt, buffer=self.buffers[stmt.buffer])
                if isinstance(stmt, Call):
                    return map_views(stmt, self._rebased)
                return with_nested(stmt, tuple(self.stmt(p, values) for p in nested(stmt)))

    def _block(self, stmt: Block, values: Mapping[Var, Expr]) -> Block:
        values = dict(values)
        body: list[Stmt] = []
        for part in stmt.body:
            if isinstance(part, Let):
                new = self._var(part.var, "v")
                body.append(replace(part, var=new, value=self._expr(part.value, values)))
                values[part.var] = new
            else:
                body.append(self.stmt(part, values))
        return replace(stmt, body=tuple(body))

    def _compute(self, stmt: Compute, values: Mapping[Var, Expr]) -> Compute:
        inside = dict(values)
        dims: list[Dim] = []
        for dim in stmt.dims:
            new = self._var(dim.var, "i")
            extent = self._expr(self._sizes.expr(dim.extent), values)
            dims.append(Dim(new, extent, dim.ordered))
            inside[dim.var] = new
        operands: list[Operand] = []
        for operand in stmt.operands:
            view = self._view(operand.view, inside)
            new = self._var(operand.var, "x")
            operands.append(Operand(new, view))
            inside[operand.var] = new
        results = tuple(
            Result(
                tuple(self._view(view, inside) for view in result.views),
                tuple(self._expr(value, inside) for value in result.values),
                result.combiner,
                result.unique,
            )
            for result in stmt.results
        )
        return replace(
            stmt,
            name=self._name("c"),
            dims=tuple(dims),
            operands=tuple(operands),
            results=results,
        )

    def _view(self, view: View, values: Mapping[Var, Expr]) -> View:
        index = tuple(self._expr(expr, values) for expr in view.index)
        mask = None if view.mask is None else self._expr(view.mask, values)
        return View(self.buffers[view.buffer], index, mask)

    def _rebased(self, view: View) -> View:
        """``view``, whose expressions have their names, of the new buffer."""
        return View(self.buffers[view.buffer], view.index, view.mask)

    def _expr(self, expr: Expr, values: Mapping[Var, Expr]) -> Expr:
        renamed = substitute(expr, values) if values else expr
        return rewrite_loads(renamed, self._load)

    def _load(self, node: Load) -> Expr:
        return load(self.buffers[node.buffer], node.index, node.mask)
