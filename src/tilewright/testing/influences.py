"""What in a kernel decides where it stores, and how often: numbers, and contents of arrays."""

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
    """What a number may decide."""

    LENGTH = "length"  # of a loop
    PLACE = "place"  # of a load or a store
    CHOICE = "choice"  # of an if or a selection


def deciding(kernel: Kernel, *decided: Decided) -> set[Source]:
    """The variables and buffers that ``decided`` depends on, directly or through others."""
    flows: dict[Source, set[Source]] = {}
    found: set[Source] = set()
    for stmt in walk_stmts(kernel.body):
        for target, values in _flows(stmt):
            flows.setdefault(target, set()).update(_sources(values))
        found |= _sources(expr for what, expr in _decisions(stmt) if what in decided)
    left = list(found)
    while left:
        new = flows.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def updated(kernel: Kernel) -> set[Buffer]:
    """The buffers that functions update, as atomic ones do."""
    return {
        each.buffer
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Call)
        for each in stmt.args
        if isinstance(each, View)
    }


def divisors(kernel: Kernel) -> set[Source]:
    """The variables and buffers that something is divided by, as integers."""
    return _sources(
        node.b
        for stmt in walk_stmts(kernel.body)
        for expr in direct_exprs(stmt)
        for node in walk(expr)
        if isinstance(node, Binary) and node.op in ("floordiv", "mod")
    )


def adds_floats(kernel: Kernel) -> bool:
    """Whether floats are added or multiplied: what comes of great ones depends on the order."""
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Compute) and any(
            each.combiner is not None and each.combiner not in ("min", "max")
            for each in stmt.results
        ):
            return True
        for node in (node for expr in direct_exprs(stmt) for node in walk(expr)):
            if isinstance(node, Binary) and node.op in ("add", "sub", "mul") and node.type.is_float:
                return True
    return any(each.dtype.is_float for each in updated(kernel))


def asks_for_finite(kernel: Kernel) -> bool:
    """Whether what comes of a NaN is not defined: where bits of floats are looked at, and where
    values are combined, in any order, by a user's comparisons."""
    for stmt in walk_stmts(kernel.body):
        results = stmt.results if isinstance(stmt, Compute) else ()
        if any(isinstance(each.combiner, Combiner) for each in results):
            return True
        for node in (node for expr in direct_exprs(stmt) for node in walk(expr)):
            if isinstance(node, Bitcast) and node.a.type.is_float:
                return True
    return False


def _sources(exprs: Iterable[Expr]) -> set[Source]:
    found: set[Source] = set()
    for expr in exprs:
        found |= variables(expr)
        found |= {node.buffer for node in walk(expr) if isinstance(node, Load)}
    return found


def _flows(stmt: Stmt) -> Iterator[tuple[Source, Iterable[Expr]]]:
    """What gets a value from ``stmt``, and what that is made of."""
    match stmt:
        case Let():
            yield stmt.var, (stmt.value,)
        case Store():
            yield stmt.buffer, (stmt.value,)
        case Call():
            # Of a function it is known here that it reads and writes what it is given.
            views = [each for each in stmt.args if isinstance(each, View)]
            values = [each for each in stmt.args if not isinstance(each, View)]
            values += [load(each.buffer, each.index) for each in views]
            yield from ((each.buffer, values) for each in views)
        case Compute():
            for operand in stmt.operands:
                yield operand.var, (load(operand.view.buffer, operand.view.index),)
            for result in stmt.results:
                yield from ((view.buffer, result.values) for view in result.views)


def _decisions(stmt: Stmt) -> Iterator[tuple[Decided, Expr]]:
    """The expressions that decide what ``stmt`` does."""
    match stmt:
        case For():
            yield Decided.LENGTH, stmt.extent
        case While():
            yield Decided.LENGTH, stmt.condition
        case If():
            yield Decided.CHOICE, stmt.condition
        case Store():
            yield from ((Decided.PLACE, each) for each in stmt.index)
        case Compute():
            yield from ((Decided.LENGTH, dim.extent) for dim in stmt.dims)
    for view in _views(stmt):
        yield from ((Decided.PLACE, each) for each in view.index)
        if view.mask is not None:
            yield Decided.CHOICE, view.mask
    for expr in direct_exprs(stmt):
        for node in walk(expr):
            if isinstance(node, Load):
                yield from ((Decided.PLACE, each) for each in node.index)
            elif isinstance(node, Select):
                yield Decided.CHOICE, node.condition


def _views(stmt: Stmt) -> list[View]:
    if isinstance(stmt, Compute):
        return [*stmt.outputs, *(each.view for each in stmt.operands)]
    return [each for each in stmt.args if isinstance(each, View)] if isinstance(stmt, Call) else []
