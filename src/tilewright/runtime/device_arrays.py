"""Arrays in a GPU's memory, and the streams that they are used on. Nothing is copied.

`describe_resident` takes torch tensors, and whatever has ``__cuda_array_interface__`` or DLPack;
`stream_handle` takes the streams of the same libraries. None of them is imported from here.

Source: Numba, "CUDA Array Interface (Version 3)"; the Python array API standard on ``__dlpack__``;
NVIDIA, cuda-core, "CUDA stream protocol".
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import ArgumentError
from tilewright.runtime import dlpack
from tilewright.runtime.array_info import ArrayInfo, contiguous, element_type
from tilewright.runtime.arrays import ArraySpec, describe_capsule, dlpack_device, faulty, has
from tilewright.runtime.tensors import describe_tensor, grad_is_recorded, is_torch

# CUDA's handle of the stream that all libraries share, and that others wait for.
DEFAULT_STREAM = 1


@dataclass(frozen=True, slots=True)
class Resident:
    """An array on device ``device``. Its library works on it in the order of ``stream`` (a handle);
    None where it does not say, and then it made ``waiting`` wait for what it did."""

    info: ArrayInfo
    device: int
    stream: int | None = None
    waiting: int | None = None


def describe_resident(array: Any, name: str, stream: int | None = None) -> Resident | None:
    """``array``, if it lies in a GPU's memory; None for anything else.

    ``stream`` is where it will be used, unless that is still to be found out: a library that has it
    through DLPack only makes that stream wait for what it does to the array, or else the default
    one. Raises `ArgumentError`, which calls it ``name``, for one that says nonsense of itself.
    """
    if not is_resident(array, name):
        return None
    if is_torch(array):
        info = describe_tensor(array, name, "cuda")
        return Resident(info, int(array.get_device()), current_stream(array))
    interface = _interface(array)
    if interface is not None:
        return _describe_interface(array, interface, name)
    _, number = dlpack_device(array, name)
    used_on = DEFAULT_STREAM if stream is None else stream
    info = describe_capsule(array, name, dlpack.CUDA_DEVICES, used_on)
    if info.writable is None:
        # cupy's capsules have no flags; its interface says it, also for types without a name.
        info = replace(info, writable=_interface_writable(array))
    return Resident(info, number, None, used_on)


def current_stream(tensor: Any) -> int:
    """The stream that torch works on, on the device of a tensor."""
    return _normal(int(sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream))


class KnownTensors:
    """Tells at once, of torch tensors that are like one that was checked, that they fit as well."""

    def __init__(self, spec: ArraySpec, device: int, alignment: int) -> None:
        self._shape, self._strides = spec.shape, spec.strides
        self._device = device
        self._misaligned = alignment - 1
        # torch is not imported: the first tensor that fits tells.
        self._kind: Any = None
        self._type: Any = None
        self._layout: Any = None

    def learn(self, tensor: Any) -> None:
        """Takes a tensor that fits as an example."""
        self._kind, self._type, self._layout = type(tensor), tensor.dtype, tensor.layout

    def pointer(self, array: Any) -> int | None:
        """The address of ``array``; None where it has to be looked at closely."""
        if type(array) is not self._kind:
            return None
        try:
            if (
                array.dtype is self._type
                and array.layout is self._layout  # others have no stride()
                and array.get_device() == self._device
                and array.shape == self._shape
                and array.stride() == self._strides
                and not (array.requires_grad and grad_is_recorded())
                and not array.is_neg()
            ):
                address: int = array.data_ptr()
                if address and not address & self._misaligned:
                    return address
        except Exception:
            # Nested tensors have no shape, those in vmap and export no pointer.
            return None
        return None


def is_resident(array: Any, name: str) -> bool:
    """Whether ``array``, which errors call ``name``, lies in a GPU's memory."""
    if issubclass(type(array), np.ndarray):
        return False
    if is_torch(array):
        try:
            return bool(array.is_cuda)
        except Exception as error:
            raise faulty(name, "is_cuda", error) from error
    if has(array, "__dlpack__", name) and has(array, "__dlpack_device__", name):
        return dlpack_device(array, name)[0] in dlpack.CUDA_DEVICES
    return _interface(array) is not None


