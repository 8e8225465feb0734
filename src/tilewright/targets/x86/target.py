"""The x86 target: this machine, or a named feature level."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tilewright.errors import UnsupportedError
from tilewright.ir.stmt import Kernel
from tilewright.machines import x86
from tilewright.machines.machine import Machine
from tilewright.targets.llvm.module import Module, lower_module
from tilewright.targets.x86.assemble import assemble, assembly, host_cpu, host_features
from tilewright.targets.x86.driver import Program
from tilewright.targets.x86.host import host

# The oldest processors that have each level, for code that need not be tuned for this machine.
_CPUS = {
    "sse42": "nehalem",
    "avx2": "haswell",
    "avx512": "skylake-avx512",
    "avx512_vnni": "cascadelake",
    "avx512_bf16": "cooperlake",
    "amx": "sapphirerapids",
}


@dataclass(frozen=True)
class X86Target:
    """``cpu`` and ``features`` as LLVM spells them."""

    name: str
    machine: Machine
    cpu: str
    features: str

    @property
    def identity(self) -> str:
        return f"x86 {self.cpu} {self.features} {self.machine.caches}"

    @property
    def runs_here(self) -> bool:
        """Whether this processor has all that the code may use."""
        return self.machine.features <= host().features

    def lower(self, kernel: Kernel) -> Module:
        return lower_module(kernel, {i.name: i for i in self.machine.instructions})

    def assemble(self, module: Module) -> bytes:
        return assemble(module.text, self.cpu, self.features)

    def assembly(self, module: Module) -> str:
        return assembly(module.text, self.cpu, self.features)

    def load(self, binary: bytes, entry: str) -> Program:
        if not self.runs_here:
            missing = ", ".join(sorted(self.machine.features - host().features))
            raise UnsupportedError(
                f"kernels for {self.name} do not run on this processor",
                why=f"it has no {missing}",
                cure="compile for 'x86', or export the kernel and run it elsewhere",
            )
        return Program(binary, [entry])


@cache
def x86_target(variant: str) -> X86Target:
    """``""`` for this machine, or a feature level such as ``avx2``."""
    if not variant:
        return X86Target("x86", host(), host_cpu(), host_features())
    found = x86.machine(variant, host().cores, host().caches)
    return X86Target(f"x86:{variant}", found, _CPUS[variant], "")
