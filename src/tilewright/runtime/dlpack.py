"""Reading a DLPack capsule: the C structs of https://dmlc.github.io/dlpack, versions 0 and 1.

numpy's own `from_dlpack` knows neither bf16 nor fp8.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from tilewright.runtime.array_info import MOST_DIMS

_NAMES = {
    (0, 8): "s8",
    (0, 16): "s16",
    (0, 32): "s32",
    (0, 64): "s64",
    (1, 8): "u8",
    (1, 16): "u16",
    (1, 32): "u32",
    (1, 64): "u64",
    (2, 16): "f16",
    (2, 32): "f32",
    (2, 64): "f64",
    (4, 16): "bf16",
    (6, 8): "bool",
    (10, 8): "f8_e4m3",
    (12, 8): "f8_e5m2",
}

# Memory that the CPU can address: kDLCPU, kDLCUDAHost (pinned).
HOST_DEVICES = (1, 3)
# Memory that NVIDIA GPUs can address: kDLCUDA, kDLCUDAManaged.
CUDA_DEVICES = (2, 13)

# Flags of a versioned capsule. An array does not see what is written to its copy.
_READ_ONLY, _IS_COPIED = 1, 2


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_size_t),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


@dataclass(frozen=True, slots=True)
class DLPackTensor:
    """The contents of a capsule. ``strides`` is None for C order; ``dtype`` is a name in `dtypes`,
    or None for a type that it lacks; ``read_only`` is None for a capsule before version 1, which
    has no flags. ``device`` is the kind of device. The memory lives as long as ``capsule``.
    """

    pointer: int
    dtype: str | None
    type_code: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    read_only: bool | None
    device: int
    capsule: Any


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def read(array: Any, stream: int | None = None) -> DLPackTensor:
    """The memory of ``array``, which has `__dlpack__`; the capsule is not consumed.

    ``stream`` (a handle) is where the memory will be used: the array's library makes it wait for
    its own work. Passes on what `__dlpack__` raises; `BufferError` for an unknown version or an
    impossible capsule.
    """
    options = {} if stream is None else {"stream": stream}
    try:
        capsule = array.__dlpack__(max_version=(1, 0), copy=False, **options)
    except TypeError:  # from before version 1 of the protocol
        capsule = array.__dlpack__(**options)
    read_only = None
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise BufferError(f"DLPack version {versioned.major} is unknown")
        read_only = bool(versioned.flags & (_READ_ONLY | _IS_COPIED))
        tensor = versioned.tensor
    elif _is_valid(capsule, b"dltensor"):
        # DLManagedTensor starts with the tensor.
        tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    else:
        raise BufferError("__dlpack__ gave something that is not a DLPack capsule")
    if not 0 <= tensor.ndim <= MOST_DIMS:
        raise BufferError(f"the capsule has {tensor.ndim} dims")
    if tensor.ndim and not tensor.shape:
        raise BufferError("the capsule has no shape")
    name = _NAMES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return DLPackTensor(
        # A null pointer stays null, whatever the offset.
        pointer=tensor.data and tensor.data + tensor.byte_offset,
        dtype=name,
        type_code=f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes",
        shape=tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else (),
        strides=tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else None,
        read_only=read_only,
        device=tensor.device_type,
        capsule=capsule,
    )
