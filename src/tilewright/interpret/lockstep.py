"""Independence of iterations: which loops may run as lanes in lockstep.

Lanes do the first statement together, then the second, and so on: that gives what the serial loop
gives when no iteration accesses an element that another iteration stores to. That is checked before
the loop runs, by computing every offset that its stores and loads may touch. For a loop over
workgroups, the loops over work-items inside are loops like any other: a workgroup touches what all
of its work-items touch. Workgroups run in lockstep in any case; independent ones are not watched
for races.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tilewright.interpret.lanes import POINT_LIMIT, Frame, Site, both, together
from tilewright.interpret.memory import Memory
from tilewright.interpret.races import CONCURRENT, WORKGROUPS
from tilewright.interpret.values import Evaluator
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import addressing
from tilewright.ir.expr import Const, Expr, Var, unary
from tilewright.ir.functions import FUNCTIONS
from tilewright.ir.load import load
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    For,
    If,
    Let,
    Opaque,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import loads_in, reads_memory, substitute, variables

Index = tuple[Expr, ...]
Scope = tuple[tuple[Var, Expr], ...]  # loops and op dims with their extents, outermost first

# Most verdicts in the cache.
_MEMO_SIZE = 4096


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a loop's body, with what is around it inside of the loop.

    The scope belongs to the access: loops and ops side by side may use one name for dims of
    different extents. The access is made only where all ``guards`` hold.
    """

    index: Index
    scope: Scope
    guards: tuple[Expr, ...] = ()

    def trimmed(self) -> Access:
        """The access with the part of its scope on which its offsets depend."""
        needed = frozenset[Var]().union(*map(variables, self.index))
        kept: list[tuple[Var, Expr]] = []
        for var, extent in reversed(self.scope):
            if var in needed:
                kept.append((var, extent))
                needed |= variables(extent)
        # A guard that depends on more loops, or on memory, counts as true.
        dropped = {var for var, _ in self.scope} - {var for var, _ in kept}
        guards = tuple(
            guard
            for guard in self.guards
            if not reads_memory(guard) and variables(guard).isdisjoint(dropped)
        )
        return Access(self.index, tuple(reversed(kept)), guards)

    def exprs(self) -> tuple[Expr, ...]:
        return (*self.index, *(extent for _, extent in self.scope), *self.guards)

    def outer(self) -> frozenset[Var]:
        """The variables that are defined around the scope."""
        needed = frozenset[Var]().union(*map(variables, (*self.index, *self.guards)))
        for var, extent in reversed(self.scope):
            needed = (needed - {var}) | variables(extent)
        return needed


@dataclass
class Nest:
    """The accesses of a loop's body, with lets replaced by their values."""

    loop: For
    understood: bool = True  # the offsets of all accesses can be computed
    ordered: bool = False  # there are calls whose order matters
    stores: dict[Buffer, list[Access]] = field(default_factory=dict)
    loads: dict[Buffer, list[Access]] = field(default_factory=dict)
    # Allocated in the body: how many copies each iteration has.
    private: dict[Buffer, int] = field(default_factory=dict)
    checked: list[Buffer] = field(default_factory=list)
    outer: list[Var] = field(default_factory=list)  # defined around the loop, and needed
    points: int = 1  # most points of an access in one iteration, by constant extents

    def finish(self) -> None:
        """Derives everything that needs no values."""
        self.checked = [buffer for buffer in self.stores if buffer not in self.private]
        accesses: list[Access] = []
        for buffer in self.checked:
            for kind in (self.stores, self.loads):
                kind[buffer] = [access.trimmed() for access in kind.get(buffer, [])]
                accesses += kind[buffer]
        needed = frozenset[Var]().union(*(access.outer() for access in accesses))
        self.outer = sorted(needed - {self.loop.var}, key=lambda v: v.name)
        for access in accesses:
            sizes = (int(e.value) for _, e in access.scope if isinstance(e, Const))
            self.points = max(self.points, math.prod(max(1, size) for size in sizes))
        depends = all(
            self.loop.var in frozenset[Var]().union(*map(variables, access.index))
            for buffer in self.checked
            for access in self.stores[buffer]
        )
        exprs = [e for access in accesses for e in access.exprs()]
        loads = any(map(reads_memory, exprs))
        self.understood = self.understood and depends and not loads


def describe(loop: For) -> Nest:
    """The accesses of ``loop``'s body."""
    nest = Nest(loop)
    _Collector(nest).stmt(loop.body, {}, _Around())
    nest.finish()
    return nest


class _Around(NamedTuple):
    """The context of a statement inside of the nest; ``threads`` work-items run it."""

    scope: Scope = ()
    guards: tuple[Expr, ...] = ()
    threads: int = 1

    def loop(self, var: Var, extent: Expr, threads: bool = False) -> _Around:
        count = int(extent.value) if threads and isinstance(extent, Const) else 1
        return self._replace(scope=(*self.scope, (var, extent)), threads=self.threads * count)

    def guard(self, condition: Expr | None) -> _Around:
        return self if condition is None else self._replace(guards=(*self.guards, condition))


