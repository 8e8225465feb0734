"""What a target is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.runtime.remote import Space
from tilewright.targets.linking import Plan
from tilewright.targets.llvm.module import Module
from tilewright.targets.plan_files import plan_files
from tilewright.targets.program import Abi, Program
from tilewright.targets.standalone import Standalone


class Target(ABC):
    """A compiler from lowered kernels to code for one kind of machine."""

    name: str
    machine: Machine
    # Whether a separate program does most of `assemble`, so that other work can go on.
    assembles_aside = False
    # Whether the threads of a call say how much of it runs a kernel.
    takes_threads = True
    # Whether a call may take fewer threads than the kernel was compiled for.
    divides_threads = False
    # Whether kernels run on arrays in the host's memory, and a call returns when they are done.
    on_host = True
    # Whether kernels are scheduled for its machine; otherwise they run unscheduled.
    schedules = True

    @property
    def space(self) -> Space | None:
        """The device's memory, where that is not the host's."""
        return None

    def __repr__(self) -> str:
        return f"find_target({self.name!r})"

    @property
    @abstractmethod
    def identity(self) -> str:
        """Everything that code depends on: targets with the same identity give the same code."""

    @property
    @abstractmethod
    def runs_here(self) -> bool:
        """Whether there is a device, or a processor, for its code."""

    @property
    def on_processor(self) -> bool:
        """Whether kernels run on cores of this processor, so that its peaks bound them."""
        return False

    @property
    @abstractmethod
    def place(self) -> str:
        """Where kernels run, in words: "runs on ...", or "does not run here"."""

    @property
    @abstractmethod
    def made_for(self) -> str:
        """Machines that its code runs on, as words that follow "runs on"."""

    @abstractmethod
    def lower(self, kernel: Kernel) -> Module:
        """The kernel as LLVM's text, or what `assemble` takes instead."""

    def begin_apart(self) -> None:  # noqa: B027 - nothing to start, by default
        """Starts the processes that `assemble` and `build_apart` need, without waiting."""

    def build_apart(self, binary: bytes, abi: Abi) -> None:  # noqa: B027 - likewise
        """Runs the device's compiler, if `load` needs one that may crash, in another process first.
        Raises `CompilationError` for code that it refuses, or that it crashes on."""

    @abstractmethod
    def assemble(self, module: Module, apart: bool = False) -> bytes:
        """The code. With ``apart``, a compiler that may crash runs in another process, if one can
        be started. Raises `CompilationError`."""

    @abstractmethod
    def assembly(self, module: Module, remarks: bool = False) -> str:
        """The code as text; with ``remarks``, with the compiler's remarks as comments, such as
        where registers were spilled. (Some targets always have them.)"""

    @abstractmethod
    def load(self, binary: bytes, abi: Abi) -> Program:
        """A program to run. Raises `UnsupportedError` where it does not run, `CompilationError` or
        `DeviceError` for code that its driver refuses."""

    @abstractmethod
    def link(
        self, programs: Sequence[Program], plan: Plan, constants: Sequence[Any], arena: Any = None
    ) -> Program:
        """One program of several loaded ones, as ``plan`` says; ``constants`` (arrays, or results
        of a device's `pack`) are kept as long. Calls run in ``arena``, if given, one at a time.
        Raises `ArgumentError` for an unsuitable arena."""

    @abstractmethod
    def files(self, binary: bytes, abi: Abi, title: str) -> dict[str, bytes]:
        """Files of a kernel for programs without Python: contents by file name."""

    @abstractmethod
    def calling(self, abi: Abi) -> str:
        """How such a program calls the kernel, in words."""

    def standalone_files(self, standalone: Standalone) -> dict[str, bytes]:
        """Files of a program of several kernels for callers without Python: modules and a plan in
        JSON. Raises `UnsupportedError` where the host would have to look at data."""
        return plan_files(standalone, self.name, self.made_for, self.files)

    def example(self, abi: Abi, packs: Mapping[str, Abi], constants: Mapping[str, str]) -> str:
        """Such a program in C, if no more than C is needed; ``packs`` are the kernels that pack
        arguments, by the arguments' names, ``constants`` the files with contents of arrays."""
        return ""
