"""What tests need of the machine that they run on; those that lack it are skipped."""

from __future__ import annotations

import platform

import pytest

from skips import HARDWARE
from tilewright.targets.nvidia import device as nvidia
from tilewright.targets.spirv import device as spirv

_IS_X86 = platform.machine() in ("x86_64", "AMD64")
# A package brings OpenCL's device that is the processor itself, to x86-64 only.
_NO_OPENCL = (
    "no OpenCL device that takes SPIR-V: install tilewright[opencl]"
    if _IS_X86
    else f"{HARDWARE}no OpenCL device that takes SPIR-V"
)
_NO_NVIDIA = f"{HARDWARE}no NVIDIA GPU"

needs_opencl = pytest.mark.skipif(not spirv.devices(), reason=_NO_OPENCL)
needs_nvidia = pytest.mark.skipif(not nvidia.devices(), reason=_NO_NVIDIA)
# The devices that code runs on here.
HERE = tuple(name for name, of in (("spirv", spirv), ("nvidia", nvidia)) if of.devices())
needs_device = pytest.mark.skipif(not HERE, reason=_NO_OPENCL)
needs_x86 = pytest.mark.skipif(not _IS_X86, reason=f"{HARDWARE}runs x86 code")


# The targets of devices that tests run code on, as parameters.
OPENCL = pytest.param("spirv", marks=needs_opencl)
NVIDIA = pytest.param("nvidia", marks=needs_nvidia)
DEVICES = (OPENCL, NVIDIA)
# What queues run on.
QUEUES = ("x86", "interpreter", OPENCL, NVIDIA)


def need_device(target: str) -> None:
    """Skips the present test where ``target`` is of a device that is not here."""
    if target.startswith("spirv") and not spirv.devices():
        pytest.skip(_NO_OPENCL)
    if target == "nvidia" and not nvidia.devices():
        pytest.skip(_NO_NVIDIA)
