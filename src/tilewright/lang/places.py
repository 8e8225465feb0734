"""Where the arrays of a launch lie, if not in rows and apart from each other.

Two parameters that are one array have one memory in the kernel. Of an array whose strides are not
those of rows, each dim steps over the elements of all dims with shorter strides, and over a gap:
a number that a launch passes. Arrays that run backwards, whose elements overlap, or that lie
between the elements of others, are copied, and copied back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime.array_info import ArrayInfo, contiguous
from tilewright.runtime.arrays import describe
from tilewright.runtime.memory import memory_of

# Steps that numpy may take to find out whether strided arrays have an element in common.
_STEPS = 10_000


class Place(NamedTuple):
    """Where an array lies: in the memory of the parameter ``same``; else with its dims in
    ``order``, that of the shortest stride first, and gaps in front of those in ``gaps``. Dims that
    are not in the order have a stride of 0."""

    same: str = ""
    order: tuple[int, ...] = ()
    gaps: frozenset[int] = frozenset()


Places = tuple[tuple[str, Place], ...]


class Placed(NamedTuple):
    """The places of arrays that don't lie in rows by themselves, their gaps by name and dim, in
    elements, and numpy's views of those that are copied. What is ``crossed`` may not be written:
    elements of its own overlap, or it shares some with another one."""

    places: Places
    gaps: Mapping[tuple[str, int], int]
    copied: Mapping[str, NDArray[Any]]
    crossed: frozenset[str]


def placed(arrays: Mapping[str, Any]) -> Placed:
    """Where ``arrays`` lie, by the names of parameters. Raises `ArgumentError` for what is no array
    of the host."""
    places: dict[str, Place] = {}
    apart: dict[str, ArrayInfo] = {}
    gaps: dict[tuple[str, int], int] = {}
    copied: dict[str, NDArray[Any]] = {}
    crossed: set[str] = set()
    for name, array in arrays.items():
        info = describe(array, name)
        same = next((other for other, one in apart.items() if _same(info, one)), None)
        if same is not None:
            places[name] = Place(same)
            continue
        near = [other for other, one in apart.items() if _overlap(info, one)]
        apart[name] = info
        order, steps = _gaps(info)
        overlaps = any(gap < 0 for gap in steps.values())
        if near or overlaps or min(info.strides) < 0:
            copied[name] = memory_of(array, name)
            if overlaps:
                crossed.add(name)
            shares = [other for other in near if _share(copied[name], arrays[other])]
            crossed |= {name, *shares} if shares else set()
        elif order != tuple(reversed(range(len(info.shape)))) or any(steps.values()):
            places[name] = Place("", order, frozenset(dim for dim, gap in steps.items() if gap))
            gaps |= {(name, dim): gap for dim, gap in steps.items() if gap}
    return Placed(tuple(places.items()), gaps, copied, frozenset(crossed))


def _gaps(info: ArrayInfo) -> tuple[tuple[int, ...], dict[int, int]]:
    """The dims with a stride, the shortest one first, and the gaps that they step over."""
    strides = _steps(info)
    dims = [dim for dim, stride in enumerate(strides) if stride]
    order = tuple(sorted(dims, key=lambda dim: (abs(strides[dim]), -dim)))
    gaps: dict[int, int] = {}
    inside = 1
    for dim in order:
        size = info.shape[dim]
        gaps[dim] = 0 if size == 1 else abs(strides[dim]) - inside
        inside = (inside + gaps[dim]) * size
    return order, gaps


def _steps(info: ArrayInfo) -> list[int]:
    """The strides; that of a dim of one element does not matter, and without elements none does."""
    triples = zip(info.shape, info.strides, contiguous(info.shape), strict=True)
    return [row if size == 1 or 0 in info.shape else stride for size, stride, row in triples]


def _same(a: ArrayInfo, b: ArrayInfo) -> bool:
    mine, others = (a.pointer, a.dtype, a.shape), (b.pointer, b.dtype, b.shape)
    return mine == others and _steps(a) == _steps(b)


def _overlap(a: ArrayInfo, b: ArrayInfo) -> bool:
    (start, end), (other, its_end) = a.span, b.span
    return start < its_end and other < end


def _share(view: NDArray[Any], array: Any) -> bool:
    try:
        return np.shares_memory(view, memory_of(array, "array"), max_work=_STEPS)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
