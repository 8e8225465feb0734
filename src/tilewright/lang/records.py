"""Reading the records that work-items wrote, after a launch: printed, or raised."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import KernelError
from tilewright.lang.messages import ROOM, Message


def new_records() -> Any:
    """The array that a launch passes."""
    return np.zeros(ROOM, np.uint32)


def report(records: Any, messages: Sequence[Message], dims: int) -> None:
    """Prints the messages of work-items, by their ids; raises `KernelError` for the first assertion
    that failed."""
    entries = sorted(_read(records, messages, dims), key=lambda entry: entry[0])
    for ids, message, values in entries:
        if message.failed:
            raise KernelError(
                f"an assertion does not hold: {message.text}",
                where=message.span,
                why=f"in the work-item {_tuple(ids)}",
                cure="correct the kernel, or its arguments",
            )
        print(message.text.format(*values))
    written = int(records[0])
    if written >= ROOM:
        print(f"({written - ROOM + 1} more words were printed than fit)", file=sys.stderr)


def _read(
    records: Any, messages: Sequence[Message], dims: int
) -> list[tuple[tuple[int, ...], Message, list[Any]]]:
    entries = []
    position, end = 1, min(int(records[0]) + 1, ROOM)
    while position < end:
        message = messages[int(records[position])]
        words = records[position + 1 : position + 1 + 2 * (dims + len(message.types))]
        if len(words) < 2 * (dims + len(message.types)):
            break  # its end did not fit
        pairs = words.reshape(-1, 2).astype(np.uint64)
        bits = pairs[:, 0] | (pairs[:, 1] << np.uint64(32))
        ids = tuple(int(number) for number in bits[:dims].view(np.int64))
        values = [
            _value(word, dtype) for word, dtype in zip(bits[dims:], message.types, strict=True)
        ]
        entries.append((ids, message, values))
        position += 1 + len(words)
    return entries


def _value(bits: Any, dtype: DType) -> bool | int | float:
    if dtype.is_float:
        return float(bits.view(np.float64))
    if dtype.kind == "bool":
        return bool(bits)
    return int(bits) if dtype.kind == "uint" else int(bits.view(np.int64))


def _tuple(ids: tuple[int, ...]) -> str:
    return f"{ids[0]}" if len(ids) == 1 else f"{ids}"
