"""Random computes with several results, combiners, ordered dims and loaded places, derived from
plain ones; well-formed, within bounds, and with results that do not depend on the order of points.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tilewright.dtypes import DType, s64
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import mentioned
from tilewright.ir.expr import Const, Expr, Var, binary, cast, const, maximum, minimum, select, var
from tilewright.ir.stmt import Combiner, Compute, Dim, Operand, Result, View
from tilewright.ir.visit import loads_in


class Exprs(Protocol):
    """Draws expressions."""

    def expr(self, type: DType, depth: int) -> Expr:
        """A random expression of ``type``."""

    def index(self, shape: Sequence[int], depth: int) -> tuple[Expr, ...]:
        """A random index within ``shape``."""


@dataclass(frozen=True)
class Variation:
    """Random changes of a compute, in its scope.

    ``name`` makes new names from stems, ``exprs`` draws expressions over given variables.
    """

    rng: random.Random
    name: Callable[[str], str]
    exprs: Callable[[Sequence[Var]], Exprs]
    readable: Sequence[Buffer]
    writable: Sequence[Buffer]

    def vary(self, compute: Compute) -> Compute:
        """``compute`` with some of the changes; unchanged where none fits."""
        changes = (self.gathered, self.combined, self.two_results, self.in_order, self.promised)
        for change in self.rng.sample(changes, self.rng.randint(1, len(changes))):
            compute = change(compute)
        return compute

    def gathered(self, compute: Compute) -> Compute:
        """Adds an operand at a place that another operand gives."""
        numbers = _integers(compute)
        fitting = [b for b in self.readable if b not in _written(compute) and 0 not in b.shape]
        if not numbers or not fitting:
            return compute
        view = View(*self._loaded(self.rng.choice(fitting), compute, numbers))
        operand = Operand(var(self.name("e"), view.buffer.dtype), view)
        changed = replace(compute, operands=(*compute.operands, operand))
        first = compute.results[0]
        if first.values[0].type is not operand.var.type or isinstance(first.combiner, Combiner):
            return changed
        value = binary("max", first.values[0], operand.var)
        rest = compute.results[1:]
        return replace(changed, results=(replace(first, values=(value,)), *rest))

    def combined(self, compute: Compute) -> Compute:
        """Replaces a named combiner by a user-defined one, of one value or of two."""
        first = compute.results[0]
        out = first.views[0]
        if first.combiner is None or isinstance(first.combiner, Combiner):
            return compute
        fitting = [b for b in self._others(compute) if _holds(b, out.buffer)]
        if not out.buffer.dtype.is_integer or not fitting or self.rng.random() < 0.3:
            combiner = self._user_combiner(out.buffer.dtype)
            return _with_first(compute, replace(first, combiner=combiner))
        other = self.rng.choice(fitting)
        second = View(other, out.index, out.mask)
        value = self.exprs(_inside(compute)).expr(other.dtype, 2)
        combiner = self._first_of_best(out.buffer.dtype, other.dtype)
        joined = Result((out, second), (first.values[0], value), combiner)
        return _with_first(compute, joined)

    def two_results(self, compute: Compute) -> Compute:
        """Adds a result in another buffer, perhaps at a loaded place."""
        fitting = self._others(compute)
        if not fitting:
            return compute
        buffer = self.rng.choice(fitting)
        numbers = _integers(compute)
        inside = self.exprs(_inside(compute))
        index = inside.index(buffer.shape, 2)
        if numbers and self.rng.random() < 0.6:
            index = self._loaded(buffer, compute, numbers)[1]
        value = inside.expr(buffer.dtype, 2)
        # Sums of floats would depend on the schedule's order: min and max do not.
        named = ("add", "min", "max") if buffer.dtype.is_integer else ("min", "max")
        result = Result((View(buffer, index),), (value,), self.rng.choice(named))
        return replace(compute, results=(*compute.results, result))

    def in_order(self, compute: Compute) -> Compute:
        """Makes some dims ordered, and perhaps adds an operand that reads earlier results."""
        if not compute.dims or compute.is_ordered:
            return compute
        dims = [Dim(d.var, d.extent, self.rng.random() < 0.6) for d in compute.dims]
        changed = replace(compute, dims=tuple(dims))
        first = compute.results[0]
        out = first.views[0]
        free = {d.var for d in dims if not d.ordered}
        places = {i for i in out.index if isinstance(i, Var)}
        if len(first.views) > 1 or not free <= places or self.rng.random() < 0.2:
            return changed
        if isinstance(first.combiner, Combiner) or not changed.is_ordered:
            return changed
        ordered = self.exprs([d.var for d in dims if d.ordered])
        index = tuple(
            part if part in free else ordered.expr(s64, 2) % size
            for part, size in zip(out.index, out.buffer.shape, strict=True)
        )
        operand = Operand(var(self.name("e"), out.buffer.dtype), View(out.buffer, index))
        value = binary("max", first.values[0], operand.var)
        changed = replace(changed, operands=(*compute.operands, operand))
        return _with_first(changed, replace(first, values=(value,)))

    def promised(self, compute: Compute) -> Compute:
        """Adds the promise ``unique``, where each point has its own element."""
        first = compute.results[0]
        dims = {d.var for d in compute.dims}
        if first.combiner is not None or not dims <= mentioned(compute, first.views[0]):
            return compute
        return _with_first(compute, replace(first, unique=True))

    def _others(self, compute: Compute) -> list[Buffer]:
        """Writable buffers that ``compute`` does not use."""
        used = _written(compute) | {o.view.buffer for o in compute.operands}
        for result in compute.results:
            used |= {load.buffer for value in result.values for load in loads_in(value)}
        return [b for b in self.writable if b not in used and 0 not in b.shape]

    def _loaded(
        self, buffer: Buffer, compute: Compute, numbers: Sequence[Var]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        index = list(self.exprs([d.var for d in compute.dims]).index(buffer.shape, 1))
        if index:
            position = self.rng.randrange(len(index))
            place = cast(s64, self.rng.choice(numbers))
            index[position] = (place + index[position]) % buffer.shape[position]
        return buffer, tuple(index)

    def _user_combiner(self, type: DType) -> Combiner:
        a, b = var("a", type), var("b", type)
        low, high = _ends(type)
        choices: list[tuple[Expr, Const]] = [(maximum(a, b), low), (minimum(a, b), high)]
        if type.is_integer:
            choices += [(a + b, const(0, type)), (a * b, const(1, type))]
        value, identity = self.rng.choice(choices)
        return Combiner(self.name("own"), (a,), (b,), (identity,), (value,))

    def _first_of_best(self, type: DType, other: DType) -> Combiner:
        """The greatest first value, and the least second value among those that come with it."""
        v, w, p, q = var("v", type), var("w", type), var("p", other), var("q", other)
        better = (v < w) | (binary("eq", v, w) & (q < p))
        values = (select(better, w, v), select(better, q, p))
        identity = (_ends(type)[0], _ends(other)[1])
        return Combiner(self.name("own"), (v, p), (w, q), identity, values)


def _ends(type: DType) -> tuple[Const, Const]:
    """The least and the greatest value of a type."""
    return const(type.lowest, type), const(type.highest, type)


def _holds(buffer: Buffer, other: Buffer) -> bool:
    """Whether ``buffer`` has an integer for each element of ``other``, at the same index."""
    fits = len(buffer.shape) == len(other.shape) and all(
        size >= least for size, least in zip(buffer.shape, other.shape, strict=True)
    )
    return buffer.dtype.is_integer and fits


def _with_first(compute: Compute, result: Result) -> Compute:
    return replace(compute, results=(result, *compute.results[1:]))


def _written(compute: Compute) -> set[Buffer]:
    return {view.buffer for view in compute.outputs}


def _inside(compute: Compute) -> list[Var]:
    """The variables in scope of values."""
    return [*(d.var for d in compute.dims), *(o.var for o in compute.operands)]


def _integers(compute: Compute) -> list[Var]:
    return [o.var for o in compute.operands if o.var.type.is_integer]
