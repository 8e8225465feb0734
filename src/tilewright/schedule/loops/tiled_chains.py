"""A consumer's tile and those of its producers, which are found through the buffers between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr, Var, const
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, replace_buffer
from tilewright.schedule.loops.tile import Split, on_tile, rename_dims, split_dims, tile_of
from tilewright.schedule.queries.access import buffers_written
from tilewright.schedule.queries.place import (
    Place,
    loop_nest,
    plain,
    rewrite_kernel,
    sequence,
    views_of,
)


def _is_compute(stmt: Stmt, name: str) -> bool:
    return isinstance(stmt, Compute) and stmt.name == name


def _refusal(what: str, where: Stmt, why: str, cure: str) -> ScheduleError:
    return ScheduleError(f"compute_at: {what}", where=headline(where), why=why, cure=cure)


# How one dim of a buffer shrinks: the split of the dim that indexes it, and its full extent.
_Side = tuple[Split, Expr]
_UNIT = Split("", None, None, const(0), const(0), 1)


@dataclass(frozen=True)
class TiledChain:
    """A compute with what it depends on, and how they are tiled (see `compute_at`)."""

    root: str
    sizes: Mapping[str, int]
    order: Sequence[str]
    producers: Sequence[str] | None
    keep: Sequence[str]
    space: Space
    storage: Sequence[str]

    def on_kernel(self, kernel: Kernel) -> Kernel:
        """``kernel`` with all of them in common loops, not simplified."""
        return rewrite_kernel(kernel, self._on_stmt)

    def _on_stmt(self, stmt: Stmt, place: Place) -> Stmt | None:
        if isinstance(stmt, Block) and any(_is_compute(part, self.root) for part in stmt.body):
            return self._on_block(stmt, place)
        if _is_compute(stmt, self.root):
            return self._on_block(Block((stmt,)), place)
        return None

    def _on_block(self, stmt: Block, place: Place) -> Stmt:
        position = next(i for i, s in enumerate(stmt.body) if _is_compute(s, self.root))
        root_place = list(place.along(stmt))[position][0]
        root = stmt.body[position]
        assert isinstance(root, Compute)
        group, local = self._group(stmt, position)
        names = {o.var.name for compute in group for o in compute.operands}
        splits = split_dims(root, root_place, self.sizes, self.order, "compute_at", names)
        loops = [s.loop for s in splits.values() if s.loop is not None]
        tiles: dict[Buffer, tuple[_Side, ...]] = {}
        fused: list[Compute] = []
        for compute in reversed(group):
            here = splits
            if compute is not root:
                taken = root_place.names | {loop[0].name for loop in loops}
                compute = rename_dims(compute, taken)
                here = _from_output(compute, tiles[compute.out.buffer])
            for operand in compute.operands:
                if operand.view.buffer in local:
                    _note_tile(compute, operand.view, here, tiles)
            fused.append(_on_local(compute, on_tile(compute, here), here, local))
        return self._assemble(stmt, position, group, loops, tiles, list(reversed(fused)))

    def _assemble(
        self,
        stmt: Block,
        position: int,
        group: list[Compute],
        loops: Sequence[tuple[Var, Expr]],
        tiles: Mapping[Buffer, tuple[_Side, ...]],
        fused: Sequence[Compute],
    ) -> Stmt:
        allocated = [s for s in stmt.body if isinstance(s, Allocate) and s.buffer in tiles]
        inside = block(*allocated, *fused)
        for old, sides in tiles.items():
            sizes, names = [s.size for s, _ in sides], [s.name for s, _ in sides]
            inside = replace_buffer(
                inside, old, tile_of(old, sizes, names, self.storage, self.space)
            )
        rest: list[Stmt] = []
        for i, part in enumerate(stmt.body):
            if i == position:
                nest = loop_nest(loops, inside)
                rest += sequence(nest) if i == len(stmt.body) - 1 else [nest]
            elif part not in group and part not in allocated:
                rest.append(part)
        return block(*rest)

    def _group(self, stmt: Block, position: int) -> tuple[list[Compute], set[Buffer]]:
        """The computes to fuse, in program order, and the buffers that only they use."""
        root = stmt.body[position]
        assert isinstance(root, Compute)
        before = stmt.body[:position]
        allocated = {s.buffer for s in before if isinstance(s, Allocate)}
        group: list[Compute] = [root]
        local: set[Buffer] = set()
        for consumer in group:
            for operand in consumer.operands:
                buffer = operand.view.buffer
                if buffer not in allocated or buffer in local or buffer.name in self.keep:
                    continue
                writers = [s for s in before if buffer in buffers_written(s)]
                if not any(self._wanted(writer) for writer in writers):
                    continue
                local.add(buffer)
                for writer in writers:
                    if not isinstance(writer, Compute) or not self._wanted(writer):
                        raise _refusal(
                            f"'{buffer.name}' is also written by something that is not fused",
                            writer,
                            "the buffer shrinks to a tile",
                            "fuse all computes that write it",
                        )
                    if writer not in group:
                        group.append(plain(writer, "compute_at"))
        group = [s for s in stmt.body if isinstance(s, Compute) and s in group]
        _check_others(stmt, position, group, local)
        return group, local

    def _wanted(self, stmt: Stmt) -> bool:
        return isinstance(stmt, Compute) and (self.producers is None or stmt.name in self.producers)


def _check_others(stmt: Block, position: int, group: list[Compute], local: set[Buffer]) -> None:
    """Refuses when a statement that stays outside uses the buffers or comes in between."""
    reads: set[Buffer] = set()
    started = False
    for i, part in enumerate(stmt.body):
        if part in group:
            started = True
            assert isinstance(part, Compute)
            reads |= {o.view.buffer for o in part.operands}
            continue
        if isinstance(part, Allocate):
            continue
        if buffers_in(part) & local:
            name = min(b.name for b in buffers_in(part) & local)
            raise _refusal(
                f"'{name}' is used outside of what is fused",
                part,
                "the buffer shrinks to a tile",
                "fuse this user, or leave the producers of that buffer out of `producers`",
            )
        if started and i < position and buffers_written(part) & reads:
            raise _refusal(
                "a statement between the computes writes what they read",
                part,
                "the producers move to where the root stands",
                "move it before or behind them",
            )
    root = group[-1]
    for compute in group[:-1]:
        if root.out.buffer in {o.view.buffer for o in compute.operands}:
            raise _refusal(
                f"'{compute.name}' reads '{root.out.buffer.name}', which '{root.name}' writes",
                compute,
                "later tiles would read what earlier ones wrote",
                "write to another buffer",
            )


def _pure_dims(compute: Compute, view: View) -> tuple[Dim | None, ...]:
    """The dims that index ``view``, one per dim of its buffer; refuses other indices.

    None stands for a dim of the buffer of size 1, whatever its index is.
    """
    dims = {dim.var: dim for dim in compute.dims}
    found: list[Dim | None] = []
    for size, index in zip(view.buffer.sizes, view.index, strict=True):
        if isinstance(size, int) and size == 1:
            found.append(None)
            continue
        if not isinstance(index, Var) or index not in dims or dims[index] in found:
            raise _refusal(
                f"'{compute.name}' reaches '{view.buffer.name}' at {to_text(index)}",
                compute,
                "a tile of the consumer must need one tile of the producer, so that each dim of "
                "the buffer has to be indexed by a dim of its own",
                "stage the operand, or leave its producers out of `producers`",
            )
        found.append(dims[index])
    if view.mask is not None:
        raise _refusal(
            f"'{compute.name}' reaches '{view.buffer.name}' under a mask",
            compute,
            "the tile of the producer would depend on it",
            "leave its producers out of `producers`",
        )
    return tuple(found)


def _whole(dim: Dim, size: int) -> Split:
    """The split of a dim that is not tiled."""
    return Split(dim.var.name, None, dim, const(0), dim.var, size)


def _note_tile(
    compute: Compute,
    view: View,
    splits: Mapping[str, Split],
    tiles: dict[Buffer, tuple[_Side, ...]],
) -> None:
    """Remembers which tile of a buffer ``compute`` reads."""
    buffer = view.buffer
    sides: list[_Side] = []
    for size, dim in zip(buffer.sizes, _pure_dims(compute, view), strict=True):
        if dim is None:
            sides.append((_UNIT, const(1)))
            continue
        split = splits.get(dim.var.name)
        if split is None:
            if not isinstance(size, int):
                raise _refusal(
                    f"'{compute.name}' needs all of '{buffer.name}' along '{dim.var.name}'",
                    compute,
                    f"a tile has a size that is a number, and this is `{to_text(size)}`",
                    "give that dim a tile, too",
                )
            split = _whole(dim, size)
        sides.append((split, dim.extent))
    known = tiles.setdefault(buffer, tuple(sides))
    if any(a[0].base is not b[0].base for a, b in zip(known, sides, strict=True)):
        raise _refusal(
            f"'{buffer.name}' is needed in two different tiles",
            compute,
            "its readers tile it differently",
            "leave its producers out of `producers`",
        )


def _from_output(compute: Compute, sides: tuple[_Side, ...]) -> dict[str, Split]:
    """The splits of a producer's dims, from the tile of its output."""
    splits: dict[str, Split] = {}
    for dim, (split, extent) in zip(_pure_dims(compute, compute.out), sides, strict=True):
        if dim is None:
            continue
        if dim.extent is not extent:
            raise _refusal(
                f"'{compute.name}' makes {to_text(dim.extent)} of what its consumer reads "
                f"{to_text(extent)} of",
                compute,
                "the tiles of both must be the same",
                "leave it out of `producers`",
            )
        splits[dim.var.name] = split.along(dim)
    return splits


def _on_local(
    whole: Compute, tiled: Compute, splits: Mapping[str, Split], local: set[Buffer]
) -> Compute:
    """``tiled`` with the views of local buffers indexed from the start of the tile."""

    def view(before: View, after: View) -> View:
        if before.buffer not in local:
            return after
        index: list[Expr] = []
        for dim in _pure_dims(whole, before):
            split = splits.get(dim.var.name) if dim is not None else _UNIT
            kept = dim if split is None else split.inner
            index.append(const(0) if kept is None else kept.var)
        return View(before.buffer, tuple(index))

    views = [view(a, b) for a, b in zip(views_of(whole), views_of(tiled), strict=True)]
    operands = tuple(Operand(o.var, v) for o, v in zip(tiled.operands, views[1:], strict=True))
    return replace(tiled, operands=operands).with_result(views[0])
