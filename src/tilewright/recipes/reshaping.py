"""The dims of a kernel before it is tiled: fused where neighbours are one run, split where
neighbours take different taps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

from tilewright.ir.expr import Binary, Const, conjuncts
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import direct_exprs, variables, walk
from tilewright.layout.roles import MAIN
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import find_compute, named_after, roles
from tilewright.schedule.queries.place import views_of
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule


def fuse_neighbours(s: KernelSchedule) -> tuple[tuple[str, str, str], ...]:
    """Fuses neighbouring dims that can be one (positions of a 1x1 convolution, and the like), and
    gives them as (outer, inner, name)."""
    found: list[tuple[str, str, str]] = []
    changed = True
    while changed:
        changed = False
        parts = roles(find_compute(s.kernel, MAIN))
        pairs = [
            pair for dims in (parts.m, parts.n, parts.k, parts.batch) for pair in pairwise(dims)
        ]
        for outer, inner in pairs:
            name = named_after(outer, inner)
            changed = s.attempt(partial(s.fuse_dims, [outer, inner], name))
            if changed:
                found.append((outer, inner, name))
                break
    return tuple(found)


def fused(s: KernelSchedule, fuse: tuple[tuple[str, str, str], ...]) -> None:
    """Fuses dims, as (outer, inner, name)."""
    for outer, inner, name in fuse:
        s.fuse_dims([outer, inner], name)


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


def halves(dim: str) -> tuple[str, str]:
    """The dims that ``dim`` is split into: the quotient and the remainder of a division."""
    return named_after(dim, "q"), named_after(dim, "r")


def split_dims(s: KernelSchedule, split: tuple[tuple[str, int], ...]) -> None:
    """Splits dims, as (dim, factor)."""
    for dim, factor in split:
        s.split_dim(dim, factor, *halves(dim))


def with_whole_dims(s: KernelSchedule) -> None:
    """Neighbouring dims become one wherever all computes allow it, and no access is harder then:
    none is cut by blocks of its layout, or reached by digits of sizes that a call passes."""

    def fuse(outer: str, inner: str) -> bool:
        whole, before = named_after(outer, inner), s.kernel
        s.fuse_dims([outer, inner], whole)
        cuts = _cuts(before, outer, inner)
        return _cuts(s.kernel, whole) <= cuts and _digits(s.kernel) <= _digits(before)

    changed = True
    while changed:
        changed = any(
            s.attempt(partial(fuse, outer, inner))
            for compute in computes_in(s.kernel)
            for outer, inner in pairwise([dim.var.name for dim in compute.dims])
        )


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
