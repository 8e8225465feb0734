"""What a scan hands from one point to the next, kept beside its results."""

from __future__ import annotations

from dataclasses import replace

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Space, buffer
from tilewright.ir.computes import addressing
from tilewright.ir.expr import Expr, Var, const
from tilewright.ir.stmt import Allocate, Compute, Kernel, Operand, Result, Stmt, View
from tilewright.ir.visit import block, substitute
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    dim_of,
    fresh,
    names_in,
    rewrite_computes,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_compute, asks
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify


@transform
@asks(compute=a_compute)
def carry(kernel: Kernel, compute: str, dim: str) -> Kernel:
    """Keeps the last results of a scan along ``dim`` in memory of their own, where they can be
    registers, instead of reading them again.

        compute scan(i in 8, ordered k in 100):
          before = dst[i, k - 1 | 0 < k]
          x = src[i, k]
          dst[i, k] = before + x
    ->  carry("scan", "k")
        alloc scan_carried: f32[8] private
        compute scan_begin(i in 8): scan_carried[i] = 0.0
        compute scan(i in 8, ordered k in 100):
          before = scan_carried[i]
          x = src[i, k]
          dst[i, k] = before + x
          scan_carried[i] = before + x

    ``dim`` is the only ordered one. The compute reads what the point before gave, under the mask
    that there is one, and nothing else of its one result.
    """
    names = names_in(kernel)
    for stmt, _ in computes_named(kernel, compute, any_kind=True):
        if previous(stmt, dim) is None:
            raise refusal(
                f"'{compute}' hands nothing alone from one point of '{dim}' to the next",
                stmt,
                "choose a scan with one ordered dim and one result",
                why="it has to read the result of the point before, where 0 < "
                f"{dim}, and no other element of its result",
            )
    return rewrite_computes(
        kernel, {compute}, lambda stmt, place: _carried(stmt, dim, names, place)
    )


def previous(compute: Compute, dim: str) -> Operand | None:
    """The operand that is the result of the point before along ``dim``; None where there is none,
    or the result is read elsewhere, too."""
    along = dim_of(compute, dim)
    if [d for d in compute.dims if d.ordered] != [along] or len(compute.outputs) > 1:
        return None
    if compute.results[0].combiner is not None or addressing(compute):
        return None
    out = compute.outputs[0]
    reading = [o for o in compute.operands if o.view.buffer is out.buffer]
    if out.mask is not None or len(reading) != 1:
        return None
    facts = Place().facts_with(compute.dims)
    before = tuple(_simple(index, along.var, facts) for index in out.index)
    (only,) = reading
    same = tuple(simplify(index, facts) for index in only.view.index) == before
    there_is_one = simplify(const(0) < along.var, facts)
    masked = only.view.mask is not None and simplify(only.view.mask, facts) is there_is_one
    return only if same and masked else None


def _simple(index: Expr, along: Var, facts: Facts) -> Expr:
    """``index`` at the point before."""
    return simplify(substitute(index, {along: along - 1}), facts)


def _carried(compute: Compute, dim: str, names: tuple[set[str], set[str]], place: Place) -> Stmt:
    """``compute`` with its last results beside it, and what these begin with."""
    before = previous(compute, dim)
    assert before is not None
    out = compute.outputs[0]
    kept = tuple(d for d in compute.dims if not d.ordered)
    shape = tuple(d.extent for d in kept) or (const(1),)
    held = buffer(
        fresh(f"{compute.name}_carried", names[0] | place.names),
        out.buffer.dtype,
        shape,
        space=Space.PRIVATE,
    )
    at = View(held, tuple(d.var for d in kept) or (const(0),))
    begin = Compute(
        fresh(f"{compute.name}_begin", names[1]),
        kept,
        (),
        (Result((at,), (const(0, out.buffer.dtype),)),),
    )
    operands = tuple(
        replace(operand, view=at) if operand is before else operand for operand in compute.operands
    )
    results = (*compute.results, Result((at,), compute.results[0].values))
    return block(Allocate(held), begin, replace(compute, operands=operands, results=results))
