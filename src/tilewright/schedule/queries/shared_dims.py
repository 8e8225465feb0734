"""Dims that several computes share.

Dims of several computes are the same where these reach an element of one buffer by them: of

    compute zero(r in 64): s[r] = 0.0
    compute total(i in 64, j in 32): s[i] add= x[i, j]

``r`` and ``i`` are, by ``s``. Computes share a dim by which each reaches all that they hand on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var, as_expr
from tilewright.ir.stmt import Compute, View
from tilewright.schedule.queries.place import views_of

# A dim of a compute: the compute's place among all, and the dim's name.
DimOf = tuple[int, str]


def share_a_dim(computes: Sequence[Compute]) -> bool:
    """Whether one loop could surround all of ``computes``."""
    return bool(shared_dims(computes, same_dims(computes), range(len(computes))))


def same_dims(computes: Sequence[Compute]) -> Mapping[DimOf, DimOf]:
    """For each dim, one that stands for all that are the same."""
    parent: dict[DimOf, DimOf] = {}

    def root(dim: DimOf) -> DimOf:
        while parent.setdefault(dim, dim) != dim:
            dim = parent[dim]
        return dim

    handed = {view.buffer for each in computes for view in each.outputs}
    reached: dict[tuple[Buffer, int], DimOf] = {}
    for n, compute in enumerate(computes):
        for view in views_of(compute):
            if view.buffer not in handed:
                continue
            for place, name in _plain(compute, view):
                first = reached.setdefault((view.buffer, place), (n, name))
                parent[root((n, name))] = root(first)
    return {(n, d.var.name): root((n, d.var.name)) for n, c in enumerate(computes) for d in c.dims}


def _plain(compute: Compute, view: View) -> Iterator[tuple[int, str]]:
    """The places of the index of ``view`` that are a dim of the compute, all of it."""
    dims = {dim.var: dim.extent for dim in compute.dims}
    for place, (index, size) in enumerate(zip(view.index, view.buffer.sizes, strict=True)):
        extent = dims.get(index) if isinstance(index, Var) else None
        if isinstance(index, Var) and extent is as_expr(size):
            yield place, index.name


def shared_dims(
    computes: Sequence[Compute], same: Mapping[DimOf, DimOf], members: Sequence[int]
) -> list[list[str]]:
    """The dims by which all ``members`` reach what they hand on: of each, its name in each member.
    ``same`` is what `same_dims` says of all computes."""
    shared: list[list[str]] = []
    for dim in computes[members[0]].dims:
        one = same[members[0], dim.var.name]
        names = [_of_class(computes[n], same, n, one) for n in members]
        if all(len(each) == 1 for each in names):
            alone = [each[0] for each in names]
            if _keeps_apart(computes, members, alone):
                shared.append(alone)
    return shared


def _of_class(compute: Compute, same: Mapping[DimOf, DimOf], n: int, one: DimOf) -> list[str]:
    return [d.var.name for d in compute.dims if same[n, d.var.name] == one and not d.ordered]


def _keeps_apart(computes: Sequence[Compute], members: Sequence[int], names: Sequence[str]) -> bool:
    """Whether each buffer that a member writes is reached by that dim alone, in one place."""
    written = {view.buffer for n in members for view in computes[n].outputs}
    places: dict[Buffer, set[int]] = {}
    for n, dim in zip(members, names, strict=True):
        for view in views_of(computes[n]):
            if view.buffer in written:
                here = {place for place, name in _plain(computes[n], view) if name == dim}
                places[view.buffer] = places.get(view.buffer, here) & here
    return all(places[buffer] for buffer in written)
