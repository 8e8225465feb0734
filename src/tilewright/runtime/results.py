"""New arrays for results, of the library that a call's arguments come from; copies in an order.

torch and JAX are never imported from here: that an argument is theirs says that they are there.
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
from tilewright.runtime.array_info import ArrayInfo, said
from tilewright.runtime.arrays import ArraySpec, describe
from tilewright.runtime.tensors import is_torch_type

# What processors take in one cache line; JAX copies what is aligned to less.
_ALIGNMENT = 64

# From what a kernel wrote to what the caller gets.
Finish = Callable[[Any], Any]


class ResultForm(Protocol):
    """What a result has to be: ``extent`` elements from the first to the last, strides in elements.
    ``empty`` is a new array of numpy's, ``view`` one in flat memory."""

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
    """The argument whose library makes the results: the first one of torch or JAX; None where there
    is none, and numpy makes them.

    numpy's arrays count for nothing, as where such libraries take both themselves.
    """
    kind: Any
    for each in arguments:
        kind = type(each)
        if kind is not np.ndarray and _library(kind) is not None:
            return each
    return None


def new_result(name: str, form: ResultForm, maker: Any) -> tuple[Any, Finish | None]:
    """Memory of the host for the result ``name``, of the library of ``maker`` (see `maker_of`), and
    what makes of it what the caller gets, if that is not the same.

    Uninitialized but for what lies between its elements. Raises `ArgumentError` where the library
    has no such array.
    """
    kind: Any = type(maker)
    library = None if maker is None else _library(kind)
    if library is _new_tensor and "torch" not in sys.modules:
        library = None  # It only looks like a tensor, which the check of arguments says.
    if library is None:
        return form.empty(), None
    return library(name, form, maker)


def aligned_memory(count: int, dtype: DType, *, zero: bool = False) -> NDArray[Any]:
    """A flat array of ``count`` elements at a multiple of 64 bytes."""
    room = _ALIGNMENT // dtype.bytes
    flat = (np.zeros if zero else np.empty)(count + room, dtype.numpy)
    skip = -flat.ctypes.data % _ALIGNMENT // dtype.bytes
    return flat[skip : skip + count]


def in_order(array: Any, form: ResultForm, spec: ArraySpec) -> Any:
    """``array`` (of the host), if it lies as ``spec``, that of ``form``, says; else a copy that
    does, of the same library. What differs in more than that is returned as it is."""
    info = describe(array, spec.name)
    same = info.shape == spec.shape and info.dtype.numpy == spec.dtype.numpy
    aligned = not info.pointer % spec.dtype.bytes
    if not same or (aligned and spec.same_strides(info.strides)):
        return array
    made, finish = new_result(spec.name, form, maker_of([array]))
    new = describe(made, spec.name)
    _in_memory(new)[...] = _in_memory(info)
    return made if finish is None else finish(made)


def in_bytes(array: Any, spec: ArraySpec) -> Any:
    """``array``; one of integers of 4 bits, which take a byte each, as a new array with two to a
    byte, where ``spec`` takes bytes, half as many along one dim."""
    if spec.dtype is not u8:
        return array
    info = describe(array, spec.name)
    longer = [d for d, size in enumerate(info.shape) if size not in spec.shape[d : d + 1]]
    if not info.dtype.is_nibble or len(info.shape) != len(spec.shape) or len(longer) != 1:
        return array
    (dim,) = longer
    if info.shape[dim] != 2 * spec.shape[dim]:
        return array
    # Of a byte, the lower half counts.
    codes = np.moveaxis(_in_memory(info).view(np.uint8), dim, 0)
    return np.moveaxis((codes[0::2] & 15) | (codes[1::2] << 4), 0, dim)


def _in_memory(info: ArrayInfo) -> NDArray[Any]:
    """numpy's view of an array of any library, which has to be held as long."""
    first, end = info.span
    memory: Any = (ctypes.c_char * (end - first)).from_address(first)
    steps = tuple(stride * info.dtype.bytes for stride in info.strides)
    return np.ndarray(info.shape, info.dtype.numpy, memory, info.pointer - first, steps)


@lru_cache(maxsize=256)
def _library(kind: type) -> Callable[[str, ResultForm, Any], tuple[Any, Finish | None]] | None:
    """What makes new arrays like those of type ``kind``; None for all but torch's and JAX's."""
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
            made = torch.empty_strided(form.shape, form.strides, dtype=element, device="cpu")
        else:
            flat = torch.zeros(form.extent, dtype=element, device="cpu")
            made = flat.as_strided(form.shape, form.strides)
    except (AttributeError, RuntimeError) as error:
        raise ArgumentError(
            f"torch makes no tensor for {name}",
            where=f"parameter {name}",
            why=said(error),
            cure=f"pass {name}=..., or out=...",
        ) from error
    return made, None


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
        """JAX's view of ``array``, which nobody else writes from now on."""
        if dense and numpy_type.isbuiltin == 1:
            return jax.dlpack.from_dlpack(array)
        # Without DLPack, which numpy has not for the types of ml_dtypes, nor JAX for memory with
        # gaps: no copy, if it is aligned and in C order.
        (device,) = like.devices()
        return jax.device_put(array, device, may_alias=True)

    return memory, finish
