"""What a product takes from shared memory, loaded while the product before is computed.

    for step in 8:
      wait_copies(0)
      barrier()
      ... copies for step + 1 ...
      commit_copies()
      unrolled for k_o in 4:
        alloc a_fragment: bf16[64, 16] private
        compute a_pack(...): a_fragment[m, k] = a_shared[step % 2, m, k + k_o*16]
        compute main(...): acc[m, n] add= ... a_fragment[m, k] ...
->  pipeline("k_o")
    ... copies for step 1 ...
    commit_copies()
    alloc a_fragment: bf16[64, 16] private
    alloc a_fragment_ahead: bf16[64, 16] private
    wait_copies(1)
    barrier()
    compute a_pack(...): a_fragment[m, k] = a_shared[0, m, k]
    for step in 8:
      unrolled for k_o in 1:
        compute a_pack(...): a_fragment_ahead[m, k] = a_shared[step % 2, m, k + k_o*32 + 16]
        compute main(...): acc[m, n] add= ... a_fragment[m, k] ...
        compute a_pack(...): a_fragment[m, k] = a_shared[step % 2, m, k + k_o*32 + 32]
        compute main(...): acc[m, n] add= ... a_fragment_ahead[m, k] ...
      compute a_pack(...): a_fragment_ahead[m, k] = a_shared[step % 2, m, k + 48]
      compute main(...): acc[m, n] add= ... a_fragment[m, k] ...
      if step + 1 < 8:
        wait_copies(0)
        barrier()
        ... copies for step + 2 ...
        commit_copies()
        compute a_pack(...): a_fragment[m, k] = a_shared[(step + 1) % 2, m, k]
      compute main(...): acc[m, n] add= ... a_fragment_ahead[m, k] ...

All of a step is loaded before its last product, so that the copies for a further step begin then:
as many as there are stages are under way.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeGuard

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Expr, const
from tilewright.ir.stmt import Allocate, Call, For, If, Let, LoopKind, Stmt
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, replace_buffer, substitute_stmt
from tilewright.schedule.pipelines.barriers import is_barrier
from tilewright.schedule.queries.access import buffers_written
from tilewright.schedule.queries.place import claim, sequence, size_of
from tilewright.schedule.queries.refusal import refusal


def makes_fragments(stmt: Stmt, loop: str) -> TypeGuard[For]:
    """Whether ``stmt`` is a loop that ends with the one called ``loop``, whose copies are private:
    fragments, of which each product takes its own."""
    if not isinstance(stmt, For) or not sequence(stmt.body):
        return False
    inner = sequence(stmt.body)[-1]
    return isinstance(inner, For) and inner.var.name == loop and bool(_fragments(inner))


def _fragments(inner: For) -> tuple[Buffer, ...]:
    held = (s.buffer for s in sequence(inner.body) if isinstance(s, Allocate))
    return tuple(buffer for buffer in held if buffer.space is Space.PRIVATE)


@dataclass(frozen=True)
class _Step:
    """A step of ``loop``: a wait for all but so many groups of copies, what copies further ahead,
    and in each iteration of ``inner`` the loads of ``fragments``, and products of these."""

    loop: For
    pending: Const
    copies: tuple[Stmt, ...]
    inner: For
    fragments: tuple[Buffer, ...]
    loads: tuple[Stmt, ...]
    products: tuple[Stmt, ...]

    @property
    def count(self) -> int:
        return size_of(self.inner)


def _divided(loop: For) -> _Step:
    """What stands in ``loop``; refuses any other form."""
    stmts = sequence(loop.body)
    form = len(stmts) > 3 and is_barrier(stmts[1]) and _commits(stmts[-2])
    copies, pending = tuple(stmts[2:-2]), _pending(stmts[0]) if form else None
    if pending is None or any(isinstance(stmt, Allocate | Let) for stmt in copies):
        raise refusal(
            "its steps do not begin with a wait, a barrier, and copies that run by themselves",
            loop,
            "pipeline it with asynchronous copies first",
        )
    if not isinstance(loop.extent, Const) or loop.extent.value < 2:
        raise refusal(
            "how many steps there are is not constant, or it is one", loop, "leave it as it is"
        )
    inner = stmts[-1]
    assert isinstance(inner, For)
    if not _is_even(inner):
        raise refusal(
            "its steps do not end with an even number of products, written out",
            loop,
            "choose steps of an even number of products",
        )
    copied = set[Buffer]().union(*map(buffers_written, copies))
    return _Step(loop, pending, copies, inner, *_parts(inner, copied))


def _parts(
    inner: For, copied: set[Buffer]
) -> tuple[tuple[Buffer, ...], tuple[Stmt, ...], tuple[Stmt, ...]]:
    """The fragments, loads and products of ``inner``; refuses products that need more than what is
    loaded of the buffers ``copied`` before."""
    body = sequence(inner.body)
    fragments = _fragments(inner)
    rest_of = [stmt for stmt in body if not isinstance(stmt, Allocate)]
    loads = tuple(stmt for stmt in rest_of if buffers_written(stmt) & set(fragments))
    products = tuple(rest_of[len(loads) :])
    first = (*loads, *products) == tuple(rest_of)
    is_whole = len(fragments) + len(rest_of) == len(body)
    alone = all(buffers_written(stmt) <= set(fragments) for stmt in loads)
    kept = set[Buffer]().union(*(buffers_written(stmt) for stmt in products))
    apart = all(kept.isdisjoint(buffers_in(stmt)) for stmt in loads)
    loaded = all(copied.isdisjoint(buffers_in(stmt)) for stmt in products)
    if not products or not (first and is_whole and alone and apart and loaded):
        raise refusal(
            "it does not load into private memory what the products behind then take",
            inner,
            "hold the operands in fragments first",
        )
    return fragments, loads, products


def _pending(stmt: Stmt) -> Const | None:
    """How many groups of copies may be under way after ``stmt``, if it is a wait that says so."""
    if not (isinstance(stmt, Call) and stmt.function == "wait_copies"):
        return None
    (pending,) = stmt.args
    return pending if isinstance(pending, Const) else None


def _is_even(inner: For) -> bool:
    """Whether the iterations of a loop are written out, two or more, in pairs."""
    count = inner.extent.value if isinstance(inner.extent, Const) else 0
    return inner.kind is LoopKind.UNROLLED and count > 0 and count % 2 == 0


def _commits(stmt: Stmt) -> bool:
    return isinstance(stmt, Call) and stmt.function == "commit_copies"


def products_ahead(around: For, taken: Collection[str]) -> list[Stmt]:
    """What stands in the place of the loop ``around``: the copies for each product are made during
    the one before, the first of a step during the last of the step before."""
    step, names = _divided(around), set(taken)
    loop, last = step.loop, step.count - 1
    second: dict[Buffer, Buffer] = {}
    for fragment in step.fragments:
        second[fragment] = replace(fragment, name=claim(f"{fragment.name}_ahead", names))

    def at(stmts: tuple[Stmt, ...], number: Expr, k: Expr, other: bool) -> list[Stmt]:
        """``stmts`` of the step ``number`` and its product ``k``, on these fragments or others."""
        parts: list[Stmt] = []
        for stmt in stmts:
            stmt = substitute_stmt(stmt, {loop.var: number, step.inner.var: k})
            for old, new in second.items() if other else ():
                stmt = replace_buffer(stmt, old, new)
            parts.append(stmt)
        return parts

    def copies(number: Expr) -> list[Stmt]:
        return [*at(step.copies, number, const(0), False), Call("commit_copies", ())]

    def arrived(pending: Expr) -> list[Stmt]:
        return [Call("wait_copies", (pending,)), Call("barrier", ())]

    number, pair = loop.var, step.inner.var * 2
    within = block(
        *at(step.loads, number, pair + 1, True),
        *at(step.products, number, pair, False),
        *at(step.loads, number, pair + 2, False),
        *at(step.products, number, pair + 1, True),
    )
    following = number + 1
    body = block(
        replace(step.inner, extent=const(step.count // 2 - 1), body=within),
        *at(step.loads, number, const(last), True),
        *at(step.products, number, const(last - 1), False),
        If(
            following < loop.extent,
            block(
                *arrived(step.pending),
                *copies(following),
                *at(step.loads, following, const(0), False),
            ),
        ),
        *at(step.products, number, const(last), True),
    )
    return [
        *copies(const(0)),
        *(Allocate(buffer) for pair_of in second.items() for buffer in pair_of),
        *arrived(step.pending + 1),
        *at(step.loads, const(0), const(0), False),
        replace(loop, body=body),
    ]
