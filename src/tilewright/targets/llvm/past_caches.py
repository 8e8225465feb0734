"""Stores past the caches (non-temporal ones), and prefetches of the data for them."""

from __future__ import annotations

from tilewright.targets.llvm.masked import plain_store
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.llvm.writer import Writer

# Bytes at whose multiples vectors can be stored past the caches.
STREAMED = 16
# The metadata of non-temporal stores.
_STREAM = "!0"
# Distance of prefetches in bytes; one line is fetched by each. Processors prefetch by themselves,
# but not from one page into the next.
_AHEAD = 4096
_LINE = 64


def streamable(pointer: Pointer, value: Value) -> bool:
    """Whether all lanes of ``value`` can be stored past the caches at ``pointer``."""
    return pointer.align >= STREAMED and value.lanes * value.dtype.bytes % STREAMED == 0


def store_past_caches(w: Writer, pointer: Pointer, value: Value) -> None:
    """Stores all lanes of ``value`` past the caches."""
    w.declarations[_STREAM] = f"{_STREAM} = !{{i32 1}}"
    plain_store(w, pointer, value, f", !nontemporal {_STREAM}")


def prefetch_ahead(w: Writer, pointer: Pointer, size: int) -> None:
    """Prefetches for a loop that reads ``size`` bytes at ``pointer`` and goes on in order."""
    for offset in range(_AHEAD, _AHEAD + size, _LINE):
        ahead = w.assign(f"getelementptr i8, {pointer.typed}, i64 {offset}")
        prefetch(w, pointer._replace(text=ahead))


def prefetch(w: Writer, pointer: Pointer, cache: int = 1) -> None:
    """Prefetches for reading at ``pointer``, into all caches from the ``cache``th on. An address
    without memory does no harm."""
    arguments = f"{pointer.typed}, i32 0, i32 {4 - cache}, i32 1"
    w.call_void("llvm.prefetch.p0", arguments, "ptr, i32, i32, i32")
