"""Arrays of other libraries as memory: pointer, type, shape, strides. Nothing is copied.

`describe` takes numpy arrays, torch tensors (torch is never imported from here), and objects with
`__array_interface__`, DLPack or the buffer protocol. `ArraySpec` is the same for the hot path: it
checks one parameter of a kernel against what the kernel was compiled for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Container
from typing import Any

import numpy as np

from tilewright.dtypes import DType, dtype
from tilewright.errors import ArgumentError, PlacementError
from tilewright.runtime import dlpack
from tilewright.runtime.array_info import (
    ArrayInfo,
    contiguous,
    describe_error,
    element_type,
    unknown_elements,
)
from tilewright.runtime.tensors import describe_tensor, grad_is_recorded, is_torch

# The address of a numpy array's data is the field after the object header (PyArrayObject, part of
# numpy's stable C interface), and CPython's id() is the address of the object. Reading the field
# takes 0.1 us; array.ctypes.data and array.__array_interface__ take 0.9.
_DATA_FIELD = object.__basicsize__
_word_at = ctypes.c_size_t.from_address


def describe(array: Any, name: str = "array") -> ArrayInfo:
    """``array`` as memory.

    Raises `ArgumentError`, which calls it ``name``, for an object that is no array, or one not in
    the CPU's memory, or with elements of a type that `dtypes` does not have.
    """
    # type(), not isinstance: a proxy may say that it is an array.
    if issubclass(type(array), np.ndarray):
        return _describe_numpy(array, name)
    if is_torch(array):
        return describe_tensor(array, name, "cpu")
    if has_attribute(array, "__dlpack__", name) and has_attribute(array, "__dlpack_device__", name):
        return _describe_dlpack(array, name)
    # A numpy scalar's interface is a new array's each time; its buffer is the scalar itself.
    if not isinstance(array, np.generic) and has_attribute(array, "__array_interface__", name):
        return _describe_interface(array, name)
    if has_attribute(array, "__cuda_array_interface__", name):
        raise _not_here(name, "it has __cuda_array_interface__")
    return _describe_buffer(array, name)


def span_of(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The first address that the elements of numpy's ``array`` take, and the one after the last:
    `describe` without what else that finds."""
    start = _word_at(id(array) + _DATA_FIELD).value
    if not array.size:
        return start, start
    end = start + array.itemsize
    for size, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            start += (size - 1) * stride
        else:
            end += (size - 1) * stride
    return start, end


# From here on the code of other libraries is called, which may raise anything.


def has_attribute(array: Any, attribute: str, name: str) -> bool:
    """Whether ``array``, which errors call ``name``, has the attribute and it is not None."""
    try:
        return getattr(array, attribute, None) is not None
    except Exception as error:
        raise faulty_protocol(name, attribute, error) from error


def faulty_protocol(name: str, attribute: str, error: Exception) -> ArgumentError:
    """The error for an array that raised ``error`` where it has to follow a protocol."""
    return ArgumentError(
        f"{name} has a faulty {attribute}",
        where=name,
        why=describe_error(error),
        cure="pass an array that is there: a numpy array, a torch tensor",
    )


def _describe_buffer(array: Any, name: str) -> ArrayInfo:
    try:
        buffer = memoryview(array)
    except Exception as error:
        raise ArgumentError(
            f"{name} is not an array but {type(array).__name__}",
            where=name,
            why=str(error),
            cure="pass a numpy array, a torch tensor, or an object with DLPack or a buffer",
        ) from error
    try:
        array_view = np.asarray(buffer)
    except Exception as error:
        raise unknown_elements(name, f"buffer format {buffer.format!r}") from error
    return _describe_numpy(array_view, name)


