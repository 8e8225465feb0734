"""Several kernels on an OpenCL device that shares the host's memory: all on one queue, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from tilewright.runtime.steps import run_steps
from tilewright.targets.linking import ArenaMemory, Memory, Place, Plan, Run, busy_arena
from tilewright.targets.program import Passed
from tilewright.targets.spirv.device import check_process, load_opencl
from tilewright.targets.spirv.driver import KernelProgram, Queue


class LinkedProgram:
    """A `targets.program.Program` of several kernels. The host waits at the end of a call, and
    where it tests a flag.

    Each call takes its own `_Chain`, so that several Python threads may run the program at once,
    except in an arena of the caller. Chains are kept between calls.
    """

    def __init__(
        self,
        programs: Sequence[KernelProgram],
        plan: Plan,
        constants: Sequence[NDArray[Any]],
        arena: Any = None,
    ) -> None:
        self._programs, self._plan, self._constants = programs, plan, constants
        self._callers_arena = None if arena is None else ArenaMemory(plan.arena, arena)
        self._busy = threading.Lock()
        self._spare: dict[int, list[_Chain]] = {}

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Runs all steps."""
        if self._callers_arena is None:
            self._run(arguments, threads)
            return
        if not self._busy.acquire(blocking=False):
            raise busy_arena()
        try:
            self._run(arguments, threads)
        finally:
            self._busy.release()

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """The same as a function of no arguments."""
        return lambda: self.run(arguments, threads)

    def _run(self, arguments: Sequence[Passed], threads: int) -> None:
        check_process()
        spare = self._spare.setdefault(threads, [])
        try:
            chain = spare.pop()
        except IndexError:
            arena = self._callers_arena or ArenaMemory(self._plan.arena)
            chain = _Chain(self._programs, self._plan, self._constants, arena, threads)
        chain.run(arguments)
        # The chain of a failed call is not used again.
        spare.append(chain)


class _Chain:
    """One queue with the kernels of all programs, and the arena, for one call at a time."""

    def __init__(
        self,
        programs: Sequence[KernelProgram],
        plan: Plan,
        constants: Sequence[NDArray[Any]],
        arena: ArenaMemory,
        threads: int,
    ) -> None:
        self._error = load_opencl().Error
        self._programs, self._plan, self._constants = programs, plan, constants
        self._arena = arena
        self._queues: list[Queue] = []
        for program in programs:
            self._queues.append(program.queue(threads, self._queues[0] if self._queues else None))

    def run(self, arguments: Sequence[Passed]) -> None:
        """Runs all steps, and waits for the last one."""
        memory = Memory(arguments, self._constants, self._arena)
        last = 0

        def launch(step: Run) -> None:
            nonlocal last
            last = step.program
            self._queues[last].enqueue([memory.pointer(place) for place in step.places])

        def holds(flag: Place) -> bool:
            self._queues[last].finish()
            return memory.holds(flag)

        try:
            run_steps(self._plan.steps, launch, holds)
            if self._queues:
                self._queues[last].finish()
        except self._error as error:
            self._queues[last].settle(self._error)
            raise self._programs[last].failure(error) from error
