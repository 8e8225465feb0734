"""How long a contraction in workgroups takes, predicted from its config: arithmetic, no schedule.

What the model knows. A core computes the steps of the workgroups that it holds at a time, as many
as its registers, its shared memory and its work-items allow. A step takes products, reads of shared
memory, bytes from L2 and from memory, and, for one workgroup, at least the time until what it needs
is there. These overlap, so that the slowest decides, but not perfectly (`_soft_maximum`).
Workgroups come in waves of as many as all cores hold; the last wave may be smaller. What a wave
reads again, L2 has, if it fits there: in bands of rows that is less than row by row. Where a
subgroup has tiles copied for the others, persistent workgroups copy ahead across tiles, too; and
where the unit stores them, they multiply meanwhile. What the workgroups of a cluster all read comes
from L2 once.

Peak figures are the machine's (`machines.rates`); what is attained of them, and what waits cost,
are the constants below. These are estimates from what is published of matrix products, until there
are measurements of our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.errors import UnsupportedError
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.machines.rates import Rates
from tilewright.recipes.config import COPY_UNIT, WorkgroupConfig
from tilewright.recipes.dots import group_of, neighbours
from tilewright.recipes.phases import leaves_out_taps
from tilewright.recipes.registers import MOST_REGISTERS, registers_of
from tilewright.recipes.work import Operand, Work
from tilewright.recipes.workgroup_checks import lanes_of, work_items

# What kernels attain of the peak of each: products, shared memory, L2, memory.
_PRODUCTS, _SHARED, _NEAR, _MEMORY = 0.92, 0.95, 0.8, 0.9
# How well limits overlap: the exponent of their norm. A larger one is nearer to the maximum.
_OVERLAP = 4.0
# Part of L2 in which data waits to be read again.
_KEPT = 0.5
# Cycles: of a barrier with what comes around it in each step, and from the load of one product's
# fragments to its result.
_BARRIER, _TURN = 60, 60
# Instructions for each access of a copy to shared memory: where it is, and whether.
_COPY = 8
# Bytes that one work-item loads from shared memory at once.
_WIDEST = 16

LIMITS = ("compute", "shared", "L2", "DRAM", "latency")


@dataclass(frozen=True)
class Prediction:
    """What a config takes: ``seconds`` in all, and how many each of `LIMITS` would take by itself;
    ``peak`` is the part of the device's peak that the products attain. ``waves`` of workgroups, of
    which a core holds ``resident`` at a time; ``shared`` bytes of a workgroup, and ``registers`` of
    a work-item."""

    seconds: float
    limits: dict[str, float]
    peak: float
    waves: float
    resident: int
    shared: int
    registers: int

    @property
    def limit(self) -> str:
        """What takes the longest."""
        return max(self.limits, key=lambda name: self.limits[name])

    @property
    def details(self) -> dict[str, str]:
        """Cells of a table: the part of the device's peak, waves of workgroups and how many of them
        a core holds at a time, shared memory of a workgroup, registers of a work-item."""
        return {
            "% of peak": f"{self.peak * 100:.1f}",
            "waves": f"{self.waves:.2f}",
            "held": str(self.resident),
            "KiB": f"{self.shared / 1024:.1f}",
            "registers": str(self.registers),
        }


@dataclass(frozen=True)
class _Group:
    """One workgroup: its work-items that multiply, those beside them that only have tiles copied,
    the registers of each, its bytes of shared memory, its steps on an average and at ``most``, the
    bytes that it stores and those of the segments that they touch, and how many such there are.
    What it takes per step: products, bytes to shared memory and from there (``moved``), bytes from
    global memory (``loaded``; of what a cluster reads in common, each ``fetched`` but a part from
    L2) and the accesses for them (``copies``), and products of matrices one after another
    (``turns``)."""

    items: int
    beside: int
    registers: int
    shared: int
    steps: int
    most: int
    products: int
    moved: float
    loaded: int
    fetched: float
    copies: float
    turns: int
    stored: int
    segments: float
    count: int


def predict(work: Work, machine: Machine, config: WorkgroupConfig) -> Prediction | None:
    """What ``config`` takes on ``machine``; None where a core has no room for such a workgroup.
    Raises `UnsupportedError` for a machine without rates."""
    rates = machine.rates
    if rates is None:
        raise UnsupportedError(
            f"no model predicts times on {machine.name}",
            why="its peak figures are not known",
            cure="choose a target whose machine has rates, such as nvidia:sm_80",
        )
    group = _group(work, machine, config)
    held = _resident(group, machine)
    if held == 0:
        return None
    concurrent = held * machine.cores
    if config.persistent:
        concurrent = min(concurrent, config.persistent)
    if group.count <= concurrent:
        # All run at once: the one with the most to do ends last.
        group = replace(group, steps=group.most)
    far = _memory_bytes(work, machine, config, min(group.count, concurrent))
    share = far / (group.count * group.steps)
    spent = dict.fromkeys(LIMITS, 0.0)
    cycles = 0.0
    for waves, groups, begun in _waves(group.count, concurrent, config):
        if waves and groups:
            wave = _wave(group, machine, config, groups, share, begun)
            cycles += waves * wave.pop("all")
            for name, taken in wave.items():
                spent[name] += waves * taken
    seconds = {name: taken / rates.clock for name, taken in spent.items()}
    after = _added_up(work, machine, config)
    seconds["latency"] += rates.launch + after
    whole = cycles / rates.clock + rates.launch + after
    best = work.products / (work.peak * machine.cores * rates.clock)
    filled = group.count / concurrent
    return Prediction(whole, seconds, best / whole, filled, held, group.shared, group.registers)


def held_at_once(work: Work, machine: Machine, config: WorkgroupConfig) -> int:
    """How many workgroups all cores hold at a time, where there are more; 0 where all run at once,
    or a core has no room for one."""
    group = _group(work, machine, config)
    held = _resident(group, machine) * machine.cores
    return held if group.count > held else 0


def _waves(
    count: int, concurrent: int, config: WorkgroupConfig
) -> tuple[tuple[int, int, bool], ...]:
    """How many waves there are of how many workgroups, and whether these are persistent ones whose
    copies for a further tile have begun: each takes as many tiles as there would be waves."""
    whole, rest = divmod(count, concurrent)
    begun = bool(config.persistent) and config.fill == COPY_UNIT
    first = min(whole, 1)
    return (
        (first, concurrent, False),
        (whole - first, concurrent, begun),
        (1, rest, begun and whole > 0),
    )


def _wave(
    group: _Group,
    machine: Machine,
    config: WorkgroupConfig,
    groups: int,
    far: float,
    begun: bool,
) -> dict[str, float]:
    """Cycles that so many workgroups take that run at the same time, in ``all`` and by limit.
    ``far`` bytes of a step come from memory; ``begun``: the copies of the first have begun."""
    rates = _rates(machine)
    held = -(-groups // machine.cores)
    busy = min(1.0, held * group.items / _subgroup(machine) / rates.parts)
    alone = min(1.0, group.items / _subgroup(machine) / rates.parts)
    products = _rate(machine, config) * _PRODUCTS
    memory = rates.memory / rates.clock * _MEMORY
    compute = held * group.products / (products * busy)
    shared = held * group.moved / (rates.shared * _SHARED)
    port = group.loaded / rates.port
    near = max(groups * group.fetched / (rates.near * _NEAR), held * port)
    dram = groups * (far + group.stored / group.steps) / memory
    # One workgroup goes through its steps one after another.
    idle = group.turns * _TURN + _BARRIER
    own = max(group.products / (products * alone) + _BARRIER, idle)
    first = rates.latency + port
    wait = first / max(1, config.stages - 1)
    chain = own + wait if config.stages == 1 else max(own, wait)
    copies = held * group.copies * _COPY / (rates.parts * _subgroup(machine))
    step = _soft_maximum(compute, copies, shared, near, dram, chain)
    # Nothing of one workgroup overlaps with its first copies and its last stores, but others do.
    ends = group.stored / rates.port
    if begun and config.epilogue_tile:
        # The unit stores the last piece while the next tile is multiplied: others are waited for.
        pieces = math.prod(config.item[d] // size for d, size in config.epilogue_tile.items())
        ends = ends * (pieces - 1) / pieces + group.stored / (rates.shared * _SHARED)
    elif begun:
        # Nobody else multiplies meanwhile.
        ends = group.segments / rates.port
    if not begun:
        # Further tiles of one wait for neither, but whoever stores does not multiply meanwhile: how
        # long that takes is an estimate.
        ends += first + rates.latency
        if config.cluster:
            # They meet at the beginning and at the end.
            ends += 2 * rates.latency
    return {
        "all": group.steps * step + ends / held,
        "compute": group.steps * max(compute, copies),
        "shared": group.steps * shared,
        "L2": group.steps * near,
        "DRAM": group.steps * dram,
        "latency": group.steps * max(idle, wait) + ends / held,
    }


def _soft_maximum(*values: float) -> float:
    most = max(values)
    power = math.fsum((v / most) ** _OVERLAP for v in values)
    return float(most * power ** (1 / _OVERLAP))


def _rates(machine: Machine) -> Rates:
    assert machine.rates is not None
    return machine.rates


def _subgroup(machine: Machine) -> int:
    assert machine.hierarchy is not None
    return machine.hierarchy.subgroup


def _instruction(machine: Machine, config: WorkgroupConfig) -> Instruction | None:
    return machine.instruction(config.instruction) if config.instruction else None


def _rate(machine: Machine, config: WorkgroupConfig) -> int:
    """Products per core and cycle of the config's instruction."""
    instruction = _instruction(machine, config)
    if instruction is None:
        return 1
    lanes = instruction.lanes
    alone = lanes == 1 and neighbours(instruction) == 1
    dtype = instruction.out.dtype if alone else instruction.operands[0].dtype
    return _rates(machine).multiply_adds(dtype, lanes)


