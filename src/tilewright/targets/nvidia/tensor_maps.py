"""Tensor maps, encoded by the driver for the addresses of a call.

The driver's functions are called through ctypes, not through ``cuda-bindings``: the latter keeps a
map at a multiple of 16 bytes, but the functions ask for 64 and may write it by aligned
instructions.

Source: NVIDIA, CUDA Driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from tilewright.dtypes import (
    DType,
    bf16,
    boolean,
    f8_e4m3,
    f8_e5m2,
    f16,
    f32,
    f64,
    s8,
    s16,
    s32,
    s64,
    tf32,
    u8,
    u16,
    u32,
    u64,
)
from tilewright.errors import DeviceError
from tilewright.machines.nvidia.tensor_map import MAP_ALIGNMENT, MAP_BYTES, TensorMap, Tile
from tilewright.targets.nvidia.device import ask, check_status, driver_version, load_cuda

_TYPES: dict[DType, str] = {
    **dict.fromkeys((u8, s8, boolean, f8_e4m3, f8_e5m2), "UINT8"),
    **dict.fromkeys((s16, u16), "UINT16"),
    s32: "INT32",
    u32: "UINT32",
    s64: "INT64",
    u64: "UINT64",
    f16: "FLOAT16",
    bf16: "BFLOAT16",
    f32: "FLOAT32",
    tf32: "TFLOAT32",
    f64: "FLOAT64",
}
# The first release of CUDA with these functions.
_RELEASE = 12000
# Drivers before 13.2 mark tensors of fewer bytes as large, and the unit then computes wrong
# addresses outside them: bit 21 of the second word has to be cleared (as in NVIDIA's CUTLASS and in
# Triton).
_FAULTY_DRIVER, _FAULTY_BYTES, _FAULTY_BIT = 13010, 131072, 1 << 21
_MOST_KEPT = 64

_Ints, _Words, _Longs = (
    ctypes.POINTER(type_) for type_ in (ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64)
)
_HEAD = (
    *(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p),
    *(_Longs, _Longs),
)
_TAIL = (_Words, *(ctypes.c_int,) * 4)
_TILED = ctypes.CFUNCTYPE(*_HEAD, _Words, *_TAIL)
_IM2COL = ctypes.CFUNCTYPE(*_HEAD, _Ints, _Ints, ctypes.c_uint32, ctypes.c_uint32, *_TAIL)


class EncodedMap:
    """A map, with its encoded values in memory for the latest addresses."""

    def __init__(self, tensor: TensorMap) -> None:
        self.tensor = tensor
        self._encoded: dict[int, Any] = {}

    def place(self, pointer: int) -> tuple[int, Any]:
        """The address of the map for the argument at ``pointer``, and its memory, to be kept alive.

        Raises `DeviceError` if the driver refuses it, or is too old.
        """
        memory = self._encoded.get(pointer)
        if memory is None:
            memory = _encode(self.tensor, pointer + self.tensor.offset)
            if len(self._encoded) >= _MOST_KEPT:
                self._encoded.clear()
            self._encoded[pointer] = memory
        return _aligned(memory), memory


def _aligned(memory: Any) -> int:
    """The address of a map in memory from `_encode`."""
    return -(-ctypes.addressof(memory) // MAP_ALIGNMENT) * MAP_ALIGNMENT


def _encode(tensor: TensorMap, address: int) -> Any:
    """Memory with the map of a tensor at ``address``."""
    cuda = load_cuda()
    memory = (ctypes.c_uint8 * (MAP_BYTES + MAP_ALIGNMENT))()

    def constant(kind: str, prefix: str, name: str) -> int:
        return int(getattr(getattr(cuda, kind), f"CU_TENSOR_MAP_{prefix}_{name}"))

    type_ = constant("CUtensorMapDataType", "DATA_TYPE", _TYPES[tensor.dtype])
    promotion = f"L2_{tensor.promotion}B" if tensor.promotion else "NONE"
    head = (
        _aligned(memory),
        type_,
        len(tensor.shape),
        address,
        _array(ctypes.c_uint64, tensor.shape),
        _array(ctypes.c_uint64, tensor.strides),
    )
    tail = (
        _array(ctypes.c_uint32, tensor.steps),
        constant("CUtensorMapInterleave", "INTERLEAVE", _bytes(tensor.interleave)),
        constant("CUtensorMapSwizzle", "SWIZZLE", _bytes(tensor.swizzle)),
        constant("CUtensorMapL2promotion", "L2_PROMOTION", promotion),
        constant(
            "CUtensorMapFloatOOBfill",
            "FLOAT_OOB_FILL",
            "NAN_REQUEST_ZERO_FMA" if tensor.nan else "NONE",
        ),
    )
    box = tensor.box
    if isinstance(box, Tile):
        name = "cuTensorMapEncodeTiled"
        status = _function(name, _TILED)(*head, _array(ctypes.c_uint32, box.sizes), *tail)
    else:
        name = "cuTensorMapEncodeIm2col"
        corners = [_array(ctypes.c_int32, corner) for corner in (box.lower, box.upper)]
        status = _function(name, _IM2COL)(*head, *corners, box.channels, box.pixels, *tail)
    check_status(cuda.CUresult(status), name, str(tensor))
    if driver_version() <= _FAULTY_DRIVER and tensor.bytes < _FAULTY_BYTES:
        words = (ctypes.c_uint64 * 2).from_address(_aligned(memory))
        words[1] &= ~_FAULTY_BIT
    return memory


def _array(type_: Any, values: Sequence[int]) -> Any:
    # A tensor of one dim has no strides, but the driver requires an address.
    return (type_ * max(len(values), 1))(*values)


def _bytes(count: int) -> str:
    return f"{count}B" if count else "NONE"


@cache
def _function(name: str, kind: Any) -> Any:
    """The driver's function. Raises `DeviceError` for a driver without it."""
    flags = load_cuda().CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
    answer = ask("cuGetProcAddress", name.encode(), _RELEASE, flags)
    address = int(answer[0] if isinstance(answer, tuple) else answer)
    if not address:
        raise DeviceError(
            "NVIDIA's driver has no tensor maps",
            where=name,
            why="the driver is older than CUDA 12.0",
            cure="update the driver; `nvidia-smi` shows its version",
        )
    return kind(address)