@dataclass(frozen=True, slots=True)
class _Collector:
    """Notes the accesses of statements in a nest."""

    nest: Nest

    def stmt(self, stmt: Stmt, lets: dict[Var, Expr], around: _Around) -> None:
        match stmt:
            case Block():
                inner = dict(lets)
                for part in stmt.body:
                    self.stmt(part, inner, around)
            case For():
                extent = self.expr(stmt.extent, lets, around)
                inside = around.loop(stmt.var, extent, stmt.kind in THREADS)
                self.nest.points = max(self.nest.points, inside.threads)
                self.stmt(stmt.body, lets, inside)
            case While():
                condition = self.expr(stmt.condition, lets, around)
                self.stmt(stmt.body, lets, around.guard(condition))
            case If():
                condition = self.expr(stmt.condition, lets, around)
                self.stmt(stmt.then, lets, around.guard(condition))
                if stmt.orelse is not None:
                    self.stmt(stmt.orelse, lets, around.guard(unary("not", condition)))
            case Opaque():
                self.stmt(stmt.body, dict(lets), around)
            case Let():
                lets[stmt.var] = self.expr(stmt.value, lets, around)
            case Store():
                self.expr(stmt.value, lets, around)
                self.view(View(stmt.buffer, stmt.index), lets, around, self.nest.stores)
            case Compute():
                self.compute(stmt, lets, around)
            case Allocate():
                self.nest.private[stmt.buffer] = around.threads
            case Call():
                self.call(stmt, lets, around)
            case _:
                raise TypeError(f"no accesses of {type(stmt).__name__}")

    def compute(self, stmt: Compute, lets: dict[Var, Expr], around: _Around) -> None:
        for dim in stmt.dims:
            around = around.loop(dim.var, self.expr(dim.extent, lets, around))
        places = addressing(stmt)
        for operand in stmt.operands:
            view = operand.view
            self.view(view, lets, around, self.nest.loads)
            if operand.var in places:
                loaded = load(view.buffer, view.index, view.mask)
                lets = {**lets, operand.var: substitute(loaded, lets)}
        for result in stmt.results:
            for value in result.values:
                self.expr(value, lets, around)
            for view in result.views:
                self.view(view, lets, around, self.nest.stores)
        self.nest.ordered = self.nest.ordered or stmt.completion is not None
        if isinstance(stmt.completion, View):
            self.view(stmt.completion, lets, around, self.nest.stores)

    def call(self, stmt: Call, lets: dict[Var, Expr], around: _Around) -> None:
        """Accesses by parameter. Other iterations see no difference in asynchronous ones."""
        function = FUNCTIONS.get(stmt.function)
        if function is None:
            self.nest.understood = False
            return
        self.nest.ordered = self.nest.ordered or function.ordered
        for parameter, arg in zip(function.parameters, stmt.args, strict=True):
            if not isinstance(arg, View):
                self.expr(arg, lets, around)
                continue
            if parameter.access in ("in", "inout"):
                self.view(arg, lets, around, self.nest.loads)
            if parameter.access in ("out", "inout"):
                self.view(arg, lets, around, self.nest.stores)

    def view(
        self,
        view: View,
        lets: dict[Var, Expr],
        around: _Around,
        accesses: dict[Buffer, list[Access]],
    ) -> None:
        if view.mask is not None:
            around = around.guard(self.expr(view.mask, lets, around))
        index = tuple(self.expr(i, lets, around) for i in view.index)
        accesses.setdefault(view.buffer, []).append(Access(index, around.scope, around.guards))

    def expr(self, expr: Expr, lets: dict[Var, Expr], around: _Around) -> Expr:
        """``expr`` with lets replaced; its loads are noted."""
        expr = substitute(expr, lets)
        for node in loads_in(expr):
            guards = around.guard(node.mask).guards
            access = Access(node.index, around.scope, guards)
            self.nest.loads.setdefault(node.buffer, []).append(access)
        return expr


