"""The recipes that each class of machine has, in order: those that know more of a kernel first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tilewright.errors import ScheduleError
from tilewright.machines.machine import Machine
from tilewright.recipes import (
    choices,
    contraction,
    elementwise,
    factored,
    factored_model,
    plain,
    reductions,
    reductions_in_workgroups,
    stencil,
    workgroup_model,
    workgroups,
)
from tilewright.recipes.config import (
    Config,
    ContractionConfig,
    ElementwiseConfig,
    FactoredConfig,
    PlainConfig,
    ReductionConfig,
    StencilConfig,
    UserConfig,
    WorkgroupConfig,
)
from tilewright.recipes.recipe import AnyCandidate, Candidate, Recipe
from tilewright.recipes.sizes import are_known
from tilewright.recipes.start import Start
from tilewright.recipes.users import recipe_called
from tilewright.schedule.schedule import KernelSchedule

Schedules = Callable[[KernelSchedule, Machine, Any], None]


def _contracts(start: Start, machine: Machine) -> bool:
    return start.structured and choices.is_contraction(start.kernel)


def _of_numbers(start: Start, machine: Machine) -> bool:
    """Contractions whose sizes are known: what decides how work-items share them, for one."""
    return _contracts(start, machine) and are_known(start.kernel)


def _elementwise(start: Start, machine: Machine) -> bool:
    """What threads would reduce along whole dims, they share better by another recipe."""
    known = start.structured and not choices.is_contraction(start.kernel)
    return known and not reductions.matches(start, machine)


def _stencil(start: Start, machine: Machine) -> Iterator[AnyCandidate]:
    config = stencil.default_config(start.exact, machine)
    if config is not None:
        yield Candidate(config, None)


def _multiplies_matrices(config: WorkgroupConfig, machine: Machine) -> bool:
    return config.product.together(machine) > 1


def _in_workgroups(start: Start, machine: Machine) -> Iterator[AnyCandidate]:
    """Without the rounding that may be left out, unless matrices are multiplied: it would only cost
    time."""
    kernel, exact = start.kernel, start.exact
    for each in (kernel,) if kernel is exact else (kernel, exact):
        for config in workgroup_model.default_configs(each, machine, start.prepacked):
            if each is exact or _multiplies_matrices(config, machine):
                yield Candidate(config, None)


def _considered(start: Start, machine: Machine, config: WorkgroupConfig) -> list[AnyCandidate]:
    if machine.rates is None:
        return [Candidate(config, None)]
    chosen = workgroup_model.prediction_of(start.kernel, machine, config)
    found = workgroup_model.candidates(start.kernel, machine, start.prepacked)
    return [Candidate(config, chosen), *found]


def _reductions(start: Start, machine: Machine) -> Iterator[AnyCandidate]:
    yield Candidate(_reduces(machine).choose(start.kernel, machine), None)


def _reduces(machine: Machine) -> Any:
    """The module with the schedule of reductions on ``machine``."""
    return reductions_in_workgroups if machine.banked else reductions


def _of_contractions(carry_out: Schedules) -> Schedules:
    """``carry_out`` for contractions; everything else is refused."""

    def schedule(s: KernelSchedule, machine: Machine, config: Any) -> None:
        if not choices.is_contraction(s.kernel):
            raise ScheduleError(
                f"{s.kernel.name} is no contraction",
                where=f"config {config!r}",
                cure="use a ElementwiseConfig",
            )
        carry_out(s, machine, config)

    return schedule


_STENCIL = Recipe(
    "stencil",
    StencilConfig,
    _of_numbers,
    _stencil,
    _of_contractions(stencil.schedule),
)
_WORKGROUPS = Recipe(
    "workgroups",
    WorkgroupConfig,
    _of_numbers,
    _in_workgroups,
    _of_contractions(workgroups.schedule),
    _considered,
    _multiplies_matrices,
)
_FACTORED = Recipe(
    "factored",
    FactoredConfig,
    _of_numbers,
    lambda s, machine: factored_model.candidates(s.exact, machine, s.prepacked),
    _of_contractions(factored.schedule),
)
_CONTRACTION = Recipe(
    "contraction",
    ContractionConfig,
    _contracts,
    lambda s, machine: choices.candidates(s.exact, machine, s.prepacked),
    _of_contractions(contraction.schedule),
)
_ELEMENTWISE = Recipe(
    "elementwise",
    ElementwiseConfig,
    _elementwise,
    lambda s, machine: iter([Candidate(elementwise.choose(s.kernel, machine), None)]),
    elementwise.schedule,
)
_REDUCTIONS = Recipe(
    "reductions",
    ReductionConfig,
    reductions.matches,
    _reductions,
    lambda s, machine, config: _reduces(machine).schedule(s, machine, config),
)
_PLAIN = Recipe(
    "plain",
    PlainConfig,
    lambda start, machine: True,
    lambda s, machine: iter([Candidate(plain.default_config(s.kernel, machine), None)]),
    plain.schedule,
)

# Memory in banks is faster than a cache: only there does a copy of operands pay for itself.
_BANKED = (_STENCIL, _WORKGROUPS, _CONTRACTION, _ELEMENTWISE, _REDUCTIONS, _PLAIN)
_CACHED = (_FACTORED, _CONTRACTION, _ELEMENTWISE, _REDUCTIONS, _PLAIN)


def recipes_for(machine: Machine) -> tuple[Recipe, ...]:
    """The recipes for ``machine`` that ship, in the order in which they are asked."""
    return _BANKED if machine.banked else _CACHED


def recipe_of(config: Config) -> Recipe:
    """The recipe that ``config`` is of. Raises `ScheduleError` where a user's is not there."""
    if isinstance(config, UserConfig):
        return recipe_called(config.recipe)
    return next(each for each in (*_CACHED, *_BANKED) if isinstance(config, each.config))
