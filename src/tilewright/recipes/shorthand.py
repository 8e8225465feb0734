"""Configs in a few words, for tables of candidates."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.recipes.config import COPY_UNIT, Config, ContractionConfig, WorkgroupConfig


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
    words = [
        _sizes({d: config.group[d] for d in config.order if d in config.group}),
        "in " + _sizes({d: config.item[d] for d in config.order if d in config.item}),
        "step " + _sizes(config.step),
        f"{config.stages} stages" if config.stages > 1 else "1 stage",
    ]
    if config.slices:
        words.append("slices " + _sizes(dict(config.slices)))
    if config.fill == COPY_UNIT:
        words.append("whole")
        if config.epilogue_tile:
            piece = {**config.item, **config.epilogue_tile}
            words.append("stored by " + _sizes({d: piece[d] for d in config.order if d in piece}))
    if config.cluster:
        words.append("cluster " + _sizes({d: config.cluster.get(d, 1) for d in config.order}))
    if config.raster > 1:
        words.append(f"raster {config.raster}")
    if config.persistent:
        words.append(f"{config.persistent} workgroups")
    return ", ".join(words)


def _sizes(sizes: Mapping[str, int]) -> str:
    return "x".join(map(str, sizes.values()))
