"""A driver that stands for NVIDIA's, without a GPU: memory is the host's, everything is done at
once, and what was asked for is written down. It says nothing of whether a GPU would do the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.engine import compile
from tilewright.lang.launch import Launches
from tilewright.queues.room import room_of
from tilewright.targets.nvidia import device as here
from tilewright.targets.nvidia import launch, memory, tensor_maps
from tilewright.targets.nvidia import target as targets


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_NOT_SUPPORTED = 801
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900


class Names:
    """Constants, each of which is its own name."""

    def __getattr__(self, name: str) -> str:
        return name


def _constants(prefix: str, **values: int) -> Any:
    return SimpleNamespace(**{f"CU_TENSOR_MAP_{prefix}_{name}": v for name, v in values.items()})


class _Config(SimpleNamespace):
    """Stands for the structures that a call fills in."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        result = _Config()
        setattr(self, name, result)
        return result


_c = ctypes
_LONGS, _WORDS, _INTS = (_c.POINTER(t) for t in (_c.c_uint64, _c.c_uint32, _c.c_int32))
_HEAD = (_c.c_int, _c.c_void_p, _c.c_int, _c.c_uint32, _c.c_void_p, _LONGS, _LONGS)
_TAIL = (_WORDS, _c.c_int, _c.c_int, _c.c_int, _c.c_int)
_TILED = _c.CFUNCTYPE(*_HEAD, _WORDS, *_TAIL)
_IM2COL = _c.CFUNCTYPE(*_HEAD, _INTS, _INTS, _c.c_uint32, _c.c_uint32, *_TAIL)


