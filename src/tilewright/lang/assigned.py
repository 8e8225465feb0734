"""Definite assignment: the names that have a value at a place, on whichever path.

The analysis runs while a function is translated in order, so that it uses everything that is known
at compile time (an `if` of constants, the number of iterations of a loop).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.ir.expr import Expr
from tilewright.ir.visit import reads_memory

# A name, and the condition under which it has a value: None for always.
Facts = frozenset[tuple[str, Expr | None]]


class Assigned:
    """``now`` are the facts at the present place; None where no path leads there."""

    def __init__(self) -> None:
        self.now: Facts | None = frozenset()
        self._broken: list[list[Facts | None]] = []
        self._continued: list[list[Facts | None]] = []

    def has(self, name: str) -> bool:
        """Whether ``name`` has a value."""
        return self.now is None or (name, None) in self.now

    def give(self, name: str) -> None:
        """Notes that ``name`` gets a value."""
        if self.now is not None:
            self.now |= {(name, None)}

    def begin_arm(self, before: Facts | None, condition: Expr) -> None:
        """Moves to an arm where ``condition`` holds, with the facts ``before`` it."""
        self.now = before
        for name, under in before or ():
            if under is condition:
                self.give(name)

    def end_arms(self, ends: dict[Expr, Facts | None]) -> None:
        """Joins the arms of an `if`, by their conditions. A condition that cannot change proves
        later what its arm assigned."""
        self.now = _meet(list(ends.values()))
        for condition, end in ends.items():
            if self.now is not None and end is not None and not reads_memory(condition):
                new = {(name, condition) for name, under in end if under is None}
                self.now |= {fact for fact in new if not self.has(fact[0])}

    @contextmanager
    def loop(self, once: bool, ends: bool = True) -> Iterator[None]:
        """Around the iterations of a loop: it runs ``once`` or more, and ends by itself, or by
        `break` only."""
        before = self.now
        self._broken.append([])
        yield
        counted = [self.now if once else before] if ends else []
        self.now = _meet([*counted, *self._broken.pop()])

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Around one iteration."""
        self._continued.append([])
        yield
        self.now = _meet([self.now, *self._continued.pop()])

    def leave(self, by: str) -> None:
        """Ends the path by ``break``, ``continue`` or ``return``."""
        if by != "return":
            (self._broken if by == "break" else self._continued)[-1].append(self.now)
        self.now = None


def _meet(paths: list[Facts | None]) -> Facts | None:
    """The facts where ``paths`` join."""
    open_ = [path for path in paths if path is not None]
    return frozenset.intersection(*open_) if open_ else None
