"""Handles: names of loops, computes and buffers that know since when they stand for something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

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

    __slots__ = ("kind", "step", "taken")
    kind: str
    step: int
    taken: Taken

    @staticmethod
    def new(name: str, kind: str, step: int, taken: Taken) -> Handle:
        """A handle of what ``taken`` gave, as step number ``step``."""
        handle = Handle(name)
        handle.kind, handle.step, handle.taken = kind, step, taken
        return handle

    def __iter__(self) -> Iterator[NoReturn]:
        raise ScheduleError(
            f"{self.kind} '{self}' is one handle, which has no parts",
            where=f"step {self.step}",
            cure="take it as it is: a step gives a tuple only where it made several things",
        )

    def __repr__(self) -> str:
        return f"<{self.kind} {str(self)!r} of step {self.step}>"


class Results(tuple[Handle, ...]):
    """The handles of what a step made, in program order; by name, those that the transform names:

        loops = schedule.tile("conv", {"oc": 16, "ic": 4})
        schedule.set_kind(loops["ic"], LoopKind.UNROLLED)

    A part that there is no need for has none: a loop of one iteration, for one.
    """

    parts: Mapping[str, Handle]

    @staticmethod
    def of(handles: Sequence[Handle], parts: Mapping[str, Handle]) -> Results:
        """``handles`` in order, and the ``parts`` by name."""
        results = Results(handles)
        results.parts = parts
        return results

    def __getitem__(self, key: Any) -> Any:
        return self.parts[key] if isinstance(key, str) else super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return key in self.parts or super().__contains__(key)


def names_in(kernel: Kernel) -> Names:
    """The names that stand in ``kernel``, by the kind of what has them, in program order."""
    result: dict[str, dict[str, None]] = {kind: {} for kind in KINDS}
    result["buffer"].update(dict.fromkeys(param.name for param in kernel.arrays))
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case For():
                result["loop"][stmt.var.name] = None
            case Compute():
                result["compute"][stmt.name] = None
            case Allocate():
                result["buffer"][stmt.buffer.name] = None
            case _:
                pass
    return {kind: tuple(names) for kind, names in result.items()}


class Taken(Protocol):
    """A step that was taken: what stands in its kernel."""

    @property
    def names(self) -> Names: ...


class Owner(Protocol):
    """A schedule: the steps that it has taken."""

    @property
    def done(self) -> Sequence[Taken]: ...


def check_handles(name: str, value: Any, owner: Owner) -> None:
    """Refuses handles in ``value``, an argument of the step ``name``, of what is gone, or of
    another schedule's than ``owner``."""
    match value:
        case Handle():
            _check_handle(name, value, owner)
        case Mapping():
            for key, entry in value.items():
                check_handles(name, (key, entry), owner)
        case list() | tuple():
            for entry in value:
                check_handles(name, entry, owner)
        case _:
            pass


def _check_handle(name: str, handle: Handle, owner: Owner) -> None:
    if owner.done[handle.step - 1 : handle.step] != [handle.taken]:
        raise ScheduleError(
            f"{name}: {handle.kind} '{handle}' is of another schedule",
            where=f"step {len(owner.done) + 1}",
            why="handles stand for what the schedule has that gave them",
            cure="take one that a step of this schedule gave, or a name",
        )
    for number, step in enumerate(owner.done[handle.step :], start=handle.step + 1):
        if handle not in step.names[handle.kind]:
            there = owner.done[-1].names[handle.kind]
            raise ScheduleError(
                f"{name}: {handle.kind} '{handle}' is gone since step {number}: {step}",
                where=f"step {len(owner.done) + 1}",
                why=f"the handle is of step {handle.step}",
                cure=f"choose what is there now: {', '.join(there) or 'no ' + handle.kind}",
            )
