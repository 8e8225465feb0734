"""The numbers that a part of a graph takes, for the sizes that calls of the graph pass.

    compute y(i in n * m, j in 64): y[i, j] = x[i, j] + 1.0     # p: f32[n * m, 64]
->  kernel elementwise(n0: s64, in p0: f32[n0, 64], ...)         # n0 is n * m

What is a size as a whole is one number of the kernel, where it does without those that it is made
of: so equal parts of a graph are one kernel, and products of sizes are rows like any others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.ir.buffer import Buffer, Layout, Size, part, symbols_of
from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.open_sizes import plain_sum
from tilewright.ir.sizes import Sizes, polynomial
from tilewright.ir.stmt import Allocate, Compute, ScalarParam, Stmt
from tilewright.ir.symbols import substitute_size
from tilewright.ir.visit import direct_exprs, variables, walk_stmts


@dataclass(frozen=True)
class Numbered:
    """``params`` are the kernel's numbers, ``numbers`` what they are in the graph, and ``values``
    what the graph's own are called now."""

    params: tuple[ScalarParam, ...] = ()
    numbers: tuple[Size, ...] = ()
    values: Mapping[Var, Expr] = field(default_factory=dict)
    _whole: Mapping[Expr, Expr] = field(default_factory=dict)

    @classmethod
    def of(
        cls, stmts: Sequence[Stmt], buffers: Sequence[Buffer], scalars: Sequence[ScalarParam]
    ) -> Numbered:
        """Those of ``stmts`` on ``buffers``, some of whose sizes depend on ``scalars``."""
        if not scalars:
            return cls()
        names = {param.var for param in scalars}
        nodes = [node for stmt in stmts for node in walk_stmts(stmt)]
        buffers = [*buffers, *(node.buffer for node in nodes if isinstance(node, Allocate))]
        extents = [dim.extent for node in nodes if isinstance(node, Compute) for dim in node.dims]
        sizes = [*_open(names, [size for b in buffers for size in b.sizes]), *_open(names, extents)]
        others = _open(names, [expr for node in nodes for expr in _beside_extents(node)])
        others += _open(names, [p.stride for b in buffers for p in b.layout.parts])
        proofs = Sizes(scalars)
        whole: dict[Expr, Expr] = {}
        for size in sizes:
            whole[size] = plain_sum(polynomial(size))
        apart = list(dict.fromkeys(whole.values()))
        used = [variables(size) & names for size in apart]
        if others or sum(map(len, used)) > len(frozenset[Var]().union(*used)):
            apart = _in_order(names, [*sizes, *others])
            whole = {}
        params, new = [], {}
        for number, size in enumerate(apart):
            named = new[size] = var(f"n{number}")
            params.append(_promising(named, size, scalars, proofs))
        values = {old: name for old, name in new.items() if isinstance(old, Var)}
        return cls(tuple(params), tuple(apart), values, {old: new[s] for old, s in whole.items()})

    def size(self, size: Size) -> Size:
        """``size`` in the kernel's numbers."""
        if isinstance(size, Expr) and size in self._whole:
            return self._whole[size]
        return substitute_size(size, self.values)

    def expr(self, extent: Expr) -> Expr:
        """The extent of a dim in the kernel's numbers, where it is one of them as a whole."""
        return self._whole.get(extent, extent) if self._whole else extent

    def buffer(self, old: Buffer) -> Buffer:
        """``old`` with its sizes in the kernel's numbers."""
        if not old.symbols:
            return old
        layout = old.layout
        parts = tuple(part(p.dim, self.size(p.size), self.size(p.stride)) for p in layout.parts)
        layout = Layout(parts, self.size(layout.start), layout.swizzle)
        return replace(old, sizes=tuple(map(self.size, old.sizes)), layout=layout)


def _beside_extents(stmt: Stmt) -> list[Expr]:
    """The expressions in ``stmt``, but for one extent of each of its dims (which come first): where
    an index is the same expression as an extent, the index stays."""
    return direct_exprs(stmt)[len(stmt.dims) if isinstance(stmt, Compute) else 0 :]


def _open(names: set[Var], sizes: Iterable[Size]) -> list[Expr]:
    return [
        size for size in sizes if isinstance(size, Expr) and not names.isdisjoint(variables(size))
    ]


def _in_order(names: set[Var], sizes: Iterable[Expr]) -> list[Expr]:
    """The scalars that occur, in the order in which they do."""
    scalars: dict[Var, None] = {}
    for size in sizes:
        symbols_there = symbols_of(size) | variables(size)
        scalars |= dict.fromkeys(sorted(names & symbols_there, key=lambda v: v.name))
    return [*scalars]


def _promising(name: Var, size: Expr, scalars: Sequence[ScalarParam], proofs: Sizes) -> ScalarParam:
    for param in scalars:
        if param.var is size:
            return replace(param, var=name)
    low, high = proofs.bounds(size)
    return ScalarParam(name, low, high, max(1, proofs.divisor(size)))
