"""Cuts the bodies of work-items at the barriers of their workgroup.

Between two barriers work-items don't synchronize, so each piece is a loop over work-items of its
own, and the sequence of these makes barriers unnecessary. Control around barriers, which is
uniform, goes outside. (Regions between barriers: MCUDA, LCPC 2008; structured: Polygeist, PPoPP
2023.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.load import Load, load
from tilewright.ir.renaming import fresh
from tilewright.ir.stmt import Allocate, Block, Kernel, Let, Stmt, Store, View
from tilewright.ir.uses import accesses
from tilewright.ir.visit import (
    block,
    direct_exprs,
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
from tilewright.passes.spmd.nests import ItemNest, map_nests, names_of
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

# Values of up to so many operations are computed again, instead of being kept for each work-item.
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

    A name that is used after a barrier is computed again where that is cheap and loads nothing;
    otherwise its value is kept for each work-item. Private memory that is live across a barrier has
    a part for each of them, too. Uniform values are computed once. Computes that are parts of one
    compute of all work-items are cuts, and become that (`together`). Shuffles go through memory:
    the subgroup's private memory where its lanes can be a vector; then registers hold it, and a
    shuffle is one of a vector's.

    Raises `UnsupportedError` where control around a barrier may diverge by work-item.
    """
    taken = names_of(kernel)

    def change(nest: ItemNest) -> Stmt:
        in_vectors = is_vector(nest) and exchanges(nest.body)
        if in_vectors and not together(nest, set())[1]:
            has_barriers = any(map(synchronizes, walk_stmts(nest.body)))
            split = (
                Splitter(nest, taken, frozenset()).run() if has_barriers else nest.around(nest.body)
            )
            return map_nests(split, lambda inner: _by_subgroups(inner, taken))
        nest, memory = shuffled(nest, taken, Space.WORKGROUP)
        nest, whole = together(nest, taken)
        if whole or any(map(synchronizes, walk_stmts(nest.body))):
            return block(*map(Allocate, memory), Splitter(nest, taken, whole).run())
        return nest.around(nest.body)

    return map_kernel(kernel, lambda body: map_nests(body, change))


