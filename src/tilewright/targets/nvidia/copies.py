"""Asynchronous copies from global to shared memory (``cp.async``, from sm_80 on).

A copy in a vector loop goes in pieces of 16, 8 and 4 bytes, as large as its lanes lie side by side
and both addresses are aligned. Where its source is masked it reads nothing, and zeros arrive. What
no such copy can move (less than 4 bytes) is loaded and stored at once, which the wait allows.

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
from tilewright.targets.llvm.plan import Address, CallPlan, Loads
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.llvm.writer import Writer

# Bytes of the largest piece: what one work-item moves at a time.
ALIGNMENT = 16
_PIECES = (16, 8, 4)


def _emit_copy(memory: MemoryMap, plan: CallPlan) -> None:
    destination, source = plan.stmt.args
    into, out_of = plan.addresses
    assert isinstance(destination, View) and isinstance(source, View)
    assert into is not None and out_of is not None
    _check(destination, source)
    # The predicate says what is copied at all; the mask, where zeros are.
    predicate, memory.predicate = memory.predicate, None
    mask = memory.mask(source.mask, plan.loads)
    memory.predicate = predicate
    varying = isinstance(mask, Value) and mask.lanes > 1
    single = varying or predicate is not None
    for start, lanes in _runs(memory, into, out_of, single):
        pointers = [memory.pointer(each, plan.loads, start) for each in (into, out_of)]
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
            why="the machine does not convert on the way",
            cure="convert where the copy is read",
        )


def _runs(
    memory: MemoryMap, into: Address, out_of: Address, single: bool
) -> Iterator[tuple[int, int]]:
    """The active lanes as runs that are copied as one: the first of each, and how many."""
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
    """``lanes`` neighbours, as the largest pieces that both addresses allow."""
    into, out_of = pointers
    size, done, total = source.buffer.dtype.bytes, 0, lanes * source.buffer.dtype.bytes
    while done < total:
        aligned = max(min(p.align for p in (into, out_of)), size)
        fits = (p for p in _PIECES if p <= total - done and p <= aligned)
        piece = next(fits, 0)
        if piece:
            _piece(memory.w, into, out_of, piece, mask)
        else:
            _element(memory, into, out_of, source, mask)
        step = piece or size
        done += step
        if done < total:
            into, out_of = (memory.advanced(p, str(step), step) for p in (into, out_of))


def _piece(w: Writer, into: Pointer, out_of: Pointer, size: int, mask: Value | bool | None) -> None:
    # The largest ones pass by L1.
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
    known: Loads = plan.loads
    count = memory.exprs.evaluate(pending, known)
    if isinstance(count, Value):
        raise CompilationError(
            "wait_copies on a number that is not constant",
            why="the instruction holds it",
            cure="wait for fewer, or unroll the loop",
        )
    memory.w.call_void("llvm.nvvm.cp.async.wait.group", f"i32 {int(count)}", "i32")


COPIES: dict[str, EmitCall] = {
    "copy_async": _emit_copy,
    "commit_copies": _emit_commit,
    "wait_copies": _emit_wait,
}
