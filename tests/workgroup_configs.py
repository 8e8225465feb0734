"""Configs of workgroups from their fields, whichever part each is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from tilewright.recipes.config import PARTS, WorkgroupConfig

# The part of each field. Where two parts have one of a name, these say which is meant.
_PLACES = {
    field.name: (kind.__name__.lower(), field.name)
    for kind in PARTS.values()
    for field in fields(kind)
} | {
    "order": ("order", "loops"),
    "reduce_order": ("reduction", "loops"),
    "epilogue_tile": ("storing", "tile"),
    "padding": ("staging", "padding"),
    "store_padding": ("storing", "padding"),
}


def workgroup_config(
    instruction: str,
    lanes: str,
    group: Mapping[str, int],
    item: Mapping[str, int],
    order: tuple[str, ...],
    step: Mapping[str, int] | None = None,
    reduce_order: tuple[str, ...] = (),
    **given: Any,
) -> WorkgroupConfig:
    """The config with these fields, and the defaults of all others."""
    kinds = {name.lower(): kind for name, kind in PARTS.items()}
    values = _by_part(
        {
            "instruction": instruction,
            "lanes": lanes,
            "group": group,
            "item": item,
            "order": order,
            "step": step or {},
            "reduce_order": reduce_order,
            **given,
        }
    )
    return WorkgroupConfig(**{part: kinds[part](**own) for part, own in values.items()})


def with_fields(config: WorkgroupConfig, **given: Any) -> WorkgroupConfig:
    """``config`` with other values of these fields."""
    values = _by_part(given)
    return replace(
        config, **{part: replace(getattr(config, part), **own) for part, own in values.items()}
    )


def _by_part(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        part, own = _PLACES[name]
        found.setdefault(part, {})[own] = value
    return found
