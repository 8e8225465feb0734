"""Results that a reduction accumulates in a buffer of its own."""

from __future__ import annotations

from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.facts.affine import affine
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Var, all_of, const, var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Allocate, Compute, Dim, For, Kernel, Let, Operand, Stmt, View
from tilewright.ir.visit import rewrite_stmts, variables, walk_stmts
from tilewright.schedule.queries.access import accesses
from tilewright.schedule.queries.place import (
    Place,
    fresh,
    is_called,
    loops_named,
    placed_computes,
    prepend,
    rewrite_placed,
    sequence,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import BlockList, blocked_layout
from tilewright.schedule.records.transform import give


def accumulated(
    kernel: Kernel, compute: str, at: str, space: Space, layout: BlockList, whole: bool
) -> Kernel:
    """``kernel`` with what ``compute`` adds in the loop ``at`` (or each time, where that is its own
    name) in a buffer, copied in and out. Where it is ``whole``, all of it begins with a value."""
    if at != compute:
        loops_named(kernel, at)
    names = {p.name for p in kernel.arrays}
    names |= {s.buffer.name for s in walk_stmts(kernel.body) if isinstance(s, Allocate)}
    is_there = False

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        nonlocal is_there
        if at == compute and is_called(stmt, compute):
            is_there = True
            return _on_body(stmt, place, stmt, place, names, space, layout, whole)
        if not (isinstance(stmt, For) and stmt.var.name == at):
            return None
        inside = place.inside(stmt)
        matching = placed_computes(stmt.body, inside, compute)
        if not matching:
            return None
        if len(matching) > 1:
            raise _refusal(
                matching[0][0],
                f"it stands {len(matching)} times inside '{at}'",
                "choose an inner loop",
            )
        is_there = True
        target, here = matching[0]
        inner = _on_body(stmt.body, inside, target, here, names, space, layout, whole)
        return replace(stmt, body=inner)

    body = rewrite_placed(kernel.body, Place(), change)
    if not is_there:
        raise refusal(
            f"the loop '{at}' does not hold the compute '{compute}'",
            kernel,
            "choose a loop around it",
        )
    return replace(kernel, body=body)


def _refusal(compute: Compute, why: str, cure: str) -> ScheduleError:
    return refusal(f"the result of '{compute.name}' cannot be staged", compute, cure, why=why)


def _on_body(
    body: Stmt,
    place: Place,
    compute: Compute,
    here: Place,
    names: set[str],
    space: Space,
    layout: BlockList,
    whole: bool,
) -> Stmt:
    out = compute.out
    if compute.combiner is None or out.mask is not None:
        raise _refusal(compute, "it does not accumulate, or is masked", "stage that of a reduction")
    others = [
        a
        for a in accesses(body, place)
        if a.view.buffer is out.buffer and not (a.stmt is compute and a.view is out)
    ]
    if others:
        raise _refusal(
            compute,
            f"{headline(others[0].stmt)} also touches '{out.buffer.name}'",
            "choose a loop further inside",
        )
    dims = _result_dims(compute, place, here)
    sizes = [here.facts.bounds(d.extent)[1] for d in dims]
    if any(size is None for size in sizes):
        raise _refusal(compute, "an extent has no greatest value", "tile it first")
    shape, where = blocked_layout([d.var.name for d in dims], [s or 0 for s in sizes], layout)
    tile = Buffer(fresh(f"{out.buffer.name}_tile", names), out.buffer.dtype, shape, where, space)
    local = View(tile, tuple(d.var for d in dims))
    value = var(fresh("value", {*place.names, *(d.var.name for d in dims)}), tile.dtype)
    loaded, inside = dims, None
    if whole:
        loaded = tuple(Dim(d.var, const(s or 0)) for d, s in zip(dims, sizes, strict=True))
        inside = all_of(d.var < d.extent for d in dims if not isinstance(d.extent, Const))
    read = (Operand(value, replace(out, mask=inside)),)
    fetch = Compute.single(f"{compute.name}_load", loaded, local, read, value)
    store = Compute.single(f"{compute.name}_store", dims, out, (Operand(value, local),), value)
    new = compute.with_result(local)
    give("load", "compute", fetch.name)
    give("store", "compute", store.name)
    give("buffer", "buffer", tile.name)
    changed = rewrite_stmts(body, lambda s: new if s is compute else s)
    return prepend((Allocate(tile), fetch, *sequence(changed)), store)


def _result_dims(compute: Compute, place: Place, here: Place) -> tuple[Dim, ...]:
    """The dims and inner loops that the output depends on, one-to-one with its elements."""
    steps = here.steps[len(place.steps) :]
    inner = [Dim(s.var, s.extent) for s in steps if isinstance(s, For)] + list(compute.dims)
    inner_vars = {d.var for d in inner}
    lets = {s.var for s in steps if isinstance(s, Let)}
    used: list[Dim] = []
    for index in compute.out.index:
        form = affine(index)
        mine = [a for a in form.terms if variables(a) & (inner_vars | lets)]
        dims = [d for d in inner if d.var in mine]
        if len(dims) != len(mine) or any(d in used for d in dims):
            raise _refusal(
                compute,
                f"the index {to_text(index)} is not linear, or shares a dim with another",
                "stage at a loop further inside",
            )
        reach = 0
        for dim in sorted(dims, key=lambda d: abs(form.terms[d.var])):
            longest = here.facts.bounds(dim.extent)[1]
            if longest is None or abs(form.terms[dim.var]) <= reach:
                raise _refusal(
                    compute,
                    f"two points of the domain may be one element at {to_text(index)}",
                    "stage at a loop further inside",
                )
            reach += abs(form.terms[dim.var]) * (longest - 1)
        used += dims
    ordered = [d for d in inner if d in used]
    moving: set[Var] = {d.var for d in inner}
    if any(variables(d.extent) & moving for d in ordered):
        raise _refusal(
            compute, "an extent varies with a loop inside", "stage at a loop further inside"
        )
    return tuple(ordered)
