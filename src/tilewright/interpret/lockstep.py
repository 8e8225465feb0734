"""Which loops may run all their iterations at once, as lanes in lockstep.

Lanes do the first statement together, then the second, and so on: that gives what the serial loop
gives when no iteration accesses an element that another iteration stores to. Whether that is so is
found out before the loop runs, by computing every offset that its stores and loads may touch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.interpret.lanes import POINT_LIMIT, Frame, Site
from tilewright.interpret.memory import Memory
from tilewright.interpret.values import Evaluator
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Load, Var
from tilewright.ir.stmt import Allocate, Block, Compute, For, If, Let, Stmt, Store, View
from tilewright.ir.visit import substitute, variables, walk

Index = tuple[Expr, ...]

# Verdicts that are remembered.
_MEMO_SIZE = 4096


@dataclass
class Nest:
    """What a loop's body accesses, with lets replaced by their values."""

    loop: For
    known: bool = True  # every access is understood
    stores: dict[Buffer, list[Index]] = field(default_factory=dict)
    loads: dict[Buffer, list[Index]] = field(default_factory=dict)
    extents: dict[Var, list[Expr]] = field(default_factory=dict)  # of inner loops and op dims
    private: set[Buffer] = field(default_factory=set)  # allocated in the body: one per lane
    checked: list[Buffer] = field(default_factory=list)
    inner: list[Var] = field(default_factory=list)  # of ``extents``: those that offsets need
    outer: list[Var] = field(default_factory=list)  # defined around the loop, and needed

    def finish(self) -> None:
        """Decides what can be decided without values."""
        self.checked = [buffer for buffer in self.stores if buffer not in self.private]
        exprs = [e for b in self.checked for index in self._accesses(b) for e in index]
        needed = frozenset[Var]().union(*map(variables, exprs))
        # An inner loop's extent may need variables too; its own loop is entered later.
        for var in reversed(self.extents):
            if var in needed:
                exprs += self.extents[var]
                needed = needed.union(*map(variables, self.extents[var]))
        self.inner = [var for var in self.extents if var in needed]
        self.outer = sorted(needed - set(self.inner) - {self.loop.var}, key=lambda v: v.name)
        depends = all(
            self.loop.var in frozenset[Var]().union(*map(variables, index))
            for buffer in self.checked
            for index in self.stores[buffer]
        )
        loads = any(isinstance(node, Load) for e in exprs for node in walk(e))
        self.known = self.known and depends and not loads

    def _accesses(self, buffer: Buffer) -> list[Index]:
        return self.stores[buffer] + self.loads.get(buffer, [])


def describe(loop: For) -> Nest:
    """The accesses of ``loop``'s body."""
    nest = Nest(loop)
    _collect(loop.body, nest, {})
    nest.finish()
    return nest


def _collect(stmt: Stmt, nest: Nest, lets: dict[Var, Expr]) -> None:
    match stmt:
        case Block():
            scope = dict(lets)
            for part in stmt.body:
                _collect(part, nest, scope)
        case For():
            _extent(stmt.var, stmt.extent, nest, lets)
            _collect(stmt.body, nest, lets)
        case If():
            _loads(stmt.condition, nest, lets)
            _collect(stmt.then, nest, lets)
            if stmt.orelse is not None:
                _collect(stmt.orelse, nest, lets)
        case Let():
            lets[stmt.var] = _loads(stmt.value, nest, lets)
        case Store():
            _loads(stmt.value, nest, lets)
            index = tuple(_loads(i, nest, lets) for i in stmt.index)
            nest.stores.setdefault(stmt.buffer, []).append(index)
        case Compute():
            _compute(stmt, nest, lets)
        case Allocate():
            nest.private.add(stmt.buffer)
        case _:
            # Functions (Call) are not yet in lockstep.
            nest.known = False


def _extent(var: Var, extent: Expr, nest: Nest, lets: dict[Var, Expr]) -> None:
    nest.extents.setdefault(var, []).append(_loads(extent, nest, lets))


def _loads(expr: Expr, nest: Nest, lets: dict[Var, Expr]) -> Expr:
    """``expr`` with lets replaced; its loads are noted."""
    expr = substitute(expr, lets)
    for node in walk(expr):
        if isinstance(node, Load):
            nest.loads.setdefault(node.buffer, []).append(node.index)
    return expr


