"""Places of buffers in the memory that a workgroup shares."""

from __future__ import annotations

from tilewright.ir.buffer import Buffer, workgroup_bytes
from tilewright.targets.llvm.types import memory_type
from tilewright.targets.llvm.writer import Writer

# Alignment in bytes of buffers in one shared array: the width of all banks.
_SHARED_ALIGNMENT = 128
# Greatest alignment of swizzled buffers: eight rows of 128 bytes, permuted by the address.
_WHOLE_ALIGNMENT = 1024


class SharedMemory:
    """The buffers placed so far, one after the other, and the ``bytes`` that they take."""

    def __init__(self, w: Writer) -> None:
        self._w = w
        self._placed: set[Buffer] = set()
        self.bytes = 0

    def place(self, buffer: Buffer, space: int) -> str | None:
        """The pointer to ``buffer``; None if it has its place already, as in unrolled loops."""
        if buffer in self._placed:
            return None
        self._placed.add(buffer)
        w, whole = self._w, self._w.dialect.shared
        start = self.bytes
        if whole:
            align = _alignment(buffer)
            start = -(-start // align) * align
            if align > _SHARED_ALIGNMENT or whole not in w.declarations:
                text = f"external addrspace({space}) global [0 x i8], align {align}"
                w.declarations[whole] = f"@{whole} = {text}"
            pointer = f"getelementptr (i8, ptr addrspace({space}) @{whole}, i64 {start})"
        else:
            type_ = memory_type(buffer.dtype)
            pointer = w.shared(buffer.name, type_, buffer.layout.extent, space)
        self.bytes = start + workgroup_bytes(buffer)
        return pointer


def _alignment(buffer: Buffer) -> int:
    """Alignment of a shared buffer in bytes: a whole period of its swizzle."""
    swizzle = buffer.layout.swizzle
    period = 0 if swizzle is None else swizzle.period * buffer.dtype.bytes
    return _WHOLE_ALIGNMENT if period > _SHARED_ALIGNMENT else _SHARED_ALIGNMENT
