"""Tiles of a result on the levels of a hierarchy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.buffer import Space
from tilewright.ir.stmt import Kernel, LoopKind
from tilewright.schedule.loops.kinds import with_kind
from tilewright.schedule.loops.tile_and_fuse import fuse_tiles
from tilewright.schedule.queries.place import loops_around
from tilewright.schedule.records.asks import a_plain_compute, asks, positive
from tilewright.schedule.records.transform import transform

Level = tuple[LoopKind, Mapping[str, int]]


def _positive_levels(kernel: Kernel, transform: str, name: str, given: Mapping[str, Any]) -> None:
    """The sizes of each level are 1 or more."""
    for _, sizes in given[name]:
        positive(kernel, transform, name, {name: sizes})


@transform
@asks(root=a_plain_compute, levels=_positive_levels)
def distribute(
    kernel: Kernel,
    root: str,
    levels: Sequence[Level],
    order: Sequence[str] = (),
    *,
    producers: Sequence[str] | None = None,
    storage: Sequence[str] = (),
) -> Kernel:
    """Tiles ``root`` once for each level, outermost first, with loops that run on that level.

        compute init(m in 128): acc[m] = 0.0
        compute store(m in 128): dst[m] = acc[m]
    ->  distribute("store", [(LoopKind.GRID, {"m": 64}), (LoopKind.WORKGROUP, {"m": 4})])
        grid for m_o in 2:
          workgroup for m_o2 in 16:
            alloc acc: f32[4] private
            compute init(m in 4): acc[m] = 0.0
            compute store(m in 4): dst[m_o*64 + m_o2*4 + m] = acc[m]

    Each level is what `tile_and_fuse` makes with ``order``, ``producers`` and ``storage``; a level
    whose tile holds all makes no loop. The levels are one transform because tiles that dims made
    one (`fuse_dims`) write apart can be seen before divisions are simplified, not afterwards.
    """
    for kind, sizes in levels:
        before = serial_loops(kernel, root)
        inner = [name for name in order if name in sizes]
        kernel = fuse_tiles(kernel, root, sizes, inner, producers, Space.PRIVATE, storage)
        for loop in serial_loops(kernel, root):
            if loop not in before:
                kernel = with_kind(kernel, loop, kind, "distribute")
    return kernel


def serial_loops(kernel: Kernel, compute: str) -> list[str]:
    """The names of the serial loops around a compute, outermost first."""
    loops = loops_around(kernel, compute)
    return [loop.var.name for loop in loops if loop.kind is LoopKind.SERIAL]