def _compute(stmt: Compute, nest: Nest, lets: dict[Var, Expr]) -> None:
    for dim in stmt.dims:
        _extent(dim.var, dim.extent, nest, lets)
    for operand in stmt.operands:
        _view(operand.view, nest, lets, nest.loads)
    _loads(stmt.body, nest, lets)
    _view(stmt.out, nest, lets, nest.stores)


def _view(
    view: View, nest: Nest, lets: dict[Var, Expr], accesses: dict[Buffer, list[Index]]
) -> None:
    index = tuple(_loads(i, nest, lets) for i in view.index)
    accesses.setdefault(view.buffer, []).append(index)
    if view.mask is not None:
        _loads(view.mask, nest, lets)


class Lockstep:
    """Answers, and remembers, whether iterations of a loop may run as lanes."""

    def __init__(self, memory: Memory, evaluator: Evaluator) -> None:
        self._memory = memory
        self._evaluator = evaluator
        self._nests: dict[int, Nest] = {}
        # Holds the values of the key too, so that their ids stay theirs.
        self._verdicts: dict[tuple[Any, ...], tuple[bool, list[Any]]] = {}

    def nest(self, loop: For) -> Nest:
        """The accesses of ``loop`` (which the kernel keeps alive)."""
        found = self._nests.get(id(loop))
        if found is None:
            found = self._nests[id(loop)] = describe(loop)
        return found

    def chunk(self, loop: For, frame: Frame, extent: int) -> int:
        """How many iterations to run at once: 1 where lockstep is impossible or useless."""
        nest = self.nest(loop)
        if not nest.known or extent < 2:
            return 1
        points = frame.lanes
        for var in nest.inner:
            points *= max(1, *(int(e.value) for e in nest.extents[var] if isinstance(e, Const)), 1)
        elements = frame.lanes * sum(buffer.layout.extent for buffer in nest.private)
        return max(1, min(extent, POINT_LIMIT // max(points, elements)))

    def safe(self, loop: For, frame: Frame, start: int, stop: int) -> bool:
        """Whether iterations ``start`` to ``stop`` of ``loop`` are independent.

        Only for a loop of which `chunk` said that it may run several at once.
        """
        nest = self.nest(loop)
        values = [frame.values.get(var) for var in nest.outer]
        names = tuple(v if isinstance(v, int) else id(v) for v in values)
        key = (id(loop), start, stop, frame.lanes, *names)
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= _MEMO_SIZE:
                self._verdicts.clear()
            found = self._verdicts[key] = (self._independent(nest, frame, start, stop), values)
        return found[0]

    def _independent(self, nest: Nest, frame: Frame, start: int, stop: int) -> bool:
        loop = nest.loop
        site = Site(loop, frame)
        if not nest.checked:
            return True
        grid = frame.extend(loop.var, np.arange(start, stop))
        owners = np.arange(grid.lanes).reshape(grid.shape)
        for var in nest.inner:
            extents = [self._evaluator.evaluate(e, grid, loop) for e in nest.extents[var]]
            most = max(int(np.max(e)) for e in extents)
            if most <= 0 or grid.lanes * most > POINT_LIMIT:
                return most <= 0
            grid = grid.extend(var, np.arange(most))
            owners = owners[..., None]
        for buffer in nest.checked:
            stores = [self._touched(buffer, i, grid, owners, site) for i in nest.stores[buffer]]
            loads = [
                self._touched(buffer, i, grid, owners, site) for i in nest.loads.get(buffer, [])
            ]
            if not _disjoint(stores, loads):
                return False
        return True

    def _touched(
        self, buffer: Buffer, index: Index, grid: Frame, owners: Any, site: Site
    ) -> tuple[Any, Any]:
        """Offsets within the buffer and the iteration of each, as 1-D arrays."""
        storage = self._memory.storage(buffer, site)
        values = [self._evaluator.evaluate(i, grid, site.stmt) for i in index]
        inside: Any = True
        for value, size in zip(values, storage.shape, strict=True):
            inside = inside & (value >= 0) & (value < size)
        offsets = storage.offsets(values) + grid.values.get(buffer, 0)
        offsets, owners, inside = np.broadcast_arrays(offsets, owners, inside)
        return offsets[inside], owners[inside]


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
            found = writer[load_offsets[near] - low]
            if not np.all((found < 0) | (found == load_owners[near])):
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
