"""Elementwise computes on work-items: neighbours of one, where memory gives them at once."""

from __future__ import annotations

from math import prod

from tilewright.facts.affine import affine
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Compute, View
from tilewright.machines.machine import Machine
from tilewright.recipes.reducible import contiguous_dim
from tilewright.recipes.roles import known_sizes
from tilewright.schedule.queries.place import Place, views_of
from tilewright.schedule.queries.runs import strides
from tilewright.simplify import simplify


def neighbours_of_an_item(compute: Compute, machine: Machine, most: int) -> tuple[str | None, int]:
    """The dim of which a work-item does neighbours, and how many, ``most`` at most: as many as it
    loads and stores at once, where all arrays lie so, and as leave work for all work-items that the
    machine runs at a time. (None, 1): it does one, as where something is reduced."""
    near, sizes = contiguous_dim(compute), known_sizes(compute)
    elementwise = not compute.is_ordered and all(r.combiner is None for r in compute.results)
    if near is None or near not in sizes or not elementwise:
        return None, 1
    along = [view for view in views_of(compute) if strides(compute, view)[near] != 0]
    if any(strides(compute, view)[near] != 1 or view.mask is not None for view in along):
        return None, 1
    enough = machine.cores * machine.hierarchy.workgroup
    lanes = min(most, machine.vector_bytes // max(view.buffer.dtype.bytes for view in along))
    while lanes > 1:
        begins = all(_begins_at_multiples(compute, view, near, lanes) for view in along)
        if begins and sizes[near] % lanes == 0 and prod(sizes.values()) >= lanes * enough:
            return near, lanes
        lanes //= 2
    return None, 1


def _begins_at_multiples(compute: Compute, view: View, near: str, lanes: int) -> bool:
    """Whether each run along ``near`` begins at a multiple of so many elements of the array."""
    place = view.buffer.layout.offset_of(view.index)
    offset = affine(simplify(place, Place().facts_with(compute.dims)))
    apart = [
        n for atom, n in offset.terms.items() if not isinstance(atom, Var) or atom.name != near
    ]
    return not any(number % lanes for number in (*apart, offset.constant))
