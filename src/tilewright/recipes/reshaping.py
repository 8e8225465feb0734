"""The dims of a kernel before it is tiled: fused where neighbours are one run, split where
neighbours take different taps.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tilewright.errors import ScheduleError
from tilewright.ir.expr import Binary, Const, conjuncts
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import direct_exprs, variables, walk
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import MAIN, find_compute, roles
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.dims.split_dim import split_dim
from tilewright.schedule.queries.place import views_of
from tilewright.schedule.queries.runs import strides


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


def with_whole_dims(kernel: Kernel) -> Kernel:
    """Neighbouring dims become one wherever all computes allow it, and no access is harder then:
    none is cut by blocks of its layout, or reached by digits of sizes that a call passes."""
    changed = True
    while changed:
        changed = False
        for compute in computes_in(kernel):
            names = [dim.var.name for dim in compute.dims]
            for outer, inner in pairwise(names):
                try:
                    fused = fuse_dims(kernel, [outer, inner], f"{outer}_{inner}")
                except ScheduleError:
                    continue
                if _cuts(fused, f"{outer}_{inner}") > _cuts(kernel, outer, inner):
                    continue
                if _digits(fused) > _digits(kernel):
                    continue
                kernel = fused
                changed = True
                break
            if changed:
                break
    return kernel


def _cuts(kernel: Kernel, *dims: str) -> int:
    """In how many views blocks of the layout cut one of ``dims``."""
    return sum(
        any(steps.get(dim, 0) is None for dim in dims)
        for compute in computes_in(kernel)
        for steps in (strides(compute, view) for view in views_of(compute))
    )


def _digits(kernel: Kernel) -> int:
    """How many indices and values multiply or divide by what a call passes."""
    if not kernel.scalars:
        return 0
    exprs = (e for c in computes_in(kernel) for e in direct_exprs(replace(c, dims=())))
    return sum(
        node.op in ("mul", "floordiv", "mod")
        and node.type.is_integer
        and not isinstance(node.b, Const)
        for expr in exprs
        for node in walk(expr)
        if isinstance(node, Binary)
    )
