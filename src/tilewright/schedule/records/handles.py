"""Handles: names of loops, computes and buffers that know since when they stand for something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Allocate, Compute, For, Kernel
from tilewright.ir.visit import walk_stmts

# The kinds of things that handles stand for.
KINDS = ("loop", "compute", "buffer")
Names = Mapping[str, tuple[str, ...]]


class Handle(str):
    """The name of what a step made; it can be given wherever a name can.

    ``kind`` is "loop", "compute" or "buffer", ``step`` the number of the step, from 1 on. It stands
    for all that have the name, where there are several. Used after a step that removed it, it is
    refused, even if another thing of the name came later.
    """

    __slots__ = ("kind", "owner", "step")
    kind: str
    step: int
    owner: object

    @staticmethod
    def new(name: str, kind: str, step: int, owner: object) -> Handle:
        """A handle of what the schedule ``owner`` has."""
        made = Handle(name)
        made.kind, made.step, made.owner = kind, step, owner
        return made

    def __iter__(self) -> Iterator[NoReturn]:
        raise ScheduleError(
            f"{self.kind} '{self}' is one handle, which has no parts",
            where=f"step {self.step}",
            cure="take it as it is: a step gives a tuple only where it made several things",
        )

    def __repr__(self) -> str:
        return f"<{self.kind} {str(self)!r} of step {self.step}>"


def names_in(kernel: Kernel) -> Names:
    """The names that stand in ``kernel``, by the kind of what has them, in program order."""
    found: dict[str, dict[str, None]] = {kind: {} for kind in KINDS}
    found["buffer"].update(dict.fromkeys(param.name for param in kernel.arrays))
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case For():
                found["loop"][stmt.var.name] = None
            case Compute():
                found["compute"][stmt.name] = None
            case Allocate():
                found["buffer"][stmt.buffer.name] = None
            case _:
                pass
    return {kind: tuple(names) for kind, names in found.items()}
