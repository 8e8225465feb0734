"""The dims of a contraction before it is tiled: fused where neighbours are one run, split where
neighbours take different taps.
"""

from __future__ import annotations

from itertools import pairwise

from tilewright.errors import ScheduleError
from tilewright.ir.expr import Binary, Const, conjuncts
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import variables, walk
from tilewright.recipes.roles import MAIN, find_compute, roles
from tilewright.schedule.fuse_dims import fuse_dims
from tilewright.schedule.split import split_dim


def fusable(kernel: Kernel) -> tuple[tuple[str, str, str], ...]:
    """Neighbouring dims that can be one: positions of a 1x1 convolution, and the like."""
    found: list[tuple[str, str, str]] = []
    changed = True
    while changed:
        changed = False
        main = find_compute(kernel, MAIN)
        parts = roles(main)
        for part in (parts.m, parts.n, parts.k, parts.batch):
            for outer, inner in pairwise(part):
                name = f"{outer}_{inner}"
                try:
                    kernel = fuse_dims(kernel, [outer, inner], name)
                except ScheduleError:
                    continue
                found.append((outer, inner, name))
                changed = True
                break
            if changed:
                break
    return tuple(found)


def fused(kernel: Kernel, fuse: tuple[tuple[str, str, str], ...]) -> Kernel:
    """``kernel`` with dims made one, as (outer, inner, name)."""
    for outer, inner, name in fuse:
        kernel = fuse_dims(kernel, [outer, inner], name)
    return kernel


def strided(main: Compute) -> tuple[tuple[str, int], ...]:
    """The innermost position whose neighbours belong to different taps, as where a stride divides:
    split by the stride, all positions of a remainder share theirs."""
    found: list[tuple[str, int]] = []
    for condition in conjuncts(main.operands[0].view.mask):
        for node in walk(condition):
            if isinstance(node, Binary) and node.op == "mod" and isinstance(node.b, Const):
                names = {v.name for v in variables(node.a)} & set(roles(main).m)
                found += [(name, int(node.b.value)) for name in names]
    return tuple(sorted(found, key=lambda pair: roles(main).m.index(pair[0]))[-1:])


def split_dims(kernel: Kernel, split: tuple[tuple[str, int], ...]) -> Kernel:
    """``kernel`` with each dim split by its factor, as (dim, factor)."""
    for dim, factor in split:
        kernel = split_dim(kernel, dim, factor, f"{dim}_q", f"{dim}_r")
    return kernel
