"""Costs of accesses on a device: conflicts of memory banks, and segments of global memory.

Counted per access of a subgroup: all that its lanes access by one instruction, with the elements
of a vector loop (see `machines.banks`).
Source: NVIDIA, CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.interpret.groups import GridRun
from tilewright.interpret.lanes import Frame, Site
from tilewright.ir.buffer import SHARED, Buffer, Space
from tilewright.ir.stmt import Compute, Stmt
from tilewright.machines.banks import ROWS, WIDEST, WORD, distinct, instructions, rows, turns
from tilewright.machines.machine import Hierarchy


@dataclass
class Line:
    """The loads or the stores of one statement to one buffer.

    ``conflicts``: turns of the banks of workgroup memory (1 per access without conflicts), and the
    ``worst`` of one access. ``segments``: those of global memory that are moved, where ``least``
    would hold as many bytes.
    """

    stmt: Stmt
    buffer: Buffer
    verb: str
    accesses: int = 0
    conflicts: int = 0
    worst: int = 0
    segments: int = 0
    least: int = 0

    @property
    def degree(self) -> float:
        """Turns of the banks per access: 1.0 where there are no conflicts."""
        return self.conflicts / self.accesses if self.conflicts else 1.0

    @property
    def efficiency(self) -> float:
        """The needed part of the moved segments: 1.0 where accesses coalesce."""
        return self.least / self.segments if self.segments else 1.0

    def count_conflicts(self, degrees: Any) -> None:
        """Adds accesses that took the banks so many turns."""
        self.accesses += int(np.count_nonzero(degrees))
        self.conflicts += int(degrees.sum())
        self.worst = max(self.worst, int(degrees.max(initial=0)))


class Profile:
    """Sums up the accesses of work-items, per statement and buffer."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self.launches: list[GridRun] = []
        self._lines: dict[tuple[int, Buffer, str], Line] = {}

    @property
    def lines(self) -> list[Line]:
        """All that was counted, in the order in which the statements ran first."""
        return list(self._lines.values())

    def note(self, verb: str, buffer: Buffer, where: tuple[Any, Any, Site]) -> None:
        """Notes accesses at offsets, within the buffer, by the lanes for which the mask holds."""
        offsets, mask, site = where
        launch = self.launches[-1] if self.launches else None
        if isinstance(site.stmt, Compute) and site.stmt.instruction is None:
            return  # No machine accesses all of that at once: it is lowered to loops.
        banked = buffer.space in SHARED and self.hierarchy.banks > 0
        if launch is None or not launch.threads or not (banked or buffer.space is Space.GLOBAL):
            return
        size = buffer.dtype.bytes
        if launch.lanes and not site.frame.threads:
            # A matrix instruction has its own pattern of accesses.
            addresses = _matrices(site.frame, offsets, size) if banked else None
            if addresses is not None:
                line = self._line(site.stmt, buffer, verb)
                line.count_conflicts(turns(*rows(addresses, size), WORD, self.hierarchy))
            return
        line = self._line(site.stmt, buffer, verb)
        starts, active = _by_subgroup(launch, site.frame, offsets, mask)
        starts, active = instructions(starts * size, active, size)
        if banked:
            line.count_conflicts(turns(starts, active, size, self.hierarchy))
        else:
            self._count_segments(line, starts, active, size)

    def _line(self, stmt: Stmt, buffer: Buffer, verb: str) -> Line:
        return self._lines.setdefault((id(stmt), buffer, verb), Line(stmt, buffer, verb))

    def _count_segments(self, line: Line, starts: Any, active: Any, size: int) -> None:
        segment = self.hierarchy.segment
        shape = (starts.shape[0], starts.shape[1] * starts.shape[2])
        addresses = starts.reshape(shape)
        used = np.broadcast_to(active[..., None], starts.shape).reshape(shape)
        row, _ = distinct(addresses, used)
        needed = np.bincount(row, minlength=shape[0]) * size
        touched, _ = distinct(addresses // segment, used)
        line.accesses += int(np.count_nonzero(needed))
        line.segments += len(touched)
        line.least += int((-(-needed // segment)).sum())


def _matrices(frame: Frame, offsets: Any, size: int) -> Any | None:
    """The addresses that a matrix instruction accesses, as (matrices, rows, elements): rows of 16
    bytes along the contiguous dim. None where it goes through another number of dims."""
    moving = [axis for axis in frame.vectors if np.ndim(offsets) > axis and offsets.shape[axis] > 1]
    if len(moving) != 2:
        return None
    near = [axis for axis in moving if np.all(np.diff(offsets.take([0, 1], axis), axis=axis) == 1)]
    run = WIDEST // size
    if len(near) != 1 or offsets.shape[near[0]] % run:
        return None
    (across,) = (axis for axis in moving if axis != near[0])
    if offsets.shape[across] % ROWS:
        return None
    # Dims on which its offsets do not depend are no further loads.
    shape = [1 if axis in {*frame.vectors} - {*moving} else n for axis, n in enumerate(frame.shape)]
    whole = np.moveaxis(np.broadcast_to(offsets, shape), (across, near[0]), (-2, -1))
    *_, down, right = whole.shape
    parts = whole.reshape(-1, down // ROWS, ROWS, right // run, run)
    return parts.swapaxes(2, 3).reshape(-1, ROWS, run) * size


def _by_subgroup(launch: GridRun, frame: Frame, offsets: Any, mask: Any) -> tuple[Any, Any]:
    """Offsets as (accesses, lanes of a subgroup, elements of a vector), and the mask of them."""
    outer, threads = len(launch.outer), len(launch.threads)
    items = [*range(outer, outer + threads)]
    items += sorted(axis for axis in frame.threads if axis not in items)
    inner = [axis for axis in range(outer + threads, len(frame.shape)) if axis not in items]
    vectors = [axis for axis in inner if axis in frame.vectors]
    others = [axis for axis in inner if axis not in frame.vectors]
    order = [*range(outer), *others, *items, *vectors]
    elements = int(np.prod([frame.shape[axis] for axis in vectors], dtype=np.int64))
    # A frame has one of the subgroups that run different code.
    count = int(np.prod([frame.shape[axis] for axis in items], dtype=np.int64))
    pad = -count % launch.subgroup

    def arranged(values: Any) -> Any:
        whole = np.broadcast_to(values, frame.shape).transpose(order)
        whole = whole.reshape(-1, count, elements)
        if pad:  # `np.pad` is far slower
            padded = np.zeros((len(whole), count + pad, elements), whole.dtype)
            padded[:, :count] = whole
            whole = padded
        return whole.reshape(-1, launch.subgroup, elements)

    exists = np.arange(count + pad) < count
    exists = exists.reshape(-1, launch.subgroup, 1)
    rows = arranged(offsets)
    active = np.broadcast_to(exists, (len(exists), launch.subgroup, elements))
    active = np.tile(active, (len(rows) // len(exists), 1, 1))
    return rows, active if mask is None else active & arranged(mask)
