"""Products of one factor with several constants become one product."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tilewright.dtypes import DType
from tilewright.graph.passes.loaded import loaded, with_loads, with_results
from tilewright.graph.predicting import Deciding, Parts, compared
from tilewright.ir.buffer import Buffer, Layout, Part, Size, part, product
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Expr, Var, const, var
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Result, Stmt, View
from tilewright.ir.visit import loads_in, rewrite_loads, substitute, variables, walk
from tilewright.schedule.queries.flow import whole
from tilewright.schedule.queries.place import fresh
from tilewright.simplify import simplify
from tilewright.tensor.places import axes
from tilewright.tensor.tensor import domain


def join_products(
    kernel: Kernel, deciding: Deciding | None, fixed: Collection[Buffer] = ()
) -> Kernel:
    """Products of one factor with constants as one, where less time is predicted for it
    (``deciding``): its result has theirs side by side.

        compute q(m, n): q[m, n] = 0.0
        compute q(m, n, k): q[m, n] add= x[m, k] * wq[k, n]
        compute p(m, n): p[m, n] = 0.0
        compute p(m, n, k): p[m, n] add= x[m, k] * wp[k, n]
    ->  compute w(k, n): w[k, n] = wq[k, n]
        compute w(k, n): w[k, n + 64] = wp[k, n]
        compute q_p(m, n): r[m, n] = 0.0
        compute q_p(m, n, k): r[m, n] add= x[m, k] * w[k, n]

    Who reads ``p[m, n]`` reads ``r[m, n + 64]``. What follows element by element comes along where
    all do the same, with constants of their own: biases, activations. `fold_constants` makes ``w``.
    ``fixed`` are buffers that count as constants, too.
    """
    if deciding is None or kernel.scalars:
        return kernel
    return _Products(kernel, deciding, fixed).joined()


@dataclass(frozen=True, eq=False)
class _Product:
    """A sum of products: the positions of what it begins with, of itself, and of what follows
    element by element; these ``computes``; the constant factor, and the dim of the result that
    only that has, of ``size``."""

    steps: tuple[int, ...]
    computes: tuple[Compute, ...]
    weight: Buffer
    axis: int
    size: int

    @property
    def name(self) -> str:
        return self.computes[1].name

    @cached_property
    def results(self) -> list[Buffer]:
        return [each.out.buffer for each in self.computes]


@dataclass(frozen=True, eq=False)
class _Slot:
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
        mine, others = self.result, other.result
        return (self.extents, self.order, mine.values, mine.combiner) == (
            *(other.extents, other.order, others.values, others.combiner),
        ) and mine.views[0].index == others.views[0].index

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
class _Join:
    """Products that became one: ``slots`` are the constants, ``stmts`` it, at position ``at``.
    ``instead`` says of their results what is read then, along which axis, and how far in it."""

    at: int
    slots: tuple[_Slot, ...]
    stmts: tuple[Stmt, ...]
    gone: frozenset[int]
    instead: Mapping[Buffer, tuple[Buffer, int, int]]


# What a product that might be joined must not be, as one of several that read the same factor.
RULES = (
    "the caller gets its result",
    "its other factor is no constant",
    "its weights are read by others, too",
    "what is no compute reads its result",
    "it begins or adds up in another way",
)


class _Products:
    def __init__(self, kernel: Kernel, deciding: Deciding, fixed: Collection[Buffer]) -> None:
        self.kernel, self.deciding = kernel, deciding
        self.parts = Parts(kernel, deciding)
        self.values = self.parts.values
        self.constants = {each.buffer for each in kernel.arrays if each.digest is not None}
        self.constants |= {*fixed}
        self.params = {each.buffer for each in kernel.arrays}
        self.names = {each.name for each in (*kernel.params, *self.values.allocated)}

    def joined(self) -> Kernel:
        """The kernel with all products that are better as one."""
        joins = [join for those in self._sets() if (join := self._join(those)) is not None]
        if not joins:
            return self.kernel
        stmts = _applied(list(enumerate(self.values.stmts)), joins)
        return replace(self.kernel, body=Block(tuple(stmts)))

    def _sets(self) -> Iterator[list[_Product]]:
        """Products of the same factor that may become one."""
        by_factor: dict[object, list[tuple[_Product, str]]] = {}
        for n, stmt in enumerate(self.values.stmts):
            if isinstance(stmt, Compute):
                for key, product, why in self._of(n, stmt):
                    by_factor.setdefault(key, []).append((product, why))
        for found in by_factor.values():
            if len(found) > 1:
                for product, why in found:
                    if why:
                        self.deciding.decide(product.name, "apart", why)
                yield [product for product, why in found if not why]

    def _of(self, n: int, main: Compute) -> Iterator[tuple[object, _Product, str]]:
        """``main`` as a product, with what tells its first factor, and the rule that it breaks."""
        if len(main.results) != 1 or main.results[0].combiner != "add" or main.is_ordered:
            return
        out = main.out
        makers = self.values.made.get(out.buffer, ())
        kept = replace(main, dims=tuple(d for d in main.dims if d.var in index_variables(out)))
        if len(makers) != 2 or makers[1] != n or whole(kept, out) is None:
            return
        loads = list(dict.fromkeys(loads_in(loaded(main)[0].values[0])))
        if len(loads) != 2 or not self.values.is_value(out.buffer):
            return
        for left, right in (loads, loads[::-1]):
            own = [v for v in out.index if isinstance(v, Var) and v not in _variables(left)]
            given = self.values.is_value(left.buffer) and left.buffer not in self.constants
            if not given or len(own) != 1 or right.buffer not in {*self.constants, *self.params}:
                continue
            axis = out.index.index(own[0])
            size = out.buffer.sizes[axis]
            if not isinstance(size, int):
                continue
            steps = (*makers, *self._following(out.buffer, axis))
            computes = tuple(map(self._compute, steps))
            product = _Product(steps, computes, right.buffer, axis, size)
            yield _key(left, out.buffer.dtype), product, self._broken(product)

    def _following(self, buffer: Buffer, axis: int) -> Iterator[int]:
        """The positions of what follows element by element and alone reads what is before it."""
        values = self.values
        while buffer in values.allocated:
            readers = [n for n in values.readers.get(buffer, ()) if n not in values.made[buffer]]
            stmt = values.stmts[readers[0]] if len(readers) == 1 else None
            if not isinstance(stmt, Compute) or len(stmt.outputs) != 1 or stmt.is_ordered:
                return
            (result,) = loaded(stmt)
            places = {x.index for x in loads_in(result.values[0]) if x.buffer is buffer}
            order = whole(stmt, stmt.out)
            out = stmt.out.buffer
            plain = result.combiner is None and order is not None and len(order) == len(stmt.dims)
            if not plain or places != {stmt.out.index} or values.made.get(out) != (readers[0],):
                return
            if out not in values.allocated or out.sizes != buffer.sizes:
                return
            yield readers[0]
            buffer = out

    def _broken(self, product: _Product) -> str:
        """The first of the rules that ``product`` breaks; empty if none."""
        values = self.values
        if product.results[0] not in values.allocated:
            return RULES[0]
        if product.weight not in self.constants:
            return RULES[1]
        if len(values.readers[product.weight]) > 1:
            return RULES[2]
        readers = (values.stmts[n] for n in values.readers.get(product.results[-1], ()))
        return "" if all(isinstance(each, Compute) for each in readers) else RULES[3]

    def _compute(self, n: int) -> Compute:
        stmt = self.values.stmts[n]
        assert isinstance(stmt, Compute)
        return stmt

    def _join(self, those: list[_Product]) -> _Join | None:
        """``those`` that do the same as one product, if it is predicted to take less time."""
        if len(those) < 2:
            return None
        first, alike = those[0], those[:1]
        for each in those[1:]:
            if _Alike(self, [first, each]).join(2) is None:
                self.deciding.decide(each.name, "apart", RULES[4])
            else:
                alike.append(each)
        if len(alike) < 2:
            return None
        counts = range(len(first.steps), 1, -1)
        join = next(j for n in counts if (j := _Alike(self, alike).join(n)) is not None)
        times = self._times(alike, join)
        what = ", ".join(each.name for each in alike)
        if times is None:
            self.deciding.decide(what, "apart", "no time is predicted for one of them")
            return None
        one, apart = times
        why = compared(("one product", one), ("apart", apart))
        self.deciding.decide(what, "one product" if one < apart else "apart", why)
        return join if one < apart else None

    def _times(self, those: Sequence[_Product], join: _Join) -> tuple[float, float] | None:
        """The seconds as one product and apart, with all that runs in the kernels of these now."""
        members = self.parts.around(s for each in those for s in each.steps)
        handed = self.parts.handed(members)
        stmts = [(n, self.values.stmts[n]) for n in members]
        apart = self.parts.seconds([stmt for _, stmt in stmts], handed)
        slots = {slot.buffer for slot in join.slots}
        results = {new for old, (new, _, _) in join.instead.items() if old in handed}
        after = list(_applied(stmts, [replace(join, slots=())]))
        one = self.parts.seconds(after, handed | slots | results, slots)
        return None if one is None or apart is None else (one, apart)


class _Alike:
    """Products that are the same but for their constants, as one."""

    def __init__(self, among: _Products, those: Sequence[_Product]) -> None:
        self.among, self.those = among, those
        self.total = sum(each.size for each in those)
        self.names = set(among.names)

    def join(self, count: int) -> _Join | None:
        """The first ``count`` steps of all as one; None where they are not the same."""
        first = self.those[0]
        if any(len(each.steps) < count for each in self.those):
            return None
        results = [_longer(b, first.axis, self.total, self.names) for b in first.results[:count]]
        results[1] = results[0]
        slots: dict[tuple[int, int], _Slot] = {}
        steps: list[_Step] = []
        for each in self.those:
            for n in range(count):
                step = self._step(each, n, results, slots)
                if step is None or (each is not first and not step.same(steps[n])):
                    return None
                steps += [step] if each is first else []
        if any(len(slot.parts) < len(self.those) for slot in slots.values()):
            return None
        self.among.names |= self.names
        name = "_".join(each.name for each in self.those)
        offsets = [sum(each.size for each in self.those[:n]) for n in range(len(self.those))]
        return _Join(
            first.steps[1],
            tuple(slots.values()),
            tuple(stmt for n, s in enumerate(steps) for stmt in s.made(name, n != 1, self.total)),
            frozenset(n for each in self.those for n in each.steps[:count]),
            {
                each.results[count - 1]: (results[-1], each.axis, offset)
                for each, offset in zip(self.those, offsets, strict=True)
            },
        )

    def _step(
        self,
        each: _Product,
        n: int,
        results: Sequence[Buffer],
        slots: dict[tuple[int, int], _Slot],
    ) -> _Step | None:
        """Step ``n`` of ``each`` in the joined ``results``; None where that cannot be."""
        compute = each.computes[n]
        own = compute.out.index[each.axis]
        if not isinstance(own, Var) or compute.out.mask is not None:
            return None
        ordinal, fits = 0, True

        def other(node: Load) -> Expr:
            nonlocal ordinal, fits
            if node.buffer in each.results:
                return load(results[each.results.index(node.buffer)], node.index, node.mask)
            if own not in _variables(node):
                fits = fits and self._is_there(node.buffer)
                return node
            slot = self._slot(each, node, own, slots, (n, ordinal))
            ordinal += 1
            fits = fits and slot is not None
            return node if slot is None else load(slot.buffer, node.index)

        (old,) = loaded(compute)
        value = rewrite_loads(old.values[0], other)
        names: dict[Var, Expr] = {dim.var: var(f"d{k}") for k, dim in enumerate(compute.dims)}
        index = tuple(substitute(expr, names) for expr in compute.out.index)
        result = replace(old, views=(View(results[n], index),), values=(substitute(value, names),))
        dims = tuple(None if dim.var is own else dim.extent for dim in compute.dims)
        order = _order(each.results[n])
        return _Step(compute, dims, order, result) if fits and order is not None else None

    def _is_there(self, read: Buffer) -> bool:
        """Whether ``read`` is a value by the time of the first product."""
        values = self.among.values
        made = values.made.get(read)
        first = self.those[0].steps[1]
        return values.is_value(read) and (made is None or made[-1] < first)

    def _slot(
        self,
        each: _Product,
        node: Load,
        own: Var,
        slots: dict[tuple[int, int], _Slot],
        key: tuple[int, int],
    ) -> _Slot | None:
        """What takes the place of the constant that ``node`` loads along the dim ``own``."""
        old = node.buffer
        axes_of = [n for n, place in enumerate(node.index) if own in variables(place)]
        if old not in self.among.constants or node.mask is not None or len(axes_of) != 1:
            return None
        (axis,) = axes_of
        order = _order(old)
        if node.index[axis] is not own or old.sizes[axis] != each.size or order is None:
            return None
        if not self._is_there(old):
            return None
        if each is self.those[0]:
            slots[key] = _Slot(_longer(old, axis, self.total, self.names), axis, [old])
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


def _longer(old: Buffer, axis: int, size: int, names: set[str]) -> Buffer:
    """A buffer as ``old`` with ``size`` elements along ``axis``, under a name of its own."""
    name = fresh(f"{old.name}_joined", names)
    names.add(name)
    sizes = tuple(size if n == axis else each for n, each in enumerate(old.sizes))
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


def _applied(stmts: Sequence[tuple[int, Stmt]], joins: Sequence[_Join]) -> Iterator[Stmt]:
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
        return load(new, index, node.mask)

    for n, stmt in stmts:
        found: list[Stmt] = []
        if n in at:
            found += [made for slot in at[n].slots for made in _beside(slot)]
            found += at[n].stmts
        if n not in gone and not (isinstance(stmt, Allocate) and stmt.buffer in removed):
            found.append(stmt)
        for each in found:
            yield with_loads(each, other) if isinstance(each, Compute) else each


def _beside(slot: _Slot) -> Iterator[Stmt]:
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


def _key(left: Load, sums: DType) -> object:
    """What tells a factor, whatever the dims are called along which it is read."""
    parts = (*left.index, *(() if left.mask is None else (left.mask,)))
    found = dict.fromkeys(v for each in parts for v in walk(each) if isinstance(v, Var))
    names: dict[Var, Expr] = {v: var(f"d{n}") for n, v in enumerate(found)}
    return (left.buffer, sums, left.mask is None, *(substitute(each, names) for each in parts))


def _variables(node: Load) -> frozenset[Var]:
    found = frozenset[Var]().union(*map(variables, node.index))
    return found if node.mask is None else found | variables(node.mask)
