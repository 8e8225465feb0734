"""Starts of the groups that a kernel is cut into."""

from __future__ import annotations

from tilewright.layout.roles import MAIN
from tilewright.recipes.prologues import made_of
from tilewright.recipes.roles import has_compute
from tilewright.recipes.start import Start
from tilewright.schedule.groups import Cut
from tilewright.schedule.schedule import KernelSchedule


def starts(start: Start, cut: Cut) -> list[Start]:
    """What the schedule of each group starts from. An array that is constant may be packed by the
    one group that reads it."""
    found: list[Start] = []
    for group in cut.groups:
        begun, kernel = None, group.kernel
        if group.contracts and len(cut.groups) == 1:
            begun = KernelSchedule(start.kernel)
            begun.as_contraction()
            kernel = begun.kernel
        own = [name for name in start.constant if name in group.alone]
        # (What is empty by promise has no sums.)
        if group.contracts and has_compute(kernel, MAIN):
            own.sort(key=lambda name: name not in made_of(kernel, 1))
        packable = next(iter(own), None)
        found.append(Start(kernel, kernel, packable, structured=group.contracts, begun=begun))
    return found
