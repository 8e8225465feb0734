"""Arrays in a GPU's memory, and the streams that they are used on. Nothing is copied.

`describe_resident` takes torch tensors, and objects with ``__cuda_array_interface__`` or DLPack;
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
from tilewright.runtime.arrays import (
    ArraySpec,
    describe,
    describe_capsule,
    dlpack_device,
    faulty_protocol,
    has_attribute,
)
from tilewright.runtime.remote import RemoteArray
from tilewright.runtime.tensors import describe_tensor, grad_is_recorded, is_torch

# CUDA's handle of the default stream, which all libraries share and other streams wait for.
DEFAULT_STREAM = 1


@dataclass(frozen=True, slots=True)
class Resident:
    """An array on device ``device``. Its library works on it in the order of ``stream`` (a handle);
    None where the library does not say: then it made the stream ``waiting`` wait for its work."""

    info: ArrayInfo
    device: int
    stream: int | None = None
    waiting: int | None = None


def describe_resident(array: Any, name: str, stream: int | None = None) -> Resident | None:
    """``array``, if it lies in a GPU's memory; None for anything else.

    ``stream`` is where it will be used, None if not yet decided: a library that has DLPack only
    makes that stream (by default the default one) wait for its work on the array. Raises
    `ArgumentError`, which calls it ``name``, for an array that contradicts itself.
    """
    if not is_resident(array, name):
        return None
    if isinstance(array, RemoteArray):
        return Resident(describe(array, name), array.space.number)
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
        # cupy's capsules have no flags, but its interface says so, even for unnamed types.
        info = replace(info, writable=_interface_writable(array))
    return Resident(info, number, None, used_on)


def current_stream(tensor: Any) -> int:
    """The stream that torch works on, on the device of a tensor."""
    return _normal(int(sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream))


class CheckedTensors:
    """A fast check of torch tensors: whether they are like one that `ArraySpec` has checked."""

    def __init__(self, spec: ArraySpec, device: int, alignment: int) -> None:
        self._shape, self._strides = spec.shape, spec.strides
        self._device = device
        self._misaligned = alignment - 1
        # torch is not imported: its types are taken from the first tensor that fits.
        self._kind: Any = None
        self._type: Any = None
        self._layout: Any = None

    def learn(self, tensor: Any) -> None:
        """Take a tensor that was checked as the example."""
        self._kind, self._type, self._layout = type(tensor), tensor.dtype, tensor.layout

    def pointer(self, array: Any) -> int | None:
        """The address of ``array``; None where the full check has to decide."""
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
        return issubclass(type(array), RemoteArray)
    if is_torch(array):
        try:
            return bool(array.is_cuda)
        except Exception as error:
            raise faulty_protocol(name, "is_cuda", error) from error
    if has_attribute(array, "__dlpack__", name) and has_attribute(array, "__dlpack_device__", name):
        return dlpack_device(array, name)[0] in dlpack.CUDA_DEVICES
    return _interface(array) is not None


def _interface(array: Any) -> Any:
    """The array's CUDA interface, if it has one that names its type: bf16 and fp8 have no name
    there, so DLPack is used if there is both."""
    try:
        interface = getattr(array, "__cuda_array_interface__", None)
    except Exception:
        # Libraries have the attribute, but refuse it for some arrays by errors of any kind.
        return None
    if interface is None:
        return None
    typestr = interface.get("typestr") if isinstance(interface, dict) else None
    nameless = isinstance(typestr, str) and typestr[1:2] == "V"
    return None if nameless and hasattr(array, "__dlpack__") else interface


def _interface_writable(array: Any) -> bool | None:
    """Whether the array's CUDA interface allows writing; None where it has none."""
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
        # Before version 3 the interface had no streams: the default one was meant.
        stream = interface.get("stream") if interface["version"] >= 3 else DEFAULT_STREAM
        stream = None if stream is None else int(stream)
    except Exception as error:
        raise faulty_protocol(name, "__cuda_array_interface__", error) from error
    if masked:
        raise ArgumentError(
            f"{name} is a masked array", where=name, why="its mask would be ignored"
        )
    element_dtype = element_type(element, name, f"type {interface['typestr']!r}")
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
    info = ArrayInfo(address, element_dtype, shape, steps, not read_only, array).checked(name)
    return Resident(info, _device_of(array, name), None if stream is None else _normal(stream))


def _device_of(array: Any, name: str) -> int:
    """The number of the device: of DLPack, or of ``array.device.id``, else 0."""
    if has_attribute(array, "__dlpack_device__", name):
        return dlpack_device(array, name)[1]
    try:
        return int(getattr(getattr(array, "device", None), "id", 0) or 0)
    except Exception as error:
        raise faulty_protocol(name, "device", error) from error


def stream_handle(stream: Any) -> int:
    """The handle of a stream: a number, or a stream of CUDA, torch or cupy.

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
    """The handle with 1 for the default stream, which CUDA also calls 0: 0 would pass for none."""
    if handle < 0:
        raise ArgumentError(f"stream {handle} is no handle", where="stream")
    return handle or DEFAULT_STREAM


def tensor_to_layout(array: Any, name: str, spec: ArraySpec, extent: int) -> Any:
    """``array``, if it lies in the host's memory or in the layout of ``spec``; else a torch copy
    in that layout."""
    if not (is_torch(array) and is_resident(array, name)):
        return array
    info = describe_tensor(array, name, "cuda")
    comparable = info.shape == spec.shape and info.dtype.numpy == spec.dtype.numpy
    if not comparable or spec.same_strides(info.strides):
        return array
    copy = new_tensor(array, spec.dtype, extent, spec.shape, spec.strides, None)
    return copy.copy_(array.detach())


def new_tensor(
    like: Any,
    dtype: DType,
    count: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    stream: int | None,
) -> Any:
    """A torch tensor on the device of ``like``, of ``count`` elements from the first to the last;
    uninitialized, except for gaps between its elements, which are 0. Strides are in elements.

    Its memory is free on ``stream`` (None: torch's current one), in whose order torch reuses it.
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
