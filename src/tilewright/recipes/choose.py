"""The recipes that ship and the list of each machine, which config a kernel takes, and carrying it
out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from tilewright.errors import ScheduleError, TilewrightError, UnsupportedError
from tilewright.layout.roles import MAIN
from tilewright.machines.machine import Machine
from tilewright.predict.time import PredictedTime, predicted
from tilewright.recipes.chained import Chained, fits, is_chain
from tilewright.recipes.config import (
    Config,
    GroupsConfig,
    OwnSchedule,
    PlainConfig,
    TiledConfig,
    WorkgroupConfig,
)
from tilewright.recipes.contraction import Contraction
from tilewright.recipes.factored import Factored
from tilewright.recipes.given import GivenConfig, PartialConfig, apart, smaller_steps
from tilewright.recipes.plain import Elementwise, Plain
from tilewright.recipes.recipe import AnyCandidate, Candidate, Predicted, Recipe
from tilewright.recipes.reductions import Reductions
from tilewright.recipes.reductions_in_workgroups import ReductionsInWorkgroups
from tilewright.recipes.roles import extents, find_compute, has_compute
from tilewright.recipes.space import Branch, Group, Space
from tilewright.recipes.start import Start, starts
from tilewright.recipes.stencil import Stencil
from tilewright.recipes.tiled import Tiled
from tilewright.recipes.users import Registered, registered, replayed
from tilewright.recipes.workgroup_recipe import Workgroups
from tilewright.schedule.groups import Cut, cut
from tilewright.schedule.records.transform import TRANSFORMS, each_once
from tilewright.schedule.schedule import KernelSchedule


def choose(start: Start, machine: Machine) -> tuple[Config, KernelSchedule]:
    """The config that the machine's recipes prefer, and the schedule that it gives; of a kernel of
    several groups, of each."""
    if start.structured:
        return _choose_group(start, machine)
    result = cut_for(start, machine)
    if result.whole:
        return _choose_group(starts(start, result)[0], machine)
    chosen = best_of(alternatives(start, machine, result))
    return chosen.config, chosen.schedule


def alternatives(start: Start, machine: Machine, whole: Cut) -> list[Tried]:
    """What a kernel of the groups ``whole`` may become: these one by one, and, where products make
    tiles for one another, tiles of several sizes."""
    chosen = [_choose_group(begun, machine) for begun in starts(start, whole)]
    config = GroupsConfig(tuple(config for config, _ in chosen))
    together = KernelSchedule.of_groups(whole, [built for _, built in chosen], machine)
    groups = Tried(config, together, None, own_model=True)
    recipe = RECIPES[Tiled.name]
    if recipe.name in machine.recipes and recipe.matches(start, machine):
        with suppress(ScheduleError, UnsupportedError):
            return [groups.as_scheduled(machine), *_legal(recipe, start, machine)]
    return [groups]


def best_of(ways: Sequence[Tried]) -> Tried:
    """The one of `alternatives` that is chosen."""
    groups, *tiles = ways
    best = min(tiles, key=lambda tile: tile.time.seconds if tile.time else inf, default=groups)
    return best if best.beats(groups, _TOGETHER) else groups


def predicted_by_default(start: Start, machine: Machine) -> PredictedTime | None:
    """The time that a kernel takes by the schedule that is chosen for it; None where none is
    predicted, or nothing can be chosen."""
    try:
        return predicted(choose(start, machine)[1].kernel, machine)
    except TilewrightError:
        return None


def cut_for(start: Start, machine: Machine) -> Cut:
    """The groups of a kernel: products that are chained are one where a recipe takes them."""
    if Chained.name not in machine.recipes:
        return cut(start.kernel)
    whole_cut = cut(start.kernel, products=True)
    chains = [g.kernel for g in whole_cut.groups if not g.contracts and is_chain(g.kernel)]
    return whole_cut if all(fits(kernel, machine) for kernel in chains) else cut(start.kernel)


def _default(start: Start, machine: Machine) -> KernelSchedule:
    return choose(start, machine)[1]


# What is not the first choice of the recipe that knows the most of a kernel has to be predicted to
# take less than this part of the time: predictions are off by about as much.
_CLEARLY = 0.7
# Of the same products in tiles: predictions are off alike.
_TOGETHER = 0.9
# Configs of a kernel that is not cut.
_OfAll = PlainConfig | OwnSchedule | TiledConfig


@dataclass(frozen=True)
class Tried:
    """A legal config, its schedule, and the time that is predicted (None: no model says)."""

    config: Config
    schedule: KernelSchedule
    time: Predicted | None
    own_model: bool

    def as_scheduled(self, machine: Machine) -> Tried:
        """The same with the time that the schedule is predicted to take."""
        if not self.own_model:
            return self
        time = predicted(self.schedule.kernel, machine)
        return replace(self, time=time, own_model=False)

    def beats(self, other: Tried, part: float = 1.0) -> bool:
        """Whether it is predicted to take less than ``part`` of the time of ``other``; what has no
        time beats what ships."""
        if self.time is None or other.time is None:
            return part == 1.0
        return self.time.seconds < part * other.time.seconds


def _choose_group(start: Start, machine: Machine) -> tuple[Config, KernelSchedule]:
    """The candidate that is predicted to take the least time. The best of a user's recipe goes
    first where nothing predicts its time."""
    with each_once():
        chosen: Tried | None = None
        for recipe in registered():
            if recipe.matches(start, machine):
                tried = _best_of_user(recipe, start, machine)
                if tried.time is not None and chosen is None:
                    chosen = _least(start, machine)
                if chosen is None or tried.beats(chosen):
                    return tried.config, tried.schedule
        chosen = chosen or _least(start, machine)
        return chosen.config, chosen.schedule


def _best_of_user(recipe: Registered, start: Start, machine: Machine) -> Tried:
    candidate = next(recipe.candidates(start, machine))
    try:
        schedule = recipe.carried_out(start, machine, candidate.config)
    except (ScheduleError, UnsupportedError) as error:
        raise ScheduleError(
            f"the recipe '{recipe.name}' offers what it cannot schedule: {error.what}",
            where=f"config {candidate.config!r}",
            why=error.why,
            cure="leave it out of the recipe's space, or mend its schedule",
        ) from error
    return Tried(candidate.config, schedule, candidate.prediction, own_model=True)


def _least(start: Start, machine: Machine) -> Tried:
    """The best of what ships. Those that know more of the kernel come first: others have to be
    clearly faster, and where a model of a recipe's own has decided, only those are asked that say
    that they may be."""
    offered: list[list[Tried]] = []
    refusal: TilewrightError | None = None
    decided = False
    for recipe in recipes_for(machine):
        if not recipe.matches(start, machine):
            continue
        if decided and not recipe.contends(start, machine):
            continue
        try:
            tried = list(_legal(recipe, start, machine))
        except (ScheduleError, UnsupportedError) as error:
            refusal = error
            continue
        if tried:
            offered.append(tried)
            decided = decided or tried[0].own_model
            if tried[0].time is None:
                break
    if not offered:
        assert refusal is not None
        raise refusal
    return _best(offered, machine)


def _best(offered: Sequence[Sequence[Tried]], machine: Machine) -> Tried:
    """The best of what recipes offer: of the first choices of each, and then of all others, of
    which those of the recipe that was preferred may be faster by less. Several are compared by what
    their schedules are predicted to take, whatever models recipes have."""
    if len(offered) > 1:
        offered = [[trial.as_scheduled(machine) for trial in tried] for tried in offered]
    best = offered[0][0]
    for first, *_ in offered[1:]:
        if first.beats(best, _CLEARLY):
            best = first
    kind = type(best.config)
    for _, *others in offered:
        for other in others:
            if other.beats(best, 1.0 if type(other.config) is kind else _CLEARLY):
                best = other
    return best


def _legal(recipe: Recipe[Any], start: Start, machine: Machine) -> Iterator[Tried]:
    """The candidates of ``recipe`` that are legal; the first one alone, where it has a time by a
    model of the recipe's own, or nothing predicts times. Raises why the last one is not, if all are
    not."""
    refusal: TilewrightError | None = None
    legal = False
    for candidate in recipe.candidates(start, machine):
        try:
            schedule = recipe.carried_out(start, machine, candidate.config)
        except (ScheduleError, UnsupportedError) as error:
            refusal = error
            continue
        legal, time = True, candidate.prediction
        if time is not None:
            yield Tried(candidate.config, schedule, time, own_model=True)
            return
        time = predicted(schedule.kernel, machine)
        yield Tried(candidate.config, schedule, time, own_model=False)
        if time is None:
            return
    if refusal is not None and not legal:
        raise refusal


def space_of(start: Start, machine: Machine) -> Space:
    """All that the recipes may choose for a kernel."""
    groups = [start] if start.structured else starts(start, cut_for(start, machine))
    recipes = (*registered(), *recipes_for(machine))
    return Space(
        tuple(
            Group([Branch(r, group, machine) for r in recipes if r.matches(group, machine)])
            for group in groups
        )
    )


def candidates(
    start: Start, machine: Machine, config: Config
) -> dict[str, tuple[Config, list[AnyCandidate]]]:
    """Of each group, by the name of its kernel: its config, and what that was chosen from, it
    first, and then the best first."""
    if isinstance(config, OwnSchedule):
        return {start.kernel.name: (config, [Candidate(config, None)])}
    return {
        name: (chosen, _considered(group, machine, chosen))
        for name, (group, chosen) in _with_configs(start, machine, config).items()
    }


def _considered(start: Start, machine: Machine, config: Config) -> list[AnyCandidate]:
    """``config`` and what it was chosen from: where the recipe has no model of its own, with the
    times of the schedules, and with what other recipes would do."""
    recipe = recipe_of(config, machine)
    of_recipe = recipe.considered(start, machine, config)
    if any(candidate.prediction for candidate in of_recipe):
        return of_recipe
    first, *others = (_timed(recipe, start, machine, candidate) for candidate in of_recipe)
    if first.prediction is None:
        return of_recipe
    for other in recipes_for(machine):
        if other is not recipe and other.matches(start, machine):
            with suppress(ScheduleError, UnsupportedError):
                tried = _legal(other, start, machine)
                others += [Candidate(trial.config, trial.time) for trial in tried]
    return [first, *sorted(others, key=lambda c: c.prediction.seconds if c.prediction else inf)]


def _timed(
    recipe: Recipe[Any], start: Start, machine: Machine, candidate: AnyCandidate
) -> AnyCandidate:
    """``candidate`` with the predicted time of its schedule; as it is where it is not legal."""
    try:
        schedule = recipe.carried_out(start, machine, candidate.config)
    except (ScheduleError, UnsupportedError):
        return candidate
    return Candidate(candidate.config, predicted(schedule.kernel, machine))


def _with_configs(
    start: Start, machine: Machine, config: Config
) -> dict[str, tuple[Start, Config]]:
    """The groups, each with its config, by the names of their kernels."""
    groups = [start]
    configs = config.groups if isinstance(config, GroupsConfig) else (config,)
    if not start.structured and not isinstance(config, _OfAll):
        groups = starts(start, cut_for(start, machine))
    pairs = zip(groups, configs, strict=True)
    return {group.kernel.name: (group, chosen) for group, chosen in pairs}


def instructions(start: Start, machine: Machine, config: Config) -> dict[str, list[str]]:
    """Of each group that multiplies, by the name of its kernel: its instruction, and why no better
    one does."""
    if isinstance(config, OwnSchedule):
        return {}
    lines_of = {
        name: recipe_of(chosen, machine).instructions(group.kernel, machine, chosen)
        for name, (group, chosen) in _with_configs(start, machine, config).items()
    }
    return {name: lines for name, lines in lines_of.items() if lines}


def legal_values(start: Start, machine: Machine, config: Config) -> dict[str, dict[str, str]]:
    """Of each group, by the name of its kernel, what the fields of its config may be."""
    if isinstance(config, OwnSchedule):
        return {start.kernel.name: config.forms()}
    return {
        name: recipe_of(chosen, machine).legal(group.kernel, machine, chosen)
        for name, (group, chosen) in _with_configs(start, machine, config).items()
    }


def _schedule_groups(start: Start, machine: Machine, config: Config) -> KernelSchedule:
    """Each group by its own config: ``config``, if there is one group."""
    result = cut_for(start, machine)
    groups = starts(start, result)
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
    for group, chosen in zip(groups, configs, strict=True):
        if not group.structured and recipe_of(chosen, machine).structured:
            raise ScheduleError(
                f"{group.kernel.name} is no contraction",
                where=f"config {chosen!r}",
                why="no contraction was found in it",
                cure="use a ReductionConfig or a PlainConfig",
            )
    pairs = zip(groups, configs, strict=True)
    parts = [_carried_out(group, machine, chosen) for group, chosen in pairs]
    return parts[0] if result.whole else KernelSchedule.of_groups(result, parts, machine)


def unscheduled(start: Start) -> tuple[Config, KernelSchedule]:
    """The kernel as it is."""
    result = KernelSchedule(start.kernel)
    result.mark("naive")
    return PlainConfig(), result


def schedule(start: Start, machine: Machine, config: Config) -> KernelSchedule:
    """Carries ``config`` out. Raises `ScheduleError` where it does not fit."""
    if isinstance(config, OwnSchedule):
        return replayed(start, machine, config)
    cuttable = not start.structured and not isinstance(config, _OfAll)
    if cuttable or isinstance(config, GroupsConfig):
        return _schedule_groups(start, machine, config)
    return _carried_out(start, machine, config)


def schedule_given(
    start: Start, machine: Machine, asked: GivenConfig
) -> tuple[Config, KernelSchedule]:
    """The config that comes of one that is given, and the schedule that it gives: changes are made
    to the default, and dims of one element are left out."""
    if isinstance(asked, PartialConfig):
        return _changed(start, machine, asked)
    config = _without_units(asked, start)
    return config, schedule(start, machine, config)


def _without_units(config: Config, start: Start) -> Config:
    """``config`` for an op, without the dims that have one element."""
    if not start.structured or not has_compute(start.kernel, MAIN):
        return config
    return config.without_units(extents(find_compute(start.kernel, MAIN)))


def _changed(start: Start, machine: Machine, part: PartialConfig) -> tuple[Config, KernelSchedule]:
    """The default with the changes that are given, and its schedule. With a halo, dims of M stay
    apart, and steps are as long as fit."""
    default, _ = choose(start, machine)
    defaults: Iterable[Config] = (default,)
    if part.asks_for_halo and isinstance(default, WorkgroupConfig) and not default.staging.halo:
        defaults = smaller_steps(apart(default, start.kernel))
    refusal: ScheduleError | None = None
    for config in defaults:
        try:
            return schedule_given(start, machine, part.over(config))
        except ScheduleError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _carried_out(start: Start, machine: Machine, config: Config) -> KernelSchedule:
    """What the recipe of ``config`` makes of one group. What a transform refuses is said of the
    config, which is what the user wrote."""
    recipe = recipe_of(config, machine)
    config = _without_units(config, start)
    try:
        return recipe.carried_out(start, machine, config)
    except ScheduleError as error:
        if str(error.where).startswith("config "):
            raise
        transform, _, refusal = error.what.partition(": ")
        raise ScheduleError(
            "the config does not fit this kernel: "
            + (refusal if transform in TRANSFORMS else error.what),
            where=f"config {config!r}",
            why=error.why,
            cure="choose other values: `tilewright show ... --stage config --legal` prints them",
        ) from error


RECIPES: dict[str, Recipe[Any]] = {
    recipe.name: recipe
    for recipe in (
        Stencil(),
        Factored(),
        Workgroups(),
        Contraction(),
        Elementwise(),
        Chained(_default),
        Tiled(_default),
        Reductions(),
        ReductionsInWorkgroups(),
        Plain(),
    )
}


def recipes_for(machine: Machine) -> tuple[Recipe[Any], ...]:
    """The recipes for ``machine`` that ship, in the order in which they are asked."""
    return tuple(RECIPES[name] for name in machine.recipes)


def recipe_of(config: Config, machine: Machine) -> Recipe[Any]:
    """The recipe that ``config`` is of, of those for ``machine`` if it is one. Raises
    `ScheduleError` where a user's is not there."""
    for recipe in (*recipes_for(machine), *RECIPES.values(), *registered()):
        if isinstance(config, recipe.config):
            return recipe
    raise ScheduleError(
        f"no recipe is registered for {config!r}", cure="register it first (`tw.register_recipe`)"
    )
