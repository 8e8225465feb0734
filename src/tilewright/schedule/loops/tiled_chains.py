"""A consumer's tile and those of its producers, which are found through the buffers between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.computes import view_exprs
from tilewright.ir.expr import Expr, Var, all_of, const, var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, For, Kernel, Operand, Stmt, View
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, reads_memory, variables
from tilewright.schedule.loops.tile import (
    Split,
    on_tile,
    on_tile_of,
    rename_dims,
    split_dims,
    tile_of,
)
from tilewright.schedule.queries.access import Access, buffers_written, run_along
from tilewright.schedule.queries.place import (
    Place,
    is_called,
    loop_nest,
    plain,
    rewrite_kernel,
    sequence,
)
from tilewright.schedule.queries.refusal import refusal

# How one dim of a buffer shrinks: the split of the dim that indexes it, and its full extent.
_Side = tuple[Split, Expr]
_UNIT = Split("", None, None, const(0), const(0), 1)


class _Window(Split):
    """A tile that a consumer reaches by more than a dim of its own: what windows of a tile's points
    have in common. It may begin before the buffer, and end after it."""


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
        if isinstance(stmt, Block) and any(is_called(part, self.root) for part in stmt.body):
            return self._on_block(stmt, place)
        if is_called(stmt, self.root):
            return self._on_block(Block((stmt,)), place)
        return None

    def _on_block(self, stmt: Block, place: Place) -> Stmt:
        position = next(i for i, s in enumerate(stmt.body) if is_called(s, self.root))
        root_place = list(place.along(stmt))[position][0]
        root = stmt.body[position]
        assert isinstance(root, Compute)
        group, local = self._group(stmt, position)
        names = {o.var.name for compute in group for o in compute.operands}
        splits = split_dims(root, root_place, self.sizes, self.order, names)
        loops = [s.loop for s in splits.values() if s.loop is not None]
        place = root_place
        for variable, extent in loops:
            place = place.inside(For(variable, extent, root))
        tiles: dict[Buffer, tuple[_Side, ...]] = {}
        results: dict[Buffer, tuple[_Side, ...]] = {}
        if any(member.out.buffer is root.out.buffer for member in group[:-1]):
            _check_result(root, splits)
            results[root.out.buffer] = _own(root, root.out, splits)
        fused: list[Compute] = []
        for compute in reversed(group):
            here = splits
            if compute is not root:
                taken = root_place.names | {loop[0].name for loop in loops}
                compute = rename_dims(compute, taken)
                here = _from_output(compute, {**results, **tiles}[compute.out.buffer])
            tiled = _inside(compute, on_tile(compute, here), here, local)
            for buffer in local & {o.view.buffer for o in compute.operands}:
                _note_tile(compute, tiled, buffer, _Tiled(here, place), tiles)
            fused.append(tiled)
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
            tile = tile_of(old, sizes, names, self.storage, self.space)
            bases = [None if side is _UNIT else side.base for side, _ in sides]
            inside = on_tile_of(inside, old, tile, bases)
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
        # What fills the result is fused where it is named.
        for part in before:
            named = isinstance(part, Compute) and part.name in (self.producers or ())
            if isinstance(part, Compute) and named and part.out.buffer is root.out.buffer:
                group.append(plain(part))
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
                        raise refusal(
                            f"'{buffer.name}' is also written by something that is not fused",
                            writer,
                            "fuse all computes that write it",
                            why="the buffer shrinks to a tile",
                        )
                    if writer not in group:
                        group.append(plain(writer))
        group = [s for s in stmt.body if isinstance(s, Compute) and s in group]
        _check_others(stmt, position, group, local)
        return group, local

    def _wanted(self, stmt: Stmt) -> bool:
        return isinstance(stmt, Compute) and (self.producers is None or stmt.name in self.producers)


def _check_others(stmt: Block, position: int, group: list[Compute], local: set[Buffer]) -> None:
    """Refuses when a statement that stays outside uses the buffers or comes in between."""
    reads: set[Buffer] = set()
    started = False
    result = group[-1].out.buffer
    filled = any(compute.out.buffer is result for compute in group[:-1])
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
            raise refusal(
                f"'{name}' is used outside of what is fused",
                part,
                "fuse this user, or leave the producers of that buffer out of `producers`",
                why="the buffer shrinks to a tile",
            )
        touched = buffers_in(part) if filled else frozenset[Buffer]()
        if started and i < position and (buffers_written(part) & reads or result in touched):
            raise refusal(
                "a statement between the computes writes what they read",
                part,
                "move it before or behind them",
                why="the producers move to where the root stands",
            )
    root = group[-1]
    for compute in group[:-1]:
        views = [o.view for o in compute.operands if o.view.buffer is result]
        fills = compute.out.buffer is result and all(view == compute.out for view in views)
        if views and not fills:
            raise refusal(
                f"'{compute.name}' reads '{root.out.buffer.name}', which '{root.name}' writes",
                compute,
                "write to another buffer",
                why="later tiles would read what earlier ones wrote",
            )


def _pure_dims(compute: Compute, view: View) -> tuple[Dim | None, ...]:
    """The dims that index ``view``, one per dim of its buffer; refuses other indices.

    None stands for a dim of the buffer of size 1, whatever its index is.
    """
    dims = {dim.var: dim for dim in compute.dims}
    dims_of: list[Dim | None] = []
    for size, index in zip(view.buffer.sizes, view.index, strict=True):
        if isinstance(size, int) and size == 1:
            dims_of.append(None)
            continue
        if not isinstance(index, Var) or index not in dims or dims[index] in dims_of:
            raise refusal(
                f"'{compute.name}' reaches '{view.buffer.name}' at {to_text(index)}",
                compute,
                "stage the operand, or leave its producers out of `producers`",
                "a tile of the consumer must need one tile of the producer, so that each dim of "
                "the buffer has to be indexed by a dim of its own",
            )
        dims_of.append(dims[index])
    if view.mask is not None:
        raise refusal(
            f"'{compute.name}' reaches '{view.buffer.name}' under a mask",
            compute,
            "leave its producers out of `producers`",
            why="the tile of the producer would depend on it",
        )
    return tuple(dims_of)


def _whole(dim: Dim, size: int) -> Split:
    """The split of a dim that is not tiled."""
    return Split(dim.var.name, None, dim, const(0), dim.var, size)


def _check_result(root: Compute, splits: Mapping[str, Split]) -> None:
    """Refuses to fill the result in each iteration of a loop that does not lead along it."""
    names = {dim.var.name for dim in _pure_dims(root, root.out) if dim is not None}
    for name, split in splits.items():
        if split.loop is not None and name not in names:
            raise refusal(
                f"'{root.out.buffer.name}' would be filled again for each tile of '{name}'",
                root,
                "leave what fills it out of `producers`",
                why="the result does not have that dim",
            )


@dataclass(frozen=True)
class _Tiled:
    """How the dims of a compute are split, and where it stands then."""

    splits: Mapping[str, Split]
    place: Place


def _note_tile(
    compute: Compute,
    tiled: Compute,
    buffer: Buffer,
    how: _Tiled,
    tiles: dict[Buffer, tuple[_Side, ...]],
) -> None:
    """Remembers which tile of a ``buffer`` the ``compute`` reads, which is ``tiled`` by now."""
    views = [o.view for o in compute.operands if o.view.buffer is buffer]
    if len(set(views)) == 1 and _is_own(compute, views[0]):
        sides = _own(compute, views[0], how.splits)
    else:
        reached = [o.view for o in tiled.operands if o.view.buffer is buffer]
        sides = _windows(tiled, reached, how)
    first = tiles.setdefault(buffer, sides)
    for (one, _), (other, _) in zip(first, sides, strict=True):
        if one.base is not other.base or one.size != other.size:
            raise refusal(
                f"'{buffer.name}' is needed in two different tiles",
                compute,
                "leave its producers out of `producers`",
                why="its readers tile it differently",
            )


def _is_own(compute: Compute, view: View) -> bool:
    """Whether ``compute`` reaches the buffer by dims of its own alone, everywhere."""
    vars_ = {dim.var for dim in compute.dims}
    return view.mask is None and all(
        size == 1 or (index in vars_ and view.index.count(index) == 1)
        for size, index in zip(view.buffer.sizes, view.index, strict=True)
    )


def _own(compute: Compute, view: View, splits: Mapping[str, Split]) -> tuple[_Side, ...]:
    """The tile of what ``compute`` reaches by dims of its own alone."""
    sides: list[_Side] = []
    for size, dim in zip(view.buffer.sizes, _pure_dims(compute, view), strict=True):
        if dim is None:
            sides.append((_UNIT, const(1)))
            continue
        split = splits.get(dim.var.name)
        if split is None:
            if not isinstance(size, int):
                raise refusal(
                    f"'{compute.name}' needs all of '{view.buffer.name}' along '{dim.var.name}'",
                    compute,
                    "give that dim a tile, too",
                    why=f"a tile has a size that is a number, and this is `{to_text(size)}`",
                )
            split = _whole(dim, size)
        sides.append((split, dim.extent))
    return tuple(sides)


def _windows(tiled: Compute, views: Sequence[View], how: _Tiled) -> tuple[_Side, ...]:
    """The tile of a buffer that ``tiled`` reaches at ``views``: of each dim a run that begins where
    loops say, or all of it."""
    loops = {split.loop[0]: name for name, split in how.splits.items() if split.loop is not None}
    splits: list[_Side] = []
    accesses = [Access(view, tiled, how.place, False) for view in views]
    for position, size in enumerate(views[0].buffer.sizes):
        indices = [view.index[position] for view in views]
        along = sorted({loops[v] for index in indices for v in variables(index) & loops.keys()})
        run = run_along(position, accesses) if along else None
        if not isinstance(size, int) or (along and run is None):
            raise refusal(
                f"'{tiled.name}' reaches '{views[0].buffer.name}' at {to_text(indices[0])}",
                tiled,
                "stage the operand, or leave its producers out of `producers`",
                why="a tile of the consumer must need one tile of the producer, which begins where "
                "loops say and has a size that is a number",
            )
        place = Dim(var("?"), const(size))
        if run is None or run[1] >= size:
            splits.append((_whole(place, size), const(size)))
            continue
        base, length = run
        inner = Dim(place.var, const(length))
        loop = how.splits[along[0]].loop
        window = _Window(along[0], loop, inner, base, base + inner.var, length)
        splits.append((window, const(size)))
    return tuple(splits)


def _from_output(compute: Compute, sides: tuple[_Side, ...]) -> dict[str, Split]:
    """The splits of a producer's dims, from the tile of its output."""
    splits: dict[str, Split] = {}
    for dim, (split, extent) in zip(_pure_dims(compute, compute.out), sides, strict=True):
        if dim is None:
            continue
        if dim.extent is not extent:
            raise refusal(
                f"'{compute.name}' makes {to_text(dim.extent)} of what its consumer reads "
                f"{to_text(extent)} of",
                compute,
                "leave it out of `producers`",
                why="the tiles of both must be the same",
            )
        splits[dim.var.name] = split.along(dim)
    return splits


