"""Kernels in order as one kernel, with a report: whether they are one, what became of the memory
between them, and whether it pays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.errors import FusionError
from tilewright.facts.usual import USUAL
from tilewright.ir.stmt import Kernel
from tilewright.ir.symbols import bind_scalars
from tilewright.ir.verify import verify
from tilewright.machines.machine import Machine
from tilewright.passes.spmd import name_values
from tilewright.recipes.choose import predicted_by_default
from tilewright.recipes.start import Start
from tilewright.schedule.fusion.joined import Memory, joined
from tilewright.schedule.fusion.members import Fusion, Member
from tilewright.simplify import simplify_kernel
from tilewright.tables import aligned


@dataclass(frozen=True)
class BufferReport:
    """What became of memory of the members. ``promoted``: who has it for itself (``private``: a
    work-item, ``local``: a workgroup, ``inside``: the fused kernel), None where it stays an
    argument; ``why`` in words. ``saved`` is the bytes that members would have moved to and from it;
    None where sizes are known at calls only."""

    promoted: str | None
    why: str
    saved: int | None


@dataclass(frozen=True)
class PredictedTimes:
    """The seconds that a fused kernel is predicted to take, and its members one by one. ``usual``
    is what integers that calls pass (ranges, sizes) count as; None where there are none."""

    fused: float
    members: tuple[float, ...]
    usual: int | None = None

    @property
    def gain(self) -> float:
        """How many times as fast the fused kernel is."""
        return sum(self.members) / self.fused


@dataclass(frozen=True)
class FusionReport:
    """Whether ``kernels`` became one, the ``reason`` why not, and what became of their memory.
    ``barriers`` are the members before which one stands, counted from 0; ``predicted`` is None
    where no machine was given, or nothing predicts."""

    fused: bool
    reason: str
    kernels: tuple[str, ...]
    buffers: Mapping[str, BufferReport]
    barriers: tuple[int, ...] = ()
    predicted: PredictedTimes | None = None

    @property
    def bytes_saved(self) -> int | None:
        """Bytes that do not move to memory and back; None where sizes are known at calls only."""
        saved = [buffer.saved for buffer in self.buffers.values()]
        return None if None in saved else sum(count or 0 for count in saved)

    def __str__(self) -> str:
        """The report as a table."""
        names = ", ".join(self.kernels)
        if not self.fused:
            return f"not fused: {names}\n{self.reason}"
        rows = [("buffer", "promoted", "bytes saved", "why")]
        for name, buffer in self.buffers.items():
            saved = "at calls" if buffer.saved is None else str(buffer.saved)
            rows.append(
                (name, buffer.promoted or "no", saved if buffer.promoted else "", buffer.why)
            )
        lines = [f"fused: {names}", *aligned(rows)]
        waits = [self.kernels[number] for number in self.barriers]
        lines.append(f"barriers: {', '.join(f'before {name}' for name in waits) or 'none'}")
        if self.predicted is not None:
            times = self.predicted
            parts = " + ".join(f"{seconds * 1e6:.1f}" for seconds in times.members)
            sizes = "" if times.usual is None else f", with sizes of {times.usual}"
            fused = f"predicted: {times.fused * 1e6:.1f} us, one by one {parts} us"
            lines.append(f"{fused} ({times.gain:.2f} x{sizes})")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Fused:
    """The fused ``kernel``, None where the members did not become one, and the ``report``."""

    kernel: Kernel | None
    report: FusionReport


def fuse(fusion: Fusion, machine: Machine | None = None, *, require: bool = True) -> Fused:
    """The members of ``fusion`` as one kernel, whose parameters are their merged arguments, without
    memory that is promoted. With a ``machine``, the report says the times that are predicted.

    Raises `FusionError` where the members do not become one kernel; without ``require``, the report
    has it as the reason.
    """
    names = tuple(member.kernel.name for member in fusion.members)
    try:
        fused = joined(fusion)
    except FusionError as error:
        if require:
            raise
        return Fused(None, FusionReport(False, str(error), names, {}))
    kernel = simplify_kernel(name_values(fused.kernel))
    verify(kernel)
    buffers = {memory.name: _reported(memory) for memory in fused.memories}
    times = None if machine is None else _times(fusion, kernel, machine)
    return Fused(kernel, FusionReport(True, "", names, buffers, fused.barriers, times))


def _reported(memory: Memory) -> BufferReport:
    saved: int | None = 0
    if memory.promoted is not None:
        passes = sum(map(len, memory.users))
        saved = None if memory.buffer.symbols else passes * memory.buffer.bytes
    return BufferReport(memory.promoted, memory.why, saved)


def _times(fusion: Fusion, kernel: Kernel, machine: Machine) -> PredictedTimes | None:
    times = [
        predicted_by_default(Start(whole, whole), machine)
        for whole in (kernel, *map(_with_numbers, fusion.members))
    ]
    fused, *members = [0.0 if time is None else time.seconds for time in times]
    if None in times:
        return None
    passed = any(scalar.dtype.is_integer for scalar in kernel.scalars)
    return PredictedTimes(fused, tuple(members), USUAL if passed else None)


def _with_numbers(member: Member) -> Kernel:
    """The kernel of ``member`` for the numbers that are part of the fused code."""
    values = {n: v for n, v in member.arguments.items() if not isinstance(v, str)}
    return bind_scalars(member.kernel, values)
