"""What is decided when a command runs: memory of buffers that have none yet, and packed weights."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.engine import CompiledKernel
from tilewright.engine.placing import Packed
from tilewright.queues.buffers import Accessor, Buffer
from tilewright.queues.events import Work
from tilewright.queues.room import room_of
from tilewright.queues.scheduler import SCHEDULER
from tilewright.runtime.arrays import describe
from tilewright.runtime.remote import lent

# Addresses beyond all that a process has.
_NOWHERE = 2**62
_nowhere = [_NOWHERE]
_stand_ins: weakref.WeakKeyDictionary[Buffer, NDArray[Any]] = weakref.WeakKeyDictionary()


def held_weakly(arguments: Sequence[Any]) -> Callable[[], list[Any]]:
    """Gives ``arguments``. Plans are kept, and hold no buffers: those that a command runs on, it
    holds itself."""
    kept = [_weak(argument) for argument in arguments]
    return lambda: [argument() for argument in kept]


def _weak(argument: Any) -> Callable[[], Any]:
    if argument.__class__ is Buffer:
        return weakref.ref(argument)
    if argument.__class__ is Accessor:
        buffer, access = weakref.ref(argument.buffer), argument.access
        return lambda: Accessor(buffer(), access)  # type: ignore[arg-type]
    return lambda: argument


def lacks_memory(arguments: Sequence[Any]) -> bool:
    """Whether a buffer among ``arguments`` has no memory yet."""
    return any(not buffer.has_memory for buffer in map(_buffer, arguments) if buffer is not None)


def stand_in(buffer: Buffer) -> NDArray[Any]:
    """The memory of ``buffer``; or, as long as it has none, an array of its shape and type, whose
    addresses are no memory's: for checks, which touch no elements. Raises `QueueError` for a closed
    buffer."""
    if buffer.has_memory or buffer.span.closed:
        return buffer.array
    array = _stand_ins.get(buffer)
    if array is None:
        size = (math.prod(buffer.shape) * buffer.dtype.bytes // 64 + 2) * 64
        with SCHEDULER.lock:
            address = _nowhere[0]
            _nowhere[0] = address + size if address + size < 2**63 else _NOWHERE
        # As plain bits: numpy has no text for some types.
        bits = np.asarray(_Nowhere(address, buffer.shape, buffer.dtype.bytes))
        there = room_of(buffer.device).there(bits.view(buffer.dtype.numpy))
        array = _stand_ins[buffer] = there
    return array


class _Nowhere:
    """Elements of so many bytes at an address, as numpy asks for them."""

    def __init__(self, address: int, shape: tuple[int, ...], size: int) -> None:
        kind = f"|u{size}" if size == 1 else f"<u{size}"
        interface = {"version": 3, "data": (address, False), "shape": shape, "typestr": kind}
        self.__array_interface__ = interface


def when_it_runs(arguments: Sequence[Any], plan: Callable[[Sequence[Any]], Work]) -> Work:
    """What ``plan`` makes of ``arguments`` when it is run first: all have memory then."""
    held, planned = held_weakly(arguments), list[Work]()

    def work(threads: int) -> None:
        if not planned:
            passed = held()
            for buffer in map(_buffer, passed):
                if buffer is not None:
                    _ = buffer.array
            planned.append(plan(passed))
        planned[0](threads)

    return work


def _buffer(argument: Any) -> Buffer | None:
    buffer = argument.buffer if argument.__class__ is Accessor else argument
    return buffer if buffer.__class__ is Buffer else None


# Packed weights.


def stands_for_packed(kernel: CompiledKernel, name: str, array: Any) -> Packed:
    """What a call is checked with before ``array`` is packed. Raises `ArgumentError` for one of
    another shape or type, as `CompiledKernel.pack` does."""
    pack, info = kernel.packing[name], describe(array, name)
    spec = kernel.signature.form(name).spec(name, writable=False)
    if not info.dtype.is_nibble:  # these may lie in a byte each, or two in one
        strides = spec.strides if info.shape == spec.shape else info.strides
        spec.check(replace(info, strides=strides))
    return Packed(name, pack.key, (), (0,) * len(pack.forms))


def packed(kernel: CompiledKernel, name: str, argument: Any, array: Any) -> Any:
    """``array``, that of ``argument``, in the order in which the kernel reads it: packed now,
    unless it was, and nothing was written since.

    A command that reads the argument is running, so that nothing writes it meanwhile."""
    buffer = _buffer(argument)
    version = None if buffer is None else SCHEDULER.version(buffer.span)
    if buffer is None or version is None:
        return _pack(kernel, name, array)
    key = kernel.packing[name].key
    kept = buffer.packed.get(key)
    if kept is None or kept[0] != version:
        kept = buffer.packed[key] = version, _pack(kernel, name, array)
    return kept[1]


def _pack(kernel: CompiledKernel, name: str, array: Any) -> Any:
    # From the host, in whatever order: it is done once.
    with lent(array, reads=True, writes=False) as values:
        return kernel.pack(name, values)
