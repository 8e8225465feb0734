"""Memory for kernels that detects faulty writes.

Each array lies inside a larger one whose other bytes have known values, the *canaries*. It starts
at an address with the alignment of its element and no more. There may also be *gaps*: elements
between those that strides or blocks reach. A kernel must write neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.engine.signature import argument_form
from tilewright.interpret import pack, unpack
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ops.op import Argument

GUARD = 4096  # bytes on each side
_LINE = 64
# Inputs: every element is NaN, or -1, which shows in results that use it. Outputs: a value that a
# kernel is unlikely to write, so that a write shows.
_INPUT_CANARY, _OUTPUT_CANARY = 0xFF, 0xA5


class Guarded:
    """An argument's memory: ``array`` is passed to a kernel, ``fault`` reports its faults."""

    def __init__(self, argument: Argument, values: Any | None) -> None:
        """``values``, of the logical shape, are the contents; None: not written yet."""
        self.argument = argument
        self._memory = _memory(argument)
        self._written = argument.access != "in"
        canary = _OUTPUT_CANARY if self._written else _INPUT_CANARY
        size = self._memory.bytes
        self._raw = np.full(size + 2 * GUARD + 2 * _LINE, canary, np.uint8)
        # One element past a cache line, so that the alignment is that of the element.
        start = GUARD + -(self._raw.ctypes.data + GUARD) % _LINE + argument.dtype.bytes
        self.flat = self._raw[start : start + size].view(argument.dtype.numpy)
        self._outside = (slice(0, start), slice(start + size, None))
        padded_shape = argument.layout.padded_shape(len(argument.shape))
        whole = _memory(argument, padded_shape)
        self._reached = pack(whole, np.ones(padded_shape, whole.dtype.numpy)) != 0
        if values is None:
            # NaN in every float type, -1 or the greatest number in integer types.
            self.flat.view(np.uint8).reshape(-1, argument.dtype.bytes)[self._reached] = 0xFF
        else:
            packed = pack(self._memory, np.asarray(values, argument.dtype.numpy))
            self.flat[self._reached] = packed[self._reached]
        self._before = self._raw.copy()

    @property
    def array(self) -> Any:
        """The array of `engine.signature.Form`: of the logical shape, or with a dim per block."""
        return argument_form(self.argument).view(self.flat)

    @property
    def values(self) -> Any:
        """The logical array, copied."""
        return unpack(self._memory, self.flat)

    def fault(self) -> str | None:
        """The kernel's faulty write; None if there was none."""
        name = self.argument.name
        for part, side in zip(self._outside, ("before", "after"), strict=True):
            changed = np.flatnonzero(self._raw[part] != self._before[part])
            if changed.size:
                length = len(self._raw[part])
                away = length - int(changed[-1]) if side == "before" else int(changed[0]) + 1
                return f"{changed.size} bytes were written outside of {name}, {away} {side} it"
        start, size = self._outside[0].stop, self._memory.bytes
        before = self._before[start : start + size].reshape(-1, self.argument.dtype.bytes)
        now = self.flat.view(np.uint8).reshape(before.shape)
        changed = np.flatnonzero(np.any(before != now, axis=1))
        if not self._written:
            return f"the input {name} was changed at offset {changed[0]}" if changed.size else None
        gaps = changed[~self._reached[changed]]
        if gaps.size:
            return f"a gap between the elements of {name} was written, at offset {gaps[0]}"
        return self._padding_fault()

    def _padding_fault(self) -> str | None:
        layout, shape = self.argument.layout, self.argument.shape
        padded_shape = layout.padded_shape(len(shape))
        if padded_shape == shape:
            return None
        padded = np.array(unpack(_memory(self.argument, padded_shape), self.flat))
        padded[tuple(slice(0, size) for size in shape)] = 0
        wrong = np.argwhere(padded.astype(np.float64) != 0)
        if not wrong.size:
            return None
        place = tuple(int(i) for i in wrong[0])
        return f"the padding of {self.argument.name} is not zero at {list(place)}"


def _memory(argument: Argument, shape: tuple[int, ...] | None = None) -> Buffer:
    shape = argument.shape if shape is None else shape
    return buffer(argument.name, argument.dtype, shape, argument.layout)
