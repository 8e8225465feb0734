"""The work-items of a workgroup do each compute of an iteration together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Expr, Var, binary, const, var
from tilewright.ir.stmt import Allocate, Block, Call, Compute, Dim, For, If, Kernel, LoopKind, Stmt
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, loads_in, map_exprs, replace_buffer, substitute
from tilewright.schedule.queries.access import buffers_written
from tilewright.schedule.queries.dependence import conflict, conflict_text
from tilewright.schedule.queries.place import (
    Place,
    bound_names,
    dim_of,
    fresh,
    rewrite_loops,
    sequence,
    taken_names,
    views_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_compute, a_loop, asks, new_name, positive
from tilewright.schedule.records.transform import transform

_BARRIER = Call("barrier", ())


def _computes(kernel: Kernel, name: str, arguments: Mapping[str, Mapping[str, str]]) -> None:
    """There are such computes."""
    a_compute(kernel, name, {name: tuple(arguments[name])})


@transform
@asks(loop=a_loop, dims=_computes, items=positive, name=new_name())
def work_together(
    kernel: Kernel, loop: str, dims: Mapping[str, str], items: int, name: str = "item"
) -> Kernel:
    """Runs each iteration of ``loop`` in a workgroup, whose work-items do one compute of it after
    the other, all of them together.

        for i in 64:
          alloc parts: f32[32] private
          compute begin(j in 32): parts[j] = 0.0
          compute main(k in 3, j in 32): parts[j] add= x    (x = x[i, k*32 + j])
          compute across(j in 32): y[i] add= p    (p = parts[j])
    ->  work_together("i", {"begin": "j", "main": "j"}, 32)
        grid for i in 64:
          alloc parts: f32[32] workgroup
          workgroup for item in 32:
            compute begin(): parts[item] = 0.0
            compute main(k in 3): parts[item] add= x    (x = x[i, k*32 + item])
            barrier()
            if item == 0:
              compute across(j in 32): y[i] add= p    (p = parts[j])

    ``dims`` has the dim of each compute whose points the work-items share out; what it leaves out
    one of them does. Where there are more points than items, each takes every so many; where there
    are fewer, some take none. A compute waits at a barrier for those whose results it touches, but
    where each item needs only what it has made itself. What the iteration allocates, the work-items
    share. No two points of a dim, and no two iterations, may touch an element that one writes.
    """
    together = _Together(dims, items, var(fresh(name, taken_names(kernel))))
    return rewrite_loops(kernel, {loop}, together.on_loop)


@dataclass(frozen=True)
class _Together:
    dims: Mapping[str, str]
    items: int
    item: Var

    def on_loop(self, loop: For, place: Place) -> Stmt:
        if loop.kind not in (LoopKind.SERIAL, LoopKind.GRID):
            raise refusal(f"the loop is {loop.kind.value}", loop, "choose a serial or grid loop")
        _check_apart(loop, place)
        inside = place.inside(loop)
        shared: list[Buffer] = []
        parts: list[Compute] = []
        for part in _flat(loop.body):
            if isinstance(part, Allocate):
                shared.append(part.buffer)
            elif isinstance(part, Compute) and part.instruction is None:
                parts.append(part)
            else:
                raise refusal(
                    "something else than computes and allocations stands in the loop",
                    part,
                    "do it before computes are lowered, or leave it to one work-item",
                )
        body: list[Stmt] = []
        since: list[Compute] = []
        for part in parts:
            if any(self._meet(before, part) for before in since):
                body.append(_BARRIER)
                since = []
            since.append(part)
            body.append(self._on_items(part, inside))
        nest: Stmt = For(self.item, const(self.items), block(*body), LoopKind.WORKGROUP)
        allocations: list[Stmt] = []
        for old in shared:
            new = replace(old, space=Space.WORKGROUP)
            nest = replace_buffer(nest, old, new)
            allocations.append(Allocate(new))
        return replace(loop, body=block(*allocations, nest), kind=LoopKind.GRID)

    def _meet(self, a: Compute, b: Compute) -> bool:
        """Whether an item touches in ``b`` what another one writes in ``a``, or the other way."""
        common = (buffers_written(a) & buffers_in(b)) | (buffers_in(a) & buffers_written(b))
        return any(not self._same_item(a, b, buffer) for buffer in common)

    def _same_item(self, a: Compute, b: Compute, buffer: Buffer) -> bool:
        """Whether each element of ``buffer`` is one item's in both computes."""
        if a.name not in self.dims and b.name not in self.dims:
            return True
        places = set(range(buffer.rank))
        for compute in (a, b):
            loads = (x for r in compute.results for value in r.values for x in loads_in(value))
            if compute.name not in self.dims or any(x.buffer is buffer for x in loads):
                return False
            variable = dim_of(compute, self.dims[compute.name]).var
            for view in views_of(compute):
                if view.buffer is buffer:
                    places &= {n for n, index in enumerate(view.index) if index is variable}
        return bool(places)

    def _on_items(self, compute: Compute, place: Place) -> Stmt:
        """One compute, shared out."""
        if compute.name not in self.dims:
            return If(binary("eq", self.item, const(0)), compute)
        dim = dim_of(compute, self.dims[compute.name])
        if dim.ordered or not isinstance(dim.extent, Const):
            raise refusal(
                f"'{dim.var.name}' is ordered, or its extent is no number",
                compute,
                "choose another dim, or leave the compute to one work-item",
            )
        one = replace(compute, dims=tuple(d for d in compute.dims if d is not dim))
        _check_apart(For(dim.var, dim.extent, one), place)
        rounds, rest = divmod(int(dim.extent.value), self.items)
        stmts: list[Stmt] = []
        if rounds == 1:
            stmts.append(_at(one, dim, self.item))
        elif rounds:
            names = place.names | {self.item.name} | bound_names(compute)
            turn = var(fresh(f"{dim.var.name}_o", names))
            stmts.append(For(turn, const(rounds), _at(one, dim, turn * self.items + self.item)))
        if rest:
            last = _at(one, dim, self.item + rounds * self.items)
            stmts.append(If(self.item < const(rest), last))
        return block(*stmts)


def _at(compute: Compute, dim: Dim, value: Expr) -> Stmt:
    """``compute`` where ``dim``, which is no dim of it any more, is ``value``."""
    return map_exprs(compute, lambda expr: substitute(expr, {dim.var: value}))


def _check_apart(loop: For, place: Place) -> None:
    """Refuses where two iterations touch an element that one of them writes."""
    access = conflict(loop, place) if loop.extent is not const(1) else None
    if access is not None:
        raise refusal(
            f"points of '{loop.var.name}' depend on each other",
            access.stmt,
            "choose a dim of the results, or leave the compute to one work-item",
            why=conflict_text(access, loop.var),
        )


def _flat(stmt: Stmt) -> Iterator[Stmt]:
    """The statements of ``stmt``, out of its blocks."""
    for part in sequence(stmt):
        if isinstance(part, Block):
            yield from _flat(part)
        else:
            yield part
