"""Computes that follow one another in loops over dims that are named: what they hand on is then a
tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr, as_expr, const
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, For, If, Kernel, Stmt
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, rewrite_stmts, walk_stmts
from tilewright.schedule.loops.tile import Split, in_order, on_tile, on_tile_of, split_dim, tile_of
from tilewright.schedule.queries.access import Access, accesses
from tilewright.schedule.queries.dependence import conflict, conflict_text
from tilewright.schedule.queries.place import (
    Place,
    bound_names,
    dim_of,
    loop_nest,
    rewrite_kernel,
    sequence,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.transform import give


def _computes(stmt: Stmt) -> list[Compute]:
    """The computes in ``stmt``, in order."""
    return [compute for compute in walk_stmts(stmt) if isinstance(compute, Compute)]


@dataclass(frozen=True)
class TiledSequence:
    """Computes that follow one another up to the root, and how they are tiled (see `compute_at`):
    ``dims`` has those of each compute, in the order of ``sizes``."""

    root: str
    dims: Mapping[str, Sequence[str]]
    sizes: Mapping[str, int]
    order: Sequence[str]
    keep: Sequence[str]
    space: Space
    storage: Sequence[str]

    def on_kernel(self, kernel: Kernel) -> Kernel:
        """``kernel`` with all of them in common loops, not simplified."""
        loops = frozenset(s.var.name for s in walk_stmts(kernel.body) if isinstance(s, For))
        change = partial(self._on_stmt, loops=loops)
        return rewrite_kernel(kernel, change)

    def _on_stmt(self, stmt: Stmt, place: Place, loops: frozenset[str]) -> Stmt | None:
        parts = sequence(stmt)
        if not any(isinstance(part, Compute) and part.name in self.dims for part in parts):
            return None
        return self._on_block(Block(parts), place, loops)

    def _on_block(self, stmt: Block, place: Place, names: frozenset[str]) -> Stmt:
        at = self._positions(stmt)
        first, last = at[0], at[-1]
        computes = [compute for n in at for compute in _computes(stmt.body[n])]
        levels = self._levels(computes, place, names)

        def on_its_tile(part: Stmt) -> Stmt:
            if not isinstance(part, Compute):
                return part
            splits = {
                name: levels[dim].along(dim_of(part, name))
                for dim, name in zip(self.sizes, self.dims[part.name], strict=True)
                if levels[dim].loop is not None
            }
            return on_tile(part, splits)

        inside: list[Stmt] = [rewrite_stmts(stmt.body[n], on_its_tile) for n in at]
        loops = [level.loop for level in levels.values() if level.loop is not None]
        _check(loop_nest(loops, block(*inside)), place)
        gone: set[Stmt] = set()
        for part in stmt.body[:last]:
            if not isinstance(part, Allocate) or part.buffer.name in self.keep:
                continue
            local = self._local(stmt, part.buffer, computes, levels, place)
            if local is None:
                continue
            gone.add(part)
            changed = on_tile_of(block(*inside), part.buffer, *local)
            inside = [Allocate(local[0]), *sequence(changed)]
        outside = [s for s in stmt.body[first:last] if isinstance(s, Allocate) and s not in gone]
        before = [s for s in stmt.body[:first] if s not in gone]
        nest = loop_nest(loops, block(*inside))
        return block(*before, *outside, nest, *stmt.body[last + 1 :])

    def _positions(self, stmt: Block) -> list[int]:
        """Where the computes, or conditions of theirs alone, stand in the block; refuses where
        others stand between."""
        at = [n for n, part in enumerate(stmt.body) if self._is_shared(part)]
        names = {compute.name for n in at for compute in _computes(stmt.body[n])}
        if len(names) != len(self.dims):
            raise refusal(
                f"'{next(n for n in self.dims if n not in names)}' stands in another block",
                stmt.body[at[0]],
                "name computes of one block",
            )
        for part in stmt.body[at[0] : at[-1]]:
            if not isinstance(part, Allocate) and not any(part is stmt.body[n] for n in at):
                raise refusal(
                    "something else stands between the computes",
                    part,
                    "name it too, or share the loops of those before it and behind it apart",
                    why="it would run before them, or behind them",
                )
        return at

    def _is_shared(self, part: Stmt) -> bool:
        """Whether it is a compute that shares the loops, or a condition under which such are."""
        are_plain = all(isinstance(s, Compute | If | Block) for s in walk_stmts(part))
        computes = _computes(part)
        return (
            are_plain and bool(computes) and all(compute.name in self.dims for compute in computes)
        )

    def _levels(
        self, computes: Sequence[Compute], place: Place, loops: frozenset[str]
    ) -> dict[str, Split]:
        """How each of the root's dims splits, as the first compute has it; ``loops`` are names that
        others have."""
        levels: dict[str, Split] = {}
        # A dim that a loop takes out of all computes leaves its name to it.
        taken = {*place.names, *loops}.union(*map(bound_names, computes))
        root = next(compute for compute in computes if compute.name == self.root)
        for name in in_order(root, self.sizes, self.order):
            size = self.sizes[name]
            dims = [self._dim(compute, name) for compute in computes]
            first = dims[0]
            for compute, dim in zip(computes, dims, strict=True):
                if dim.extent is not first.extent:
                    raise refusal(
                        f"'{compute.name}' has {to_text(dim.extent)} of '{dim.var.name}', and "
                        f"'{computes[0].name}' {to_text(first.extent)} of '{first.var.name}'",
                        compute,
                        "name dims that are equally long",
                    )
            others = loops if self._leaves(computes, name) else taken
            split = split_dim(first, size, place, taken, {*others})
            if split.loop is not None:
                taken.add(split.loop[0].name)
                give(name, "loop", split.loop[0].name)
            levels[name] = split
        return levels

    def _leaves(self, computes: Sequence[Compute], root_dim: str) -> bool:
        """Whether nothing in the computes is called like the first one's dim, but dims that leave
        with it."""
        name = self._dim(computes[0], root_dim).var.name
        for compute in computes:
            others = {d.var.name for d in compute.dims} | {o.var.name for o in compute.operands}
            if name in others - {self._dim(compute, root_dim).var.name}:
                return False
        return True

    def _local(
        self,
        stmt: Block,
        buffer: Buffer,
        computes: Sequence[Compute],
        levels: Mapping[str, Split],
        place: Place,
    ) -> tuple[Buffer, list[Expr]] | None:
        """The tile of ``buffer``, and where it begins in each dim; None where others use it, a
        split dim does not index it, or it may have any size."""
        others = (s for s in stmt.body if not isinstance(s, Allocate) and not self._is_shared(s))
        if any(buffer in buffers_in(s) for s in others):
            return None
        touching = [a for c in computes for a in accesses(c, Place()) if a.view.buffer is buffer]
        names = [""] * buffer.rank
        for name, split in levels.items():
            if split.loop is None:
                continue
            position = next(
                (
                    p
                    for p in range(buffer.rank)
                    if not names[p] and all(self._is_at(access, p, name) for access in touching)
                ),
                None,
            )
            if position is None or not touching:
                return None
            names[position] = name
        if not any(names):
            return None
        shape = [
            levels[name].size if name else place.facts.bounds(as_expr(size))[1]
            for name, size in zip(names, buffer.sizes, strict=True)
        ]
        sizes = [size for size in shape if size is not None]
        if len(sizes) < len(shape):
            return None
        bases = [levels[name].base if name else const(0) for name in names]
        return tile_of(buffer, sizes, names, self.storage, self.space), bases

    def _is_at(self, access: Access, position: int, root_dim: str) -> bool:
        """Whether the compute reaches the element by its dim for that of the root."""
        assert isinstance(access.stmt, Compute)
        return access.view.index[position] is self._dim(access.stmt, root_dim).var

    def _dim(self, compute: Compute, root_dim: str) -> Dim:
        """The dim of ``compute`` that goes along with that of the root."""
        names = dict(zip(self.sizes, self.dims[compute.name], strict=True))
        return dim_of(compute, names[root_dim])


def _check(nest: Stmt, place: Place) -> None:
    """Refuses loops whose iterations are not independent."""
    here = place
    while isinstance(nest, For):
        access = conflict(nest, here)
        if access is not None:
            raise refusal(
                f"iterations of '{nest.var.name}' depend on each other",
                access.stmt,
                "name the dims by which all computes reach what they hand on",
                why=conflict_text(access, nest.var),
            )
        here, nest = here.inside(nest), nest.body
        if not any(isinstance(s, For) for s in walk_stmts(nest)):
            break
