"""Short loops written out where that makes conditions known."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.ir.expr import Binary, Const, Expr, Var, conjuncts
from tilewright.ir.stmt import Compute, For, Kernel, LoopKind, Stmt
from tilewright.ir.visit import map_kernel, rewrite_stmts, variables, walk, walk_stmts
from tilewright.schedule.records.asks import asks, positive
from tilewright.schedule.records.transform import transform


@transform
@asks(longest=positive)
def unroll_known(
    kernel: Kernel, loops: Sequence[str], longest: int, positions: Sequence[str] = ()
) -> Kernel:
    """Unrolls those of ``loops`` with at most ``longest`` iterations on which masks or divisions in
    computes depend: in each copy, they are known.

        for kw in 3:
          compute main(ow in 4): acc[ow] add= a * b    (a = src[... | 1 <= ow + kw])
    ->  unroll_known(["kw"], 8)
        unrolled for kw in 3:
          compute main(ow in 4): acc[ow] add= a * b    (a = src[... | 1 <= ow + kw])

    A mask counts if it depends on the compute's own dims, too: one that does not is tested once,
    outside of loops (`guard`). A division that depends on one of ``positions`` is computed at run
    time whatever is unrolled, and does not count. Other loops stay as they are.
    """

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.kind is not LoopKind.SERIAL:
            return stmt
        if stmt.var.name not in loops:
            return stmt
        if not isinstance(stmt.extent, Const) or stmt.extent.value > longest:
            return stmt
        inside = (s for s in walk_stmts(stmt.body) if isinstance(s, Compute))
        if not any(_depends(compute, stmt.var, positions) for compute in inside):
            return stmt
        return For(stmt.var, stmt.extent, stmt.body, LoopKind.UNROLLED, stmt.span)

    return map_kernel(kernel, lambda body: rewrite_stmts(body, change))


def _depends(compute: Compute, variable: Var, positions: Collection[str]) -> bool:
    """Whether a mask over the compute's own dims, or a division, depends on ``variable``."""
    vars_ = {dim.var for dim in compute.dims}
    for operand in compute.operands:
        mask = operand.view.mask
        for condition in conjuncts(mask):
            used = variables(condition)
            if variable in used and vars_ & used:
                return True
        for expr in (*operand.view.index, *conjuncts(mask)):
            for node in walk(expr):
                divides = isinstance(node, Binary) and node.op in ("floordiv", "mod")
                if divides and variable in variables(node) and not _mentions(node, positions):
                    return True
    return False


def _mentions(node: Expr, names: Collection[str]) -> bool:
    return any(v.name in names for v in variables(node))
