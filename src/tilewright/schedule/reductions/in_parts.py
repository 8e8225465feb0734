"""What several computes make by a dim that they share, a part after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Const, Expr, Var, const
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Stmt
from tilewright.ir.visit import block, substitute
from tilewright.schedule.queries.flow import Item, item_of
from tilewright.schedule.queries.identity import ASSOCIATIVE, is_proportional
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    dim_of,
    views_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.shared_dims import same_dims
from tilewright.schedule.records.asks import a_plain_compute, asks, positive
from tilewright.schedule.records.transform import transform
from tilewright.schedule.reductions.parts import (
    InParts,
    in_blocks,
    makes_all,
    takes_all,
)
from tilewright.simplify import simplify


@transform
@asks(compute=a_plain_compute, size=positive)
def in_parts(kernel: Kernel, compute: str, dim: str, size: int) -> Kernel:
    """Goes through ``dim`` of ``compute``, and what is the same in others of its block, in parts of
    ``size``: all that is done to one part before the next.

        compute scores(i in 8, j in 64): s[i, j] = x[i] * y[j]
        compute left_clear(i in 8): a[i] = 0.0
        compute left(i in 8, j in 64): a[i] add= s[i, j] * z[j]
        compute right_clear(j in 64): b[j] = 0.0
        compute right(j in 64, i in 8): b[j] add= s[i, j] * w[i]
    ->  in_parts("scores", "j", 16)
        compute left_clear(i in 8): a[i] = 0.0
        for j_o in 4:
          compute scores(i in 8, j in 16): s[i, j] = x[i] * y[j_o*16 + j]
          compute left(i in 8, j in 16): a[i] add= s[i, j] * z[j_o*16 + j]
          compute right_clear(j in 16): b[j_o*16 + j] = 0.0
          compute right(j in 16, i in 8): b[j_o*16 + j] add= s[i, j] * w[i]

    Computes with that dim reach what they hand on to each other by it alone, or combine along it;
    of what is combined so, none reads what is not complete. Others go before the loop, or behind
    it. Parts that add nothing, as a mask (-inf, by comparisons of places) leaves nothing of what
    all sums are proportional to, are skipped. What the block allocates for the loop alone is as
    long as a part. The loop is ``loop`` among the results. Sums are rounded in another order.
    """
    computes_named(kernel, compute)

    def change(stmt: Block, place: Place) -> tuple[Stmt, Sequence[str]]:
        parts = _InParts(kernel, stmt, place, compute, dim)
        return parts.done(size), parts.loops

    return in_blocks(kernel, compute, change)


class _InParts(InParts):
    """One block that has the compute."""

    def __init__(self, kernel: Kernel, stmt: Block, place: Place, compute: str, dim: str) -> None:
        super().__init__(kernel, stmt, place)
        self.first = next(member for member in self.computes if member.name == compute)
        self.dim = dim_of(self.first, dim)

    def _refusal(self, stmt: Stmt, why: str) -> ScheduleError:
        return refusal(
            f"'{self.first.name}' has no parts of '{self.dim.var.name}' with others",
            stmt,
            "choose another dim",
            why=why,
        )

    @cached_property
    def along(self) -> Mapping[str, Dim]:
        """The dim that goes in parts, of computes that have it."""
        same = same_dims(self.computes)
        one = same[self.computes.index(self.first), self.dim.var.name]
        dims_of: dict[str, Dim] = {}
        for n, compute in enumerate(self.computes):
            dims = [dim for dim in compute.dims if same[n, dim.var.name] == one]
            if len(dims) > 1 or any(dim.ordered for dim in dims):
                raise self._refusal(compute, "it has the dim twice, or goes in order")
            if dims:
                dims_of[compute.name] = dims[0]
        return dims_of

    def _combines(self, compute: Compute) -> bool:
        """Whether a compute along the dim combines along it."""
        return self.along[compute.name].var not in index_variables(compute.out)

    def done(self, size: int) -> Stmt:
        """The block with a loop over parts."""
        self._check()
        before, after = self._beside()
        outside = {buffer for part in (*before, *after) for buffer in item_of(part).touches}
        inside = [part for part in self.parts if self.is_along(part)]
        whole = outside | {compute.out.buffer for compute in self.computes if self._sums(compute)}
        allocated = [part for part in self.parts if isinstance(part, Allocate)]
        held = [part for part in allocated if part.buffer in whole]
        allocates = [part for part in allocated if part.buffer not in whole]
        masked = self._masked({part.buffer for part in allocates})
        looped = self.in_parts(self.dim, size, [*allocates, *inside], masked)
        return block(*held, *before, looped, *after)

    def _sums(self, compute: Compute) -> bool:
        return self.is_along(compute) and self._combines(compute)

    def _check(self) -> None:
        """Refuses what one part would need of another."""
        totals = {
            compute.out.buffer: compute.combiner for compute in self.computes if self._sums(compute)
        }
        places: dict[Buffer, int] = {}
        for compute in filter(self.is_along, self.computes):
            if self._combines(compute):
                if compute.combiner not in ASSOCIATIVE:
                    raise self._refusal(compute, "what it makes of all of the dim is no sum")
                if compute.combiner != totals[compute.out.buffer]:
                    raise self._refusal(compute, "its result is combined in two ways")
                continue
            var, buffer = self.along[compute.name].var, compute.out.buffer
            at = [n for n, index in enumerate(compute.out.index) if index is var]
            if buffer in totals or len(at) != 1 or places.setdefault(buffer, at[0]) != at[0]:
                raise self._refusal(compute, "it reaches its result otherwise than by the dim")
        for compute in filter(self.is_along, self.computes):
            var = self.along[compute.name].var
            if any(operand.view.buffer in totals for operand in compute.operands):
                raise self._refusal(compute, "it uses a sum that is not complete in a part")
            for view in views_of(compute):
                place = places.get(view.buffer)
                if place is not None and view.index[place] is not var:
                    raise self._refusal(
                        compute, "it reaches what another makes not by the dim alone"
                    )

    def _beside(self) -> tuple[list[Stmt], list[Stmt]]:
        """The other statements but allocations, before the loop and behind it."""
        before: list[Stmt] = []
        after: list[Stmt] = []
        items = [item_of(part) for part in self.parts]
        for n, part in enumerate(self.parts):
            if isinstance(part, Allocate) or self.is_along(part):
                continue
            if self._passes(items[n], [*self._loop_of(items[:n]), *map(item_of, after)]):
                before.append(part)
            elif self._passes(items[n], self._loop_of(items[n:])):
                after.append(part)
            else:
                raise self._refusal(part, "it stands between what is done to a part")
        return before, after

    def _loop_of(self, items: Sequence[Item]) -> Iterator[Item]:
        return (item for item in items if item.simple is not None and self.is_along(item.simple))

    def _passes(self, item: Item, others: Sequence[Item] | Iterator[Item]) -> bool:
        return all(item.may_pass(other) for other in others)

    def _masked(self, buffers: set[Buffer]) -> Compute | None:
        """The compute whose mask leaves nothing in a part where it takes all, if nothing else than
        sums of what vanishes then leaves the loop; ``buffers`` is what only the loop sees."""
        computes = [
            compute for compute in self.computes if self.is_along(compute) and takes_all(compute)
        ]
        if not computes:
            return None
        masked = computes[-1]
        at = self.computes.index(masked)
        none, zeros = masked.out.buffer, set[Buffer]()
        if not makes_all(masked, self.computes[at + 1 :]):
            return None
        for n, compute in enumerate(self.computes):
            if n <= at or not self.is_along(compute):
                continue
            vanishes = self._vanishes(compute, none, zeros)
            if vanishes and compute.combiner == "add":
                continue
            if compute.out.buffer is none or compute.out.buffer not in buffers:
                return None
            whole = vanishes and makes_all(compute, self.computes[n + 1 :])
            zeros = zeros | {compute.out.buffer} if whole else zeros - {compute.out.buffer}
        outer = (compute for compute in self.computes[: at + 1] if self.is_along(compute))
        return masked if all(compute.out.buffer in buffers for compute in outer) else None

    def _vanishes(self, compute: Compute, none: Buffer, zeros: set[Buffer]) -> bool:
        """Whether what ``compute`` makes, or adds, is 0 where all of ``none`` is -inf, and of
        ``zeros`` is 0."""
        if compute.combiner not in (None, "add"):
            return False
        if any(is_proportional(compute, buffer) for buffer in zeros):
            return True
        values: dict[Var, Expr] = {}
        for operand in compute.operands:
            if operand.view.buffer is none and operand.view.mask is None:
                values[operand.var] = const(-math.inf, operand.var.type)
        value = simplify(substitute(compute.body, values))
        return isinstance(value, Const) and value.value == 0
