"""Two nests of workgroups made one: what the first hands to the second stays in the workgroup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from tilewright.facts.affine import Affine, affine
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.functions import FUNCTIONS
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Stmt,
    View,
)
from tilewright.ir.uses import buffers_in
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import block, rewrite_stmts, substitute_stmt, variables, walk_stmts
from tilewright.schedule.loops.tile import rename_dims
from tilewright.schedule.queries.access import (
    Access,
    accesses,
    buffers_allocated,
    buffers_written,
    readdress,
)
from tilewright.schedule.queries.digits import digits_of
from tilewright.schedule.queries.place import (
    Place,
    around,
    bound_names,
    holds,
    perfect_nest,
    rewrite_placed,
    size_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import ordered_layout
from tilewright.schedule.records.asks import a_compute, asks
from tilewright.schedule.records.transform import transform
from tilewright.schedule.staging.work_items import item_number

_BARRIER = Call("barrier", ())
# Loops that are not part of what a work-item does.
_LAUNCHED = (LoopKind.GRID, LoopKind.CLUSTER, *THREADS)


@transform
@asks(first=a_compute, second=a_compute)
def fuse_nests(kernel: Kernel, first: str, second: str) -> Kernel:
    """Does in one nest of workgroups what the nests around two computes do one after the other.

        alloc parts: f32[2, 64]
        grid for m_o in 4:
          workgroup for slice in 2:
            workgroup for m in 16:
              compute store(): parts[slice, m_o*16 + m] = ...
        grid for m_o in 4:
          workgroup for m in 16:
            compute sum(slice in 2): dst[m_o*16 + m] add= part    (part = parts[slice, m_o*16 + m])
    ->  fuse_nests("store", "sum")
        grid for m_o in 4:
          alloc parts: f32[2, 16] workgroup
          workgroup for slice in 2:
            workgroup for m in 16:
              compute store(): parts[slice, m] = ...
              barrier()
              if slice*16 + m < 16:
                compute sum(slice2 in 2): dst[m_o*16 + m] add= part    (part = parts[slice2, m])
              barrier()

    The nests stand in one block, only allocations between them; their grid loops have the same
    extents. Where the second has fewer work-items (without loops over any: one), as many of the
    first, counted with the outermost loop slowest, do its part. Buffers that the first writes and
    the second touches are allocated in that block and used by no one else. Their indices are linear
    in the grid loops, so that each workgroup has a part of its own; this is what is left of them,
    in memory of the workgroup.
    """
    fused: list[Stmt] = []

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if not isinstance(stmt, Block):
            return None
        at = [next((i for i, s in enumerate(stmt.body) if holds(s, n)), -1) for n in names]
        if min(at) < 0 or at[0] == at[1]:
            return None
        fused.append(_as_one(stmt, at[0], at[1]))
        return fused[-1]

    names = (first, second)
    body = rewrite_placed(kernel.body, Place(), change)
    if not fused:
        raise refusal(
            f"'{first}' and '{second}' do not stand in two nests of one block",
            kernel,
            "distribute both over the same grid first",
            why="what follows on one another is fused",
        )
    return replace(kernel, body=body)


@dataclass(frozen=True)
class _Nest:
    """A nest of grid loops, the loops over work-items in it, and what each of these does."""

    stmt: Stmt
    grid: tuple[For, ...]
    items: tuple[For, ...]
    body: Stmt

    @property
    def count(self) -> int:
        """The work-items of a workgroup."""
        return prod(size_of(loop) for loop in self.items)


def _nest(stmt: Stmt) -> _Nest:
    grid, inside = perfect_nest(stmt, (LoopKind.GRID,))
    items, body = perfect_nest(inside, THREADS)
    constant = all(isinstance(loop.extent, Const) for loop in (*grid, *items))
    if not constant or any(isinstance(s, For) and s.kind in _LAUNCHED for s in walk_stmts(body)):
        raise refusal(
            "its loops over workgroups and work-items are no perfect nest of constant extents",
            stmt,
            "join before operands are shared, and pad to whole tiles first",
            why="two of them become one",
        )
    return _Nest(stmt, grid, items, body)


def _as_one(stmt: Block, at: int, end: int) -> Stmt:
    """The block with the nests ``at`` and ``end`` fused, where the second stood."""
    if end < at:
        raise refusal(
            "the second stands before the first",
            stmt.body[end],
            "name them in their order",
            why="the first one's results would come too late",
        )
    first, second = _nest(stmt.body[at]), _nest(stmt.body[end])
    _check_loops(first, second)
    for between in stmt.body[at + 1 : end]:
        if not isinstance(between, Allocate):
            raise refusal(
                "a statement stands between the nests",
                between,
                "move it before or behind them",
                "it runs when all workgroups of the first are done, and before those of the second",
            )
    others = [part for i, part in enumerate(stmt.body) if i not in (at, end)]
    handed = {b: _window(b, first, second) for b in _handed(stmt.body[:at], others, first, second)}
    kept = [
        part
        for i, part in enumerate(stmt.body[:end])
        if i != at and not (isinstance(part, Allocate) and part.buffer in handed)
    ]
    nest = _one(first, second, handed)
    return block(*kept, nest, *stmt.body[end + 1 :])


def _check_loops(first: _Nest, second: _Nest) -> None:
    if not first.items:
        raise refusal(
            "no loops over work-items, of constant extent, stand directly inside the grid's",
            first.stmt,
            "distribute it over workgroups and their work-items first",
            why="they do what those of the second did",
        )
    if [loop.extent for loop in first.grid] != [loop.extent for loop in second.grid]:
        raise refusal(
            "the two grids differ",
            second.stmt,
            "distribute both over the same tiles",
            why="each workgroup does its part of both: "
            + " and ".join(str([size_of(loop) for loop in n.grid]) for n in (first, second)),
        )
    if second.count > first.count:
        raise refusal(
            f"the second needs {second.count} work-items",
            second.stmt,
            "give its work-items larger tiles",
            why=f"the first has {first.count}",
        )
    synchronized = any(
        isinstance(s, Call) and s.function in FUNCTIONS and FUNCTIONS[s.function].ordered
        for s in walk_stmts(second.body)
    )
    if synchronized and second.count < first.count:
        raise refusal(
            "the second synchronizes its work-items",
            second.stmt,
            "give it as many work-items as the first has",
            why=f"{first.count - second.count} others would not come",
        )


def _handed(
    before: Sequence[Stmt], others: Sequence[Stmt], first: _Nest, second: _Nest
) -> list[Buffer]:
    """The buffers that go from the first nest to the second, in the order of their allocation."""
    written, touched = buffers_written(first.stmt), buffers_in(first.stmt)
    shared = written & buffers_in(second.stmt) | touched & buffers_written(second.stmt)
    shared -= buffers_allocated(first.stmt) | buffers_allocated(second.stmt)
    buffers = [s.buffer for s in before if isinstance(s, Allocate) and s.buffer in shared]
    outside = set[Buffer]().union(*(buffers_in(s) for s in others))
    for buffer in sorted(shared, key=lambda b: b.name):
        if buffer not in buffers or buffer in outside:
            raise refusal(
                f"'{buffer.name}' is not only handed from the one nest to the other",
                second.stmt,
                "let the two share no buffer but one that their block allocates for them",
                why="other workgroups, or what comes behind, may need what stands in it",
            )
    return buffers


@dataclass(frozen=True)
class _Window:
    """What one workgroup has of a buffer: ``new``, which begins at ``least`` of the index without
    the terms of the grid's loops."""

    new: Buffer
    least: tuple[int, ...]

    def view(self, grid: frozenset[Var], view: View) -> View:
        """``view`` in the new buffer."""
        index = tuple(
            _split(affine(i), grid)[1].shifted(-low).to_expr()
            for i, low in zip(view.index, self.least, strict=True)
        )
        return View(self.new, index, view.mask)


