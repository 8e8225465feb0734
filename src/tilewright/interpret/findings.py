"""Faults of a kernel: raised at the first one, or collected while the kernel goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from tilewright.errors import InterpreterFault
from tilewright.ir.stmt import Stmt


class FaultKind(Enum):
    """Kinds of faults. The comments say how a run that collects findings goes on."""

    OUT_OF_BOUNDS = "out of bounds"  # a read gives 0, a write is dropped
    UNINITIALIZED = "uninitialized read"  # gives what was there
    INPUT_WRITTEN = "store to an input"  # is dropped
    RACE = "data race"
    REPEATED_PLACE = "place repeated"  # its points are merged, as without the promise
    FOREIGN_REGISTER = "register of another lane"  # reaches it
    WRONG_FRAGMENT = "wrong fragment"  # takes the elements from where they are
    DIVERGENT_BARRIER = "divergent barrier"  # all work-items take part
    # What was there before the copy; the result of an op.
    EARLY_ACCESS = "access before arrival"
    LOST_COPY = "copy never waited for"  # never arrives
    MISSING_FENCE = "missing fence"  # what was written is there
    AFTER_END = "access after the end"  # reaches it
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
    """The faults of a run, in the order of first occurrence. With ``divisions``, integer divisions
    by 0 count, too: the IR defines them, other languages do not."""

    def __init__(self, divisions: bool = False) -> None:
        self.divisions = divisions
        self._findings: dict[tuple[FaultKind, int], Finding] = {}

    def __len__(self) -> int:
        return len(self._findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings.values())

    def report(
        self, kind: FaultKind, stmt: Stmt, count: int, fault: Callable[[], InterpreterFault]
    ) -> None:
        """Notes ``count`` accesses of ``stmt``; ``fault`` gives the error, for the first."""
        key = (kind, id(stmt))
        finding = self._findings.get(key)
        if finding is None:
            self._findings[key] = Finding(kind, stmt, fault(), count)
        else:
            finding.count += count


class Raising(Findings):
    """Raises the first fault."""

    def report(
        self, kind: FaultKind, stmt: Stmt, count: int, fault: Callable[[], InterpreterFault]
    ) -> None:
        raise fault()
