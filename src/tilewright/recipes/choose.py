"""Which recipe a kernel takes."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.errors import ScheduleError
from tilewright.machines.machine import Machine
from tilewright.recipes import (
    choices,
    contraction,
    direct,
    own,
    plain,
    streaming,
    workgroup_model,
    workgroups,
)
from tilewright.recipes.config import (
    Config,
    ContractionConfig,
    DirectConfig,
    OwnSchedule,
    PlainConfig,
    StreamingConfig,
    WorkgroupConfig,
)
from tilewright.recipes.scheduled import ScheduledKernel
from tilewright.recipes.start import Start


def choose(start: Start, machine: Machine) -> tuple[Config, ScheduledKernel]:
    """The first of the default configs that is legal, and the schedule that it gives."""
    kernel = start.kernel
    if not start.structured:
        simple = plain.default_config(kernel, machine)
        return simple, plain.schedule(kernel, machine, simple)
    if not choices.is_contraction(kernel):
        config = streaming.choose(kernel, machine)
        return config, streaming.schedule(kernel, machine, config)
    refusal: ScheduleError | None = None
    for candidate in _candidates(start, machine):
        try:
            return candidate, schedule(start, machine, candidate)
        except ScheduleError as error:
            refusal = error
    assert refusal is not None
    raise refusal


def unscheduled(start: Start) -> tuple[Config, ScheduledKernel]:
    """The kernel as it is."""
    result = ScheduledKernel(start.kernel)
    result.stage("naive", start.kernel)
    return PlainConfig(), result


def _candidates(start: Start, machine: Machine) -> Iterator[Config]:
    """The default configs for a contraction, the best first."""
    kernel, exact = start.kernel, start.exact
    # Memory in banks is faster than a cache: only there does a copy of operands pay for itself.
    starts = (kernel,) if kernel is exact else (kernel, exact)
    alone = direct.default_config(exact, machine)
    if alone is not None:
        yield alone
    for each in starts if machine.banked else ():
        for shared in workgroup_model.default_configs(each, machine, start.prepacked):
            if each is exact or _multiplies_matrices(shared, machine):
                yield shared
    yield from choices.candidates(exact, machine, start.prepacked)


def _multiplies_matrices(config: Config, machine: Machine) -> bool:
    """Whether subgroups multiply matrices: of other types than f32, where fpmath allows it."""
    if not isinstance(config, WorkgroupConfig) or not config.instruction:
        return False
    return machine.instruction(config.instruction).lanes > 1


def schedule(start: Start, machine: Machine, config: Config) -> ScheduledKernel:
    """Carries ``config`` out; without the rounding that may be left out, unless the config
    multiplies matrices: it would only cost time. Raises `ScheduleError`."""
    if isinstance(config, OwnSchedule):
        return own.schedule(start, machine, config)
    kernel = start.kernel if _multiplies_matrices(config, machine) else start.exact
    if isinstance(config, PlainConfig):
        return plain.schedule(kernel, machine, config)
    if not start.structured:
        raise ScheduleError(
            f"{kernel.name} is scheduled by the plain recipe only",
            where=f"config {config!r}",
            why="the others find their way by the names that ops give to computes",
            cure="use a PlainConfig",
        )
    if isinstance(config, ContractionConfig | DirectConfig | WorkgroupConfig):
        if not choices.is_contraction(kernel):
            raise ScheduleError(
                f"{kernel.name} is no contraction",
                where=f"config {config!r}",
                cure="use a StreamingConfig",
            )
        if isinstance(config, DirectConfig):
            return direct.schedule(kernel, machine, config, start.prepacked)
        if isinstance(config, WorkgroupConfig):
            return workgroups.schedule(kernel, machine, config, start.prepacked)
        return contraction.schedule(kernel, machine, config, start.prepacked)
    assert isinstance(config, StreamingConfig)
    return streaming.schedule(kernel, machine, config)
