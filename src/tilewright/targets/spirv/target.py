"""The SPIR-V target: OpenCL devices, or generic machines in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewright.config import settings
from tilewright.errors import UnsupportedError
from tilewright.ir.stmt import Kernel
from tilewright.machines import spirv
from tilewright.machines.machine import Machine
from tilewright.targets.linking import HostLinked, Plan
from tilewright.targets.llvm.module import Module, times
from tilewright.targets.program import Abi, Program, arguments_in_words, host_in_words, place_of
from tilewright.targets.spirv import building
from tilewright.targets.spirv.assemble import assemble, assembly, begin
from tilewright.targets.spirv.device import INSTALL, Device, devices, find_device, why_none
from tilewright.targets.spirv.driver import KernelProgram
from tilewright.targets.spirv.linked import LinkedProgram
from tilewright.targets.spirv.lower import lower_launches
from tilewright.targets.target import Target


@dataclass(frozen=True, repr=False)
class SpirvTarget(Target):
    """``machine`` is the one that schedules are for, ``device`` runs them (None: no device)."""

    name: str
    machine: Machine
    device: Device | None

    @property
    def identity(self) -> str:
        machine = self.machine
        parts = (machine.name, sorted(machine.features), machine.caches, machine.cores)
        # A module that one version of a device's compiler takes, another may refuse.
        compiler = "" if self.device is None else f"{self.device} {self.device.driver}"
        return f"spirv {parts} {machine.hierarchy} {compiler}"

    @property
    def takes_threads(self) -> bool:  # type: ignore[override]  # here the device decides
        """Whether the device is a processor, of which so many cores run a kernel."""
        return self.device is None or self.device.kind == "cpu"

    @property
    def runs_here(self) -> bool:
        """Whether there is a device."""
        return self.device is not None

    @property
    def on_processor(self) -> bool:
        """Whether the device is this processor, and kernels are made for processors."""
        is_one = self.device is not None and self.device.kind == "cpu"
        return is_one and self.machine.name == spirv.machine("cpu").name

    @property
    def place(self) -> str:
        """Where kernels run, in words."""
        return place_of(self.device)

    @property
    def made_for(self) -> str:
        """Devices that take SPIR-V, and the one that sizes are chosen for."""
        return f"OpenCL devices that take SPIR-V; its sizes are those for {self.machine.name}"

    def lower(self, kernel: Kernel) -> Module:
        return lower_launches(kernel, self.machine)

    def begin_apart(self) -> None:
        begin()
        if self.device is not None:
            building.begin()

    def build_apart(self, binary: bytes, abi: Abi) -> None:
        if self.device is not None and abi.launches:
            building.build_apart(self.device, binary, abi.entry)

    def assemble(self, module: Module, apart: bool = False) -> bytes:
        del apart  # LLVM always runs in a child process.
        return assemble(module.text)

    def assembly(self, module: Module, remarks: bool = False) -> str:
        return assembly(module.text)

    def load(self, binary: bytes, abi: Abi) -> KernelProgram:
        if self.device is None:
            raise UnsupportedError(
                f"kernels for {self.name} do not run here",
                why=why_none(),
                cure=INSTALL + "; or export the kernel and run it elsewhere",
            )
        return KernelProgram(self.device, binary, abi)

    def link(
        self, programs: Sequence[Program], plan: Plan, constants: Sequence[Any], arena: Any = None
    ) -> Program:
        """One queue for all if kernels share the host's memory; otherwise the host calls each, with
        copies."""
        if self.device is None or not self.device.shares_memory:
            return HostLinked(programs, plan, constants, arena)
        kernel_programs = [program for program in programs if isinstance(program, KernelProgram)]
        assert len(kernel_programs) == len(programs), "programs are of this target"
        return LinkedProgram(kernel_programs, plan, constants, arena)

    def files(self, binary: bytes, abi: Abi, title: str) -> dict[str, bytes]:
        """A SPIR-V module."""
        return {f"{abi.entry}.spv": binary}

    def calling(self, abi: Abi) -> str:
        """The kernels of the module in their order, with their sizes."""
        scalars = ", and scalars by value" if abi.scalars else ""
        lines = [
            f"`{abi.entry}.spv` is a module for OpenCL (clCreateProgramWithIL). Each of its "
            f"kernels takes pointers to global memory{scalars}: {arguments_in_words(abi)}. Enqueue "
            "them in turn, each when the one before is done; the local memory is in the module. "
            "Each pointer is aligned to its element:",
            "",
            "| kernel | global size | local size | bytes of local memory |",
            "| --- | --- | --- | --- |",
        ]
        for launch in abi.launches:
            size = times(launch.groups, launch.items)
            lines.append(f"| `{launch.entry}` | {size} | {launch.items} | {launch.shared} |")
        return "\n".join([*lines, *host_in_words(abi)])


def spirv_variants() -> tuple[str, ...]:
    """This machine's device, the generic machines, and each device by its name."""
    return ("", *spirv.MACHINES, *dict.fromkeys(device.name for device in devices()))


def spirv_target(variant: str) -> SpirvTarget:
    """``""`` for the first OpenCL device (or that of the setting), ``cpu`` or ``gpu`` for the
    generic machine of that kind on the same device, or a part of a device's name.

    Raises `DeviceError` for a missing device.
    """
    return _target(variant, settings().opencl_device)


@cache
def _target(variant: str, chosen: str) -> SpirvTarget:
    if variant not in spirv.MACHINES:
        device = find_device(variant)
        machine = spirv.reported(device.kind, device.cores, device.workgroup, device.shared)
        return SpirvTarget(f"spirv:{variant}" if variant else "spirv", machine, device)
    here = find_device() if devices() else None
    return SpirvTarget(f"spirv:{variant}", _within(spirv.machine(variant), here), here)


def _within(machine: Machine, device: Device | None) -> Machine:
    """The machine, limited to what the device has."""
    if device is None:
        return machine
    hierarchy = replace(
        machine.hierarchy,
        workgroup=min(machine.hierarchy.workgroup, device.workgroup),
        shared=min(machine.hierarchy.shared, device.shared),
    )
    return replace(machine, hierarchy=hierarchy)
