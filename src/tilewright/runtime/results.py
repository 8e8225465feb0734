"""New result arrays of the library that a call's arguments come from; copies to another layout.

torch and JAX are never imported from here: they are there if one of their arrays is an argument.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.dtypes import DType, u8
from tilewright.errors import ArgumentError
from tilewright.runtime.array_info import ArrayInfo, describe_error
from tilewright.runtime.arrays import ArraySpec, describe
from tilewright.runtime.tensors import is_torch_type

# Bytes of a cache line; JAX copies arrays that are aligned to less.
_ALIGNMENT = 64

# From the memory that a kernel wrote to the array that the caller gets.
Finish = Callable[[Any], Any]


class ResultForm(Protocol):
    """Shape and layout of a result: ``extent`` elements from the first to the last, strides in
    elements. ``empty`` makes a new numpy array, ``view`` one in flat memory."""

    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def extent(self) -> int: ...
    def empty(self) -> NDArray[Any]: ...
    def view(self, flat: NDArray[Any]) -> NDArray[Any]: ...


def maker_of(arguments: Iterable[Any]) -> Any:
    """The argument whose library makes the results: the first one of torch or JAX; None without
    such, and numpy makes them.

    numpy arrays do not count, because those libraries take them beside their own.
    """
    kind: Any
    for argument in arguments:
        kind = type(argument)
        if kind is not np.ndarray and _library(kind) is not None:
            return argument
    return None


def new_result(name: str, form: ResultForm, maker: Any) -> tuple[Any, Finish | None]:
    """Memory of the host for the result ``name``, of the library of ``maker`` (see `maker_of`), and
    the function that turns it into the array for the caller (None: it is that array).

    Uninitialized, except for gaps between its elements, which are 0. Raises `ArgumentError` where
    the library has no such array.
    """
    kind: Any = type(maker)
    library = None if maker is None else _library(kind)
    if library is _new_tensor and "torch" not in sys.modules:
        library = None  # it only looks like a tensor, which the check of arguments reports
    if library is None:
        return form.empty(), None
    return library(name, form, maker)


def aligned_memory(count: int, dtype: DType, *, zero: bool = False) -> NDArray[Any]:
    """A flat array of ``count`` elements at a multiple of 64 bytes."""
    room = _ALIGNMENT // dtype.bytes
    flat = (np.zeros if zero else np.empty)(count + room, dtype.numpy)
    skip = -flat.ctypes.data % _ALIGNMENT // dtype.bytes
    return flat[skip : skip + count]


def to_layout(array: Any, form: ResultForm, spec: ArraySpec) -> Any:
    """``array`` (of the host) if it has the layout of ``spec``, that of ``form``; else a copy in
    that layout, of the same library. A wrong shape or type is left to the check of arguments."""
    info = describe(array, spec.name)
    comparable = info.shape == spec.shape and info.dtype.numpy == spec.dtype.numpy
    aligned = not info.pointer % spec.dtype.bytes
    if not comparable or (aligned and spec.same_strides(info.strides)):
        return array
    memory, finish = new_result(spec.name, form, maker_of([array]))
    copy = describe(memory, spec.name)
    in_memory(copy)[...] = in_memory(info)
    return memory if finish is None else finish(memory)


def in_bytes(array: Any, spec: ArraySpec) -> Any:
    """``array``; or, where it has 4-bit integers in a byte each and ``spec`` takes bytes, half as
    many along one dim: a new array with two integers to a byte."""
    if spec.dtype is not u8:
        return array
    info = describe(array, spec.name)
    longer = [d for d, size in enumerate(info.shape) if size not in spec.shape[d : d + 1]]
    if not info.dtype.is_nibble or len(info.shape) != len(spec.shape) or len(longer) != 1:
        return array
    (dim,) = longer
    if info.shape[dim] != 2 * spec.shape[dim]:
        return array
    # Only the lower half of a byte counts.
    codes = np.moveaxis(in_memory(info).view(np.uint8), dim, 0)
    return np.moveaxis((codes[0::2] & 15) | (codes[1::2] << 4), 0, dim)


def in_memory(info: ArrayInfo) -> NDArray[Any]:
    """numpy's view of an array of any library; its owner has to be kept alive."""
    first, end = info.span
    memory: Any = (ctypes.c_char * (end - first)).from_address(first)
    steps = tuple(stride * info.dtype.bytes for stride in info.strides)
    return np.ndarray(info.shape, info.dtype.numpy, memory, info.pointer - first, steps)


@lru_cache(maxsize=256)
def _library(kind: type) -> Callable[[str, ResultForm, Any], tuple[Any, Finish | None]] | None:
    """The function for new arrays of the library of ``kind``; None for all but torch and JAX."""
    if is_torch_type(kind):
        return _new_tensor
    jax: Any = sys.modules.get("jax")
    jax_array = getattr(jax, "Array", None)
    return _new_jax if isinstance(jax_array, type) and issubclass(kind, jax_array) else None


def _new_tensor(name: str, form: ResultForm, like: Any) -> tuple[Any, None]:
    torch = sys.modules["torch"]
    try:
        element = getattr(torch, form.dtype.numpy_name)
        if math.prod(form.shape) == form.extent:
            tensor = torch.empty_strided(form.shape, form.strides, dtype=element, device="cpu")
        else:
            flat = torch.zeros(form.extent, dtype=element, device="cpu")
            tensor = flat.as_strided(form.shape, form.strides)
    except (AttributeError, RuntimeError) as error:
        raise ArgumentError(
            f"torch makes no tensor for {name}",
            where=f"parameter {name}",
            why=describe_error(error),
            cure=f"pass {name}=..., or out=...",
        ) from error
    return tensor, None


def _new_jax(name: str, form: ResultForm, like: Any) -> tuple[Any, Finish]:
    jax = sys.modules["jax"]
    numpy_type = form.dtype.numpy
    if jax.dtypes.canonicalize_dtype(numpy_type) != numpy_type:
        raise ArgumentError(
            f"{name} has {form.dtype} elements, and JAX has none",
            where=f"parameter {name}",
            why="it has types of 64 bits only where jax_enable_x64 is set",
            cure='call jax.config.update("jax_enable_x64", True), or pass a numpy array as out=...',
        )
    dense = math.prod(form.shape) == form.extent
    memory = form.view(aligned_memory(form.extent, form.dtype, zero=not dense))

    def finish(array: NDArray[Any]) -> Any:
        """JAX's view of ``array``, which is not written from now on."""
        if dense and numpy_type.isbuiltin == 1:
            return jax.dlpack.from_dlpack(array)
        # numpy's DLPack lacks the types of ml_dtypes, JAX's lacks memory with gaps. device_put
        # does not copy aligned memory in C order.
        (device,) = like.devices()
        return jax.device_put(array, device, may_alias=True)

    return memory, finish
