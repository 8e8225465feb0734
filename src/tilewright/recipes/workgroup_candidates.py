"""Configs of a contraction in workgroups, the one of the least predicted time first.

Shapes of tiles come from `matrix_model` or `workgroup_model`. All of them are predicted with slices
of the reduction and without; then, of the best, other steps, stages and orders of the tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tilewright.machines.machine import Machine
from tilewright.recipes.config import COPY_UNIT, WorkgroupConfig
from tilewright.recipes.dots import group_of
from tilewright.recipes.recipe import Candidate
from tilewright.recipes.roles import Roles
from tilewright.recipes.work import Work
from tilewright.recipes.workgroup_checks import lanes_of, work_items
from tilewright.recipes.workgroup_cost import (
    Prediction,
    held_at_once,
    predict,
    stored_bytes,
)

# Tiles that are shared at a time, where copies run by themselves: one is computed with.
_STAGES = (3, 2, 4)
# Registers of a work-item that the next tiles may take.
HELD = 28
# Steps of the reduction that a slice of it has at least.
_STEPS_OF_SLICE = 8
# Shapes of which more is tried, and candidates in all.
_BEST, _MOST = 2, 60
# Workgroups of a cluster: larger ones are slower.
_CLUSTER = 2
# Rows of bands in which tiles may be taken.
_RASTERS = (1, 8)
# The least step that is halved.
_HALVED = 16


WorkgroupCandidate = Candidate[WorkgroupConfig, Prediction]


def ranked(
    work: Work, machine: Machine, shapes: Iterable[WorkgroupConfig], alone: bool
) -> list[WorkgroupCandidate]:
    """The legal ones of ``shapes`` and their variants, the best first; of equal ones that which
    does less. ``alone``: whether the machine copies by itself what work-items have it copy."""

    def predicted(configs: Iterable[WorkgroupConfig]) -> dict[WorkgroupConfig, WorkgroupCandidate]:
        found: dict[WorkgroupConfig, WorkgroupCandidate] = {}
        for config in configs:
            prediction = predict(work, machine, config)
            # Whole tiles are those of steps.
            stepped = config.fill != COPY_UNIT or steps_of(work.sizes, work.parts, config) > 1
            if prediction is not None and stepped:
                found[config] = Candidate(config, prediction)
        return found

    first = predicted(
        _ahead(work, each, _STAGES[0], alone, machine)
        for shape in shapes
        for sliced in _in_slices(work, machine, shape)
        for each in (sliced, *_clustered(work, sliced, machine))
    )
    in_order = _sorted(first)
    best = in_order[:_BEST]
    if not any(map(_whole, best)):
        # Persistent workgroups gain more than others: a variant of these may be the best.
        best += list(filter(_whole, in_order))[:1]
    more = predicted(
        each
        for candidate in best
        for each in _variants(work, candidate.config, alone, machine)
        if each not in first
    )
    return _sorted({**first, **more})[:_MOST]


def _whole(candidate: WorkgroupCandidate) -> bool:
    """Whether a unit copies whole tiles."""
    return candidate.config.fill == COPY_UNIT


def _sorted(found: Mapping[WorkgroupConfig, WorkgroupCandidate]) -> list[WorkgroupCandidate]:
    return sorted(found.values(), key=lambda candidate: candidate.prediction.seconds)


def _in_slices(work: Work, machine: Machine, shape: WorkgroupConfig) -> Iterator[WorkgroupConfig]:
    yield shape
    slices = slices_of(work.sizes, work.parts, shape.group, shape.step, machine)
    if slices:
        yield replace(shape, slices=slices)


def _variants(
    work: Work, config: WorkgroupConfig, alone: bool, machine: Machine
) -> Iterator[WorkgroupConfig]:
    tiles = math.prod(-(-work.sizes[d] // config.group.get(d, 1)) for d in work.parts.kept)
    # The order matters where not all run at once.
    rasters = _RASTERS if tiles > machine.cores else _RASTERS[:1]
    matrices = lanes_of(machine, config) > 1
    for step in _steps(work, config, alone, matrices):
        for stages in _STAGES:
            changed = _ahead(work, replace(config, step=step), stages, alone, machine)
            for raster in rasters:
                each = replace(changed, raster=raster)
                yield each
                # Copies run ahead across tiles: these may have fewer steps than there are stages.
                yield from _persistent(work, replace(each, stages=stages), machine)


def _persistent(work: Work, config: WorkgroupConfig, machine: Machine) -> Iterator[WorkgroupConfig]:
    """``config`` with as many workgroups as the cores hold, where a subgroup of theirs copies ahead
    across tiles (which have as many steps each) and there are more of these; stored by
    work-items, or by the unit."""
    if config.fill != COPY_UNIT or work.taken != 1:
        return
    for each in (config, *_stored(work, config, machine)):
        held = held_at_once(work, machine, each)
        if held:
            yield replace(each, persistent=held)


def _stored(work: Work, config: WorkgroupConfig, machine: Machine) -> Iterator[WorkgroupConfig]:
    """``config`` with results that the unit stores, too: whole tiles of subgroups, or what one
    product has of rows, which takes less memory, and waits for the piece before. Not where there
    are but two slots, of which one is still read when the next product starts: what memory there
    is, is better used for a third."""
    rows = next((dim for dim in config.item if dim != config.lanes), "")
    # Rows of single bytes are short ones.
    if rows and config.stages > 2 and stored_bytes(work, config) > 1:
        whole, least = config.item[rows], machine.instruction(config.instruction).sizes["m"]
        for piece in dict.fromkeys((whole, least)):
            yield replace(config, epilogue_tile={rows: piece})


def _clustered(work: Work, config: WorkgroupConfig, machine: Machine) -> Iterator[WorkgroupConfig]:
    """``config`` in clusters, where a unit copies tiles that neighbours along a dim all read."""
    assert machine.hierarchy is not None
    if config.fill != COPY_UNIT or machine.hierarchy.cluster < _CLUSTER:
        return
    for dim, size in config.group.items():
        common = any(dim not in operand.dims for operand in work.operands)
        if common and work.sizes[dim] > size:
            yield replace(config, cluster={dim: _CLUSTER})


def _steps(
    work: Work, config: WorkgroupConfig, alone: bool, matrices: bool
) -> Iterator[Mapping[str, int]]:
    """The steps of ``config``, and longer ones, which wait for one another less often; or, where
    the next tiles are held in registers, shorter ones, for which there are enough."""
    yield config.step
    alone = alone or config.fill == COPY_UNIT
    least = min(config.step.values(), default=0)
    if alone and all(2 * size <= work.sizes[d] for d, size in config.step.items()):
        yield {d: 2 * size for d, size in config.step.items()}
    # Copies are of whole vectors along what a dot product adds up.
    whole = config.step.get(config.k, 0) % (2 * config.vector) == 0
    if not alone and not matrices and least >= _HALVED and whole:
        yield {d: size // 2 for d, size in config.step.items()}


def _ahead(
    work: Work, config: WorkgroupConfig, stages: int, alone: bool, machine: Machine
) -> WorkgroupConfig:
    """``config`` with so many stages, or as many as it has steps; without copies that run by
    themselves, two, if the registers have room for the next tiles."""
    stages = min(stages, steps_of(work.sizes, work.parts, config))
    if config.fill == COPY_UNIT:
        return replace(config, stages=stages)
    if stages > 1 and alone:
        return replace(config, stages=stages, fill="async")
    tile = {**config.group, **config.step}
    copied = sum(math.prod(tile.get(d, 1) for d in o.dims) for o in work.operands)
    own = copied / (work_items(config) * lanes_of(machine, config))
    # Neighbours that a dot product takes are in one register.
    held = own / group_of(machine, config)
    if stages > 1 and held + 2 * own / config.vector <= HELD:
        return replace(config, stages=2, fill="registers")
    return replace(config, stages=1, fill="copy")


def steps_of(sizes: Mapping[str, int], parts: Roles, config: WorkgroupConfig) -> int:
    """The steps that one workgroup goes through."""
    slices = dict(config.slices)
    return math.prod(-(-sizes[d] // (config.step.get(d, 1) * slices.get(d, 1))) for d in parts.k)


def slices_of(
    sizes: Mapping[str, int],
    parts: Roles,
    group: Mapping[str, int],
    step: Mapping[str, int],
    machine: Machine,
) -> tuple[tuple[str, int], ...]:
    """Parts of the reduction, where tiles of the result alone would leave cores idle.

    Each part still has a few steps, or what is added up afterwards costs more than it gains.
    """
    groups = math.prod(-(-sizes[d] // group.get(d, 1)) for d in parts.kept)
    steps = math.prod(-(-sizes[d] // step.get(d, 1)) for d in parts.k)
    wanted = min(machine.cores // max(1, groups), steps // _STEPS_OF_SLICE)
    # Of most parts, those that pad the reduction least.
    best = (1.0, "", 1)
    for dim in parts.k:
        whole = -(-sizes[dim] // step.get(dim, 1))
        for count in range(2, min(wanted, whole) + 1):
            gain = count * whole / (-(-whole // count) * count)
            best = max(best, (gain, dim, count))
    return ((best[1], best[2]),) if best[1] else ()
