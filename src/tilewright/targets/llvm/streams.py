"""Stores past the caches, and what is read for them."""

from __future__ import annotations

from tilewright.targets.llvm.masked import plain_store
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.llvm.writer import Writer

# Bytes at whose multiples vectors can be stored past the caches.
STREAMED = 16
# LLVM's word for such stores.
_STREAM = "!0"
# What they are made of is asked for so many bytes ahead, a line at a time: processors look ahead by
# themselves, but not from one page into the next.
_AHEAD = 4096
_LINE = 64


def streamable(pointer: Pointer, value: Value) -> bool:
    """Whether all lanes of ``value`` can be stored past the caches at ``pointer``."""
    return pointer.align >= STREAMED and value.lanes * value.dtype.bytes % STREAMED == 0


def stream(w: Writer, pointer: Pointer, value: Value) -> None:
    """Stores all lanes of ``value`` past the caches."""
    w.declarations[_STREAM] = f"{_STREAM} = !{{i32 1}}"
    plain_store(w, pointer, value, f", !nontemporal {_STREAM}")


def ask_ahead(w: Writer, pointer: Pointer, size: int) -> None:
    """Asks for the ``size`` bytes that a loop which reads those at ``pointer`` will read later."""
    for offset in range(_AHEAD, _AHEAD + size, _LINE):
        ahead = w.assign(f"getelementptr i8, {pointer.typed}, i64 {offset}")
        prefetch(w, pointer._replace(text=ahead))


def prefetch(w: Writer, pointer: Pointer) -> None:
    """Asks for what is to be read at ``pointer``, into all caches. Nothing happens where there is
    no memory."""
    arguments = f"{pointer.typed}, i32 0, i32 3, i32 1"
    w.call_void("llvm.prefetch.p0", arguments, "ptr, i32, i32, i32")
