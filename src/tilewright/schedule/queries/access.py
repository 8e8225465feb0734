"""Which memory a statement touches, and rewriting how it is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from tilewright.facts.affine import Affine, affine
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var, all_of, conjuncts, const, var
from tilewright.ir.functions import atomic_operator
from tilewright.ir.load import Load, load
from tilewright.ir.opaque import buffers_touched
from tilewright.ir.stmt import Allocate, Call, Combiner, Compute, Dim, Opaque, Stmt, Store, View
from tilewright.ir.visit import (
    direct_exprs,
    loads_in,
    map_exprs,
    map_views,
    nested,
    rewrite_loads,
    rewrite_stmts,
    substitute,
    variables,
)
from tilewright.schedule.queries.place import Place, walk_placed

# An index of which nothing is known: no kernel has a variable of that name.
_ANYWHERE = var("?")


@dataclass(frozen=True)
class Access:
    """One way in which a statement, which stands at ``place``, reaches a buffer.

    ``atomic``: it is an atomic update, which may meet others at one element.
    """

    view: View
    stmt: Stmt
    place: Place
    writes: bool
    combiner: str | Combiner | None = None
    atomic: bool = False

    @property
    def facts(self) -> Facts:
        """What holds wherever the buffer is reached so."""
        dims = self.stmt.dims if isinstance(self.stmt, Compute) else ()
        return reduce(Facts.assume, conjuncts(self.view.mask), self.place.facts_with(dims))


def accesses(stmt: Stmt, place: Place) -> Iterator[Access]:
    """Everything that ``stmt`` and the statements inside it read and write. An opaque nest reaches
    any element of what it declares, in any order."""
    for node, here in walk_placed(stmt, place):
        yield from _direct(node, here)


def _direct(node: Stmt, place: Place) -> Iterator[Access]:
    yield from _by_views(node, place)
    for expr in direct_exprs(node):
        for part in loads_in(expr):
            yield Access(View(part.buffer, part.index, part.mask), node, place, False)


def _by_views(node: Stmt, place: Place) -> Iterator[Access]:
    """What ``node`` reads and writes but for loads in its expressions."""
    match node:
        case Store():
            yield Access(View(node.buffer, node.index), node, place, True)
        case Compute():
            atomic = atomic_operator(node.instruction) is not None
            for result in node.results:
                # Results of ordered points may be operands of later ones: their order counts.
                combiner = None if node.is_ordered else result.combiner
                for view in result.views:
                    yield Access(view, node, place, True, combiner, atomic)
            for operand in node.operands:
                yield Access(operand.view, node, place, False)
            if isinstance(node.completion, View):
                yield Access(node.completion, node, place, True)
        case Call():
            # What a function does with a view is described elsewhere: it may write it.
            operator = atomic_operator(node.function)
            for arg in node.args:
                if isinstance(arg, View):
                    yield Access(arg, node, place, True, operator, operator is not None)
        case Opaque():
            for buffer in buffers_touched(node):
                view = View(buffer, (_ANYWHERE,) * buffer.rank)
                yield Access(view, node, place, buffer.name in node.writes)
        case _:
            pass


def buffers_written(stmt: Stmt) -> set[Buffer]:
    """The buffers that something in ``stmt`` writes."""
    nowhere, written, stack = Place(), set[Buffer](), [stmt]
    while stack:
        node = stack.pop()
        written.update(a.view.buffer for a in _by_views(node, nowhere) if a.writes)
        if not isinstance(node, Opaque):
            stack += nested(node)
    return written


def allocates_of_any_size(stmt: Stmt) -> bool:
    """Whether something in ``stmt`` has a size that a call passes: it has a place for the whole
    kernel, so that no condition may stand around it."""
    return any(buffer.symbols for buffer in buffers_allocated(stmt))


def buffers_allocated(stmt: Stmt) -> set[Buffer]:
    """The buffers that live inside ``stmt``, also in its opaque nests."""
    buffers = {stmt.buffer} if isinstance(stmt, Allocate) else set()
    for part in nested(stmt):
        buffers |= buffers_allocated(part)
    return buffers


def masked(view: View, *conditions: Expr) -> View:
    """``view`` where ``conditions`` hold besides its mask."""
    return replace(view, mask=all_of((*conjuncts(view.mask), *conditions)))


def over_dims(compute: Compute, dims: Iterable[Dim], values: Mapping[Var, Expr]) -> Compute:
    """``compute`` over other ``dims``, of which ``values`` says what stands for the old ones."""
    moved = map_exprs(replace(compute, dims=()), lambda expr: substitute(expr, values))
    assert isinstance(moved, Compute)
    return replace(moved, dims=tuple(dims))


def readdress(stmt: Stmt, old: Buffer, change: Callable[[View], View]) -> Stmt:
    """``stmt`` with every access to ``old`` going where ``change`` says, on another buffer.

    An allocation of ``old`` becomes one of the buffer that ``change`` gives.
    """

    def in_view(view: View) -> View:
        return change(view) if view.buffer is old else view

    def in_load(node: Load) -> Expr:
        if node.buffer is not old:
            return node
        view = change(View(old, node.index, node.mask))
        return load(view.buffer, view.index, view.mask)

    def in_stmt(node: Stmt) -> Stmt:
        node = map_exprs(node, lambda expr: rewrite_loads(expr, in_load))
        match node:
            case Store() if node.buffer is old:
                view = change(View(old, node.index))
                return replace(node, buffer=view.buffer, index=view.index)
            case Allocate() if node.buffer is old:
                origin = change(View(old, (const(0),) * old.rank))
                return replace(node, buffer=origin.buffer)
            case _:
                return map_views(node, in_view)

    return rewrite_stmts(stmt, in_stmt)


def run_along(dim: int, touching: Sequence[Access]) -> tuple[Expr, int] | None:
    """Where the run begins that all of ``touching`` reach along ``dim``, and how long it is; None
    where nothing outside says where it begins, or they differ in that."""
    outer: Affine | None = None
    low, high = 0, 0
    for number, access in enumerate(touching):
        quotient, rest = _divided(access, dim)
        least, most = access.facts.bounds(rest.to_expr())
        if least is None or most is None or (outer is not None and quotient != outer):
            return None
        outer = quotient
        low, high = (least, most) if number == 0 else (min(low, least), max(high, most))
    if outer is None or outer.is_constant:
        return None
    return outer.shifted(low).to_expr(), high - low + 1


def _divided(access: Access, dim: int) -> tuple[Affine, Affine]:
    """The index along ``dim`` as what is the same for all points of the compute, and the rest."""
    assert isinstance(access.stmt, Compute)
    vars_ = {other.var for other in access.stmt.dims}
    whole = affine(access.view.index[dim])
    outer = Affine({a: n for a, n in whole.terms.items() if not variables(a) & vars_})
    return outer, whole - outer