def _split(form: Affine, grid: frozenset[Var]) -> tuple[Affine, Affine]:
    """The terms of the grid's loops, and the rest."""
    outer = {atom: c for atom, c in form.terms.items() if atom in grid}
    return Affine(outer), form.plus(Affine(outer), -1)


def _window(buffer: Buffer, first: _Nest, second: _Nest) -> _Window:
    """The part of ``buffer`` that a workgroup uses, which no other does."""
    outer: list[Affine] | None = None
    least, most = [0] * len(buffer.shape), [0] * len(buffer.shape)
    for access, nest, names in _reaches(buffer, first, second):
        grid = frozenset(loop.var for loop in nest.grid)
        parts = [_split(affine(i), grid) for i in access.view.index]
        here = [form.replaced(names) for form, _ in parts]
        facts = access.facts
        bounds = [facts.bounds(form.to_expr()) for _, form in parts]
        lets = {step.var for step in access.place.steps if isinstance(step, Let)}
        hidden = any(variables(atom) & (grid | lets) for _, form in parts for atom in form.terms)
        if hidden or any(None in pair for pair in bounds) or (outer or here) != here:
            raise refusal(
                f"the workgroups' parts of '{buffer.name}' are not known",
                access.stmt,
                "distribute both nests over the same tiles",
                f"in all accesses, {to_text(access.view)} must be the same sum of grid loops, and "
                "the work-items' place in a part of fixed size",
            )
        ranges = [(int(low or 0), int(high or 0)) for low, high in bounds]
        if outer is None:
            least, most = [low for low, _ in ranges], [high for _, high in ranges]
        outer = here
        least = [min(a, low) for a, (low, _) in zip(least, ranges, strict=True)]
        most = [max(a, high) for a, (_, high) in zip(most, ranges, strict=True)]
    shape = [high - low + 1 for low, high in zip(least, most, strict=True)]
    _check_apart(buffer, first, outer or [], shape)
    return _Window(_smaller(buffer, shape), tuple(least))


