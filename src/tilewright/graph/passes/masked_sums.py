"""Sums of one factor of a product over what the product reduces, for the zero point of the other.

Where a mask hides terms, as padding of an image does, the sums differ near the borders only: they
are kept for kinds of positions, of which the middle of the image is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.dtypes import DType, boolean, s32
from tilewright.graph.passes.loaded import with_results
from tilewright.interpret import run
from tilewright.ir.buffer import buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import (
    Const,
    Expr,
    Var,
    all_of,
    cast,
    conjuncts,
    const,
    maximum,
    minimum,
    select,
    var,
)
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Param, Result, Stmt, View
from tilewright.ir.visit import substitute, variables
from tilewright.schedule.queries.place import fresh


@dataclass(frozen=True)
class _Kinds:
    """A dim along which a mask hides other terms near the borders only: ``dim`` numbers the kinds
    of positions, ``of`` is the kind of a position, ``first`` the first position of a kind."""

    dim: Dim
    of: Expr
    first: Expr


class Sums:
    """Computes that add up a factor, and the buffers for these; ``names`` are taken."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self.stmts: list[Stmt] = []

    def constant(
        self, element: Load, mask: Expr | None, kept: Sequence[Dim], reduced: Sequence[Dim]
    ) -> Expr:
        """The sum over ``reduced`` dims of ``element``, where ``mask`` holds, as an expression of
        ``kept`` dims.

            compute sums(oc, kh, kw, ic): sums[oc, kh, kw] add= s32(w[oc, ic, kh, kw])
            compute near(oh_kind, ow_kind, oc, kh, kw): near[oh_kind, ow_kind, oc] add= sums[...]
        """
        if element.mask is not None:
            # Outside of its own mask the element may have no place in memory.
            value = cast(s32, load(element.buffer, element.index, mask))
            used = variables(value)
            columns = [dim for dim in kept if dim.var in used]
            return self.added(f"{element.buffer.name}_sums", value, columns, reduced)
        bare = load(element.buffer, element.index)
        depends = variables(mask) if mask is not None else frozenset[Var]()
        columns = [dim for dim in kept if dim.var in index_variables(bare)]
        first = [dim for dim in reduced if dim.var not in depends]
        second = [dim for dim in reduced if dim.var in depends]
        held = [*columns, *second]
        sums = self.added(f"{element.buffer.name}_sums", cast(s32, bare), held, first)
        if mask is None:
            return sums
        assert isinstance(sums, Load)
        # Along columns the sums differ at all positions.
        near_by = [dim for dim in kept if dim.var in depends and dim not in columns]
        kinds = {dim.var: _kinds(dim, mask, kept, second) for dim in near_by}
        stands_for: dict[Var, Expr] = {old: kind.first for old, kind in kinds.items()}
        hidden = substitute(mask, stands_for)
        places = tuple(substitute(index, stands_for) for index in sums.index)
        dims = [*(kind.dim for kind in kinds.values()), *columns]
        near = self.added(
            f"{element.buffer.name}_near", load(sums.buffer, places, hidden), dims, second
        )
        return substitute(near, {kind.dim.var: kind.of for kind in kinds.values()})

    def added(self, name: str, value: Expr, kept: Sequence[Dim], reduced: Sequence[Dim]) -> Expr:
        """The sum of ``value``, of s32, over ``reduced`` dims, in a buffer of its own, as what is
        loaded of it."""
        if not reduced:
            return self.kept(name, value, kept)
        sums = self._new(name, s32, kept)
        clear = Result((sums,), (const(0, s32),))
        self.stmts.append(_made(f"{sums.buffer.name}_clear", kept, clear))
        self.stmts.append(
            _made(sums.buffer.name, (*kept, *reduced), Result((sums,), (value,), "add"))
        )
        return load(sums.buffer, sums.index)

    def kept(self, name: str, value: Expr, kept: Sequence[Dim]) -> Expr:
        """``value`` in a buffer of its own with an element for each point of ``kept``, as what is
        loaded of it."""
        held = self._new(name, value.type, kept)
        self.stmts.append(_made(held.buffer.name, kept, Result((held,), (value,))))
        return load(held.buffer, held.index)

    def _new(self, name: str, type_: DType, kept: Sequence[Dim]) -> View:
        new = buffer(self.name(name), type_, [extent(dim) for dim in kept])
        self.stmts.append(Allocate(new))
        return View(new, tuple(dim.var for dim in kept))

    def name(self, name: str) -> str:
        """A name like ``name`` that nothing has."""
        name = fresh(name, self._names)
        self._names.add(name)
        return name


def _made(name: str, dims: Sequence[Dim], result: Result) -> Compute:
    return with_results(Compute(name, tuple(dims), (), (result,)), (result,))


def extent(dim: Dim) -> int:
    """The extent of a dim, which is a number."""
    assert isinstance(dim.extent, Const)
    return int(dim.extent.value)


def _kinds(dim: Dim, mask: Expr, kept: Sequence[Dim], reduced: Sequence[Dim]) -> _Kinds:
    """The kinds of positions along ``dim`` by what ``mask`` hides there."""
    size = extent(dim)
    kind = var(f"{dim.var.name}_kind", dim.var.type)
    whole = _Kinds(Dim(kind, dim.extent), dim.var, kind)
    parts = [conjunct for conjunct in conjuncts(mask) if dim.var in variables(conjunct)]
    others = {other.var for other in kept} - {dim.var}
    if any(variables(part) & others for part in parts):
        return whole
    inside = np.flatnonzero(_hides_nothing(dim, parts, reduced))
    if not inside.size:
        return whole
    low, high = int(inside[0]), int(inside[-1])
    if high == low or inside.size != high - low + 1:
        return whole
    shorter = Dim(kind, const(size - (high - low)))
    of: Expr = minimum(dim.var, const(low))
    if high + 1 == size:
        return _Kinds(shorter, of, kind)
    of = of + maximum(dim.var - high, const(0))
    return _Kinds(shorter, of, select(kind <= low, kind, kind + (high - low)))


def _hides_nothing(
    dim: Dim, conditions: Sequence[Expr], reduced: Sequence[Dim]
) -> NDArray[np.bool_]:
    """At which positions of ``dim`` all of ``conditions`` hold at all points of ``reduced``."""
    inside = buffer("inside", boolean, [extent(dim)])
    used = frozenset[Var]().union(*map(variables, conditions))
    taps = [tap for tap in reduced if tap.var in used]
    out = View(inside, (dim.var,))
    holds = all_of(conditions)
    assert holds is not None
    computes = (
        _made("clear", [dim], Result((out,), (const(True, boolean),))),
        _made("inside", [dim, *taps], Result((out,), (holds,), "and" if taps else None)),
    )
    memory = np.zeros(extent(dim), np.bool_)
    run(Kernel("inside", (Param(inside, "out"),), Block(computes)), {"inside": memory})
    return memory
