"""Products that are the same but for their constants, side by side as one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_

from tilewright.graph.passes.loaded import loaded, with_loads, with_results
from tilewright.graph.passes.values import Values
from tilewright.ir.buffer import Buffer, Layout, Part, Size, part, product
from tilewright.ir.expr import Expr, Var, const, var
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Allocate, Compute, Dim, Result, Stmt, View
from tilewright.ir.visit import rewrite_loads, substitute, variables
from tilewright.schedule.queries.place import fresh
from tilewright.simplify import simplify
from tilewright.tensor.places import axes
from tilewright.tensor.tensor import domain


@dataclass(frozen=True, eq=False)
class Product:
    """A sum of products as computes: what makes the products, if that is apart; what it begins
    with; itself (these are ``base``); and what follows element by element. They are at the
    positions ``steps``, and the dim of each result that only the constant ``weight`` has, of
    ``size``, is the one of ``axes``."""

    steps: tuple[int, ...]
    axes: tuple[int, ...]
    computes: tuple[Compute, ...]
    base: int
    weight: Buffer
    size: int

    @property
    def name(self) -> str:
        return self.computes[self.base - 1].name

    @property
    def at(self) -> int:
        """The position of what multiplies."""
        return self.steps[0 if self.base > 2 else 1]

    @cached_property
    def results(self) -> list[Buffer]:
        return [compute.out.buffer for compute in self.computes]


@dataclass(frozen=True, eq=False)
class Slot:
    """What takes the place of ``parts``, which lie in it side by side along ``axis``."""

    buffer: Buffer
    axis: int
    parts: list[Buffer]


@dataclass(frozen=True, eq=False)
class _Step:
    """A compute with its dims by number: the extents of those (None: the own one of its product),
    the order of its result in memory, and the result in the joined buffers."""

    compute: Compute
    extents: tuple[Expr | None, ...]
    order: tuple[int, ...]
    result: Result

    def same(self, other: _Step) -> bool:
        """Whether it does the same, in memory of its own."""
        mine, others = (
            (*step.extents, *step.result.values, *step.result.views[0].index)
            for step in (self, other)
        )
        how = (self.order, self.result.combiner) == (other.order, other.result.combiner)
        return how and len(mine) == len(others) and all(map(is_, mine, others))

    def made(self, name: str, first: bool, total: int) -> Iterator[Stmt]:
        """The statements for all products, along ``total``; ``first``: its result is new."""
        if first:
            yield Allocate(self.result.views[0].buffer)
        dims = tuple(
            Dim(var(f"d{n}"), const(total) if extent is None else extent)
            for n, extent in enumerate(self.extents)
        )
        yield with_results(replace(self.compute, name=name, dims=dims), (self.result,))


@dataclass(frozen=True, eq=False)
class Join:
    """Products that became one: ``slots`` are the constants, ``stmts`` it, at position ``at``.
    ``instead`` says of their results what is read then, along which axis, and how far in it."""

    at: int
    slots: tuple[Slot, ...]
    stmts: tuple[Stmt, ...]
    gone: frozenset[int]
    instead: Mapping[Buffer, tuple[Buffer, int, int]]

    @property
    def names(self) -> set[str]:
        """Those of its buffers."""
        generator = (stmt.buffer for stmt in self.stmts if isinstance(stmt, Allocate))
        return {buffer.name for buffer in (*generator, *(slot.buffer for slot in self.slots))}


class Alike:
    """Products that are the same but for their constants, as one."""

    def __init__(
        self,
        values: Values,
        constants: Collection[Buffer],
        names: Collection[str],
        those: Sequence[Product],
    ) -> None:
        self.values, self.constants, self.those = values, constants, those
        self._others = names
        self.total = sum(member.size for member in those)

    def join(self, count: int) -> Join | None:
        """The first ``count`` steps of all as one; None where they are not the same."""
        self._names = set(self._others)
        first = self.those[0]
        if any(len(member.steps) < count for member in self.those):
            return None
        results: list[Buffer] = []
        for n, old in enumerate(first.results[:count]):
            again = n > 0 and old is first.results[n - 1]
            longer = results[-1] if again else self._longer(old, first.axes[n])
            results.append(longer)
        new = [n == 0 or result is not results[n - 1] for n, result in enumerate(results)]
        slots: dict[tuple[int, int], Slot] = {}
        steps: list[_Step] = []
        for member in self.those:
            for n in range(count):
                step = self._step(member, n, results, slots)
                if step is None or (member is not first and not step.same(steps[n])):
                    return None
                steps += [step] if member is first else []
        if any(len(slot.parts) < len(self.those) for slot in slots.values()):
            return None
        name = "_".join(member.name for member in self.those)
        offsets = [sum(member.size for member in self.those[:n]) for n in range(len(self.those))]
        return Join(
            first.at,
            tuple(slots.values()),
            tuple(stmt for n, s in enumerate(steps) for stmt in s.made(name, new[n], self.total)),
            frozenset(n for member in self.those for n in member.steps[:count]),
            {
                member.results[count - 1]: (results[-1], member.axes[count - 1], offset)
                for member, offset in zip(self.those, offsets, strict=True)
            },
        )

    def _step(
        self,
        member: Product,
        n: int,
        results: Sequence[Buffer],
        slots: dict[tuple[int, int], Slot],
    ) -> _Step | None:
        """Step ``n`` of ``member`` in the joined ``results``; None where that cannot be."""
        compute = member.computes[n]
        place_index = compute.out.index[member.axes[n]]
        if not isinstance(place_index, Var) or compute.out.mask is not None:
            return None
        ordinal, fits = 0, True

        def other(node: Load) -> Expr:
            nonlocal ordinal, fits
            if node.buffer in member.results:
                place = member.results.index(node.buffer)
                fits = fits and _only_along(node, member.axes[place], place_index)
                return load(results[place], node.index, node.mask)
            if place_index not in variables(node):
                fits = fits and self._is_there(node.buffer)
                return node
            slot = self._slot(member, node, place_index, slots, (n, ordinal))
            ordinal += 1
            fits = fits and slot is not None
            return node if slot is None else load(slot.buffer, node.index)

        (old,) = loaded(compute)
        value = rewrite_loads(old.values[0], other)
        # Places in a result are others in what all have together.
        outside = rewrite_loads(old.values[0], lambda node: var("loaded", node.type))
        fits = fits and place_index not in variables(outside)
        names: dict[Var, Expr] = {dim.var: var(f"d{k}") for k, dim in enumerate(compute.dims)}
        index = tuple(substitute(expr, names) for expr in compute.out.index)
        result = replace(old, views=(View(results[n], index),), values=(substitute(value, names),))
        dims = tuple(None if dim.var is place_index else dim.extent for dim in compute.dims)
        order = _order(member.results[n])
        return _Step(compute, dims, order, result) if fits and order is not None else None

    def _is_there(self, read: Buffer) -> bool:
        """Whether ``read`` is a value by the time of the first product."""
        values = self.values
        makers = values.made.get(read)
        return values.is_value(read) and (makers is None or makers[-1] < self.those[0].at)

    def _slot(
        self,
        member: Product,
        node: Load,
        variable: Var,
        slots: dict[tuple[int, int], Slot],
        key: tuple[int, int],
    ) -> Slot | None:
        """What takes the place of the constant that ``node`` loads along the dim ``variable``."""
        old = node.buffer
        axis = next((n for n, place in enumerate(node.index) if place is variable), None)
        if old not in self.constants or node.mask is not None or axis is None:
            return None
        order = _order(old)
        if not _only_along(node, axis, variable) or old.sizes[axis] != member.size or order is None:
            return None
        if not self._is_there(old):
            return None
        if member is self.those[0]:
            slots[key] = Slot(self._longer(old, axis), axis, [old])
            return slots[key]
        slot = slots.get(key)
        if slot is None or slot.axis != axis or len(slot.parts) != self.those.index(member):
            return None
        like = slot.parts[0]
        sizes = [[s for n, s in enumerate(b.sizes) if n != axis] for b in (like, old)]
        if sizes[0] != sizes[1] or like.dtype is not old.dtype or _order(like) != order:
            return None
        slot.parts.append(old)
        return slot

    def _longer(self, old: Buffer, axis: int) -> Buffer:
        """A buffer as ``old`` with room for all along ``axis``, under a name of its own."""
        name = fresh(f"{old.name}_joined", self._names)
        self._names.add(name)
        sizes = tuple(self.total if n == axis else size for n, size in enumerate(old.sizes))
        parts: list[Part] = []
        stride: Size = 1
        for dim in reversed(_order(old) or range(len(sizes))):
            parts.append(part(dim, sizes[dim], stride))
            stride = product(stride, sizes[dim])
        return replace(old, name=name, sizes=sizes, layout=Layout(tuple(reversed(parts))))


def _order(buffer: Buffer) -> tuple[int, ...] | None:
    """The dims of ``buffer`` as they lie in memory; None where that is dense in no order."""
    order = tuple(place.dim for place in buffer.layout.parts)
    stride: Size = 1
    for place in reversed(buffer.layout.parts):
        if place.stride != stride or place.size != buffer.sizes[place.dim]:
            return None
        stride = product(stride, place.size)
    return order if sorted(order) == list(range(buffer.rank)) else None


def with_joins(stmts: Sequence[tuple[int, Stmt]], joins: Sequence[Join]) -> Iterator[Stmt]:
    """Numbered statements with ``joins`` in the place of what these are made of."""
    at = {join.at: join for join in joins}
    gone = {n for join in joins for n in join.gone}
    instead = {old: new for join in joins for old, new in join.instead.items()}
    removed = {b for n, s in stmts if n in gone and isinstance(s, Compute) for b in [s.out.buffer]}

    def other(node: Load) -> Expr:
        if node.buffer not in instead:
            return node
        new, axis, offset = instead[node.buffer]
        index = list(node.index)
        index[axis] = simplify(index[axis] + offset)
        return load(new, tuple(index), node.mask)

    for n, stmt in stmts:
        ordered: list[Stmt] = []
        if n in at:
            ordered += [stmt for slot in at[n].slots for stmt in _beside(slot)]
            ordered += at[n].stmts
        if n not in gone and not (isinstance(stmt, Allocate) and stmt.buffer in removed):
            ordered.append(stmt)
        for statement in ordered:
            yield with_loads(statement, other) if isinstance(statement, Compute) else statement


def _beside(slot: Slot) -> Iterator[Stmt]:
    """What makes ``slot`` of its parts."""
    yield Allocate(slot.buffer)
    offset = 0
    for n, old in enumerate(slot.parts):
        index: list[Expr] = [*axes(old.rank)]
        value = load(old, tuple(index))
        index[slot.axis] = simplify(index[slot.axis] + offset)
        result = Result((View(slot.buffer, tuple(index)),), (value,))
        compute = Compute(f"{slot.buffer.name}{n}", domain(old.shape), (), (result,))
        yield with_results(compute, (result,))
        offset += old.shape[slot.axis]


def _only_along(node: Load, axis: int, variable: Var) -> bool:
    """Whether ``variable`` is the place of ``node`` along ``axis``, and nowhere else in it."""
    places = node.index if node.mask is None else (*node.index, node.mask)
    return (
        node.index[axis] is variable and sum(variable in variables(place) for place in places) == 1
    )
