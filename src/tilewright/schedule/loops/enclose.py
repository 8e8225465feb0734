"""One iteration of a level of the hierarchy around what needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import const, var
from tilewright.ir.stmt import Allocate, Block, Compute, For, Kernel, LoopKind, Stmt
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block
from tilewright.schedule.queries.place import (
    Place,
    fresh,
    holds,
    rewrite_placed,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_compute, asks
from tilewright.schedule.records.transform import transform


@transform
@asks(computes=a_compute)
def enclose(kernel: Kernel, computes: Sequence[str], kind: LoopKind, name: str) -> Kernel:
    """Puts a loop of one iteration around ``computes``, which stand in one block.

        grid for m_o in 4:
          alloc acc: f32[16] private
          compute init(m in 16): acc[m] = 0.0
          compute store(m in 16): dst[m_o*16 + m] = acc[m]
    ->  enclose(["init", "store"], LoopKind.SUBGROUP, "subgroup")
        grid for m_o in 4:
          subgroup for subgroup in 1:
            alloc acc: f32[16] private
            compute init(m in 16): ...
            compute store(m in 16): ...

    With the computes go the private buffers beside them that only they use, and what stands in
    between.
    """
    number = var(fresh(name, taken_names(kernel)))

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if not isinstance(stmt, Block):
            return None
        buffers = _own_buffers(stmt, computes)
        inside = [
            i
            for i, part in enumerate(stmt.body)
            if (part.buffer in buffers if isinstance(part, Allocate) else _holds(part, computes))
        ]
        direct = any(isinstance(p, Compute) and p.name in computes for p in stmt.body)
        if not direct or not all(holds(stmt, name) for name in computes):
            return None
        first, last = inside[0], inside[-1] + 1
        loop = For(number, const(1), block(*stmt.body[first:last]), kind)
        return block(*stmt.body[:first], loop, *stmt.body[last:])

    body = rewrite_placed(kernel.body, Place(), change)
    if body is kernel.body:
        raise refusal(
            f"{', '.join(computes)} do not stand in one block",
            kernel,
            "name computes that stand beside each other",
        )
    return replace(kernel, body=body)


def _own_buffers(stmt: Block, computes: Sequence[str]) -> set[Buffer]:
    """The private buffers that nothing but ``computes`` in the block uses."""
    others = [s for s in stmt.body if not isinstance(s, Allocate) and not _holds(s, computes)]
    used = set[Buffer]().union(*(buffers_in(other) for other in others))
    private = {
        s.buffer for s in stmt.body if isinstance(s, Allocate) and s.buffer.space is Space.PRIVATE
    }
    return private - used


def _holds(stmt: Stmt, computes: Sequence[str]) -> bool:
    return any(holds(stmt, name) for name in computes)