def _reaches(
    buffer: Buffer, first: _Nest, second: _Nest
) -> Iterator[tuple[Access, _Nest, Mapping[Expr, Affine]]]:
    """The accesses to ``buffer``, and what the first nest calls the grid's loops there."""
    pairs = zip(first.grid, second.grid, strict=True)
    to_first: dict[Expr, Affine] = {b.var: affine(a.var) for a, b in pairs if a.var is not b.var}
    for nest, names in ((first, {}), (second, to_first)):
        for access in accesses(nest.stmt, Place()):
            if access.view.buffer is buffer:
                yield access, nest, names


def _check_apart(buffer: Buffer, nest: _Nest, outer: Sequence[Affine], shape: list[int]) -> None:
    """Refuses when two workgroups have an element of ``buffer`` in common."""
    extents = {loop.var: size_of(loop) for loop in nest.grid}
    apart: set[Expr] = {v for v, extent in extents.items() if extent == 1}
    for form, size in zip(outer, shape, strict=True):
        # Like the digits of a number: each step is longer than all that the smaller ones reach.
        reach = size
        for atom, step in sorted(form.terms.items(), key=lambda term: abs(term[1])):
            assert isinstance(atom, Var)
            if abs(step) < reach:
                break
            apart.add(atom)
            reach += abs(step) * (extents[atom] - 1)
    for loop in nest.grid:
        if loop.var not in apart:
            raise refusal(
                f"the iterations of '{loop.var.name}' may use the same elements of '{buffer.name}'",
                loop,
                "give each iteration a part of its own",
                f"of each, {shape} elements are used from {[to_text(f.to_expr()) for f in outer]}",
            )


def _smaller(old: Buffer, shape: Sequence[int]) -> Buffer:
    """The buffer of a workgroup, whose dims lie in memory in the order of those of ``old``."""
    steps = {b.dim: b.stride for b in reversed(old.layout.blocks)}
    order = sorted(range(len(shape)), key=lambda dim: -steps.get(dim, 0))
    return Buffer(old.name, old.dtype, tuple(shape), ordered_layout(shape, order), Space.WORKGROUP)


def _one(first: _Nest, second: _Nest, handed: Mapping[Buffer, _Window]) -> Stmt:
    """The nest of both."""
    before, after = first.body, second.body
    for old, window in handed.items():
        before = readdress(before, old, partial(window.view, _grid(first)))
        after = readdress(after, old, partial(window.view, _grid(second)))
    after = _with_names(second, after, {loop.var.name for loop in (*first.grid, *first.items)})
    number, count = item_number(first.items)
    values: dict[Var, Expr] = {b.var: a.var for a, b in zip(first.grid, second.grid, strict=True)}
    numbers = digits_of(number, [size_of(loop) for loop in second.items])
    values |= {loop.var: digit for loop, digit in zip(second.items, numbers, strict=True)}
    after = substitute_stmt(after, values)
    if second.count < count:
        after = If(number < second.count, after)
    # The last barrier: where the workgroup takes another tile, it writes the same memory again.
    body = block(before, _BARRIER, after, _BARRIER)
    inside = around(first.items, body)
    return around(first.grid, block(*(Allocate(window.new) for window in handed.values()), inside))


def _grid(nest: _Nest) -> frozenset[Var]:
    return frozenset(loop.var for loop in nest.grid)


def _with_names(nest: _Nest, body: Stmt, taken: set[str]) -> Stmt:
    """``body`` of ``nest`` with other names for dims where the first nest's loops have them."""
    taken = taken | {loop.var.name for loop in (*nest.grid, *nest.items)}

    def change(stmt: Stmt) -> Stmt:
        return rename_dims(stmt, taken) if isinstance(stmt, Compute) else stmt

    body = rewrite_stmts(body, change)
    clashes = bound_names(body) & taken
    if clashes:
        raise refusal(
            f"the name '{min(clashes)}' is taken",
            nest.stmt,
            "join them before they are lowered to loops",
            why="a loop around both nests is called so",
        )
    return body
