"""Kernels that are cut into groups: what each starts from, and the schedules of all as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.recipes.prologues import made_of
from tilewright.recipes.roles import MAIN, has_compute
from tilewright.recipes.scheduled import ScheduledKernel
from tilewright.recipes.start import Start
from tilewright.schedule.groups import Cut, as_contraction, put_together


def starts(start: Start, cut: Cut) -> list[Start]:
    """What the schedule of each group starts from. An array that is constant may be packed by the
    one group that reads it."""
    found: list[Start] = []
    for group in cut.groups:
        kernel = group.kernel
        if group.contracts and len(cut.groups) == 1:
            kernel = as_contraction(start.kernel)
        own = [name for name in start.constant if name in group.alone]
        # (What is empty by promise has no sums.)
        if group.contracts and has_compute(kernel, MAIN):
            own.sort(key=lambda name: name not in made_of(kernel, 1))
        packable = next(iter(own), None)
        found.append(Start(kernel, kernel, packable, structured=group.contracts))
    return found


def together(cut: Cut, parts: Sequence[ScheduledKernel]) -> ScheduledKernel:
    """The schedules of all groups as the one of the kernel."""
    result = ScheduledKernel(cut.kernel)
    result.stage("naive", cut.kernel)
    for group, part in zip(cut.groups, parts, strict=True):
        for record in part.records:
            named = replace(record, name=f"{group.kernel.name}: {record.name}")
            result.records.append(named)
            if record.changed:
                result.stages[named.name] = record.kernel
        result.packs |= part.packs
        result.notes += part.notes
    kernels = [part.kernel for part in parts]
    packed = {name: len(pack.arrays) - 1 for name, pack in result.packs.items()}
    result.stage("together", put_together(cut, kernels, packed))
    return result
