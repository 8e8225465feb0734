"""Configs of workgroups from their fields, whichever part each is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from tilewright.recipes.config import WorkgroupConfig

_TYPES = get_type_hints(WorkgroupConfig)
# The part of each field. Where two parts have one of a name, these say which is meant.
_PLACES = {
    name: (part, name) for part in WorkgroupConfig.names() for name in _TYPES[part].names()
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
    return WorkgroupConfig(**{part: _TYPES[part](**value) for part, value in values.items()})


def with_fields(config: WorkgroupConfig, **given: Any) -> WorkgroupConfig:
    """``config`` with other values of these fields."""
    values = _by_part(given)
    return replace(
        config, **{part: replace(getattr(config, part), **value) for part, value in values.items()}
    )


def _by_part(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        part, own = _PLACES[name]
        result.setdefault(part, {})[own] = value
    return result
