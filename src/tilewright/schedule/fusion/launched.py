"""What work-items do: the body of a kernel with the loops that launch it, and several in one nest.

A fused nest has the loops of the member with the most workgroups. The number of a work-item among
all, the last dim fastest, is the same in each member, so that dims before the last ones may be
missing, and the first one of another size: a condition leaves the workgroups out that a member does
not have. Groups are whole or not there: a member's barriers are met by all items of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from tilewright.errors import FusionError
from tilewright.facts.affine import affine
from tilewright.ir.expr import Binary, Const, Expr, Var, all_of, const, maximum, var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Call, For, If, Let, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import block, substitute_stmt, walk_stmts
from tilewright.schedule.queries.digits import digits_of
from tilewright.schedule.queries.place import around, perfect_nest, sequence


@dataclass(frozen=True, eq=False)
class Launched:
    """Loops over workgroups, memory that a group shares, loops over its work-items, and the body of
    each work-item."""

    grid: tuple[For, ...]
    shared: tuple[Allocate, ...]
    items: tuple[For, ...]
    body: Stmt

    @property
    def owners(self) -> tuple[For, ...]:
        """The loops that tell work-items apart."""
        return (*self.grid, *self.items)

    @property
    def local(self) -> tuple[Expr, ...]:
        """The size of a workgroup, without dims of one item in front."""
        return _without_ones([loop.extent for loop in self.items])

    def nest(self) -> Stmt:
        """All of it as one statement."""
        inner = around(self.items, self.body)
        return around(self.grid, block(*self.shared, inner) if self.shared else inner)


def launched(stmt: Stmt) -> Launched | None:
    """The parts of ``stmt``; None where it is no single nest of workgroups and their items."""
    grid, rest = perfect_nest(stmt, (LoopKind.GRID,))
    parts = sequence(rest)
    shared = tuple(part for part in parts[:-1] if isinstance(part, Allocate))
    if not grid or len(shared) != len(parts) - 1:
        return None
    items, body = perfect_nest(parts[-1], THREADS)
    launches = (LoopKind.GRID, LoopKind.CLUSTER, LoopKind.PARALLEL)
    inside = [node.kind for node in walk_stmts(body) if isinstance(node, For)]
    if not items or any(kind in launches for kind in inside):
        return None
    return Launched(grid, shared, items, body)


def _without_ones(extents: Sequence[Expr]) -> tuple[Expr, ...]:
    first = next((n for n, e in enumerate(extents) if e is not const(1)), len(extents))
    return tuple(extents[first:])


def in_one_nest(members: Sequence[Launched], where: Sequence[str]) -> tuple[Launched, list[Stmt]]:
    """The loops of all ``members``, and the body of each inside of them.

    `FusionError` for sizes of workgroups that differ, and for ranges that differ in another dim
    than the first, unless these are of constant sizes, and nothing is said of workgroups.
    """
    fixed = [member for member in members if in_line(member) is None]
    outer = max(fixed or members, key=lambda member: len(member.grid))
    if fixed:
        members = [m if _fits(m, outer) else in_line(m, outer) or m for m in members]
    for member, place in zip(members, where, strict=True):
        if _kinds(member) != _kinds(outer) or member.local != outer.local:
            raise FusionError(
                f"workgroups of {_sizes(outer.local)} and of {_sizes(member.local)} work-items",
                where=place,
                why="a workgroup of the fused kernel is a workgroup of each member",
                cure="give both the same local size",
            )
    different = next((n for n, m in enumerate(members) if not _fits(m, outer)), None)
    if different is not None:
        lines = [in_line(member) for member in members]
        if any(line is None for line in lines):
            theirs, ours = (_sizes(_extents(m)) for m in (outer, members[different]))
            raise FusionError(
                f"ranges of {theirs} and of {ours} workgroups",
                where=where[different],
                why="a work-item has the same number among all in each member, so only the first "
                "dim of their ranges may differ",
                cure="give the other dims the same sizes, or leave local sizes out and say how "
                "large the ranges are",
            )
        return in_one_nest([line for line in lines if line is not None], where)
    skipped = [len(outer.grid) - len(member.grid) for member in members]
    first = outer.grid[0]
    for member, missing in zip(members, skipped, strict=True):
        extent = member.grid[0].extent
        if missing == 0 and extent is not first.extent:
            first = replace(first, extent=maximum(first.extent, extent))
    shared = tuple(allocate for member in members for allocate in member.shared)
    nest = replace(outer, grid=(first, *outer.grid[1:]), shared=shared)
    return nest, [_inside(nest, m, n) for m, n in zip(members, skipped, strict=True)]


def _fits(member: Launched, outer: Launched) -> bool:
    """Whether the range of ``member`` is that of ``outer``, or the beginning of it."""
    missing = len(outer.grid) - len(member.grid)
    if missing < 0 or member.local != outer.local:
        return False
    pairs = [*zip(member.grid, outer.grid[missing:], strict=True)]
    first, others = pairs[0], pairs[1:]
    if any(mine.extent is not theirs.extent for mine, theirs in others):
        return False
    if len(outer.grid) > 1 and _limit(member) != _limit(outer):
        return False  # as many workgroups, of which the last ones have other work-items
    a, b = (loop.extent for loop in first)
    shorter = isinstance(a, Const) and isinstance(b, Const) and a.value <= b.value
    return missing == 0 or a is b or shorter


def in_line(member: Launched, like: Launched | None = None) -> Launched | None:
    """``member`` with a range of one dim, or in workgroups ``like`` those of another, in which each
    work-item keeps its ids by division; None where a size is no number, or where workgroups are not
    only a part of the range.

        grid for i in 4:
          grid for group in 1:
            workgroup for one in 1:
              workgroup for j in 64:
                if group*64 + j < 24: a[i, group*64 + j] = 0.0
    ->  grid for group in 2:
          workgroup for j in 64:
            group.j = group*64 + j
            if group.j < 96: a[group.j // 24, group.j % 24] = 0.0
    """
    sizes = [loop.extent for loop in member.grid[:-1]]
    (*ones, lanes), last = member.items, member.grid[-1]
    limit = _limit(member)
    lengths = [int(size.value) for size in sizes if isinstance(size, Const)]
    if limit is None or len(lengths) != len(sizes) or any(o.extent is not const(1) for o in ones):
        return None
    if member.shared or any(isinstance(s, Call) for s in walk_stmts(member.body)):
        return None  # work-items of a group may do something together
    like = like or replace(member, grid=member.grid[-1:], items=member.items[-1:])
    places = _numbered(like)
    if places is None:
        return None
    assert isinstance(lanes.extent, Const) and isinstance(member.body, If)
    count, step = prod(lengths) * limit, int(lanes.extent.value)
    # By a name: sums of its quotient and its remainder are known to be the number again.
    number, (value, others) = var(f"{last.var.name}.{lanes.var.name}"), places
    *outer, item = digits_of(number, [*lengths, limit])
    values: dict[Var, Expr] = {
        loop.var: digit for loop, digit in zip(member.grid, outer, strict=False)
    }
    values |= {loop.var: const(0) for loop in ones}
    values |= {last.var: item // step, lanes.var: item % step}
    inside = If(number < count, substitute_stmt(member.body.then, values))
    first = replace(like.grid[0], extent=const(-(-count // others)))
    body = block(Let(number, value), inside)
    return Launched((first, *like.grid[1:]), (), like.items, body)


def _numbered(nest: Launched) -> tuple[Expr, int] | None:
    """The number of a work-item of ``nest`` among all, and how many there are for each iteration of
    the first loop; None where a size is no number, or where there are subgroups."""
    extents = [loop.extent for loop in (*nest.grid[1:], *nest.items)]
    if len(nest.grid) != len(nest.items) or not all(isinstance(e, Const) for e in extents):
        return None
    number: Expr = const(0)
    for group, item in zip(nest.grid, nest.items, strict=True):
        count = group.extent * item.extent if group is not nest.grid[0] else item.extent
        number = number * count + (group.var * item.extent + item.var)
    return number, prod(int(e.value) for e in extents if isinstance(e, Const))


def _limit(member: Launched) -> int | None:
    """The number of work-items along the last dim, where the last workgroup may be a part."""
    body, lanes, last = member.body, member.items[-1], member.grid[-1]
    if not isinstance(body, If) or body.orelse is not None or len(member.items) > len(member.grid):
        return None
    condition = body.condition
    if not isinstance(condition, Binary) or condition.op != "lt":
        return None
    number = affine(last.var * lanes.extent + lanes.var)
    is_id = affine(condition.a) == number and isinstance(condition.b, Const)
    return int(condition.b.value) if is_id and isinstance(condition.b, Const) else None


def _inside(nest: Launched, member: Launched, skipped: int) -> Stmt:
    """The body of ``member`` in the loops of ``nest``, whose first ``skipped`` it has not."""
    loops = [*zip(nest.grid[skipped:], member.grid, strict=True)]
    missing = len(nest.items) - len(member.items)
    loops += zip(nest.items[max(missing, 0) :], member.items[max(-missing, 0) :], strict=True)
    values: dict[Var, Expr] = {mine.var: loop.var for loop, mine in loops}
    values |= {mine.var: const(0) for mine in member.items[: max(-missing, 0)]}
    body = substitute_stmt(member.body, values)
    conditions = [loop.var < 1 for loop in nest.grid[:skipped]]
    first, mine = nest.grid[skipped], member.grid[0]
    if first.extent is not mine.extent:
        conditions.append(first.var < mine.extent)
    condition = all_of(conditions)
    return body if condition is None else If(condition, body)


def _kinds(member: Launched) -> list[LoopKind]:
    return [loop.kind for loop in member.items[-len(member.local) :]] if member.local else []


def _extents(member: Launched) -> list[Expr]:
    return [loop.extent for loop in member.grid]


def _sizes(extents: Sequence[Expr]) -> str:
    return " x ".join(map(to_text, extents)) or "1"