def _group(work: Work, machine: Machine, config: WorkgroupConfig) -> _Group:
    lanes = lanes_of(machine, config)
    slices, own = dict(config.slices), dict(config.item_slices)
    tile = {d: config.group.get(d, 1) for d in work.parts.kept}
    tile |= {d: config.step.get(d, 1) for d in work.parts.k}
    steps = math.prod(
        -(-work.sizes[d] // (tile[d] * slices.get(d, 1) * own.get(d, 1))) for d in work.parts.k
    )
    count = math.prod(slices.values())
    for d in work.parts.kept:
        whole = config.cluster.get(d, 1)
        count *= -(-work.sizes[d] // (tile[d] * whole)) * whole
    results = math.prod(tile[d] for d in work.parts.kept)
    depth = math.prod(tile[d] for d in work.parts.k)
    items = work_items(config) * lanes
    bytes_ = [math.prod(tile[d] for d in o.dims) * o.bytes for o in work.operands]
    loaded = sum(bytes_) * math.prod(own.values())
    fetched = sum(
        size / math.prod(count for d, count in config.cluster.items() if d not in o.dims)
        for o, size in zip(work.operands, bytes_, strict=True)
    )
    stored = results * stored_bytes(work, config)
    instruction = _instruction(machine, config)
    along = instruction.sizes.get("k", 1) if instruction is not None else 1
    return _Group(
        items=items,
        beside=lanes if config.fill == COPY_UNIT else 0,
        registers=registers_of(machine, config, work.total, loaded / items, read=work.read),
        shared=config.stages * _shared(work, machine, config, tile) + _through(work, config),
        steps=max(1, math.ceil(steps * work.taken) if leaves_out_taps(config) else steps),
        most=max(1, steps),
        products=results * depth * math.prod(own.values()),
        moved=loaded + _read(work, machine, config) * depth * items,
        loaded=loaded,
        fetched=fetched * math.prod(own.values()),
        copies=_copies(work, config, tile),
        turns=depth // along if lanes > 1 else 0,
        stored=stored,
        segments=stored / _coalesced(work, machine, config),
        count=count,
    )


def stored_bytes(work: Work, config: WorkgroupConfig) -> int:
    """Bytes of an element of what workgroups store: of the result, or of parts of it."""
    return work.total if config.slices else work.result


def _coalesced(work: Work, machine: Machine, config: WorkgroupConfig) -> float:
    """The part of the segments of memory that a store needs, where lanes store what they hold of
    matrices."""
    instruction, hierarchy = _instruction(machine, config), machine.hierarchy
    fragment = instruction.out.fragment if instruction is not None else None
    if fragment is None or hierarchy is None or config.epilogue_tile:
        return 1.0
    return min(1.0, fragment.run("n") * stored_bytes(work, config) / hierarchy.segment)


def _through(work: Work, config: WorkgroupConfig) -> int:
    """Bytes of shared memory for tiles of the result that a unit stores from there, beside those
    that it copies; others come when the operands' tiles are done with."""
    if config.fill != COPY_UNIT or not config.epilogue_tile:
        return 0
    piece = {**config.item, **config.epilogue_tile}
    return work_items(config) * math.prod(piece.values()) * stored_bytes(work, config)


def _copies(work: Work, config: WorkgroupConfig, tile: dict[str, int]) -> float:
    """Accesses by which work-items copy the tiles of a step: none of whole ones."""
    if config.fill == COPY_UNIT:
        return 0.0
    return sum(
        math.prod(tile[d] for d in o.dims) / (config.vector if o.runs else 1) for o in work.operands
    )


def _width(work: Work, machine: Machine, config: WorkgroupConfig, operand: Operand) -> int:
    """Bytes of an element of A or B where it is shared: what matrices and dot products take is as
    it comes, all else converted."""
    kept = lanes_of(machine, config) > 1 or group_of(machine, config) > 1
    return operand.bytes if kept else work.total


def _shared(work: Work, machine: Machine, config: WorkgroupConfig, tile: dict[str, int]) -> int:
    """Bytes of shared tiles of A and B, at most: their rows may lie along either dim."""
    found = 0
    for operand in work.operands:
        depth = math.prod(tile[d] for d in work.parts.k)
        kept = math.prod(tile[d] for d in operand.dims) // depth
        elements = kept * depth + config.padding.get(operand.name, 0) * max(kept, depth)
        found += elements * _width(work, machine, config, operand)
    return found


def _read(work: Work, machine: Machine, config: WorkgroupConfig) -> float:
    """Bytes that a work-item reads from shared memory for each element of the reduction; what
    lanes of a subgroup read together counts once."""
    lanes = lanes_of(machine, config)
    rows = {config.lanes: 1, **config.item}
    if lanes > 1:
        width = {d: o.bytes for o in work.operands for d in o.dims}
        return sum(size * width[d] for d, size in rows.items()) / lanes
    group = group_of(machine, config)
    widths = {d: _width(work, machine, config, o) for o in work.operands for d in o.dims}
    rates, left, moved = _rates(machine), _subgroup(machine), 0.0
    across = [config.lanes, *(d for d in rows if d != config.lanes)]
    for dim in across:
        beside = min(left, config.group.get(dim, 1) // rows[dim])
        left //= max(1, beside)
        own = rows[dim] * widths.get(dim, work.total) * group
        moved += max(beside * own, rates.shared * -(-own // _WIDEST))
    return moved / _subgroup(machine) / group


def _resident(group: _Group, machine: Machine) -> int:
    """Workgroups that a core holds at a time; 0 where even one is too large."""
    rates, hierarchy = _rates(machine), machine.hierarchy
    assert hierarchy is not None
    items = group.items + group.beside
    if items > hierarchy.workgroup or group.shared > hierarchy.shared:
        return 0
    if group.registers > MOST_REGISTERS + 1:
        return 0
    return min(
        rates.groups,
        rates.items // items,
        rates.registers // (group.registers * items),
        rates.held // (group.shared + rates.reserved) if group.shared else rates.groups,
    )


def _memory_bytes(work: Work, machine: Machine, config: WorkgroupConfig, concurrent: int) -> float:
    """Bytes of A and B that come from memory, of which L2 keeps what a wave reads again."""
    counts = {d: -(-work.sizes[d] // config.group.get(d, 1)) for d in config.order}
    grid = [d for d in config.order if counts[d] > 1][-2:]
    rows, columns = [1, 1, *(counts[d] for d in grid)][-2:]
    band = min(rows, config.raster)
    across = min(columns, -(-concurrent // band))
    down = min(rows, max(band, -(-concurrent // columns)))
    slices = math.prod(parts for _, parts in config.slices)
    count = math.prod(counts.values())
    waves = max(1.0, count / (down * across))
    room = _KEPT * machine.caches[-1]
    # Tiles of a wave along each dim: of those outside of the last two, one.
    here = dict(zip(grid, (down, across)[2 - len(grid) :], strict=True))
    wave: list[float] = []
    least: list[float] = []
    for operand in work.operands:
        read = math.prod(work.sizes[d] for d in operand.dims) * operand.bytes
        least.append(float(min(operand.tensor, read)))
        own = [here.get(d, 1) / counts[d] for d in operand.dims if d in counts]
        wave.append(least[-1] * math.prod(own))
    found = 0.0
    for operand, once, whole in zip(work.operands, wave, least, strict=True):
        # What the next wave reads, too, is still there if both fit.
        stays = sum(wave) / slices <= room and (not grid or grid[-1] not in operand.dims)
        found += whole if stays or whole <= room else max(whole, once * waves)
    return found


def _added_up(work: Work, machine: Machine, config: WorkgroupConfig) -> float:
    """Seconds of what comes after: parts are read again, in a launch of its own."""
    slices = math.prod(parts for _, parts in config.slices)
    if slices == 1:
        return 0.0
    rates = _rates(machine)
    parts, results = slices * work.results * work.total, work.results * work.result
    near = rates.near * rates.clock * _NEAR
    speed = near if parts <= _KEPT * machine.caches[-1] else rates.memory * _MEMORY
    return rates.launch + parts / speed + results / (rates.memory * _MEMORY)
