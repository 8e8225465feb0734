"""Configs that users give: changes of the default, and those of a kernel with more dims."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from tilewright.errors import ScheduleError, short
from tilewright.ir.stmt import Kernel
from tilewright.layout.roles import MAIN
from tilewright.recipes.config import (
    Config,
    ContractionConfig,
    FactoredConfig,
    WorkgroupConfig,
    parse_config,
    value_of,
)
from tilewright.recipes.parts import Tile
from tilewright.recipes.roles import extents, find_compute, has_compute

# Far beyond what anybody writes; Python's own parser may crash of texts that nest beyond measure.
_LONGEST = 10_000


@dataclass(frozen=True)
class PartialConfig:
    """Fields of the config that a kernel gets by default, with other values: of a dict, or of a
    part that has fields, only the entries that are given are others."""

    changes: Mapping[str, Any]

    def over(self, default: Config) -> Config:
        """``default`` with the changes. Raises `ScheduleError` where it has no such field."""
        made: Config = self._changed(default, self.changes, "")
        return made

    @property
    def asks_for_halo(self) -> bool:
        """Whether the dims of M are to stay apart."""
        staging = self.changes.get("staging")
        asked = staging.get("halo") if isinstance(staging, Mapping) else None
        return asked is True

    def _changed(self, default: Any, changes: Mapping[str, Any], part: str) -> Any:
        """A config, or a ``part`` of one, with these changes."""
        names = [each.name for each in fields(default)]
        values: dict[str, Any] = {}
        for name, value in changes.items():
            if name not in names:
                whole = _where(default, name)
                raise ScheduleError(
                    f"{part + str(name)!r} is nothing that this kernel's schedule chooses",
                    where=f"config {self}",
                    why=f"its default is {default!r}",
                    cure="choose some of "
                    + ", ".join(part + each for each in names)
                    + (f"; {name} is a field of {whole}" if whole else "")
                    + "; or write a whole config",
                )
            before = getattr(default, name)
            if isinstance(value, Mapping) and is_dataclass(before):
                value = self._changed(before, value, f"{part}{name}.")
            elif isinstance(value, Mapping) and isinstance(before, Mapping):
                value = {**before, **value}
            values[name] = value
        return replace(default, **values)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.changes.items())

    def __hash__(self) -> int:
        return hash(repr(self))


def _where(default: Any, name: object) -> str:
    """The part of ``default`` that has a field called ``name``; "" where none has."""
    for each in fields(default):
        part = getattr(default, each.name)
        if is_dataclass(part) and any(inner.name == name for inner in fields(part)):
            return each.name
    return ""


GivenConfig = Config | PartialConfig


def read_config(given: object) -> GivenConfig:
    """What a user gives as a config: itself, a dict of changes, or the text of either, as in
    ``"tile={'oc': 32}"``. Raises `ScheduleError`."""
    if isinstance(given, GivenConfig):
        return given
    if isinstance(given, Mapping):
        wrong = [name for name in given if not isinstance(name, str)]
        if wrong or not given:
            raise ScheduleError(
                f"{short(given)} is no change of a config",
                cure="give some of its fields by name, as {'tile': {'oc': 32}}",
            )
        return PartialConfig(dict(given))
    if isinstance(given, str) and len(given) <= _LONGEST:
        changes = _keywords(given)
        if changes:
            return PartialConfig(changes)
    return parse_config(given)  # type: ignore[arg-type]  # which refuses what is no text


def _keywords(text: str) -> dict[str, Any]:
    """The values of ``name=value, ...``; none for any other text."""
    try:
        tree = ast.parse(f"_({text.strip()})", mode="eval").body
        plain = isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args
        if not plain or not isinstance(tree, ast.Call):
            return {}
        return {str(each.arg): value_of(each.value) for each in tree.keywords if each.arg}
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


def fitted(config: Config, kernel: Kernel) -> Config:
    """``config`` for a contraction, without the dims that have one element in ``kernel``, so that
    one that fits a larger batch fits one image; tiles along what such dims were part of end with
    the dim."""
    known = ContractionConfig | FactoredConfig | WorkgroupConfig
    if not isinstance(config, known) or not has_compute(kernel, MAIN):
        return config
    sizes = extents(find_compute(kernel, MAIN))
    units = {name for name, size in sizes.items() if size == 1}
    if not units:
        return config
    if isinstance(config, WorkgroupConfig):
        return _in_workgroups(config, sizes, units)
    if isinstance(config, FactoredConfig):
        return replace(config, tile={n: s for n, s in config.tile.items() if n not in units})
    names = dict.fromkeys(units, "")
    lengths = {name: size for name, size in sizes.items() if size > 1}
    fuse: list[tuple[str, str, str]] = []
    for outer, inner, name in config.fuse:
        outer, inner = names.get(outer, outer), names.get(inner, inner)
        if outer and inner:
            fuse.append((outer, inner, name))
            lengths[name] = lengths.get(outer, 1) * lengths.get(inner, 1)
        else:
            names[name] = outer or inner
    split: list[tuple[str, int]] = []
    for dim, factor in config.split:
        left = names.get(dim, dim)
        if left:
            split.append((left, factor))
        if left != dim:
            for end in ("q", "r"):
                names[f"{dim}_{end}"] = f"{left}_{end}" if left else ""

    def dims(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for each in given if (n := names.get(each, each))))

    def parts(given: Mapping[str, int]) -> dict[str, int]:
        left = {names.get(name, name): (name, size) for name, size in given.items()}
        return {
            new: size if new == name else min(size, lengths.get(new, size))
            for new, (name, size) in left.items()
            if new
        }

    return replace(
        config,
        fuse=tuple(fuse),
        split=tuple(split),
        lanes=names.get(config.lanes, config.lanes) or config.lanes,
        tile=parts(config.tile),
        block=parts(config.block),
        order=dims(config.order),
        step=parts(config.step),
        slices=parts(config.slices),
        reduce_order=dims(config.reduce_order),
        k=names.get(config.k, config.k) or config.k,
    )


def _in_workgroups(
    config: WorkgroupConfig, sizes: Mapping[str, int], units: set[str]
) -> WorkgroupConfig:
    """The same, where a dim that was made of several is called like them, joined by ``_``."""

    def left(name: str) -> str:
        if name in sizes:
            return "" if name in units else name
        parts = name.split("_")
        if not set(parts) <= {*sizes, "q"}:  # where strides are told apart, d_q is a dim
            return name
        return "_".join(part for part in parts if part not in units)

    def sizes_of(given: Mapping[str, int]) -> dict[str, int]:
        return {n: size for name, size in given.items() if (n := left(name))}

    def dims(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for name in given if (n := left(name))))

    def parts_of(given: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return tuple((n, parts) for name, parts in given if (n := left(name)))

    product, tile, reduction, order, storing = (
        config.product,
        config.tile,
        config.reduction,
        config.order,
        config.storing,
    )
    lanes, k = left(product.lanes) or product.lanes, left(product.k) or product.k
    return replace(
        config,
        product=replace(product, lanes=lanes, k=k),
        tile=Tile(sizes_of(tile.group), sizes_of(tile.item)),
        reduction=replace(
            reduction,
            step=sizes_of(reduction.step),
            loops=dims(reduction.loops),
            fused=dims(reduction.fused),
            slices=parts_of(reduction.slices),
            item_slices=parts_of(reduction.item_slices),
        ),
        order=replace(order, loops=dims(order.loops), cluster=sizes_of(order.cluster)),
        storing=replace(storing, tile=sizes_of(storing.tile)),
    )
