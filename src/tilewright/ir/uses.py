"""The variables and buffers that statements and views use."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import view_exprs
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Call, Compute, Stmt, Store, View
from tilewright.ir.visit import direct_exprs, loads_in, variables, walk_stmts


def view_variables(view: View) -> frozenset[Var]:
    """The variables that the index or the mask of ``view`` depends on."""
    return frozenset[Var]().union(*map(variables, view_exprs(view)))


def buffers_in(stmt: Stmt) -> set[Buffer]:
    """The buffers that ``stmt`` reads or writes, nested statements included."""
    return {buffer for node in walk_stmts(stmt) for buffer, _ in accesses(node)}


def accesses(stmt: Stmt) -> Iterator[tuple[Buffer, bool]]:
    """The buffers that ``stmt`` accesses, without nested statements, and whether it may write them.
    A function may write any view that it is passed."""
    match stmt:
        case Store():
            yield stmt.buffer, True
        case Compute():
            yield from ((view.buffer, True) for view in stmt.outputs)
            yield from ((operand.view.buffer, False) for operand in stmt.operands)
            if isinstance(stmt.completion, View):
                yield stmt.completion.buffer, True
        case Call():
            yield from ((arg.buffer, True) for arg in stmt.args if isinstance(arg, View))
        case _:
            pass
    for expr in direct_exprs(stmt):
        yield from ((load.buffer, False) for load in loads_in(expr))
