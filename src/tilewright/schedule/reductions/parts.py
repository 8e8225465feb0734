"""Statements of one block in a loop over parts of a dim that their computes share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Select, Var, all_of, const
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, If, Kernel, Stmt, View
from tilewright.ir.visit import block, variables
from tilewright.schedule.loops.guard import at_some_points
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.tile import Split, on_tile, split_dim
from tilewright.schedule.queries.access import readdress
from tilewright.schedule.queries.flow import item_of
from tilewright.schedule.queries.place import (
    Place,
    holds,
    is_called,
    loop_nest,
    rewrite_kernel,
    rewrite_placed,
    taken_names,
    views_of,
)
from tilewright.schedule.queries.storage import ordered_layout
from tilewright.schedule.records.transform import give
from tilewright.simplify import simplify_kernel


def in_blocks(
    kernel: Kernel, compute: str, change: Callable[[Block, Place], tuple[Stmt, Sequence[str]]]
) -> Kernel:
    """``kernel`` with the statements beside each compute of that name as ``change`` says of them,
    which names the loops whose last part may be shorter, too."""
    loops: list[str] = []

    def here(stmt: Stmt, place: Place) -> Stmt | None:
        if not isinstance(stmt, Block) or not any(is_called(part, compute) for part in stmt.body):
            return None
        # Tiles of others, which have the compute in a loop of their own, may stand before.
        at = next(n for n, part in enumerate(stmt.body) if is_called(part, compute))
        tiles = max((n for n in range(at) if holds(stmt.body[n], compute)), default=-1) + 1
        done, names = change(Block(stmt.body[tiles:]), place)
        loops.extend(names)
        return block(*(rewrite_placed(part, place, here) for part in stmt.body[:tiles]), done)

    changed = rewrite_kernel(kernel, here)
    for loop in dict.fromkeys(loops):
        changed = partition(simplify_kernel(changed), loop)
    return changed


class InParts(ABC):
    """One block, some of whose computes go in parts, in ``loops``."""

    def __init__(self, kernel: Kernel, stmt: Block, place: Place) -> None:
        self.place, self.loops = place, list[str]()
        self.taken = set(taken_names(kernel))
        self.parts = [item_of(part).simple or part for part in stmt.body]
        self.computes = [part for part in self.parts if isinstance(part, Compute)]

    @property
    @abstractmethod
    def along(self) -> Mapping[str, Dim]:
        """The dim that goes in parts, of computes that have it."""

    def is_along(self, stmt: Stmt) -> bool:
        """Whether it is a compute that has the dim."""
        return isinstance(stmt, Compute) and stmt.name in self.along

    def in_parts(self, dim: Dim, size: int, inside: Sequence[Stmt], masked: Compute | None) -> Stmt:
        """The statements ``inside`` in a loop, ``loop`` among the results, over parts of ``dim`` of
        ``size``: what they hand on by the dim is as long as a part. Parts of which ``masked`` takes
        all are left out."""
        split = split_dim(dim, size, self.place, self.taken, self.taken)
        if split.loop is None:
            return block(*inside)
        loop = split.loop[0].name
        give("loop", "loop", loop)
        if split.inner is not None and not isinstance(split.inner.extent, Const):
            self.loops.append(loop)
        on_parts: list[Stmt] = []
        for part in inside:
            if isinstance(part, Compute) and self.is_along(part):
                part = self._on_part(part, split)
            on_parts.append(part)
        body = block(*on_parts)
        for part in inside:
            if isinstance(part, Allocate):
                body = self._shortened(body, part.buffer, split)
        if masked is not None:
            on_part = self._on_part(masked, split)
            assert isinstance(on_part.body, Select)
            wanted = all_of(at_some_points(on_part.body.condition, on_part))
            body = body if wanted is None else If(wanted, body)
        return loop_nest([split.loop], body)

    def _on_part(self, compute: Compute, split: Split) -> Compute:
        dim = self.along[compute.name]
        return on_tile(compute, {dim.var.name: split.along(dim)})

    def _shortened(self, body: Stmt, buffer: Buffer, split: Split) -> Stmt:
        """``body`` with as much of ``buffer`` as a part needs."""
        views = [
            (self.along[compute.name].var, view)
            for compute in self.computes
            if self.is_along(compute)
            for view in views_of(compute)
            if view.buffer is buffer
        ]
        at = [n for n in range(buffer.rank) if views and all(v.index[n] is d for d, v in views)]
        if not at:
            return body
        shape = tuple(split.size if n == at[0] else size for n, size in enumerate(buffer.shape))
        order = sorted(range(buffer.rank), key=lambda n: -buffer.layout.blocks[n].stride)
        new = replace(buffer, sizes=shape, layout=ordered_layout(shape, order))

        def moved(view: View) -> View:
            index = (i - split.base if n == at[0] else i for n, i in enumerate(view.index))
            return View(new, tuple(index), view.mask)

        return readdress(body, buffer, moved)


def takes_all(compute: Compute) -> bool:
    """Whether it gives -inf in place of something where a condition says so."""
    value = compute.body
    masks = isinstance(value, Select) and value.b is const(-math.inf, value.type)
    return masks and compute.combiner is None


def makes_all(compute: Compute, later: Sequence[Compute]) -> bool:
    """Whether it makes all that the ``later`` ones touch of its buffer, as far as dims tell."""
    ranges = _ranges(compute, compute.out)
    views = [(part, view) for part in later for view in views_of(part)]
    same = (_ranges(part, v) == ranges for part, v in views if v.buffer is compute.out.buffer)
    places = [index for index in compute.out.index if isinstance(index, Var)]
    whole = compute.out.mask is None and len({*places}) == len(places)
    return whole and None not in ranges and all(same)


def _ranges(compute: Compute, view: View) -> list[tuple[bool, Expr] | None]:
    """Of each index the extent of the dim that it is, or itself where it is outside of the
    compute."""
    dims = {dim.var: dim.extent for dim in compute.dims}
    return [
        (True, dims[index])
        if isinstance(index, Var) and index in dims
        else (None if variables(index) & dims.keys() else (False, index))
        for index in view.index
    ]
