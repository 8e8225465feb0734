"""Taking the steps of a record again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tilewright.errors import ScheduleError, TilewrightError
from tilewright.schedule.records.arguments import check_arguments
from tilewright.schedule.records.handles import Handle
from tilewright.schedule.records.record import MAIN, SPLITTING, VALUES, Line, Named, Record
from tilewright.schedule.schedule import KernelSchedule


def repeat(schedule: KernelSchedule, record: Record) -> None:
    """Takes the steps of ``record``, whatever it was recorded for: each checks that it is legal
    here. Raises `ScheduleError`, which says which step does not fit; the schedule is then as it
    was."""
    before = len(schedule.done)
    kernels: dict[str, KernelSchedule] = {MAIN: schedule}
    handles: dict[str, Handle] = {}
    try:
        for number, line in enumerate(record.lines, start=1):
            try:
                _repeat(line, kernels, handles)
            except TilewrightError as error:
                raise ScheduleError(
                    f"step {number} does not fit: {error.what}",
                    where=error.where if isinstance(error.where, str) else str(line),
                    span=line.span,
                    why=error.why,
                    cure=error.cure,
                ) from error
    except ScheduleError:
        del schedule.done[before:]
        raise


def _repeat(line: Line, kernels: dict[str, KernelSchedule], handles: dict[str, Handle]) -> None:
    """Takes one step; what it gives gets the names that the line has for it."""
    owner = kernels[line.variable]

    def named(value: Any) -> Any:
        match value:
            case Named(kind="instruction"):
                return kernels[MAIN].instruction(value.name)
            case Named(kind="tile_copy"):
                return kernels[MAIN].tile_copy(value.name)
            case Named():
                return handles[value.name]
            case Mapping():
                return {named(key): named(entry) for key, entry in value.items()}
            case list():
                return [named(entry) for entry in value]
            case tuple():
                return tuple([named(entry) for entry in value])
            case _ if type(value) in VALUES.values():
                values = {field.name: named(getattr(value, field.name)) for field in fields(value)}
                return type(value)(**values)
            case _:
                return value

    args, kwargs = named(line.args), named(line.kwargs)
    if line.name in SPLITTING:
        check_arguments(line.name, args, kwargs)
        result = getattr(owner, line.name)(*args, **kwargs)
        several = () if result is None else result if isinstance(result, tuple) else (result,)
    else:
        result = owner.apply(line.name, *args, **kwargs)
        several = (result,) if isinstance(result, Handle) else result
    if line.results and len(line.results) != len(several):
        raise ScheduleError(
            f"{line.name} makes {len(several)} things, and {len(line.results)} are named",
            where=str(line),
            cure=f"give {len(several)} names, or none",
        )
    named_so = zip(line.results, several, strict=False)
    (kernels if line.name in SPLITTING else handles).update(named_so)
