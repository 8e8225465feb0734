"""Arrays of other libraries as memory: pointer, type, shape, strides. Nothing is copied.

`describe` takes numpy arrays, torch tensors (torch is never imported from here), and whatever has
`__array_interface__`, DLPack or the buffer protocol. `ArraySpec` is the same for the hot path: it
checks one parameter of a kernel against what the kernel was compiled for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.dtypes import ALL, DType, dtype
from tilewright.errors import ArgumentError, UnsupportedError
from tilewright.runtime import dlpack

# numpy keeps the address of an array's data in the field after the object header (PyArrayObject,
# part of its stable C interface), which CPython's id() points to. Reading it there takes 0.1 us;
# array.ctypes.data and array.__array_interface__ take 0.9.
_DATA_FIELD = object.__basicsize__
_word_at = ctypes.c_size_t.from_address


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An array as memory. Strides are in elements; ``owner`` keeps the memory alive."""

    pointer: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    writable: bool
    owner: Any

    @property
    def span(self) -> tuple[int, int]:
        """First address that the elements take, and the one after the last."""
        if 0 in self.shape:
            return self.pointer, self.pointer
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = sum(r for r in reach if r < 0)
        high = sum(r for r in reach if r > 0) + 1
        return self.pointer + low * self.dtype.bytes, self.pointer + high * self.dtype.bytes


def overlap(a: ArrayInfo, b: ArrayInfo) -> bool:
    """Whether the memory ranges of two arrays meet (interleaved arrays count as meeting)."""
    (a_low, a_high), (b_low, b_high) = a.span, b.span
    return a_low < b_high and b_low < a_high and a_low < a_high and b_low < b_high


def describe(array: Any, name: str = "array") -> ArrayInfo:
    """``array`` as memory.

    Raises `ArgumentError`, which calls it ``name``, for what is not an array, or not one in
    ordinary memory with elements of a type in `dtypes`.
    """
    if isinstance(array, np.ndarray):
        return _describe_numpy(array, name)
    if is_torch(array):
        return _describe_torch(array, name)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _describe_dlpack(array, name)
    if hasattr(array, "__array_interface__"):
        return _describe_interface(array, name)
    if hasattr(array, "__cuda_array_interface__"):
        raise _not_here(name, "it has __cuda_array_interface__")
    try:
        view = memoryview(array)
    except (TypeError, ValueError, BufferError) as error:
        raise ArgumentError(
            f"{name} is not an array but {type(array).__name__}",
            where=name,
            why=str(error),
            cure="pass a numpy array, a torch tensor, or an object with DLPack or a buffer",
        ) from error
    try:
        return _describe_numpy(np.asarray(view), name)
    except (ValueError, NotImplementedError) as error:
        raise _odd_elements(name, f"buffer format {view.format!r}") from error


