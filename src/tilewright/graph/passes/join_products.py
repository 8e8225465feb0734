"""Products of one factor with several constants become one product."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import inf, prod

from tilewright.dtypes import DType
from tilewright.graph.passes.fold_constants import MOST_POINTS
from tilewright.graph.passes.loaded import loaded
from tilewright.graph.passes.side_by_side import Alike, Join, Product, with_joins
from tilewright.graph.predicting import Deciding, Parts, compared
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.load import Load
from tilewright.ir.stmt import Block, Compute, Kernel
from tilewright.ir.visit import loads_in, postorder, rewrite_loads, substitute, variables
from tilewright.schedule.queries.flow import whole


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
    ``fixed`` are the buffers that count as constants instead of those beside the graph.
    """
    if deciding is None or kernel.scalars:
        return kernel
    return _Products(kernel, deciding, fixed).joined()


# What a product that might be joined must not be, as one of several that read the same factor.
RULES = (
    "the caller gets its result",
    "its other factor is no constant",
    "its weights are read by others, too",
    "what is no compute reads its result",
    "it begins or adds up in another way",
    "the constants are too large to be put together now",
)


class _Products:
    def __init__(self, kernel: Kernel, deciding: Deciding, fixed: Collection[Buffer]) -> None:
        self.kernel, self.deciding = kernel, deciding
        self.parts = Parts(kernel, deciding)
        self.values = self.parts.values
        beside = {array.buffer for array in kernel.arrays if array.digest in kernel.constants}
        self.constants = {*fixed} or beside
        # What is fixed is put together by a program of its own.
        self.points: float = inf if fixed else MOST_POINTS
        self.parts.constants |= self.constants
        self.params = {array.buffer for array in kernel.arrays}
        self.names = {item.name for item in (*kernel.params, *self.values.allocated)}

    def joined(self) -> Kernel:
        """The kernel with all products that are better as one."""
        joins = [join for those in self._sets() if (join := self._join(those)) is not None]
        if not joins:
            return self.kernel
        stmts = with_joins(list(enumerate(self.values.stmts)), joins)
        return replace(self.kernel, body=Block(tuple(stmts)))

    def _sets(self) -> Iterator[list[Product]]:
        """Products of the same factor that may become one."""
        by_factor: dict[object, list[tuple[Product, str]]] = {}
        for n, stmt in enumerate(self.values.stmts):
            if isinstance(stmt, Compute):
                for key, product, why in self._of(n, stmt):
                    by_factor.setdefault(key, []).append((product, why))
        for members in by_factor.values():
            if len(members) > 1:
                for product, why in members:
                    if why:
                        self.deciding.decide(product.name, "apart", why)
                yield [product for product, why in members if not why]

    def _of(self, n: int, main: Compute) -> Iterator[tuple[object, Product, str]]:
        """``main`` as a product, with what tells its first factor, and the rule that it breaks."""
        if len(main.results) != 1 or main.results[0].combiner != "add" or main.is_ordered:
            return
        out = main.out
        makers = self.values.made.get(out.buffer, ())
        kept = replace(main, dims=tuple(d for d in main.dims if d.var in index_variables(out)))
        begins = len(makers) == 2 and makers[1] == n and self._plain(makers[0]) is not None
        if not begins or whole(kept, out) is None:
            return
        value, inner = self._factors(n, main)
        loads = dict.fromkeys(loads_in(value))
        for axis, expr in enumerate(out.index):
            of_own = [load for load in loads if isinstance(expr, Var) and expr in variables(load)]
            size = out.buffer.sizes[axis]
            if len(of_own) != 1 or not isinstance(size, int):
                continue
            weight = of_own[0].buffer
            others = (load.buffer for load in loads if load is not of_own[0])
            varies = any(other not in self.parts.constants for other in others)
            if not varies or weight not in self.constants | self.params:
                continue
            if weight not in self.constants and weight in self.parts.constants:
                continue  # it is joined later
            before = [(n, k) for n, index in inner for k, at in enumerate(index) if at is expr]
            later = [(position, axis) for position in self._following(out.buffer, axis)]
            positions, places = zip(*before, *((n, axis) for n in makers), *later, strict=True)
            computes = tuple(map(self._compute, positions))
            product = Product(positions, places, computes, len(before) + 2, weight, size)
            key = (_key(value, of_own[0], out.buffer.dtype), product.base)
            yield key, product, self._broken(product)

    def _factors(self, n: int, main: Compute) -> tuple[Expr, list[tuple[int, tuple[Expr, ...]]]]:
        """What ``main``, at position ``n``, adds up; if a compute makes all of that for it alone,
        what that computes, and its position with the place of its result."""
        (result,) = loaded(main)
        value = result.values[0]
        if not isinstance(value, Load) or value.mask is not None:
            return value, []
        makers = self.values.made.get(value.buffer, ())
        alone = value.buffer in self.values.allocated and len(makers) == 1
        if not alone or self.values.readers.get(value.buffer) != [n]:
            return value, []
        compute = self._plain(makers[0])
        if compute is None:
            return value, []
        names = {
            old: new
            for old, new in zip(compute.out.index, value.index, strict=True)
            if isinstance(old, Var)
        }
        inner = substitute(loaded(compute)[0].values[0], names)
        return inner, [(makers[0], value.index)]

    def _following(self, buffer: Buffer, axis: int) -> Iterator[int]:
        """The positions of what follows element by element and alone reads what is before it."""
        values = self.values
        while buffer in values.allocated:
            readers = [n for n in values.readers.get(buffer, ()) if n not in values.made[buffer]]
            compute = self._plain(readers[0]) if len(readers) == 1 else None
            if compute is None:
                return
            (result,) = loaded(compute)
            places = {x.index for x in loads_in(result.values[0]) if x.buffer is buffer}
            out = compute.out.buffer
            if places != {compute.out.index} or values.made.get(out) != (readers[0],):
                return
            if out not in values.allocated or out.sizes != buffer.sizes:
                return
            yield readers[0]
            buffer = out

    def _broken(self, product: Product) -> str:
        """The first of the rules that ``product`` breaks; empty if none."""
        values = self.values
        if product.results[product.base - 1] not in values.allocated:
            return RULES[0]
        if product.weight not in self.constants:
            return RULES[1]
        if len(values.readers[product.weight]) > 1:
            return RULES[2]
        readers = (values.stmts[n] for n in values.readers.get(product.results[-1], ()))
        return "" if all(isinstance(reader, Compute) for reader in readers) else RULES[3]

    def _plain(self, n: int) -> Compute | None:
        """The compute at position ``n``, if it gives each element of one result once."""
        stmt = self.values.stmts[n]
        if not isinstance(stmt, Compute) or len(stmt.outputs) != 1 or stmt.is_ordered:
            return None
        order = whole(stmt, stmt.out)
        once = order is not None and len(order) == len(stmt.dims)
        return stmt if once and stmt.results[0].combiner is None else None

    def _compute(self, n: int) -> Compute:
        stmt = self.values.stmts[n]
        assert isinstance(stmt, Compute)
        return stmt

    def _join(self, those: list[Product]) -> Join | None:
        """``those`` that do the same as one product, if it is predicted to take less time."""
        if len(those) < 2:
            return None
        first, alike = those[0], those[:1]
        for product in those[1:]:
            if self._alike([first, product]).join(first.base) is None:
                self.deciding.decide(product.name, "apart", RULES[4])
            else:
                alike.append(product)
        if len(alike) < 2:
            return None
        counts = range(len(first.steps), first.base - 1, -1)
        join = next(j for n in counts if (j := self._alike(alike).join(n)) is not None)
        what = ", ".join(product.name for product in alike)
        if any(prod(slot.buffer.shape) > self.points for slot in join.slots):
            self.deciding.decide(what, "apart", RULES[5])
            return None
        times = self._times(alike, join)
        if times is None:
            self.deciding.decide(what, "apart", "no time is predicted for one of them")
            return None
        one, apart = times
        why = compared(("one product", one), ("apart", apart))
        self.deciding.decide(what, "one product" if one < apart else "apart", why)
        if one >= apart:
            return None
        self.names |= join.names
        return join

    def _alike(self, those: Sequence[Product]) -> Alike:
        return Alike(self.values, self.constants, self.names, those)

    def _times(self, those: Sequence[Product], join: Join) -> tuple[float, float] | None:
        """The seconds as one product and apart, with all that runs in the kernels of these now."""
        members = self.parts.around(s for product in those for s in product.steps)
        handed = self.parts.handed(members)
        stmts = [(n, self.values.stmts[n]) for n in members]
        apart = self.parts.seconds([stmt for _, stmt in stmts], handed)
        slots = {slot.buffer for slot in join.slots}
        results = {new for old, (new, _, _) in join.instead.items() if old in handed}
        after = list(with_joins(stmts, [replace(join, slots=())]))
        one = self.parts.seconds(after, handed | slots | results, slots)
        return None if one is None or apart is None else (one, apart)


def _key(value: Expr, weight: Load, sums: DType) -> object:
    """What tells a factor, whatever the dims are called along which it is read: the product
    ``value`` without its ``weight``."""
    held = var("weight", weight.type)
    rest = rewrite_loads(value, lambda node: held if node is weight else node)
    result = [v for v in postorder(rest) if isinstance(v, Var) and v is not held]
    names: dict[Var, Expr] = {v: var(f"d{n}") for n, v in enumerate(dict.fromkeys(result))}
    return (sums, substitute(rest, names))
