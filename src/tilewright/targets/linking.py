"""Plans of linked programs: several programs as one, and the control flow between their calls.

A target's ``link`` gets a `Plan`. `HostLinked` runs it by calling each program from the host; a
target may run it in another way.
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
    """What the `Place.number` is counted from."""

    ARGUMENT = "argument"  # the index of a pointer among those that a call passes
    CONSTANT = "constant"  # the index of a constant
    ARENA = "arena"  # an offset in bytes into the arena
    NUMBER = "number"  # nothing: it is a number that the kernel takes, not a place in memory


@dataclass(frozen=True)
class Place:
    """Where an array begins."""

    base: Base
    number: int


@dataclass(frozen=True)
class Run:
    """A call of the plan's program of index ``program`` on pointers to ``places``.

    ``workspaces`` are the places of its workspaces, if the target's programs do not allocate their
    own.
    """

    program: int
    places: tuple[Place, ...]
    workspaces: tuple[Place, ...] = ()


# The condition of an `IfStep` or `WhileStep` is the place of a byte: true if it is not 0.
LinkedStep = HostStep[Run, Place]


@dataclass(frozen=True)
class PointerArgument:
    """A pointer argument of a linked program: how many bytes it points to, and whether the program
    writes them."""

    bytes: int
    written: bool


@dataclass(frozen=True)
class Plan:
    """What a linked program does: ``steps`` in order.

    ``arena`` is the size in bytes of the memory for intermediate results, aligned to `ALIGNMENT`.
    """

    steps: tuple[LinkedStep, ...]
    arena: int
    arguments: tuple[PointerArgument, ...]


class ArenaMemory:
    """Memory for the arena of one call at a time: allocated here, or the array of a caller.

    Raises `ArgumentError` if that is no contiguous writable numpy array, or too small.
    """

    def __init__(self, size: int, array: Any = None) -> None:
        room = size + ALIGNMENT
        if array is None:
            array = np.empty(room, np.uint8)
        elif not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            raise ArgumentError(
                "the arena is no contiguous array of numpy",
                where=f"arena of type {type(array).__name__}",
                cure=f"pass numpy.empty({room}, numpy.uint8)",
            )
        elif not array.flags.writeable:
            raise ArgumentError("the arena may not be written", cure="pass a writable array")
        self.pointer = -(-array.ctypes.data // ALIGNMENT) * ALIGNMENT
        if self.pointer + size > array.ctypes.data + array.nbytes:
            raise ArgumentError(
                f"the arena has {array.nbytes} bytes, and {room} are needed",
                why=f"{size} bytes, which begin at a multiple of {ALIGNMENT}",
                cure=f"pass numpy.empty({room}, numpy.uint8)",
            )
        self.array = array


class Memory:
    """The addresses of a plan's places in one call."""

    def __init__(
        self, arguments: Sequence[Passed], constants: Sequence[NDArray[Any]], arena: ArenaMemory
    ) -> None:
        self._arguments, self._constants, self._arena = arguments, constants, arena

    def pointer(self, place: Place) -> int:
        """The address of ``place``."""
        match place.base:
            case Base.ARGUMENT:
                return int(self._arguments[place.number])
            case Base.CONSTANT:
                return int(self._constants[place.number].ctypes.data)
            case Base.ARENA:
                return int(self._arena.pointer) + place.number
            case Base.NUMBER:
                return place.number

    def holds(self, flag: Place) -> bool:
        """Whether the byte at ``flag`` is not 0."""
        return bool(ctypes.c_uint8.from_address(self.pointer(flag)).value)


Observer = Callable[[int, Callable[[], None]], None]


class HostLinked:
    """A linked `targets.program.Program` for targets whose programs work on host memory.

    The host calls the programs one by one. A call takes an arena that no other call uses, and
    leaves it for later calls; an arena of the caller's is the only one.
    """

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
        self._callers_arena = arena is not None
        self._spare: list[ArenaMemory] = [] if arena is None else [ArenaMemory(plan.arena, arena)]

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Runs all steps on these pointers."""
        self.observed(arguments, threads, lambda _number, call: call())

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """A function without arguments that runs all steps on these pointers."""
        return lambda: self.run(arguments, threads)

    def observed(self, arguments: Sequence[Passed], threads: int, observer: Observer) -> None:
        """Runs all steps; ``observer`` gets, for each call of a program, the index of its `Run` in
        the order of the steps, and a function that makes the call."""
        arena = self._spare.pop() if self._spare else self._new()
        numbers = {id(run): number for number, run in enumerate(launches(self._plan.steps))}

        memory = Memory(arguments, self._constants, arena)

        def launch(step: Run) -> None:
            program = self._programs[step.program]
            pointers = [memory.pointer(place) for place in step.places]
            observer(numbers[id(step)], lambda: program.run(pointers, threads))

        try:
            run_steps(self._plan.steps, launch, memory.holds)
        finally:
            self._spare.append(arena)

    def _new(self) -> ArenaMemory:
        if self._callers_arena:
            raise busy_arena()
        return ArenaMemory(self._plan.arena)


def busy_arena() -> ArgumentError:
    """The error for two calls at once that would use the caller's one arena."""
    return ArgumentError(
        "the arena is in use",
        why="another thread's call runs in it",
        cure="give each thread an arena of its own, or none",
    )
