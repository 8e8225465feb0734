"""Statements and kernels: expressions are simplified under the loops and conditions around them.

A loop that does not run vanishes, one that runs once becomes its body, an `If` with a known
condition becomes a branch, a `While` whose condition never holds vanishes (but not one whose body
does nothing: it may never end), a mask that always holds is dropped, and so is a dim of extent 1.
"""

from __future__ import annotations

from dataclasses import replace
from operator import is_

from tilewright.dtypes import s64
from tilewright.facts import Facts
from tilewright.ir.expr import Const, Expr, Var, const
from tilewright.ir.load import load
from tilewright.ir.stmt import (
    Block,
    Call,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Opaque,
    Operand,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.visit import (
    block,
    map_exprs,
    map_kernel,
    map_view,
    substitute,
    substitute_stmt,
    with_parts,
)
from tilewright.simplify.rewriting import Trace, simplify

_NOTHING = Block(())
# A loop of another kind also says where its body runs, which must not get lost with it.
_REPLACEABLE = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED})


def simplify_kernel(kernel: Kernel, trace: Trace | None = None) -> Kernel:
    """``kernel`` with its body simplified; the same object when nothing changed.

    Under the same `starting_from`, statements that did not change since the last call are skipped.
    """
    return map_kernel(kernel, lambda body: simplify_stmt(body, Facts.of(kernel), trace))


def simplify_stmt(stmt: Stmt, facts: Facts | None = None, trace: Trace | None = None) -> Stmt:
    """``stmt`` simplified under ``facts``; the same object when nothing changed."""
    return _Statements(trace).visit(stmt, facts if facts is not None else Facts.empty())


