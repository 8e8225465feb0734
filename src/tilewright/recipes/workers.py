"""Loops over threads, workgroups or work-items: what runs at once of a lowered kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import is_

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.expr import Const, unary
from tilewright.ir.stmt import Allocate, Block, For, If, Kernel, Let, LoopKind, Stmt, While
from tilewright.ir.visit import block, nested, variables, walk_stmts, with_nested
from tilewright.machines.machine import Machine
from tilewright.schedule.access import buffers_allocated, buffers_in
from tilewright.schedule.kinds import parallelize
from tilewright.schedule.spread import spread

# Work-items of a workgroup that share nothing: a few subgroups.
_ITEMS = 128
# Iterations that are worth a launch each time that the host's control comes by: one thread of a
# processor runs fewer sooner than all of them start, and one work-item is far slower.
_WORTH = 4096
_WORTH_ITEMS = 64


def parallelize_outermost(kernel: Kernel, machine: Machine) -> Kernel:
    """The outermost loops of each part run on threads or workgroups, as many as give enough work;
    on work-items, one iteration each, where these are many."""
    top = kernel.body.body if isinstance(kernel.body, Block) else (kernel.body,)
    # One at a time: loops of the parts beside it may have the same names.
    parts = [_on_workers(replace(kernel, body=part), part, machine).body for part in top]
    if all(map(is_, parts, top)):
        return kernel
    return replace(kernel, body=block(*parts))


def parallelize_inside(kernel: Kernel, machine: Machine) -> Kernel:
    """`parallelize_outermost`, and in loops and conditions around such loops, which are then the
    host's.

        while 0.001 < error[0]:
          for i in 100000: ...
    ->  while 0.001 < error[0]:
          parallel for i in 100000: ...

    Loops there that have too little work for a launch each time stay as they are.
    """
    body = _Host(kernel, machine).visit(kernel.body, ())
    return kernel if body is kernel.body else replace(kernel, body=body)


class _Host:
    """Goes down what the host may run, to the loops that workers run."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        self.kernel, self.machine = kernel, machine
        self.worth = _WORTH if machine.hierarchy is None else _WORTH_ITEMS

    def visit(self, stmt: Stmt, path: tuple[Stmt, ...]) -> Stmt:
        """``stmt`` where ``path`` is around it, outermost first: each with one statement inside,
        declarations as blocks with what comes behind."""
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
        if any(isinstance(step, For | While | If) for step in path) and _work(loop) < self.worth:
            return None
        if self.machine.banked and _keeps_memory(loop):
            return None
        around = replace(self.kernel, body=_enclosed(loop, path))
        changed = _on_workers(around, loop, self.machine)
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


def _work(loop: For) -> int:
    """How many iterations are in ``loop``, where all that is not known is much."""
    if not isinstance(loop.extent, Const) or any(isinstance(s, While) for s in walk_stmts(loop)):
        return _WORTH
    inside = [s for s in _outermost(loop.body) if isinstance(s, For)]
    return int(loop.extent.value) * max(1, sum(map(_work, inside)))


def _outermost(stmt: Stmt) -> list[Stmt]:
    """``stmt``, or what stands in its blocks and conditions."""
    if isinstance(stmt, Block | If):
        return [each for part in nested(stmt) for each in _outermost(part)]
    return [stmt]


def _on_workers(kernel: Kernel, part: Stmt, machine: Machine) -> Kernel:
    """The loops of ``part``, which stands in ``kernel``, from the outermost on."""
    most = 8 * machine.cores
    change = _on_threads(LoopKind.PARALLEL if machine.hierarchy is None else LoopKind.GRID)
    if machine.banked:
        assert machine.hierarchy is not None
        most = machine.cores * machine.hierarchy.workgroup * 64
        change = _on_items(min(_ITEMS, machine.hierarchy.workgroup))
    scalars = frozenset(each.var for each in kernel.scalars)
    names: list[str] = []
    pieces = 1
    stmt = part
    while isinstance(stmt, For) and pieces < most and stmt.kind is LoopKind.SERIAL:
        if isinstance(stmt.extent, Const):
            pieces *= int(stmt.extent.value)
        elif not variables(stmt.extent) <= scalars:
            break
        names.append(stmt.var.name)
        if not isinstance(stmt.extent, Const) and not machine.banked:
            break  # Threads are few: one loop of unknown length is enough for them.
        stmt = stmt.body
    return _longest(kernel, names, change)


def _keeps_memory(part: Stmt) -> bool:
    """Whether ``part`` uses memory of one work-item that is allocated around it."""
    around = buffers_in(part) - buffers_allocated(part)
    return any(buffer.space is Space.PRIVATE for buffer in around)


_Change = Callable[[Kernel, Sequence[str]], Kernel]


def _on_threads(kind: LoopKind) -> _Change:
    return lambda kernel, names: parallelize(kernel, names, kind)


def _on_items(items: int) -> _Change:
    return lambda kernel, names: spread(kernel, names, items)


def _longest(kernel: Kernel, names: list[str], change: _Change) -> Kernel:
    """``change`` on as many of the loops as it takes, the outermost first."""
    while names:
        try:
            return change(kernel, names)
        except ScheduleError:
            names = names[:-1]
    return kernel
