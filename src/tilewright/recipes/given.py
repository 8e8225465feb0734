"""Configs that users give: changes of the default, and those of a kernel with more dims."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Kernel
from tilewright.problems.numbers import short
from tilewright.recipes.config import (
    Config,
    ContractionConfig,
    FactoredConfig,
    WorkgroupConfig,
    parse_config,
    value_of,
)
from tilewright.recipes.parts import Tile
from tilewright.recipes.roles import MAIN, extents, find_compute, has_compute

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
