"""Arrays of other libraries as memory: pointer, type, shape, strides. Nothing is copied.

`describe` takes numpy arrays, torch tensors (torch is never imported from here), and whatever has
`__array_interface__`, DLPack or the buffer protocol. `ArraySpec` is the same for the hot path: it
checks one parameter of a kernel against what the kernel was compiled for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Container
from typing import Any

import numpy as np

from tilewright.dtypes import DType, dtype
from tilewright.errors import ArgumentError
from tilewright.runtime import dlpack
from tilewright.runtime.array_info import (
    ArrayInfo,
    contiguous,
    element_type,
    odd_elements,
    said,
)
from tilewright.runtime.tensors import describe_tensor, grad_is_recorded, is_torch

# numpy keeps the address of an array's data in the field after the object header (PyArrayObject,
# part of its stable C interface), which CPython's id() points to. Reading it there takes 0.1 us;
# array.ctypes.data and array.__array_interface__ take 0.9.
_DATA_FIELD = object.__basicsize__
_word_at = ctypes.c_size_t.from_address


def describe(array: Any, name: str = "array") -> ArrayInfo:
    """``array`` as memory.

    Raises `ArgumentError`, which calls it ``name``, for what is not an array, or not one in
    ordinary memory with elements of a type in `dtypes`.
    """
    # By the type itself: what stands in for an array in tests says that it is one.
    if issubclass(type(array), np.ndarray):
        return _describe_numpy(array, name)
    if is_torch(array):
        return describe_tensor(array, name, "cpu")
    if has(array, "__dlpack__", name) and has(array, "__dlpack_device__", name):
        return _describe_dlpack(array, name)
    # A numpy scalar's interface is a new array's each time; its buffer is the scalar itself.
    if not isinstance(array, np.generic) and has(array, "__array_interface__", name):
        return _describe_interface(array, name)
    if has(array, "__cuda_array_interface__", name):
        raise _not_here(name, "it has __cuda_array_interface__")
    return _describe_buffer(array, name)


# What follows calls the code of other libraries, which may raise anything.


def has(array: Any, attribute: str, name: str) -> bool:
    """Whether ``array``, which errors call ``name``, has an attribute."""
    try:
        return getattr(array, attribute, None) is not None
    except Exception as error:
        raise faulty(name, attribute, error) from error


def faulty(name: str, attribute: str, error: Exception) -> ArgumentError:
    """The error for an array whose part of a protocol raised ``error``."""
    return ArgumentError(
        f"{name} has a faulty {attribute}",
        where=name,
        why=said(error),
        cure="pass an array that is there: a numpy array, a torch tensor",
    )


def _describe_buffer(array: Any, name: str) -> ArrayInfo:
    try:
        view = memoryview(array)
    except Exception as error:
        raise ArgumentError(
            f"{name} is not an array but {type(array).__name__}",
            where=name,
            why=str(error),
            cure="pass a numpy array, a torch tensor, or an object with DLPack or a buffer",
        ) from error
    try:
        read = np.asarray(view)
    except Exception as error:
        raise odd_elements(name, f"buffer format {view.format!r}") from error
    return _describe_numpy(read, name)


def _describe_numpy(array: np.ndarray[Any, Any], name: str) -> ArrayInfo:
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(
            f"{name} is a masked array",
            where=name,
            why="its mask would be ignored",
            cure=f"pass {name}.filled(0), or {name}.data",
        )
    # Its subclasses may say of themselves what they like.
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
    """The kind and number of the device that ``array`` says it is on."""
    try:
        kind, number = array.__dlpack_device__()
        return int(kind), int(number)
    except Exception as error:
        raise faulty(name, "__dlpack_device__", error) from error


def _not_here(name: str, why: str) -> ArgumentError:
    cure = "copy it to the CPU first"
    return ArgumentError(f"{name} is not in the CPU's memory", where=name, why=why, cure=cure)


def describe_capsule(
    array: Any, name: str, kinds: Container[int], stream: int | None = None
) -> ArrayInfo:
    """What has DLPack as memory, for use on a device's ``stream``; the device is one of ``kinds``.

    A capsule from before version 1 of the protocol does not say whether it may be written.
    """
    try:
        tensor = dlpack.read(array, stream)
    except Exception as error:
        raise ArgumentError(
            f"{name} does not give its memory away",
            where=name,
            why=said(error),
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
        raise odd_elements(name, f"DLPack type {tensor.type_code}")
    return ArrayInfo(
        pointer=tensor.pointer,
        dtype=dtype(tensor.dtype),
        shape=tensor.shape,
        strides=contiguous(tensor.shape) if tensor.strides is None else tensor.strides,
        writable=None if tensor.read_only is None else not tensor.read_only,
        owner=tensor.capsule,
    ).checked(name)


def _describe_interface(array: Any, name: str) -> ArrayInfo:
    # numpy does the reading: the interface has several optional parts.
    try:
        view = np.asarray(array)
    except Exception as error:
        raise faulty(name, "__array_interface__", error) from error
    return _describe_numpy(view, name)


class ArraySpec:
    """What a parameter of a kernel must be; its `pointer` checks an array in the hot path."""

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
        `ArgumentError` if it is not as it must be."""

    def check(self, info: ArrayInfo) -> None:
        """Raise `ArgumentError` if the array is not as it must be."""
        # By numpy type: tf32 is how f32 is computed with, not another way to keep it.
        if info.dtype.numpy != self.dtype.numpy:
            cure = f"convert it, as in {self.name}.astype({self.dtype.numpy_name!r})"
            if is_torch(info.owner):
                cure = f"convert it, as in {self.name}.to(torch.{self.dtype.numpy_name})"
            raise self._wrong(f"{info.dtype} elements", f"{self.dtype}", self._and_back(cure))
        if info.shape != self.shape:
            cure = self.cure or f"pass an array of shape {self.shape}"
            raise self._wrong(f"shape {info.shape}", f"{self.shape}", cure)
        if not self.same_strides(info.strides):
            given = f"strides {info.strides} (in elements)"
            cure = self.cure or self._and_back(self._stride_cure(is_torch(info.owner)))
            raise self._wrong(given, f"{self.strides}", cure)
        if self.writable and not info.writable:
            raise self._not_writable(info)
        if info.pointer % self.dtype.bytes:
            aligned = f"one aligned to {self.dtype.bytes} bytes"
            cure = f"pass np.require({self.name}, requirements='A')"
            raise self._wrong(f"address {info.pointer:#x}", aligned, self._and_back(cure))

    def _fast_check(self) -> Callable[[Any], int]:
        """Spells out `describe` and `check` for the usual case; all else goes through them.

        Local variables and the order of the tests are for speed: 0.4 us for a numpy array, 0.7 for
        a torch tensor.
        """
        spec = self
        numpy_array = np.ndarray
        numpy_type = self.dtype.numpy
        shape, strides, writable = self.shape, self.strides, self.writable
        byte_strides = tuple(stride * self.dtype.bytes for stride in strides)
        misaligned = self.dtype.bytes - 1
        word_at, data_field = _word_at, _DATA_FIELD
        # torch is not imported: the first tensor that fits tells.
        tensor_type = torch_type = torch_layout = None

        def pointer(array: Any) -> int:
            nonlocal tensor_type, torch_type, torch_layout
            kind = type(array)
            if kind is numpy_array:
                if (
                    array.dtype is numpy_type
                    and array.shape == shape
                    and array.strides == byte_strides
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
                    # Nested tensors have no shape, those in vmap and export no pointer: they are
                    # looked at closely, which says what is wrong.
                    kind = None
            info = describe(array, spec.name)
            spec.check(info)
            if is_torch(array):
                tensor_type, torch_type, torch_layout = type(array), array.dtype, array.layout
            return info.pointer

        return pointer

    def same_strides(self, strides: tuple[int, ...]) -> bool:
        """Whether an array of these strides lies as one of the parameter's does."""
        # The stride of a dim with one element says nothing, and without elements none does.
        return 0 in self.shape or all(
            n == 1 or given == wanted
            for n, given, wanted in zip(self.shape, strides, self.strides, strict=True)
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
        """The advice to pass a copy: of a result, the user's array would never see it."""
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
            why="its DLPack capsule, of before version 1, does not say that it may be written; "
            "JAX's arrays, which are immutable, have such",
            cure="pass a numpy array or a torch tensor, or leave the result to be allocated",
        )

    def _wrong(self, given: str, expected: str, cure: str) -> ArgumentError:
        what = f"{self.name} has {given}, expected {expected}"
        return ArgumentError(what, where=f"parameter {self.name}", cure=cure)
