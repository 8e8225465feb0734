"""A scan in parts that are scanned at once, each from what the parts before it come to: work for
more threads than there are rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.expr import Binary, Expr, Select, Var, binary, const, select, var
from tilewright.ir.operators import identity
from tilewright.ir.stmt import Allocate, Compute, Dim, Kernel, Operand, Result, Stmt, View
from tilewright.ir.visit import substitute, variables
from tilewright.schedule.queries.identity import ASSOCIATIVE
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    dim_of,
    expanded,
    fresh,
    names_in,
    size_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_compute, asks, new_name, positive
from tilewright.schedule.records.transform import give, transform
from tilewright.schedule.reductions.carry import previous
from tilewright.schedule.reductions.partial_results import at_points, begun
from tilewright.simplify import simplify


@transform
@asks(compute=a_compute, parts=positive, name=new_name())
def divide_scan(kernel: Kernel, compute: str, dim: str, parts: int, name: str = "part") -> Kernel:
    """Scans along ``dim`` in ``parts`` parts at once.

        compute scan(i in 8, ordered k in 103):
          before = dst[i, k - 1 | 0 < k]
          x = src[i, k]
          dst[i, k] = before + x
    ->  divide_scan("scan", "k", 4)
        alloc scan_parts: f32[4, 8]
        compute scan_parts_init(part in 4, i in 8): scan_parts[part, i] = 0.0
        compute scan_total(part in 4, i in 8, k in 25):
          x = src[i, part*25 + k]
          scan_parts[part, i] add= x
        alloc scan_starts: f32[4, 8]
        compute scan_start(ordered part in 4, i in 8):
          before = scan_starts[part - 1, i | 0 < part]
          x = scan_parts[part - 1, i | 0 < part]
          scan_starts[part, i] = select(0 < part, before, 0.0) + select(0 < part, x, 0.0)
        compute scan(part in 4, i in 8, ordered k in 25):
          before = dst[i, part*25 + k - 1 | 0 < k]
          start = scan_starts[part, i]
          x = src[i, part*25 + k]
          dst[i, part*25 + k] = select(0 < k, before, start) + x
        compute scan_end(i in 8, ordered k in 3):
          before = dst[i, k + 99]
          x = src[i, k + 100]
          dst[i, k + 100] = before + x

    What is handed on is added, multiplied, or the smallest or largest so far: floats are rounded in
    another order than point by point. The compute reads its result at the point before alone
    (`previous`), and stores what it hands on. Among the results of the step, ``total`` is what each
    part comes to, and ``start``, a scan, what each begins with.
    """
    names = names_in(kernel)
    for stmt, _ in computes_named(kernel, compute, any_kind=True):
        if step_of(stmt, dim) is None:
            raise refusal(
                f"what '{compute}' hands on along '{dim}' cannot be grouped",
                stmt,
                "choose a running sum, product, maximum or minimum",
                why="it has to be the result of the point before, where 0 < "
                f"{dim}, added to (or multiplied by, or the larger or smaller one of it and) "
                "something else",
            )
        size = size_of(dim_of(stmt, dim))
        if size < 2 * parts:
            raise refusal(
                f"'{dim}' has no {parts} parts",
                stmt,
                "choose fewer parts",
                why=f"it has {size} points, and a part has 2 or more",
            )

    def made(stmt: Compute, place: Place) -> tuple[Stmt, ...]:
        return _Division(dim, parts, var(name), names[0] | place.names, names[1]).of(stmt)

    return expanded(kernel, compute, made)


@dataclass(frozen=True)
class Step:
    """What a scan does at each point: ``before`` and ``value`` by the operator ``combiner``, which
    begins with ``first``. ``known`` is what stands for ``before`` in the compute's value."""

    before: Operand
    known: Expr
    combiner: str
    value: Expr
    first: Expr


def step_of(compute: Compute, dim: str) -> Step | None:
    """What ``compute`` does along ``dim``, where its points can be grouped."""
    before = previous(compute, dim)
    if before is None or before.view.buffer.dtype is not compute.outputs[0].buffer.dtype:
        return None
    facts = Place().facts_with(compute.dims)
    later = simplify(const(0) < dim_of(compute, dim).var, facts)
    (value,) = compute.results[0].values
    if not isinstance(value, Binary) or value.op not in ASSOCIATIVE:
        return None
    for expr, other in ((value.a, value.b), (value.b, value.a)):
        first = _first(expr, before.var, later, facts)
        if first is not None and before.var not in variables(other):
            return Step(before, expr, value.op, other, first)
    return None


