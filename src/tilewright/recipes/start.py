"""What a schedule starts from: a kernel, or each of the groups that it is cut into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tilewright.ir.stmt import Kernel
from tilewright.layout.roles import MAIN
from tilewright.recipes.prologues import made_of
from tilewright.recipes.roles import has_compute
from tilewright.schedule.groups import Cut
from tilewright.schedule.schedule import KernelSchedule


class Source(Protocol):
    """What gives a kernel: an op. ``structured``: with the computes that `ops.op` describes."""

    @property
    def structured(self) -> bool: ...
    def kernel(self) -> Kernel: ...
    def exact_kernel(self) -> Kernel: ...
    @property
    def prepacked(self) -> str | None: ...


@dataclass(frozen=True, repr=False)
class Start:
    """A kernel before any stage of a schedule, and what is known beside it.

    ``prepacked`` names the array that may be packed before the kernel runs, ``constant`` all that
    may be. ``exact`` is the kernel without the rounding that may be left out, itself where there is
    none. ``structured``: it is one group, whose computes have the names and the order that `ops.op`
    describes, which recipes go by; others are cut into groups first (`groups`). ``begun`` has the
    steps that brought ``kernel`` into that form, where there are any.
    """

    kernel: Kernel
    exact: Kernel
    prepacked: str | None = None
    structured: bool = False
    constant: tuple[str, ...] = ()
    begun: KernelSchedule | None = None

    def __repr__(self) -> str:
        return f"<start of {self.kernel!r}>"

    @property
    def packable(self) -> tuple[str, ...]:
        """The arrays that may be packed before the kernel runs, the one that pays first."""
        return tuple(dict.fromkeys((*filter(None, (self.prepacked,)), *self.constant)))

    @staticmethod
    def of(source: Source) -> Start:
        """The start of what gives a kernel."""
        kernel, exact = source.kernel(), source.exact_kernel()
        return Start(kernel, exact, source.prepacked, structured=source.structured)


def starts(start: Start, cut: Cut) -> list[Start]:
    """What the schedule of each group starts from. An array that is constant may be packed by the
    one group that reads it."""
    result: list[Start] = []
    for group in cut.groups:
        begun, kernel = None, group.kernel
        if group.contracts and cut.whole:
            begun = KernelSchedule(start.kernel)
            begun.as_contraction()
            kernel = begun.kernel
        packable_names = [name for name in start.constant if name in group.alone]
        # (What is empty by promise has no sums.)
        if group.contracts and has_compute(kernel, MAIN):
            packable_names.sort(key=lambda name: name not in made_of(kernel, 1))
        packable = next(iter(packable_names), None)
        result.append(Start(kernel, kernel, packable, structured=group.contracts, begun=begun))
    return result
