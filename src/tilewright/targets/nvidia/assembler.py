"""Instructions without an LLVM intrinsic, or not in all forms: PTX in the text of the module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilewright.dtypes import s32
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.values import Pointer, Result, Value
from tilewright.targets.llvm.writer import Writer


def ptx(w: Writer, text: str, arguments: Sequence[Value] = (), constraints: str = "") -> None:
    """PTX without a result, which is neither moved nor removed. ``$0`` is the first argument;
    ``constraints`` has a letter for each: ``h`` for 16 bits, ``r`` for 32, ``l`` for 64."""
    typed = ", ".join(value.typed for value in arguments)
    letters = ",".join((*constraints, "~{memory}"))
    w.emit(f'call void asm sideeffect "{text}", "{letters}"({typed})')


def shared_address(w: Writer, pointer: Pointer) -> Value:
    """The address of ``pointer`` in shared memory, as PTX takes it."""
    return Value(w.assign(f"ptrtoint {pointer.typed} to i32"), s32)


def number(memory: MemoryMap, result: Result) -> Value:
    """An index as 32 bits."""
    if not isinstance(result, Value):
        return Value(str(int(result)), s32)
    if result.dtype is s32:
        return result
    return Value(memory.w.assign(f"trunc {result.typed} to i32"), s32)


@contextmanager
def one_lane(memory: MemoryMap) -> Iterator[None]:
    """The ``with`` block runs in one lane, where the subgroup acts as one."""
    if memory.lane is None or memory.each_lane:
        yield
        return
    first = memory.w.assign(f"icmp eq {memory.lane.typed}, 0")
    # Values from inside are not defined afterwards.
    memory.exprs.push()
    with memory.w.where(first):
        yield
    memory.exprs.pop()
