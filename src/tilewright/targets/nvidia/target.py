"""The NVIDIA target: this machine's GPU, or a compute capability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.errors import DeviceError, UnsupportedError
from tilewright.ir.stmt import Kernel
from tilewright.machines import nvidia
from tilewright.machines.machine import Machine
from tilewright.machines.nvidia.tensor_map import TensorMap
from tilewright.targets.linking import Plan
from tilewright.targets.llvm.emitter_client import begin_apart
from tilewright.targets.llvm.module import Launch, Module
from tilewright.targets.nvidia.assemble import assemble, assembly, split_binary
from tilewright.targets.nvidia.device import (
    Device,
    check_process,
    devices,
    find_device,
    why_none,
)
from tilewright.targets.nvidia.driver import KernelProgram
from tilewright.targets.nvidia.linked import LinkedProgram
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.targets.nvidia.ptxas import find_ptxas, missing
from tilewright.targets.nvidia.space import GpuSpace
from tilewright.targets.program import Abi, Program, arguments_in_words, host_in_words, place_of
from tilewright.targets.target import Target


@dataclass(frozen=True, repr=False)
class NvidiaTarget(Target):
    """``level`` is the compute capability as in LLVM and ptxas, ``device`` the GPU that runs
    kernels, None if there is none."""

    name: str
    machine: Machine
    level: str
    device: Device | None
    assembles_aside = True  # by ptxas
    takes_threads = False
    on_host = False

    @property
    def identity(self) -> str:
        machine = self.machine
        assembler = find_ptxas(self.level) or "no ptxas"
        return f"nvidia {self.level} {assembler} {machine.cores} {machine.hierarchy}"

    @property
    def runs_here(self) -> bool:
        """Whether there is a device for its code."""
        return self.device is not None

    @property
    def space(self) -> GpuSpace | None:
        """The GPU's memory, the same for all targets of a device."""
        return None if self.device is None else _space(self.device)

    @property
    def place(self) -> str:
        """Where kernels run, in words."""
        return place_of(self.device)

    @property
    def made_for(self) -> str:
        """GPUs of the level. The driver compiles PTX for newer ones, except PTX of levels for one
        kind of GPU."""
        newer = (
            "" if self.level.endswith("a") else ", and newer ones, for which the driver takes PTX"
        )
        return f"GPUs of NVIDIA of {self.level}{newer}"

    def lower(self, kernel: Kernel) -> Module:
        return lower_launches(kernel, self.machine)

    def begin_apart(self) -> None:
        begin_apart()

    def assemble(self, module: Module, apart: bool = False) -> bytes:
        return assemble(module.text, self.level, apart)

    def assembly(self, module: Module, remarks: bool = False) -> str:
        return assembly(module.text, self.level)

    def load(self, binary: bytes, abi: Abi) -> KernelProgram:
        if self.device is None:
            here = ", ".join(map(str, devices()))
            why, cure = why_none()
            raise UnsupportedError(
                f"kernels for {self.name} do not run here",
                why=f"{here} has another compute capability" if here else why,
                cure="compile for 'nvidia'"
                if here
                else cure + "; or export the kernel and run it elsewhere",
            )
        return KernelProgram(self.device, binary, abi)

    def link(
        self, programs: Sequence[Program], plan: Plan, constants: Sequence[Any], arena: Any = None
    ) -> Program:
        """Launches in order, on the caller's stream."""
        kernel_programs = [program for program in programs if isinstance(program, KernelProgram)]
        assert len(kernel_programs) == len(programs), "programs are of this target"
        return LinkedProgram(kernel_programs, plan, constants, arena)

    def files(self, binary: bytes, abi: Abi, title: str) -> dict[str, bytes]:
        """PTX, and a cubin if there was a ptxas."""
        ptx, cubin = split_binary(binary)
        files = {f"{abi.entry}.ptx": ptx}
        if cubin:
            files[f"{abi.entry}.cubin"] = cubin
        return files

    def calling(self, abi: Abi) -> str:
        """The functions of the module in their order, with their sizes."""
        scalars = ", and scalars by value" if abi.scalars else ""
        assembler = find_ptxas(self.level)
        cubin = f"`{abi.entry}.cubin` is what {assembler} made of it"
        if assembler is None:
            cubin = f"the driver assembles it, as no ptxas was at hand ({missing(self.level)})"
        lines = [
            f"`{abi.entry}.ptx` is a module for {self.level} (cuModuleLoadData); {cubin}. Each of "
            f"its functions takes pointers to global memory{scalars}: {arguments_in_words(abi)}. "
            "Each pointer is a multiple of 16 bytes. Launch them in turn, on one stream; the "
            "shared memory is dynamic, and above 48 KiB has to be allowed first "
            "(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES):",
            "",
            "| function | grid | block | bytes of shared memory |",
            "| --- | --- | --- | --- |",
        ]
        for launch in abi.launches:
            lines.append(
                f"| `{launch.entry}` | {launch.groups} | {launch.items} | {launch.shared} |"
            )
        for launch in abi.launches:
            lines += _special(launch)
        return "\n".join([*lines, *host_in_words(abi)])


@cache
def _space(device: Device) -> GpuSpace:
    return GpuSpace(device)


def _special(launch: Launch) -> list[str]:
    """Further arguments and settings of a launch, as paragraphs."""
    lines = []
    if launch.cluster > 1:
        lines += [
            "",
            f"`{launch.entry}` is launched in clusters of {launch.cluster} "
            "(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).",
        ]
    if launch.maps:
        lines += [
            "",
            f"`{launch.entry}` takes, after the pointers, {len(launch.maps)} tensor maps by value "
            "(cuTensorMapEncodeTiled or Im2col; innermost dim first, strides in bytes):",
            "",
            *(f"- {TensorMap.from_text(launch_map.text)!r}" for launch_map in launch.maps),
        ]
    return lines


def nvidia_variants() -> tuple[str, ...]:
    """This machine's device, then the compute capabilities."""
    return ("", *nvidia.LEVELS)


@cache
def nvidia_target(variant: str) -> NvidiaTarget:
    """``""`` for the first GPU, or a compute capability such as ``sm_80``.

    Raises `DeviceError` where there is no GPU, or one older than all capabilities.
    """
    if not variant:
        device = find_device()
        level = level_of(device)
        machine = nvidia.reported(level, device.cores, device.shared)
        return NvidiaTarget("nvidia", machine, level, device)
    machine = nvidia.machine(variant)
    check_process()
    fitting = next((device for device in devices() if runs_on(variant, device)), None)
    return NvidiaTarget(f"nvidia:{variant}", machine, variant, fitting)


def level_of(device: Device) -> str:
    """The best compute capability for a device. Raises `DeviceError`."""
    fitting = [level for level in nvidia.LEVELS if runs_on(level, device)]
    if not fitting:
        raise DeviceError(
            f"there is no code for {device}",
            why="the least compute capability is " + nvidia.LEVELS[0],
            cure="use a newer GPU",
        )
    return max(fitting, key=_number)


def runs_on(level: str, device: Device) -> bool:
    """Whether a device runs code of a compute capability: the driver compiles the PTX of a lesser
    one, unless it is for one kind of GPU (``a``)."""
    major, minor = divmod(_number(level), 10)
    if level.endswith("a"):
        return device.capability == (major, minor)
    return device.capability >= (major, minor)


def _number(level: str) -> int:
    return int(level.removeprefix("sm_").removesuffix("a"))
