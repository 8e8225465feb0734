"""Which computes of a kernel share loops, and over which of their dims.

Dims of several computes are the same where these reach an element of one buffer by them: of

    compute zero(r in 64): s[r] = 0.0
    compute total(i in 64, j in 32): s[i] add= x[i, j]

``r`` and ``i`` are, by ``s``. A nest takes computes that follow one another, as long as there is a
dim by which each reaches all that they hand on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var, as_expr
from tilewright.ir.stmt import Compute, View
from tilewright.recipes.sizes import bytes_of, sizes, steps_of
from tilewright.schedule.queries.place import views_of

# One dim of one compute: the compute's place among all, and the dim's name.
_Own = tuple[int, str]


@dataclass(frozen=True)
class Nest:
    """Computes that follow one another, and the dims that they share: of each level, outermost
    first, the name of the dim in each compute."""

    computes: tuple[Compute, ...]
    levels: tuple[tuple[str, ...], ...]

    @property
    def dims(self) -> dict[str, list[str]]:
        """The shared dims of each compute."""
        return {c.name: [each[n] for each in self.levels] for n, c in enumerate(self.computes)}

    def pieces(self, columns: int) -> int:
        """How many tiles there are, of rows, or of so many columns."""
        near = contiguous_level(self) if self.levels else None
        return prod(
            -(-size // columns) if n == near else size for n, size in enumerate(self.extents)
        )

    @property
    def extents(self) -> tuple[int, ...]:
        """How long the levels are."""
        return tuple(sizes(self.computes[0])[each[0]] for each in self.levels)


def nests(computes: Sequence[Compute], columns: int, parts: int) -> list[Nest]:
    """All of ``computes`` in nests, in order. One takes the next compute if that leaves as many
    pieces of work as either has by itself, or ``parts``, which is enough; of neighbours in memory,
    ``columns`` are one piece."""
    same = _classes(computes)

    def nest(members: Sequence[int]) -> Nest:
        levels = _shared(computes, same, members).values()
        return _ordered(Nest(tuple(computes[n] for n in members), tuple(map(tuple, levels))))

    found: list[Nest] = []
    last: list[int] = []
    for n in range(len(computes)):
        alone = nest([n])
        if found:
            joined = nest([*last, n])
            most = max(found[-1].pieces(columns), alone.pieces(columns))
            if joined.levels and joined.pieces(columns) >= min(parts, most):
                last.append(n)
                found[-1] = joined
                continue
        found.append(alone)
        last = [n]
    return found


def _ordered(nest: Nest) -> Nest:
    """``nest`` with the levels in the order of memory, the longest steps outside."""
    place, steps = _largest(nest)
    levels = sorted(nest.levels, key=lambda each: -(steps[each[place]] or 0))
    return Nest(nest.computes, tuple(levels))


def contiguous_level(nest: Nest) -> int | None:
    """The level along which neighbours in the largest of all arrays are neighbours in memory."""
    place, steps = _largest(nest)
    near = [n for n, names in enumerate(nest.levels) if steps[names[place]] == 1]
    return near[0] if near else None


def _largest(nest: Nest) -> tuple[int, dict[str, int | None]]:
    """The place of the compute that reaches the largest array, and the steps of its dims in it."""
    views = [(n, view) for n, compute in enumerate(nest.computes) for view in views_of(compute)]
    place, view = max(views, key=lambda pair: bytes_of(pair[1].buffer))
    return place, steps_of(nest.computes[place], view)


def _classes(computes: Sequence[Compute]) -> Mapping[_Own, _Own]:
    """Of each dim, one that stands for all that are the same."""
    parent: dict[_Own, _Own] = {}

    def root(own: _Own) -> _Own:
        while parent.setdefault(own, own) != own:
            own = parent[own]
        return own

    handed = {view.buffer for each in computes for view in each.outputs}
    known: dict[tuple[Buffer, int], _Own] = {}
    for n, compute in enumerate(computes):
        for view in views_of(compute):
            if view.buffer not in handed:
                continue
            for place, own in _plain(compute, view):
                first = known.setdefault((view.buffer, place), (n, own))
                parent[root((n, own))] = root(first)
    return {(n, d.var.name): root((n, d.var.name)) for n, c in enumerate(computes) for d in c.dims}


def _plain(compute: Compute, view: View) -> Iterator[tuple[int, str]]:
    """The places of the index of ``view`` that are a dim of the compute, all of it."""
    dims = {dim.var: dim.extent for dim in compute.dims}
    for place, (index, size) in enumerate(zip(view.index, view.buffer.sizes, strict=True)):
        extent = dims.get(index) if isinstance(index, Var) else None
        if isinstance(index, Var) and extent is as_expr(size):
            yield place, index.name


def _shared(
    computes: Sequence[Compute], same: Mapping[_Own, _Own], members: Sequence[int]
) -> dict[int, list[str]]:
    """The dims by which all ``members`` reach what they hand on, of each the names in each."""
    levels: dict[int, list[str]] = {}
    first = computes[members[0]]
    for number, dim in enumerate(first.dims):
        one = same[members[0], dim.var.name]
        own = [_of_class(computes[n], same, n, one) for n in members]
        if all(len(each) == 1 for each in own) and _keeps_apart(computes, members, own):
            levels[number] = [each[0] for each in own]
    return levels


def _of_class(compute: Compute, same: Mapping[_Own, _Own], n: int, one: _Own) -> list[str]:
    return [d.var.name for d in compute.dims if same[n, d.var.name] == one and not d.ordered]


def _keeps_apart(
    computes: Sequence[Compute], members: Sequence[int], own: Sequence[Sequence[str]]
) -> bool:
    """Whether each buffer that a member writes is reached by that dim alone, in one place."""
    written = {view.buffer for n in members for view in computes[n].outputs}
    places: dict[Buffer, set[int]] = {}
    for n, names in zip(members, own, strict=True):
        for view in views_of(computes[n]):
            if view.buffer in written:
                here = {place for place, name in _plain(computes[n], view) if name == names[0]}
                places[view.buffer] = places.get(view.buffer, here) & here
    return all(places[buffer] for buffer in written)
