"""Computes that follow one another in common loops: what they hand on is then a tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.errors import ScheduleError
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr, const, var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, For, If, Kernel, Stmt, View
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, rewrite_stmts, walk_stmts
from tilewright.schedule.loops.tile import Split, on_tile, tile_extents
from tilewright.schedule.queries.access import Access, accesses, readdress
from tilewright.schedule.queries.dependence import conflict, conflict_text
from tilewright.schedule.queries.place import (
    Place,
    bound_names,
    computes_named,
    dim_of,
    fresh,
    loop_nest,
    rewrite_placed,
)
from tilewright.schedule.queries.storage import ordered_layout
from tilewright.schedule.records.asks import asks
from tilewright.schedule.records.transform import give, transform


def _computes_with_dims(
    kernel: Kernel, transform: str, name: str, given: Mapping[str, Mapping[str, Sequence[str]]]
) -> None:
    """There are such computes, with such dims, as many of each, and a size for every one."""
    dims, sizes = given[name], given["sizes"]
    for compute, names in dims.items():
        found = computes_named(kernel, compute, transform, any_kind=True)
        if len(found) > 1:
            raise _refusal(
                f"there are {len(found)} computes called '{compute}'",
                headline(found[0][0]),
                cure="share loops before what partitions the kernel",
            )
        for each in names:
            dim_of(found[0][0], each, transform)
        if len(names) != len(sizes) or len(set(names)) != len(names) or not names:
            raise _refusal(
                f"'{compute}' has the dims {', '.join(names) or 'none'}, for {len(sizes)} sizes",
                headline(found[0][0]),
                cure="name as many dims of each compute as there are sizes, one or more",
            )


def _positive_sizes(
    kernel: Kernel, transform: str, name: str, given: Mapping[str, Sequence[int]]
) -> None:
    if any(size < 1 for size in given[name]):
        raise _refusal(
            f"{name} has {min(given[name])}", f"kernel {kernel.name}", cure="choose 1 or more"
        )


@transform
@asks(dims=_computes_with_dims, sizes=_positive_sizes)
def share_loops(
    kernel: Kernel,
    dims: Mapping[str, Sequence[str]],
    sizes: Sequence[int],
    *,
    keep: Sequence[str] = (),
    space: Space = Space.PRIVATE,
) -> Kernel:
    """Runs computes that follow one another tile by tile, in loops over the ``dims`` of each.

        alloc s: f32[64]
        compute zero(i in 64): s[i] = 0.0
        compute total(i in 64, j in 32): s[i] add= x    (x = x[i, j])
        compute part(r in 64, j in 32): y[r, j] = x / s    (x = x[r, j]; s = s[r])
    ->  share_loops({"zero": ["i"], "total": ["i"], "part": ["r"]}, [1])
        for i in 64:
          alloc s: f32[1] private
          compute zero(): s[0] = 0.0
          compute total(j in 32): s[0] add= x    (x = x[i, j])
          compute part(j in 32): y[i, j] = x / s    (x = x[i, j]; s = s[0])

    Loops nest in the order in which dims are named, tiles are as long as ``sizes`` say: 1 takes the
    dim out of the computes. A tile that holds the whole dim makes no loop; among the results of the
    step, loops are called like the first compute's dims. No two iterations may touch the same
    element if one writes it; the computes may have several results, combiners of their own and
    ordered dims.

    The computes stand in one block, nothing but allocations between them; some under conditions
    that have no others. What that block allocates, they alone use, and each reaches at its own
    dims, shrinks to the tile, and goes to ``space``; but for what ``keep`` names. Of sizes that a
    call passes, it has as much as they may be.
    """
    names = tuple(dims)
    first = computes_named(kernel, names[0], "share_loops", any_kind=True)[0][0] if names else None
    sharing: list[Stmt] = []

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        here = stmt if isinstance(stmt, Block) else Block((stmt,))
        if all(part is not first for part in here.body):
            return None
        loops = frozenset(s.var.name for s in walk_stmts(kernel.body) if isinstance(s, For))
        shared = _Sharing(dims, tuple(sizes), frozenset(keep), space, loops)
        sharing.append(shared.on_block(here, place))
        return sharing[-1]

    body = rewrite_placed(kernel.body, Place(), change)
    return replace(kernel, body=body) if sharing else kernel


def _computes(stmt: Stmt) -> list[Compute]:
    """The computes in ``stmt``, in order."""
    return [each for each in walk_stmts(stmt) if isinstance(each, Compute)]


def _refusal(what: str, where: str, cure: str, why: str | None = None) -> ScheduleError:
    return ScheduleError(f"share_loops: {what}", where=where, why=why, cure=cure)


@dataclass(frozen=True)
class _Sharing:
    dims: Mapping[str, Sequence[str]]
    sizes: tuple[int, ...]
    keep: frozenset[str]
    space: Space
    loops: frozenset[str]  # names that others have

    def on_block(self, stmt: Block, place: Place) -> Stmt:
        at = self._positions(stmt)
        first, last = at[0], at[-1]
        computes = [each for n in at for each in _computes(stmt.body[n])]
        levels = self._levels(computes, place)

        def on_its_tile(part: Stmt) -> Stmt:
            if not isinstance(part, Compute):
                return part
            return on_tile(part, _splits(part, self.dims[part.name], levels))

        inside: list[Stmt] = [rewrite_stmts(stmt.body[n], on_its_tile) for n in at]
        loops = [level.loop for level in levels if level.loop is not None]
        _check(loop_nest(loops, block(*inside)), place)
        outside: list[Stmt] = []
        gone: set[Stmt] = set()
        for part in (*stmt.body[:last], None):
            if not isinstance(part, Allocate) or part.buffer.name in self.keep:
                continue
            local = self._local(stmt, part.buffer, computes, levels, place)
            if local is None:
                continue
            gone.add(part)
            new, places = local
            changed = readdress(block(*inside), part.buffer, _moved(new, places, levels))
            inside = [Allocate(new), *(changed.body if isinstance(changed, Block) else (changed,))]
        outside = [s for s in stmt.body[first:last] if isinstance(s, Allocate) and s not in gone]
        before = [s for s in stmt.body[:first] if s not in gone]
        nest = loop_nest(loops, block(*inside))
        return block(*before, *outside, nest, *stmt.body[last + 1 :])

    def _positions(self, stmt: Block) -> list[int]:
        """Where the computes, or conditions of theirs alone, stand in the block; refuses where
        others stand between."""
        at = [n for n, part in enumerate(stmt.body) if self._is_shared(part)]
        found = {each.name for n in at for each in _computes(stmt.body[n])}
        if len(found) != len(self.dims):
            raise _refusal(
                f"'{next(n for n in self.dims if n not in found)}' stands in another block",
                headline(stmt.body[at[0]]),
                "name computes of one block",
            )
        for part in stmt.body[at[0] : at[-1]]:
            if not isinstance(part, Allocate) and not any(part is stmt.body[n] for n in at):
                raise _refusal(
                    "something else stands between the computes",
                    headline(part),
                    "name it too, or share the loops of those before it and behind it apart",
                    "it would run before them, or behind them",
                )
        return at

    def _is_shared(self, part: Stmt) -> bool:
        """Whether it is a compute that shares the loops, or a condition under which such are."""
        own = all(isinstance(s, Compute | If | Block) for s in walk_stmts(part))
        found = _computes(part)
        return own and bool(found) and all(each.name in self.dims for each in found)

    def _levels(self, computes: Sequence[Compute], place: Place) -> list[Split]:
        """How each level splits, as the first compute has it."""
        levels: list[Split] = []
        # A dim that a loop takes out of all computes leaves its name to it.
        taken = {*place.names, *self.loops}.union(*map(bound_names, computes))
        for level, size in enumerate(self.sizes):
            own = [dim_of(each, self.dims[each.name][level], "share_loops") for each in computes]
            for compute, dim in zip(computes, own, strict=True):
                if dim.extent is not own[0].extent:
                    raise _refusal(
                        f"'{compute.name}' has {to_text(dim.extent)} of '{dim.var.name}', and "
                        f"'{computes[0].name}' {to_text(own[0].extent)} of '{own[0].var.name}'",
                        headline(compute),
                        "name dims that are equally long",
                    )
            free = own[0].var.name if size == 1 and self._leaves(computes, level) else ""
            levels.append(_split(own[0], size, place.facts, taken - ({free} - self.loops)))
            loop = levels[-1].loop
            if loop is not None:
                taken.add(loop[0].name)
                give(own[0].var.name, "loop", loop[0].name)
        return levels

    def _leaves(self, computes: Sequence[Compute], level: int) -> bool:
        """Whether nothing in the computes is called like the first one's dim, but dims that leave
        with it."""
        name = self.dims[computes[0].name][level]
        for compute in computes:
            others = {d.var.name for d in compute.dims} | {o.var.name for o in compute.operands}
            if name in others - {self.dims[compute.name][level]}:
                return False
        return True

    def _local(
        self,
        stmt: Block,
        buffer: Buffer,
        computes: Sequence[Compute],
        levels: Sequence[Split],
        place: Place,
    ) -> tuple[Buffer, dict[int, int]] | None:
        """The tile of ``buffer``, and which of its dims which level shortens; None where others
        use it, a level does not index it, or it may have any size."""
        others = (s for s in stmt.body if not isinstance(s, Allocate) and not self._is_shared(s))
        if any(buffer in buffers_in(s) for s in others):
            return None
        found = [a for c in computes for a in accesses(c, Place()) if a.view.buffer is buffer]
        places: dict[int, int] = {}
        for level, split in enumerate(levels):
            if split.loop is None:
                continue
            position = next(
                (
                    p
                    for p in range(buffer.rank)
                    if p not in places and all(self._is_at(access, p, level) for access in found)
                ),
                None,
            )
            if position is None or not found:
                return None
            places[position] = level
        if not places:
            return None
        shape = tuple(
            levels[places[p]].size if p in places else place.facts.bounds(_as_expr(size))[1]
            for p, size in enumerate(buffer.sizes)
        )
        sizes = tuple(size for size in shape if size is not None)
        if len(sizes) < len(shape):
            return None
        order = list(range(len(sizes)))
        new = Buffer(buffer.name, buffer.dtype, sizes, ordered_layout(sizes, order), self.space)
        return new, places

    def _is_at(self, access: Access, position: int, level: int) -> bool:
        """Whether the compute reaches the element by its dim of the level."""
        compute = access.stmt
        assert isinstance(compute, Compute)
        own = dim_of(compute, self.dims[compute.name][level], "share_loops").var
        return access.view.index[position] is own


def _as_expr(size: int | Expr) -> Expr:
    return const(size) if isinstance(size, int) else size


def _split(dim: Dim, size: int, facts: Facts, taken: set[str]) -> Split:
    """How the loop of a level cuts ``dim``."""
    longest = facts.bounds(dim.extent)[1]
    if longest is not None and longest <= size and (size > 1 or dim.extent is const(1)):
        return Split(dim.var.name, None, dim, const(0), dim.var, longest)
    if size == 1:
        loop = var(fresh(dim.var.name, taken))
        return Split(dim.var.name, (loop, dim.extent), None, loop, loop, 1)
    loop = var(fresh(f"{dim.var.name}_o", taken))
    outer, inner = tile_extents(dim.extent, size, loop, facts)
    base = loop * size
    return Split(dim.var.name, (loop, outer), Dim(dim.var, inner), base, base + dim.var, size)


def _splits(compute: Compute, names: Sequence[str], levels: Sequence[Split]) -> dict[str, Split]:
    """The levels as splits of the compute's own dims."""
    found: dict[str, Split] = {}
    for name, level in zip(names, levels, strict=True):
        if level.loop is None:
            continue
        own = dim_of(compute, name, "share_loops")
        if level.inner is None:
            found[name] = replace(level, name=name)
            continue
        inner = Dim(own.var, level.inner.extent, own.ordered)
        found[name] = replace(level, name=name, inner=inner, value=level.base + own.var)
    return found


def _check(nest: Stmt, place: Place) -> None:
    """Refuses loops whose iterations are not independent."""
    here = place
    while isinstance(nest, For):
        found = conflict(nest, here)
        if found is not None:
            raise _refusal(
                f"iterations of '{nest.var.name}' depend on each other",
                headline(found.stmt),
                "name the dims by which all computes reach what they hand on",
                conflict_text(found, nest.var),
            )
        here, nest = here.inside(nest), nest.body
        if not any(isinstance(s, For) for s in walk_stmts(nest)):
            break


def _moved(
    new: Buffer, places: Mapping[int, int], levels: Sequence[Split]
) -> Callable[[View], View]:
    """Views of the whole as those of the tile."""

    def view(access: View) -> View:
        index = [
            each - levels[places[p]].base if p in places else each
            for p, each in enumerate(access.index)
        ]
        return View(new, tuple(index), access.mask)

    return view
