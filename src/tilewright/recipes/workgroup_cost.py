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

Each of the config's `parts` counts what it is about. Peak figures are the machine's
(`machines.rates`), `parts.work` has what is attained of them; the constants below say what waits
cost. All were fitted to measurements of an H100.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.ir.stmt import Compute, Kernel, View
from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.parts.staging import loaded
from tilewright.recipes.parts.work import MEMORY, NEAR, PRODUCTS, SHARED, Operand, Work
from tilewright.recipes.reshaping import PHASE, leaves_out_taps, taken
from tilewright.recipes.roles import extents, find_compute, roles
from tilewright.recipes.warpgroups import MOST_REGISTERS, registers_of
from tilewright.schedule.queries.place import Place
from tilewright.schedule.queries.runs import is_aligned, run_start, uniform


def work_of(kernel: Kernel, machine: Machine, prepack: str | None = None) -> Work:
    """The work of a contraction, whose dims were combined. The argument ``prepack`` lies as its
    copies want it."""
    main, out = find_compute(kernel, MAIN), find_compute(kernel, RESULT)
    parts = roles(main)
    # All phases read the same of A.
    a, b = (
        Operand(
            o.var.name,
            o.var.type.bytes,
            o.view.buffer.bytes,
            tuple(d for d in dims + parts.k + parts.batch if d not in same),
            _run(main, o.view, o.view.buffer.name == prepack),
        )
        for o, dims, same in zip(main.operands[:2], (parts.m, parts.n), ((PHASE,), ()), strict=True)
    )
    total = main.out.buffer.dtype
    peak = machine.peak_rates.peak(main.operands[0].var.type, total)
    result = out.out.buffer.dtype.bytes
    read = len(out.operands) - 1
    return Work(extents(main), parts, (a, b), total.bytes, result, peak, read, taken(main))


