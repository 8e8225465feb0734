"""NVIDIA's unit that copies tiles (TMA), from sm_90 on.

Source: NVIDIA, PTX ISA, "Data movement and conversion instructions: cp.async.bulk.tensor".
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.facts.scope import Facts
from tilewright.ir.stmt import Compute
from tilewright.machines.nvidia.boxes import MOST_BOX, box_of
from tilewright.machines.nvidia.im2col import tile_of
from tilewright.machines.nvidia.warpgroups import ROW_BYTES, swizzle_of
from tilewright.machines.tile_unit import TileCopy, TileUnit

# What the machine has to have.
COPIES = "tma"
# A tile begins at a multiple of so many bytes of shared memory.
_ALIGNMENT = 128


def _no_load(compute: Compute, facts: Facts) -> str | None:
    tile = tile_of(compute, facts)
    return tile if isinstance(tile, str) else None


def _no_store(compute: Compute, facts: Facts) -> str | None:
    # A box goes to a tensor by the same way as it comes from there.
    (operand,) = compute.operands
    back = replace(compute, operands=(replace(operand, view=compute.out),))
    box = box_of(back.with_result(operand.view), facts)
    return box if isinstance(box, str) else None


# A box of a tensor in global memory becomes one in workgroup memory (zero where it is outside of
# the tensor), or the other way.
TILE_UNIT = TileUnit(
    TileCopy("tma_load", _no_load, _ALIGNMENT),
    TileCopy("tma_store", _no_store, _ALIGNMENT),
    MOST_BOX,
    ROW_BYTES,
    swizzle_of,
)
