"""What tests need of the machine that they run on; those that lack it are skipped."""

from __future__ import annotations

import platform

import pytest

from skips import HARDWARE
from tilewright.targets.spirv.device import devices

_IS_X86 = platform.machine() in ("x86_64", "AMD64")
# A package brings OpenCL's device that is the processor itself, to x86-64 only.
_NO_OPENCL = (
    "no OpenCL device that takes SPIR-V: install tilewright[opencl]"
    if _IS_X86
    else f"{HARDWARE}no OpenCL device that takes SPIR-V"
)

needs_opencl = pytest.mark.skipif(not devices(), reason=_NO_OPENCL)
needs_x86 = pytest.mark.skipif(not _IS_X86, reason=f"{HARDWARE}runs x86 code")


def need_device(target: str) -> None:
    """Skips the present test where ``target`` is of OpenCL, and there is no device."""
    if target.startswith("spirv") and not devices():
        pytest.skip(_NO_OPENCL)
