"""A GPU that is the interpreter: the stand-in driver, whose memory lies at addresses that the host
cannot reach, and whose launches run the kernels in the IR as they were lowered. So what runs on a
GPU's queues is right, or wrong, by what the host does."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from nvidia_driver import Driver, standing_in
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel, Param
from tilewright.targets.interpreter.program import InterpretedProgram
from tilewright.targets.llvm.module import Module
from tilewright.targets.nvidia.target import NvidiaTarget

# Added to addresses of the host: no memory of a process lies there.
_FAR = 1 << 47


class Interpreting(Driver):
    """A driver whose device interprets kernels. A module is a kernel's text."""

    def on_cuModuleLoadData(self, image: bytes) -> list[Any]:  # noqa: N802
        return [image.rstrip(b"\0").decode()]

    def on_cuModuleGetFunction(self, module: list[Any], name: bytes) -> Any:  # noqa: N802
        """The first of its functions does all that the kernel does."""
        first = len(module) == 1
        module.append(name)
        if not first:
            return None
        text = module[0]
        return parse_kernel(text), InterpretedProgram(text)

    # Memory.

    def on_cuMemAlloc(self, size: int) -> int:  # noqa: N802
        return super().on_cuMemAlloc(size) + _FAR

    def on_cuMemFree(self, pointer: int) -> None:  # noqa: N802
        super().on_cuMemFree(pointer - _FAR)

    def on_cuMemFreeAsync(self, pointer: int, stream: int) -> None:  # noqa: N802
        self.on_cuMemFree(pointer)

    def on_cuMemsetD8(self, pointer: int, value: int, size: int) -> None:  # noqa: N802
        ctypes.memset(pointer - _FAR, value, size)

    def on_cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:  # noqa: N802
        ctypes.memmove(to - _FAR, source, size)

    def on_cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int) -> None:  # noqa: N802
        ctypes.memmove(to, source - _FAR, size)

    def on_cuMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:  # noqa: N802
        ctypes.memmove(to - _FAR, source - _FAR, size)

    def on_cuMemcpyAsync(self, to: int, source: int, size: int, stream: int) -> None:  # noqa: N802
        """Of addresses that say where they lie."""
        ctypes.memmove(*(at - _FAR if at >= _FAR else at for at in (to, source)), size)

    def on_cuMemsetD8Async(self, to: int, value: int, count: int, stream: int) -> None:  # noqa: N802
        self._set(to, value, count, "u1")

    def on_cuMemsetD16Async(self, to: int, value: int, count: int, stream: int) -> None:  # noqa: N802
        self._set(to, value, count, "u2")

    def on_cuMemsetD32Async(self, to: int, value: int, count: int, stream: int) -> None:  # noqa: N802
        self._set(to, value, count, "u4")

    def _set(self, to: int, value: int, count: int, kind: str) -> None:
        raw = (ctypes.c_uint8 * (count * int(kind[1]))).from_address(to - _FAR)
        np.frombuffer(raw, kind)[:] = value

    # Launches.

    def _run(self, function: Any, values: int) -> None:
        if not function:
            return
        kernel, program = function
        places = (ctypes.c_void_p * len(kernel.params)).from_address(values)
        slots = [ctypes.c_uint64.from_address(place).value for place in places]
        program.run([*map(_passed, kernel.params, slots)], 1)


def _passed(param: Any, slot: int) -> Any:
    if isinstance(param, Param):
        assert slot >= _FAR, f"{param.name} is not in the device's memory"
        return slot - _FAR
    return np.frombuffer(slot.to_bytes(8, "little"), param.dtype.numpy)[0].item()


@contextmanager
def interpreting_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interpreting]:
    """A GPU for the target ``nvidia``; in a test with a cache of its own."""
    texts: dict[str, str] = {}
    lower = NvidiaTarget.lower

    def lowered(self: NvidiaTarget, kernel: Kernel) -> Module:
        module = lower(self, kernel)
        texts[module.text] = to_text(kernel)
        return module

    def assembled(self: NvidiaTarget, module: Module, apart: bool = False) -> bytes:
        return texts[module.text].encode() + b"\0"

    monkeypatch.setattr(NvidiaTarget, "lower", lowered)
    monkeypatch.setattr(NvidiaTarget, "assemble", assembled)
    driver = Interpreting()
    with standing_in(monkeypatch, driver):
        yield driver
