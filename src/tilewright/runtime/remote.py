"""Arrays in a device's memory that the host cannot reach: numpy's address, shape and strides, and
elements by copies only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime.arrays import describe

# Functions of numpy that look at addresses alone.
_BY_ADDRESS = (np.may_share_memory, np.shares_memory)


class Space(Protocol):
    """The memory of a device. All of it returns when it is done, and raises `DeviceError`;
    addresses and sizes are in bytes."""

    @property
    def number(self) -> int:
        """The device's number in other libraries."""

    def allocate(self, size: int) -> Any:
        """What has ``size`` bytes as its ``pointer``, undefined, until it is gone."""

    def read(self, to: int, source: int, size: int) -> None:
        """Copies from the device to the host."""

    def write(self, to: int, source: int, size: int) -> None:
        """Copies from the host to the device."""

    def copy(self, to: int, source: int, size: int) -> None:
        """Copies within the device."""

    def fill(self, to: int, element: bytes, count: int) -> bool:
        """Writes an element ``count`` times; False where the device has no such way."""


class RemoteArray(np.ndarray[Any, Any]):
    """An array in the memory of ``space``. Its parts are such arrays, too; what numpy would do with
    the elements is refused."""

    space: Space

    def __array_finalize__(self, other: object) -> None:
        self.space = getattr(other, "space", None)  # type: ignore[assignment]

    __array_ufunc__ = None  # type: ignore[assignment]

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, options: Any
    ) -> Any:
        if function in _BY_ADDRESS:
            return super().__array_function__(function, types, args, options)
        return NotImplemented

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{self!r} is not in the host's memory")

    __setitem__ = copy = tolist = item = __iter__ = __bool__ = _refuse

    def __repr__(self) -> str:
        return f"<array on a device: {self.dtype}{list(self.shape)}>"


def remote(space: Space, array: NDArray[Any]) -> RemoteArray:
    """``array``, whose address is one in ``space``."""
    there = array.view(RemoteArray)
    there.space = space
    return there


class _Held:
    """Memory of ``owner`` as bytes, for numpy, which touches none of them."""

    def __init__(self, owner: Any, size: int) -> None:
        self._owner = owner
        interface = {"version": 3, "data": (owner.pointer, False), "shape": (size,)}
        self.__array_interface__ = {**interface, "typestr": "|u1"}


def new_remote(space: Space, size: int) -> RemoteArray:
    """``size`` bytes on the device."""
    return remote(space, np.asarray(_Held(space.allocate(size), size)))


@contextmanager
def lent(array: NDArray[Any], reads: bool, writes: bool) -> Iterator[NDArray[Any]]:
    """``array`` as the host has it: itself, or a copy, which is copied back where the host
    ``writes``. A copy has undefined contents where it does not read."""
    if not isinstance(array, RemoteArray):
        yield array
        return
    info = describe(array)
    start, end = info.span
    raw = np.empty(end - start, np.uint8)
    # What lies between the elements is copied back, too.
    if end > start and (reads or end - start > array.nbytes):
        array.space.read(raw.ctypes.data, start, end - start)
    steps, offset = array.strides, info.pointer - start
    values: NDArray[Any] = np.ndarray(array.shape, array.dtype, raw.data, offset, steps)
    values.flags.writeable = writes
    yield values
    if end > start and writes:
        array.space.write(start, raw.ctypes.data, end - start)


def copied(array: NDArray[Any]) -> NDArray[Any]:
    """A copy in the host's memory."""
    with lent(array, reads=True, writes=False) as values:
        return np.array(values)


def copy_elements(to: NDArray[Any], source: NDArray[Any]) -> None:
    """Copies the elements of ``source``, of the same shape and type, wherever both lie."""
    rows = to.flags.c_contiguous and source.flags.c_contiguous
    if rows and not np.may_share_memory(to, source):
        addresses = _address(to), _address(source)
        if isinstance(to, RemoteArray):
            inside = isinstance(source, RemoteArray)
            (to.space.copy if inside else to.space.write)(*addresses, to.nbytes)
            return
        if isinstance(source, RemoteArray):
            source.space.read(*addresses, to.nbytes)
            return
    with lent(source, True, False) as values, lent(to, False, True) as written:
        np.copyto(written, values)


def fill_elements(to: NDArray[Any], element: NDArray[Any]) -> None:
    """Makes every element of ``to`` the ``element``, of its type."""
    rows = isinstance(to, RemoteArray) and to.flags.c_contiguous
    if rows and to.space.fill(_address(to), element.tobytes(), to.size):  # type: ignore[attr-defined]
        return
    with lent(to, False, True) as written:
        written[...] = element


def _address(array: NDArray[Any]) -> int:
    return int(np.asarray(array).ctypes.data)
