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
        return [each.out.buffer for each in self.computes]


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
            (*each.extents, *each.result.values, *each.result.views[0].index)
            for each in (self, other)
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
        own = (stmt.buffer for stmt in self.stmts if isinstance(stmt, Allocate))
        return {each.name for each in (*own, *(slot.buffer for slot in self.slots))}


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
        self.total = sum(each.size for each in those)

    def join(self, count: int) -> Join | None:
        """The first ``count`` steps of all as one; None where they are not the same."""
        self._names = set(self._others)
        first = self.those[0]
        if any(len(each.steps) < count for each in self.those):
            return None
        results: list[Buffer] = []
        for n, old in enumerate(first.results[:count]):
            again = n > 0 and old is first.results[n - 1]
            longer = results[-1] if again else self._longer(old, first.axes[n])
            results.append(longer)
        new = [n == 0 or each is not results[n - 1] for n, each in enumerate(results)]
        slots: dict[tuple[int, int], Slot] = {}
        steps: list[_Step] = []
        for each in self.those:
            for n in range(count):
                step = self._step(each, n, results, slots)
                if step is None or (each is not first and not step.same(steps[n])):
                    return None
                steps += [step] if each is first else []
        if any(len(slot.parts) < len(self.those) for slot in slots.values()):
            return None
        name = "_".join(each.name for each in self.those)
        offsets = [sum(each.size for each in self.those[:n]) for n in range(len(self.those))]
        return Join(
            first.at,
            tuple(slots.values()),
            tuple(stmt for n, s in enumerate(steps) for stmt in s.made(name, new[n], self.total)),
            frozenset(n for each in self.those for n in each.steps[:count]),
            {
                each.results[count - 1]: (results[-1], each.axes[count - 1], offset)
                for each, offset in zip(self.those, offsets, strict=True)
            },
        )

    def _step(
        self,
        each: Product,
        n: int,
        results: Sequence[Buffer],
        slots: dict[tuple[int, int], Slot],
    ) -> _Step | None:
        """Step ``n`` of ``each`` in the joined ``results``; None where that cannot be."""
        compute = each.computes[n]
        own = compute.out.index[each.axes[n]]
        if not isinstance(own, Var) or compute.out.mask is not None:
            return None
        ordinal, fits = 0, True

        def other(node: Load) -> Expr:
            nonlocal ordinal, fits
            if node.buffer in each.results:
                place = each.results.index(node.buffer)
                fits = fits and _only_along(node, each.axes[place], own)
                return load(results[place], node.index, node.mask)
            if own not in variables(node):
                fits = fits and self._is_there(node.buffer)
                return node
            slot = self._slot(each, node, own, slots, (n, ordinal))
            ordinal += 1
            fits = fits and slot is not None
            return node if slot is None else load(slot.buffer, node.index)

        (old,) = loaded(compute)
        value = rewrite_loads(old.values[0], other)
        # Places in a result are others in what all have together.
        outside = rewrite_loads(old.values[0], lambda node: var("loaded", node.type))
        fits = fits and own not in variables(outside)
        names: dict[Var, Expr] = {dim.var: var(f"d{k}") for k, dim in enumerate(compute.dims)}
        index = tuple(substitute(expr, names) for expr in compute.out.index)
        result = replace(old, views=(View(results[n], index),), values=(substitute(value, names),))
        dims = tuple(None if dim.var is own else dim.extent for dim in compute.dims)
        order = _order(each.results[n])
        return _Step(compute, dims, order, result) if fits and order is not None else None

    def _is_there(self, read: Buffer) -> bool:
        """Whether ``read`` is a value by the time of the first product."""
        values = self.values
        made = values.made.get(read)
        return values.is_value(read) and (made is None or made[-1] < self.those[0].at)

    def _slot(
        self,
        each: Product,
        node: Load,
        own: Var,
        slots: dict[tuple[int, int], Slot],
        key: tuple[int, int],
    ) -> Slot | None:
        """What takes the place of the constant that ``node`` loads along the dim ``own``."""
        old = node.buffer
        axis = next((n for n, place in enumerate(node.index) if place is own), None)
        if old not in self.constants or node.mask is not None or axis is None:
            return None
        order = _order(old)
        if not _only_along(node, axis, own) or old.sizes[axis] != each.size or order is None:
            return None
        if not self._is_there(old):
            return None
        if each is self.those[0]:
            slots[key] = Slot(self._longer(old, axis), axis, [old])
            return slots[key]
        slot = slots.get(key)
        if slot is None or slot.axis != axis or len(slot.parts) != self.those.index(each):
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
        sizes = tuple(self.total if n == axis else each for n, each in enumerate(old.sizes))
        parts: list[Part] = []
        stride: Size = 1
        for dim in reversed(_order(old) or range(len(sizes))):
            parts.append(part(dim, sizes[dim], stride))
            stride = product(stride, sizes[dim])
        return replace(old, name=name, sizes=sizes, layout=Layout(tuple(reversed(parts))))


def _order(buffer: Buffer) -> tuple[int, ...] | None:
    """The dims of ``buffer`` as they lie in memory; None where that is dense in no order."""
    order = tuple(each.dim for each in buffer.layout.parts)
    stride: Size = 1
    for each in reversed(buffer.layout.parts):
        if each.stride != stride or each.size != buffer.sizes[each.dim]:
            return None
        stride = product(stride, each.size)
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
        found: list[Stmt] = []
        if n in at:
            found += [made for slot in at[n].slots for made in _beside(slot)]
            found += at[n].stmts
        if n not in gone and not (isinstance(stmt, Allocate) and stmt.buffer in removed):
            found.append(stmt)
        for each in found:
            yield with_loads(each, other) if isinstance(each, Compute) else each


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


def _only_along(node: Load, axis: int, own: Var) -> bool:
    """Whether ``own`` is the place of ``node`` along ``axis``, and stands nowhere else in it."""
    places = node.index if node.mask is None else (*node.index, node.mask)
    return node.index[axis] is own and sum(own in variables(each) for each in places) == 1
