"""Registers of work-items: how many a config needs, and how subgroups of different code share them.

A workgroup starts with the same number for each of its lanes. A subgroup that only has tiles
copied gives most of its own away, and those that multiply take them, for their sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig

# Registers of a work-item that addresses, counters and masks take, and the most that it has.
_ADDRESSES, MOST_REGISTERS = 40, 255
# Registers are given out in such numbers.
_REGISTERS = 8
# What a lane keeps at least of those that only have tiles copied: the least that there is, which
# was enough for places, phases and corners in all that was assembled.
_COPYING = 24
# What a lane that multiplies needs besides, for each of two tensors that the epilogue reads (of
# more, some are read later). An estimate: 192 sums and a bias did not fit 240, 160 did; 160 sums, a
# bias and a residual did not, 128 did.
_READ, _TOGETHER = 24, 2


@dataclass(frozen=True)
class Division:
    """Registers of a lane: when the workgroup starts (``launch``), and then of the subgroup that
    copies and of the others."""

    launch: int
    copying: int
    multiplying: int


def division(machine: Machine, config: WorkgroupConfig, total: int) -> Division | None:
    """How the subgroups of a workgroup divide registers; None where they keep what they start with:
    where none runs other code, or where a core has room for a second such workgroup. ``total``:
    bytes of an element of the sum."""
    if not config.staging.by_unit or machine.rates is None:
        return None
    lanes, multiplying = config.product.together(machine), config.items
    subgroups, held = multiplying + 1, machine.rates.registers
    if 2 * needed(machine, config, total, 0.0) * subgroups * lanes <= held:
        return None
    # Of what the core has: then one workgroup is all that it holds, and all are its own.
    launch = _whole(min(MOST_REGISTERS, held // (subgroups * lanes)))
    most = _whole(min(MOST_REGISTERS, (launch * subgroups - _COPYING) // multiplying))
    if most <= launch:
        return None
    return Division(launch, launch * subgroups - most * multiplying, most)


def registers_of(
    machine: Machine, config: WorkgroupConfig, total: int, copied: float, *, read: int
) -> int:
    """Registers of a work-item when its workgroup starts; where those that multiply need more than
    they can take, so many. ``copied``: bytes that it copies in a step; ``read``: how
    many tensors the epilogue reads."""
    need = needed(machine, config, total, copied)
    divided = division(machine, config, total)
    if divided is None:
        return need
    need += _READ * min(read, _TOGETHER)
    return divided.launch if need <= divided.multiplying else need


def needed(machine: Machine, config: WorkgroupConfig, total: int, copied: float) -> int:
    """Registers of a work-item: what it accumulates, what it multiplies, and what it copies."""
    product, item = config.product, config.tile.item
    instruction, lanes = product.found(machine), product.together(machine)
    words = math.prod(item.values()) * total / lanes
    if instruction is None or lanes == 1:
        words += sum(item.values()) * total
    else:
        ahead = config.staging.loads_ahead(machine, product, config.reduction.step)
        for role in instruction.operands:
            # Those that an instruction reads from shared memory take none.
            if role.fragment is not None:
                own = next(d for d in role.fragment.dims if d != "k")
                size = item.get(product.lanes, 1) if own == "n" else _rows(config)
                words += (1 + ahead) * size * instruction.sizes["k"] * role.dtype.bytes / lanes
    if config.staging.fill == "registers":
        words += copied
    return _whole(_ADDRESSES + math.ceil(words / 4) + _REGISTERS - 1)


def _rows(config: WorkgroupConfig) -> int:
    return math.prod(size for d, size in config.tile.item.items() if d != config.product.lanes)


def _whole(count: int) -> int:
    """The most registers that are given out, of so many."""
    return count // _REGISTERS * _REGISTERS
