"""Longer dims: computing a little more, so that tiles and instructions are whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, as_size, row_major
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Expr, Var, as_expr, conjuncts, const
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import substitute, variables
from tilewright.schedule.queries.access import Access, accesses, masked, readdress
from tilewright.schedule.queries.identity import vanishes
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    dim_of,
    plain,
    rewrite_placed,
    walk_placed,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_plain_compute, asks, positive
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify


@transform
@asks(compute=a_plain_compute, multiples=positive)
def pad(
    kernel: Kernel,
    compute: str,
    extents: Mapping[str, int] = MappingProxyType({}),
    *,
    multiples: Mapping[str, int] = MappingProxyType({}),
) -> Kernel:
    """Extends dims of the compute to ``extents``, or to the next of ``multiples``, where an extent
    need not be a number.

        alloc acc: f32[10]
        compute zero(i in 10): acc[i] = 0.0
        compute sum(i in 10, k in 5): acc[i] add= a * b    (a = x[i, k], b = y[k])
        compute store(i in 10): dst[i] = acc[i]
    ->  pad("sum", {"k": 6})
    ->  pad("store", {"i": 12})
        alloc acc: f32[12]
        compute zero(i in 12): acc[i] = 0.0
        compute sum(i in 12, k in 6): acc[i] add= a * b
            (a = x[i, k | k < 5 and i < 10], b = y[k | k < 5])
        compute store(i in 12): dst[i | i < 10] = acc[i]

    A reduced dim needs surplus terms that are neutral: an operand is zero there, because a copy in
    this kernel filled its padding with zeros, or because it gets a mask; of floats all operands
    are, for infinity times 0 is NaN. Along another dim, what makes the operands is extended, too,
    where it has the dim by the same name and hands its results on in buffers of the compute's
    block, each reached at the dim itself: these grow. The surplus is not stored. Operands that
    would leave their buffer get a mask.
    """
    longer: dict[Compute, dict[str, Expr]] = {}
    grown: dict[Buffer, dict[int, Expr]] = {}
    for root, place in computes_named(kernel, compute):
        asked = _asked(root, place, extents, multiples)
        longer.setdefault(root, {}).update(asked)
        kept = [name for name in asked if not _is_reduced(root, dim_of(root, name))]
        for buffer, dims, writers in _between(kernel, root, kept):
            grown[buffer] = {at: asked[name] for name, at in dims.items()}
            for writer in writers:
                for name in dims:
                    if _is_shorter(root, writer, name, asked[name]):
                        longer.setdefault(writer, {})[name] = asked[name]
    if not any(longer.values()):
        return kernel

    def change(stmt: Stmt, here: Place) -> Stmt | None:
        if isinstance(stmt, Compute) and longer.get(stmt):
            return _extended(kernel, stmt, here, longer[stmt], grown)
        return None

    body = rewrite_placed(kernel.body, Place(), change)
    for buffer, sizes in grown.items():
        body = _with_room(body, buffer, sizes)
    return replace(kernel, body=body)


def _asked(
    root: Compute, place: Place, extents: Mapping[str, int], multiples: Mapping[str, int]
) -> dict[str, Expr]:
    """The new extents of the dims that become longer."""
    extents_of: dict[str, Expr] = {}
    for name, extent in extents.items():
        old = dim_of(root, name).extent
        longest = place.facts.bounds(old)[1]
        if longest is None or longest > extent:
            cure = "extents grow: give the length of the tile or the next multiple"
            raise refusal(f"'{name}' is longer than {extent}", root, cure)
        if old is not const(extent):
            extents_of[name] = const(extent)
    for name, by in multiples.items():
        old = dim_of(root, name).extent
        if name in extents:
            what = f"'{name}' is to have an extent, and a multiple"
            raise refusal(what, root, "leave one of them out")
        if not place.facts.divisible(old, by):
            extents_of[name] = simplify((old + (by - 1)) // by * by, place.facts)
    return extents_of


def _is_reduced(compute: Compute, dim: Dim) -> bool:
    return all(dim.var not in variables(index) for index in compute.out.index)


def _between(
    kernel: Kernel, root: Compute, names: Collection[str]
) -> Iterator[tuple[Buffer, dict[str, int], list[Compute]]]:
    """The buffers through which results are handed on to ``root`` along dims of it and which can
    grow, as all that touches them are computes that index them by these dims in the same places;
    those dims, with their places; and the computes that write there."""
    for stmt, place in walk_placed(kernel.body, Place()):
        if names and isinstance(stmt, Block) and any(part is root for part in stmt.body):
            allocated = {s.buffer for s in stmt.body if isinstance(s, Allocate)}
            touching = list(accesses(stmt, place))
            for buffer in dict.fromkeys(o.view.buffer for o in root.operands):
                here = [access for access in touching if access.view.buffer is buffer]
                places = {_places(access, names) for access in here}
                (dims, *others) = places
                if buffer in allocated and dims and not others:
                    writers = [a.stmt for a in here if a.writes and isinstance(a.stmt, Compute)]
                    yield buffer, dict(dims), writers


def _places(access: Access, names: Collection[str]) -> tuple[tuple[str, int], ...] | None:
    """Which dim of the buffer each of the dims called ``names`` indexes, alone, if any; None
    where some index is of another form."""
    if not isinstance(access.stmt, Compute):
        return None
    places: list[tuple[str, int]] = []
    for name in names:
        var = next((d.var for d in access.stmt.dims if d.var.name == name), None)
        using = [i for i, e in enumerate(access.view.index) if name in _names(e)]
        if using and (len(using) > 1 or var is None or access.view.index[using[0]] is not var):
            return None
        places += [(name, at) for at in using]
    return tuple(places)


def _names(index: Expr) -> set[str]:
    return {v.name for v in variables(index)}


def _is_shorter(root: Compute, writer: Compute, name: str, extent: Expr) -> bool:
    """Whether the dim of ``writer`` has yet to grow to ``extent``; refuses one that is not as long
    as the root's."""
    expr = dim_of(writer, name).extent
    if expr is not extent and expr is not dim_of(root, name).extent:
        what = f"its '{name}' is not as long as that of '{root.name}'"
        raise refusal(what, writer, "pad before computes are tiled")
    return expr is not extent


