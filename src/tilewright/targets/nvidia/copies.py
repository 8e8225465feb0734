"""Asynchronous copies from global to shared memory (``cp.async``, from sm_80 on).

A copy in a vector loop is split in pieces of 16, 8 and 4 bytes: as large as contiguous lanes and
the alignment of both addresses allow. Where its source is masked it reads nothing, and zeros
arrive. Elements of less than 4 bytes that no piece covers are loaded and stored at once.

Source: NVIDIA, PTX ISA, "cp.async" and "cp.async.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.errors import CompilationError
from tilewright.ir.buffer import Space
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import View
from tilewright.targets.llvm.calls import EmitCall
from tilewright.targets.llvm.masked import lane_of, plain_load, plain_store
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.plan import Address, CallPlan
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.llvm.writer import Writer

# Bytes of the largest piece, which one work-item copies at a time.
ALIGNMENT = 16
_PIECES = (16, 8, 4)


def _emit_copy(memory: MemoryMap, plan: CallPlan) -> None:
    destination, source = plan.stmt.args
    into, out_of = plan.addresses
    assert isinstance(destination, View) and isinstance(source, View)
    assert into is not None and out_of is not None
    _check(destination, source)
    # The predicate says whether anything is copied; the mask, whether zeros are.
    predicate, memory.predicate = memory.predicate, None
    mask = memory.mask(source.mask, plan.loads)
    memory.predicate = predicate
    varying = isinstance(mask, Value) and mask.lanes > 1
    single = varying or predicate is not None
    for start, lanes in _runs(memory, into, out_of, single):
        pointers = [memory.pointer(address, plan.loads, start) for address in (into, out_of)]
        flag = lane_of(memory.w, mask, start) if isinstance(mask, Value) else mask
        if predicate is None:
            _copy(memory, pointers, out_of, lanes, flag)
            continue
        with memory.w.where(lane_of(memory.w, predicate, start).text):
            _copy(memory, pointers, out_of, lanes, flag)


def _check(destination: View, source: View) -> None:
    spaces = (source.buffer.space, destination.buffer.space)
    if spaces != (Space.GLOBAL, Space.WORKGROUP):
        raise CompilationError(
            f"an asynchronous copy from {source.buffer.name!r} to {destination.buffer.name!r}",
            why="this target copies from global to workgroup memory only",
            cure="load and store instead",
        )
    if source.buffer.dtype is not destination.buffer.dtype:
        raise CompilationError(
            f"an asynchronous copy of {source.buffer.dtype} to {destination.buffer.dtype}",
            why="copies do not convert",
            cure="convert where the copy is read",
        )


def _runs(
    memory: MemoryMap, into: Address, out_of: Address, single: bool
) -> Iterator[tuple[int, int]]:
    """The active lanes in runs that are copied as one: the first lane and the length of each."""
    active = 1 if memory.lanes is None else memory.lanes.active
    together = not single and memory.stride(into) == 1 and memory.stride(out_of) == 1
    if together:
        yield 0, active
    else:
        yield from ((lane, 1) for lane in range(active))


def _copy(
    memory: MemoryMap,
    pointers: list[Pointer],
    source: Address,
    lanes: int,
    mask: Value | bool | None,
) -> None:
    """Copies ``lanes`` neighbours in the largest pieces that both addresses allow."""
    into, out_of = pointers
    size, copied, total = source.buffer.dtype.bytes, 0, lanes * source.buffer.dtype.bytes
    while copied < total:
        aligned = max(min(p.align for p in (into, out_of)), size)
        fits = (p for p in _PIECES if p <= total - copied and p <= aligned)
        piece = next(fits, 0)
        if piece:
            _piece(memory.w, into, out_of, piece, mask)
        else:
            _element(memory, into, out_of, source, mask)
        step = piece or size
        copied += step
        if copied < total:
            into, out_of = (memory.advanced(p, str(step), step) for p in (into, out_of))


def _piece(w: Writer, into: Pointer, out_of: Pointer, size: int, mask: Value | bool | None) -> None:
    # Copies of 16 bytes bypass L1.
    cache = "cg" if size == 16 else "ca"
    name = f"llvm.nvvm.cp.async.{cache}.shared.global.{size}"
    pointers, types = f"{into.typed}, {out_of.typed}", f"{into.type}, {out_of.type}"
    if mask is None or mask is True:
        w.call_void(name, pointers, types)
        return
    read = "0"
    if isinstance(mask, Value):
        read = w.assign(f"select {mask.typed}, i32 {size}, i32 0")
    w.call_void(f"{name}.s", f"{pointers}, i32 {read}", f"{types}, i32")


def _element(
    memory: MemoryMap,
    into: Pointer,
    out_of: Pointer,
    source: Address,
    mask: Value | bool | None,
) -> None:
    w, buffer = memory.w, source.buffer
    if mask is False:
        plain_store(w, into, memory.exprs.value(0, buffer.dtype))
    elif isinstance(mask, Value):
        plain_store(w, into, memory.load_lanes(out_of, buffer, 1, 1, mask))
    else:
        plain_store(w, into, plain_load(w, out_of, buffer.dtype, 1))


def _emit_commit(memory: MemoryMap, plan: CallPlan) -> None:
    del plan
    memory.w.call_void("llvm.nvvm.cp.async.commit.group", "", "")


def _emit_wait(memory: MemoryMap, plan: CallPlan) -> None:
    (pending,) = plan.stmt.args
    assert isinstance(pending, Expr)
    count = memory.exprs.evaluate(pending, plan.loads)
    if isinstance(count, Value):
        raise CompilationError(
            "wait_copies on a number that is not constant",
            why="it is part of the instruction",
            cure="wait for fewer, or unroll the loop",
        )
    memory.w.call_void("llvm.nvvm.cp.async.wait.group", f"i32 {int(count)}", "i32")


COPIES: dict[str, EmitCall] = {
    "copy_async": _emit_copy,
    "commit_copies": _emit_commit,
    "wait_copies": _emit_wait,
}