def _describe_numpy(array: np.ndarray[Any, Any], name: str) -> ArrayInfo:
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(
            f"{name} is a masked array",
            where=name,
            why="its mask would be ignored",
            cure=f"pass {name}.filled(0), or {name}.data",
        )
    # A subclass may redefine its attributes.
    plain = np.asarray(array)
    element = element_type(plain.dtype, name)
    size = plain.dtype.itemsize
    if any(stride % size for stride in plain.strides):
        raise ArgumentError(
            f"{name} has strides {plain.strides} bytes, not multiples of its {size}-byte elements",
            where=name,
            cure=f"pass np.ascontiguousarray({name})",
        )
    return ArrayInfo(
        pointer=_word_at(id(plain) + _DATA_FIELD).value,
        dtype=element,
        shape=plain.shape,
        strides=tuple(stride // size for stride in plain.strides),
        writable=plain.flags.writeable,
        owner=array,
    ).checked(name)


def _describe_dlpack(array: Any, name: str) -> ArrayInfo:
    kind, _ = dlpack_device(array, name)
    if kind not in dlpack.HOST_DEVICES:
        raise _not_here(name, f"it is on a device of DLPack type {kind}")
    return describe_capsule(array, name, dlpack.HOST_DEVICES)


def dlpack_device(array: Any, name: str) -> tuple[int, int]:
    """Kind and number of the device that ``array`` is on, by its own account."""
    try:
        kind, number = array.__dlpack_device__()
        return int(kind), int(number)
    except Exception as error:
        raise faulty_protocol(name, "__dlpack_device__", error) from error


def _not_here(name: str, why: str) -> ArgumentError:
    cure = "copy it to the CPU first"
    return ArgumentError(f"{name} is not in the CPU's memory", where=name, why=why, cure=cure)


def describe_capsule(
    array: Any, name: str, kinds: Container[int], stream: int | None = None
) -> ArrayInfo:
    """An array with DLPack as memory, for use on a device's ``stream``; the device is of one of
    ``kinds``.

    A capsule from before version 1 of the protocol does not say whether it may be written.
    """
    try:
        tensor = dlpack.read(array, stream)
    except Exception as error:
        raise ArgumentError(
            f"{name} does not give its memory away",
            where=name,
            why=describe_error(error),
            cure="pass an array that is there, outside of jit, export and the like",
        ) from error
    if tensor.device not in kinds:
        raise ArgumentError(
            f"{name} has a capsule of device type {tensor.device}",
            where=name,
            why="its __dlpack_device__ says otherwise",
            cure="pass a copy where the kernel runs",
        )
    if tensor.dtype is None:
        raise unknown_elements(name, f"DLPack type {tensor.type_code}")
    return ArrayInfo(
        pointer=tensor.pointer,
        dtype=dtype(tensor.dtype),
        shape=tensor.shape,
        strides=contiguous(tensor.shape) if tensor.strides is None else tensor.strides,
        writable=None if tensor.read_only is None else not tensor.read_only,
        owner=tensor.capsule,
    ).checked(name)


def _describe_interface(array: Any, name: str) -> ArrayInfo:
    # numpy reads it: the interface has several optional parts.
    try:
        view = np.asarray(array)
    except Exception as error:
        raise faulty_protocol(name, "__array_interface__", error) from error
    return _describe_numpy(view, name)


class ArraySpec:
    """The requirements of a kernel's parameter; `pointer` checks an array in the hot path."""

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        writable: bool = False,
        cure: str | None = None,
    ) -> None:
        """Strides are in elements. ``cure`` replaces the advice in errors about shape and strides,
        as in ``"pass kernel.pack('weights', w)"``."""
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.writable = writable
        self.cure = cure
        self.pointer: Callable[[Any], int] = self._fast_check()
        """From an array to the pointer to its data, which is valid while the array lives; raises
        `ArgumentError` where `check` would."""

    def check(self, info: ArrayInfo) -> None:
        """Raise `ArgumentError` if the array does not fit the parameter."""
        # By numpy type: tf32 is a way to compute with f32, not another type in memory.
        if info.dtype.numpy != self.dtype.numpy:
            cure = f"convert it, as in {self.name}.astype({self.dtype.numpy_name!r})"
            if is_torch(info.owner):
                cure = f"convert it, as in {self.name}.to(torch.{self.dtype.numpy_name})"
            raise self._wrong(f"{info.dtype} elements", f"{self.dtype}", self._and_back(cure))
        if info.shape != self.shape:
            cure = self.cure or f"pass an array of shape {self.shape}"
            raise self._wrong(f"shape {info.shape}", f"{self.shape}", cure)
        if not self.same_strides(info.strides):
            strides = f"strides {info.strides} (in elements)"
            cure = self.cure or self._and_back(self._stride_cure(is_torch(info.owner)))
            raise self._wrong(strides, f"{self.strides}", cure, PlacementError)
        if self.writable and not info.writable:
            raise self._not_writable(info)
        if info.pointer % self.dtype.bytes:
            aligned = f"one aligned to {self.dtype.bytes} bytes"
            cure = f"pass np.require({self.name}, requirements='A')"
            raise self._wrong(f"address {info.pointer:#x}", aligned, self._and_back(cure))

    def _fast_check(self) -> Callable[[Any], int]:
        """`describe` and `check` spelled out for the usual case; all else goes through them.

        Local variables and the order of the tests are for speed: 0.4 us for a numpy array, 0.7 for
        a torch tensor.
        """
        spec = self
        numpy_array = np.ndarray
        numpy_type = self.dtype.numpy
        shape, strides, writable = self.shape, self.strides, self.writable
        byte_strides = tuple(stride * self.dtype.bytes for stride in strides)
        # Those that passed last: the stride of a dim of one element may be any.
        other_strides = byte_strides
        misaligned = self.dtype.bytes - 1
        word_at, data_field = _word_at, _DATA_FIELD
        # torch is not imported: its types are taken from the first tensor that fits.
        tensor_type = torch_type = torch_layout = None

        def pointer(array: Any) -> int:
            nonlocal tensor_type, torch_type, torch_layout, other_strides
            kind = type(array)
            if kind is numpy_array:
                if (
                    array.dtype is numpy_type
                    and array.shape == shape
                    and (array.strides == byte_strides or array.strides == other_strides)
                    and not (writable and not array.flags.writeable)
                ):
                    address: int = word_at(id(array) + data_field).value
                    if address and not address & misaligned:
                        return address
            elif kind is tensor_type:
                try:
                    if (
                        array.dtype is torch_type
                        and array.layout is torch_layout  # others have no stride()
                        and array.shape == shape
                        and array.stride() == strides
                        and array.is_cpu
                        and not (array.requires_grad and grad_is_recorded())
                        and not array.is_neg()
                    ):
                        address = array.data_ptr()
                        if address and not address & misaligned:
                            return address
                except Exception:
                    # Nested tensors have no shape, those in vmap and export no pointer:
                    # `describe` finds out what is wrong.
                    kind = None
            info = describe(array, spec.name)
            spec.check(info)
            if is_torch(array):
                tensor_type, torch_type, torch_layout = type(array), array.dtype, array.layout
            elif kind is numpy_array:
                other_strides = array.strides
            return info.pointer

        return pointer

    def same_strides(self, strides: tuple[int, ...]) -> bool:
        """Whether these strides address the same memory as the parameter's."""
        # The stride of a dim of one element does not matter, and without elements none does.
        return 0 in self.shape or all(
            n == 1 or stride == expected
            for n, stride, expected in zip(self.shape, strides, self.strides, strict=True)
        )

    def _stride_cure(self, torch: bool) -> str:
        x = self.name
        if self.same_strides(contiguous(self.shape)):
            return f"pass {x}.contiguous()" if torch else f"pass np.ascontiguousarray({x})"
        # Dims from the outermost in memory to the innermost, and the way back.
        order = tuple(sorted(range(len(self.shape)), key=lambda dim: -self.strides[dim]))
        back = tuple(order.index(dim) for dim in range(len(order)))
        if torch:
            return f"pass {x}.permute{order}.contiguous().permute{back}"
        return f"pass np.ascontiguousarray({x}.transpose{order}).transpose{back}"

    def _and_back(self, cure: str) -> str:
        """The advice to pass a copy; for a result, also to copy it back."""
        return (
            f"{cure}, and copy that back to {self.name} after the call" if self.writable else cure
        )

    def _not_writable(self, info: ArrayInfo) -> ArgumentError:
        if info.writable is not None:
            return self._wrong(
                "read-only memory", "a writable array", f"pass a copy, {self.name}.copy()"
            )
        return ArgumentError(
            f"{self.name} has memory that may be read-only, expected a writable array",
            where=f"parameter {self.name}",
            why="its DLPack capsule is older than version 1 and has no flag for writing; "
            "JAX's arrays, which are immutable, have such capsules",
            cure="pass a numpy array or a torch tensor, or leave the result to be allocated",
        )

    def _wrong(
        self, actual: str, expected: str, cure: str, error: type[ArgumentError] = ArgumentError
    ) -> ArgumentError:
        message = f"{self.name} has {actual}, expected {expected}"
        return error(message, where=f"parameter {self.name}", cure=cure)
