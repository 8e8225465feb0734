"""Configs of a contraction in workgroups, the one of the least predicted time first.

Shapes of tiles come from `matrix_model` or `workgroup_model`. All of them are predicted with slices
of the reduction and without; then, of the best, other steps, stages and orders of the tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.parts.work import Work
from tilewright.recipes.recipe import Candidate
from tilewright.recipes.roles import Roles
from tilewright.recipes.workgroup_cost import (
    Prediction,
    held_at_once,
    predict,
    stored_bytes,
)

# Tiles that are shared at a time, where copies run by themselves: one is computed with.
_STAGES = (4, 3, 2, 5, 6)
# Registers of a work-item that the next tiles may take.
HELD = 28
# Steps of the reduction that a slice of it has at least.
_STEPS_OF_SLICE = 8
# Shapes of which more is tried.
_BEST = 8
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
        candidates: dict[WorkgroupConfig, WorkgroupCandidate] = {}
        for config in configs:
            prediction = predict(work, machine, config)
            # Whole tiles are those of steps.
            stepped = not config.staging.by_unit or _steps_of(work, config) > 1
            if prediction is not None and stepped:
                candidates[config] = Candidate(config, prediction)
        return candidates

    first = predicted(
        _ahead(work, workgroup_config, _STAGES[0], alone, machine)
        for shape in shapes
        for sliced in _in_slices(work, machine, shape)
        for workgroup_config in (sliced, *_clustered(work, sliced, machine))
    )
    in_order = _sorted(first)
    best = in_order[:_BEST]
    if not any(map(_whole, best)):
        # Persistent workgroups gain more than others: a variant of these may be the best.
        best += list(filter(_whole, in_order))[:1]
    more = predicted(
        variant
        for candidate in best
        for variant in _variants(work, candidate.config, alone, machine)
        if variant not in first
    )
    return _sorted({**first, **more})


def _whole(candidate: WorkgroupCandidate) -> bool:
    """Whether a unit copies whole tiles."""
    return candidate.config.staging.by_unit


def _sorted(candidates: Mapping[WorkgroupConfig, WorkgroupCandidate]) -> list[WorkgroupCandidate]:
    return sorted(candidates.values(), key=lambda candidate: candidate.prediction.seconds)


def _in_slices(work: Work, machine: Machine, shape: WorkgroupConfig) -> Iterator[WorkgroupConfig]:
    yield shape
    slices = slices_of(work.sizes, work.parts, shape, machine)
    if slices:
        yield replace(shape, reduction=replace(shape.reduction, slices=slices))


def _variants(
    work: Work, config: WorkgroupConfig, alone: bool, machine: Machine
) -> Iterator[WorkgroupConfig]:
    tiles = math.prod(-(-work.sizes[d] // config.tile.group.get(d, 1)) for d in work.parts.kept)
    # The order matters where not all run at once.
    rasters = _RASTERS if tiles > machine.cores else _RASTERS[:1]
    matrices = config.product.together(machine) > 1
    for step in _steps(work, config, alone, matrices):
        for stages in _STAGES:
            stepped = replace(config, reduction=replace(config.reduction, step=step))
            changed = _ahead(work, stepped, stages, alone, machine)
            for raster in rasters:
                workgroup_config = replace(changed, order=replace(changed.order, raster=raster))
                yield workgroup_config
                if workgroup_config.staging.by_unit:
                    yield from _stored(work, workgroup_config, machine)
                # Copies run ahead across tiles: these may have fewer steps than there are stages.
                further = replace(
                    workgroup_config, staging=replace(workgroup_config.staging, stages=stages)
                )
                yield from _persistent(work, further, machine)


def _persistent(work: Work, config: WorkgroupConfig, machine: Machine) -> Iterator[WorkgroupConfig]:
    """``config`` with as many workgroups as the cores hold, where a subgroup of theirs copies ahead
    across tiles (which have as many steps each) and there are more of these; stored by
    work-items, or by the unit."""
    if not config.staging.by_unit or work.taken != 1:
        return
    for workgroup_config in (config, *_stored(work, config, machine)):
        held = held_at_once(work, machine, workgroup_config)
        if held:
            yield replace(workgroup_config, order=replace(workgroup_config.order, persistent=held))


def _stored(work: Work, config: WorkgroupConfig, machine: Machine) -> Iterator[WorkgroupConfig]:
    """``config`` with results that the unit stores, too: whole tiles of subgroups, or what one
    product has of rows, which takes less memory, and waits for the piece before. Not where there
    are but two slots, of which one is still read when the next product starts: what memory there
    is, is better used for a third."""
    product, item = config.product, config.tile.item
    rows = next((dim for dim in item if dim != product.lanes), "")
    # Rows of single bytes are short ones.
    if rows and config.staging.stages > 2 and stored_bytes(work, config) > 1:
        whole, least = item[rows], machine.instruction(product.instruction).sizes["m"]
        for piece in dict.fromkeys((whole, least)):
            yield replace(config, storing=replace(config.storing, tile={rows: piece}))


def _clustered(work: Work, config: WorkgroupConfig, machine: Machine) -> Iterator[WorkgroupConfig]:
    """``config`` in clusters, where a unit copies tiles that neighbours along a dim all read."""
    if not config.staging.by_unit or machine.hierarchy.cluster < _CLUSTER:
        return
    for dim, size in config.tile.group.items():
        common = any(dim not in operand.dims for operand in work.operands)
        if common and work.sizes[dim] > size:
            yield replace(config, order=replace(config.order, cluster={dim: _CLUSTER}))


def _steps(
    work: Work, config: WorkgroupConfig, alone: bool, matrices: bool
) -> Iterator[Mapping[str, int]]:
    """The steps of ``config``, and longer ones, which wait for one another less often; or, where
    the next tiles are held in registers, shorter ones, for which there are enough."""
    steps = config.reduction.step
    yield steps
    alone = alone or config.staging.by_unit
    least = min(steps.values(), default=0)
    if alone and all(2 * size <= work.sizes[d] for d, size in steps.items()):
        yield {d: 2 * size for d, size in steps.items()}
    # Copies are of whole vectors along what a dot product adds up.
    whole = steps.get(config.product.k, 0) % (2 * config.staging.vector) == 0
    if not alone and not matrices and least >= _HALVED and whole:
        yield {d: size // 2 for d, size in steps.items()}


def _ahead(
    work: Work, config: WorkgroupConfig, stages: int, alone: bool, machine: Machine
) -> WorkgroupConfig:
    """``config`` with so many stages, or as many as it has steps; without copies that run by
    themselves, two, if the registers have room for the next tiles."""
    staging, product = config.staging, config.product
    stages = min(stages, _steps_of(work, config))
    if staging.by_unit:
        return replace(config, staging=replace(staging, stages=stages))
    if stages > 1 and alone:
        return replace(config, staging=replace(staging, stages=stages, fill="async"))
    tile = {**config.tile.group, **config.reduction.step}
    copied = sum(math.prod(tile.get(d, 1) for d in o.dims) for o in work.operands)
    share = copied / (config.items * product.together(machine))
    # Neighbours that a dot product takes are in one register.
    held = share / product.neighbours(machine)
    if stages > 1 and held + 2 * share / staging.vector <= HELD:
        return replace(config, staging=replace(staging, stages=2, fill="registers"))
    return replace(config, staging=replace(staging, stages=1, fill="copy"))


def _steps_of(work: Work, config: WorkgroupConfig) -> int:
    """The steps that one workgroup goes through."""
    return config.reduction.steps(work.sizes, work.parts.k)


def slices_of(
    sizes: Mapping[str, int],
    parts: Roles,
    config: WorkgroupConfig,
    machine: Machine,
) -> tuple[tuple[str, int], ...]:
    """Parts of the reduction, where tiles of the result alone would leave cores idle.

    Each part still has a few steps, or what is added up afterwards costs more than it gains.
    """
    step = config.reduction.step
    groups = math.prod(-(-sizes[d] // config.tile.group.get(d, 1)) for d in parts.kept)
    steps = math.prod(-(-sizes[d] // step.get(d, 1)) for d in parts.k)
    wanted = min(machine.cores // max(1, groups), steps // _STEPS_OF_SLICE)
    # The shortest parts, as few as there are of these: none is empty.
    best = (1.0, "", -1)
    for dim in parts.k:
        whole = -(-sizes[dim] // step.get(dim, 1))
        for count in range(2, min(wanted, whole) + 1):
            best = max(best, (whole / -(-whole // count), dim, -count))
    return ((best[1], -best[2]),) if best[1] else ()
