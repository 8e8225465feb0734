"""Several programs as one: which runs on what memory, and the control between them.

What a target's ``link`` gets, and what makes of it a program where the host has to call each: each
program of the plan runs on pointers, which a `Place` tells.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import ArgumentError
from tilewright.runtime.steps import HostStep, launches, run_steps
from tilewright.targets.program import Passed, Program

ALIGNMENT = 64


class Base(Enum):
    """What a place is counted from."""

    ARGUMENT = "argument"  # the argument of that number, as a call passes it
    CONSTANT = "constant"  # the constant of that number
    ARENA = "arena"  # so many bytes into the arena


@dataclass(frozen=True)
class Place:
    """Where an array lies."""

    base: Base
    number: int


@dataclass(frozen=True)
class Run:
    """The program of that number on memory at these places; ``workspaces`` are places for what it
    needs beside, which a target may use that gives programs their workspaces."""

    program: int
    places: tuple[Place, ...]
    workspaces: tuple[Place, ...] = ()


# Conditions hold where the byte at a place is not 0.
LinkedStep = HostStep[Run, Place]


@dataclass(frozen=True)
class Given:
    """A pointer that a call passes: to so many bytes, which are ``written`` or read only."""

    bytes: int
    written: bool


@dataclass(frozen=True)
class Plan:
    """``steps`` in order, over an arena of ``arena`` bytes, which begins at a multiple of 64;
    ``arguments`` are the pointers that a call passes."""

    steps: tuple[LinkedStep, ...]
    arena: int
    arguments: tuple[Given, ...]


class ArenaMemory:
    """Memory for an arena: new, or ``given`` by a caller, who has no other use for it meanwhile.

    Raises `ArgumentError` for memory of another kind, or too little.
    """

    def __init__(self, size: int, given: Any = None) -> None:
        room = size + ALIGNMENT
        if given is None:
            given = np.empty(room, np.uint8)
        elif not isinstance(given, np.ndarray) or not given.flags.c_contiguous:
            raise ArgumentError(
                "the arena is no contiguous array of numpy",
                where=f"arena of type {type(given).__name__}",
                cure=f"pass numpy.empty({room}, numpy.uint8)",
            )
        elif not given.flags.writeable:
            raise ArgumentError("the arena may not be written", cure="pass a writable array")
        self.pointer = -(-given.ctypes.data // ALIGNMENT) * ALIGNMENT
        if self.pointer + size > given.ctypes.data + given.nbytes:
            raise ArgumentError(
                f"the arena has {given.nbytes} bytes, and {room} are needed",
                why=f"{size} bytes, which begin at a multiple of {ALIGNMENT}",
                cure=f"pass numpy.empty({room}, numpy.uint8)",
            )
        self.array = given


class Memory:
    """Where the places of a plan are, in one call."""

    def __init__(
        self, arguments: Sequence[Passed], constants: Sequence[NDArray[Any]], arena: ArenaMemory
    ) -> None:
        self._arguments, self._constants, self._arena = arguments, constants, arena

    def pointer(self, place: Place) -> int:
        """The address."""
        match place.base:
            case Base.ARGUMENT:
                return int(self._arguments[place.number])
            case Base.CONSTANT:
                return int(self._constants[place.number].ctypes.data)
            case Base.ARENA:
                return int(self._arena.pointer) + place.number

    def holds(self, flag: Place) -> bool:
        """Whether there is another byte than 0."""
        return bool(ctypes.c_uint8.from_address(self.pointer(flag)).value)


Observer = Callable[[int, Callable[[], None]], None]


class HostLinked:
    """A `targets.program.Program` of several, whose memory is the host's: the host calls each."""

    def __init__(
        self,
        programs: Sequence[Program],
        plan: Plan,
        constants: Sequence[NDArray[Any]],
        arena: Any = None,
    ) -> None:
        self._programs = programs
        self._plan = plan
        self._constants = constants
        self._given = arena is not None
        self._spare: list[ArenaMemory] = [] if arena is None else [ArenaMemory(plan.arena, arena)]

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Runs all steps."""
        self.observed(arguments, threads, lambda _number, call: call())

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """A call of no arguments on these."""
        return lambda: self.run(arguments, threads)

    def observed(self, arguments: Sequence[Passed], threads: int, observer: Observer) -> None:
        """Runs all steps, each program by the ``observer``, which gets its number in the order of
        the text, and what calls it."""
        arena = self._spare.pop() if self._spare else self._new()
        numbers = {id(each): number for number, each in enumerate(launches(self._plan.steps))}

        memory = Memory(arguments, self._constants, arena)

        def launch(step: Run) -> None:
            program = self._programs[step.program]
            pointers = [memory.pointer(each) for each in step.places]
            observer(numbers[id(step)], lambda: program.run(pointers, threads))

        try:
            run_steps(self._plan.steps, launch, memory.holds)
        finally:
            self._spare.append(arena)

    def _new(self) -> ArenaMemory:
        if self._given:
            raise busy_arena()
        return ArenaMemory(self._plan.arena)


def busy_arena() -> ArgumentError:
    """The error for two calls at once in one arena of the caller's."""
    return ArgumentError(
        "the arena is in use",
        why="another thread's call runs in it",
        cure="give each thread an arena of its own, or none",
    )
