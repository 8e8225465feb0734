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
    GroupsConfig,
    OwnSchedule,
    PlainConfig,
    StreamingConfig,
    WorkgroupConfig,
)
from tilewright.recipes.groups import starts, together
from tilewright.recipes.scheduled import ScheduledKernel
from tilewright.recipes.start import Start
from tilewright.schedule.groups import cut


def choose(start: Start, machine: Machine) -> tuple[Config, ScheduledKernel]:
    """The first of the default configs that is legal, and the schedule that it gives; of a kernel
    of several groups, of each."""
    if start.structured:
        return _choose_group(start, machine)
    found = cut(start.kernel)
    chosen = [_choose_part(each, machine) for each in starts(start, found)]
    if len(chosen) == 1:
        return chosen[0]
    config = GroupsConfig(tuple(config for config, _ in chosen))
    return config, together(found, [scheduled for _, scheduled in chosen])


def _choose_part(group: Start, machine: Machine) -> tuple[Config, ScheduledKernel]:
    """A group by its own recipe; by the plain one where that does not take it."""
    if group.structured:
        try:
            return _choose_group(group, machine)
        except ScheduleError:
            pass
    config = plain.default_config(group.kernel, machine)
    return config, plain.schedule(group.kernel, machine, config)


def _choose_group(start: Start, machine: Machine) -> tuple[Config, ScheduledKernel]:
    kernel = start.kernel
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


def _schedule_groups(start: Start, machine: Machine, config: Config) -> ScheduledKernel:
    """Each group by its own config: ``config``, if there is one group."""
    found = cut(start.kernel)
    groups = starts(start, found)
    configs = config.groups if isinstance(config, GroupsConfig) else (config,)
    if start.structured or len(configs) != len(groups):
        raise ScheduleError(
            f"{len(configs)} configs are given, and {start.kernel.name} has "
            + (f"{len(groups)} groups" if len(groups) > 1 else "one group"),
            where=f"config {config!r}",
            cure="use a GroupsConfig with a config for each of "
            + ", ".join(group.kernel.name for group in groups)
            if len(groups) > 1
            else "use the config of the one group itself",
        )
    for group, each in zip(groups, configs, strict=True):
        if not group.structured and not isinstance(each, PlainConfig):
            raise ScheduleError(
                f"{group.kernel.name} is scheduled by the plain recipe only",
                where=f"config {each!r}",
                why="no contraction whose sizes are numbers was found in it",
                cure="use a PlainConfig",
            )
    parts = [schedule(g, machine, c) for g, c in zip(groups, configs, strict=True)]
    return parts[0] if len(parts) == 1 else together(found, parts)


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
    if isinstance(config, PlainConfig):
        return plain.schedule(start.exact, machine, config)
    if not start.structured or isinstance(config, GroupsConfig):
        return _schedule_groups(start, machine, config)
    kernel = start.kernel if _multiplies_matrices(config, machine) else start.exact
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
