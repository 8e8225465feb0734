"""Configs that users give: changes of the default, and those of a kernel with more dims."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tilewright.errors import ScheduleError, short
from tilewright.ir.stmt import Kernel
from tilewright.layout.roles import MAIN
from tilewright.recipes.config import Config, WorkgroupConfig, parse_config, value_of
from tilewright.recipes.parts import Tile
from tilewright.recipes.parts.forms import Choices
from tilewright.recipes.roles import extents, find_compute

C = TypeVar("C", bound=Choices)

# Far beyond what anybody writes; Python's own parser may crash of texts that nest beyond measure.
_LONGEST = 10_000


@dataclass(frozen=True)
class PartialConfig:
    """Fields of the config that a kernel gets by default, with other values: of a dict, or of a
    part that has fields, only the entries that are given are others."""

    changes: Mapping[str, Any]

    def over(self, default: Config) -> Config:
        """``default`` with the changes. Raises `ScheduleError` where it has no such field."""
        return self._changed(default, self.changes, "")

    @property
    def asks_for_halo(self) -> bool:
        """Whether the dims of M are to stay apart."""
        staging = self.changes.get("staging")
        asked = staging.get("halo") if isinstance(staging, Mapping) else None
        return asked is True

    def _changed(self, default: C, changes: Mapping[str, Any], part: str) -> C:
        """A config, or a ``part`` of one, with these changes."""
        names = default.names()
        values: dict[str, Any] = {}
        for name, value in changes.items():
            if name not in names:
                whole = _where(default, name)
                raise ScheduleError(
                    f"{part + str(name)!r} is nothing that this kernel's schedule chooses",
                    where=f"config {self}",
                    why=f"its default is {default!r}",
                    cure="choose some of "
                    + ", ".join(part + name for name in names)
                    + (f"; {name} is a field of {whole}" if whole else "")
                    + "; or write a whole config",
                )
            before = getattr(default, name)
            if isinstance(value, Mapping) and isinstance(before, Choices):
                value = self._changed(before, value, f"{part}{name}.")
            elif isinstance(value, Mapping) and isinstance(before, Mapping):
                value = {**before, **value}
            values[name] = value
        return replace(default, **values)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.changes.items())

    def __hash__(self) -> int:
        return hash(repr(self))


def _where(default: Choices, name: object) -> str:
    """The part of ``default`` that has a field called ``name``; "" where none has."""
    for part in default.names():
        value = getattr(default, part)
        if isinstance(value, Choices) and name in value.names():
            return part
    return ""


GivenConfig = Config | PartialConfig


def read_config(value: object) -> GivenConfig:
    """What a user gives as a config: itself, a dict of changes, or the text of either, as in
    ``"tile={'oc': 32}"``. Raises `ScheduleError`."""
    if isinstance(value, GivenConfig):
        return value
    if isinstance(value, Mapping):
        wrong = [name for name in value if not isinstance(name, str)]
        if wrong or not value:
            raise ScheduleError(
                f"{short(value)} is no change of a config",
                cure="give some of its fields by name, as {'tile': {'oc': 32}}",
            )
        return PartialConfig(dict(value))
    if isinstance(value, str) and len(value) <= _LONGEST:
        changes = _keywords(value)
        if changes:
            return PartialConfig(changes)
    return parse_config(value)  # type: ignore[arg-type]  # which refuses what is no text


def _keywords(text: str) -> dict[str, Any]:
    """The values of ``name=value, ...``; none for any other text."""
    try:
        tree = ast.parse(f"_({text.strip()})", mode="eval").body
        plain = isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args
        if not plain or not isinstance(tree, ast.Call):
            return {}
        return {
            str(keyword.arg): value_of(keyword.value) for keyword in tree.keywords if keyword.arg
        }
    except (SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
        return {}


def apart(config: WorkgroupConfig, kernel: Kernel) -> WorkgroupConfig:
    """``config`` for dims of ``kernel`` that are not joined, as a halo takes them: tiles along
    joined dims become boxes, about square, along the two innermost of them."""
    sizes = extents(find_compute(kernel, MAIN))
    parts = {name: _parts(name, sizes) for name in config.order.loops}
    group: dict[str, int] = {}
    item: dict[str, int] = {}
    for name, dims in parts.items():
        of_group, of_item = config.tile.group.get(name, 1), config.tile.item.get(name, 1)
        long = [dim for dim in dims if sizes.get(dim, 1) > 1] or list(dims)
        inner, outer = long[-1], long[-2] if len(long) > 1 else ""
        group[inner], item[inner] = _square(of_group, of_item) if outer else (of_group, of_item)
        if outer:
            group[outer], item[outer] = of_group // group[inner], of_item // item[inner]
    kept = {name for name, dims in parts.items() if len(dims) == 1}
    order, storing = config.order, config.storing
    return replace(
        config,
        tile=Tile(group, item),
        staging=replace(config.staging, swizzle={}),  # which is one of the tiles as they were
        order=replace(
            order,
            loops=tuple(dim for dims in parts.values() for dim in dims),
            cluster={name: size for name, size in order.cluster.items() if name in kept},
        ),
        storing=replace(
            storing, tile={name: size for name, size in storing.tile.items() if name in kept}
        ),
    )


def smaller_steps(config: WorkgroupConfig) -> Iterator[WorkgroupConfig]:
    """``config``, and then with half of its longest step of the reduction, until that is 1: what
    all taps share at a time takes more memory than what one does."""
    yield config
    step = dict(config.reduction.step)
    while step and max(step.values()) > 1:
        longest = max(step, key=lambda name: step[name])
        step[longest] = -(-step[longest] // 2)
        yield replace(
            config,
            reduction=replace(config.reduction, step=dict(step)),
            staging=replace(config.staging, vector=math.gcd(config.staging.vector, *step.values())),
        )


def _parts(name: str, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The dims that were joined to one called like them."""
    words = name.split("_")
    return tuple(words) if name not in sizes and set(words) <= set(sizes) else (name,)


def _square(group: int, item: int) -> tuple[int, int]:
    """How much of a tile, and of that of an item, lies along the inner one of two dims: at least as
    much as along the outer one, and about as much; all of an item's where it is ``whole``, as rows
    of matrices are along one dim."""
    shapes = [
        (across, within)
        for across in range(1, group + 1)
        for within in range(1, item + 1)
        if group % across == item % within == across % within == 0
        and group // across % (item // within) == 0
        and across * across >= group
        and within * within >= item
    ]
    return min(shapes, default=(group, item))
