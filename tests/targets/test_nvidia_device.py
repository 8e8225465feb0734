"""NVIDIA GPUs as the driver reports them, and programs on them: on a driver that stands for it, and
the errors where there is none. Nothing here runs on a GPU.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from nvidia_driver import Driver, Status, standing_in
from tilewright.dtypes import f32
from tilewright.errors import DeviceError, UnsupportedError
from tilewright.queues.room import room_of
from tilewright.targets.llvm.module import Launch
from tilewright.targets.nvidia import device as here
from tilewright.targets.nvidia.driver import KernelProgram
from tilewright.targets.program import Abi, Parameter
from tilewright.targets.registry import find_target

BINARY = b".version 7.0\0\x7fELF"
ABI = Abi(
    "k",
    (Parameter("x", f32, (4,), "in", 16), Parameter("y", f32, (4,), "inout", 16)),
    (64,),
    (Launch("k_0", 3, 32, 100), Launch("k_1", 1, 64, 50_000)),
)


def doubled(value: Callable[[int], int]) -> None:
    """y += x, on four elements each."""
    x, y = ((ctypes.c_float * 4).from_address(value_at(value(i))) for i in (0, 1))
    for i in range(4):
        y[i] += x[i]


def value_at(place: int) -> int:
    return ctypes.c_void_p.from_address(place).value or 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    result = Driver()
    result.kernels |= {"k_0": doubled, "k_1": doubled}
    with standing_in(monkeypatch, result):
        yield result


# What one driver leaves to the next.


def test_nothing_of_one_driver_reaches_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NVIDIA's would end the process, which may come after one that stands for it."""
    with standing_in(monkeypatch, Driver()):
        kernel = tw.compile(tw.elementwise("4", "relu"), "nvidia")
        kernel(np.ones(4, np.float32))
        kept = room_of("nvidia").empty(4, f32)
        device = here.find_device()
        loaded = kernel.code.device
    with standing_in(monkeypatch, Driver()) as other:
        assert here.find_device() != device
        again = tw.compile(tw.elementwise("4", "relu"), "nvidia")
        assert again.code.device is not loaded
        assert room_of("nvidia").empty(4, f32).ctypes.data in other.memory
        other.calls.clear()
        del kernel, kept, loaded
        gc.collect()
        assert not other.named("cuStreamDestroy", "cuModuleUnload", "cuMemFree")


# No device.


def test_without_cuda_bindings(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "load_cuda", lambda: None)
    with pytest.raises(DeviceError) as raised:
        find_target("nvidia")
    assert str(raised.value) == (
        "there is no NVIDIA GPU\n"
        "  why: cuda-bindings is not installed\n"
        "  cure: pip install 'tilewright[nvidia]', and NVIDIA's driver"
    )
    assert not find_target("nvidia:sm_80").runs_here


def test_without_a_driver(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise RuntimeError("libcuda.so is not there")

    monkeypatch.setattr(here, "load_cuda", lambda: SimpleNamespace(cuInit=missing))
    with pytest.raises(DeviceError, match=r"libcuda\.so is not there"):
        find_target("nvidia")


def test_without_a_device(driver: Driver) -> None:
    driver.failing["cuInit"] = Status.CUDA_ERROR_NO_DEVICE
    with pytest.raises(DeviceError, match="CUDA_ERROR_NO_DEVICE: cuda_error_no_device"):
        find_target("nvidia")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"version": 11040},
            "there is no NVIDIA GPU\n  why: the driver is for CUDA 11.4, older than 12.0\n"
            "  cure: install or update the driver; `nvidia-smi` shows it",
        ),
        (
            {"devices": 0},
            "there is no NVIDIA GPU\n  why: the driver finds no device\n  cure: look for it with "
            "`nvidia-smi`; CUDA_VISIBLE_DEVICES hides those that it does not name",
        ),
        (
            {"failing": {"cuInit": Status.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH}},
            "there is no NVIDIA GPU\n  why: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: "
            "cuda_error_system_driver_mismatch\n"
            "  cure: install or update the driver; `nvidia-smi` shows it",
        ),
    ],
)
def test_why_there_is_no_device(driver: Driver, change: dict[str, Any], text: str) -> None:
    for name, value in change.items():
        setattr(driver, name, value)
    with pytest.raises(DeviceError) as raised:
        find_target("nvidia")
    assert str(raised.value) == text
    with pytest.raises(UnsupportedError, match="or export the kernel and run it elsewhere"):
        find_target("nvidia:sm_80").load(BINARY, ABI)