def _describe_numpy(array: np.ndarray[Any, Any], name: str) -> ArrayInfo:
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(
            f"{name} is a masked array",
            where=name,
            why="its mask would be ignored",
            cure="pass x.filled(0), or x.data",
        )
    element = element_type(array.dtype, name)
    size = array.dtype.itemsize
    if any(stride % size for stride in array.strides):
        raise ArgumentError(
            f"{name} has strides {array.strides} bytes, not multiples of its {size}-byte elements",
            where=name,
            cure="pass np.ascontiguousarray(x)",
        )
    return ArrayInfo(
        pointer=_word_at(id(array) + _DATA_FIELD).value,
        dtype=element,
        shape=array.shape,
        strides=tuple(stride // size for stride in array.strides),
        writable=array.flags.writeable,
        owner=array,
    )


def element_type(given: np.dtype[Any], name: str, called: str | None = None) -> DType:
    """The type in `dtypes` of elements of the numpy type ``given``, wherever they are.

    Raises `ArgumentError` for another byte order, and for an unknown type, which it calls
    ``called`` (None: after numpy).
    """
    if not given.isnative:
        raise ArgumentError(
            f"{name} has elements in the other byte order, {given.str!r}",
            where=name,
            cure="pass x.astype(x.dtype.newbyteorder('='))",
        )
    try:
        return dtype(given)
    except UnsupportedError as error:
        raise _odd_elements(name, called or f"numpy type {given.name!r}") from error


def _odd_elements(name: str, given: str) -> ArgumentError:
    """The error for elements of a type that `dtypes` has not."""
    return ArgumentError(
        f"{name} has elements of an unknown type: {given}",
        where=name,
        cure="convert it to one of " + ", ".join(t.name for t in ALL),
    )


def is_torch(array: Any) -> bool:
    """Whether it is a torch tensor."""
    return any(c.__name__ == "Tensor" and c.__module__ == "torch" for c in type(array).__mro__)


def _describe_torch(tensor: Any, name: str) -> ArrayInfo:
    if tensor.device.type != "cpu":
        what = f"{name} is a torch tensor, on device {tensor.device}"
        raise ArgumentError(what, where=name, cure="pass x.cpu()")
    return describe_strided_tensor(tensor, name)


def describe_strided_tensor(tensor: Any, name: str) -> ArrayInfo:
    """A torch tensor as memory, wherever that is. Raises `ArgumentError` for one that is not."""
    for refused, what, cure in (
        (str(tensor.layout) != "torch.strided", f"{tensor.layout}", "pass x.to_dense()"),
        (tensor.requires_grad, "one that requires grad", "pass x.detach()"),
        (tensor.is_neg(), "a lazily negated view", "pass x.resolve_neg()"),
    ):
        if refused:
            raise ArgumentError(f"{name} is a torch tensor, {what}", where=name, cure=cure)
    try:
        element = dtype(str(tensor.dtype).removeprefix("torch."))
    except UnsupportedError as error:
        raise _odd_elements(name, str(tensor.dtype)) from error
    return ArrayInfo(
        pointer=int(tensor.data_ptr()),
        dtype=element,
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        writable=True,
        owner=tensor,
    )


def _describe_dlpack(array: Any, name: str) -> ArrayInfo:
    device = int(array.__dlpack_device__()[0])
    if device not in dlpack.HOST_DEVICES:
        raise _not_here(name, f"it is on a device of DLPack type {device}")
    return describe_capsule(array, name)


def _not_here(name: str, why: str) -> ArgumentError:
    cure = "copy it to the CPU first"
    return ArgumentError(f"{name} is not in the CPU's memory", where=name, why=why, cure=cure)


def describe_capsule(array: Any, name: str, stream: int | None = None) -> ArrayInfo:
    """What has DLPack as memory, wherever that is, for use on a device's ``stream``."""
    try:
        tensor = dlpack.read(array, stream)
    except (BufferError, TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"{name} does not give its memory away", where=name, why=str(error)
        ) from error
    if tensor.dtype is None:
        raise _odd_elements(name, f"DLPack type {tensor.type_code}")
    return ArrayInfo(
        pointer=tensor.pointer,
        dtype=dtype(tensor.dtype),
        shape=tensor.shape,
        strides=tensor.strides or contiguous(tensor.shape),
        writable=not tensor.read_only,
        owner=tensor.capsule,
    )


def _describe_interface(array: Any, name: str) -> ArrayInfo:
    # numpy does the reading: the interface has several optional parts.
    try:
        view = np.asarray(array)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{name} has a faulty __array_interface__", where=name, why=str(error)
        ) from error
    return _describe_numpy(view, name)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array in C order, in elements."""
    strides: list[int] = []
    stride = 1
    for extent in reversed(shape):
        strides.insert(0, stride)
        stride *= extent
    return tuple(strides)


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
            cure = f"convert it, as in x.astype({self.dtype.numpy_name!r})"
            if is_torch(info.owner):
                cure = f"convert it, as in x.to(torch.{self.dtype.numpy_name})"
            raise self._wrong(f"{info.dtype} elements", f"{self.dtype}", cure)
        if info.shape != self.shape:
            cure = self.cure or f"pass an array of shape {self.shape}"
            raise self._wrong(f"shape {info.shape}", f"{self.shape}", cure)
        if not self._same_strides(info.strides):
            given = f"strides {info.strides} (in elements)"
            cure = self.cure or self._stride_cure(is_torch(info.owner))
            raise self._wrong(given, f"{self.strides}", cure)
        if self.writable and not info.writable:
            raise self._wrong("read-only memory", "a writable array", "pass a copy, x.copy()")
        if info.pointer % self.dtype.bytes:
            aligned = f"one aligned to {self.dtype.bytes} bytes"
            cure = "pass np.require(x, requirements='A')"
            raise self._wrong(f"address {info.pointer:#x}", aligned, cure)

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
                    if not address & misaligned:
                        return address
            elif (
                kind is tensor_type
                and array.dtype is torch_type
                and array.layout is torch_layout  # others have no stride()
                and array.shape == shape
                and array.stride() == strides
                and array.is_cpu
                and not array.requires_grad
                and not array.is_neg()
            ):
                address = array.data_ptr()
                if not address & misaligned:
                    return address
            info = describe(array, spec.name)
            spec.check(info)
            if is_torch(array):
                tensor_type, torch_type, torch_layout = kind, array.dtype, array.layout
            return info.pointer

        return pointer

    def _same_strides(self, strides: tuple[int, ...]) -> bool:
        # The stride of a dim with one element says nothing, and without elements none does.
        return 0 in self.shape or all(
            n == 1 or given == wanted
            for n, given, wanted in zip(self.shape, strides, self.strides, strict=True)
        )

    def _stride_cure(self, torch: bool) -> str:
        if self._same_strides(contiguous(self.shape)):
            return "pass x.contiguous()" if torch else "pass np.ascontiguousarray(x)"
        # Dims from the outermost in memory to the innermost, and the way back.
        order = tuple(sorted(range(len(self.shape)), key=lambda dim: -self.strides[dim]))
        back = tuple(order.index(dim) for dim in range(len(order)))
        if torch:
            return f"pass x.permute{order}.contiguous().permute{back}"
        return f"pass np.ascontiguousarray(x.transpose{order}).transpose{back}"

    def _wrong(self, given: str, expected: str, cure: str) -> ArgumentError:
        what = f"{self.name} has {given}, expected {expected}"
        return ArgumentError(what, where=f"parameter {self.name}", cure=cure)
