"""Schedules that somebody gives: their records are replayed, and what comes of them is checked."""

from __future__ import annotations

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import SHARED, workgroup_bytes
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.ir.verify import verify
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.config import OwnSchedule
from tilewright.recipes.start import Start
from tilewright.schedule.records.reading import parse_schedule
from tilewright.schedule.records.replaying import repeat
from tilewright.schedule.schedule import KernelSchedule


def schedule(start: Start, machine: Machine, config: OwnSchedule) -> KernelSchedule:
    """Carries the steps of the record out. Raises `ParseError` for what is none, `ScheduleError`
    for one of another kernel or machine, a step that does not fit, or what cannot be compiled."""
    record = parse_schedule(config.text)
    kernel = record.start_among((start.kernel, start.exact), machine)
    made = KernelSchedule(kernel, machine, constant=start.packable)
    repeat(made, record)
    check(made, machine)
    return made


def check(made: KernelSchedule, machine: Machine) -> None:
    """Makes a stage of each step of a schedule that somebody wrote. Raises `ScheduleError` where it
    cannot be compiled, or where it packs what may change from call to call."""
    made.log.add("naive", made.start)
    for number, done in enumerate(made.done, start=1):
        made.log.add(f"{number} {done.step.name}", done.kernel, (done,))
    _check(made.kernel, machine)
    for argument, pack in made.packs.items():
        if argument not in made.constant:
            raise ScheduleError(
                f"the schedule packs '{argument}' beforehand, which may change from call to call",
                where=f"kernel {made.start.name}",
                cure=f'compile with constant=("{argument}",), or leave the step hoist_pack out',
            )
        _check(pack.kernel, machine)


def _check(kernel: Kernel, machine: Machine) -> None:
    """Refuses what is no code yet, and what the machine has no memory for."""
    verify(kernel)
    left = [s for s in walk_stmts(kernel.body) if isinstance(s, Compute) and not s.instruction]
    if left:
        raise ScheduleError(
            f"compute '{left[0].name}' is no loop yet, and no instruction",
            where=headline(left[0]),
            why="a kernel is compiled when nothing else is left of its computes",
            cure="end the schedule with lower_computes(), of the packing kernel as well",
        )
    shared = [
        stmt.buffer
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Allocate) and stmt.buffer.space in SHARED
    ]
    most = machine.hierarchy.shared if machine.hierarchy is not None else 0
    if sum(map(workgroup_bytes, shared)) > most:
        raise ScheduleError(
            f"a workgroup shares {sum(map(workgroup_bytes, shared))} bytes",
            where=f"kernel {kernel.name}",
            why=f"{machine.name} has {most}, and "
            + ", ".join(f"{b.name} takes {workgroup_bytes(b)}" for b in shared),
            cure="make tiles smaller, or keep less of them at a time",
        )