class _Statements:
    def __init__(self, trace: Trace | None) -> None:
        self.trace = trace

    def visit(self, stmt: Stmt, facts: Facts) -> Stmt:
        if stmt in facts.settled:
            return stmt
        result = self._visit(stmt, facts)
        facts.settled.add(result)
        return result

    def _visit(self, stmt: Stmt, facts: Facts) -> Stmt:
        match stmt:
            case Block():
                return self._block(stmt, facts)
            case For():
                return self._loop(stmt, facts)
            case While():
                return self._while(stmt, facts)
            case If():
                return self._if(stmt, facts)
            case Opaque():
                # It stays, even with an empty body: passes rely on what it declares.
                body = self.visit(stmt.body, facts)
                return stmt if body is stmt.body else replace(stmt, body=body)
            case Let() | Store():
                return map_exprs(stmt, lambda expr: simplify(expr, facts, self.trace))
            case Call():
                return self._call(stmt, facts)
            case Compute():
                return self._compute(stmt, facts)
            case _:
                return stmt

    def _block(self, stmt: Block, facts: Facts) -> Stmt:
        body: list[Stmt] = []
        for part in stmt.body:
            new = self.visit(part, facts)
            if isinstance(new, Let):
                facts = facts.bind(new.var, new.value)
            if not _is_nothing(new):
                body.append(new)
        if len(body) == len(stmt.body) and all(map(is_, body, stmt.body)):
            return stmt
        result = block(*body)
        return replace(result, span=stmt.span) if isinstance(result, Block) else result

    def _loop(self, stmt: For, facts: Facts) -> Stmt:
        extent = simplify(stmt.extent, facts, self.trace)
        greatest = facts.bounds(extent)[1]
        if greatest is not None and greatest <= 0:
            return _NOTHING
        if isinstance(extent, Const) and extent.value == 1 and stmt.kind in _REPLACEABLE:
            body = substitute_stmt(stmt.body, {stmt.var: const(0, stmt.var.type)})
            return self.visit(body, facts)
        body = self.visit(stmt.body, facts.loop(stmt.var, extent))
        if _is_nothing(body):
            return _NOTHING
        if extent is stmt.extent and body is stmt.body:
            return stmt
        return replace(stmt, extent=extent, body=body)

    def _while(self, stmt: While, facts: Facts) -> Stmt:
        """Facts take nothing from a condition on memory, which the body may change."""
        condition = simplify(stmt.condition, facts, self.trace)
        if isinstance(condition, Const) and not condition.value:
            return _NOTHING
        body = self.visit(stmt.body, facts.assume(condition))
        if condition is stmt.condition and body is stmt.body:
            return stmt
        return replace(stmt, condition=condition, body=body)

    def _if(self, stmt: If, facts: Facts) -> Stmt:
        condition = simplify(stmt.condition, facts, self.trace)
        if isinstance(condition, Const):
            chosen = stmt.then if condition.value else stmt.orelse
            return _NOTHING if chosen is None else self.visit(chosen, facts)
        then = self.visit(stmt.then, facts.assume(condition))
        orelse = stmt.orelse
        if orelse is not None:
            orelse = self.visit(orelse, facts.assume(condition, truth=False))
            if _is_nothing(orelse):
                orelse = None
        if _is_nothing(then):
            if orelse is None:
                return _NOTHING
            negated = simplify(~condition, facts, self.trace)
            return If(negated, orelse, None, stmt.span)
        if condition is stmt.condition and then is stmt.then and orelse is stmt.orelse:
            return stmt
        return If(condition, then, orelse, stmt.span)

    def _call(self, stmt: Call, facts: Facts) -> Stmt:
        args = tuple(
            self._view(arg, facts) if isinstance(arg, View) else simplify(arg, facts, self.trace)
            for arg in stmt.args
        )
        return stmt if all(map(is_, args, stmt.args)) else replace(stmt, args=args)

    def _compute(self, stmt: Compute, facts: Facts) -> Stmt:
        extents = [simplify(dim.extent, facts, self.trace) for dim in stmt.dims]
        if any(isinstance(extent, Const) and extent.value <= 0 for extent in extents):
            return _NOTHING
        inside = facts
        dims: list[Dim] = []
        single: dict[Var, Expr] = {}
        for dim, extent in zip(stmt.dims, extents, strict=True):
            # A matched instruction keeps its dims.
            is_single = isinstance(extent, Const) and extent.value == 1
            if is_single and stmt.instruction is None:
                single[dim.var] = const(0, dim.var.type)
                continue
            dims.append(dim if extent is dim.extent else Dim(dim.var, extent, dim.ordered))
            # Where a dim may have no point, its index stays: 0 may be outside of the buffer.
            optional = not isinstance(extent, Const) and facts.bounds(extent)[1] == 1
            inside = inside.loop(dim.var, const(2) if optional else extent)

        for operand in stmt.operands:
            if operand.var.type is s64:
                view = operand.view
                inside = inside.bind(operand.var, load(view.buffer, view.index, view.mask))

        def at_zero(expr: Expr) -> Expr:
            return substitute(expr, single)

        outputs = [self._view(map_view(view, at_zero), inside, kept=True) for view in stmt.outputs]
        # A unit copies a box from its corner, which may be outside of the tensor.
        kept = stmt.instruction is not None
        operands = tuple(
            self._operand(operand, map_view(operand.view, at_zero), inside, kept)
            for operand in stmt.operands
        )
        values = [
            simplify(at_zero(value), inside, self.trace)
            for result in stmt.results
            for value in result.values
        ]
        results = with_parts(stmt.results, outputs, values)
        completion = stmt.completion
        if isinstance(completion, View):
            completion = self._view(map_view(completion, at_zero), inside)
        same_dims = len(dims) == len(stmt.dims) and all(map(is_, dims, stmt.dims))
        same_operands = all(map(is_, operands, stmt.operands))
        same_results = results is stmt.results and completion is stmt.completion
        if same_dims and same_operands and same_results:
            return stmt
        new = replace(stmt, dims=tuple(dims), operands=operands, results=results)
        return replace(new, completion=completion)

    def _operand(self, operand: Operand, view: View, facts: Facts, kept: bool) -> Operand:
        new = self._view(view, facts, kept)
        return operand if new is operand.view else Operand(operand.var, new)

    def _view(self, view: View, facts: Facts, kept: bool = False) -> View:
        """``kept``: its index says where the mask is false, too."""
        mask = view.mask
        if mask is not None:
            mask = simplify(mask, facts, self.trace)
            if isinstance(mask, Const) and mask.value:
                mask = None
            elif not kept:
                # Memory is not touched where the mask is false. An output keeps its index: the
                # dims in it are those that are not reduced, whatever the mask leaves of them.
                facts = facts.assume(mask)
        index = tuple(simplify(expr, facts, self.trace) for expr in view.index)
        if mask is view.mask and all(map(is_, index, view.index)):
            return view
        return View(view.buffer, index, mask)


def _is_nothing(stmt: Stmt) -> bool:
    return isinstance(stmt, Block) and not stmt.body
