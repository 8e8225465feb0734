"""The targets, by name: the only place that lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.errors import UnsupportedError, one_of, short
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.targets.interpreter.target import interpreter_target, interpreter_variants
from tilewright.targets.linking import Plan
from tilewright.targets.llvm.module import Module
from tilewright.targets.nvidia.target import nvidia_target, nvidia_variants
from tilewright.targets.program import Abi, Program
from tilewright.targets.spirv.target import spirv_target, spirv_variants
from tilewright.targets.x86.target import x86_target, x86_variants


class Target(Protocol):
    """A compiler from lowered kernels to code for one kind of machine."""

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str:
        """Everything that code depends on: targets with the same identity give the same code."""

    @property
    def machine(self) -> Machine: ...
    @property
    def runs_here(self) -> bool: ...
    @property
    def on_processor(self) -> bool:
        """Whether kernels run on cores of this processor, so that its peaks bound them."""

    @property
    def place(self) -> str:
        """Where kernels run, in words: "runs on ...", or "does not run here"."""

    @property
    def made_for(self) -> str:
        """Machines that its code runs on, as words that follow "runs on"."""

    @property
    def assembles_aside(self) -> bool:
        """Whether a separate program does most of `assemble`, so that other work can go on."""

    @property
    def schedules(self) -> bool:
        """Whether kernels are scheduled for its machine; otherwise they run unscheduled."""

    def lower(self, kernel: Kernel) -> Module: ...
    def begin_apart(self) -> None:
        """Starts the processes that `assemble` and `build_apart` need, without waiting."""

    def build_apart(self, binary: bytes, abi: Abi) -> None:
        """Runs the device's compiler, if `load` needs one, in another process first. Raises
        `CompilationError` for code that it refuses, or that it crashes on."""

    def assemble(self, module: Module, apart: bool = False) -> bytes:
        """The code. With ``apart``, a compiler that may crash runs in another process, if one can
        be started. Raises `CompilationError`."""

    def assembly(self, module: Module, remarks: bool = False) -> str:
        """The code as text; with ``remarks``, with the compiler's remarks as comments, such as
        where registers were spilled. (Some targets always have them.)"""

    def load(self, binary: bytes, abi: Abi) -> Program:
        """A program to run. Raises `UnsupportedError` where it does not run, `CompilationError` or
        `DeviceError` for code that its driver refuses."""

    def link(
        self,
        programs: Sequence[Program],
        plan: Plan,
        constants: Sequence[Any],
        arena: Any = None,
    ) -> Program:
        """One program of several loaded ones, as ``plan`` says; ``constants`` (arrays, or results
        of a device's `pack`) are kept as long. Calls run in ``arena``, if given, one at a time.
        Raises `ArgumentError` for an unsuitable arena."""

    def files(self, binary: bytes, abi: Abi, title: str) -> dict[str, bytes]:
        """Files of a kernel for programs without Python: contents by file name."""

    def calling(self, abi: Abi) -> str:
        """How such a program calls the kernel, in words."""

    def example(self, abi: Abi, packs: Mapping[str, Abi], constants: Mapping[str, str]) -> str:
        """Such a program in C, if no more than C is needed; ``packs`` are the kernels that pack
        arguments, by the arguments' names, ``constants`` the files with contents of arrays."""


@dataclass(frozen=True)
class Family:
    """Targets of one kind: ``find`` gives the target of a variant, ``variants`` lists the named
    ones ("" first: the target for this machine)."""

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

    Raises `UnsupportedError` for an unknown target, `DeviceError` for a missing device.
    """
    family, _, variant = name.partition(":") if isinstance(name, str) else ("", "", "")
    if family not in TARGETS:
        suggestion = _with_family(family)
        guess = f"did you mean {suggestion}? " if suggestion else ""
        raise UnsupportedError(
            f"there is no target {short(name)}", cure=guess + one_of(family, sorted(TARGETS))
        )
    return TARGETS[family].find(variant)


def _with_family(variant: str) -> str:
    """The target with this variant, "" if there is none."""
    for name, family in TARGETS.items():
        if variant and variant.lower() in family.variants():
            return f"{name}:{variant.lower()}"
    return ""
