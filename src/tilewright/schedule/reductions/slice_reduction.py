"""A reduction in slices, which are added up afterwards: split-K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.dtypes import f32, s32
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Const, Var, const, var
from tilewright.ir.functions import atomic_operator
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, map_exprs, replace_buffer, substitute, variables
from tilewright.schedule.queries.identity import is_identity
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    dim_of,
    fresh,
    rewrite_placed,
    taken_names,
)
from tilewright.schedule.queries.storage import ordered_layout
from tilewright.schedule.records.asks import a_plain_compute, asks, new_name, positive
from tilewright.schedule.records.transform import transform

# The function that adds parts as they come, and the types of which all devices have it.
_ADD = "atomic_add"
_ATOMIC = (f32, s32)


@transform
@asks(compute=a_plain_compute, slices=positive, name=new_name())
def slice_reduction(
    kernel: Kernel,
    compute: str,
    dim: str,
    slices: int,
    name: str = "slice",
    storage: Sequence[str] = (),
    *,
    atomic: bool = False,
) -> Kernel:
    """Reduces along ``dim`` in ``slices`` parts of their own, and then adds the parts up.

        alloc acc: f32[8]
        compute init(i in 8): acc[i] = 0.0
        compute main(i in 8, k in 100): acc[i] add= x    (x = src[i, k])
    ->  slice_reduction("main", "k", 4)
        alloc acc_parts: f32[4, 8]
        alloc acc_slice: f32[4, 8] private
        compute init(slice in 4, i in 8): acc_slice[slice, i] = 0.0
        compute main(slice in 4, i in 8, k in 25):
          acc_slice[slice, i] add= x    (x = src[i, slice*25 + k])
        compute slice_store(slice in 4, i in 8): acc_parts[slice, i] = acc_slice[slice, i]
        alloc acc: f32[8]
        compute slice_init(i in 8): acc[i] = 0.0
        compute slice_sum(i in 8, slice in 4): acc[i] add= x    (x = acc_parts[slice, i])

    The parts are added in order, so the result is the same in every run. In memory they lie in the
    order of the dims in ``storage`` (innermost last; others are outermost). The compute and the one
    that initializes its result stand in one block, one behind the other; the slices divide ``dim``.

    With ``atomic``, parts are added to the one result as they come, without memory for each:

    ->  slice_reduction("main", "k", 4, atomic=True)
        alloc acc: f32[8]
        compute slice_zero(i in 8): acc[i] = 0.0
        alloc acc_slice: f32[4, 8] private
        compute init(slice in 4, i in 8): acc_slice[slice, i] = 0.0
        compute main(slice in 4, i in 8, k in 25): ...
        compute slice_store<atomic_add>(slice in 4, i in 8): acc[i] add= acc_slice[slice, i]

    Their order is then another in each run, and so is what rounding makes of a sum of floats.
    """
    found, _ = computes_named(kernel, compute, "slice_reduction")[0]
    taken = taken_names(kernel)
    request = _Slicing(found, dim, slices, taken, tuple(storage), atomic)
    request.check()

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if isinstance(stmt, Block) and any(part is found for part in stmt.body):
            return request.on_block(stmt, name)
        return None

    body = rewrite_placed(kernel.body, Place(), change)
    return replace(kernel, body=body)


@dataclass(frozen=True)
class _Slicing:
    compute: Compute
    dim: str
    slices: int
    taken: frozenset[str]
    storage: tuple[str, ...]
    atomic: bool

    def _refusal(self, what: str, why: str, cure: str) -> ScheduleError:
        where = headline(self.compute)
        return ScheduleError(f"slice_reduction: {what}", where=where, why=why, cure=cure)

    def check(self) -> None:
        """Refuses what cannot be cut in equal parts."""
        dim = dim_of(self.compute, self.dim, "slice_reduction")
        extent = int(dim.extent.value) if isinstance(dim.extent, Const) else 0
        if extent % self.slices or not extent:
            raise self._refusal(
                f"'{self.dim}' has no {self.slices} equal parts",
                f"its extent is {dim.extent!r}",
                "pad it to a multiple first",
            )
        if any(dim.var in variables(index) for index in self.compute.out.index):
            raise self._refusal(
                f"'{self.dim}' is not reduced",
                "its parts would be parts of the result",
                "tile it instead",
            )
        if self.compute.combiner is None or self.compute.out.mask is not None:
            raise self._refusal(
                "the compute does not accumulate, or under a mask",
                "parts could not be combined",
                "choose a compute with a combiner",
            )
        if self.atomic:
            self._check_atomic()

    def _check_atomic(self) -> None:
        dtype = self.compute.out.buffer.dtype
        if atomic_operator(_ADD) != self.compute.combiner:
            raise self._refusal(
                f"parts combined by {self.compute.combiner} cannot come in any order",
                f"the atomic update that devices have is {_ADD}",
                "leave atomic out",
            )
        if dtype not in _ATOMIC:
            raise self._refusal(
                f"parts of {dtype} cannot come in any order",
                f"devices add {' and '.join(t.name for t in _ATOMIC)} atomically",
                "leave atomic out, or accumulate in one of these",
            )

    def on_block(self, stmt: Block, name: str) -> Stmt:
        """The block with the reduction in slices."""
        old = self.compute.out.buffer
        position = stmt.body.index(self.compute)
        init = self._initializer(stmt.body[:position])
        number = Dim(var(name), const(self.slices))
        shape = (self.slices, *old.shape)
        local = buffer(f"{old.name}_{name}", old.dtype, shape, space=Space.PRIVATE)
        after = stmt.body[position + 1 :]
        if self.atomic:
            order = ordered_layout(old.shape, self._order(init))
            total = buffer(old.name, old.dtype, old.shape, order)
            sliced = self._added_atomically(number, init, local, total)
            after = tuple(replace_buffer(s, old, total) for s in after)
        else:
            order = ordered_layout(shape, [0, *(1 + dim for dim in self._order(init))])
            parts = buffer(f"{old.name}_parts", old.dtype, shape, order)
            sliced = self._added_up(number, init, local, parts)
        before = [
            s
            for s in stmt.body[: position - 1]
            if not (isinstance(s, Allocate) and s.buffer is old)
        ]
        if any(old in buffers_in(s) for s in before):
            raise self._refusal(
                f"'{old.name}' is used before it is initialized",
                "it moves behind the slices",
                "slice the naive kernel",
            )
        return block(*before, *sliced, *after)

    def _initializer(self, before: Sequence[Stmt]) -> Compute:
        """The last of the statements ``before``, which gives each slice what it begins with."""
        old = self.compute.out.buffer
        init = before[-1] if before else None
        if (
            not isinstance(init, Compute)
            or init.out.buffer is not old
            or init.operands
            or not any(isinstance(s, Allocate) and s.buffer is old for s in before)
        ):
            raise self._refusal(
                "what initializes its result does not stand before it",
                "each slice has to be initialized",
                "slice before tiling",
            )
        if not is_identity(init.body, self.compute.combiner):
            raise self._refusal(
                f"its result begins with {to_text(init.body)}",
                f"each slice would begin with that, and {self.compute.combiner} it to the result",
                "begin with what changes nothing, and combine the rest afterwards",
            )
        return init

    def _added_up(
        self, number: Dim, init: Compute, local: Buffer, parts: Buffer
    ) -> tuple[Stmt, ...]:
        """The slices, each with its own part of ``parts``, and their sum."""
        index = (number.var, *init.out.index)
        return (
            Allocate(parts),
            *self._slices(number, init, local),
            self._store(number, init, local, View(parts, index)),
            Allocate(init.out.buffer),
            replace(init, name=f"{number.var.name}_init"),
            self._sum(number, init, parts),
        )

    def _added_atomically(
        self, number: Dim, init: Compute, local: Buffer, total: Buffer
    ) -> tuple[Stmt, ...]:
        """The slices, which all add to ``total``."""
        out = View(total, init.out.index)
        store = self._store(number, init, local, out)
        return (
            Allocate(total),
            replace(init, name=f"{number.var.name}_zero").with_result(out),
            *self._slices(number, init, local),
            replace(store, instruction=_ADD).with_result(combiner=self.compute.combiner),
        )

    def _order(self, init: Compute) -> list[int]:
        """The dims of the result as they lie in memory, innermost last."""
        names = [index.name if isinstance(index, Var) else "" for index in init.out.index]
        places = [self.storage.index(n) if n in self.storage else -1 for n in names]
        return sorted(range(len(names)), key=lambda dim: (places[dim], dim))

    def _slices(self, number: Dim, init: Compute, local: Buffer) -> tuple[Stmt, ...]:
        """What each slice accumulates."""
        return (Allocate(local), _on_slice(init, number, local), self._part(number, local))

    def _part(self, number: Dim, local: Buffer) -> Compute:
        dim = dim_of(self.compute, self.dim, "slice_reduction")
        assert isinstance(dim.extent, Const)
        size = int(dim.extent.value) // self.slices
        value = number.var * size + dim.var
        moved = map_exprs(replace(self.compute, dims=()), lambda e: substitute(e, {dim.var: value}))
        assert isinstance(moved, Compute)
        dims = tuple(Dim(d.var, const(size)) if d is dim else d for d in self.compute.dims)
        out = View(local, (number.var, *self.compute.out.index))
        return replace(moved, dims=(number, *dims)).with_result(out)

    def _store(self, number: Dim, init: Compute, local: Buffer, out: View) -> Compute:
        index = (number.var, *init.out.index)
        x = Operand(var(fresh("part", self.taken), local.dtype), View(local, index))
        dims = (number, *init.dims)
        return Compute.single(f"{number.var.name}_store", dims, out, (x,), x.var)

    def _sum(self, number: Dim, init: Compute, parts: Buffer) -> Compute:
        index = (number.var, *init.out.index)
        x = Operand(var(fresh("part", self.taken), parts.dtype), View(parts, index))
        return Compute.single(
            f"{number.var.name}_sum",
            (*init.dims, number),
            init.out,
            (x,),
            x.var,
            self.compute.combiner,
        )


def _on_slice(init: Compute, number: Dim, local: Buffer) -> Compute:
    return replace(init, dims=(number, *init.dims)).with_result(
        View(local, (number.var, *init.out.index))
    )
