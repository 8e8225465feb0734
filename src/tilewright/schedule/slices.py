"""A reduction in slices, which are added up afterwards: split-K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Const, Var, const, var
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.visit import block, map_exprs, substitute, variables
from tilewright.schedule.access import buffers_in
from tilewright.schedule.place import (
    Place,
    bound_names,
    computes_named,
    dim_of,
    fresh,
    rewrite_placed,
)
from tilewright.schedule.storage import ordered_layout
from tilewright.schedule.transform import transform


@transform
def slice_reduction(
    kernel: Kernel,
    compute: str,
    dim: str,
    slices: int,
    name: str = "slice",
    storage: Sequence[str] = (),
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
        compute main_store(slice in 4, i in 8): acc_parts[slice, i] = acc_slice[slice, i]
        alloc acc: f32[8]
        compute main_init(i in 8): acc[i] = 0.0
        compute main_sum(i in 8, slice in 4): acc[i] add= x    (x = acc_parts[slice, i])

    The parts are added in order, so the result is the same in every run. In memory they lie in the
    order of the dims in ``storage`` (innermost last; others are outermost). The compute and the one
    that initializes its result stand in one block, one behind the other; the slices divide ``dim``.
    """
    found, _ = computes_named(kernel, compute, "slice_reduction")[0]
    request = _Slicing(found, dim, slices, bound_names(kernel.body), tuple(storage))
    request.check(name)

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

    def _refusal(self, what: str, why: str, cure: str) -> ScheduleError:
        where = headline(self.compute)
        return ScheduleError(f"slice_reduction: {what}", where=where, why=why, cure=cure)

    def check(self, name: str) -> None:
        """Refuses what cannot be cut in equal parts."""
        dim = dim_of(self.compute, self.dim, "slice_reduction")
        extent = int(dim.extent.value) if isinstance(dim.extent, Const) else 0
        if self.slices < 1 or extent % self.slices or not extent:
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
        if name in self.taken:
            raise self._refusal(f"the name '{name}' is taken", "", "choose another")

    def on_block(self, stmt: Block, name: str) -> Stmt:
        """The block with the reduction in slices."""
        old = self.compute.out.buffer
        position = stmt.body.index(self.compute)
        init = stmt.body[position - 1] if position else None
        if (
            not isinstance(init, Compute)
            or init.out.buffer is not old
            or init.operands
            or not any(isinstance(s, Allocate) and s.buffer is old for s in stmt.body[:position])
        ):
            raise self._refusal(
                "what initializes its result does not stand before it",
                "each slice has to be initialized",
                "slice before tiling",
            )
        number = Dim(var(name), const(self.slices))
        shape = (self.slices, *old.shape)
        layout = ordered_layout(shape, [0, *(1 + dim for dim in self._order(init))])
        parts = buffer(f"{old.name}_parts", old.dtype, shape, layout)
        local = buffer(f"{old.name}_{name}", old.dtype, shape, space=Space.PRIVATE)
        sliced: list[Stmt] = [
            Allocate(parts),
            Allocate(local),
            _on_slice(init, number, local),
            self._part(number, local),
            self._store(number, init, local, parts),
            Allocate(old),
            replace(init, name=f"{self.compute.name}_init"),
            self._sum(number, init, parts),
        ]
        before = [
            s
            for s in stmt.body[: position - 1]
            if not (isinstance(s, Allocate) and s.buffer is old)
        ]
        if any(old in buffers_in(s) for s in before):
            raise self._refusal(
                f"'{old.name}' is used before it is initialized", "", "slice the naive kernel"
            )
        return block(*before, *sliced, *stmt.body[position + 1 :])

    def _order(self, init: Compute) -> list[int]:
        """The dims of the result as they lie in memory, innermost last."""
        names = [index.name if isinstance(index, Var) else "" for index in init.out.index]
        places = [self.storage.index(n) if n in self.storage else -1 for n in names]
        return sorted(range(len(names)), key=lambda dim: (places[dim], dim))

    def _part(self, number: Dim, local: Buffer) -> Compute:
        dim = dim_of(self.compute, self.dim, "slice_reduction")
        assert isinstance(dim.extent, Const)
        size = int(dim.extent.value) // self.slices
        value = number.var * size + dim.var
        moved = map_exprs(replace(self.compute, dims=()), lambda e: substitute(e, {dim.var: value}))
        assert isinstance(moved, Compute)
        dims = tuple(Dim(d.var, const(size)) if d is dim else d for d in self.compute.dims)
        out = View(local, (number.var, *self.compute.out.index))
        return replace(moved, dims=(number, *dims), out=out)

    def _store(self, number: Dim, init: Compute, local: Buffer, parts: Buffer) -> Compute:
        index = (number.var, *init.out.index)
        x = Operand(var(fresh("part", self.taken), local.dtype), View(local, index))
        return Compute(
            f"{self.compute.name}_store", (number, *init.dims), View(parts, index), (x,), x.var
        )

    def _sum(self, number: Dim, init: Compute, parts: Buffer) -> Compute:
        index = (number.var, *init.out.index)
        x = Operand(var(fresh("part", self.taken), parts.dtype), View(parts, index))
        return Compute(
            f"{self.compute.name}_sum",
            (*init.dims, number),
            init.out,
            (x,),
            x.var,
            self.compute.combiner,
        )


def _on_slice(init: Compute, number: Dim, local: Buffer) -> Compute:
    return replace(init, dims=(number, *init.dims), out=View(local, (number.var, *init.out.index)))
