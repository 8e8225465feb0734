"""The targets, by name: the only place that knows which there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.errors import UnsupportedError, one_of
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.problems.numbers import short
from tilewright.targets.interpreter.target import interpreter_target, interpreter_variants
from tilewright.targets.linking import Plan
from tilewright.targets.llvm.module import Module
from tilewright.targets.nvidia.target import nvidia_target, nvidia_variants
from tilewright.targets.program import Abi, Program
from tilewright.targets.spirv.target import spirv_target, spirv_variants
from tilewright.targets.x86.target import x86_target, x86_variants


class Target(Protocol):
    """From a lowered kernel to code for one kind of machine."""

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str:
        """What code depends on: two targets of one identity make the same code."""

    @property
    def machine(self) -> Machine: ...
    @property
    def runs_here(self) -> bool: ...
    @property
    def on_processor(self) -> bool:
        """Whether kernels run on cores of this processor, whose peaks then bound them."""

    @property
    def place(self) -> str:
        """Where kernels run, in words: "runs on ...", or "does not run here"."""

    @property
    def made_for(self) -> str:
        """On which machines its code runs, in words that go on from "runs on"."""

    @property
    def assembles_aside(self) -> bool:
        """Whether a program of its own does most of `assemble`: others can go on meanwhile."""

    @property
    def schedules(self) -> bool:
        """Whether kernels are scheduled for its machine; otherwise they run as they are."""

    def lower(self, kernel: Kernel) -> Module: ...
    def begin_apart(self) -> None:
        """Starts what `assemble` and `build_apart` need, and does not wait for it."""

    def build_apart(self, binary: bytes, abi: Abi) -> None:
        """Lets the device's compiler, where `load` needs one, do its work in another process
        first. Raises `CompilationError` for what it refuses, or ends that process of."""

    def assemble(self, module: Module, apart: bool = False) -> bytes:
        """The code. With ``apart``, a compiler that may end its process does not run in this
        one, where another can be started. Raises `CompilationError`."""

    def assembly(self, module: Module, remarks: bool = False) -> str:
        """The code as text; with ``remarks``, also what the compiler says of it as comments, such
        as where registers were spilled. (Some always say so.)"""

    def load(self, binary: bytes, abi: Abi) -> Program:
        """A program to run. Raises `UnsupportedError` where it does not run, `CompilationError` or
        `DeviceError` for what its driver refuses."""

    def link(
        self,
        programs: Sequence[Program],
        plan: Plan,
        constants: Sequence[Any],
        arena: Any = None,
    ) -> Program:
        """One program of several, which `load` gave, as ``plan`` says; ``constants`` (arrays, or
        what a device's `pack` made) live as long.
        Its calls run in ``arena``, where one is given, one at a time. Raises `ArgumentError` for an
        arena that does not do."""

    def files(self, binary: bytes, abi: Abi, title: str) -> dict[str, bytes]:
        """A kernel for programs without Python: contents by the name of the file."""

    def calling(self, abi: Abi) -> str:
        """How such a program calls the kernel, in words."""

    def example(self, abi: Abi, packs: Mapping[str, Abi], constants: Mapping[str, str]) -> str:
        """The text of one, in C, where it needs no more than that; ``packs`` are the kernels that
        pack arguments, by their names, ``constants`` the files of arrays that are in such."""


@dataclass(frozen=True)
class Family:
    """Targets of one kind: ``find`` gives the one of a variant, ``variants`` lists those that have
    a name ("" first: the one for this machine)."""

    find: Callable[[str], Target]
    variants: Callable[[], Sequence[str]]


TARGETS: dict[str, Family] = {
    "x86": Family(x86_target, x86_variants),
    "nvidia": Family(nvidia_target, nvidia_variants),
    "spirv": Family(spirv_target, spirv_variants),
    "interpreter": Family(interpreter_target, interpreter_variants),
}


def find_target(name: str) -> Target:
    """The target called ``name``: a family, or ``family:variant`` (``x86``, ``x86:avx2``).

    Raises `UnsupportedError` for one that there is not, `DeviceError` for a device that is not
    there.
    """
    family, _, variant = name.partition(":") if isinstance(name, str) else ("", "", "")
    if family not in TARGETS:
        meant = _with_family(family)
        guess = f"did you mean {meant}? " if meant else ""
        raise UnsupportedError(
            f"there is no target {short(name)}", cure=guess + one_of(family, sorted(TARGETS))
        )
    return TARGETS[family].find(variant)


def _with_family(variant: str) -> str:
    """The target whose variant this is the name of, "" where none has one that is called so."""
    for name, family in TARGETS.items():
        if variant and variant.lower() in family.variants():
            return f"{name}:{variant.lower()}"
    return ""
