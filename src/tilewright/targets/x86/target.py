"""The x86 target: this machine, or a named feature level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.errors import UnsupportedError
from tilewright.ir.stmt import Kernel
from tilewright.machines import x86
from tilewright.machines.machine import Machine
from tilewright.predict.kept import with_kept_costs
from tilewright.targets.linking import Plan
from tilewright.targets.llvm.emitter_client import begin_apart
from tilewright.targets.llvm.module import Module
from tilewright.targets.program import Abi, Program
from tilewright.targets.standalone import Standalone
from tilewright.targets.target import Target
from tilewright.targets.x86.assemble import assemble, assembly, host_cpu, host_features
from tilewright.targets.x86.device import host
from tilewright.targets.x86.example import example
from tilewright.targets.x86.header import described, header
from tilewright.targets.x86.linked import LinkedProgram
from tilewright.targets.x86.lower import lower_phases
from tilewright.targets.x86.program import KernelProgram
from tilewright.targets.x86.standalone import standalone_files

# The oldest processor of each level, for code that is not tuned for this machine.
_CPUS = {
    "sse42": "nehalem",
    "avx2": "haswell",
    "avx512": "skylake-avx512",
    "avx512_vnni": "cascadelake",
    "avx512_bf16": "cooperlake",
    "avx512_fp16": "sapphirerapids",
    "amx": "sapphirerapids",
}


@dataclass(frozen=True, repr=False)
class X86Target(Target):
    """``cpu`` and ``features`` as LLVM spells them."""

    name: str
    machine: Machine
    cpu: str
    features: str
    divides_threads = True

    @property
    def identity(self) -> str:
        return f"x86 {self.cpu} {self.features} {self.machine.caches} {self.machine.cores}"

    @property
    def runs_here(self) -> bool:
        """Whether this processor has all features that the code may use."""
        return self.machine.features <= host().features

    @property
    def on_processor(self) -> bool:
        """Whether it runs here at all."""
        return self.runs_here

    @property
    def made_for(self) -> str:
        """Processors of a level, or like this one: code for it may use all its instructions."""
        if self.name == "x86":
            return f"this processor ({self.cpu}) and those that have all of its instructions"
        return f"x86-64 processors with {', '.join(sorted(self.machine.features))}"

    def lower(self, kernel: Kernel) -> Module:
        return lower_phases(kernel, self.machine)

    def begin_apart(self) -> None:
        begin_apart()

    def assemble(self, module: Module, apart: bool = False) -> bytes:
        return assemble(module.text, self.cpu, self.features, apart=apart)

    def assembly(self, module: Module, remarks: bool = False) -> str:
        return assembly(module.text, self.cpu, self.features, remarks=remarks)

    @property
    def place(self) -> str:
        """Where kernels run, in words."""
        return "runs on this processor" if self.runs_here else "does not run here"

    def load(self, binary: bytes, abi: Abi) -> KernelProgram:
        if not self.runs_here:
            missing = ", ".join(sorted(self.machine.features - host().features))
            raise UnsupportedError(
                f"kernels for {self.name} do not run on this processor",
                why=f"it has no {missing}",
                cure="compile for 'x86', or export the kernel and run it elsewhere",
            )
        return KernelProgram(binary, abi)

    def link(
        self, programs: Sequence[Program], plan: Plan, constants: Sequence[Any], arena: Any = None
    ) -> Program:
        """One native call for all programs."""
        kernel_programs = [program for program in programs if isinstance(program, KernelProgram)]
        assert len(kernel_programs) == len(programs), "programs are of this target"
        return LinkedProgram(kernel_programs, plan, constants, arena)

    def files(self, binary: bytes, abi: Abi, title: str) -> dict[str, bytes]:
        """An object file and a C header."""
        text = header(abi, title, self.name, self.made_for)
        return {f"{abi.entry}.o": binary, f"{abi.entry}.h": text.encode()}

    def standalone_files(self, standalone: Standalone) -> dict[str, bytes]:
        """A static library, a C header, and a program that calls it."""
        tiles = any(feature.startswith("amx") for feature in self.machine.features)
        return standalone_files(standalone, self.name, self.made_for, tiles)

    def calling(self, abi: Abi) -> str:
        """The file that declares the function, and its arguments."""
        slots = described(abi)
        spaces = " Each workspace is aligned to 64 bytes." if abi.workspaces else ""
        return (
            f"`{abi.entry}.h` declares the function: it takes an array of {slots}. Each pointer is "
            f"aligned to its element.{spaces}"
        )

    def example(self, abi: Abi, packs: Mapping[str, Abi], constants: Mapping[str, str]) -> str:
        """A program in C."""
        return example(abi, packs, constants)


def x86_variants() -> tuple[str, ...]:
    """This machine, then the feature levels."""
    return ("", *x86.LEVELS)


@cache
def x86_target(variant: str) -> X86Target:
    """``""`` for this machine, or a feature level such as ``avx2``."""
    if not variant:
        return X86Target("x86", _fitted(host()), host_cpu(), host_features())
    machine = x86.machine(variant, host().cores, host().caches)
    return X86Target(f"x86:{variant}", _fitted(machine), _CPUS[variant], "")


def _fitted(machine: Machine) -> Machine:
    """``machine`` with the costs that were fitted on this processor, which others need not have."""
    return with_kept_costs(machine, host_cpu()) if machine.features <= host().features else machine
