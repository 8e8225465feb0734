"""Memory that commands work on, and how the host looks into it."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.dtypes import DType, dtype
from tilewright.errors import ArgumentError, short
from tilewright.queues.events import Event, place_of
from tilewright.queues.refusals import closed_buffer, unknown_mode
from tilewright.queues.room import room_of
from tilewright.queues.scheduler import SCHEDULER
from tilewright.queues.spans import READ, WRITE, Span
from tilewright.runtime.arrays import describe, span_of
from tilewright.runtime.memory import memory_of
from tilewright.runtime.remote import RemoteArray, lent
from tilewright.schedule.fusion.members import SCOPES

_MODES = {"read": READ, "write": READ | WRITE, "read_write": READ | WRITE}
_MOST_BYTES = 2**47
_inside = threading.Lock()


class Accessor(NamedTuple):
    """A buffer, and what a command does with it."""

    buffer: Buffer
    access: int


class Form(NamedTuple):
    """The device, shape, and type of a buffer, its strides where these are not those of rows,
    whether each element lies where elements of the type do, and whether kernels may write it."""

    device: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None
    aligned: bool
    writable: bool


class Buffer:
    """An array that commands of queues read and write, in their order.

    It has memory of its own, whose contents are undefined at first, or is the memory of an array of
    the caller's, who looks at it by `host`, `numpy`, or when the buffer is closed. Commands keep
    the memory as long as they need it. Where it has a scope to ``promote`` it to, nobody reads it
    behind a fusion that takes it.
    """

    promote: str | None = None

    def __init__(
        self, device: str, shape: tuple[int, ...], element: DType, array: NDArray[Any] | None
    ) -> None:
        self.device = device
        self.shape = shape
        self.dtype = element
        # Equal to nothing else in keys of plans, and never that of another buffer, as `id` may be.
        self.identity = object()
        self.span = Span()
        self._array: NDArray[Any] | None = None
        self._inner: Buffer | None = None
        self.span.shared = array is not None and not _is_frozen(array)
        self._form: Form | None = None
        # What kernels made of its contents, by how they pack; with the version of the contents.
        self.packed: dict[str, tuple[int, Any]] = {}
        if array is not None:
            self._take(array)

    def _take(self, array: NDArray[Any]) -> None:
        """Makes ``array`` its memory, unless another thread was first."""
        start, end = span_of(array)
        with SCHEDULER.lock:
            if self._array is None:
                self._array = array
                self.span.start, self.span.end = start, end
                SCHEDULER.spans.add(self.span)

    @property
    def array(self) -> NDArray[Any]:
        """Its memory, for commands: allocated now, if need be. Who reads or writes it otherwise has
        no order with them, and what is written is not noticed: use `host`. Raises `QueueError` for
        a closed buffer."""
        if self._array is None:
            if self.span.closed:
                raise closed_buffer("a command")
            flat = room_of(self.device).empty(math.prod(self.shape), self.dtype)
            self._take(flat.reshape(self.shape))
        assert self._array is not None
        return self._array

    @property
    def has_memory(self) -> bool:
        """Whether it has memory, which one of a shape has when a command needs it."""
        return self._array is not None

    # What a command does with it.

    def read(self) -> Accessor:
        """For a command that only reads it."""
        return Accessor(self, READ)

    def write(self) -> Accessor:
        """For a command that writes some of it, and keeps the rest."""
        return Accessor(self, READ | WRITE)

    def read_write(self) -> Accessor:
        """For a command that reads and writes it."""
        return Accessor(self, READ | WRITE)

    def discard(self) -> Accessor:
        """For a command that needs nothing of what is in it, and writes all that anybody reads."""
        return Accessor(self, WRITE)

    def __getitem__(self, index: Any) -> Buffer:
        """A part of it, as a buffer of its own on the same memory: slices and numbers, as numpy
        takes them."""
        whole = self.array
        try:
            part = whole[index if isinstance(index, tuple) else (index, ...)]
        except (IndexError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"a buffer of shape {self.shape} has no part {short(index)}",
                why=str(error),
                cure="pass slices and numbers, one for each dim at most",
            ) from error
        if not np.may_share_memory(part, whole):
            raise ArgumentError(
                "a part of a buffer is taken by an array or a mask",
                why="it would be a copy",
                cure="pass slices and numbers",
            )
        return Buffer(self.device, part.shape, self.dtype, part)

    # The host.

    def host(self, mode: str = "read") -> HostAccess:
        """Lends its memory to the host: ``with buffer.host("read") as values`` waits for the
        commands that write it, and those that are submitted meanwhile wait for its end.

        ``mode`` is ``"read"``, and the array is read-only, ``"write"`` or ``"read_write"``, which
        wait for commands that read it, too. Raises what a command raised that should have written
        the buffer.
        """
        if not isinstance(mode, str) or mode not in _MODES:
            raise unknown_mode(mode, tuple(_MODES))
        return HostAccess(self, _MODES[mode], place_of(1))

    def numpy(self) -> NDArray[Any]:
        """A copy, after the commands that write it."""
        with HostAccess(self, READ, place_of(1)) as values:
            return np.array(values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy or isinstance(self.array, RemoteArray):
            if copy is False:
                raise ValueError("the buffer is in a device's memory: an array of it is a copy")
            with HostAccess(self, READ, place_of(1)) as values:
                return np.array(values, dtype)
        with HostAccess(self, READ | WRITE, place_of(1)) as values:
            SCHEDULER.share(self.span)
            return np.asarray(values, dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory of a buffer of a GPU, after all commands that touch it."""
        array = self.array
        if not isinstance(array, RemoteArray):
            raise AttributeError("the buffer is in the host's memory")
        event = Event("a host access", SCHEDULER, place_of(1))
        SCHEDULER.open(event, [(self.span, READ | WRITE)])
        SCHEDULER.share(self.span)
        SCHEDULER.close(event)
        info = describe(array)
        interface = {"version": 3, "data": (info.pointer, False), "shape": array.shape}
        return {**interface, "strides": array.strides, "typestr": array.dtype.str}

    # Its end.

    def close(self) -> None:
        """Waits for the commands that touch it, and frees its memory. Closing twice is fine."""
        SCHEDULER.close_span(self.span)
        self._array = self._inner = None
        self.packed.clear()

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __del__(self) -> None:
        span = getattr(self, "span", None)
        if span is not None and not span.closed and self._inner is None:
            SCHEDULER.dropped.append(span)

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("a buffer of no dims has no length", cure="ask for its shape")
        return self.shape[0]

    def __repr__(self) -> str:
        state = ", closed" if self.span.closed else ""
        return f"<buffer of {self.device}: {self.dtype}{list(self.shape)}{state}>"