def _interface(array: Any) -> Any:
    """The array's CUDA interface, where it has one for its type: there is none for bf16 and fp8, so
    DLPack has to do where both are."""
    try:
        interface = getattr(array, "__cuda_array_interface__", None)
    except Exception:
        # Libraries have it, but not for every array, and say so by errors of any kind.
        return None
    if interface is None:
        return None
    typestr = interface.get("typestr") if isinstance(interface, dict) else None
    nameless = isinstance(typestr, str) and typestr[1:2] == "V"
    return None if nameless and hasattr(array, "__dlpack__") else interface


def _interface_writable(array: Any) -> bool | None:
    """What the array's CUDA interface says of writing; None where it has none."""
    try:
        _, read_only = array.__cuda_array_interface__["data"]
    except Exception:
        return None
    return not read_only


def _describe_interface(array: Any, interface: Any, name: str) -> Resident:
    try:
        pointer, read_only = interface["data"]
        address = int(pointer)
        shape = tuple(map(int, interface["shape"]))
        element = np.dtype(interface["typestr"])
        strides = interface.get("strides")
        strides = None if strides is None else tuple(map(int, strides))
        masked = interface.get("mask") is not None
        # Before version 3 it said nothing of streams: the default one was meant.
        stream = interface.get("stream") if interface["version"] >= 3 else DEFAULT_STREAM
        stream = None if stream is None else int(stream)
    except Exception as error:
        raise faulty(name, "__cuda_array_interface__", error) from error
    if masked:
        raise ArgumentError(
            f"{name} is a masked array", where=name, why="its mask would be ignored"
        )
    found = element_type(element, name, f"type {interface['typestr']!r}")
    if strides is None:
        steps = contiguous(shape)
    elif any(stride % element.itemsize for stride in strides):
        raise ArgumentError(
            f"{name} has strides {strides} bytes, not multiples of its "
            f"{element.itemsize}-byte elements",
            where=name,
        )
    else:
        steps = tuple(stride // element.itemsize for stride in strides)
    info = ArrayInfo(address, found, shape, steps, not read_only, array).checked(name)
    return Resident(info, _device_of(array, name), None if stream is None else _normal(stream))


def _device_of(array: Any, name: str) -> int:
    """Which device; the interface does not say, so it is the first for what has nothing else."""
    if has(array, "__dlpack_device__", name):
        return dlpack_device(array, name)[1]
    try:
        return int(getattr(getattr(array, "device", None), "id", 0) or 0)
    except Exception as error:
        raise faulty(name, "device", error) from error


def stream_handle(stream: Any) -> int:
    """The handle of a stream: a number, or what CUDA, torch or cupy call one.

    Raises `ArgumentError` for anything else.
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        return _normal(stream)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, handle = protocol() if callable(protocol) else protocol
        if version == 0:
            return _normal(int(handle))
    for name in ("cuda_stream", "ptr"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return _normal(handle)
    raise ArgumentError(
        f"stream is no stream but {type(stream).__name__}",
        where="stream",
        cure="pass a handle (a number), a torch.cuda.Stream, a cupy.cuda.Stream, or an object with "
        "__cuda_stream__",
    )


def _normal(handle: int) -> int:
    """The default stream has two handles, 0 and 1: as the former, it would pass for none."""
    if handle < 0:
        raise ArgumentError(f"stream {handle} is no handle", where="stream")
    return handle or DEFAULT_STREAM


def tensor_in_order(array: Any, name: str, spec: ArraySpec, extent: int) -> Any:
    """``array``, if it lies in the host's memory or as ``spec`` says; else a copy that does, which
    torch makes of its tensors."""
    if not (is_torch(array) and is_resident(array, name)):
        return array
    info = describe_tensor(array, name, "cuda")
    same = info.shape == spec.shape and info.dtype.numpy == spec.dtype.numpy
    if not same or spec.same_strides(info.strides):
        return array
    made = new_tensor(array, spec.dtype, extent, spec.shape, spec.strides, None)
    return made.copy_(array.detach())


def new_tensor(
    like: Any,
    dtype: DType,
    count: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    stream: int | None,
) -> Any:
    """A torch tensor on the device of ``like``, of ``count`` elements from the first to the last;
    uninitialized but for what lies between its elements. Strides are in elements.

    Its memory is free on ``stream`` (None: on torch's current one), in whose order torch reuses it.
    """
    torch = sys.modules["torch"]
    make = like.new_empty if math.prod(shape) == count else like.new_zeros
    element = getattr(torch, dtype.numpy_name)
    if stream is None:
        flat = make(count, dtype=element)
    else:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=like.device)):
            flat = make(count, dtype=element)
    return flat.as_strided(shape, strides)
