"""The target that runs every kernel by its definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import UnsupportedError
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.targets.interpreter.program import InterpretedProgram, keep_places
from tilewright.targets.linking import HostLinked, Plan
from tilewright.targets.llvm.module import Module
from tilewright.targets.program import Abi, Program
from tilewright.targets.standalone import Standalone
from tilewright.targets.target import Target

# Nothing in it depends on a schedule: no registers, caches or instructions.
_MACHINE = Machine(
    "interpreter",
    features=frozenset(),
    vector_bytes=8,
    vector_registers=1,
    caches=(),
    cores=1,
    instructions=(),
)


@dataclass(frozen=True, repr=False)
class InterpreterTarget(Target):
    """Runs kernels in `interpret`, on arrays of the host."""

    name: str = "interpreter"
    machine: Machine = _MACHINE
    runs_here: bool = True
    place: str = "runs in Python, on any machine"
    made_for: str = "any machine, in Python"
    schedules = False

    @property
    def identity(self) -> str:
        return self.name

    def lower(self, kernel: Kernel) -> Module:
        """The module is the kernel's text, not lowered."""
        text = to_text(kernel)
        keep_places(text, kernel)
        return Module(text, kernel.name, ())

    def assemble(self, module: Module, apart: bool = False) -> bytes:
        del apart
        return module.text.encode()

    def assembly(self, module: Module, remarks: bool = False) -> str:
        raise _no_code("assembly")

    def load(self, binary: bytes, abi: Abi) -> InterpretedProgram:
        return InterpretedProgram(binary.decode())

    def link(
        self, programs: Sequence[Program], plan: Plan, constants: Sequence[Any], arena: Any = None
    ) -> Program:
        """A program whose host calls each of ``programs``."""
        return HostLinked(programs, plan, constants, arena)

    def files(self, binary: bytes, abi: Abi, title: str) -> dict[str, bytes]:
        raise _no_code("files for other programs")

    def standalone_files(self, standalone: Standalone) -> dict[str, bytes]:
        raise _no_code("files for other programs")

    def calling(self, abi: Abi) -> str:
        raise _no_code("calls from other programs")

    def example(self, abi: Abi, packs: Mapping[str, Abi], constants: Mapping[str, str]) -> str:
        raise _no_code("programs that call it")


def _no_code(feature: str) -> UnsupportedError:
    return UnsupportedError(
        f"the interpreter has no {feature}",
        why="it runs the kernel's own text",
        cure="compile for another target",
    )


def interpreter_target(variant: str) -> InterpreterTarget:
    """The interpreter. Raises `UnsupportedError` for a variant."""
    if variant:
        raise UnsupportedError(
            f"the interpreter has no variant {variant!r}", cure="write interpreter alone"
        )
    return InterpreterTarget()


def interpreter_variants() -> Sequence[str]:
    """No variants."""
    return ("",)
