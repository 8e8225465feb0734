"""Splits a kernel into what the host does and what it launches.

Statements that contain a launch belong to the host: it runs their loops and conditions, and one
after the other the launches inside. Consecutive statements without launches (also whole loops and
conditions) become one part, which a single work-item (on a CPU: one thread) runs. Memory that is
allocated outside of all parts lives across launches: it is a workspace.
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

# Loops that the host can run; other kinds say on which threads or work-items their body runs.
_HOSTS = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.PARALLEL})


@dataclass(eq=False)
class Part:
    """A part of a kernel that the host calls or launches.

    If ``launched``, it runs on several workgroups or threads, otherwise on one.
    """

    body: Stmt
    launched: bool


Node = HostStep[Part, Expr]


def split_host(
    kernel: Kernel, is_launch: Callable[[Stmt], bool], reads: bool
) -> tuple[tuple[Node, ...], list[Buffer]]:
    """What the host does for ``kernel``, and the kernel's workspaces.

    ``reads``: the host cannot load from device memory, so that values which it needs from there are
    computed by a launch of their own (`ReadStep`). Opaque nests are opened, as no pass moves code
    any more.
    """
    kernel = opened(kernel)
    splitter = _Splitter(kernel, is_launch, reads)
    return splitter.nodes(kernel.body), splitter.workspaces


def _with_own_buffers(stmts: Sequence[Stmt], repeated: Collection[Buffer]) -> tuple[Stmt, ...]:
    """``stmts``, with a new buffer in place of those of ``repeated`` that they allocate.

    Several pieces of a split loop allocate the same buffer. The one here may become a workspace
    while the one of another piece is inside of a launch.
    """
    renamed = list(stmts)
    for position, stmt in enumerate(stmts):
        if isinstance(stmt, Allocate) and stmt.buffer in repeated:
            copy = replace(stmt.buffer)
            renamed[position:] = [replace_buffer(s, stmt.buffer, copy) for s in renamed[position:]]
    return tuple(renamed)


def _is_used(variable: Var, stmts: Sequence[Stmt]) -> bool:
    """Whether ``stmts`` mention ``variable``."""
    return any(variable in mentioned(stmt) for stmt in stmts)


def _is_private_to_part(buffer: Buffer, rest: Sequence[Stmt]) -> bool:
    """Whether ``buffer`` is private memory that ``rest``, the statements after the part that
    allocates it, do not use: it may be registers then."""
    private = buffer.space is Space.PRIVATE
    return private and not any(buffer in buffers_in(stmt) for stmt in rest)


class _Splitter:
    def __init__(self, kernel: Kernel, is_launch: Callable[[Stmt], bool], reads: bool) -> None:
        self.is_launch = is_launch
        self.reads = reads
        self.kernel = kernel
        self.workspaces: list[Buffer] = []

    @cached_property
    def names(self) -> set[str]:
        """Names in use: those of the kernel, and those that `_fresh` has returned since. Cached, as
        few kernels need it."""
        names = {param.name for param in self.kernel.params}
        for stmt in walk_stmts(self.kernel.body):
            if isinstance(stmt, For | Let):
                names.add(stmt.var.name)
            elif isinstance(stmt, Allocate):
                names.add(stmt.buffer.name)
        return names

    @cached_property
    def repeated(self) -> set[Buffer]:
        """The buffers that several statements allocate, as pieces of one loop do."""
        stmts = walk_stmts(self.kernel.body)
        counts = Counter(stmt.buffer for stmt in stmts if isinstance(stmt, Allocate))
        return {buffer for buffer, count in counts.items() if count > 1}

    def nodes(self, stmt: Stmt) -> tuple[Node, ...]:
        """The steps for ``stmt``, whose outermost statements are the host's."""
        flat = tuple(self._flat(stmt.body if isinstance(stmt, Block) else (stmt,)))
        stmts = _with_own_buffers(flat, self.repeated) if self.repeated else flat
        nodes: list[Node] = []
        serial: list[Stmt] = []

        def flush() -> None:
            if serial:
                nodes.append(Part(block(*serial), False))
                serial.clear()

        for stmt, end in zip(stmts, self._ends(stmts), strict=True):
            if isinstance(stmt, Allocate) and _is_private_to_part(stmt.buffer, stmts[end:]):
                serial.append(stmt)
            elif isinstance(stmt, Allocate):
                self.workspaces.append(stmt.buffer)
            elif self._surrounds(stmt):
                flush()
                nodes += self._host(stmt)
            elif isinstance(stmt, Let) and _is_used(stmt.var, stmts[end:]):
                flush()
                nodes += self._named(stmt.var, stmt.value)
            else:
                serial.append(stmt)
        flush()
        return tuple(nodes)

    def _flat(self, stmts: Sequence[Stmt]) -> Iterator[Stmt]:
        """``stmts`` with the contents of blocks that contain launches in place of the blocks."""
        for stmt in stmts:
            if isinstance(stmt, Block) and not self.is_launch(stmt) and self._surrounds(stmt):
                yield from self._flat(stmt.body)
            else:
                yield stmt

    def _surrounds(self, stmt: Stmt) -> bool:
        """Whether ``stmt`` is a launch or contains one."""
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
        """For each statement, the position after the last statement of the part that it belongs to,
        or that begins after it. Parts end before a launch or a statement that contains one, and
        before a `Let` whose value a later part uses, too."""
        ends: list[int] = []
        end = len(stmts)
        for position in reversed(range(len(stmts))):
            ends.append(end)
            stmt = stmts[position]
            for_host = isinstance(stmt, Let) and _is_used(stmt.var, stmts[end:])
            if for_host or self._surrounds(stmt):
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
        """The launch ``stmt``, after steps that compute extents which load from memory: the host
        has to know them."""
        before: list[Node] = []

        def without_loads(loop: Stmt) -> Stmt:
            if not isinstance(loop, For) or not reads_memory(loop.extent):
                return loop
            steps, extent = self._named_value(loop.extent)
            before.extend(steps)
            body = without_loads(loop.body) if isinstance(loop.body, For) else loop.body
            return replace(loop, extent=extent, body=body)

        part = Part(without_loads(stmt), True)
        return [*before, part]

    def _named(self, variable: Var, value: Expr) -> list[Node]:
        if not (self.reads and reads_memory(value)):
            return [LetStep(variable, value)]
        into = Buffer(self._fresh(variable.name), value.type, (1,), row_major((1,)))
        self.workspaces.append(into)
        return [ReadStep(variable, Part(Store(into, (const(0),), value), False))]

    def _readable(self, value: Expr) -> tuple[list[Node], Expr]:
        """Steps, and an expression without loads that is ``value`` after them."""
        if self.reads and reads_memory(value):
            return self._named_value(value)
        return [], value

    def _named_value(self, value: Expr) -> tuple[list[Node], Expr]:
        variable = var(self._fresh("value"), value.type)
        return self._named(variable, value), variable

    def _fresh(self, stem: str) -> str:
        count = 1
        while (name := stem if count == 1 else f"{stem}{count}") in self.names:
            count += 1
        self.names.add(name)
        return name


