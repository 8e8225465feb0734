"""What is decided when a command runs: memory of buffers that have none yet, and packed weights."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.engine import CompiledKernel
from tilewright.engine.placing import Packed
from tilewright.queues.buffers import Accessor, Buffer
from tilewright.queues.events import Work
from tilewright.queues.scheduler import SCHEDULER
from tilewright.runtime.arrays import describe


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
    return any(not each.has_memory for each in map(_buffer, arguments) if each is not None)


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
    version = None if buffer is None or not buffer.is_private else SCHEDULER.version(buffer.span)
    if buffer is None or version is None:
        return kernel.pack(name, array)
    key = kernel.packing[name].key
    kept = buffer.packed.get(key)
    if kept is None or kept[0] != version:
        kept = buffer.packed[key] = version, kernel.pack(name, array)
    return kept[1]
