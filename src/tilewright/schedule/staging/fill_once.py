"""What fills a buffer in loops that repeat it, ahead of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Layout, LayoutBlock, Space
from tilewright.ir.expr import Const, Expr
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Block, For, If, Kernel, Let, Stmt, View
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, direct_exprs, reads_memory, variables, walk_stmts
from tilewright.schedule.queries.access import (
    accesses,
    buffers_allocated,
    buffers_written,
    readdress,
)
from tilewright.schedule.queries.place import Place, Step, claim, names_in, rewrite_placed
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.transform import give, transform


@transform
def fill_once(kernel: Kernel, buffer: str) -> Kernel:
    """Fills a buffer ahead of all loops, once for all iterations of those that what it is filled
    with does not depend on.

        for m_o in 4:
          for n_o in 2:
            alloc b_packed: f32[64, 16] private
            compute b_pack(k in 64, n in 16): b_packed[k, n] = b     (b = b[n_o*16 + n, k])
            compute main(m in 8, n in 16, k in 64): c[...] add= a * b
                (a = a[m_o*8 + m, k], b = b_packed[k, n])
    ->  fill_once("b_packed")
        alloc b_packed_once: f32[2, 64, 16]
        for n_o in 2:
          compute b_pack(k in 64, n in 16): b_packed_once[n_o, k, n] = b
        for m_o in 4:
          for n_o in 2:
            compute main(m in 8, n in 16, k in 64): c[...] add= a * b
                (a = a[m_o*8 + m, k], b = b_packed_once[n_o, k, n])

    It is filled from arguments that nothing writes, before anything else touches it. Conditions
    of loops that are left out are left out, too, and those that memory decides. What is allocated
    by that name in several places has a buffer for each. Among the results is ``buffer``, the
    first.
    """
    buffers, _ = names_in(kernel)
    written = buffers_written(kernel.body)
    constant = frozenset(p.buffer for p in kernel.arrays if p.buffer not in written)
    ahead: list[Stmt] = []
    refusals: list[ScheduleError] = []

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if not isinstance(stmt, Block):
            return None
        for n, part in enumerate(stmt.body):
            if isinstance(part, Allocate) and part.buffer.name == buffer:
                try:
                    filled = _Filled(part.buffer, stmt.body[n + 1 :], place, constant)
                except ScheduleError as error:
                    refusals.append(error)
                    return None
                name = claim(f"{buffer}_once", buffers)
                give("buffer", "buffer", name)
                first, rest = filled.apart(name)
                ahead.extend(first)
                return block(*stmt.body[:n], *rest)
        return None

    body = rewrite_placed(kernel.body, Place(), change)
    if refusals and not ahead:
        raise refusals[0]
    if not ahead:
        raise refusal(
            f"the kernel allocates no '{buffer}'",
            kernel,
            "name one of " + ", ".join(sorted(b.name for b in buffers_allocated(kernel.body))),
        )
    return replace(kernel, body=block(*ahead, body))


class _Filled:
    """The buffer ``old``, with what ``follows`` its allocation at ``place``; it is filled from what
    is ``constant``."""

    def __init__(
        self, old: Buffer, follows: Sequence[Stmt], place: Place, constant: frozenset[Buffer]
    ) -> None:
        self.old, self.place = old, place
        touching = [stmt for stmt in follows if old in buffers_in(stmt)]
        self.filling = [stmt for stmt in touching if old in buffers_written(stmt)]
        self.rest = [stmt for stmt in follows if all(stmt is not fill for fill in self.filling)]
        if touching[: len(self.filling)] != self.filling or old.symbols:
            raise self._refusal("it is read before it is full, or its size is not a number")
        for stmt in self.filling:
            buffers = buffers_allocated(stmt) | {old}
            if not buffers_written(stmt) <= buffers or not buffers_in(stmt) <= buffers | constant:
                raise self._refusal("it is filled with what the kernel makes, or not it alone")
        self.kept = list(self._kept())
        dropped = [loop for loop in place.loops if loop not in self.kept]
        if all(isinstance(n, Const) and n.value == 1 for n in (loop.extent for loop in dropped)):
            raise self._refusal("no loop around it repeats that")
        self._check_bounds()

    def _refusal(self, why: str) -> ScheduleError:
        return refusal(
            f"'{self.old.name}' is not filled ahead",
            headline(self.filling[0]) if self.filling else f"the buffer {self.old.name}",
            "leave it where it is",
            why=why,
        )

    def _kept(self) -> Iterator[For]:
        """The loops around it that what it is filled with depends on."""
        nodes = walk_stmts(block(*self.filling))
        used = {v for node in nodes for expr in direct_exprs(node) for v in variables(expr)}
        if any(isinstance(step, Let) and step.var in used for step in self.place.steps):
            raise self._refusal("it depends on what is named around it")
        for loop in self.place.loops:
            if loop.var in used:
                if not isinstance(loop.extent, Const):
                    raise self._refusal("a loop that it depends on has an extent that varies")
                yield loop

    @property
    def _conditions(self) -> list[Expr]:
        """The conditions around it that the loops which it keeps say, and no memory: what a
        condition loads may be written, or allocated, in between."""
        names = {loop.var for loop in self.kept}
        steps = [step for step in self.place.steps if isinstance(step, Expr)]
        return [step for step in steps if variables(step) <= names and not reads_memory(step)]

    def _check_bounds(self) -> None:
        """Refuses what without a condition around it would reach beyond an array."""
        steps: list[Step] = [*self.kept, *self._conditions]
        place = reduce(Place.inside, steps, Place())
        for access in accesses(block(*self.filling), place):
            view = access.view
            for index, size in zip(view.index, view.buffer.sizes, strict=True):
                least, most = access.facts.bounds(index)
                if least is None or most is None or not isinstance(size, int):
                    raise self._refusal("nothing says where it lies")
                if least < 0 or most >= size:
                    raise self._refusal("a condition keeps it within an array")

    def apart(self, name: str) -> tuple[list[Stmt], list[Stmt]]:
        """What fills it, and what is left behind it, on a buffer called ``name``."""
        count = len(self.kept)
        extents = [int(loop.extent.value) for loop in self.kept if isinstance(loop.extent, Const)]
        room = self.old.layout.extent
        outer = [
            LayoutBlock(n, size, room * prod(extents[n + 1 :])) for n, size in enumerate(extents)
        ]
        inner = [
            replace(layout_block, dim=layout_block.dim + count)
            for layout_block in self.old.layout.blocks
        ]
        new = replace(
            self.old,
            name=name,
            sizes=(*extents, *self.old.sizes),
            layout=Layout((*outer, *inner)),
            space=Space.GLOBAL,
        )
        places = tuple(loop.var for loop in self.kept)

        def moved(view: View) -> View:
            return View(new, (*places, *view.index), view.mask)

        first: Stmt = readdress(block(*self.filling), self.old, moved)
        for condition in self._conditions:
            first = If(condition, first)
        for loop in reversed(self.kept):
            first = replace(loop, body=first)
        rest = [readdress(stmt, self.old, moved) for stmt in self.rest]
        return [Allocate(new), first], rest
