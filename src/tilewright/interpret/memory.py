"""Memory: flat numpy arrays behind the layouts of buffers, with every access checked.

An access outside the padded shape of the layout, a read of what nothing wrote, and a store to an
input are faults. Memory from `Allocate` and ``out`` parameters count as not written at first:
when a kernel runs for real, they hold whatever was there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.errors import ArgumentError, InterpreterFault
from tilewright.interpret.lanes import Frame, Site, at_lane, fault, first_lane
from tilewright.interpret.races import AccessLog, ParallelRun
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Kernel, Param

# Fills fresh memory: a NaN in every float type, -1 in integers.
_POISON_BYTE = 0xFF


class Storage:
    """The memory of one buffer: ``data`` (1-D), and which elements are ``defined`` (None: all).

    Memory that lanes allocate is one copy per lane, one after the other; the frame knows where a
    lane's copy begins.
    """

    __slots__ = ("buffer", "data", "defined", "depth", "logs", "parts", "shape", "writable")

    def __init__(self, buffer: Buffer, data: Any, access: str, depth: int) -> None:
        self.buffer = buffer
        self.data = data
        self.writable = access != "in"
        self.defined = np.zeros(len(data), np.bool_) if access in ("out", "local") else None
        self.depth = depth  # parallel loops around it
        self.logs: dict[int, AccessLog] = {}
        self.shape = buffer.layout.padded_shape(len(buffer.shape))
        self.parts = _parts(buffer)

    def offsets(self, index: list[Any]) -> Any:
        """Element offsets of an index that is within the padded shape."""
        result: Any = self.buffer.layout.offset
        for dim, divisor, modulus, stride in self.parts:
            part = index[dim]
            if divisor > 1:
                part = part // divisor
            if modulus:
                part = part % modulus
            result = result + part * stride
        return result

    def log(self, depth: int) -> AccessLog:
        """The accesses noted for the parallel loop at ``depth``."""
        found = self.logs.get(depth)
        if found is None:
            found = self.logs[depth] = AccessLog(len(self.data))
        return found


def _parts(buffer: Buffer) -> list[tuple[int, int, int, int]]:
    """(dim, divisor, modulus or 0, stride) per block of the layout, as `Layout.offset_of`."""
    blocks = buffer.layout.blocks
    outermost: dict[int, int] = {}
    for position, block in enumerate(blocks):
        outermost.setdefault(block.dim, position)
    inner = [1] * len(buffer.shape)
    parts = []
    for position in reversed(range(len(blocks))):
        block = blocks[position]
        modulus = 0 if outermost[block.dim] == position else block.size
        if block.stride:
            parts.append((block.dim, inner[block.dim], modulus, block.stride))
        inner[block.dim] *= block.size
    return parts


class Memory:
    """All buffers that exist at one time, and the parallel loops that are running."""

    def __init__(self) -> None:
        self.runs: list[ParallelRun] = []
        self._storages: dict[Buffer, Storage] = {}

    def bind(self, kernel: Kernel, arrays: dict[str, Any]) -> None:
        """Takes the arrays of the kernel's parameters. `ArgumentError` if one does not fit."""
        for param in kernel.params:
            array = _argument(kernel, param, arrays)
            self._storages[param.buffer] = Storage(param.buffer, array, param.access, 0)

    def allocate(self, buffer: Buffer, frame: Frame) -> Storage | None:
        """Fresh memory for ``buffer``, per lane; returns what it had before, for `release`."""
        before = self._storages.get(buffer)
        extent = buffer.layout.extent
        data = np.empty(frame.lanes * extent, buffer.dtype.numpy)
        if frame.shape:
            frame.values[buffer] = np.arange(0, len(data), extent).reshape(frame.shape)
        else:
            frame.values.pop(buffer, None)
        data.view(np.uint8).fill(1 if buffer.dtype.kind == "bool" else _POISON_BYTE)
        self._storages[buffer] = Storage(buffer, data, "local", len(self.runs))
        return before

    def release(self, buffer: Buffer, before: Storage | None) -> None:
        """Ends the memory of ``buffer``."""
        if before is None:
            del self._storages[buffer]
        else:
            self._storages[buffer] = before

    def storage(self, buffer: Buffer, site: Site) -> Storage:
        """The memory of ``buffer``; a fault where it has none."""
        found = self._storages.get(buffer)
        if found is None:
            raise fault(
                f"{buffer.name!r} has no memory here",
                site,
                (),
                why="it is no parameter of the kernel, and no Allocate of it is in scope",
                cure="allocate it in a block around this statement, or make it a parameter",
            )
        return found

    def locate(self, buffer: Buffer, index: list[Any], mask: Any, site: Site) -> Any:
        """Offsets of ``index``, checked; where ``mask`` is false they mean nothing."""
        storage = self.storage(buffer, site)
        inside = list(index)
        for dim, (value, size) in enumerate(zip(index, storage.shape, strict=True)):
            bad = (value < 0) | (value >= size)
            if not (bad if isinstance(bad, bool) else bad.any()):
                continue
            touched = np.asarray(bad if mask is None else bad & mask)
            if touched.any():
                raise _out_of_bounds(buffer, index, (dim, size), touched, site)
            inside[dim] = np.where(bad, 0, value)
        begin = site.frame.values.get(buffer)
        offsets = storage.offsets(inside)
        return offsets if begin is None else offsets + begin

    def read(self, buffer: Buffer, offsets: Any, mask: Any, site: Site) -> Any:
        """The elements at ``offsets``; 0 where ``mask`` is false."""
        storage = self.storage(buffer, site)
        if storage.defined is not None:
            undefined = ~storage.defined[offsets]
            if undefined.any():
                bad = np.asarray(undefined if mask is None else undefined & mask)
                if bad.any():
                    raise _undefined(buffer, offsets, bad, site)
        for depth in range(storage.depth, len(self.runs)):
            run = self.runs[depth]
            if buffer in run.stored:
                storage.log(depth).read(run, buffer.name, offsets, mask, site)
        values = storage.data[offsets]
        return values if mask is None else np.where(mask, values, values.dtype.type(0))

    def load(self, buffer: Buffer, index: list[Any], mask: Any, site: Site) -> Any:
        """``buffer[index]`` per lane; 0 where ``mask`` is false or the lane does not run."""
        frame_mask = site.frame.mask
        if frame_mask is not None:
            mask = frame_mask if mask is None else mask & frame_mask
        if mask is not None and not np.any(mask):
            return buffer.dtype.numpy.type(0)
        return self.read(buffer, self.locate(buffer, index, mask, site), mask, site)

    def write(self, buffer: Buffer, offsets: Any, values: Any, mask: Any, site: Site) -> None:
        """Stores ``values`` at ``offsets`` where ``mask`` holds."""
        storage = self.storage(buffer, site)
        if not storage.writable:
            raise fault(
                f"store to {buffer.name!r}, which is an input",
                site,
                (),
                why="the kernel declares the parameter as 'in', so it is memory to read only",
                cure="declare the parameter as 'inout' or 'out', or store to another buffer",
            )
        for depth in range(storage.depth, len(self.runs)):
            run = self.runs[depth]
            if buffer in run.stored:
                storage.log(depth).write(run, buffer.name, offsets, mask, site)
        if mask is None:
            if np.ndim(values):
                offsets, values = np.broadcast_arrays(offsets, values)
        else:
            offsets, values, mask = np.broadcast_arrays(offsets, values, mask)
            offsets, values = offsets[mask], values[mask]
        storage.data[offsets] = values
        if storage.defined is not None:
            storage.defined[offsets] = True

    def store(self, buffer: Buffer, index: list[Any], values: Any, site: Site) -> None:
        """``buffer[index] = values`` in the lanes that run."""
        mask = site.frame.mask
        if mask is None or np.any(mask):
            self.write(buffer, self.locate(buffer, index, mask, site), values, mask, site)


