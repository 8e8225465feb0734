"""Dims that several computes share.

Dims of several computes are the same where these reach an element of one buffer by them: of

    compute zero(r in 64): s[r] = 0.0
    compute total(i in 64, j in 32): s[i] add= x[i, j]

``r`` and ``i`` are, by ``s``. Computes share a dim by which each reaches all that they hand on.
Several dims may reach one of a buffer together, as ``h`` and ``g`` do in ``y[h*4 + g]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tilewright.facts.affine import Affine, affine
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.stmt import Compute, View
from tilewright.schedule.queries.place import views_of

# A dim of a compute: the compute's place among all, and the dim's name.
DimOf = tuple[int, str]


class _At(NamedTuple):
    """How a dim stands in an index: in which dim of the buffer, the step that it makes there, where
    that begins, and how far the dim goes."""

    place: int
    step: int
    start: int
    extent: Expr


def same_dims(computes: Sequence[Compute]) -> Mapping[DimOf, DimOf]:
    """For each dim, one that stands for all that are the same."""
    parent: dict[DimOf, DimOf] = {}

    def root(dim: DimOf) -> DimOf:
        while parent.setdefault(dim, dim) != dim:
            dim = parent[dim]
        return dim

    handed = {view.buffer for compute in computes for view in compute.outputs}
    reached: dict[tuple[Buffer, _At], DimOf] = {}
    for n, compute in enumerate(computes):
        for view in views_of(compute):
            if view.buffer not in handed:
                continue
            for place, name in _plain(compute, view):
                first = reached.setdefault((view.buffer, place), (n, name))
                parent[root((n, name))] = root(first)
    return {(n, d.var.name): root((n, d.var.name)) for n, c in enumerate(computes) for d in c.dims}


def _plain(compute: Compute, view: View) -> Iterator[tuple[_At, str]]:
    """Where the index of ``view`` is a dim of the compute, from some place on, or digits that
    several of them are."""
    dims = {dim.var: dim.extent for dim in compute.dims}
    for place, (index, size) in enumerate(zip(view.index, view.buffer.sizes, strict=True)):
        form = affine(index)
        if len(form.terms) == 1:
            ((term, step),) = form.terms.items()
            if isinstance(term, Var) and term in dims and step == 1:
                yield _At(place, 1, form.constant, dims[term]), term.name
        elif isinstance(size, int):
            yield from _digits(form, dims, place, size)


def _digits(
    form: Affine, dims: Mapping[Var, Expr], place: int, size: int
) -> Iterator[tuple[_At, str]]:
    """How each of ``dims`` stands in ``form``, where they give each of ``size`` places by one point
    of theirs; none where it is something else."""
    reach, terms = 1, list[tuple[_At, str]]()
    for term, step in sorted(form.terms.items(), key=lambda pair: pair[1]):
        extent = dims.get(term) if isinstance(term, Var) else None
        if form.constant or step != reach or not isinstance(extent, Const):
            return
        assert isinstance(term, Var)
        terms.append((_At(place, step, 0, extent), term.name))
        reach *= int(extent.value)
    yield from terms if reach == size else ()


def shared_dims(
    computes: Sequence[Compute], same: Mapping[DimOf, DimOf], members: Sequence[int]
) -> list[list[str]]:
    """The dims by which all ``members`` reach what they hand on: of each, its name in each member.
    ``same`` is what `same_dims` says of all computes."""
    shared: list[list[str]] = []
    for dim in computes[members[0]].dims:
        one = same[members[0], dim.var.name]
        names = [_of_class(computes[n], same, n, one) for n in members]
        if all(len(name) == 1 for name in names):
            alone = [name[0] for name in names]
            if _keeps_apart(computes, members, alone):
                shared.append(alone)
    return shared


def _of_class(compute: Compute, same: Mapping[DimOf, DimOf], n: int, one: DimOf) -> list[str]:
    return [d.var.name for d in compute.dims if same[n, d.var.name] == one and not d.ordered]


def _keeps_apart(computes: Sequence[Compute], members: Sequence[int], names: Sequence[str]) -> bool:
    """Whether each buffer that a member writes is reached by that dim alone, in one place."""
    written = {view.buffer for n in members for view in computes[n].outputs}
    places: dict[Buffer, set[_At]] = {}
    for n, dim in zip(members, names, strict=True):
        for view in views_of(computes[n]):
            if view.buffer in written:
                here = {place for place, name in _plain(computes[n], view) if name == dim}
                places[view.buffer] = places.get(view.buffer, here) & here
    return all(places[buffer] for buffer in written)
