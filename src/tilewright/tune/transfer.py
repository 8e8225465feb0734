"""Configs to begin a search with: those that were fastest for the same kernel, by another version
of the generator or elsewhere, and for kernels of the nearest sizes, changed to fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tilewright.engine.request import Request
from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Kernel
from tilewright.recipes.config import Config, parse_config
from tilewright.recipes.parts.forms import Choices
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import extents
from tilewright.targets.target import Target
from tilewright.tune.database import Database
from tilewright.tune.nearest import form_of

Fit = Callable[[int, int], int]


def first_configs(
    database: Database, request: Request, target: Target, threads: int
) -> Iterator[Config]:
    """What to try first for ``request``, by what ``database`` has of this target: the nearest sizes
    first, of these what was measured with so many ``threads`` on the same machine. Not all of them
    are legal."""
    kernel = request.start().kernel
    form, sizes = form_of(kernel, request.kind)
    dims = dims_of(kernel)
    here = database.nearest(form, sizes, target.name, features=target.identity, threads=threads)
    offered: set[Config] = set()
    for rows in (here, database.nearest(form, sizes, target.name)):
        for row in rows:
            try:
                configs = list(adapted(parse_config(row.config), dims))
            except ScheduleError:
                continue  # of a recipe that is not there
            yield from (config for config in configs if config not in offered)
            offered.update(configs)


def dims_of(kernel: Kernel) -> dict[str, int]:
    """The sizes of all dims of a kernel's computes, by their names; the largest of a name."""
    sizes: dict[str, int] = {}
    for compute in computes_in(kernel):
        for name, size in extents(compute).items():
            sizes[name] = max(size, sizes.get(name, 1))
    return sizes


def adapted(config: Config, sizes: Mapping[str, int]) -> Iterator[Config]:
    """What may become of ``config``, which is for other sizes, where dims have these: itself; with
    what is longer than its dim as long as that; and with what divides it. The nearest first; which
    of them are legal, their recipe says."""
    offered: list[Config] = []
    for fit in (_same, min, _dividing):
        changed = _changed(config, sizes, fit)
        if changed not in offered:
            offered.append(changed)
            yield changed


def _changed(choices: Any, sizes: Mapping[str, int], fit: Fit) -> Any:
    """``choices`` with what they say of dims made to ``fit``."""
    if isinstance(choices, Choices):
        values = {name: getattr(choices, name) for name in choices.names()}
        return replace(choices, **{n: _changed(v, sizes, fit) for n, v in values.items()})
    if isinstance(choices, tuple) and any(isinstance(choice, Choices) for choice in choices):
        return tuple(_changed(choice, sizes, fit) for choice in choices)
    if isinstance(choices, Mapping):
        lengths = {name: _length(name, sizes) for name in choices}
        return {
            name: fit(value, lengths[name]) if type(value) is int and lengths[name] else value
            for name, value in choices.items()
        }
    return choices


def _length(name: str, sizes: Mapping[str, int]) -> int:
    """The size of the dim called ``name``, which may be several as one; 0 where it is none."""
    parts = [name] if name in sizes else name.split("_")
    return math.prod(sizes.get(part, 0) for part in parts)


def _same(value: int, length: int) -> int:
    return value


def _dividing(value: int, length: int) -> int:
    return next(n for n in range(min(value, length), 0, -1) if length % n == 0)
