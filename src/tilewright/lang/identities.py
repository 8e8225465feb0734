"""Who a work-item is: the nest of loops that a kernel runs in, and the numbers that follow from it.

The last dim of the range is the fastest: its work-items are neighbours, and make the lanes of
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

# Ids are s32 where the range allows: it has no more work-items along a dim.
MOST = 2**31 - 1
_MOST_WIDE = 2**40


@dataclass(frozen=True)
class Shape:
    """The range that a kernel is compiled for. ``local`` is the size of a workgroup; ``guarded``:
    it need not divide the last dim's size. ``subgroup`` lanes make a subgroup (0: nobody asked).
    ``offset``: ids begin at numbers that a launch gives. ``wide``: ids are s64."""

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
    """Gives the numbers by which a work-item knows itself, and builds the nest around its body."""

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
        self.together: str | None = None  # what all work-items of a workgroup have to reach

    def number(self, kind: str, dim: int = 0) -> Expr:
        """One of the numbers of a work-item, or of its range."""
        self.most_dim = max(self.most_dim, dim)
        known = self._used.get((kind, dim))
        if known is None:
            wide = self._wide(kind, dim)
            if wide is None or self._type is s64:
                # A number that is known, or one that needs no other type.
                return const(self.shape.local[dim], s32) if wide is None else wide
            name = kind if kind in ("subgroup_id", "lane_id") else f"{kind}_{dim}"
            known = var(self._emitter.fresh(name), self._type), wide
            self._used[kind, dim] = known
            self._emitter.means(*known)
        return known[0]

    def _wide(self, kind: str, dim: int) -> Expr | None:
        local = self.shape.local[dim]
        if kind == "group_id":
            return self._groups[dim]
        if kind == "local_id":
            return self.local_id(dim)
        if kind == "global_id":
            found = plus(times(self._groups[dim], local), self.local_id(dim))
            return found + self._offsets[dim] if self.shape.offset else found
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
        found: Expr = const(0)
        for dim, size in enumerate(self.shape.local):
            found = plus(times(found, size), self.local_id(dim))
        return found

    def linear_subgroup(self) -> Expr:
        """The number of the subgroup in its workgroup."""
        found: Expr = const(0)
        for dim, size in enumerate(self.shape.local[:-1]):
            found = plus(times(found, size), self._locals[dim])
        many = self.shape.local[-1] // self.shape.subgroup
        return plus(times(found, many), self._subgroup)

    @property
    def lane(self) -> Expr:
        return self._lane

    def groups(self, dim: int) -> Expr:
        """How many workgroups there are along ``dim``."""
        size, local = self._sizes[dim], self.shape.local[dim]
        if local == 1:
            return size
        return (size + (local - 1)) // local if self._guards(dim) else size // local

    def _guards(self, dim: int) -> bool:
        return self.shape.guarded and dim == self.shape.dims - 1 and self.shape.local[dim] > 1

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the range's sizes."""
        return tuple(each.name for each in self._sizes)

    @property
    def offsets(self) -> tuple[str, ...]:
        """The names of the numbers at which ids begin, if a launch says them."""
        return tuple(each.name for each in self._offsets) if self.shape.offset else ()

    def parameters(self) -> list[ScalarParam]:
        """The numbers that a launch passes for its range."""
        most = _MOST_WIDE if self.shape.wide else MOST
        found = []
        for dim, size in enumerate(self._sizes):
            divisor = 1 if self._guards(dim) else self.shape.local[dim]
            high = most - self.shape.local[dim] if self._guards(dim) else most // divisor * divisor
            found.append(ScalarParam(size, 0, high, divisor))
        if self.shape.offset:
            found += [ScalarParam(each, 0, most) for each in self._offsets]
        return found

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
