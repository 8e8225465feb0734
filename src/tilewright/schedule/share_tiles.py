"""Operands in memory that a workgroup shares, copied as whole tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Literal

from tilewright.ir.buffer import Space, Swizzle
from tilewright.ir.expr import const
from tilewright.ir.stmt import Compute, For, If, Kernel, LoopKind, Stmt
from tilewright.ir.visit import rewrite_stmts
from tilewright.schedule.place import Place, computes_named, loops_named
from tilewright.schedule.promote import Promotion
from tilewright.schedule.share import Sharing, item_number
from tilewright.schedule.storage import BlockList
from tilewright.schedule.tile import tile_compute
from tilewright.schedule.transform import transform


@transform
def share_tiles(
    kernel: Kernel,
    compute: str,
    operands: Sequence[str],
    at: str,
    *,
    by: Mapping[str, Literal["tensor", "dims"]] | None = None,
    layout: Mapping[str, BlockList] | None = None,
    swizzle: Mapping[str, Swizzle] | None = None,
    boxes: Mapping[str, Mapping[str, int]] | None = None,
) -> Kernel:
    """Copies what a workgroup reads through ``operands`` into memory that it shares, one of its
    subgroups for all, as boxes of the tensors.

        subgroup for s in 2:
          for k_o in 2:
            compute f(m in 64, k in 8): x = src[s*64 + m, k_o*8 + k] ...
    ->  share_tiles("f", ["x"], at="k_o")
        alloc src_packed: f32[128, 8] workgroup
        subgroup for s in 2:
          for k_o in 2:
            if s == 0:
              compute x_pack(m in 128, k in 8): src_packed[m, k] = src[m, k_o*8 + k]
            barrier()
            compute f(m in 64, k in 8): x = src_packed[s*64 + m, k] ...
            barrier()

    ``by``, ``layout`` and ``swizzle`` are those of `promote` by operand (``by``: "tensor", if none
    is given); where ``boxes`` has sizes along an operand's dims, its tile is copied in boxes of so
    much. With "dims", each subgroup's part is a tile of its own.
    """
    loops_named(kernel, at, "share_tiles")
    computes_named(kernel, compute, "share_tiles")
    made: dict[str, Promotion] = {}
    for name in operands:
        blocks, swizzled = (layout or {}).get(name, ()), (swizzle or {}).get(name)
        kind = (by or {}).get(name, "tensor")
        made[name] = Promotion(
            kernel, compute, name, kind, Space.WORKGROUP, blocks, {}, swizzled, None, None
        )
    parts = {name for name, promotion in made.items() if promotion.by == "dims"}
    copy = partial(_by_the_first, boxes or {}, parts)
    return Sharing("share_tiles", tuple(made.values()), compute, at, copy).on_kernel(kernel)


def _by_the_first(
    boxes: Mapping[str, Mapping[str, int]],
    parts: Set[str],
    pack: Compute,
    items: list[For],
    here: Place,
) -> Stmt:
    """``pack`` in boxes, by the first of the work-items; those of which all have ``parts``, part by
    part."""
    operand = pack.operands[0].var.name
    sizes = dict(boxes.get(operand, {}))
    if operand in parts:
        sizes = {dim.var.name: sizes.get(dim.var.name, 1) for dim in pack.dims}
    copies = rewrite_stmts(tile_compute(pack, here, sizes), _unrolled)
    return If(item_number(items)[0] == const(0), copies)


def _unrolled(stmt: Stmt) -> Stmt:
    return replace(stmt, kind=LoopKind.UNROLLED) if isinstance(stmt, For) else stmt
