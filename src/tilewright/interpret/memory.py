"""Memory: flat numpy arrays under the layouts of buffers, with every access checked.

An access outside the padded shape of the layout, a read of what nothing wrote, and a store to an
input are faults. Memory from `Allocate` and ``out`` parameters count as not written at first:
when a kernel runs for real, they hold whatever was there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tilewright.errors import ArgumentError, InterpreterFault
from tilewright.interpret.findings import FaultKind, Findings
from tilewright.interpret.lanes import (
    Frame,
    Identity,
    Site,
    anywhere,
    at_lane,
    both,
    fault,
    first_lane,
    together,
)
from tilewright.interpret.races import Run
from tilewright.interpret.registers import check_owner
from tilewright.interpret.storage import Storage, Storages, UnderWay, Where
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.constants import missing_constant
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Kernel, Param
from tilewright.ir.symbols import scalar_constants, substitute_buffer

# Fills fresh memory: a NaN in every float type, -1 in integers.
_POISON_BYTE = 0xFF


class Observer(Protocol):
    """Is told of each access that a machine makes (offsets within the lane's copy)."""

    def note(self, verb: str, buffer: Buffer, where: Where) -> None: ...


class Memory:
    """All buffers that exist at one time, and the runs that share them."""

    def __init__(self, findings: Findings, observer: Observer | None = None) -> None:
        self.runs: list[Run] = []
        self.findings = findings
        self._observer = observer
        self.storages: Storages = {}
        self.abandoned = False  # programs are to end, as another one failed
        # Values of scalar parameters, and symbolic buffers with these in place.
        self._scalars: dict[Var, Expr] = {}
        self._concrete: dict[Buffer, Buffer] = {}

    def bind(self, kernel: Kernel, arrays: Mapping[str, Any]) -> None:
        """Takes the arguments of a kernel. `ArgumentError` if one does not fit."""
        self._scalars = scalar_constants(kernel, arrays)
        for param in kernel.arrays:
            concrete = self.concrete(param.buffer)
            array = _argument(kernel, replace(param, buffer=concrete), arrays)
            self.storages[param.buffer] = Storage(param.buffer, array, param.access, 0, concrete)

    def concrete(self, buffer: Buffer) -> Buffer:
        """``buffer`` with the values of scalar parameters in its sizes."""
        if not buffer.symbols:
            return buffer
        concrete = self._concrete.get(buffer)
        if concrete is None:
            concrete = self._concrete[buffer] = substitute_buffer(buffer, self._scalars)
        return concrete

    def allocate(self, buffer: Buffer, frame: Frame) -> Storage | None:
        """Fresh memory for ``buffer``, per lane; returns what it had before, for `release`."""
        before = self.storages.get(buffer)
        concrete = self.concrete(buffer)
        extent = concrete.layout.extent
        data = _allocated(buffer, frame.lanes * extent)
        if frame.shape:
            frame.values[buffer] = np.arange(0, len(data), extent).reshape(frame.shape)
        else:
            frame.values.pop(buffer, None)
        data.view(np.uint8).fill(1 if buffer.dtype.kind == "bool" else _POISON_BYTE)
        storage = self.storages[buffer] = Storage(buffer, data, "local", len(self.runs), concrete)
        if buffer.space is Space.PRIVATE and not frame.threads:
            storage.lanes = frame.values.get(Identity.LANES, 0)
        return before

    def release(self, buffer: Buffer, before: Storage | None) -> None:
        """Ends the memory of ``buffer``."""
        if before is None:
            del self.storages[buffer]
        else:
            self.storages[buffer] = before

    def storage(self, buffer: Buffer, site: Site) -> Storage:
        """The memory of ``buffer``; a fault where it has none."""
        storage = self.storages.get(buffer)
        if storage is None:
            raise fault(
                f"{buffer.name!r} has no memory here",
                site,
                (),
                why="it is no parameter of the kernel, and no Allocate of it is in scope",
                cure="allocate it in a block around this statement, or make it a parameter",
            )
        return storage

    def locate(self, buffer: Buffer, index: list[Any], mask: Any, site: Site) -> tuple[Any, Any]:
        """Offsets of ``index``, checked, and the mask of the valid ones."""
        storage = self.storage(buffer, site)
        inside = list(index)
        for dim, (value, size) in enumerate(zip(index, storage.shape, strict=True)):
            bad = _outside(value, size)
            if not anywhere(bad):
                continue
            inside[dim] = np.where(bad, 0, value)
            touched = np.asarray(bad if mask is None else bad & mask)
            if anywhere(touched):
                self._out_of_bounds(storage.concrete, index, (dim, size), touched, site)
                mask = both(mask, np.logical_not(bad))
        begin = site.frame.values.get(buffer)
        offsets = storage.concrete.layout.place(inside)
        if storage.lanes and site.frame.threads:
            check_owner(buffer, offsets, mask, site, self.findings, storage.lanes)
        return (offsets if begin is None else offsets + begin), mask

    def _out_of_bounds(
        self, buffer: Buffer, index: list[Any], place: tuple[int, int], bad: Any, site: Site
    ) -> None:
        self.findings.report(
            FaultKind.OUT_OF_BOUNDS,
            site.stmt,
            site.count(bad),
            lambda: _out_of_bounds(buffer, index, place, bad, site),
        )

    def read(self, buffer: Buffer, offsets: Any, mask: Any, site: Site) -> Any:
        """The elements at ``offsets``; 0 where ``mask`` is false."""
        storage = self.storage(buffer, site)
        if storage.writes:
            self._early(storage, storage.writes, (offsets, mask, site), _READ)
        self.check_defined(storage, offsets, mask, site)
        if storage.depth < len(self.runs):
            storage.note("read", self.runs, (offsets, mask, site), self.findings)
        elif (started := site.frame.values.get(Identity.ASYNCHRONOUS)) is not None:
            started.reads.append((storage, (offsets, mask, site)))
        self.observe("load", buffer, offsets, mask, site)
        values = storage.data[offsets]
        return values if mask is None else np.where(mask, values, values.dtype.type(0))

    def observe(self, verb: str, buffer: Buffer, offsets: Any, mask: Any, site: Site) -> None:
        """Tells the observer of an access that the machine makes."""
        if self._observer is not None:
            begin = site.frame.values.get(buffer, 0)
            self._observer.note(verb, buffer, (offsets - begin, mask, site))

    def check_defined(self, storage: Storage, offsets: Any, mask: Any, site: Site) -> None:
        """Reports elements that are about to be read and were never written."""
        if storage.defined is None:
            return
        undefined = ~storage.defined[offsets]
        if not anywhere(undefined):
            return
        bad = np.asarray(undefined if mask is None else undefined & mask)
        if storage.writes:
            bad = bad & ~storage.writes.at(offsets)  # reported as an access before arrival
        if bad.any():
            self.findings.report(
                FaultKind.UNINITIALIZED,
                site.stmt,
                site.count(bad),
                lambda: _undefined(storage.concrete, offsets, bad, site),
            )

    def _early(self, storage: Storage, others: UnderWay, where: Where, what: _Early) -> None:
        """Reports accesses before ``others`` are complete."""
        offsets, mask, site = where
        coming = others.at(offsets)
        bad = np.asarray(coming if mask is None else coming & mask)
        if bad.any():
            self.findings.report(
                FaultKind.EARLY_ACCESS,
                site.stmt,
                site.count(bad),
                lambda: _early(storage.concrete, what, (offsets, bad, site)),
            )

    def load(self, buffer: Buffer, index: list[Any], mask: Any, site: Site) -> Any:
        """``buffer[index]`` per lane; 0 where ``mask`` is false or the lane does not run."""
        mask = both(site.frame.mask, mask)
        if mask is not None and not anywhere(mask):
            return buffer.dtype.numpy.type(0)
        offsets, mask = self.locate(buffer, index, mask, site)
        return self.read(buffer, offsets, mask, site)

    def writable(self, buffer: Buffer, site: Site) -> Storage | None:
        """The memory of ``buffer``, which is about to be written; None where it must not be."""
        storage = self.storage(buffer, site)
        if storage.writable:
            return storage
        self.findings.report(
            FaultKind.INPUT_WRITTEN, site.stmt, 1, lambda: _input_written(buffer, site)
        )
        return None

    def note(self, verb: str, buffer: Buffer, where: Where, queued: bool = False) -> None:
        """Checks that a write (or an ``atomic``) may happen now, and notes it for the runs. A
        ``queued`` one happens after pending writes."""
        storage = self.storage(buffer, where[2])
        if storage.writes and not queued:
            self._early(storage, storage.writes, where, _WRITTEN)
        if storage.reads:
            self._early(storage, storage.reads, where, _OVERWRITTEN)
        if storage.depth < len(self.runs):
            storage.note(verb, self.runs, where, self.findings)

    def write(self, buffer: Buffer, offsets: Any, values: Any, mask: Any, site: Site) -> None:
        """Stores ``values`` at ``offsets`` where ``mask`` holds."""
        storage = self.writable(buffer, site)
        if storage is None:
            return
        self.note("write", buffer, (offsets, mask, site))
        self.observe("store", buffer, offsets, mask, site)
        self.put(storage, offsets, values, mask)

    @staticmethod
    def put(storage: Storage, offsets: Any, values: Any, mask: Any) -> None:
        """Stores ``values``, unchecked."""
        if mask is None:
            if np.ndim(values):
                offsets, values = together(offsets, values)
        else:
            offsets, values, mask = together(offsets, values, mask)
            offsets, values = offsets[mask], values[mask]
        storage.data[offsets] = values
        storage.stored = storage.stored or np.size(offsets) > 0
        if storage.defined is not None:
            storage.defined[offsets] = True

    def store(self, buffer: Buffer, index: list[Any], values: Any, site: Site) -> None:
        """``buffer[index] = values`` in the lanes that run."""
        mask = site.frame.mask
        if mask is None or anywhere(mask):
            offsets, mask = self.locate(buffer, index, mask, site)
            self.write(buffer, offsets, values, mask, site)


def _outside(value: Any, size: int) -> Any:
    """The indices that are not in [0, size)."""
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        # Read as unsigned, a negative index is greater than any size.
        return value.view(np.uint64) >= size
    return (value < 0) | (value >= size)


def _allocated(buffer: Buffer, count: int) -> Any:
    """Memory for ``count`` elements of an allocation."""
    try:
        return np.empty(count, buffer.dtype.numpy)
    except (MemoryError, ValueError):
        # numpy's errors for more than there is, and for more than it can count.
        raise ArgumentError(
            f"there is no memory for {count} elements of {buffer.name}",
            where=f"alloc {buffer.name}",
            why="the interpreter holds the memory of all lanes at once",
            cure="run a smaller problem",
        ) from None


def _argument(kernel: Kernel, param: Param, arrays: Mapping[str, Any]) -> Any:
    buffer = param.buffer
    array = arrays.get(buffer.name)
    if array is None and param.digest is not None:
        array = kernel.constants.get(param.digest)
        if array is None:
            raise missing_constant(param)
    problem = None
    if array is None:
        problem = "it is missing"
    elif not isinstance(array, np.ndarray):
        problem = f"it is {array!r}, no array"
    elif array.ndim != 1 or len(array) < buffer.layout.extent:
        problem = (
            f"it has the shape {array.shape}, but needs {buffer.layout.extent} elements in 1-D"
        )
    elif array.dtype != buffer.dtype.numpy:
        problem = f"it has the type {array.dtype}, but needs {buffer.dtype.numpy}"
    elif param.access != "in" and not array.flags.writeable:
        problem = f"it is read-only, but the kernel declares it as {param.access!r}"
    if problem is None:
        return array
    raise ArgumentError(
        f"argument {buffer.name!r} of kernel {kernel.name!r}: {problem}",
        cure=f"pass flat memory, as interpret.pack makes it from an array of shape {buffer.shape}",
    )


def _out_of_bounds(
    buffer: Buffer, index: list[Any], place: tuple[int, int], bad: Any, site: Site
) -> InterpreterFault:
    dim, size = place
    lane = first_lane(bad)
    text = ", ".join(str(at_lane(i, lane)) for i in index)
    return fault(
        f"out of bounds: {buffer.name}[{text}], where dim {dim} holds 0 to {size - 1}",
        site,
        lane,
        why=f"{buffer.name!r} has the shape {list(buffer.shape)}, padded to "
        f"{list(buffer.layout.padded_shape(len(buffer.shape)))}",
        cure="mask the access or shorten the loop that makes this index",
    )


def _undefined(buffer: Buffer, offsets: Any, bad: Any, site: Site) -> InterpreterFault:
    lane = first_lane(bad)
    offset = int(at_lane(np.broadcast_to(offsets, bad.shape), lane)) % buffer.layout.extent
    return fault(
        f"uninitialized read of {buffer.name!r}: nothing was stored at offset {offset} before",
        site,
        lane,
        why="allocated memory and 'out' parameters hold anything until they are stored to",
        cure="store to the element first, or declare the parameter as 'inout'",
    )


def _input_written(buffer: Buffer, site: Site) -> InterpreterFault:
    return fault(
        f"store to {buffer.name!r}, which is an input",
        site,
        (),
        why="the kernel declares the parameter as 'in', so it is memory to read only",
        cure="declare the parameter as 'inout' or 'out', or store to another buffer",
    )


@dataclass(frozen=True)
class _Early:
    """The text of a fault: an access that comes too early."""

    verb: str
    when: str
    why: str
    cure: str


_ARRIVAL = (
    "before its copy has arrived",
    "an asynchronous copy of it is under way: it may write the element at any time",
    "commit the copies, wait for them, and put a barrier after the wait",
)
_READ, _WRITTEN = _Early("read", *_ARRIVAL), _Early("write", *_ARRIVAL)
_OVERWRITTEN = _Early(
    "write",
    "while an asynchronous op reads it",
    "the op may read its operands at any time until it is complete",
    "wait for the op before the write, or write another buffer",
)


def _early(buffer: Buffer, what: _Early, where: Where) -> InterpreterFault:
    offsets, bad, site = where
    lane = first_lane(bad)
    offset = int(at_lane(np.broadcast_to(offsets, bad.shape), lane)) % buffer.layout.extent
    return fault(
        f"{what.verb} of {buffer.name!r} at offset {offset} {what.when}",
        site,
        lane,
        why=what.why,
        cure=what.cure,
    )
