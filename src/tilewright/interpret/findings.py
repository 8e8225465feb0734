"""What a kernel does wrong: raised at the first fault, or collected while the kernel goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from tilewright.errors import InterpreterFault
from tilewright.ir.stmt import Stmt


class FaultKind(Enum):
    """What is wrong. Behind each: how a run that collects findings goes on."""

    OUT_OF_BOUNDS = "out of bounds"  # a read gives 0, a write is dropped
    UNINITIALIZED = "uninitialized read"  # gives what was there
    INPUT_WRITTEN = "store to an input"  # is dropped
    RACE = "data race"
    REPEATED_PLACE = "place repeated"  # its points are merged as if nothing was promised
    FOREIGN_REGISTER = "register of another lane"  # reaches it
    WRONG_FRAGMENT = "wrong fragment"  # takes the elements from where they are
    DIVERGENT_BARRIER = "divergent barrier"  # all work-items take part
    EARLY_ACCESS = (
        "access before arrival"  # before a copy, what was there; behind an op, its result
    )
    LOST_COPY = "copy never waited for"  # never arrives
    MISSING_FENCE = "missing fence"  # what was written is there
    AFTER_END = "access behind the end"  # reaches it
    MBARRIER = "mbarrier misused"  # what is too much is ignored
    DEADLOCK = "deadlock"  # those who wait end
    DIVISION = "division by zero"  # gives 0


@dataclass
class Finding:
    """One kind of fault of one statement: its first occurrence, and how many accesses have it."""

    kind: FaultKind
    stmt: Stmt
    fault: InterpreterFault
    count: int


class Findings:
    """The faults of a run, in the order in which they were met first. ``divisions``: those of
    integers by 0 count, too, which have a meaning in the IR, and none in other languages."""

    def __init__(self, divisions: bool = False) -> None:
        self.divisions = divisions
        self._found: dict[tuple[FaultKind, int], Finding] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found.values())

    def report(
        self, kind: FaultKind, stmt: Stmt, count: int, fault: Callable[[], InterpreterFault]
    ) -> None:
        """Notes ``count`` accesses of ``stmt``; ``fault`` makes the error where it is the first."""
        key = (kind, id(stmt))
        known = self._found.get(key)
        if known is None:
            self._found[key] = Finding(kind, stmt, fault(), count)
        else:
            known.count += count


class Raising(Findings):
    """Raises the first fault."""

    def report(
        self, kind: FaultKind, stmt: Stmt, count: int, fault: Callable[[], InterpreterFault]
    ) -> None:
        raise fault()
