"""Sums of products between which stands what has a place for each pair of rows and columns, and
which go along both: the gradients of attention.

    scores[i, j] add= q[i, d] * k[j, d]
    weights[i, j] = exp(scores[i, j] - logarithms[i])
    products[i, j] add= g[i, e] * v[j, e]
    slopes[i, j] = weights[i, j] * (products[i, j] - both[i])
    of_q[i, d] add= slopes[i, j] * k[j, d]
    of_k[j, d] add= slopes[i, j] * q[i, d]

A tile of rows and columns needs nothing of what others hand on, and adds to sums of its rows and of
its columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from math import prod

from tilewright.facts.usual import usual
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import as_expr
from tilewright.ir.stmt import Compute
from tilewright.layout.roles import Role, roles
from tilewright.schedule.queries.contractions import points
from tilewright.schedule.queries.flow import Items
from tilewright.schedule.queries.shared_dims import same_dims, shared_dims


@dataclass(frozen=True)
class Crossed:
    """The positions of the items, in order; the dims that their computes share, of each level its
    name in each compute; and, of the compute called ``first``, the dims of rows and the one of
    columns. ``sums`` are of rows: all columns add to them."""

    items: tuple[int, ...]
    levels: tuple[tuple[str, ...], ...]
    first: str
    rows: tuple[str, ...]
    columns: str
    sums: tuple[Buffer, ...]


class Crossings:
    """What is that among ``items``; ``local`` are the buffers that nothing but these sees."""

    def __init__(self, items: Items, local: Set[Buffer]) -> None:
        self.items, self.local = items, local
        # Of buffers that go along with each other, the same: products of a network have most of it
        # in common.
        self._wide: dict[Buffer, _Wide | None] = {}

    def at(self, first: int) -> Crossed | None:
        """What the product at ``first`` begins, if it is that."""
        items, wide = self.items, self._around(_compute(self.items, first).out.buffer)
        if wide is None or _sides(items, wide.members, first, wide.levels) is None:
            return None  # so soon, as most products of a network end here
        members, levels = set(wide.members), wide.levels
        for n in _around(items, wide.written):
            # What is done to sums that are complete.
            if n not in members and len(_levels(items, {*members, n})) == len(levels):
                members.add(n)
        order, levels = sorted(members), _levels(items, members)
        sides = _sides(items, order, first, levels)
        held = frozenset(members)
        if sides is None or not all(items.may_move(n, order[-1], held) for n in order):
            return None
        rows, columns, sums = sides
        name = _compute(items, first).name
        return Crossed(tuple(order), tuple(map(tuple, levels)), name, rows, columns, sums)

    def _around(self, memory: Buffer) -> _Wide | None:
        """The items that touch buffers that have as many elements as ``memory`` and go along with
        it, and what gives sums their first contents; None where something else touches these."""
        waiting, wide, members = [memory], {memory}, set[int]()
        while waiting and memory not in self._wide:
            buffer = waiting.pop()
            members.update(self.items.touching(buffer))
            simple = all(self.items[n].simple is not None for n in self.items.touching(buffer))
            if not simple or buffer not in self.local or buffer in self._wide:
                self._wide |= dict.fromkeys(wide)
            for n in self.items.touching(buffer):
                for touch in self.items[n].touches & self.local - wide:
                    if _elements(touch) == _elements(memory):
                        wide.add(touch)
                        waiting.append(touch)
        if memory not in self._wide:
            written = {buffer for n in members for buffer in self.items[n].writes} - wide
            first = {n for n in _around(self.items, written) if self.items[n].writes <= written}
            order = sorted(members | first)
            levels = _levels(self.items, order) if order else []
            self._wide |= dict.fromkeys(wide, _Wide(order, levels, written) if order else None)
        return self._wide[memory]


@dataclass(frozen=True, eq=False)
class _Wide:
    """The positions of items in order, the levels that they share, and the sums that they add
    to."""

    members: Sequence[int]
    levels: Sequence[Sequence[str]]
    written: Set[Buffer]


def _compute(items: Items, n: int) -> Compute:
    compute = items[n].simple
    assert compute is not None
    return compute


def _elements(buffer: Buffer) -> int:
    return prod(usual(as_expr(size)) for size in buffer.sizes)


def _around(items: Items, written: Set[Buffer]) -> Iterator[int]:
    """The items that touch sums otherwise than by adding to them."""
    for n in sorted({n for buffer in written for n in items.touching(buffer)}):
        compute = items[n].simple
        if compute is not None and compute.combiner is None:
            yield n


def _levels(items: Items, members: Collection[int]) -> list[list[str]]:
    computes = [_compute(items, n) for n in sorted(members)]
    return shared_dims(computes, same_dims(computes), range(len(computes)))


def _sides(
    items: Items, order: Sequence[int], first: int, levels: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], str, tuple[Buffer, ...]] | None:
    """The dims of rows and that of columns, and the sums along columns: if there are some along
    rows, too."""
    compute = _compute(items, first)
    shared = {names[order.index(first)] for names in levels}
    part, kept = roles(compute), [d.var.name for d in compute.dims]
    rows = tuple(name for name in kept if part[name] is Role.M and name not in shared)
    columns = [name for name in kept if part[name] is Role.N and name not in shared]
    if not shared or not rows or len(columns) != 1:
        return None
    computes = [_compute(items, n) for n in order]
    same = same_dims(computes)
    place = order.index(first)
    along_rows, along_columns = False, dict[Buffer, None]()
    for n, stmt in enumerate(computes):
        if not points(items[order[n]]):
            continue
        stored = {v.name for v in index_variables(stmt.out)}
        reduced = {same[n, d.var.name] for d in stmt.dims if d.var.name not in stored}
        along_rows = along_rows or {same[place, name] for name in rows} <= reduced
        if same[place, columns[0]] in reduced:
            along_columns[stmt.out.buffer] = None
    return (rows, columns[0], tuple(along_columns)) if along_rows and along_columns else None
