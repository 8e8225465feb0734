"""Cuts the bodies of lanes at the computes that a subgroup carries out as one.

A machine whose subgroups multiply matrices takes computes outside of the loops over lanes. Work of
separate lanes stands between them, in loops of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Expr, const
from tilewright.ir.renaming import fresh
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    If,
    Kernel,
    LoopKind,
    Stmt,
    View,
)
from tilewright.ir.uses import accesses
from tilewright.ir.visit import block, map_views, rewrite_stmts, walk_stmts
from tilewright.passes.spmd.names import name_values
from tilewright.passes.spmd.nests import ItemNest, map_nests, names_of
from tilewright.passes.spmd.regions import Once, Piece, synchronizes
from tilewright.passes.spmd.shuffles import exchanges
from tilewright.passes.spmd.split import Splitter
from tilewright.passes.spmd.together import together


def split_at_matrices(
    kernel: Kernel, wanted: Callable[[Compute], bool], held: Collection[str], lanes: int
) -> tuple[Kernel, frozenset[str]]:
    """``kernel`` with computes of a whole subgroup of ``lanes`` instead of each lane's, as far as
    they are ``wanted``, and their names. The memory called ``held``, which only they use, becomes
    private. In a kernel with smaller subgroups, the other lanes take part in these computes only.

        alloc acc: f32[2, 16, 16] workgroup
        subgroup for s in 2:
          lane for l in 32:
            compute zero(r in 8): acc[s, r * 2 + l // 16, l % 16] = 0.0
            for k in n:
              t[s, l] = x[k, l]
              subgroup_barrier()
              ...
    ->  subgroup for s in 2:
          alloc acc: f32[16, 16] private
          compute zero(row in 16, col in 16): acc[row, col] = 0.0
          for k in n:
            lane for l in 32:
              t[s, l] = x[k, l]
            subgroup_barrier()
            ...

    Raises `UnsupportedError` where control around such a compute or a barrier may diverge,
    and where other statements use the memory.
    """
    taken = names_of(kernel)
    joined: set[str] = set()

    def change(nest: ItemNest) -> Stmt:
        *outer, last = nest.loops
        inner, whole = nest, frozenset[str]()
        if last.kind is LoopKind.LANE:
            inner, whole = together(ItemNest((last,), nest.body), taken, wanted)
        joined.update(whole)
        if not whole:
            return nest.around(nest.body)
        body = _LaneSplitter(_Lanes(inner.loops, inner.body, lanes), taken, whole, held).run()
        for name in held:
            body = _private(body, name, whole)
        return ItemNest(tuple(outer), Block(())).around(body)

    body = map_nests(name_values(kernel).body, change)
    return replace(kernel, body=_without(body, held)), frozenset(joined)


@dataclass(frozen=True)
class _Lanes(ItemNest):
    """The lanes of a subgroup of ``lanes``, of which only the first have work-items."""

    lanes: int

    def __post_init__(self) -> None:
        if self.extents[0] < self.lanes and exchanges(self.body):
            raise UnsupportedError(
                f"a subgroup of {self.lanes} lanes would exchange values of {self.extents[0]}",
                where=f"loop {self.loops[0].var.name}",
                cure=f"let subgroups have {self.lanes} lanes",
            )

    def around(self, body: Stmt) -> Stmt:
        """The loop over lanes around ``body``, for lanes with work-items."""
        (loop,), (count,) = self.loops, self.extents
        if count < self.lanes:
            body = If(loop.var < count, body)
        return replace(loop, extent=const(self.lanes), body=body)


class _LaneSplitter(Splitter):
    """Values that go from one piece to another stay in registers of each lane; barriers stay."""

    in_sequence = False

    def __init__(
        self, nest: _Lanes, taken: set[str], whole: frozenset[str], held: Collection[str]
    ) -> None:
        super().__init__(nest, taken, whole)
        self._lanes = nest.lanes
        accessed = ({buffer for buffer, _ in accesses(stmt)} for stmt in walk_stmts(nest.body))
        users = Counter(memory for buffers in accessed for memory in buffers)
        self._shared = {m for m, count in users.items() if count > 1 and m.name not in held}

    def _per_item(self, name: str, dtype: DType, shape: Sequence[int]) -> Buffer:
        size = (self._lanes, *shape)
        return buffer(fresh(f"{name}_all", self.taken), dtype, size, space=Space.PRIVATE)

    def _in_part(self, *index: Expr) -> tuple[Expr, ...]:
        return (*self.nest.vars, *index)

    def _for_all_items(self, memory: Buffer) -> Buffer:
        raise UnsupportedError(
            f"'{memory.name}' is private to lanes, and a compute of all of them depends on it",
            where=f"buffer {memory.name}",
            cure="let it depend on arguments and the group's number",
        )

    def _emitted(self, pieces: Sequence[Piece]) -> Iterator[Stmt]:
        barrier, after_barrier = Call("subgroup_barrier", ()), False
        for piece in pieces:
            stmts = list(super()._emitted([piece]))
            # Another lane may access an element now.
            whole = piece.stmt if isinstance(piece, Once) else None
            if isinstance(whole, Compute) and not self._shared.isdisjoint(_buffers_of(whole)):
                stmts = [barrier, *stmts, barrier]
            for stmt in stmts:
                is_barrier = isinstance(stmt, Call) and stmt.function == barrier.function
                if not (after_barrier and is_barrier):
                    yield stmt
                after_barrier = synchronizes(stmt)


def _buffers_of(stmt: Stmt) -> Iterator[Buffer]:
    """The memory that ``stmt`` itself accesses."""
    return (buffer for buffer, _ in accesses(stmt))


def _private(body: Stmt, name: str, whole: Collection[str]) -> Stmt:
    """``body`` with a private matrix of the subgroup instead of its part of the memory ``name``."""
    users = [s for s in walk_stmts(body) if any(m.name == name for m in _buffers_of(s))]
    views = [
        view
        for stmt in users
        if isinstance(stmt, Compute) and stmt.name in whole
        for view in (*stmt.outputs, *(operand.view for operand in stmt.operands))
        if view.buffer.name == name
    ]
    parts = {view.index[:-2] for view in views}
    if len(parts) != 1 or any(not isinstance(s, Compute) or s.name not in whole for s in users):
        raise UnsupportedError(
            f"'{name}' is not only used as a whole",
            where=f"buffer {name}",
            why="lanes access single elements",
            cure="keep it in memory",
        )
    memory = views[0].buffer
    private = buffer(name, memory.dtype, memory.shape[-2:], space=Space.PRIVATE)

    def redirected(view: View) -> View:
        return (
            replace(view, buffer=private, index=view.index[-2:]) if view.buffer is memory else view
        )

    return block(Allocate(private), rewrite_stmts(body, lambda stmt: map_views(stmt, redirected)))


def _without(body: Stmt, held: Collection[str]) -> Stmt:
    """``body`` without the workgroup's memory called ``held``."""

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Block):
            return stmt
        kept = [
            part
            for part in stmt.body
            if not isinstance(part, Allocate)
            or part.buffer.name not in held
            or part.buffer.space is Space.PRIVATE
        ]
        return stmt if len(kept) == len(stmt.body) else replace(stmt, body=tuple(kept))

    return rewrite_stmts(body, change)
