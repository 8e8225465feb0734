"""Other configs of a kernel than its default, good and bad: what a model has to tell apart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tilewright.errors import ScheduleError
from tilewright.machines.machine import Machine
from tilewright.recipes import choose
from tilewright.recipes.config import Config, GroupsConfig
from tilewright.recipes.recipe import AnyCandidate
from tilewright.recipes.start import Start

# A recipe's best candidates, of which half of the variants are.
_BEST = 12
_FACTORS = (0.25, 0.5, 2, 4)
# How often a config is drawn for each that is wanted.
_TRIES = 4


def variants(
    start: Start, machine: Machine, default: Config, number: int, rng: random.Random
) -> Iterator[Config]:
    """At most ``number`` configs, other than ``default`` and each once: candidates of the recipes,
    or, where these have but one, that one with other numbers. What is not legal, scheduling
    refuses."""
    groups = choose.candidates(start, machine, default)
    chosen = [config for config, _ in groups.values()]
    others = [candidates[1:] for _, candidates in groups.values()]
    passed = {default}
    for _ in range(_TRIES * number):
        place = rng.randrange(len(chosen))
        changed = _drawn(chosen[place], others[place], rng)
        if changed is None:
            continue
        parts = (*chosen[:place], changed, *chosen[place + 1 :])
        config = GroupsConfig(parts) if isinstance(default, GroupsConfig) else changed
        if config not in passed:
            passed.add(config)
            yield config
        if len(passed) > number:
            return


def _drawn(config: Config, others: Sequence[AnyCandidate], rng: random.Random) -> Config | None:
    if others:
        best = rng.random() < 0.5
        drawn: Config = rng.choice(others[:_BEST] if best else others).config
        return drawn
    numbers = [name for name in config.names() if type(getattr(config, name)) is int]
    if not numbers:
        return None
    changes: dict[str, Any] = {}
    for name in rng.sample(numbers, min(len(numbers), rng.choice((1, 1, 2)))):
        changes[name] = round(getattr(config, name) * rng.choice(_FACTORS))
    try:
        return replace(config, **changes)
    except ScheduleError:
        return None  # of a number that has no quarter
