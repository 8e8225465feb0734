"""Ids of work-items: the nest of loops that a kernel runs in, and the numbers that follow from it.

The last dim of the range is the fastest: its work-items are neighbours, and form the lanes of
subgroups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.dtypes import DType, s32, s64
from tilewright.ir.expr import Expr, Var, cast, const, var
from tilewright.ir.stmt import Allocate, Block, For, If, Let, LoopKind, ScalarParam, Stmt
from tilewright.lang.emitter import Emitter, plus, times

# The most work-items along a dim with ids of s32; beyond, they are s64.
MOST = 2**31 - 1
_MOST_WIDE = 2**40


@dataclass(frozen=True)
class Shape:
    """The range that a kernel is compiled for. ``local`` is the size of a workgroup; ``guarded``:
    it need not divide the last dim's size. ``subgroup`` is the number of lanes of a subgroup (0:
    none). ``offset``: ids begin at numbers that a launch passes. ``wide``: ids are s64."""

    local: tuple[int, ...]
    guarded: bool = False
    subgroup: int = 0
    offset: bool = False
    wide: bool = False

    @property
    def dims(self) -> int:
        return len(self.local)

    @property
    def items(self) -> int:
        """Work-items of a workgroup."""
        return prod(self.local)


class Identities:
    """Gives the ids and sizes of a work-item, and builds the nest around its body."""

    def __init__(self, shape: Shape, emitter: Emitter) -> None:
        self.shape = shape
        self._emitter = emitter
        self._type: DType = s64 if shape.wide else s32
        self._used: dict[tuple[str, int], tuple[Var, Expr]] = {}
        dims = range(shape.dims)
        self._groups = [var(emitter.fresh(f"group_{d}"), s64) for d in dims]
        self._locals = [var(emitter.fresh(f"local_{d}"), s64) for d in dims]
        self._sizes = [var(emitter.fresh(f"global_{d}"), s64) for d in dims]
        self._offsets = [var(emitter.fresh(f"offset_{d}"), s64) for d in dims]
        self._subgroup = var(emitter.fresh("subgroup"), s64)
        self._lane = var(emitter.fresh("lane"), s64)
        self.most_dim = 0
        self.subgroups = shape.subgroup > 0

    def number(self, kind: str, dim: int = 0) -> Expr:
        """One of the numbers of a work-item, or of its range."""
        self.most_dim = max(self.most_dim, dim)
        used = self._used.get((kind, dim))
        if used is None:
            wide = self._wide(kind, dim)
            if wide is None or self._type is s64:
                # A literal, or a number that needs no other type.
                return const(self.shape.local[dim], s32) if wide is None else wide
            name = kind if kind in ("subgroup_id", "lane_id") else f"{kind}_{dim}"
            used = var(self._emitter.fresh(name), self._type), wide
            self._used[kind, dim] = used
            self._emitter.means(*used)
        return used[0]

    def _wide(self, kind: str, dim: int) -> Expr | None:
        local = self.shape.local[dim]
        if kind == "group_id":
            return self._groups[dim]
        if kind == "local_id":
            return self.local_id(dim)
        if kind == "global_id":
            index = plus(times(self._groups[dim], local), self.local_id(dim))
            return index + self._offsets[dim] if self.shape.offset else index
        if kind == "global_size":
            return self._sizes[dim]
        if kind == "num_groups":
            return self.groups(dim)
        if kind == "subgroup_id":
            return self.linear_subgroup()
        if kind == "lane_id":
            return self._lane
        return None

    def local_id(self, dim: int) -> Expr:
        """The work-item's number in its group, of s64."""
        if self.subgroups and dim == self.shape.dims - 1:
            return plus(times(self._subgroup, self.shape.subgroup), self._lane)
        return self._locals[dim]

    def linear(self) -> Expr:
        """The work-item's number in its group, over all dims."""
        number: Expr = const(0)
        for dim, size in enumerate(self.shape.local):
            number = plus(times(number, size), self.local_id(dim))
        return number

    def linear_subgroup(self) -> Expr:
        """The number of the subgroup in its workgroup."""
        number: Expr = const(0)
        for dim, size in enumerate(self.shape.local[:-1]):
            number = plus(times(number, size), self._locals[dim])
        many = self.shape.local[-1] // self.shape.subgroup
        return plus(times(number, many), self._subgroup)

    @property
    def lane(self) -> Expr:
        return self._lane

    def groups(self, dim: int) -> Expr:
        """The number of workgroups along ``dim``."""
        size, local = self._sizes[dim], self.shape.local[dim]
        if local == 1:
            return size
        return (size + (local - 1)) // local if self._guards(dim) else size // local

    def _guards(self, dim: int) -> bool:
        return self.shape.guarded and dim == self.shape.dims - 1 and self.shape.local[dim] > 1

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the range's sizes."""
        return tuple(size.name for size in self._sizes)

    @property
    def offsets(self) -> tuple[str, ...]:
        """The names of the numbers at which ids begin, if a launch passes them."""
        return tuple(offset.name for offset in self._offsets) if self.shape.offset else ()

    def parameters(self) -> list[ScalarParam]:
        """The numbers that a launch passes for its range."""
        most = _MOST_WIDE if self.shape.wide else MOST
        params = []
        for dim, size in enumerate(self._sizes):
            divisor = 1 if self._guards(dim) else self.shape.local[dim]
            high = most - self.shape.local[dim] if self._guards(dim) else most // divisor * divisor
            params.append(ScalarParam(size, 0, high, divisor))
        if self.shape.offset:
            params += [ScalarParam(offset, 0, most) for offset in self._offsets]
        return params

    def nest(self, body: Sequence[Stmt], shared: Sequence[Allocate]) -> Stmt:
        """The loops over groups and work-items around ``body``."""
        span = self._emitter.span
        lets = [Let(name, cast(self._type, wide)) for name, wide in self._used.values()]
        inner: Stmt = Block((*lets, *body))
        last = self.shape.dims - 1
        if self._guards(last):
            index = self._groups[last] * self.shape.local[last] + self.local_id(last)
            inner = If(index < self._sizes[last], inner, span=span)
        for dim in reversed(range(self.shape.dims)):
            local = self.shape.local[dim]
            if self.subgroups and dim == last:
                count = self.shape.subgroup
                inner = For(self._lane, const(count), inner, LoopKind.LANE, span)
                many = const(local // count)
                inner = For(self._subgroup, many, inner, LoopKind.SUBGROUP, span)
            else:
                inner = For(self._locals[dim], const(local), inner, LoopKind.WORKGROUP, span)
        if shared:
            inner = Block((*shared, inner))
        for dim in reversed(range(self.shape.dims)):
            inner = For(self._groups[dim], self.groups(dim), inner, LoopKind.GRID, span)
        return inner