class HostAccess:
    """The memory of a buffer, lent to the host inside of a ``with``."""

    def __init__(self, buffer: Buffer, access: int, place: tuple[str, int]) -> None:
        self._buffer = buffer
        self._access = access
        self._event = Event("a host access", SCHEDULER, place)
        self._lending = ExitStack()

    def __enter__(self) -> NDArray[Any]:
        writes = bool(self._access & WRITE)
        memory = self._buffer.array
        SCHEDULER.open(self._event, [(self._buffer.span, self._access)])
        try:
            array = self._lending.enter_context(lent(memory, True, writes)).view()
        except BaseException:
            SCHEDULER.close(self._event)
            raise
        if not writes:
            array.flags.writeable = False
        return array

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # What was written before an error is written.
            self._lending.close()
        finally:
            SCHEDULER.close(self._event)


def _is_frozen(array: NDArray[Any]) -> bool:
    """Whether no array may write the memory of ``array``: it, and those that it is a view of, are
    read-only, and the last of them has the memory."""
    while not array.flags.writeable:
        if not isinstance(array.base, np.ndarray):
            return array.flags.owndata or isinstance(array.base, bytes)
        array = array.base
    return False


def is_array(value: Any) -> bool:
    """Whether ``value`` says that it is an array of some library."""
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")


def checked_scope(scope: Any, what: object) -> str:
    """A scope that ``what`` is promoted to. Raises `ArgumentError` for what is none."""
    if scope not in SCOPES:
        raise ArgumentError(
            f"{short(what)} is promoted to {short(scope)}",
            cure=f"give it one of {', '.join(SCOPES)}",
        )
    return str(scope)


def new_buffer(
    device: str,
    array: Any,
    shape: Sequence[int] | int | None,
    element: Any,
    promote: str | None = None,
) -> Buffer:
    """A buffer of an array, or of a shape and a type. Raises `ArgumentError`."""
    buffer = _new_buffer(device, array, shape, element)
    if promote is not None:
        buffer.promote = checked_scope(promote, buffer)
    return buffer


def _new_buffer(device: str, array: Any, shape: Sequence[int] | int | None, element: Any) -> Buffer:
    if array is not None:
        if shape is not None or element is not None:
            raise ArgumentError(
                "a buffer is given an array, and a shape or type",
                cure="pass the array alone, or shape=... and dtype=...",
            )
        memory = memory_of(array, "array")
        return Buffer(device, memory.shape, dtype(memory.dtype), memory)
    if shape is None or element is None:
        raise ArgumentError(
            "a buffer is given no array, and no shape and type",
            cure="write queue.buffer(array), or queue.buffer(shape=(1024,), dtype='f32')",
        )
    sizes = (shape,) if isinstance(shape, int | np.integer) else shape
    whole = isinstance(sizes, tuple | list) and all(
        isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0
        for size in sizes
    )
    kind = dtype(element)
    if not whole or math.prod(map(int, sizes)) * kind.bytes > _MOST_BYTES:
        raise ArgumentError(
            f"the shape of a buffer is {short(shape)}", cure="give a tuple of whole numbers"
        )
    return Buffer(device, tuple(map(int, sizes)), kind, None)


def form_of(buffer: Buffer) -> Form:
    """What calls ask of ``buffer``, but for its contents and its address."""
    form = buffer._form
    if form is None:
        array = buffer._array
        strides = None if array is None or array.flags.c_contiguous else array.strides
        aligned = array is None or array.flags.aligned
        writable = array is None or array.flags.writeable
        form = Form(buffer.device, buffer.shape, buffer.dtype.name, strides, aligned, writable)
        if array is not None:
            buffer._form = form
    return form


def inside(argument: Any) -> Any:
    """What commands hold in place of a buffer, or an accessor: the same memory, but it shows in
    `Span.dead` whether the caller has the buffer. Other arguments are as they are."""
    if argument.__class__ is Accessor:
        return Accessor(inside(argument.buffer), argument.access)
    if argument.__class__ is not Buffer:
        return argument
    if argument._inner is None:
        _ = argument.array
        with _inside:
            if argument._inner is None:
                _put_inside(_copied(argument), argument)
    return argument._inner


def around(inner: Buffer) -> Buffer:
    """The buffer that a caller has, with ``inner`` inside."""
    return _put_inside(inner, _copied(inner))


def _copied(buffer: Buffer) -> Buffer:
    """A buffer on the same memory (`copy.copy` takes five times as long)."""
    other = Buffer.__new__(Buffer)
    other.__dict__.update(buffer.__dict__)
    return other


def _put_inside(inner: Buffer, outer: Buffer) -> Buffer:
    outer._inner, outer.span.holder = inner, weakref.ref(outer)
    return outer