class Lockstep:
    """Decides whether iterations of a loop may run as lanes, and caches the verdicts."""

    def __init__(self, memory: Memory, evaluator: Evaluator) -> None:
        self._memory = memory
        self._evaluator = evaluator
        self._nests: dict[int, Nest] = {}
        # With the values of the key, so that their ids stay in use.
        self._verdicts: dict[tuple[Any, ...], tuple[bool, list[Any]]] = {}

    def nest(self, loop: For) -> Nest:
        """The accesses of ``loop`` (which the kernel keeps alive)."""
        nest = self._nests.get(id(loop))
        if nest is None:
            nest = self._nests[id(loop)] = describe(loop)
        return nest

    def chunk(self, loop: For, frame: Frame, extent: int) -> int:
        """The number of iterations to run at once: 1 where lockstep is impossible or useless."""
        nest = self.nest(loop)
        # Iterations of a serial loop come one after the other: their calls are ordered, too.
        in_order = nest.ordered and loop.kind not in CONCURRENT
        possible = nest.understood or loop.kind in WORKGROUPS
        if not possible or in_order or extent < 2:
            return 1
        points = frame.lanes * nest.points
        per_lane = sum(
            self._memory.concrete(buffer).layout.extent * copies
            for buffer, copies in nest.private.items()
        )
        elements = frame.lanes * per_lane
        return max(1, min(extent, POINT_LIMIT // max(points, elements)))

    def safe(self, loop: For, frame: Frame, start: int, stop: int) -> bool:
        """Whether iterations ``start`` to ``stop`` of ``loop`` are independent.

        Only for a loop that `chunk` lets run several at once.
        """
        nest = self.nest(loop)
        if not nest.understood:
            return False
        values = [frame.values.get(var) for var in nest.outer]
        names = tuple(map(_value_key, values))
        key = (id(loop), start, stop, frame.lanes, *names)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= _MEMO_SIZE:
                self._verdicts.clear()
            verdict = self._verdicts[key] = (self._independent(nest, frame, start, stop), values)
        return verdict[0]

    def _independent(self, nest: Nest, frame: Frame, start: int, stop: int) -> bool:
        if not nest.checked:
            return True
        # The verdict is cached for any mask, so all lanes count.
        lanes = Frame(frame.values, frame.shape).extend(nest.loop.var, np.arange(start, stop))
        grids: dict[Scope, Frame | None] = {}
        for buffer in nest.checked:
            touched: tuple[list[Any], list[Any]] = ([], [])
            for kind, accesses in zip(touched, (nest.stores, nest.loads), strict=True):
                for access in accesses[buffer]:
                    if access.scope not in grids:
                        grids[access.scope] = self._grid(nest.loop, lanes, access.scope)
                    grid = grids[access.scope]
                    if grid is None:
                        return False
                    if grid.lanes:
                        owners = np.arange(lanes.lanes).reshape(lanes.shape)
                        owners = owners[(..., *[None] * len(access.scope))]
                        kind.append(self._touched(buffer, access, grid, owners, nest.loop))
            if touched[0] and not _disjoint(*touched):
                return False
        return True

    def _grid(self, loop: For, grid: Frame, scope: Scope) -> Frame | None:
        """``grid`` with an axis per entry of ``scope``; None where that is too large."""
        for var, extent in scope:
            count = self._evaluator.evaluate(extent, grid, loop)
            most = max(0, int(np.max(count)))
            if grid.lanes * most > POINT_LIMIT:
                return None
            grid = grid.extend(var, np.arange(most))
            if most == 0:
                return grid
            if np.ndim(count):
                grid = grid.restrict(grid.values[var] < count[..., None])
        return grid

    def _touched(
        self, buffer: Buffer, access: Access, grid: Frame, owners: Any, loop: For
    ) -> tuple[Any, Any]:
        """Offsets within the buffer and the iteration of each, as 1-D arrays."""
        storage = self._memory.storage(buffer, Site(loop, grid))
        values = [self._evaluator.evaluate(i, grid, loop) for i in access.index]
        mask = grid.mask
        for guard in access.guards:
            mask = both(mask, self._evaluator.evaluate(guard, grid, loop))
        inside: Any = True if mask is None else mask
        for value, size in zip(values, storage.shape, strict=True):
            inside = inside & (value >= 0) & (value < size)
        if not np.all(inside):  # numbers outside may be too large for an offset
            values = [np.where(inside, value, 0) for value in values]
        offsets = storage.concrete.layout.place(values) + grid.values.get(buffer, 0)
        offsets, owners, inside = together(offsets, owners, inside)
        return offsets[inside], owners[inside]


def _value_key(value: Any) -> Any:
    """A key of a value, as long as that is held: views of one array, in frames of more axes, have
    the same."""
    if type(value) is np.ndarray:
        return (value.__array_interface__["data"][0], value.shape, value.strides)
    return value


def _disjoint(stores: list[tuple[Any, Any]], loads: list[tuple[Any, Any]]) -> bool:
    """Whether no element that is stored to is accessed by two owners."""
    offsets = np.concatenate([s[0] for s in stores])
    owners = np.concatenate([s[1] for s in stores])
    if not len(offsets):
        return True
    low, high = int(offsets.min()), int(offsets.max())
    if high - low < 16 * len(offsets) + 65536:
        writer = np.full(high - low + 1, -1, np.int64)
        writer[offsets - low] = owners
        if not np.array_equal(writer[offsets - low], owners):
            return False
        for load_offsets, load_owners in loads:
            near = (load_offsets >= low) & (load_offsets <= high)
            writers = writer[load_offsets[near] - low]
            if not np.all((writers < 0) | (writers == load_owners[near])):
                return False
        return True
    written, position = np.unique(offsets, return_inverse=True)
    dense = [(position, owners)]
    dense_loads = []
    for load_offsets, load_owners in loads:
        place = np.minimum(np.searchsorted(written, load_offsets), len(written) - 1)
        hit = written[place] == load_offsets
        dense_loads.append((place[hit], load_owners[hit]))
    return _disjoint(dense, dense_loads)
