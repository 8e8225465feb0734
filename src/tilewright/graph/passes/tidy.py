"""The canonical form of a graph, which the other passes start from."""

from __future__ import annotations

from dataclasses import replace

from tilewright.graph.passes.loaded import loaded, with_results
from tilewright.ir.computes import view_exprs
from tilewright.ir.stmt import Block, Compute, Kernel, Stmt
from tilewright.ir.visit import rewrite_stmts
from tilewright.simplify import simplify_kernel


def tidy(kernel: Kernel) -> Kernel:
    """Expressions simplified, no dims of size 1, and each element that is used an operand once,
    called as its buffer.

        compute y(b in 1, i in 64):
          p = x[0 * 64 + i]
          q = x[i]
          unused = w[i]
          y[b, i] = p * q + -0.0
    ->  compute y(i in 64):
          x = x[i]
          y[0, i] = x * x
    """
    kernel = simplify_kernel(kernel)
    body = rewrite_stmts(kernel.body, _tidied)
    if isinstance(body, Block) and any(isinstance(stmt, Block) for stmt in body.body):
        body = Block(tuple(_flat(body)))
    return kernel if body is kernel.body else replace(kernel, body=body)


def _tidied(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Compute) or stmt.instruction is not None or stmt.completion is not None:
        return stmt
    new = with_results(stmt, loaded(stmt))
    return stmt if _parts(new) == _parts(stmt) else new


def _parts(compute: Compute) -> list[int]:
    """All that `with_results` may change, to be compared: expressions are interned."""
    ids: list[int] = []
    for operand in compute.operands:
        ids += map(id, (operand.var, operand.view.buffer, *view_exprs(operand.view)))
    for result in compute.results:
        ids += map(id, result.values)
        for view in result.views:
            ids += map(id, view_exprs(view))
    return ids


def _flat(block: Block) -> list[Stmt]:
    """The statements of ``block`` without empty blocks; others keep their scope."""
    return [stmt for stmt in block.body if not (isinstance(stmt, Block) and not stmt.body)]
