"""NVIDIA GPUs as the driver reports them, and programs on them: on a driver that stands for it, and
the errors where there is none. Nothing here runs on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.dtypes import f32
from tilewright.errors import DeviceError
from tilewright.targets.llvm.module import Launch
from tilewright.targets.nvidia import device as here
from tilewright.targets.nvidia import target as targets
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


class Status(Enum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class Names:
    """Constants, each of which is its own name."""

    def __getattr__(self, name: str) -> str:
        return name


class Driver:
    """Stands for ``cuda.bindings.driver``: memory is the host's, a launch doubles the last array.

    ``failing`` says which functions give which error; ``calls`` are those that were made.
    """

    CUresult = Status
    CUdevice_attribute = Names()
    CUfunction_attribute = Names()
    CUstream_flags = Names()

    def __init__(self, **attributes: int) -> None:
        self.attributes = {
            "COMPUTE_CAPABILITY_MAJOR": 9,
            "COMPUTE_CAPABILITY_MINOR": 0,
            "MULTIPROCESSOR_COUNT": 132,
            "MAX_THREADS_PER_BLOCK": 1024,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
        } | attributes
        self.failing: dict[str, Status] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.memory: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, *arguments))
            if name in self.failing:
                return (self.failing[name], None)
            result = getattr(self, f"on_{name}", lambda *_: None)(*arguments)
            return (Status.CUDA_SUCCESS, *(() if result is None else (result,)))

        if not name.startswith("cu"):
            raise AttributeError(name)
        return call

    def cuGetErrorString(self, status: Status) -> tuple[Status, bytes]:  # noqa: N802
        return Status.CUDA_SUCCESS, status.name.lower().encode()

    def on_cuDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def on_cuDeviceGet(self, number: int) -> int:  # noqa: N802
        return number

    def on_cuDeviceGetName(self, size: int, handle: int) -> bytes:  # noqa: N802
        return b"Some GPU\0\0\0"

    def on_cuDeviceGetAttribute(self, kind: str, handle: int) -> int:  # noqa: N802
        return self.attributes[kind.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def on_cuDevicePrimaryCtxRetain(self, handle: int) -> str:  # noqa: N802
        return "context"

    def on_cuModuleLoadData(self, image: bytes) -> bytes:  # noqa: N802
        return image

    def on_cuModuleGetFunction(self, module: bytes, name: bytes) -> str:  # noqa: N802
        return name.decode()

    def on_cuStreamCreate(self, flags: str) -> str:  # noqa: N802
        return "stream"

    def on_cuMemAlloc(self, size: int) -> int:  # noqa: N802
        memory = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def on_cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: str) -> None:  # noqa: N802
        ctypes.memmove(to, source, size)

    def on_cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: str) -> None:  # noqa: N802
        ctypes.memmove(to, source, size)

    def on_cuLaunchKernel(self, function: str, *rest: Any) -> None:  # noqa: N802
        places = (ctypes.c_void_p * 3).from_address(rest[-2])
        x, y, _ = (ctypes.c_void_p.from_address(place or 0).value for place in places)
        for i in range(4):
            before = (ctypes.c_float * 4).from_address(x or 0)[i]
            (ctypes.c_float * 4).from_address(y or 0)[i] += before


def _forget() -> None:
    for each in (here._found, here._context, here._first_process, targets.nvidia_target):
        each.cache_clear()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()
    monkeypatch.setattr(here, "load_cuda", lambda: made)
    monkeypatch.setattr("tilewright.targets.nvidia.driver.load_cuda", lambda: made)
    _forget()
    yield made
    _forget()


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
    made = program()
    for count in (1, 2):
        made.run([ctypes.addressof(x), ctypes.addressof(y)], 1)
        assert list(y) == [(1 + 2 * count) * value for value in (1, 2, 3, 4)]
    launches = [call[1:9] for call in driver.calls if call[0] == "cuLaunchKernel"][:2]
    assert launches == [("k_0", 3, 1, 1, 32, 1, 1, 100), ("k_1", 1, 1, 1, 64, 1, 1, 50_000)]
    names = [call[0] for call in driver.calls]
    # Memory is kept from call to call; only what is written comes back.
    assert names.count("cuMemAlloc") == 3
    assert names.count("cuMemcpyHtoDAsync") == 4
    assert names.count("cuMemcpyDtoHAsync") == 2
    assert names.count("cuCtxPushCurrent") == names.count("cuCtxPopCurrent")
    # Only the second launch is above what every launch may have.
    allowed = [call[1:] for call in driver.calls if call[0] == "cuFuncSetAttribute"]
    assert allowed == [("k_1", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 50_000)]
    bound = made.bound([ctypes.addressof(x), ctypes.addressof(y)], 1)
    bound()
    assert list(y) == [7, 14, 21, 28]


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
    assert "update it" in str(raised.value)


def test_a_device_that_fails(driver: Driver) -> None:
    made = program()
    driver.failing["cuStreamSynchronize"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    x = (ctypes.c_float * 4)()
    with pytest.raises(DeviceError) as raised:
        made.run([ctypes.addressof(x)] * 2, 1)
    assert "k failed on Some GPU" in str(raised.value)
    assert "x: f32[4], y: f32[4]" in str(raised.value)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(raised.value)
    driver.failing = {"cuMemAlloc": Status.CUDA_ERROR_OUT_OF_MEMORY}
    with pytest.raises(DeviceError, match="if memory ran out, choose a smaller problem"):
        made.run([ctypes.addressof(x)] * 2, 1)


def test_workgroups_that_are_too_large(driver: Driver) -> None:
    driver.attributes["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"] = 49152
    with pytest.raises(DeviceError, match="needs workgroups of 50000 bytes of shared memory"):
        program()


def test_the_child_of_a_fork(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    made = program()
    monkeypatch.setattr(here.os, "getpid", lambda: -1)
    with pytest.raises(DeviceError, match="CUDA was in use when this process was forked"):
        made.run([], 1)
