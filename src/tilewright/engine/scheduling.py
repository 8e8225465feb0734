"""What a user writes a schedule with."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.engine.request import request_of
from tilewright.errors import ArgumentError
from tilewright.machines.machine import Machine
from tilewright.notebook import text_html, unfolded_html
from tilewright.schedule.records.reading import parse_schedule
from tilewright.schedule.records.record import Record
from tilewright.schedule.records.replaying import repeat
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.registry import find_target


class Schedule(KernelSchedule):
    """A kernel, or what gives one, and the transforms that were applied to it, for a target.

        schedule = tw.Schedule(tw.matmul("64x128:128x96"), "x86")
        m_o, n_o = schedule.tile("main", {"m": 4, "n": 16})
        schedule.set_kind(m_o, LoopKind.PARALLEL)
        ...
        schedule.lower_computes()
        run = tw.compile(schedule)

    ``what`` is an op, or a kernel; ``target`` is named as for `compile`, or a machine, for those
    who only look. ``constant`` names arrays that may be packed beforehand, as for `compile`. Each
    transform is a method (``help(tw.Schedule.tile)``), and gives handles of the loops, computes and
    buffers that are new: one by itself, several as a tuple, in program order, and by name where the
    transform names them (``loops["m"]``). A handle can be given wherever a name can, and is refused
    when what it stands for is gone. A transform that refuses, by `ScheduleError`, leaves the
    schedule as it was. The kernel is verified after each step, unless ``check`` is false.

    ``kernel`` is what the steps gave so far. ``str`` gives the steps as text, with what they are
    for in its first line; `replay` and `compile` take that.
    """

    def __init__(
        self,
        what: object,
        target: str | Machine = "x86",
        *,
        constant: Sequence[str] = (),
        check: bool = True,
    ) -> None:
        request = request_of(what, constant)
        self.what = what
        self.target = None if isinstance(target, Machine) else target
        machine = target if isinstance(target, Machine) else find_target(target).machine
        super().__init__(request.start().kernel, machine, constant=constant, check=check)

    def __repr__(self) -> str:
        """The call that begins it, and how many steps came after; ``str`` has these."""
        where = self.machine if self.target is None else self.target
        constant = f", constant={self.constant!r}" if self.constant else ""
        steps = f"  # and {len(self.done)} steps" if self.done else ""
        return f"tw.Schedule({self.what!r}, {where!r}{constant}){steps}"

    def _repr_html_(self) -> str:
        return text_html(str(self)) + unfolded_html({"the kernel": str(self.kernel)})

    @classmethod
    def replay(
        cls,
        what: object,
        text: str | Record,
        target: str | Machine = "x86",
        *,
        constant: Sequence[str] = (),
        strict: bool = True,
    ) -> Schedule:
        """A schedule of ``what`` with the steps that ``text`` says.

        A text that was recorded for another kernel or machine is refused, unless ``strict`` is
        false: then each step only checks whether it is legal here. Raises `ParseError` for what is
        no schedule, and `ScheduleError`, which says which step does not fit.
        """
        if not isinstance(strict, bool):
            raise ArgumentError(
                "strict is neither True nor False",
                where=f"strict={type(strict).__name__}",
                cure="pass one of them",
            )
        record = parse_schedule(text) if isinstance(text, str) else text
        record = record if strict else record.anywhere()
        schedule = cls(what, target, constant=constant)
        assert schedule.machine is not None
        start = request_of(what, constant).start()
        schedule.start = record.start_among((start.kernel, start.exact), schedule.machine)
        repeat(schedule, record)
        return schedule
