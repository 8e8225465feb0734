"""The host's side of a kernel: what is launched, and the control around it.

At the top of a kernel, and inside of loops and conditions that stand around launches, statements
are the host's: it launches one part after the other. Statements in a row that are no launches are a
part together, which one work-item (on a CPU: one thread) runs; so is a loop or a condition without
launches inside. What is allocated here lives across launches: a workspace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tilewright.dtypes import s64
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space, row_major
from tilewright.ir.expr import Expr, Var, const, var
from tilewright.ir.opaque import opened
from tilewright.ir.stmt import (
    Allocate,
    Block,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Stmt,
    Store,
    While,
)
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import (
    block,
    direct_exprs,
    reads_memory,
    replace_buffer,
    variables,
    walk_stmts,
)
from tilewright.runtime.steps import ForStep, HostStep, IfStep, LetStep, ReadStep, WhileStep

# Loops that the host can run: those of other kinds say where their body runs.
_HOSTS = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.PARALLEL})


@dataclass(eq=False)
class Part:
    """What runs without the host; ``launched``: on workgroups or threads of its own."""

    body: Stmt
    launched: bool


Node = HostStep[Part, Expr]


def split_host(
    kernel: Kernel, is_launch: Callable[[Stmt], bool], reads: bool
) -> tuple[tuple[Node, ...], list[Buffer]]:
    """The host's side of ``kernel``, and its workspaces.

    With ``reads``, the host cannot read memory itself: what its own expressions load becomes a
    value that a launch computes. Opaque nests are what stands in them: nothing moves any more.
    """
    kernel = opened(kernel)
    splitter = _Splitter(kernel, is_launch, reads)
    return splitter.nodes(kernel.body), splitter.workspaces


def _renewed(stmts: Sequence[Stmt], twice: Collection[Buffer]) -> tuple[Stmt, ...]:
    """``stmts`` with memory of their own where they allocate some ``twice``: that of another piece
    of a loop is inside of a launch, and no workspace."""
    left = list(stmts)
    for position, stmt in enumerate(stmts):
        if isinstance(stmt, Allocate) and stmt.buffer in twice:
            own = replace(stmt.buffer)
            left[position:] = [replace_buffer(s, stmt.buffer, own) for s in left[position:]]
    return tuple(left)


def _is_used(variable: Var, stmts: Sequence[Stmt]) -> bool:
    """Whether ``stmts`` mention ``variable``."""
    return any(variable in mentioned(stmt) for stmt in stmts)


def _is_of_a_row(buffer: Buffer, rest: Sequence[Stmt]) -> bool:
    """Whether ``buffer`` is private memory that ``rest``, which begins where its row ends, does not
    use: it may be registers then."""
    private = buffer.space is Space.PRIVATE
    return private and not any(buffer in buffers_in(stmt) for stmt in rest)


class _Splitter:
    def __init__(self, kernel: Kernel, is_launch: Callable[[Stmt], bool], reads: bool) -> None:
        self.is_launch = is_launch
        self.reads = reads
        self.kernel = kernel
        self.workspaces: list[Buffer] = []

    @cached_property
    def taken(self) -> set[str]:
        """The names that the kernel has, and those that were made since: few kernels need any."""
        found = {param.name for param in self.kernel.params}
        for stmt in walk_stmts(self.kernel.body):
            if isinstance(stmt, For | Let):
                found.add(stmt.var.name)
            elif isinstance(stmt, Allocate):
                found.add(stmt.buffer.name)
        return found

    @cached_property
    def twice(self) -> set[Buffer]:
        """The buffers that are allocated in several places, as pieces of a loop do."""
        stmts = walk_stmts(self.kernel.body)
        counts = Counter(stmt.buffer for stmt in stmts if isinstance(stmt, Allocate))
        return {buffer for buffer, count in counts.items() if count > 1}

    def nodes(self, stmt: Stmt) -> tuple[Node, ...]:
        """What the host does for ``stmt``, which is its own."""
        flat = tuple(self._flat(stmt.body if isinstance(stmt, Block) else (stmt,)))
        stmts = _renewed(flat, self.twice) if self.twice else flat
        found: list[Node] = []
        serial: list[Stmt] = []

        def flush() -> None:
            if serial:
                found.append(Part(block(*serial), False))
                serial.clear()

        for stmt, end in zip(stmts, self._ends(stmts), strict=True):
            if isinstance(stmt, Allocate) and _is_of_a_row(stmt.buffer, stmts[end:]):
                serial.append(stmt)
            elif isinstance(stmt, Allocate):
                self.workspaces.append(stmt.buffer)
            elif self._surrounds(stmt):
                flush()
                found += self._host(stmt)
            elif isinstance(stmt, Let) and _is_used(stmt.var, stmts[end:]):
                flush()
                found += self._named(stmt.var, stmt.value)
            else:
                serial.append(stmt)
        flush()
        return tuple(found)

    def _flat(self, stmts: Sequence[Stmt]) -> Iterator[Stmt]:
        """Without the blocks around what is the host's."""
        for stmt in stmts:
            if isinstance(stmt, Block) and not self.is_launch(stmt) and self._surrounds(stmt):
                yield from self._flat(stmt.body)
            else:
                yield stmt

    def _surrounds(self, stmt: Stmt) -> bool:
        """Whether ``stmt`` is a launch, or the host's as it stands around one."""
        if self.is_launch(stmt):
            return True
        match stmt:
            case Block():
                return any(map(self._surrounds, stmt.body))
            case For():
                return stmt.kind in _HOSTS and self._surrounds(stmt.body)
            case While():
                return self._surrounds(stmt.body)
            case If():
                orelse = stmt.orelse is not None and self._surrounds(stmt.orelse)
                return orelse or self._surrounds(stmt.then)
            case _:
                return False

    def _ends(self, stmts: Sequence[Stmt]) -> list[int]:
        """For each statement, where the row behind it ends: at a launch, at what stands around one,
        or at a value that is the host's, as more than the row behind it uses it."""
        ends: list[int] = []
        end = len(stmts)
        for position in reversed(range(len(stmts))):
            ends.append(end)
            stmt = stmts[position]
            named = isinstance(stmt, Let) and _is_used(stmt.var, stmts[end:])
            if named or self._surrounds(stmt):
                end = position
        return ends[::-1]

    def _host(self, stmt: Stmt) -> list[Node]:
        if self.is_launch(stmt):
            return self._launch(stmt)
        match stmt:
            case For():
                before, extent = self._readable(stmt.extent)
                return [*before, ForStep(stmt.var, extent, self.nodes(stmt.body))]
            case While():
                before, condition = self._readable(stmt.condition)
                return [WhileStep(tuple(before), condition, self.nodes(stmt.body))]
            case If():
                before, condition = self._readable(stmt.condition)
                orelse = () if stmt.orelse is None else self.nodes(stmt.orelse)
                return [*before, IfStep(condition, self.nodes(stmt.then), orelse)]
            case _:
                raise TypeError(f"the host cannot run {type(stmt).__name__}")

    def _launch(self, stmt: Stmt) -> list[Node]:
        """A launch, whose extents do not load: the host has to know them before."""
        before: list[Node] = []

        def known(loop: Stmt) -> Stmt:
            if not isinstance(loop, For) or not reads_memory(loop.extent):
                return loop
            first, extent = self._named_value(loop.extent)
            before.extend(first)
            body = known(loop.body) if isinstance(loop.body, For) else loop.body
            return replace(loop, extent=extent, body=body)

        part = Part(known(stmt), True)
        return [*before, part]

    def _named(self, variable: Var, value: Expr) -> list[Node]:
        if not (self.reads and reads_memory(value)):
            return [LetStep(variable, value)]
        into = Buffer(self._fresh(variable.name), value.type, (1,), row_major((1,)))
        self.workspaces.append(into)
        return [ReadStep(variable, Part(Store(into, (const(0),), value), False))]

    def _readable(self, value: Expr) -> tuple[list[Node], Expr]:
        """``value`` as the host can compute it, and what comes before."""
        if self.reads and reads_memory(value):
            return self._named_value(value)
        return [], value

    def _named_value(self, value: Expr) -> tuple[list[Node], Expr]:
        variable = var(self._fresh("value"), value.type)
        return self._named(variable, value), variable

    def _fresh(self, stem: str) -> str:
        count = 1
        while (name := stem if count == 1 else f"{stem}{count}") in self.taken:
            count += 1
        self.taken.add(name)
        return name


