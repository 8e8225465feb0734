"""What a kernel's stores depend on, and how often they run: scalars, and contents of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Bitcast, Expr, Select, Var
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import (
    Call,
    Combiner,
    Compute,
    For,
    If,
    Kernel,
    Let,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.visit import direct_exprs, variables, walk, walk_stmts

Source = Var | Buffer


class Decided(Enum):
    """What may depend on a number."""

    LENGTH = "length"  # of a loop
    PLACE = "place"  # of a load or a store
    CHOICE = "choice"  # of an if or a selection


def deciding(kernel: Kernel, *aspects: Decided) -> set[Source]:
    """The variables and buffers on which ``aspects`` of the kernel depend, perhaps indirectly."""
    flows: dict[Source, set[Source]] = {}
    sources: set[Source] = set()
    for stmt in walk_stmts(kernel.body):
        for target, values in _flows(stmt):
            flows.setdefault(target, set()).update(_sources(values))
        sources |= _sources(expr for aspect, expr in _decisions(stmt) if aspect in aspects)
    pending = list(sources)
    while pending:
        new = flows.get(pending.pop(), set()) - sources
        sources |= new
        pending += new
    return sources


def updated(kernel: Kernel) -> set[Buffer]:
    """The buffers that functions update, such as atomic ones."""
    return {
        arg.buffer
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Call)
        for arg in stmt.args
        if isinstance(arg, View)
    }


def divisors(kernel: Kernel) -> set[Source]:
    """The variables and buffers in integer divisors."""
    return _sources(
        node.b
        for stmt in walk_stmts(kernel.body)
        for expr in direct_exprs(stmt)
        for node in walk(expr)
        if isinstance(node, Binary) and node.op in ("floordiv", "mod")
    )


def adds_floats(kernel: Kernel) -> bool:
    """Whether floats are added or multiplied: sums with large numbers depend on the order."""
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Compute) and any(
            result.combiner is not None and result.combiner not in ("min", "max")
            for result in stmt.results
        ):
            return True
        for node in (node for expr in direct_exprs(stmt) for node in walk(expr)):
            if isinstance(node, Binary) and node.op in ("add", "sub", "mul") and node.type.is_float:
                return True
    return any(buffer.dtype.is_float for buffer in updated(kernel))


def asks_for_finite(kernel: Kernel) -> bool:
    """Whether results for NaN are undefined: where bits of floats are used, and where a user's
    combiner folds values by comparing them, in any order."""
    for stmt in walk_stmts(kernel.body):
        results = stmt.results if isinstance(stmt, Compute) else ()
        if any(isinstance(result.combiner, Combiner) for result in results):
            return True
        for node in (node for expr in direct_exprs(stmt) for node in walk(expr)):
            if isinstance(node, Bitcast) and node.a.type.is_float:
                return True
    return False


def _sources(exprs: Iterable[Expr]) -> set[Source]:
    sources: set[Source] = set()
    for expr in exprs:
        sources |= variables(expr)
        sources |= {node.buffer for node in walk(expr) if isinstance(node, Load)}
    return sources


def _flows(stmt: Stmt) -> Iterator[tuple[Source, Iterable[Expr]]]:
    """The values that ``stmt`` defines, and the expressions that they depend on."""
    match stmt:
        case Let():
            yield stmt.var, (stmt.value,)
        case Store():
            yield stmt.buffer, (stmt.value,)
        case Call():
            # A function may read and write all its arguments.
            views = [arg for arg in stmt.args if isinstance(arg, View)]
            values = [arg for arg in stmt.args if not isinstance(arg, View)]
            values += [load(view.buffer, view.index) for view in views]
            yield from ((view.buffer, values) for view in views)
        case Compute():
            for operand in stmt.operands:
                yield operand.var, (load(operand.view.buffer, operand.view.index),)
            for result in stmt.results:
                yield from ((view.buffer, result.values) for view in result.views)


def _decisions(stmt: Stmt) -> Iterator[tuple[Decided, Expr]]:
    """The expressions on which the effects of ``stmt`` depend."""
    match stmt:
        case For():
            yield Decided.LENGTH, stmt.extent
        case While():
            yield Decided.LENGTH, stmt.condition
        case If():
            yield Decided.CHOICE, stmt.condition
        case Store():
            yield from ((Decided.PLACE, component) for component in stmt.index)
        case Compute():
            yield from ((Decided.LENGTH, dim.extent) for dim in stmt.dims)
    for view in _views(stmt):
        yield from ((Decided.PLACE, component) for component in view.index)
        if view.mask is not None:
            yield Decided.CHOICE, view.mask
    for expr in direct_exprs(stmt):
        for node in walk(expr):
            if isinstance(node, Load):
                yield from ((Decided.PLACE, component) for component in node.index)
            elif isinstance(node, Select):
                yield Decided.CHOICE, node.condition


def _views(stmt: Stmt) -> list[View]:
    if isinstance(stmt, Compute):
        return [*stmt.outputs, *(operand.view for operand in stmt.operands)]
    return [arg for arg in stmt.args if isinstance(arg, View)] if isinstance(stmt, Call) else []
