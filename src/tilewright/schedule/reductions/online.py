"""Exponentials and their sums relative to a running maximum: softmax and attention in one pass.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
"FlashAttention", 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import (
    Binary,
    Const,
    Expr,
    Select,
    Unary,
    binary,
    const,
)
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Stmt
from tilewright.ir.visit import block, replace_buffer, variables
from tilewright.schedule.queries.flow import item_of
from tilewright.schedule.queries.identity import is_proportional, uncast
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    names_in,
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
from tilewright.schedule.reductions.running import Rows


@transform
@asks(peak=a_plain_compute, size=positive)
def online(kernel: Kernel, peak: str, size: int) -> Kernel:
    """Goes through what ``peak``, a maximum, reduces in parts of ``size``, each of which is done
    with before the next one: maxima and sums of exponentials are those up to there.

        compute scores(i in 8, j in 64, k in 4): s[i, j] add= q[i, k] * w[j, k]
        compute peak_clear(i in 8): m[i] = -inf
        compute peak(i in 8, j in 64): m[i] max= s[i, j]
        compute power(i in 8, j in 64): p[i, j] = exp(s[i, j] - m[i])
        compute total_clear(i in 8): t[i] = 0.0
        compute total(i in 8, j in 64): t[i] add= p[i, j]
    ->  online("peak", 16)
        compute peak_start(i in 8): m_running[i] = -inf     (and m_before)
        compute total_clear(i in 8): t[i] = 0.0
        for j_o in 4:
          compute scores(i in 8, j in 16, k in 4): s[i, j] add= q[i, k] * w[j_o*16 + j, k]
          compute peak_clear(i in 8): m[i] = m_running[i]
          compute peak(i in 8, j in 16): m[i] max= s[i, j]
          compute peak_keep(i in 8): m_running[i] = m[i]
          compute peak_finite(i in 8): m[i] = select(m[i] == -inf, 0.0, m[i])
          compute peak_factor(i in 8): f[i] = exp(min(m_before[i] - m[i], 0.0))
          compute peak_next(i in 8): m_before[i] = m[i]
          compute total_scale(i in 8): t[i] = t[i] * f[i]
          compute power(i in 8, j in 16): p[i, j] = exp(s[i, j] - m[i])
          compute total(i in 8, j in 16): t[i] add= p[i, j]

    What is reduced has one dim, and all that depends on it stands in one block with the maximum:
    one exponential of a difference from the maximum (or from what stands for it where that is
    -inf), and sums of that, or of its products with something else. Nothing else may use the
    exponential, and the maximum only what stands after all sums. Parts of which a mask takes
    everything (-inf, by comparisons of places) are skipped. The loop over parts is ``loop`` among
    the results. Sums are rounded in another order.
    """
    computes_named(kernel, peak)

    def change(stmt: Block, place: Place) -> tuple[Stmt, Sequence[str]]:
        parts = _Online(kernel, stmt, place, peak, size)
        return parts.done(), parts.loops

    return in_blocks(kernel, peak, change)


class _Online(InParts):
    """One block that has the maximum."""

    def __init__(self, kernel: Kernel, stmt: Block, place: Place, peak: str, size: int) -> None:
        super().__init__(kernel, stmt, place)
        self.size = size
        self.buffers, self.names = map(set, names_in(kernel))
        self.peak = next(compute for compute in self.computes if compute.name == peak)
        self.held = self.peak.out.buffer
        reduced = [d for d in self.peak.dims if d.var not in index_variables(self.peak.out)]
        if self.peak.combiner != "max" or len(reduced) != 1:
            raise self._refusal(self.peak, "it is no maximum along one dim")
        (self.dim,) = reduced
        self.same = same_dims(self.computes)

    def _refusal(self, stmt: Stmt, why: str) -> ScheduleError:
        return refusal(
            f"'{self.peak.name}' cannot run along with what depends on it",
            stmt,
            "reduce all of it first",
            why=why,
        )

    def _like(self, compute: Compute, dim: Dim) -> Dim | None:
        """The dim of ``compute`` that is the maximum's ``dim``."""
        at, here = (self.computes.index(stmt) for stmt in (self.peak, compute))
        one = self.same[at, dim.var.name]
        return next((d for d in compute.dims if self.same[here, d.var.name] == one), None)

    @cached_property
    def along(self) -> Mapping[str, Dim]:
        """The dim that goes along with the one that the maximum reduces, of computes that have
        it."""
        dims_of = {compute.name: self._like(compute, self.dim) for compute in self.computes}
        return {name: dim for name, dim in dims_of.items() if dim is not None}

    @cached_property
    def sums(self) -> list[Compute]:
        """What is reduced along that dim, but for the maximum."""
        return [
            compute
            for compute in self.computes
            if compute is not self.peak
            and self.is_along(compute)
            and self.along[compute.name].var not in index_variables(compute.out)
        ]

    @cached_property
    def power(self) -> Compute:
        """The exponential of what is left of the maximum."""
        readers = [c for c in self.computes if self.is_along(c) and self._reads(c, self.held)]
        for reader in readers[:1] if len(readers) == 1 else []:
            value = uncast(reader.body)
            operands = {o.var for o in reader.operands if o.view.buffer is self.held}
            left = value.a if isinstance(value, Unary) and value.op == "exp" else None
            if not isinstance(left, Binary) or left.op != "sub" or reader in self.sums:
                continue
            if left.b in operands and not variables(left.a) & operands:
                return reader
        raise self._refusal(self.peak, "not one exponential of a difference from it uses it alone")

    def _reads(self, compute: Compute, buffer: Buffer) -> bool:
        return any(operand.view.buffer is buffer for operand in compute.operands)

    def done(self) -> Stmt:
        """The block with a loop over parts."""
        self._check()
        last = max(n for n, part in enumerate(self.parts) if self.is_along(part))
        kept = {compute.out.buffer for compute in self.sums}
        later = (item_of(part).touches for part in self.parts[last + 1 :])
        kept = kept.union(*later) - {self.held}
        rows = Rows(self.peak, self.buffers, self.names)
        before, inside = list(rows.start), list[Stmt]()
        for part in self.parts[: last + 1]:
            if isinstance(part, Allocate):
                (before if part.buffer in kept else inside).append(part)
            elif self.is_along(part) or item_of(part).touches & {self.held}:
                inside += self._in_loop(part, rows)
            elif item_of(part).writes <= kept:
                before.append(part)
            else:
                inside.append(part)
        after = (replace_buffer(s, self.held, rows.before) for s in self.parts[last + 1 :])
        return block(*before, self._looped(inside), *after)

    def _in_loop(self, part: Stmt, rows: Rows) -> Iterator[Stmt]:
        """What stands in the loop for a compute along the dim, or of the maximum."""
        if part is self.power:
            if not any(map(self._is_finite, self.computes)):
                yield rows.finite()
            yield from rows.factor_of_parts()
            for compute in self.sums:
                index = {d.var: self._of(compute, d) for d in rows.dims}
                yield rows.scaled(compute, index)
        if isinstance(part, Compute) and self._is_clear(part):
            yield rows.begun()
        else:
            yield part
        if part is self.peak:
            yield rows.kept()

    def _of(self, compute: Compute, dim: Dim) -> Expr:
        alike = self._like(compute, dim)
        if alike is None or alike.var not in index_variables(compute.out):
            raise self._refusal(compute, "it adds up what different rows have")
        return alike.var

    def _check(self) -> None:
        """Refuses what would go on with other values than those at the end."""
        powers = self.power.out.buffer
        for compute in self.sums:
            if compute.combiner != "add" or not is_proportional(compute, powers):
                raise self._refusal(
                    compute, "it is no sum of what is proportional to the exponential"
                )
        for compute in self.computes:
            touches = item_of(compute).touches
            if powers in touches and compute is not self.power and compute not in self.sums:
                raise self._refusal(compute, "it uses the exponential")
            is_ours = (
                compute in (self.peak, self.power)
                or self._is_finite(compute)
                or self._is_clear(compute)
            )
            later = not self.is_along(compute) and self.held not in item_of(compute).writes
            later = later and self._is_after(compute)
            if self.held in touches and not is_ours and not later:
                raise self._refusal(compute, "it uses the maximum")
        self._check_order()

    def _check_order(self) -> None:
        """Refuses what stands among that which goes along, and would not do the same there several
        times, or before sums are complete."""
        totals = {compute.out.buffer for compute in self.sums}
        for compute in self.computes:
            if self._is_after(compute):
                continue
            item = item_of(compute)
            reads = {operand.view.buffer for operand in compute.operands}
            if reads & totals:
                raise self._refusal(compute, "it uses a sum that is not complete in a part")
            again = (
                reads & item.writes and not self.is_along(compute) and not self._is_finite(compute)
            )
            if again:
                raise self._refusal(compute, "it changes what it reads, in each part")

    def _is_after(self, compute: Compute) -> bool:
        """Whether it stands after all that goes along."""
        at = self.computes.index(compute)
        return not any(self.is_along(later) for later in self.computes[at:])

    def _is_clear(self, compute: Compute) -> bool:
        """Whether it gives the maximum what it begins with."""
        value = compute.body
        is_start = compute.combiner is None and compute.out.buffer is self.held
        return is_start and isinstance(value, Const) and value.value == -math.inf

    def _is_finite(self, compute: Compute) -> bool:
        """Whether it gives the maximum another value where it is -inf, and nowhere else."""
        if compute.combiner is not None or len(compute.operands) != 1:
            return False
        (operand,), value = compute.operands, compute.body
        views = (operand.view, compute.out)
        same = operand.view.index == compute.out.index
        if not same or any(view.buffer is not self.held for view in views):
            return False
        least = binary("eq", operand.var, const(-math.inf, operand.var.type))
        if not isinstance(value, Select) or value.condition is not least:
            return False
        return isinstance(value.a, Const) and value.b is operand.var

    def _looped(self, inside: Sequence[Stmt]) -> Stmt:
        """The statements part by part. Where a mask gives -inf throughout, nothing is left, unless
        what is made there is seen outside of the loop."""
        buffers = {part.buffer for part in inside if isinstance(part, Allocate)}
        buffers |= {compute.out.buffer for compute in self.sums}
        seen = {compute.out.buffer for compute in self.computes} - buffers
        writes = {part.out.buffer for part in inside if isinstance(part, Compute)}
        masked = None if seen & writes else self._masked()
        return self.in_parts(self.dim, self.size, inside, masked)

    def _masked(self) -> Compute | None:
        """The compute that masks what both the maximum and the exponential are of, if the last that
        writes it does so."""
        values = (uncast(self.peak.body), _less(uncast(self.power.body)))
        views = [
            operand.view
            for compute, value in zip((self.peak, self.power), values, strict=True)
            for operand in compute.operands
            if operand.var is value
        ]
        if len(views) != 2 or views[0].buffer is not views[1].buffer:
            return None
        writers = [c for c in self.computes if c.out.buffer is views[0].buffer]
        last = writers[-1] if writers else None
        if last is None or not self.is_along(last) or not takes_all(last):
            return None
        return last if makes_all(last, self.computes[self.computes.index(last) + 1 :]) else None


def _less(power: Expr) -> Expr:
    """What the maximum is taken from in the exponential ``power``."""
    assert isinstance(power, Unary) and isinstance(power.a, Binary)
    return uncast(power.a.a)