class Driver:
    """Stands for ``cuda.bindings.driver``: memory is the host's.

    ``kernels`` are what a launch does, by the function's name: it gets the addresses of the values
    of all parameters. ``failing`` says which functions give which error; ``calls`` are those that
    were made, ``maps`` the tensor maps that were asked for. ``version`` is the driver's.
    """

    CUresult = Status
    CUdevice_attribute = Names()
    CUfunction_attribute = Names()
    CUstream_flags = Names()
    CUevent_flags = Names()
    CUmemPool_attribute = Names()
    CUmemAllocationType = Names()
    CUmemAllocationHandleType = Names()
    CUmemLocationType = Names()
    CUdriverProcAddress_flags = Names()
    CUlaunchAttributeID = Names()
    CUmemPoolProps = _Config
    CUlaunchConfig = _Config
    CUlaunchAttribute = _Config
    cuuint64_t = int
    CUtensorMapDataType = _constants("DATA_TYPE", UINT8=0, FLOAT16=6, FLOAT32=7, BFLOAT16=9)
    CUtensorMapInterleave = _constants("INTERLEAVE", **{"NONE": 0, "16B": 1, "32B": 2})
    CUtensorMapSwizzle = _constants("SWIZZLE", **{"NONE": 0, "32B": 1, "64B": 2, "128B": 3})
    CUtensorMapL2promotion = _constants("L2_PROMOTION", NONE=0, L2_64B=1, L2_128B=2, L2_256B=3)
    CUtensorMapFloatOOBfill = _constants("FLOAT_OOB_FILL", NONE=0, NAN_REQUEST_ZERO_FMA=1)

    def __init__(self, **attributes: int) -> None:
        self.attributes = {
            "COMPUTE_CAPABILITY_MAJOR": 9,
            "COMPUTE_CAPABILITY_MINOR": 0,
            "MULTIPROCESSOR_COUNT": 132,
            "MAX_THREADS_PER_BLOCK": 1024,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
            "MEMORY_POOLS_SUPPORTED": 1,
        } | attributes
        self.failing: dict[str, Status] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.memory: dict[int, Any] = {}
        self.kernels: dict[str, Callable[[Any], None]] = {}
        self.maps: list[dict[str, Any]] = []
        self.version = 13000
        self.devices = 1
        self._handles = 100
        self._functions = {
            b"cuTensorMapEncodeTiled": _TILED(self._tiled),
            b"cuTensorMapEncodeIm2col": _IM2COL(self._im2col),
        }

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

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        """The calls of these functions, in order."""
        return [call for call in self.calls if call[0] in names]

    def cuGetErrorString(self, status: Status) -> tuple[Status, bytes]:  # noqa: N802
        return Status.CUDA_SUCCESS, status.name.lower().encode()

    def on_cuDriverGetVersion(self) -> int:  # noqa: N802
        return self.version

    def on_cuDeviceGetCount(self) -> int:  # noqa: N802
        return self.devices

    def on_cuDeviceGet(self, number: int) -> Any:  # noqa: N802
        """A handle that no other driver takes: what was left behind by this one, such as a stream
        that is dropped late, would end the process by NVIDIA's."""
        return self, number

    def on_cuDeviceGetName(self, size: int, handle: Any) -> bytes:  # noqa: N802
        return b"Some GPU\0\0\0"

    def on_cuDeviceGetAttribute(self, kind: str, handle: Any) -> int:  # noqa: N802
        return self.attributes[kind.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def on_cuDevicePrimaryCtxRetain(self, handle: Any) -> str:  # noqa: N802
        assert handle[0] is self, "a device of another driver"
        return "context"

    def on_cuModuleLoadData(self, image: bytes) -> bytes:  # noqa: N802
        return image

    def on_cuModuleGetFunction(self, module: bytes, name: bytes) -> str:  # noqa: N802
        return name.decode()

    def _handle(self, *_: Any) -> int:
        self._handles += 1
        return self._handles

    on_cuStreamCreate = on_cuEventCreate = on_cuMemPoolCreate = _handle  # noqa: N815

    def on_cuGetProcAddress(self, name: bytes, version: int, flags: Any) -> int:  # noqa: N802
        known = self._functions if self.version >= version else {}
        result = known.get(name)
        return (ctypes.cast(result, ctypes.c_void_p).value or 0) if result else 0

    # Memory.

    def on_cuMemAlloc(self, size: int) -> int:  # noqa: N802
        # As aligned as a GPU's.
        whole = ctypes.create_string_buffer(size + 256)
        address = -(-ctypes.addressof(whole) // 256) * 256
        self.memory[address] = whole
        return address

    def on_cuMemAllocFromPoolAsync(self, size: int, pool: int, stream: int) -> int:  # noqa: N802
        return self.on_cuMemAlloc(size)

    def on_cuMemFree(self, pointer: int) -> None:  # noqa: N802
        del self.memory[pointer]

    def on_cuMemFreeAsync(self, pointer: int, stream: int) -> None:  # noqa: N802
        del self.memory[pointer]

    def on_cuMemsetD8(self, pointer: int, value: int, size: int) -> None:  # noqa: N802
        ctypes.memset(pointer, value, size)

    def _copy(self, to: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(to, source, size)

    on_cuMemcpyHtoDAsync = on_cuMemcpyDtoHAsync = _copy  # noqa: N815

    # Launches.

    def on_cuLaunchKernel(self, function: str, *rest: Any) -> None:  # noqa: N802
        self._run(function, rest[-2])

    def on_cuLaunchKernelEx(self, config: Any, function: str, values: int, extra: int) -> None:  # noqa: N802
        self._run(function, values)

    def _run(self, function: str, values: int) -> None:
        kernel = self.kernels.get(function)
        if kernel is not None:
            kernel(lambda position: ctypes.c_void_p.from_address(values + 8 * position).value)

    # Tensor maps: what is written down is what came through C.

    def _tiled(self, place: int, *rest: Any) -> int:
        type_, rank, address, shape, strides, box, *tail = rest
        return self._mapped(place, rank, type_, address, shape, strides, tail, box=box[:rank])

    def _im2col(self, place: int, *rest: Any) -> int:
        type_, rank, address, shape, strides, lower, upper, channels, pixels, *tail = rest
        return self._mapped(
            *(place, rank, type_, address, shape, strides, tail),
            lower=lower[: rank - 2],
            upper=upper[: rank - 2],
            channels=channels,
            pixels=pixels,
        )

    def _mapped(
        self,
        place: int,
        rank: int,
        type_: int,
        address: int,
        shape: Any,
        strides: Any,
        tail: list[Any],
        **box: Any,
    ) -> int:
        if "cuTensorMapEncode" in self.failing:
            return int(self.failing["cuTensorMapEncode"])
        steps, *modes = tail
        self.maps.append(
            {
                "place": place,
                "type": type_,
                "address": address,
                "shape": shape[:rank],
                "strides": strides[: rank - 1],
                **box,
                "steps": steps[:rank],
                "modes": modes,
            }
        )
        # All bits, but for the first word: the address.
        ctypes.memset(place, 0xFF, 128)
        ctypes.c_uint64.from_address(place).value = address
        return 0


def forget() -> None:
    """Drops what is known of devices, what was loaded for them, and what is kept of their memory: a
    GPU that has the same attributes is asked for the same kernels."""
    compile.forget()
    for cached in (
        *(here._search, here._context, here._first_process, here.driver_version),
        *(memory._pool, tensor_maps._function, targets.nvidia_target, targets._space, room_of),
    ):
        cached.cache_clear()


@contextmanager
def standing_in(monkeypatch: pytest.MonkeyPatch, driver: Any) -> Iterator[Any]:
    """``driver`` instead of what ``cuda-bindings`` has."""
    for module in (here, launch, memory, tensor_maps):
        monkeypatch.setattr(module, "load_cuda", lambda: driver)
    forget()
    try:
        with _functions_anew():
            yield driver
    finally:
        forget()


@contextmanager
def _functions_anew() -> Iterator[None]:
    """Kernels in Python, which live as long as the process, keep nothing that was loaded inside,
    and take nothing that was loaded before."""
    before: dict[Launches, Any] = {}
    code = Launches._code

    def anew(self: Launches, decided: Any, launch: Any) -> Any:
        if self not in before:
            before[self], self._compiled = self._compiled, {}
        return code(self, decided, launch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Launches, "_code", anew)
        try:
            yield
        finally:
            for launches, compiled in before.items():
                launches._compiled = compiled


def aligned(shape: tuple[int, ...], dtype: Any, skip: int = 0) -> np.ndarray[Any, Any]:
    """Zeros at a multiple of 16 bytes, or ``skip`` bytes behind."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 32, np.uint8)
    start = -raw.ctypes.data % 16 + skip
    return raw[start : start + size].view(dtype).reshape(shape)


class Interface:
    """Has ``__cuda_array_interface__`` only. The memory is the host's."""

    def __init__(self, array: np.ndarray[Any, Any], device: int = 0, **changes: Any) -> None:
        self.array = array
        self.device = SimpleNamespace(id=device)
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, not array.flags.writeable),
            "strides": array.strides,
            "version": 3,
            "stream": None,
        } | changes
