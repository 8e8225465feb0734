"""What statements and views depend on."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var, conjuncts
from tilewright.ir.opaque import buffers_touched
from tilewright.ir.stmt import Call, Compute, Opaque, Stmt, Store, View
from tilewright.ir.visit import direct_exprs, loads_in, variables, walk_stmts


def view_variables(view: View) -> frozenset[Var]:
    """The variables that the index or the mask of ``view`` depends on."""
    return frozenset[Var]().union(*map(variables, (*view.index, *conjuncts(view.mask))))


def buffers_in(stmt: Stmt) -> set[Buffer]:
    """The buffers that something in ``stmt`` reads or writes."""
    return {buffer for node in walk_stmts(stmt) for buffer in _buffers(node)}


def _buffers(node: Stmt) -> Iterator[Buffer]:
    match node:
        case Store():
            yield node.buffer
        case Compute():
            yield from (view.buffer for result in node.results for view in result.views)
            yield from (operand.view.buffer for operand in node.operands)
            if isinstance(node.completion, View):
                yield node.completion.buffer
        case Call():
            yield from (arg.buffer for arg in node.args if isinstance(arg, View))
        case Opaque():
            yield from buffers_touched(node)
        case _:
            pass
    for expr in direct_exprs(node):
        yield from (part.buffer for part in loads_in(expr))