def _argument(kernel: Kernel, param: Param, arrays: dict[str, Any]) -> Any:
    buffer = param.buffer
    array = arrays.get(buffer.name)
    problem = None
    if array is None:
        problem = "it is missing"
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


def pack(buffer: Buffer, array: Any) -> Any:
    """Flat memory of ``buffer``'s layout that holds ``array`` (of the logical shape).

    Padding is zero. The result has ``layout.extent`` elements. `ArgumentError` for a wrong shape.
    """
    array = np.asarray(array)
    if array.shape != buffer.shape:
        raise ArgumentError(
            f"{buffer.name!r} has the shape {list(buffer.shape)}, the array {list(array.shape)}",
            cure="pass an array of the logical shape, without padding",
        )
    flat = np.zeros(buffer.layout.extent, buffer.dtype.numpy)
    if array.size:
        padded = np.zeros(buffer.layout.padded_shape(array.ndim), buffer.dtype.numpy)
        padded[tuple(slice(0, n) for n in array.shape)] = array
        split, order = _split(buffer)
        _blocked(buffer, flat)[...] = padded.reshape(split).transpose(order)
    return flat


def unpack(buffer: Buffer, flat: Any) -> Any:
    """The array of the logical shape that ``flat`` memory holds in ``buffer``'s layout."""
    if 0 in buffer.shape:
        return np.zeros(buffer.shape, buffer.dtype.numpy)
    _, order = _split(buffer)
    blocks = _blocked(buffer, flat).transpose(np.argsort(order))
    padded = blocks.reshape(buffer.layout.padded_shape(len(buffer.shape)))
    return np.ascontiguousarray(padded[tuple(slice(0, n) for n in buffer.shape)])


def _split(buffer: Buffer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padded shape with each dim split in its blocks, and the axis of each block in it."""
    blocks = buffer.layout.blocks
    by_dim = sorted(range(len(blocks)), key=lambda position: (blocks[position].dim, position))
    axis_of = {position: axis for axis, position in enumerate(by_dim)}
    shape = tuple(blocks[position].size for position in by_dim)
    return shape, tuple(axis_of[position] for position in range(len(blocks)))


def _blocked(buffer: Buffer, flat: Any) -> Any:
    """``flat`` with one axis per block, outermost first; a view."""
    blocks = buffer.layout.blocks
    item = flat.itemsize
    return as_strided(
        flat[buffer.layout.offset :],
        tuple(b.size for b in blocks),
        tuple(b.stride * item for b in blocks),
    )
