"""The loops of a scheduled kernel as a tree, with numbers for their extents.

Extents and conditions that depend on outer loops are evaluated at a few places of these, and
averaged. What depends on memory counts as usual: `_TURNS` iterations, and conditions that hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Opaque,
    Stmt,
    Store,
    While,
)
from tilewright.ir.visit import substitute, variables

# Iterations of a loop that depends on memory.
_TURNS = 8
# Lanes of a vector, as far as masks are concerned.
_VECTOR = 16
# Places at which what depends on outer loops is evaluated.
_PLACES = 7
# Distances of these places, as a part of a loop: the golden ratio spreads them evenly.
_GOLDEN = 0.618033988749895
# Loops of which each iteration is written out, or a lane.
WIDE = (LoopKind.VECTOR, LoopKind.LANE)
FLAT = (LoopKind.UNROLLED, *WIDE)

Leaf = Store | Let | Compute | Call


@dataclass(frozen=True)
class Step:
    """A statement without others inside, with ``conditions`` on lanes that mask it; in such a
    ``share`` of all cases some lane takes part. ``names`` has the values of index variables that
    lets around it name, ``dims`` the extents of a compute's."""

    stmt: Leaf
    conditions: tuple[Expr, ...]
    share: float
    names: Mapping[Var, Expr]
    dims: Mapping[Var, float] = field(default_factory=dict)


@dataclass(eq=False)
class Nest:
    """A loop (``var`` is None: a block or a branch), ``extent`` times what is in it; of a branch,
    the share of times that it is taken. ``parts`` are in order."""

    kind: LoopKind
    extent: float
    var: Var | None = None
    parts: list[Nest | Step] = field(default_factory=list)
    allocated: list[Buffer] = field(default_factory=list)

    @property
    def turns(self) -> float:
        """How often what is inside runs: lanes run together."""
        return 1.0 if self.kind in WIDE else self.extent

    @property
    def nests(self) -> list[Nest]:
        """The loops and branches directly inside."""
        return [part for part in self.parts if isinstance(part, Nest)]


def nest_of(kernel: Kernel) -> Nest:
    """The tree of ``kernel``, whose sizes are numbers."""
    root = Nest(LoopKind.SERIAL, 1.0)
    _Reader().read(kernel.body, root, ())
    return root


class _Reader:
    """Builds the tree; ``values`` are those of the variables in scope, at each place."""

    def __init__(self) -> None:
        self.values: list[dict[Var, Any]] = [{} for _ in range(_PLACES)]
        self.depth = 0
        self.names: dict[Var, Expr] = {}
        self.lanes: dict[Var, int] = {}
        self.counters: set[Var] = set()
        self.share = 1.0

    def read(self, stmt: Stmt, into: Nest, conditions: tuple[Expr, ...]) -> None:
        """Adds ``stmt`` to ``into``."""
        match stmt:
            case Block():
                self._block(stmt, into, conditions)
            case For():
                self._loop(stmt, into, conditions)
            case While():
                inner = Nest(LoopKind.SERIAL, _TURNS)
                into.parts.append(inner)
                self.read(stmt.body, inner, conditions)
            case If():
                self._branch(stmt, into, conditions)
            case Opaque():
                self.read(stmt.body, into, conditions)
            case Allocate():
                into.allocated.append(stmt.buffer)
            case Let():
                self._name(stmt)
                into.parts.append(Step(stmt, conditions, self.share, dict(self.names)))
            case Compute():
                dims = {dim.var: self._mean(dim.extent) for dim in stmt.dims}
                into.parts.append(Step(stmt, conditions, self.share, dict(self.names), dims))
            case Store() | Call():
                into.parts.append(Step(stmt, conditions, self.share, dict(self.names)))
            case _:
                raise TypeError(f"unknown statement {type(stmt).__name__}")

    def _block(self, stmt: Block, into: Nest, conditions: tuple[Expr, ...]) -> None:
        names = dict(self.names)
        for part in stmt.body:
            self.read(part, into, conditions)
        self.names = names

    def _loop(self, stmt: For, into: Nest, conditions: tuple[Expr, ...]) -> None:
        extents = self._at_places(stmt.extent, _TURNS)
        extent = max(sum(extents) / _PLACES, 0.0)
        self.depth += 1
        start = self.depth * _GOLDEN
        for place, (values, size) in enumerate(zip(self.values, extents, strict=True)):
            part = (start + place * _GOLDEN * (self.depth + 1)) % 1.0
            values[stmt.var] = int(part * max(size, 1))
        inner = Nest(stmt.kind, extent, stmt.var)
        into.parts.append(inner)
        share, lanes = self.share, dict(self.lanes)
        if stmt.kind in WIDE:
            self.lanes[stmt.var] = int(extent)
        elif stmt.kind is not LoopKind.UNROLLED:
            inner.extent, self.share = extent * share, 1.0
            self.counters.add(stmt.var)
        self.read(stmt.body, inner, conditions)
        self.share, self.lanes = share, lanes
        self.depth -= 1

    def _mean(self, extent: Expr) -> float:
        return float(sum(self._at_places(extent, _TURNS))) / _PLACES

    def _branch(self, stmt: If, into: Nest, conditions: tuple[Expr, ...]) -> None:
        condition = substitute(stmt.condition, self.names)
        if not variables(condition).isdisjoint(self.lanes):
            self._mask(stmt, condition, into, conditions)
            return
        share = sum(map(bool, self._at_places(condition, True))) / _PLACES
        for part, taken in ((stmt.then, share), (stmt.orelse, 1.0 - share)):
            if part is not None and taken:
                inner = Nest(LoopKind.SERIAL, taken)
                into.parts.append(inner)
                self.read(part, inner, conditions)

    def _mask(self, stmt: If, condition: Expr, into: Nest, conditions: tuple[Expr, ...]) -> None:
        """A branch that lanes take by themselves: its code runs for vectors of which some do, as
        far as that is decided once loops are written out; otherwise it runs for all."""
        most = max(self.lanes.values())
        ends = [
            [self._at_lanes(condition, lane) for lane in (first, min(first + _VECTOR, most) - 1)]
            for first in range(0, most, _VECTOR)
        ]
        vectors = [set(pair) for both in ends for pair in zip(*both, strict=True)]
        share = self.share
        for part, wanted in ((stmt.then, True), (stmt.orelse, False)):
            if part is not None:
                if variables(condition).isdisjoint(self.counters):
                    self.share = share * sum(wanted in taken for taken in vectors) / len(vectors)
                self.read(part, into, (*conditions, condition))
        self.share = share

    def _at_lanes(self, condition: Expr, lane: int) -> list[bool]:
        for variable, lanes in self.lanes.items():
            for values in self.values:
                values[variable] = min(lane, lanes - 1)
        return list(map(bool, self._at_places(condition, True)))

    def _name(self, stmt: Let) -> None:
        for values, value in zip(self.values, self._at_places(stmt.value, None), strict=True):
            values[stmt.var] = value
        if stmt.var.type.is_integer:
            self.names[stmt.var] = substitute(stmt.value, self.names)

    def _at_places(self, expr: Expr, unknown: Any) -> list[Any]:
        """The values of ``expr`` at each place; ``unknown`` where memory decides."""
        if isinstance(expr, Const):
            return [expr.value] * _PLACES
        try:
            return [evaluate(expr, values) for values in self.values]
        except (LookupError, TypeError):
            return [unknown] * _PLACES
