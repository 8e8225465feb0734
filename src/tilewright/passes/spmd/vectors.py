"""Work-items as lanes of vectors.

The innermost loop over work-items is cut into vectors. Private memory that differs among their
lanes has a part for each lane. Divergent control stays as loops and conditions whose number of
iterations, or outcome, differs by lane; targets mask it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Const, Expr, Var, binary, const, var
from tilewright.ir.load import Load, load
from tilewright.ir.renaming import fresh, with_distinct_names
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.verify_groups import lane_loops
from tilewright.ir.visit import (
    block,
    children,
    direct_exprs,
    loads_in,
    map_exprs,
    map_kernel,
    map_views,
    nested,
    rewrite_loads,
    substitute_stmt,
    walk_stmts,
    with_nested,
)
from tilewright.passes.spmd.nests import ItemNest, map_nests, names_of
from tilewright.passes.spmd.strides import Strides
from tilewright.passes.spmd.trips import split_common_trips
from tilewright.passes.spmd.varying import Varying
from tilewright.passes.spmd.whole import on_whole_vectors

# Arrays of more elements than this are not initialized: they are memory, not registers.
_FEW = 32
# Vectors of more statements, or with loops, check one by one whether all their lanes are inside:
# the check costs little there. For others, one check is for all of a workgroup.
_SHORT = 24
# Where all lanes take one path of no more than so many operations, so many vectors become one:
# loads for the next need not wait for stores of this one, and whether lanes lie side by side is
# asked once for all.
_AT_ONCE, _OPERATIONS = 4, 64


def vectorize_items(kernel: Kernel, width: int) -> Kernel:
    """Makes work-items lanes of vectors of ``width``, and groups iterations on threads.

        grid for g in n:
          workgroup for y in 4:
            workgroup for x in 64:
              alloc sum: f32[1] private
              sum[0] = 0.0
              for k in s64(c[g * 64 + x]):
                sum[0] = sum[0] + a[k, x]
              b[g, y, x] = sum[0]
    ->  parallel for g in n:
          for y in 4:
            for x_o in 8:
              alloc sum: f32[1, 8] private
              vector for x_i in 8:
                sum[0, x_i] = 0.0
                for k in s64(c[g * 64 + (x_o * 8 + x_i)]):
                  sum[0, x_i] = sum[0, x_i] + a[k, x_o * 8 + x_i]
                b[g, y, x_o * 8 + x_i] = sum[0, x_i]

    A remainder of work-items is a vector of fewer lanes, after the others. Where a condition can be
    decided for all lanes at once, there are two vector loops, one of them without it (`whole`).
    """
    taken = names_of(kernel)

    def change(nest: ItemNest) -> Stmt:
        if not lane_loops(nest.body):
            return _Vectorizer(nest, width, taken).run()
        # Lanes that were cut at shuffles hold values in the registers of one vector.
        body = map_nests(
            nest.body, lambda inner: _Vectorizer(inner, inner.extents[-1], taken).run()
        )
        return _in_order(nest.loops, body)

    def whole(body: Stmt) -> Stmt:
        return with_distinct_names(_on_threads(map_nests(body, change)), taken)

    return map_kernel(kernel, whole)


def _on_threads(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and stmt.kind is LoopKind.GRID:
        return replace(stmt, kind=LoopKind.PARALLEL, body=_on_threads(stmt.body))
    return with_nested(stmt, tuple(_on_threads(part) for part in nested(stmt)))


def _in_order(loops: Sequence[For], body: Stmt) -> Stmt:
    """``body`` in serial ``loops``."""
    for loop in reversed(loops):
        body = replace(loop, kind=LoopKind.SERIAL, body=body)
    return body


@dataclass
class _Vectorizer:
    nest: ItemNest
    width: int
    taken: set[str]

    def run(self) -> Stmt:
        loop, items = self.nest.loops[-1], self.nest.extents[-1]
        width = min(self.width, items)
        body = self.nest.body
        if width <= 1:
            one = replace(loop, kind=LoopKind.SERIAL, body=body)
            return _in_order(self.nest.loops[:-1], one if items > 0 else Block(()))
        vectors = self._vectors(body, width)
        uniform = self._all_inside(body) if items > width else None
        if uniform is not None:
            lanes = wider(uniform[1], width)
            while lanes > width and items % lanes:
                lanes //= 2
            vectors = If(uniform[0], self._vectors(uniform[1], lanes), vectors)
        return _in_order(self.nest.loops[:-1], vectors)

    def _vectors(self, body: Stmt, width: int) -> Stmt:
        """All work-items, as vectors of ``width``, and one of fewer lanes for the rest."""
        loop, items = self.nest.loops[-1], self.nest.extents[-1]
        block_var = var(fresh(f"{loop.var.name}_o", self.taken))
        whole = items // width
        first = block_var * width if whole > 1 else const(0)
        inside = self._vector(body, first, width)
        stmts: list[Stmt] = [For(block_var, const(whole), inside) if whole > 1 else inside]
        if items % width:
            stmts.append(self._vector(body, const(whole * width), items % width))
        return block(*stmts)

    def _all_inside(self, body: Stmt) -> tuple[Expr, Stmt] | None:
        """The body of all work-items where a condition is decided for all of them at once."""
        stmts = [stmt for stmt in walk_stmts(body) if not isinstance(stmt, Block)]
        if len(stmts) > _SHORT or any(isinstance(stmt, For | While) for stmt in stmts):
            return None
        item = self.nest.loops[-1].var
        writer = Lanes(item, Varying([item], body), {}, self.nest.extents[-1], self.taken)
        return on_whole_vectors(writer.visit(body), writer.strides, self.nest.extents[-1])

    def _vector(self, body: Stmt, first: Expr, width: int) -> Stmt:
        """The work-items from ``first`` on as ``width`` lanes."""
        return as_lanes(replace(self.nest.loops[-1], body=body), first, width, self.taken)


def wider(body: Stmt, width: int) -> int:
    """How many lanes at once ``body`` has where all of them take one path, of ``width`` each."""
    return _AT_ONCE * width if _operations(body) <= _OPERATIONS else width


def as_lanes(loop: For, first: Expr, width: int, taken: set[str]) -> Stmt:
    """The iterations of ``loop`` from ``first`` on as ``width`` lanes."""
    item, body = loop.var, loop.body
    if width == 1:
        return substitute_stmt(body, {item: first})
    lane = var(fresh(f"{item.name}_i", taken))
    body = substitute_stmt(body, {item: first + lane})
    varying = Varying([lane], body)
    writer = Lanes(lane, varying, expanded_buffers(body, varying, width), width, taken)
    inside = block(*initial_stores(body, writer.parts, lane), writer.visit(body))
    last = binary("eq", lane, const(width - 1))
    memory = [
        Allocate(writer.parts[stmt.buffer], stmt.span)
        for stmt in walk_stmts(body)
        if isinstance(stmt, Allocate) and stmt.buffer in writer.parts
    ]
    vector = For(
        lane, const(width), _stored_by_last(inside, varying, last), LoopKind.VECTOR, loop.span
    )
    whole = on_whole_vectors(inside, writer.strides, width)
    if whole is not None:
        together = replace(vector, body=_stored_by_last(whole[1], varying, last))
        return block(*memory, If(whole[0], together, vector))
    return block(*memory, vector)


def _operations(body: Stmt) -> int:
    """The number of operations and accesses of ``body``, without those of indices and of unused
    names."""
    stmts = list(walk_stmts(body))
    names: dict[Expr, Expr] = {stmt.var: stmt.value for stmt in stmts if isinstance(stmt, Let)}
    pending: list[Expr] = []
    for stmt in stmts:
        if not isinstance(stmt, Let):
            pending += [stmt.value] if isinstance(stmt, Store) else direct_exprs(stmt)
    seen: set[Expr] = set()
    while pending:
        node = pending.pop()
        node = names.get(node, node)
        if node not in seen and not isinstance(node, Const | Var):
            seen.add(node)
            pending += () if isinstance(node, Load) else children(node)
    return len(seen) + sum(isinstance(stmt, Store) for stmt in stmts)


def _stored_by_last(stmt: Stmt, varying: Varying, last: Expr) -> Stmt:
    """``stmt`` where a store of all lanes to one place is done by the ``last`` one."""
    match stmt:
        case Store() if stmt.buffer.space is not Space.PRIVATE:
            return stmt if varying.any_of(stmt.index) else If(last, stmt, span=stmt.span)
        case If() | While() if varying.of(stmt.condition):
            return stmt
        case For() if varying.of(stmt.extent):
            return stmt
        case _:
            return with_nested(
                stmt, tuple(_stored_by_last(part, varying, last) for part in nested(stmt))
            )


def expanded_buffers(body: Stmt, varying: Varying, width: int) -> dict[Buffer, Buffer]:
    """The private memory of ``body`` that differs by lane, with the buffers that have a part for
    each lane."""
    return {
        stmt.buffer: buffer(
            stmt.buffer.name, stmt.buffer.dtype, (*stmt.buffer.shape, width), space=Space.PRIVATE
        )
        for stmt in walk_stmts(body)
        if isinstance(stmt, Allocate) and stmt.buffer in varying.buffers
    }


def initial_stores(body: Stmt, parts: dict[Buffer, Buffer], lane: Var) -> list[Stmt]:
    """Stores of zero to memory that some lanes may write first: so the contents in other lanes stay
    in registers, too."""
    stmts = body.body if isinstance(body, Block) else (body,)
    stores: list[Stmt] = []
    for old, new in parts.items():
        first = next((s for s in stmts if _uses(s, old)), None)
        few = len(old.shape) == 1 and old.shape[0] <= _FEW
        if few and not isinstance(first, Store):
            zero = const(0, old.dtype)
            stores += [Store(new, (const(i), lane), zero) for i in range(old.shape[0])]
    return stores


def _uses(stmt: Stmt, memory: Buffer) -> bool:
    for node in walk_stmts(stmt):
        if isinstance(node, Store) and node.buffer is memory:
            return True
        if isinstance(node, Call | Compute):
            return True
        for expr in direct_exprs(node):
            if any(load.buffer is memory for load in loads_in(expr)):
                return True
    return False


@dataclass
class Lanes:
    """Rewrites statements of work-items as statements of lanes."""

    lane: Var
    varying: Varying
    parts: dict[Buffer, Buffer]
    width: int
    taken: set[str]

    def __post_init__(self) -> None:
        self.strides = Strides(self.lane, self.varying)

    def visit(self, stmt: Stmt) -> Stmt:
        """``stmt`` with indices by the lane, in memory that has a part for it."""
        if isinstance(stmt, Block):
            kept = [p for p in stmt.body if not self._is_spread(p)]
            return Block(tuple(map(self.visit, kept)), stmt.span)
        if self._is_spread(stmt):
            return Block(())
        stmt = map_exprs(stmt, self._expr)
        match stmt:
            case Let():
                self.strides.name(stmt)
                return stmt
            case Store():
                memory, index = self._place(stmt.buffer, stmt.index)
                return replace(stmt, buffer=memory, index=index)
            case Call() | Compute():
                return map_views(
                    stmt, lambda view: View(*self._place(view.buffer, view.index), view.mask)
                )
            case For():
                loop = with_nested(stmt, tuple(map(self.visit, nested(stmt))))
                assert isinstance(loop, For)
                return split_common_trips(loop, self.strides, self.width, self.taken)
            case _:
                return with_nested(stmt, tuple(map(self.visit, nested(stmt))))

    def _is_spread(self, stmt: Stmt) -> bool:
        return isinstance(stmt, Allocate) and stmt.buffer in self.parts

    def _expr(self, expr: Expr) -> Expr:
        return rewrite_loads(expr, self._load)

    def _load(self, node: Load) -> Expr:
        return load(*self._place(node.buffer, node.index), node.mask)

    def _place(self, memory: Buffer, index: Sequence[Expr]) -> tuple[Buffer, tuple[Expr, ...]]:
        by_lane = tuple(map(self.strides.index, index))
        if memory in self.parts:
            return self.parts[memory], (*by_lane, self.lane)
        return memory, by_lane