def test_a_device_of_another_capability(driver: Driver) -> None:
    with pytest.raises(UnsupportedError) as raised:
        find_target("nvidia:sm_100a").load(BINARY, ABI)
    assert str(raised.value) == (
        "kernels for nvidia:sm_100a do not run here\n"
        "  why: Some GPU (compute capability 9.0) has another compute capability\n"
        "  cure: compile for 'nvidia'"
    )


def test_a_function_that_an_old_driver_lacks(driver: Driver) -> None:
    with pytest.raises(DeviceError, match="install or update the driver"):
        here.ask("sing")


# Which device, and code for which capability.


def test_the_device_at_hand(driver: Driver) -> None:
    target = find_target("nvidia")
    assert target.runs_here
    assert target.place == "runs on Some GPU (compute capability 9.0)"
    assert (target.machine.name, target.machine.cores) == ("nvidia-sm_90a", 132)
    assert find_target("nvidia:sm_80").runs_here
    assert not find_target("nvidia:sm_100a").runs_here


@pytest.mark.parametrize(
    ("capability", "level"),
    [((7, 0), "sm_70"), ((8, 6), "sm_80"), ((10, 0), "sm_100a"), ((12, 0), "sm_89")],
)
def test_the_best_code_for_a_device(
    driver: Driver, capability: tuple[int, int], level: str
) -> None:
    names = ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR")
    driver.attributes |= dict(zip(names, capability, strict=True))
    assert find_target("nvidia").machine.name == f"nvidia-{level}"


def test_a_device_that_is_too_old(driver: Driver) -> None:
    driver.attributes["COMPUTE_CAPABILITY_MAJOR"] = 6
    with pytest.raises(DeviceError, match="there is no code for Some GPU"):
        find_target("nvidia")


# Programs.


def program(binary: bytes = BINARY, abi: Abi = ABI) -> KernelProgram:
    return KernelProgram(here.find_device(), binary, abi)


def test_a_call(driver: Driver) -> None:
    x, y = ((ctypes.c_float * 4)(1, 2, 3, 4) for _ in range(2))
    result = program()
    for count in (1, 2):
        result.run([ctypes.addressof(x), ctypes.addressof(y)], 1)
        assert list(y) == [(1 + 2 * count) * value for value in (1, 2, 3, 4)]
    launches = [call[1:9] for call in driver.calls if call[0] == "cuLaunchKernel"][:2]
    assert launches == [("k_0", 3, 1, 1, 32, 1, 1, 100), ("k_1", 1, 1, 1, 64, 1, 1, 50_000)]
    names = [call[0] for call in driver.calls]
    # Two arrays and a workspace, in the order of the stream; only what is written comes back.
    taken = [call[1:] for call in driver.named("cuMemAllocFromPoolAsync")]
    assert [size for size, _, _ in taken] == [16, 16, 64] * 2
    assert names.count("cuMemFreeAsync") == 6
    assert not driver.memory
    (stream,) = {stream for _, _, stream in taken}
    assert {call[1] for call in driver.named("cuStreamSynchronize")} == {stream}
    assert names.count("cuMemPoolCreate") == names.count("cuStreamCreate") == 1
    assert names.count("cuMemcpyHtoDAsync") == 4
    assert names.count("cuMemcpyDtoHAsync") == 2
    assert names.count("cuCtxPushCurrent") == names.count("cuCtxPopCurrent")
    # Only the second launch is above what every launch may have.
    allowed = [call[1:] for call in driver.calls if call[0] == "cuFuncSetAttribute"]
    assert allowed == [("k_1", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 50_000)]
    bound = result.bound([ctypes.addressof(x), ctypes.addressof(y)], 1)
    bound()
    assert list(y) == [7, 14, 21, 28]
    assert len(driver.named("cuMemAlloc")) == 3
    del bound
    assert not driver.memory