def result_of(part: Part) -> Store:
    """What the part of a `ReadStep` does: it leaves the value in a workspace."""
    assert isinstance(part.body, Store)
    return part.body


def mentioned(stmt: Stmt) -> frozenset[Var]:
    """The variables that expressions in ``stmt`` mention."""
    found = frozenset[Var]()
    for node in walk_stmts(stmt):
        for expr in direct_exprs(node):
            found |= variables(expr)
    return found


@dataclass(frozen=True)
class HostScope:
    """The host's values at one place, outermost first, and what is known there."""

    facts: Facts
    values: tuple[Var, ...] = ()

    def after(self, *nodes: Node) -> HostScope:
        """After those of ``nodes`` that name values."""
        scope = self
        for node in nodes:
            if isinstance(node, LetStep | ReadStep):
                names = node.value if isinstance(node, LetStep) else result_of(node.launch).value
                facts = scope.facts.bind(node.var, names)
                scope = HostScope(facts, (*scope.values, node.var))
        return scope

    def inside(self, loop: ForStep[Part, Expr]) -> HostScope:
        """Inside of a loop."""
        assert loop.var.type is s64
        return HostScope(self.facts.loop(loop.var, loop.extent), (*self.values, loop.var))

    def where(self, condition: Expr, truth: bool = True) -> HostScope:
        """Where ``condition`` holds (or does not)."""
        return replace(self, facts=self.facts.assume(condition, truth))

    def used(self, *stmts: Stmt) -> tuple[Var, ...]:
        """The values that ``stmts`` use."""
        names = frozenset[Var]().union(*map(mentioned, stmts))
        return tuple(value for value in self.values if value in names)
