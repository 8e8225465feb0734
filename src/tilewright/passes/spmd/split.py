"""Cuts what work-items do at the barriers of their workgroup.

Between two barriers work-items don't meet, so each piece is a loop over work-items of its own, and
in their sequence barriers hold by themselves. Control around barriers, which is the same for all of
them, goes outside. (Regions between barriers: MCUDA, LCPC 2008; structured: Polygeist, PPoPP 2023.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Const, Expr, Load, Var, load
from tilewright.ir.stmt import Allocate, Block, Call, Kernel, Let, Stmt, Store, View
from tilewright.ir.visit import (
    block,
    direct_exprs,
    loads_in,
    map_exprs,
    map_kernel,
    map_views,
    reads_memory,
    rewrite_loads,
    rewrite_stmts,
    variables,
    walk,
    walk_stmts,
    with_nested,
)
from tilewright.passes.spmd.agreement import with_agreed
from tilewright.passes.spmd.nests import ItemNest, fresh, map_nests, names_of
from tilewright.passes.spmd.regions import (
    Around,
    Cutter,
    Once,
    Piece,
    Region,
    common_statements,
    regions_of,
    synchronizes,
)
from tilewright.passes.spmd.shuffles import exchanges, is_vector, shuffled
from tilewright.passes.spmd.together import together
from tilewright.passes.spmd.varying import Varying

# A value of more operations than this is kept for each work-item, not computed again.
_CHEAP = 12


def split_at_barriers(kernel: Kernel) -> Kernel:
    """Cuts nests of work-items at their barriers.

        workgroup for t in 64:
          i = t + g * 64
          x: f32 = src[i]
          s[t] = x
          for k in n:
            barrier()
            s[t] = s[63 - t] * x
            barrier()
    ->  alloc x_all: f32[64] workgroup
        workgroup for t in 64:
          i = t + g * 64
          x: f32 = src[i]
          x_all[t] = x
          s[t] = x
        for k in n:
          workgroup for t in 64:
            x: f32 = x_all[t]
            s[t] = s[63 - t] * x

    A name that is used behind a barrier is computed again where that is cheap and loads nothing;
    otherwise it is kept for each work-item. Private memory that lives across has a part for each of
    them, too. What is the same for all of them is computed once. Computes that are each one's part
    of what all do are cuts, and one compute (`together`). Shuffles go through memory: the
    subgroup's own where its lanes can be a vector; then registers hold it, and a shuffle is one of
    a vector's.

    Raises `UnsupportedError` where work-items may go different ways around a barrier.
    """
    taken = names_of(kernel)

    def change(nest: ItemNest) -> Stmt:
        in_vectors = is_vector(nest) and exchanges(nest.body)
        if in_vectors and not together(nest, set())[1]:
            meeting = any(map(synchronizes, walk_stmts(nest.body)))
            made = Splitter(nest, taken, frozenset()).run() if meeting else nest.around(nest.body)
            return map_nests(made, lambda each: _by_subgroups(each, taken))
        nest, memory = shuffled(nest, taken, Space.WORKGROUP)
        nest, whole = together(nest, taken)
        if whole or any(map(synchronizes, walk_stmts(nest.body))):
            return block(*map(Allocate, memory), Splitter(nest, taken, whole).run())
        return nest.around(nest.body)

    return map_kernel(kernel, lambda body: map_nests(body, change))


def _by_subgroups(nest: ItemNest, taken: set[str]) -> Stmt:
    """A nest whose lanes are cut at their shuffles, in the loops over subgroups.

        subgroup for s in 2:
          lane for l in 16:
            shuffle(&y[0], x[s, l], 15 - l)
            z[s, l] = y[0]
    ->  subgroup for s in 2:
          alloc shuffle: f32[16] private
          lane for l in 16:
            shuffle[l] = x[s, l]
          lane for l in 16:
            y[0] = shuffle[15 - l]
            z[s, l] = y[0]
    """
    if not exchanges(nest.body):
        return nest.around(nest.body)
    lanes = ItemNest(nest.loops[-1:], nest.body)
    lanes, memory = shuffled(replace(lanes, body=with_agreed(lanes, taken)), taken, Space.PRIVATE)
    body = _SubgroupSplitter(lanes, taken, frozenset(), memory).run()
    return ItemNest(nest.loops[:-1], nest.body).around(block(*map(Allocate, memory), body))


class Splitter:
    """Writes the pieces of a nest, and what goes from one to another. ``whole`` are the names of
    the computes that are cuts; private memory that is ``shared`` is there once for all."""

    # Whether barriers hold by themselves, as each piece is over before the next one begins.
    in_sequence = True
    # Where what crosses cuts is kept.
    space = Space.WORKGROUP

    def __init__(
        self,
        nest: ItemNest,
        taken: set[str],
        whole: frozenset[str],
        shared: Collection[Buffer] = (),
    ) -> None:
        self.nest = nest
        self.whole = whole
        self.taken = taken
        self.varying = Varying(nest.vars, nest.body, shared)
        self.pieces: list[Piece] = []
        # Where names and private memory are, if a region has them for others too.
        self.lets: dict[Var, tuple[Region, Let]] = {}
        self.owners: dict[Buffer, Region] = {}
        # What is instead of them where they cross a cut: one for each work-item, or one for all.
        self.kept: dict[Var, Buffer] = {}
        self.parts: dict[Buffer, Buffer] = {}
        self.common: dict[Buffer, Buffer] = {}

    def run(self) -> Stmt:
        """The pieces, each a loop over work-items. Raises `UnsupportedError`."""
        once: set[Var | Buffer] = set()
        while True:
            self.pieces = self._cutter(once).pieces()
            self._find()
            names, buffers = self._crossing()
            found: list[Var | Buffer] = [*names, *buffers]
            same = {each for each in found if not self._varies(each)} - once
            if not same:
                break
            once |= same
        for name in names:
            self.kept[name] = self._for_each(name.name, name.type, ())
        for each in buffers:
            self.parts[each] = self._for_each(each.name, each.dtype, each.shape)
        for memory in (each for each in once if isinstance(each, Buffer)):
            self.common[memory] = self._for_all(memory)
        made = [*self.kept.values(), *self.parts.values(), *self.common.values()]
        return block(*map(Allocate, made), *self._written(self.pieces))

    def _varies(self, each: Var | Buffer) -> bool:
        return each in (self.varying.buffers if isinstance(each, Buffer) else self.varying.names)

    def _cutter(self, once: set[Var | Buffer]) -> Cutter:
        barriers = not self.in_sequence
        return Cutter(self.nest.body, self.varying, once, self.whole, barriers=barriers)

    # Memory that lives across cuts.

    def _for_each(self, name: str, dtype: DType, shape: Sequence[int]) -> Buffer:
        """With a part for each work-item."""
        return self._memory(name, dtype, (*shape, *self.nest.extents))

    def _own(self, *index: Expr) -> tuple[Expr, ...]:
        """Where an element of a work-item's part is."""
        return (*index, *self.nest.vars)

    def _for_all(self, memory: Buffer) -> Buffer:
        return self._memory(memory.name, memory.dtype, memory.shape)

    def _memory(self, name: str, dtype: DType, shape: Sequence[int]) -> Buffer:
        return buffer(fresh(f"{name}_all", self.taken), dtype, shape, space=self.space)

    # What crosses the cuts.

    def _find(self) -> None:
        self.lets.clear()
        self.owners.clear()
        for region in regions_of(self.pieces):
            for stmt in region.stmts:
                if isinstance(stmt, Let):
                    self.lets[stmt.var] = region, stmt
                elif isinstance(stmt, Allocate):
                    self.owners[stmt.buffer] = region

    def _crossing(self) -> tuple[dict[Var, None], dict[Buffer, None]]:
        """The names and the private memory that are used outside of the region that has them and
        are not computed again, in order."""
        names: dict[Var, None] = {}
        buffers: dict[Buffer, None] = {}
        uses: list[tuple[Region | None, list[Stmt]]] = [
            (region, region.stmts) for region in regions_of(self.pieces)
        ]
        uses.append((None, list(common_statements(self.pieces))))
        for region, stmts in uses:
            inside = region is not None
            names.update(dict.fromkeys(self._needed(_names(stmts, inside), region)[0]))
            for each in _buffers(stmts, inside):
                owner = self.owners.get(each)
                if owner is not None and owner is not region:
                    buffers[each] = None
        ordered = {name: None for name in self.lets if name in names}
        return ordered, buffers

    def _needed(self, names: Iterable[Var], region: Region | None) -> tuple[list[Var], list[Var]]:
        """Of ``names``, and of what is needed to compute them again in ``region``: those that have
        to be kept, and those that are computed again."""
        kept: list[Var] = []
        again: list[Var] = []
        left, seen = list(names), set[Var]()
        while left:
            name = left.pop()
            found = self.lets.get(name)
            if name in seen or found is None or found[0] is region:
                continue
            seen.add(name)
            if _is_cheap(found[1].value):
                again.append(name)
                left += variables(found[1].value)
            else:
                kept.append(name)
        return kept, again

    # Writing.

    def _written(self, pieces: Sequence[Piece]) -> Iterator[Stmt]:
        for piece in pieces:
            match piece:
                case Region():
                    yield from self._region(piece)
                case Once():
                    yield self._renewed(piece.stmt)
                case Around():
                    parts = [list(self._written(part)) for part in piece.parts]
                    if isinstance(piece.stmt, Block):
                        yield Block(tuple(parts[0]), piece.stmt.span)
                    else:
                        inside = tuple(block(*part) if part else Block(()) for part in parts)
                        yield self._renewed_here(with_nested(piece.stmt, inside))

    def _region(self, region: Region) -> Iterator[Stmt]:
        """The loops over work-items around a region, if it does anything."""
        made: list[Stmt] = []
        effect = False
        for stmt in region.stmts:
            if isinstance(stmt, Allocate) and stmt.buffer in self.parts:
                continue
            made.append(self._renewed(stmt))
            effect = effect or not isinstance(stmt, Let | Allocate)
            if isinstance(stmt, Let) and stmt.var in self.kept:
                made.append(Store(self.kept[stmt.var], self._own(), stmt.var, stmt.span))
                effect = True
        if not effect:
            return
        kept, again = self._needed(_names(region.stmts, True), region)
        order = {name: position for position, name in enumerate(self.lets)}
        first: list[Stmt] = []
        for name in sorted({*kept, *again}, key=order.__getitem__):
            let = self.lets[name][1]
            if name in self.kept:
                let = replace(let, value=load(self.kept[name], self._own()))
            first.append(let)
        yield self.nest.around(block(*first, *made))

    def _renewed(self, stmt: Stmt) -> Stmt:
        """``stmt`` with the memory that is instead of what crosses cuts."""
        if not self.parts and not self.common:
            return stmt
        return rewrite_stmts(stmt, self._renewed_here)

    def _renewed_here(self, stmt: Stmt) -> Stmt:
        stmt = map_exprs(stmt, lambda expr: rewrite_loads(expr, self._load))
        if isinstance(stmt, Store):
            memory, index = self._place(stmt.buffer, stmt.index)
            return replace(stmt, buffer=memory, index=index)
        return map_views(stmt, lambda view: View(*self._place(view.buffer, view.index), view.mask))

    def _load(self, node: Load) -> Expr:
        return load(*self._place(node.buffer, node.index), node.mask)

    def _place(self, memory: Buffer, index: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        if memory in self.parts:
            return self.parts[memory], self._own(*index)
        return self.common.get(memory, memory), index


class _SubgroupSplitter(Splitter):
    """Pieces of the lanes of one subgroup, which hold private memory together."""

    space = Space.PRIVATE


def _is_cheap(value: Expr) -> bool:
    """Whether to compute ``value`` again rather than to keep it: numbers of few operations."""
    return (
        not reads_memory(value)
        and not value.type.is_float
        and sum(not isinstance(each, Var | Const) for each in walk(value)) <= _CHEAP
    )


def _names(stmts: Iterable[Stmt], inside: bool) -> set[Var]:
    """The names in the expressions of ``stmts``, and ``inside`` of them."""
    found: set[Var] = set()
    for stmt in stmts:
        for each in walk_stmts(stmt) if inside else (stmt,):
            for expr in direct_exprs(each):
                found |= variables(expr)
    return found


def _buffers(stmts: Iterable[Stmt], inside: bool) -> set[Buffer]:
    """The memory that ``stmts`` use, and ``inside`` of them."""
    found: set[Buffer] = set()
    for stmt in stmts:
        for each in walk_stmts(stmt) if inside else (stmt,):
            for expr in direct_exprs(each):
                found |= {node.buffer for node in loads_in(expr)}
            if isinstance(each, Store):
                found.add(each.buffer)
            elif isinstance(each, Call):
                found |= {arg.buffer for arg in each.args if isinstance(arg, View)}
    return found