def test_a_device_without_pools(driver: Driver) -> None:
    driver.attributes["MEMORY_POOLS_SUPPORTED"] = 0
    x, y = ((ctypes.c_float * 4)(1, 2, 3, 4) for _ in range(2))
    program().run([ctypes.addressof(x), ctypes.addressof(y)], 1)
    assert list(y) == [3, 6, 9, 12]
    assert len(driver.named("cuMemAlloc")) == len(driver.named("cuMemFree")) == 3
    assert not driver.memory and not driver.named("cuMemPoolCreate", "cuMemFreeAsync")


def test_the_driver_assembles_what_the_cubin_is_not_for(driver: Driver) -> None:
    program()
    program(b".version 7.0\0")
    images = [call[1] for call in driver.calls if call[0] == "cuModuleLoadData"]
    assert images == [b"\x7fELF", b".version 7.0\0"]
    driver.failing["cuModuleLoadData"] = Status.CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    with pytest.raises(DeviceError) as raised:
        program()
    assert "does not take the code of k" in str(raised.value)
    assert "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" in str(raised.value)
    assert "if its driver, for CUDA 13.0, is too old for the PTX, update it" in str(raised.value)


def test_a_device_that_fails(driver: Driver) -> None:
    result = program()
    driver.failing["cuStreamSynchronize"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    x = (ctypes.c_float * 4)()
    with pytest.raises(DeviceError) as raised:
        result.run([ctypes.addressof(x)] * 2, 1)
    assert "k failed on Some GPU" in str(raised.value)
    assert "x: f32[4], y: f32[4]" in str(raised.value)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(raised.value)
    assert "start the process again, as the device forgets all of it" in str(raised.value)
    assert not driver.memory
    # The stream of a call that failed is not used again.
    driver.failing = {}
    result.run([ctypes.addressof(x)] * 2, 1)
    assert len(driver.named("cuStreamCreate")) == 2


@pytest.mark.parametrize(
    ("function", "status", "cure"),
    [
        ("cuMemAllocFromPoolAsync", Status.CUDA_ERROR_OUT_OF_MEMORY, "choose a smaller problem"),
        ("cuMemPoolCreate", Status.CUDA_ERROR_NOT_SUPPORTED, "install or update the driver"),
        ("cuLaunchKernel", Status.CUDA_ERROR_INVALID_HANDLE, "pass a stream of this device"),
        (
            "cuStreamSynchronize",
            Status.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            "while a graph is captured, pass arrays on the device only",
        ),
    ],
)
def test_what_to_do_about_an_error(
    driver: Driver, function: str, status: Status, cure: str
) -> None:
    result = program()
    driver.failing[function] = status
    x = (ctypes.c_float * 4)()
    with pytest.raises(DeviceError) as raised:
        result.run([ctypes.addressof(x)] * 2, 1)
    assert f"why: {function}: {status.name}" in str(raised.value)
    assert f"cure: {cure}" in str(raised.value)
    assert not driver.memory


def test_workgroups_that_are_too_large(driver: Driver) -> None:
    driver.attributes["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"] = 49152
    with pytest.raises(DeviceError, match="needs workgroups of 50000 bytes of shared memory"):
        program()


def test_the_child_of_a_fork(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    result = program()
    monkeypatch.setattr(here.os, "getpid", lambda: -1)
    with pytest.raises(DeviceError, match="CUDA was in use when this process was forked"):
        result.run([], 1)
