"""One function of a module, rewritten until all buffers planned for registers fit there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from tilewright.dtypes import s64
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.intervals import EVERYTHING
from tilewright.ir.stmt import Stmt
from tilewright.targets.llvm.indices import fitted
from tilewright.targets.llvm.inputs import Argument, Input, carrier
from tilewright.targets.llvm.masked import from_memory
from tilewright.targets.llvm.memory import MemoryMap, NotInRegisters
from tilewright.targets.llvm.plan import Plan, Planner, Scope
from tilewright.targets.llvm.statements import Statements
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

T = TypeVar("T")
NOWHERE: Mapping[Buffer, int] = MappingProxyType({})


def write_function(
    part: Stmt,
    facts: Facts,
    arguments: Sequence[Argument],
    inputs: Sequence[Input],
    writer: Callable[[], Writer],
    statements: Callable[[MemoryMap, Planner], Statements],
    write: Callable[[Statements, list[Plan]], T],
    lanes: int = 0,
    aligned: Mapping[Buffer, int] = NOWHERE,
) -> tuple[MemoryMap, T]:
    """The memory map of the function for ``part``, and the result of ``write``, which writes its
    plans.

    ``arguments`` are the kernel's, called %a0, %a1 and so on; ``inputs`` are the numbers among them
    and the values of the host; ``facts`` know their ranges. ``writer`` and ``statements`` are
    called for each attempt: a buffer that does not fit in registers is in memory in the next one.
    The addresses of the buffers in ``aligned`` are multiples of these numbers.
    """
    memory_only: set[Buffer | None] = set()
    while True:
        planner = Planner(lanes, facts)
        scopes = [Scope() for _ in inputs]
        for entry, scope in zip(inputs, scopes, strict=True):
            planner.define(entry.var, "scoped", scope)
        plans = planner.plan(part, facts)
        w = writer()
        memory = MemoryMap(w, memory_only | planner.memory_only)
        memory.arguments = list(arguments)
        for position, argument in enumerate(arguments):
            if isinstance(argument, Buffer):
                align = aligned.get(argument, 1)
                memory.root(argument, f"%a{position}", w.dialect.arguments, align)
        target = statements(memory, planner)
        try:
            _bind(target, inputs, scopes, facts)
            return memory, write(target, plans)
        except NotInRegisters as signal:
            memory_only.add(signal.buffer)


def _bind(
    statements: Statements, inputs: Sequence[Input], scopes: Sequence[Scope], facts: Facts
) -> None:
    """Binds the variables at the function's entry; ``facts`` know their ranges."""
    w = statements.w
    for entry, scope in zip(inputs, scopes, strict=True):
        dtype = entry.var.type
        range_ = facts.bounds(entry.var) if dtype is s64 else EVERYTHING
        value = from_memory(w, Value(entry.text, carrier(dtype), 1, range_), dtype)
        statements.bind(entry.var, fitted(w, value) if dtype is s64 else value, scope)


def lines_of(header: str, w: Writer) -> list[str]:
    """The function's text."""
    return [header, "entry:", *w.allocas, *w.lines, "  ret void", "}"]