def _extended(
    kernel: Kernel,
    compute: Compute,
    place: Place,
    longer: Mapping[str, Expr],
    grown: Collection[Buffer],
) -> Compute:
    if plain(compute).instruction is not None:
        raise refusal("an instruction has its dims", compute, "pad before it is matched")
    dims = tuple(Dim(d.var, longer.get(d.var.name, d.extent)) for d in compute.dims)
    surplus = [d for d in compute.dims if d.var.name in longer]
    facts = place.facts_with(dims)

    def inside(view: View) -> View:
        if view.buffer in grown:
            return view
        used = index_variables(view)
        return masked(view, *(d.var < d.extent for d in surplus if d.var in used))

    operands = [
        o if within(o.view, facts) else Operand(o.var, inside(o.view)) for o in compute.operands
    ]
    for dim in surplus:
        if _is_reduced(compute, dim):
            operands = _neutral(kernel, compute, dim, longer[dim.var.name], operands)
    padded = replace(compute, dims=dims, operands=tuple(operands))
    return padded.with_result(inside(compute.out))


def within(view: View, facts: Facts) -> bool:
    """Whether the index is provably inside the buffer wherever the mask holds."""
    for condition in conjuncts(view.mask):
        facts = facts.assume(condition)
    return all(
        facts.prove(const(0) <= index) is True and facts.prove(index < size) is True
        for index, size in zip(view.index, view.buffer.sizes, strict=True)
    )


def _neutral(
    kernel: Kernel, compute: Compute, old: Dim, extent: Expr, operands: Sequence[Operand]
) -> list[Operand]:
    """The operands such that the surplus terms of a reduction are neutral: one factor is 0, and
    where infinity times 0 is NaN, all that differ by term are."""
    result = list(operands)
    factors = [i for i, operand in enumerate(operands) if vanishes(compute, operand.var)]
    zero = {i for i in factors if _is_zero_beyond(kernel, operands[i].view, old, extent)}
    for i in factors:
        if zero and not compute.body.type.is_float:
            break
        view = operands[i].view
        if i not in zero and old.var in view_variables(view):
            result[i] = Operand(operands[i].var, masked(view, old.var < old.extent))
            zero.add(i)
    if not zero:
        raise refusal(
            f"the surplus of '{old.var.name}' would count",
            compute,
            "pad dims of sums of products",
            why=f"no operand of {to_text(compute.body)} that is zero makes it neutral",
        )
    return result


def _is_zero_beyond(kernel: Kernel, view: View, dim: Dim, extent: Expr) -> bool:
    """Whether the surplus reads zeros: of a mask, or of a copy in this kernel that fills it."""
    return _is_masked_beyond(view, dim.var, dim, extent) or _is_filled(kernel, view, dim, extent)


def _is_masked_beyond(view: View, variable: Var, dim: Dim, extent: Expr) -> bool:
    """Whether the mask is false where ``variable`` is in the surplus of ``dim``."""
    facts = Facts.empty().loop(variable, extent).assume(dim.extent <= variable)
    return any(facts.prove(c) is False for c in conjuncts(view.mask))


def _is_filled(kernel: Kernel, view: View, dim: Dim, extent: Expr) -> bool:
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
    extents_of = {d.var: d.extent for d in pack.dims}
    zero = substitute(pack.body, {pack.operands[0].var: const(0, pack.operands[0].var.type)})
    covered = extents_of.get(variable) is as_expr(view.buffer.sizes[places[0]])
    return (
        covered
        and zero is const(0, pack.body.type)
        and _is_masked_beyond(pack.operands[0].view, variable, dim, extent)
    )


def _with_room(body: Stmt, old: Buffer, sizes: Mapping[int, Expr]) -> Stmt:
    """``body`` where dims of ``old``, by place, have at least ``sizes``."""
    shape = list(old.sizes)
    for at, extent in sizes.items():
        size, wanted = shape[at], as_size(extent)
        if not (isinstance(size, int) and isinstance(wanted, int) and wanted <= size):
            shape[at] = wanted
    if tuple(shape) == old.sizes:
        return body
    new = Buffer(old.name, old.dtype, tuple(shape), row_major(shape), old.space)
    return readdress(body, old, lambda v: View(new, v.index, v.mask))
