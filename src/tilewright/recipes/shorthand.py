"""Configs in a few words, for tables of candidates."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.recipes.config import Config, ContractionConfig, WorkgroupConfig


def short(config: Config) -> str:
    """What tells one candidate from another."""
    match config:
        case WorkgroupConfig():
            return _in_workgroups(config)
        case ContractionConfig():
            return f"{config.instruction or 'no instruction'}, tile {_sizes(config.tile)}"
        case _:
            return repr(config)


def _in_workgroups(config: WorkgroupConfig) -> str:
    """Tiles, those of an item (both in the order of the loops), steps, and how they run."""
    tile, order, stages = config.tile, config.order, config.staging.stages
    words = [
        _sizes({d: tile.group[d] for d in order.loops if d in tile.group}),
        "in " + _sizes({d: tile.item[d] for d in order.loops if d in tile.item}),
        "step " + _sizes(config.reduction.step),
        f"{stages} stages" if stages > 1 else "1 stage",
    ]
    if config.reduction.slices:
        words.append("slices " + _sizes(dict(config.reduction.slices)))
    if config.staging.by_unit:
        words.append("whole")
        if config.storing.tile:
            piece = {**tile.item, **config.storing.tile}
            words.append("stored by " + _sizes({d: piece[d] for d in order.loops if d in piece}))
    if order.cluster:
        words.append("cluster " + _sizes({d: order.cluster.get(d, 1) for d in order.loops}))
    if order.raster > 1:
        words.append(f"raster {order.raster}")
    if order.persistent:
        words.append(f"{order.persistent} workgroups")
    return ", ".join(words)


def _sizes(sizes: Mapping[str, int]) -> str:
    return "x".join(map(str, sizes.values()))
