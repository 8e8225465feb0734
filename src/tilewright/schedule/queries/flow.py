"""Which memory the statements of a kernel read and write, one after the other.

What recipes know of a kernel before they schedule it is data flow: which compute gives another its
operands, what else reads them, and whether statements may change places.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from tilewright.ir.buffer import Buffer, Size
from tilewright.ir.computes import complication, view_exprs
from tilewright.ir.expr import Const, Expr, Var, as_expr, const, var
from tilewright.ir.stmt import Allocate, Compute, Kernel, Operand, Stmt, View
from tilewright.ir.visit import loads_in, reads_memory, rewrite_loads, variables
from tilewright.schedule.queries.access import accesses
from tilewright.schedule.queries.place import Place, claim, sequence


@dataclass(frozen=True, eq=False)
class Item:
    """A statement at the top of a kernel, and the buffers that it reads and writes. What adds to a
    buffer reads it, too. ``simple`` is its compute, where it is one that schedules can take apart
    (see `_simple`)."""

    stmt: Stmt
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]
    simple: Compute | None

    @cached_property
    def touches(self) -> frozenset[Buffer]:
        """What it reads or writes."""
        return self.reads | self.writes

    def access(self, buffer: Buffer) -> str:
        """How it touches ``buffer``, as parameters say it."""
        if buffer not in self.writes:
            return "in"
        return "inout" if buffer in self.reads else "out"

    def may_pass(self, other: Item) -> bool:
        """Whether the two do the same in either order."""
        return not (self.writes & other.touches or other.writes & self.touches)


def flow(kernel: Kernel) -> tuple[list[Buffer], list[Item]]:
    """The buffers that are allocated at the top of ``kernel``, and the statements there."""
    allocated: list[Buffer] = []
    items: list[Item] = []
    scalars = frozenset(scalar.var for scalar in kernel.scalars)
    for stmt in sequence(kernel.body):
        if isinstance(stmt, Allocate):
            allocated.append(stmt.buffer)
        else:
            items.append(item_of(stmt, scalars))
    return allocated, items


def item_of(stmt: Stmt, scalars: Set[Var] = frozenset()) -> Item:
    """``stmt`` with what it reads and writes; ``scalars`` are what a call passes."""
    all_accesses = list(accesses(stmt, Place()))
    reads = {a.view.buffer for a in all_accesses if not a.writes or a.combiner is not None}
    writes = {a.view.buffer for a in all_accesses if a.writes}
    return Item(stmt, frozenset(reads), frozenset(writes), _simple(stmt, scalars))


def _simple(stmt: Stmt, scalars: Set[Var]) -> Compute | None:
    """``stmt``, where it is a compute of one result at places that its dims say, of sizes that are
    known, at the latest when it is called; what it loads in its value become operands."""
    if not isinstance(stmt, Compute) or complication(stmt) is not None:
        return None
    if stmt.instruction is not None or stmt.completion is not None:
        return None
    if not all(variables(dim.extent) <= scalars for dim in stmt.dims):
        return None
    if any(reads_memory(e) for o in stmt.operands for e in view_exprs(o.view)):
        return None
    return with_operands(stmt)


def with_operands(compute: Compute) -> Compute | None:
    """``compute`` without loads in its values; None where one says where another is."""
    results = compute.results
    loads = list(dict.fromkeys(x for r in results for value in r.values for x in loads_in(value)))
    if not loads:
        return compute
    if any(reads_memory(index) for load in loads for index in load.index):
        return None
    variables_of: dict[Expr, Var] = {}
    taken = {v.name for v in (*(d.var for d in compute.dims), *(o.var for o in compute.operands))}
    for load in loads:
        variables_of[load] = var(claim(load.buffer.name, taken), load.type)
    vars_ = {operand.var for operand in compute.operands}
    views = [View(load.buffer, load.index, load.mask) for load in loads]
    if any(variables(e) & vars_ or reads_memory(e) for view in views for e in view_exprs(view)):
        return None
    added = (Operand(v, view) for v, view in zip(variables_of.values(), views, strict=True))
    named = tuple(
        replace(
            r, values=tuple(rewrite_loads(v, lambda load: variables_of[load]) for v in r.values)
        )
        for r in results
    )
    return replace(compute, operands=(*compute.operands, *added), results=named)


def whole(compute: Compute, view: View) -> tuple[Var, ...] | None:
    """The dims that index ``view``, where they give each of its elements exactly once. Places of
    one element may be indexed by no dim."""
    if view.mask is not None:
        return None
    extents = {dim.var: dim.extent for dim in compute.dims}
    result: list[Var] = []
    for index, size in zip(view.index, view.buffer.sizes, strict=True):
        if is_only(index, size):
            continue
        extent = extents.get(index) if isinstance(index, Var) else None
        if extent is None or extent is not as_expr(size):
            return None
        assert isinstance(index, Var)
        result.append(index)
    return tuple(result) if len(set(result)) == len(result) else None


def is_only(index: Expr, size: Size) -> bool:
    """Whether ``index`` is the one place of a dim of ``size`` elements, which is 1."""
    return isinstance(index, Const) and index.value == 0 and as_expr(size) is const(1)


class Items(tuple[Item, ...]):
    """Statements in their order, with the places where each buffer is read and written: who asks
    for these, of hundreds of statements, does not look at all of them."""

    @cached_property
    def _touched(self) -> Mapping[Buffer, Sequence[int]]:
        return _places_of(item.touches for item in self)

    @cached_property
    def _written(self) -> Mapping[Buffer, Sequence[int]]:
        return _places_of(item.writes for item in self)

    def touching(self, buffer: Buffer) -> Sequence[int]:
        """The positions of those that read or write ``buffer``."""
        return self._touched.get(buffer, ())

    def may_move(self, n: int, last: int, members: Set[int]) -> bool:
        """Whether item ``n`` may run where item ``last`` does: past all between, but for those of
        ``members``."""
        item = self[n]
        for buffer in item.touches:
            places = (self._touched if buffer in item.writes else self._written).get(buffer, ())
            for between in places[bisect_right(places, n) :]:
                if between >= last:
                    break
                if between not in members:
                    return False
        return True


def _places_of(buffers: Iterable[Set[Buffer]]) -> Mapping[Buffer, Sequence[int]]:
    places: dict[Buffer, list[int]] = {}
    for n, touched in enumerate(buffers):
        for buffer in touched:
            places.setdefault(buffer, []).append(n)
    return places
