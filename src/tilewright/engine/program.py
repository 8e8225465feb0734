"""Code for one kernel, loaded where this machine runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from tilewright.targets.program import Abi, DeviceProgram, Passed, Program
from tilewright.targets.target import Target


class Code:
    """A kernel's code: ``run`` and ``bound`` are its program's.

    ``device`` is that program too, where it takes arrays in a device's memory. Code for another
    machine can be exported; to run it raises what the target's ``load`` does.
    """

    def __init__(self, target: Target, binary: bytes, abi: Abi) -> None:
        self.binary = binary
        self.abi = abi
        program: Program = _Elsewhere(target, binary, abi)
        if target.runs_here:
            program = target.load(binary, abi)
        # Nothing stands between a call and the program: calls take microseconds.
        self.program = program
        self.run = program.run
        self.bound = program.bound
        self.device = program if isinstance(program, DeviceProgram) else None


class _Elsewhere:
    """Stands for code that does not run here: loading it says why."""

    def __init__(self, target: Target, binary: bytes, abi: Abi) -> None:
        self._loading = (target, binary, abi)

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        self._refuse()

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        target, binary, abi = self._loading
        target.load(binary, abi)
        raise AssertionError(f"{target.name} runs here after all")
