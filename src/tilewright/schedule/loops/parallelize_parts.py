"""The loops of a kernel on threads, workgroups or work-items: what is independent runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import is_

from tilewright.errors import ScheduleError
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Space
from tilewright.ir.expr import Const, unary
from tilewright.ir.stmt import Allocate, Block, For, If, Kernel, Let, LoopKind, Stmt, While
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, nested, variables, walk_stmts, with_nested
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.queries.access import buffers_allocated
from tilewright.schedule.queries.place import sequence
from tilewright.schedule.records.asks import asks, positive
from tilewright.schedule.records.transform import transform

# Iterations under a condition that threads are started for, where there may be as many.
_REST = 4096


@transform
@asks(workers=positive)
def parallelize_parts(
    kernel: Kernel,
    workers: int,
    kind: LoopKind = LoopKind.PARALLEL,
    *,
    items: int = 0,
    worth: int = 0,
) -> Kernel:
    """Runs the outermost loops of each part of the kernel on threads, as many loops as give
    ``workers`` pieces of work, if iterations are independent.

        for mb in 2:
          for oh in 56: ...
        for i in 10: ...
    ->  parallelize_parts(16)
        parallel for mb in 2:
          parallel for oh in 56: ...
        parallel for i in 10: ...

    With `LoopKind.GRID` as ``kind``, they run in workgroups; with ``items``, on work-items, one
    iteration each, in workgroups of so many. With ``worth``, so do loops inside of loops and
    conditions, which the host then runs, where they have at least so many iterations: fewer are
    done before a launch is.

        while 0.001 < error[0]:
          for i in 100000: ...
    ->  parallelize_parts(16, worth=4096)
        while 0.001 < error[0]:
          parallel for i in 100000: ...

    Whatever depends on the iteration before stays as it is. Parts are also those of an ``if`` that
    asks only for what the call passes, but for the rests of tiles that are too few for threads.
    """
    workforce = _Workforce(workers, kind, items)
    if worth:
        body = _Host(kernel, workforce, worth).visit(kernel.body, ())
        return kernel if body is kernel.body else replace(kernel, body=body)
    top = sequence(kernel.body)
    # One at a time: loops of the parts beside it may have the same names.
    parts = [_part_on_workers(kernel, part, workforce) for part in top]
    if all(map(is_, parts, top)):
        return kernel
    return replace(kernel, body=block(*parts))


@dataclass(frozen=True)
class _Workforce:
    """Who runs iterations: see `parallelize_parts`."""

    workers: int
    kind: LoopKind
    items: int

    def on(self, kernel: Kernel, names: Sequence[str]) -> Kernel:
        """The loops called ``names``, directly inside one another, run by them."""
        if self.items:
            return set_kind(kernel, names, LoopKind.GRID, items=self.items)
        return set_kind(kernel, names, self.kind)


class _Host:
    """Goes down what the host may run, to the loops that workers run."""

    def __init__(self, kernel: Kernel, workforce: _Workforce, worth: int) -> None:
        self.kernel, self.workforce, self.worth = kernel, workforce, worth

    def visit(self, stmt: Stmt, path: tuple[Stmt, ...]) -> Stmt:
        """``stmt`` where ``path`` is around it, outermost first: each with one statement inside,
        declarations as blocks with what comes after."""
        match stmt:
            case Block():
                return self._block(stmt, path)
            case For(kind=LoopKind.SERIAL):
                launched = self._launched(stmt, path)
                if launched is not None:
                    return launched
                return with_nested(stmt, (self.visit(stmt.body, (*path, stmt)),))
            case While():
                return with_nested(stmt, (self.visit(stmt.body, (*path, stmt)),))
            case If():
                parts = [self.visit(stmt.then, (*path, If(stmt.condition, stmt.then)))]
                if stmt.orelse is not None:
                    other = If(unary("not", stmt.condition), stmt.orelse)
                    parts.append(self.visit(stmt.orelse, (*path, other)))
                return with_nested(stmt, tuple(parts))
            case _:
                return stmt

    def _block(self, stmt: Block, path: tuple[Stmt, ...]) -> Stmt:
        parts: list[Stmt] = []
        for part in stmt.body:
            parts.append(self.visit(part, path))
            if isinstance(part, Let | Allocate):
                path = (*path, Block((part, part)))
        if all(map(is_, parts, stmt.body)):
            return stmt
        return block(*parts)

    def _launched(self, loop: For, path: tuple[Stmt, ...]) -> Stmt | None:
        """``loop`` on workers; None where it stays."""
        controlled = any(isinstance(step, For | While | If) for step in path)
        if controlled and _work(loop, self.worth) < self.worth:
            return None
        if self.workforce.items and _keeps_memory(loop):
            return None
        around = replace(self.kernel, body=_enclosed(loop, path))
        changed = _on_workers(around, loop, self.workforce)
        return None if changed is around else _within(changed.body, path)


def _enclosed(stmt: Stmt, path: Sequence[Stmt]) -> Stmt:
    """``stmt`` in the place of what the innermost of ``path`` has inside."""
    for step in reversed(path):
        if isinstance(step, Block):
            stmt = Block((step.body[0], stmt))
        else:
            stmt = with_nested(step, (stmt,))
    return stmt


def _within(stmt: Stmt, path: Sequence[Stmt]) -> Stmt | None:
    """What `_enclosed` enclosed; None where something around it has become another."""
    for step in path:
        if type(stmt) is not type(step):
            return None
        stmt = block(*nested(stmt)[1:]) if isinstance(stmt, Block) else nested(stmt)[0]
    return stmt


def _work(loop: For, much: int, facts: Facts | None = None) -> int:
    """How many iterations are in ``loop``, where all that is not known is ``much``; by ``facts``,
    how many there may be."""
    most = None if facts is None else facts.bounds(loop.extent)[1]
    if isinstance(loop.extent, Const):
        most = int(loop.extent.value)
    if most is None or any(isinstance(s, While) for s in walk_stmts(loop)):
        return much
    inside = [_work(s, much, facts) for s in _outermost(loop.body) if isinstance(s, For)]
    return most * max(1, sum(inside))


def _outermost(stmt: Stmt) -> list[Stmt]:
    """``stmt``, or what stands in its blocks and conditions."""
    if isinstance(stmt, Block | If):
        return [inner for part in nested(stmt) for inner in _outermost(part)]
    return [stmt]


def _part_on_workers(kernel: Kernel, part: Stmt, workforce: _Workforce) -> Stmt:
    """``part`` of the kernel's top on workers; what a condition of the call's numbers decides
    about, by itself."""
    scalars = frozenset(scalar.var for scalar in kernel.scalars)
    if not isinstance(part, If) or not scalars or not variables(part.condition) <= scalars:
        return _on_workers(replace(kernel, body=part), part, workforce).body
    branches: list[Stmt] = []
    for branch in nested(part):
        inside = sequence(branch)
        if any(isinstance(stmt, Allocate | Let) for stmt in inside):
            branches.append(branch)
            continue
        new = [
            stmt if _is_rest(kernel, stmt, workforce) else _part_on_workers(kernel, stmt, workforce)
            for stmt in inside
        ]
        branches.append(branch if all(map(is_, new, inside)) else block(*new))
    return with_nested(part, tuple(branches))


def _is_rest(kernel: Kernel, stmt: Stmt, workforce: _Workforce) -> bool:
    """Whether one thread does ``stmt`` before others have begun, whatever the call passes."""
    if workforce.kind is not LoopKind.PARALLEL or not isinstance(stmt, For):
        return False
    return _work(stmt, _REST, Facts.of(kernel)) < _REST


def _on_workers(kernel: Kernel, part: Stmt, workforce: _Workforce) -> Kernel:
    """The loops of ``part``, which stands in ``kernel``, from the outermost on."""
    scalars = frozenset(scalar.var for scalar in kernel.scalars)
    names: list[str] = []
    pieces = 1
    stmt = part
    while isinstance(stmt, For) and pieces < workforce.workers and stmt.kind is LoopKind.SERIAL:
        if isinstance(stmt.extent, Const):
            pieces *= int(stmt.extent.value)
        elif not variables(stmt.extent) <= scalars:
            break
        names.append(stmt.var.name)
        if not isinstance(stmt.extent, Const) and not workforce.items:
            break  # Threads are few: one loop of unknown length is enough for them.
        stmt = stmt.body
    return _longest(kernel, names, workforce)


def _keeps_memory(part: Stmt) -> bool:
    """Whether ``part`` uses memory of one work-item that is allocated around it."""
    around = buffers_in(part) - buffers_allocated(part)
    return any(buffer.space is Space.PRIVATE for buffer in around)


def _longest(kernel: Kernel, names: list[str], workforce: _Workforce) -> Kernel:
    """As many of the loops as may run at once, the outermost first, by the workers."""
    while names:
        try:
            return workforce.on(kernel, names)
        except ScheduleError:
            names = names[:-1]
    return kernel
