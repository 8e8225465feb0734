"""Parts of a reduction that accumulate in private memory, and begin its result afterwards: split-K
(`rfactor`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.dtypes import f32, s32
from tilewright.ir.buffer import Space, buffer
from tilewright.ir.expr import Const, Var, const
from tilewright.ir.functions import atomic_operator
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Result, Stmt, View
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, replace_buffer
from tilewright.schedule.queries.identity import is_identity
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    dim_of,
    fresh,
    rewrite_kernel,
    size_of,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import ordered_layout
from tilewright.schedule.records.transform import give
from tilewright.schedule.reductions.partial_results import combined, part_of

# The function that adds parts as they come, and the types of which all devices have it.
_ADD = "atomic_add"
_ATOMIC = (f32, s32)


def in_private_parts(
    kernel: Kernel,
    compute: str,
    dim: str,
    number: tuple[Var, int],
    storage: Sequence[str],
    atomic: bool,
) -> Kernel:
    """``kernel`` with ``compute`` in parts, the variable and how many of them ``number`` says."""
    root, _ = computes_named(kernel, compute)[0]
    counter = Dim(number[0], const(number[1]))
    value = fresh("part", taken_names(kernel))
    parts = _Parts(root, dim_of(root, dim), counter, tuple(storage), value)
    parts.check(atomic)

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if isinstance(stmt, Block) and any(part is root for part in stmt.body):
            return parts.on_block(stmt, atomic)
        return None

    return rewrite_kernel(kernel, change)


@dataclass(frozen=True)
class _Parts:
    compute: Compute
    dim: Dim
    number: Dim
    storage: tuple[str, ...]
    value: str

    @property
    def parts(self) -> int:
        """How many there are."""
        return size_of(self.number)

    def check(self, atomic: bool) -> None:
        """Refuses unequal parts, and what devices do not add in any order."""
        extent = self.dim.extent
        if not isinstance(extent, Const) or int(extent.value) % self.parts:
            raise refusal(
                f"'{self.dim.var.name}' has no {self.parts} equal parts",
                self.compute,
                "pad it to a multiple first",
                why=f"its extent is {extent!r}",
            )
        dtype = self.compute.out.buffer.dtype
        if atomic and atomic_operator(_ADD) != self.compute.combiner:
            raise refusal(
                f"parts combined by {self.compute.combiner} cannot come in any order",
                self.compute,
                "leave atomic out",
                why=f"the atomic update that devices have is {_ADD}",
            )
        if atomic and dtype not in _ATOMIC:
            raise refusal(
                f"parts of {dtype} cannot come in any order",
                self.compute,
                "leave atomic out, or accumulate in one of these",
                why=f"devices add {' and '.join(t.name for t in _ATOMIC)} atomically",
            )

    def on_block(self, stmt: Block, atomic: bool) -> Stmt:
        """The block with the reduction in parts."""
        old = self.compute.out.buffer
        position = stmt.body.index(self.compute)
        init = self._initializer(stmt.body[:position])
        before = [
            s
            for s in stmt.body[: position - 1]
            if not (isinstance(s, Allocate) and s.buffer is old)
        ]
        if any(old in buffers_in(s) for s in before):
            raise refusal(
                f"'{old.name}' is used before it is initialized",
                self.compute,
                "reduce the naive kernel in parts",
                why="it moves after the parts",
            )
        after = stmt.body[position + 1 :]
        if not atomic:
            return block(*before, *self._stored(init), *after)
        order = ordered_layout(old.shape, self._order(init))
        total = buffer(old.name, old.dtype, old.shape, order)
        parts = self._added(init, View(total, init.out.index))
        return block(*before, *parts, *(replace_buffer(s, old, total) for s in after))

    def _initializer(self, before: Sequence[Stmt]) -> Compute:
        """The last of the statements ``before``, which says what the result begins with."""
        old = self.compute.out.buffer
        init = before[-1] if before else None
        if (
            not isinstance(init, Compute)
            or init.out.buffer is not old
            or init.operands
            or not any(isinstance(s, Allocate) and s.buffer is old for s in before)
        ):
            raise refusal(
                "what initializes its result does not stand before it",
                self.compute,
                "reduce in parts before tiling",
                why="each part has to be initialized",
            )
        if not is_identity(init.body, self.compute.combiner):
            raise refusal(
                f"its result begins with {to_text(init.body)}",
                self.compute,
                "begin with what changes nothing, and combine the rest afterwards",
                f"each part would begin with that, and {self.compute.combiner} it to the result",
            )
        return init

    def _order(self, init: Compute) -> list[int]:
        """The dims of the result as they lie in memory, innermost last."""
        names = [index.name if isinstance(index, Var) else "" for index in init.out.index]
        places = [self.storage.index(n) if n in self.storage else -1 for n in names]
        return sorted(range(len(names)), key=lambda dim: (places[dim], dim))

    def _stored(self, init: Compute) -> tuple[Stmt, ...]:
        """Parts with memory of their own, and their sum."""
        old, name = init.out.buffer, self.number.var.name
        shape = (self.parts, *old.shape)
        order = ordered_layout(shape, [0, *(1 + dim for dim in self._order(init))])
        memory = buffer(f"{old.name}_parts", old.dtype, shape, order)
        view = View(memory, (self.number.var, *init.out.index))
        *accumulated, store = self._accumulated(init, view)
        assert isinstance(store, Compute)
        plain = Result(store.results[0].views, store.results[0].values)
        dims = (*init.dims, self.number)
        give("begin", "compute", f"{name}_init")
        give("combine", "compute", f"{name}_sum")
        return (
            Allocate(memory),
            *accumulated,
            replace(store, results=(plain,)),
            Allocate(old),
            replace(init, name=f"{name}_init"),
            combined(self.compute, f"{name}_sum", (init.out,), (view,), dims, self.value),
        )

    def _added(self, init: Compute, total: View) -> tuple[Stmt, ...]:
        """Parts that all add to ``total``."""
        *accumulated, store = self._accumulated(init, total)
        assert isinstance(store, Compute)
        zero = f"{self.number.var.name}_zero"
        give("begin", "compute", zero)
        return (
            Allocate(total.buffer),
            replace(init, name=zero).with_result(total),
            *accumulated,
            replace(store, instruction=_ADD),
        )

    def _accumulated(self, init: Compute, target: View) -> tuple[Stmt, ...]:
        """What parts accumulate, and, last, what combines them with ``target``."""
        old, name = init.out.buffer, self.number.var.name
        local = buffer(
            f"{old.name}_{name}", old.dtype, (self.parts, *old.shape), space=Space.PRIVATE
        )
        begins, into = (
            View(local, (self.number.var, *compute.out.index)) for compute in (init, self.compute)
        )
        dims = (self.number, *init.dims)
        size = size_of(self.dim) // self.parts
        give("store", "compute", f"{name}_store")
        return (
            Allocate(local),
            replace(init, dims=dims).with_result(begins),
            part_of(self.compute, self.dim, self.number, size, (into,)),
            combined(self.compute, f"{name}_store", (target,), (begins,), dims, self.value),
        )