def _by_subgroups(nest: ItemNest, taken: set[str]) -> Stmt:
    """A nest whose lanes are cut at their shuffles, within the loops over subgroups.

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
    """Writes the pieces of a nest, and the values that go from one to another. ``whole`` has the
    names of the computes that are cuts; private memory that is ``shared`` exists once for all."""

    # Whether pieces run one after another, so that barriers are unnecessary.
    in_sequence = True
    # The space of values that cross cuts.
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
        # The regions that define names and private memory.
        self.lets: dict[Var, tuple[Region, Let]] = {}
        self.owners: dict[Buffer, Region] = {}
        # Replacements of those that cross a cut: one for each work-item, or one for all.
        self.kept: dict[Var, Buffer] = {}
        self.parts: dict[Buffer, Buffer] = {}
        self.common: dict[Buffer, Buffer] = {}

    def run(self) -> Stmt:
        """The pieces, each a loop over work-items. Raises `UnsupportedError`."""
        once: set[Var | Buffer] = set()
        while True:
            self.pieces = self._cutter(once).pieces()
            self._find_definitions()
            names, buffers = self._crossing()
            crossing: list[Var | Buffer] = [*names, *buffers]
            same = {definition for definition in crossing if not self._varies(definition)} - once
            if not same:
                break
            once |= same
        for name in names:
            self.kept[name] = self._per_item(name.name, name.type, ())
        for private in buffers:
            self.parts[private] = self._per_item(private.name, private.dtype, private.shape)
        for memory in (definition for definition in once if isinstance(definition, Buffer)):
            self.common[memory] = self._for_all_items(memory)
        replacements = [*self.kept.values(), *self.parts.values(), *self.common.values()]
        return block(*map(Allocate, replacements), *self._emitted(self.pieces))

    def _varies(self, definition: Var | Buffer) -> bool:
        is_buffer = isinstance(definition, Buffer)
        return definition in (self.varying.buffers if is_buffer else self.varying.names)

    def _cutter(self, once: set[Var | Buffer]) -> Cutter:
        barriers = not self.in_sequence
        return Cutter(self.nest.body, self.varying, once, self.whole, barriers=barriers)

    # Memory that lives across cuts.

    def _per_item(self, name: str, dtype: DType, shape: Sequence[int]) -> Buffer:
        """Memory with a part for each work-item."""
        return self._memory(name, dtype, (*shape, *self.nest.extents))

    def _in_part(self, *index: Expr) -> tuple[Expr, ...]:
        """The index of an element in a work-item's part."""
        return (*index, *self.nest.vars)

    def _for_all_items(self, memory: Buffer) -> Buffer:
        return self._memory(memory.name, memory.dtype, memory.shape)

    def _memory(self, name: str, dtype: DType, shape: Sequence[int]) -> Buffer:
        return buffer(fresh(f"{name}_all", self.taken), dtype, shape, space=self.space)

    # Values that cross cuts.

    def _find_definitions(self) -> None:
        self.lets.clear()
        self.owners.clear()
        for region in regions_of(self.pieces):
            for stmt in region.stmts:
                if isinstance(stmt, Let):
                    self.lets[stmt.var] = region, stmt
                elif isinstance(stmt, Allocate):
                    self.owners[stmt.buffer] = region

    def _crossing(self) -> tuple[dict[Var, None], dict[Buffer, None]]:
        """The names and the private memory that are used outside of the region that defines them
        and are not computed again, in order."""
        names: dict[Var, None] = {}
        buffers: dict[Buffer, None] = {}
        uses: list[tuple[Region | None, list[Stmt]]] = [
            (region, region.stmts) for region in regions_of(self.pieces)
        ]
        uses.append((None, list(common_statements(self.pieces))))
        for region, stmts in uses:
            inside = region is not None
            names.update(dict.fromkeys(self._needed(_names(stmts, inside), region)[0]))
            for private in _buffers(stmts, inside):
                owner = self.owners.get(private)
                if owner is not None and owner is not region:
                    buffers[private] = None
        ordered = {name: None for name in self.lets if name in names}
        return ordered, buffers

    def _needed(self, names: Iterable[Var], region: Region | None) -> tuple[list[Var], list[Var]]:
        """Of ``names``, and of those needed to compute them again in ``region``: the kept ones, and
        those that are computed again."""
        kept: list[Var] = []
        again: list[Var] = []
        pending, seen = list(names), set[Var]()
        while pending:
            name = pending.pop()
            definition = self.lets.get(name)
            if name in seen or definition is None or definition[0] is region:
                continue
            seen.add(name)
            if _is_cheap(definition[1].value):
                again.append(name)
                pending += variables(definition[1].value)
            else:
                kept.append(name)
        return kept, again

    # Emission.

    def _emitted(self, pieces: Sequence[Piece]) -> Iterator[Stmt]:
        for piece in pieces:
            match piece:
                case Region():
                    yield from self._region(piece)
                case Once():
                    yield self._redirected(piece.stmt)
                case Around():
                    parts = [list(self._emitted(part)) for part in piece.parts]
                    if isinstance(piece.stmt, Block):
                        yield Block(tuple(parts[0]), piece.stmt.span)
                    else:
                        inside = tuple(block(*part) if part else Block(()) for part in parts)
                        yield self._redirected_here(with_nested(piece.stmt, inside))

    def _region(self, region: Region) -> Iterator[Stmt]:
        """The loops over work-items around a region, if it has an effect."""
        stmts: list[Stmt] = []
        effect = False
        for stmt in region.stmts:
            if isinstance(stmt, Allocate) and stmt.buffer in self.parts:
                continue
            stmts.append(self._redirected(stmt))
            effect = effect or not isinstance(stmt, Let | Allocate)
            if isinstance(stmt, Let) and stmt.var in self.kept:
                stmts.append(Store(self.kept[stmt.var], self._in_part(), stmt.var, stmt.span))
                effect = True
        if not effect:
            return
        kept, again = self._needed(_names(region.stmts, True), region)
        order = {name: position for position, name in enumerate(self.lets)}
        first: list[Stmt] = []
        for name in sorted({*kept, *again}, key=order.__getitem__):
            let = self.lets[name][1]
            if name in self.kept:
                let = replace(let, value=load(self.kept[name], self._in_part()))
            first.append(let)
        yield self.nest.around(block(*first, *stmts))

    def _redirected(self, stmt: Stmt) -> Stmt:
        """``stmt`` with accesses to the replacements of memory that crosses cuts."""
        if not self.parts and not self.common:
            return stmt
        return rewrite_stmts(stmt, self._redirected_here)

    def _redirected_here(self, stmt: Stmt) -> Stmt:
        stmt = map_exprs(stmt, lambda expr: rewrite_loads(expr, self._load))
        if isinstance(stmt, Store):
            memory, index = self._place(stmt.buffer, stmt.index)
            return replace(stmt, buffer=memory, index=index)
        return map_views(stmt, lambda view: View(*self._place(view.buffer, view.index), view.mask))

    def _load(self, node: Load) -> Expr:
        return load(*self._place(node.buffer, node.index), node.mask)

    def _place(self, memory: Buffer, index: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        if memory in self.parts:
            return self.parts[memory], self._in_part(*index)
        return self.common.get(memory, memory), index


class _SubgroupSplitter(Splitter):
    """Pieces of the lanes of one subgroup, which hold private memory together."""

    space = Space.PRIVATE


def _is_cheap(value: Expr) -> bool:
    """Whether to compute ``value`` again rather than to keep it: an integer of few operations."""
    return (
        not reads_memory(value)
        and not value.type.is_float
        and sum(not isinstance(node, Var | Const) for node in walk(value)) <= _CHEAP
    )


def _names(stmts: Iterable[Stmt], inside: bool) -> set[Var]:
    """The names in the expressions of ``stmts``, with those of nested statements if ``inside``."""
    names: set[Var] = set()
    for stmt in stmts:
        for node in walk_stmts(stmt) if inside else (stmt,):
            for expr in direct_exprs(node):
                names |= variables(expr)
    return names


def _buffers(stmts: Iterable[Stmt], inside: bool) -> set[Buffer]:
    """The memory that ``stmts`` access, with nested statements if ``inside``."""
    nodes = (node for stmt in stmts for node in (walk_stmts(stmt) if inside else (stmt,)))
    return {buffer for node in nodes for buffer, _ in accesses(node)}
