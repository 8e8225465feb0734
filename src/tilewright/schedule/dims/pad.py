"""Longer dims: computing a little more, so that tiles and instructions are whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.facts.scope import Facts
from tilewright.ir.expr import Const, Var, conjuncts, const
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import substitute, variables
from tilewright.schedule.queries.access import Access, accesses, buffers_allocated, masked
from tilewright.schedule.queries.identity import vanishes
from tilewright.schedule.queries.place import Place, dim_of, rewrite_placed
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import transform


@transform
@asks(compute=a_plain_compute)
def pad(kernel: Kernel, compute: str, extents: Mapping[str, int]) -> Kernel:
    """Extends dims of the compute to the given extents, where the surplus does no harm.

        compute f(oc in min(16, 20 - oc_o*16), ic in 5): acc[oc] add= s[ic] * w[oc_o, ic, oc]
    ->  pad("f", {"oc": 16, "ic": 6})
        compute f(oc in 16, ic in 6): acc[oc] add= s[ic | ic < 5] * w[oc_o, ic, oc]

    A reduced dim needs surplus terms that are neutral: an operand is zero there, because a copy in
    this kernel filled its padding with zeros, or because it gets a mask; of floats all operands
    are, for infinity times 0 is NaN. Another dim needs an
    output that the kernel allocates, has room for the surplus, and is read only within the old
    extent. Operands that would leave their buffer get a mask.
    """

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if not isinstance(stmt, Compute) or stmt.name != compute:
            return None
        for name, extent in extents.items():
            stmt = _pad_dim(kernel, stmt, place, dim_of(stmt, name, "pad"), extent)
        return stmt

    return replace(kernel, body=rewrite_placed(kernel.body, Place(), change))


def _pad_dim(kernel: Kernel, compute: Compute, place: Place, old: Dim, extent: int) -> Compute:
    longest = place.facts.bounds(old.extent)[1]
    if longest is None or longest > extent:
        raise ScheduleError(
            f"pad: '{old.var.name}' is longer than {extent}",
            where=headline(compute),
            cure="extents grow: give the length of the tile or the next multiple",
        )
    dims = tuple(Dim(d.var, const(extent)) if d is old else d for d in compute.dims)
    facts = place.facts_with(dims)
    inside = old.var < old.extent
    hidden: set[Var] = set()
    operands: list[Operand] = []
    for operand in compute.operands:
        view = operand.view
        if old.var in view_variables(view) and not within(view, facts):
            view = masked(view, inside)
            hidden.add(operand.var)
        operands.append(Operand(operand.var, view))
    reduced = all(old.var not in variables(e) for e in compute.out.index)
    if reduced:
        operands = _neutral(kernel, compute, old, extent, operands, hidden)
    else:
        _check_output(kernel, compute, old, extent, facts)
    return replace(compute, dims=dims, operands=tuple(operands))


def within(view: View, facts: Facts) -> bool:
    """Whether the index is provably inside the buffer wherever the mask holds."""
    for condition in conjuncts(view.mask):
        facts = facts.assume(condition)
    return all(
        facts.prove(const(0) <= index) is True and facts.prove(index < size) is True
        for index, size in zip(view.index, view.buffer.sizes, strict=True)
    )


def _neutral(
    kernel: Kernel,
    compute: Compute,
    old: Dim,
    extent: int,
    operands: list[Operand],
    hidden: set[Var],
) -> list[Operand]:
    """The operands such that the surplus terms of a reduction are neutral: one factor is 0, and
    where infinity times 0 is NaN, all that differ by term are."""
    factors = [each for each in operands if vanishes(compute, each.var)]
    zero = {
        each.var
        for each in factors
        if each.var in hidden or _zero_beyond(kernel, each.view, old, extent)
    }
    if zero and not compute.body.type.is_float:
        return operands
    result = list(operands)
    for i, operand in enumerate(operands):
        if operand not in factors or operand.var in zero:
            continue
        if old.var in view_variables(operand.view):
            if not _masked_beyond(operand.view, old, extent):
                view = masked(operand.view, old.var < old.extent)
                result[i] = Operand(operand.var, view)
            zero.add(operand.var)
            if not compute.body.type.is_float:
                break
    if zero:
        return result
    raise ScheduleError(
        f"pad: the surplus of '{old.var.name}' would count",
        where=headline(compute),
        why=f"no operand of {to_text(compute.body)} that is zero makes it neutral",
        cure="pad dims of sums of products",
    )


def _masked_beyond(view: View, dim: Dim, extent: int) -> bool:
    """Whether the mask is false in all of the surplus."""
    facts = Facts.empty().loop(dim.var, const(extent)).assume(dim.extent <= dim.var)
    return any(facts.prove(c) is False for c in conjuncts(view.mask))


def _zero_beyond(kernel: Kernel, view: View, dim: Dim, extent: int) -> bool:
    """Whether a copy in this kernel fills what the surplus reads with zeros."""
    places = [i for i, e in enumerate(view.index) if e is dim.var]
    if len(places) != 1 or any(
        dim.var in variables(e) for i, e in enumerate(view.index) if i != places[0]
    ):
        return False
    writers = [
        a for a in accesses(kernel.body, Place()) if a.writes and a.view.buffer is view.buffer
    ]
    if len(writers) != 1 or not isinstance(writers[0].stmt, Compute):
        return False
    pack = writers[0].stmt
    variable = pack.out.index[places[0]]
    if len(pack.operands) != 1 or not isinstance(variable, Var) or pack.combiner is not None:
        return False
    # In the surplus the mask of the copy has to be false, and what it copies zero for that.
    own = {d.var: d.extent for d in pack.dims}
    facts = Facts.empty().loop(variable, const(extent)).assume(dim.extent <= variable)
    zero = substitute(pack.body, {pack.operands[0].var: const(0, pack.operands[0].var.type)})
    covered = own.get(variable) is const(view.buffer.shape[places[0]])
    return (
        covered
        and zero is const(0, pack.body.type)
        and any(facts.prove(c) is False for c in conjuncts(pack.operands[0].view.mask))
    )


def _reaches(access: Access, position: int, extent: int) -> bool:
    """Whether a compute writes that far along one dim of its output."""
    dims = access.stmt.dims if isinstance(access.stmt, Compute) else ()
    return any(
        d.var is access.view.index[position]
        and isinstance(d.extent, Const)
        and int(d.extent.value) >= extent
        for d in dims
    )


def _check_output(kernel: Kernel, compute: Compute, old: Dim, extent: int, facts: Facts) -> None:
    """Refuses where the surplus would be written over something, or read."""
    out = compute.out
    refuse = ScheduleError(
        f"pad: the surplus of '{old.var.name}' has no place in '{out.buffer.name}'",
        where=headline(compute),
        why="the output must be a buffer of the kernel, indexed by the dim itself, with room for "
        "the surplus, and read only within the old extent",
        cure="pad computes that write a tile, and leave the one that stores it to memory",
    )
    places = [i for i, e in enumerate(out.index) if old.var in variables(e)]
    if (
        out.buffer not in buffers_allocated(kernel.body)
        or len(places) != 1
        or out.index[places[0]] is not old.var
        or not within(out, facts)
    ):
        raise refuse
    found = [a for a in accesses(kernel.body, Place()) if a.view.buffer is out.buffer]
    if compute.combiner is not None and not any(
        a.writes and a.combiner is None and _reaches(a, places[0], extent) for a in found
    ):
        raise ScheduleError(
            f"pad: the surplus of '{old.var.name}' in '{out.buffer.name}' is never initialized",
            where=headline(compute),
            why=f"'{compute.name}' accumulates in it",
            cure="pad the compute that initializes it first",
        )
    for access in found:
        if access.writes:
            continue
        index = access.view.index[places[0]]
        dims = access.stmt.dims if isinstance(access.stmt, Compute) else ()
        extents = [d.extent for d in dims if d.var is index]
        if extents != [old.extent]:
            raise refuse