def _first(expr: Expr, before: Var, later: Expr, facts: Facts) -> Expr | None:
    """What ``expr`` is at the first point, where it is ``before`` at all ``later`` ones."""
    if expr is before:
        return const(0, before.type)  # what a view gives outside
    if not isinstance(expr, Select) or expr.a is not before or variables(expr.b):
        return None
    return expr.b if simplify(expr.condition, facts) is later else None


@dataclass(frozen=True)
class _Division:
    dim: str
    parts: int
    number: Var
    buffers: set[str]
    computes: set[str]

    def of(self, compute: Compute) -> tuple[Stmt, ...]:
        """What stands in the place of ``compute``."""
        dim, step = dim_of(compute, self.dim), step_of(compute, self.dim)
        assert step is not None
        size = size_of(dim) // self.parts
        rest = size_of(dim) - size * self.parts
        number = Dim(self.number, const(self.parts))
        kept = tuple(d for d in compute.dims if d is not dim)
        totals, starts = (self._memory(compute, end, kept) for end in ("parts", "starts"))
        at = (self.number, *(d.var for d in kept))

        part = at_points(compute, dim, self.number * size + dim.var, size)
        operands = tuple(o for o in part.operands if o.var is not step.before.var)
        value = substitute(step.value, {dim.var: self.number * size + dim.var})
        total = Compute(
            self._name(compute, "total"),
            (number, *(replace(d, ordered=False) for d in part.dims)),
            operands,
            (Result((View(totals, at),), (value,), step.combiner),),
        )
        begin = begun(total, [totals], self._name(compute, "parts_init"), (number, *kept))
        scan = _from_starts(compute, part, step, View(starts, at), dim)
        give("total", "compute", total.name)
        give("start", "compute", self._name(compute, "start"))
        stmts = [
            *begin,
            total,
            Allocate(starts),
            self._starts(compute, step, (totals, starts), (replace(number, ordered=True), *kept)),
            replace(scan, dims=(number, *scan.dims)),
        ]
        if rest:
            left = at_points(compute, dim, dim.var + size * self.parts, rest)
            stmts.append(replace(left, name=self._name(compute, "end")))
        return tuple(stmts)

    def _starts(
        self, compute: Compute, step: Step, memory: tuple[Buffer, Buffer], dims: tuple[Dim, ...]
    ) -> Compute:
        """What each part begins with: a scan over what they come to."""
        totals, starts = memory
        kept = tuple(d.var for d in dims[1:])
        later = const(0) < self.number
        earlier = (self.number - 1, *kept)
        taken = {dim.var.name for dim in dims}
        before, x = (var(fresh(stem, taken), starts.dtype) for stem in ("before", "x"))
        operands = (
            Operand(before, View(starts, earlier, later)),
            Operand(x, View(totals, earlier, later)),
        )
        nothing = const(identity(step.combiner, starts.dtype), starts.dtype)
        expr, more = select(later, before, step.first), select(later, x, nothing)
        value = binary(step.combiner, expr, more)
        results = (Result((View(starts, (self.number, *kept)),), (value,)),)
        return Compute(self._name(compute, "start"), dims, operands, results)

    def _memory(self, compute: Compute, end: str, kept: tuple[Dim, ...]) -> Buffer:
        sizes = (self.parts, *(size_of(dim) for dim in kept))
        return buffer(
            fresh(f"{compute.name}_{end}", self.buffers), compute.outputs[0].buffer.dtype, sizes
        )

    def _name(self, compute: Compute, end: str) -> str:
        return fresh(f"{compute.name}_{end}", self.computes)


def _from_starts(compute: Compute, part: Compute, step: Step, starts: View, dim: Dim) -> Compute:
    """The scan of each ``part``: at its first point, ``starts`` stand for the point before."""
    taken = {o.var.name for o in compute.operands} | {d.var.name for d in compute.dims}
    start = var(fresh("start", taken), starts.buffer.dtype)
    inside = const(0) < dim.var
    operands: list[Operand] = []
    for old, new in zip(compute.operands, part.operands, strict=True):
        if old is step.before:
            operands.append(replace(new, view=replace(new.view, mask=inside)))
            operands.append(Operand(start, starts))
        else:
            operands.append(new)
    (value,) = part.results[0].values
    assert isinstance(value, Binary)
    expr = select(inside, step.before.var, start)
    (old_value,) = compute.results[0].values
    assert isinstance(old_value, Binary)
    sides = (expr, value.b) if old_value.a is step.known else (value.a, expr)
    result = replace(part.results[0], values=(binary(step.combiner, *sides),))
    return replace(part, operands=tuple(operands), results=(result,))
