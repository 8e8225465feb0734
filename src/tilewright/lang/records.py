"""The records that work-items left, read after a launch: printed, or raised."""

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


def tell(records: Any, messages: Sequence[Message], dims: int) -> None:
    """Prints what work-items say, by their ids; raises `KernelError` for the first assertion that
    does not hold."""
    found = sorted(_read(records, messages, dims), key=lambda each: each[0])
    for ids, message, values in found:
        if message.failed:
            raise KernelError(
                f"an assertion does not hold: {message.text}",
                where=message.span,
                why=f"in the work-item {_tuple(ids)}",
                cure="correct the kernel, or what it is given",
            )
        print(message.text.format(*values))
    written = int(records[0])
    if written >= ROOM:
        print(f"({written - ROOM + 1} more words were printed than fit)", file=sys.stderr)


def _read(
    records: Any, messages: Sequence[Message], dims: int
) -> list[tuple[tuple[int, ...], Message, list[Any]]]:
    found = []
    at, end = 1, min(int(records[0]) + 1, ROOM)
    while at < end:
        message = messages[int(records[at])]
        words = records[at + 1 : at + 1 + 2 * (dims + len(message.types))]
        if len(words) < 2 * (dims + len(message.types)):
            break  # its end did not fit: nothing of it is there
        pairs = words.reshape(-1, 2).astype(np.uint64)
        bits = pairs[:, 0] | (pairs[:, 1] << np.uint64(32))
        ids = tuple(int(each) for each in bits[:dims].view(np.int64))
        values = [
            _value(each, dtype) for each, dtype in zip(bits[dims:], message.types, strict=True)
        ]
        found.append((ids, message, values))
        at += 1 + len(words)
    return found


def _value(bits: Any, dtype: DType) -> bool | int | float:
    if dtype.is_float:
        return float(bits.view(np.float64))
    if dtype.kind == "bool":
        return bool(bits)
    return int(bits) if dtype.kind == "uint" else int(bits.view(np.int64))


def _tuple(ids: tuple[int, ...]) -> str:
    return f"{ids[0]}" if len(ids) == 1 else f"{ids}"
