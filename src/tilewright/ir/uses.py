"""The variables and buffers that statements and views use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import view_exprs
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Call, Compute, Stmt, Store, View
from tilewright.ir.visit import direct_exprs, loads_in, variables, walk_stmts


def view_variables(view: View) -> frozenset[Var]:
    """The variables that the index or the mask of ``view`` depends on."""
    return frozenset[Var]().union(*map(variables, view_exprs(view)))


def buffers_in(stmt: Stmt) -> set[Buffer]:
    """The buffers that ``stmt`` reads or writes, nested statements included."""
    return {buffer for node in walk_stmts(stmt) for buffer, _ in accesses(node)}


def accesses(stmt: Stmt) -> Iterator[tuple[Buffer, bool]]:
    """The buffers that ``stmt`` accesses, without nested statements, and whether it may write them:
    operands before results, and what an index or a value loads before what it is for. A function
    may write any view that it is passed."""
    match stmt:
        case Store():
            yield from _loaded((*stmt.index, stmt.value))
            yield stmt.buffer, True
        case Compute():
            yield from _loaded(dim.extent for dim in stmt.dims)
            for operand in stmt.operands:
                yield from _of_view(operand.view, False)
            for result in stmt.results:
                yield from _loaded(result.values)
                for view in result.views:
                    yield from _of_view(view, True)
            if isinstance(stmt.completion, View):
                yield from _of_view(stmt.completion, True)
        case Call():
            for arg in stmt.args:
                yield from _of_view(arg, True) if isinstance(arg, View) else _loaded((arg,))
        case _:
            yield from _loaded(direct_exprs(stmt))


def _of_view(view: View, writes: bool) -> Iterator[tuple[Buffer, bool]]:
    yield from _loaded(view_exprs(view))
    yield view.buffer, writes


def _loaded(exprs: Iterable[Expr]) -> Iterator[tuple[Buffer, bool]]:
    return ((load.buffer, False) for expr in exprs for load in loads_in(expr))
