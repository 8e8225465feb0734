"""Contractions of any kernel, found by data flow, in the form that schedules go by.

    compute bias(m, h): hidden[m, h] = b[h]
    compute first(m, h, k): hidden[m, h] add= x[m, k] * w[k, h]
    compute relu(m, h): hidden[m, h] = max(hidden[m, h], 0.0)
->  alloc acc
    compute init(m, h): acc[m, h] = 0.0
    compute main(m, h, k): acc[m, h] add= a * b                  # a = x[m, k], b = w[k, h]
    compute epilogue(m, h): hidden[m, h] = max(b + acc, 0.0)     # b = b[h], acc = acc[m, h]

What the sums begin with is added at the end: the order of a sum is free. Elementwise computes that
alone read the sums, one after the other, become one expression. Those that make what a factor alone
reads come along, in front (`prologues`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod

from tilewright.dtypes import DType
from tilewright.facts.affine import affine
from tilewright.facts.usual import usual
from tilewright.ir.buffer import Buffer, Space, as_size, buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Const, Expr, Var, cast, const, var
from tilewright.ir.stmt import Allocate, Compute, Dim, Operand, Stmt, View
from tilewright.ir.visit import map_view, substitute, variables
from tilewright.layout.roles import Role, roles
from tilewright.schedule.queries.flow import Item, Items, is_only, whole
from tilewright.schedule.queries.identity import vanishes
from tilewright.schedule.queries.place import Place, claim, fresh
from tilewright.schedule.queries.prologues import prologues, with_prologues


@dataclass(frozen=True, eq=False)
class Contraction:
    """The positions of its items, and what takes their place."""

    members: frozenset[int]
    stmts: tuple[Stmt, ...]


def contractions(
    items: Sequence[Item],
    local: frozenset[Buffer],
    names: Set[str],
    taken: Set[int] = frozenset(),
) -> list[Contraction]:
    """Those among ``items`` that are not ``taken``, the largest first where they want the same
    items; ``local`` are the buffers that nothing else sees, ``names`` those of the others."""
    items, taken = Items(items), set(taken)
    finders: list[_Finder] = []
    sizes = {n: size for n, item in enumerate(items) if (size := points(item))}
    for n in sorted(sizes, key=lambda n: (-sizes[n], n)):
        finder = _Finder(items, local, names, n, taken)
        contraction = finder.find()
        if contraction is not None:
            finders.append(finder)
            taken |= contraction.members
    # What may follow one of them is no other's prologue.
    whole: list[Contraction] = []
    for finder in finders:
        whole.append(finder.with_prologues(taken))
        taken |= whole[-1].members
    return whole


def points(item: Item) -> int:
    """The points of a sum of products; 0 for anything else."""
    compute = item.simple
    if compute is None or compute.combiner != "add" or len(compute.operands) < 2:
        return 0
    factors = {operand.var for operand in compute.operands[:2]}
    if compute.out.buffer in {operand.view.buffer for operand in compute.operands}:
        return 0
    if not factors <= variables(compute.body) or whole(_kept(compute), compute.out) is None:
        return 0
    extents = {dim.var.name: usual(dim.extent) for dim in compute.dims}
    parts = roles(compute)
    reduced = [extents[name] for name, role in parts.items() if role is Role.K]
    again = [extents[name] for name, role in parts.items() if role in (Role.M, Role.N)]
    # Where all results have factors of their own, nothing is read again, and nothing to tile.
    if max(reduced, default=1) < 2 or max(again, default=1) < 2:
        return 0
    # What reads a vector again is one for a product only: other sums have nothing to pad with.
    products = any(vanishes(compute, operand.var) for operand in compute.operands[:2])
    if not products and not {Role.M, Role.N} <= set(parts.values()):
        return 0
    return prod(extents.values())


def _kept(compute: Compute) -> Compute:
    """``compute`` with the dims of its result only."""
    used = index_variables(compute.out)
    return replace(compute, dims=tuple(dim for dim in compute.dims if dim.var in used))


class _Finder:
    """Collects the items that make one contraction, and builds what takes their place."""

    def __init__(
        self,
        items: Items,
        local: frozenset[Buffer],
        names: Set[str],
        main: int,
        taken: Set[int],
    ) -> None:
        self.items, self.local, self.taken = items, local, taken
        self.main = main
        compute = items[main].simple
        assert compute is not None
        self.compute = compute
        self.kept = _kept(compute).dims
        self.names = names
        scalars = Place().names
        self.variables = {dim.var.name for dim in compute.dims} | scalars
        self.variables |= _dim_names(len(compute.dims) + len(scalars))
        self.operands: list[Operand] = []  # of the epilogue
        self.found: Contraction | None = None
        self.turned = False

    def find(self) -> Contraction | None:
        if self.main in self.taken:
            return None
        first = self._begins()
        members = frozenset({self.main, *(() if first is None else (first,))})
        if not self._together(members):
            members, first = frozenset({self.main}), None
        total = self._variable("acc", self.compute.out.buffer.dtype)
        start, value = self._started(first, total)
        result, value, members = self._followed(members, value)
        if result.buffer in self.local and set(self.items.touching(result.buffer)) <= members:
            return None  # Nobody wants it.
        place = self._sums(result)
        operands = (Operand(total, place), *self.operands)
        turned = _is_turned(self.compute, result)
        names = _by_role(self.compute, turned)
        computes = (
            Compute.single("init", self.kept, place, (), const(start, total.type)),
            self._main(place, turned),
            Compute.single("epilogue", self.kept, result, operands, value),
        )
        stmts = (Allocate(place.buffer), *(_with_dims(compute, names) for compute in computes))
        self.found = Contraction(members, stmts)
        self.turned = turned
        return self.found

    def with_prologues(self, taken: Set[int]) -> Contraction:
        """What was found, with its prologues; items that are ``taken`` are left out."""
        assert self.found is not None
        members, stmts = self.found.members, self.found.stmts

        def may_join(more: Set[int]) -> bool:
            return not more & taken and self._together(members | more)

        before = prologues(self.items, self.local, self.main, may_join)
        if not before:
            return self.found
        return Contraction(
            members | {prologue.item for prologue in before},
            with_prologues(stmts, before, self.turned),
        )

    def _sums(self, result: View) -> View:
        """A buffer for the sums, as the contraction reaches it: a private one, but for a size that
        a call passes, until tiles of it are numbers."""
        views = [result, *(o.view for o in (*self.compute.operands, *self.operands))]
        taken = {view.buffer.name for view in views} | self.names
        shape = [as_size(dim.extent) for dim in self.kept]
        dtype = self.compute.out.buffer.dtype
        sums = buffer(fresh("acc", taken), dtype, shape, space=Space.PRIVATE)
        if sums.symbols:
            sums = replace(sums, space=Space.GLOBAL)
        return View(sums, tuple(dim.var for dim in self.kept))

    def _begins(self) -> int | None:
        """What writes the sums before anything is added to them."""
        total = self.compute.out.buffer
        before = [n for n in self.items.touching(total) if n < self.main]
        if not before or before[-1] in self.taken:
            return None
        compute = self.items[before[-1]].simple
        if compute is None or compute.combiner is not None or compute.out.buffer is not total:
            return None
        order = whole(compute, compute.out)
        if order is None or total in self.items[before[-1]].reads:
            return None
        return before[-1] if len(compute.dims) == len(order) else None

    def _together(self, members: Set[int]) -> bool:
        """Whether all ``members`` may run where the last of them does."""
        last = max(members)
        return all(self.items.may_move(n, last, members) for n in members)

    def _started(self, first: int | None, total: Var) -> tuple[bool | int | float, Expr]:
        """What the sums begin with where that is a number, and their value in the end."""
        if first is None:
            # They go on from what is in memory.
            out = self.compute.out
            old = Operand(self._variable("old", out.buffer.dtype), out)
            self.operands.append(old)
            return 0, old.var + total
        compute = self.items[first].simple
        assert compute is not None
        if isinstance(compute.body, Const):
            return compute.body.value, total
        return 0, self._inlined(compute, {}, compute.out, self.compute.out) + total

    def _followed(self, members: frozenset[int], value: Expr) -> tuple[View, Expr, frozenset[int]]:
        """Where the result goes and what it is, with the elementwise computes after it that alone
        read it."""
        result = self.compute.out
        # Where it goes elsewhere than element by element, nothing that follows can be told from it.
        while self._in_digits(result) and (n := self._reader(result.buffer, members)) is not None:
            compute = self.items[n].simple
            assert compute is not None
            read = next(o.view for o in compute.operands if o.view.buffer is result.buffer)
            taken = {o.var: value for o in compute.operands if o.view.buffer is result.buffer}
            written = _moved(compute.out, _same(read, result))
            if self._overtakes(written):
                break
            value = self._inlined(compute, taken, read, result)
            result, members = written, members | {n}
        return result, value, members

    def _in_digits(self, view: View) -> bool:
        """Whether each index of ``view`` counts all its places by dims that are kept, such as
        groups and the channels of each: what reads them by one dim each is told apart then."""
        if _is_plain(view):
            return True
        extents = {dim.var: dim.extent for dim in self.kept}
        used: list[Expr] = []
        for index, size in zip(view.index, view.buffer.sizes, strict=True):
            count, form = 1, affine(index)
            for digit, step in sorted(form.terms.items(), key=lambda term: term[1]):
                extent = extents.get(digit) if isinstance(digit, Var) else None
                if step != count or not isinstance(extent, Const):
                    return False
                count *= int(extent.value)
                used.append(digit)
            if form.constant or count != size:
                return False
        return view.mask is None and len({*used}) == len(used)

    def _overtakes(self, result: View) -> bool:
        """Whether something would read of the result's buffer what is written meanwhile: anything
        but the very element that is written next."""
        views = [o.view for o in self.operands if o.view.buffer is result.buffer]
        factors = {o.view.buffer for o in self.compute.operands}
        return result.buffer in factors or any(view.index != result.index for view in views)

    def _reader(self, held: Buffer, members: frozenset[int]) -> int | None:
        """The one later item that reads ``held``, elementwise, and may follow directly."""
        later = [n for n in self.items.touching(held) if n > max(members)]
        if not later or later[0] in self.taken or not self._together(members | {later[0]}):
            return None
        n = later[0]
        compute = self.items[n].simple
        if compute is None or compute.combiner is not None:
            return None
        if compute.out.mask is not None:
            return None
        views = [o.view for o in compute.operands if o.view.buffer is held]
        same = views and all(v.index == views[0].index for v in views)
        order = whole(compute, views[0]) if same else None
        if order is None or not all(v.mask is None for v in views):
            return None
        if len(order) != len(compute.dims):
            return None
        if compute.out.buffer is held:
            return n if compute.out.index == views[0].index else None
        # Nobody else may want what was held.
        outside = [k for k in self.items.touching(held) if k not in members and k != n]
        return n if held in self.local and not outside else None

    def _inlined(
        self, compute: Compute, values: Mapping[Var, Expr], view: View, same: View
    ) -> Expr:
        """What ``compute`` computes where its ``view`` is ``same``; ``values`` stand for some of
        its operands, the others become operands of the epilogue."""
        renamed = _same(view, same)
        for operand in compute.operands:
            if operand.var in values:
                renamed[operand.var] = values[operand.var]
                continue
            moved = _moved(operand.view, renamed)
            new = Operand(self._variable(operand.var.name, operand.var.type), moved)
            self.operands.append(new)
            renamed[operand.var] = new.var
        return cast(compute.out.buffer.dtype, substitute(compute.body, renamed))

    def _variable(self, name: str, type: DType) -> Var:
        return var(claim(name, self.variables), type)

    def _main(self, place: View, turned: bool) -> Compute:
        """The sum of products, with its factors called as recipes expect."""
        compute = self.compute
        operands = list(compute.operands)
        if turned:
            operands[:2] = operands[1::-1]
        names = ["a", "b"]
        for operand in operands[2:]:
            names.append(fresh(operand.var.name, {*names, *self.variables}))
        new = [var(name, o.var.type) for name, o in zip(names, operands, strict=True)]
        values: dict[Var, Expr] = {o.var: v for o, v in zip(operands, new, strict=True)}
        renamed = tuple(
            Operand(v, _moved(o.view, values)) for o, v in zip(operands, new, strict=True)
        )
        body = substitute(compute.body, values)
        return Compute.single("main", compute.dims, place, renamed, body, "add", span=compute.span)


# What the dims of each role are called; further ones are numbered.
_DIMS = {Role.BATCH: "batch", Role.M: "m", Role.N: "n", Role.K: "k"}


def _dim_names(count: int) -> set[str]:
    """All names that ``count`` dims may get."""
    numbers = ["", *range(2, count + 1)]
    return {f"{stem}{number}" for stem in _DIMS.values() for number in numbers}


def _by_role(compute: Compute, turned: bool) -> dict[Var, Var]:
    """The dims of ``compute`` as variables that are called by their roles, whatever they are
    called; ``turned``: with the factors in the other order."""
    other = {Role.M: Role.N, Role.N: Role.M} if turned else {}
    renamed: dict[Var, Var] = {}
    parts = roles(compute)
    for dim in compute.dims:
        role = parts[dim.var.name]
        taken = {variable.name for variable in renamed.values()} | Place().names
        renamed[dim.var] = var(fresh(_DIMS[other.get(role, role)], taken))
    return renamed


def _with_dims(compute: Compute, names: Mapping[Var, Var]) -> Compute:
    """``compute`` with its dims called otherwise."""
    dims = tuple(Dim(names[dim.var], dim.extent) for dim in compute.dims)
    operands = tuple(Operand(o.var, _moved(o.view, names)) for o in compute.operands)
    changed = replace(compute, dims=dims, operands=operands)
    return changed.with_result(_moved(compute.out, names), substitute(compute.body, names))


def _moved(view: View, values: Mapping[Var, Expr]) -> View:
    return map_view(view, lambda expr: substitute(expr, values))


def _same(view: View, other: View) -> dict[Var, Expr]:
    """The dims that index ``view`` as what indexes ``other``, element by element the same."""
    return {
        index: as_index
        for index, as_index in zip(view.index, other.index, strict=True)
        if isinstance(index, Var)
    }


def _is_turned(compute: Compute, result: View) -> bool:
    """Whether the second factor is what recipes take as A: the one that is read in windows, and of
    two that are read element by element the one without the dim along which ``result`` lies in
    memory."""
    first, second = (_is_plain(operand.view) for operand in compute.operands[:2])
    if first != second:
        return first
    parts = roles(compute)
    strides = {
        b.dim: usual(b.stride) for b in reversed(result.buffer.layout.parts) if usual(b.size) > 1
    }
    if Role.N not in parts.values() or not first or not strides:
        return False
    near = variables(result.index[min(strides, key=lambda dim: strides[dim])])
    # What loops around say of the place is no dim.
    return any(parts.get(variable.name) is Role.M for variable in near)


def _is_plain(view: View) -> bool:
    return view.mask is None and all(
        isinstance(index, Var) or is_only(index, size)
        for index, size in zip(view.index, view.buffer.sizes, strict=True)
    )