def _run(main: Compute, view: View, packed: bool) -> int:
    """The most elements that one access of a copy reads: neighbours in memory, aligned, all of them
    inside of the tensor or none."""
    here = Place()
    facts = here.facts_with(main.dims)
    wide = max(1, _VECTOR // view.buffer.dtype.bytes)
    while wide > 1 and not packed:
        for dim in main.dims:
            start = run_start(view, dim.var, wide, facts, across=True)
            if start is None or uniform(main, view, dim.var, wide, here, across=True) is None:
                continue
            if is_aligned(start, wide, facts):
                return wide
        wide //= 2
    return wide


# Bytes that one access moves, at most.
_VECTOR = 16
# How well limits overlap: the exponent of their norm. A larger one is nearer to the maximum.
_OVERLAP = 8.0
# Steps that a tile is in use which a unit copied: its slot is free when the product after it has
# begun.
_IN_USE = 2
# Cycles: of a barrier with what comes around it in each step, and from the load of one product's
# fragments to its result.
_BARRIER, _TURN = 70, 80

LIMITS = ("compute", "copies", "shared", "L2", "DRAM", "latency")


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
    bytes that it stores, and the bytes of whole ``segments`` that take as long, and how many such
    there are.
    What it takes per step: products, bytes to shared memory and from there (``moved``), bytes from
    global memory (``loaded``; of what a cluster reads in common, each ``fetched`` but a part from
    L2) and the instructions for them (``copies``, which are ``waited`` for or not), and products of
    matrices one after another (``turns``)."""

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
    waited: bool
    turns: int
    stored: int
    segments: float
    count: int


def predict(work: Work, machine: Machine, config: WorkgroupConfig) -> Prediction | None:
    """What ``config`` takes on ``machine``; None where a core has no room for such a workgroup.
    Raises `UnsupportedError` for a machine without rates."""
    rates = machine.peak_rates
    group = _group(work, machine, config)
    held = _resident(group, machine)
    if held == 0:
        return None
    concurrent = held * machine.cores
    if config.order.persistent:
        concurrent = min(concurrent, config.order.persistent)
    if group.count <= concurrent:
        # All run at once: the one with the most to do ends last.
        group = replace(group, steps=group.most)
    far = config.order.far(
        work,
        machine,
        config.tile.group,
        config.reduction.parts,
        min(group.count, concurrent),
    )
    share = far / (group.count * group.steps)
    spent = dict.fromkeys(LIMITS, 0.0)
    cycles = 0.0
    for waves, groups, begun in config.order.waves(group.count, concurrent, config.staging.by_unit):
        if waves and groups:
            wave = _wave(group, machine, config, groups, share, begun)
            cycles += waves * wave.pop("all")
            for name, taken in wave.items():
                spent[name] += waves * taken
    seconds = {name: taken / rates.clock for name, taken in spent.items()}
    after = config.reduction.added_up(work, machine)
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
    rates, staging = machine.peak_rates, config.staging
    held = -(-groups // machine.cores)
    lanes = rates.parts * machine.hierarchy.subgroup
    busy, alone = (min(1.0, items / lanes) for items in (held * group.items, group.items))
    products = config.product.rate(machine) * PRODUCTS
    memory = rates.memory / rates.clock * MEMORY
    compute = held * group.products / (products * busy)
    shared = held * group.moved / (rates.shared * SHARED)
    port = group.loaded / rates.port
    near = max(groups * group.fetched / (rates.near * NEAR), held * port)
    dram = groups * (far + group.stored / group.steps) / memory
    # One workgroup goes through its steps one after another.
    idle = group.turns * _TURN + _BARRIER
    work = max(group.products / (products * alone) + _BARRIER, idle)
    first = rates.latency + port
    if group.waited:
        wait, chain = 0.0, work + group.copies / (lanes * alone)
    else:
        wait = _wait(first, work, config)
        chain = work + wait if staging.stages == 1 else max(work, wait)
    copies = held * group.copies / lanes
    # Work-items that multiply for themselves do not copy meanwhile.
    issued = compute + copies if config.product.together(machine) == 1 else copies
    step = _soft_maximum(compute, issued, shared, near, dram, chain)
    # Nothing of one workgroup overlaps with its first copies and its last stores, but others do.
    ends = config.storing.after(rates, config.tile.item, group.stored, group.segments, begun)
    if not begun:
        # Further tiles of one wait for neither, but whoever stores does not multiply meanwhile: how
        # long that takes is an estimate.
        ends += first + rates.latency
        if config.order.cluster:
            # They meet at the beginning and at the end.
            ends += 2 * rates.latency
    return {
        "all": group.steps * step + ends / held,
        "compute": group.steps * compute,
        "copies": group.steps * copies,
        "shared": group.steps * shared,
        "L2": group.steps * near,
        "DRAM": group.steps * dram,
        "latency": group.steps * max(idle, wait) + ends / held,
    }


def _wait(first: float, work: float, config: WorkgroupConfig) -> float:
    """Cycles of a step until its tiles are there, of which one step computes ``work``, and copies
    take ``first``."""
    stages = config.staging.stages
    if config.staging.by_unit and stages > 1:
        return (_IN_USE * work + first) / stages
    return first / max(1, stages - 1)


def _soft_maximum(*values: float) -> float:
    most = max(values)
    power = math.fsum((v / most) ** _OVERLAP for v in values)
    return float(most * power ** (1 / _OVERLAP))


def _group(work: Work, machine: Machine, config: WorkgroupConfig) -> _Group:
    product, tile, reduction, staging = (
        config.product,
        config.tile,
        config.reduction,
        config.staging,
    )
    lanes, in_items = product.together(machine), reduction.item_parts
    sizes = {d: tile.group.get(d, 1) for d in work.parts.kept}
    sizes |= {d: reduction.step.get(d, 1) for d in work.parts.k}
    steps = reduction.steps(work.sizes, work.parts.k)
    depth, results, items = reduction.depth(work), tile.results(work), config.items * lanes
    bytes_, width = loaded(work, sizes), stored_bytes(work, config)
    moved = sum(bytes_) * in_items
    through = config.storing.shared(tile.item, config.items, width) if staging.by_unit else 0
    return _Group(
        items=items,
        beside=lanes if staging.by_unit else 0,
        registers=registers_of(machine, config, work.total, moved / items, read=work.read),
        shared=staging.shared(work, machine, product, sizes) + through,
        steps=max(1, math.ceil(steps * work.taken) if leaves_out_taps(config) else steps),
        most=max(1, steps),
        products=results * depth * in_items,
        moved=moved + tile.read(work, machine, product) * depth * items,
        loaded=moved,
        fetched=config.order.fetched(work, bytes_) * in_items,
        copies=staging.copies(work, sizes, items),
        waited=staging.waited_for(work),
        turns=product.turns(machine, depth),
        stored=results * width,
        segments=results * width * config.storing.scattered(machine, product, width),
        count=reduction.parts * config.order.groups(work, tile.group),
    )


def stored_bytes(work: Work, config: WorkgroupConfig) -> int:
    """Bytes of an element of what workgroups store: of the result, or of parts of it."""
    return work.total if config.reduction.slices else work.result


def _resident(group: _Group, machine: Machine) -> int:
    """Workgroups that a core holds at a time; 0 where even one is too large."""
    rates, hierarchy = machine.peak_rates, machine.hierarchy
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