def result_of(part: Part) -> Store:
    """The store that the part of a `ReadStep` is: of the value, into a workspace."""
    assert isinstance(part.body, Store)
    return part.body


def mentioned(stmt: Stmt) -> frozenset[Var]:
    """The variables that expressions in ``stmt`` mention."""
    names = frozenset[Var]()
    for node in walk_stmts(stmt):
        for expr in direct_exprs(node):
            names |= variables(expr)
    return names


@dataclass(frozen=True)
class HostScope:
    """The values that the host has named at one place of its steps (outermost first), and facts
    about them."""

    facts: Facts
    values: tuple[Var, ...] = ()

    def after(self, *nodes: Node) -> HostScope:
        """The scope after ``nodes``, of which those that name values count."""
        scope = self
        for node in nodes:
            if isinstance(node, LetStep | ReadStep):
                names = node.value if isinstance(node, LetStep) else result_of(node.launch).value
                facts = scope.facts.bind(node.var, names)
                scope = HostScope(facts, (*scope.values, node.var))
        return scope

    def inside(self, loop: ForStep[Part, Expr]) -> HostScope:
        """The scope inside of ``loop``."""
        assert loop.var.type is s64
        return HostScope(self.facts.loop(loop.var, loop.extent), (*self.values, loop.var))

    def where(self, condition: Expr, truth: bool = True) -> HostScope:
        """The scope where ``condition`` is ``truth``."""
        return replace(self, facts=self.facts.assume(condition, truth))

    def used(self, *stmts: Stmt) -> tuple[Var, ...]:
        """The host's values that ``stmts`` use."""
        names = frozenset[Var]().union(*map(mentioned, stmts))
        return tuple(value for value in self.values if value in names)