def _inside(
    compute: Compute, tiled: Compute, splits: Mapping[str, Split], local: set[Buffer]
) -> Compute:
    """``tiled`` without what it would read for places of a window that ``compute`` does not
    have: a tile has room for these, and its consumer reads none of them."""
    limits = {
        dim.var: (split.value, dim.extent)
        for dim in compute.dims
        if isinstance(split := splits.get(dim.var.name), _Window)
    }
    if not limits:
        return tiled
    inside = [view_expr for o in compute.operands for view_expr in view_exprs(o.view)]
    inside += [value for result in compute.results for value in result.values]
    if any(reads_memory(expr) and variables(expr) & limits.keys() for expr in inside):
        raise refusal(
            f"'{compute.name}' loads what no operand is",
            compute,
            "name its operands (name_operands); where arrays say what is read, leave it out of "
            "`producers`",
            "a window of its consumer has places that it does not, for which only operands have "
            "masks",
        )
    operands: list[Operand] = []
    for before, after in zip(compute.operands, tiled.operands, strict=True):
        if before.view.buffer in local:
            operands.append(after)
            continue
        bounded = [limits[v] for v in limits if any(v in variables(i) for i in before.view.index)]
        tests = [test for value, end in bounded for test in (value >= 0, value < end)]
        masks = [] if after.view.mask is None else [after.view.mask]
        mask = all_of([*masks, *tests])
        operands.append(replace(after, view=replace(after.view, mask=mask)))
    return replace(tiled, operands=tuple(operands))
