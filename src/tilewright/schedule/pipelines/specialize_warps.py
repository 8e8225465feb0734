"""Subgroups of different code: one has tiles copied, the others multiply them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeGuard

from tilewright.dtypes import s64
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Expr, const, var
from tilewright.ir.functions import Group, Queue, synchronized_group
from tilewright.ir.printer import headline
from tilewright.ir.stmt import (
    Allocate,
    Call,
    Compute,
    For,
    If,
    Kernel,
    LoopKind,
    Stmt,
    View,
)
from tilewright.ir.visit import block, rewrite_stmts, substitute_stmt, variables, walk_stmts
from tilewright.machines.tile_unit import TileCopy
from tilewright.schedule.pipelines.barriers import check_alone, parts_between
from tilewright.schedule.pipelines.pipeline import fresh_names, in_slot, reallocated, staged
from tilewright.schedule.pipelines.rounds import Rounds
from tilewright.schedule.queries.access import accesses, buffers_written, readdress
from tilewright.schedule.queries.digits import digits_of
from tilewright.schedule.queries.place import (
    Place,
    fresh,
    holds_loop,
    rewrite_placed,
    sequence,
    size_of,
    walk_placed,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_loop_of_plain_computes, asks, positive
from tilewright.schedule.records.transform import transform
from tilewright.schedule.staging.work_items import own_values, work_items


@transform
@asks(loop=a_loop_of_plain_computes, stages=positive)
def specialize_warps(
    kernel: Kernel,
    loop: str,
    stages: int,
    copy: TileCopy,
    registers: tuple[int, int] | None = None,
) -> Kernel:
    """Gives the copies of an iteration to a subgroup of their own, which runs ahead.

        alloc a_packed: bf16[128, 64] workgroup
        subgroup for s in 2:
          for k in 8:
            if s == 0:
              compute a_pack(...): a_packed[...] = src[k, ...]
            barrier()
            compute main(...): acc[...] add= ... a_packed[...] ...
            barrier()
    ->  specialize_warps("k", 2, load)
        alloc a_packed: bf16[2, 128, 64] workgroup
        alloc full: s64[2] workgroup
        alloc empty: s64[2] workgroup
        subgroup for w in 3:
          if w == 2:
            for slot in 2:
              mbarrier_init(&full[slot], 1)
              mbarrier_init(&empty[slot], 2)
          barrier()
          if w == 2:
            for k in 8:
              mbarrier_wait(&empty[k % 2], (k // 2 + 1) % 2)
              subgroup_barrier()
              mbarrier_expect(&full[k % 2], 16384)
              compute a_pack<tma_load>(...) signals full[k % 2]:
                a_packed[k % 2, ...] = src[k, ...]
          else:
            for k in 8:
              mbarrier_wait(&full[k % 2], k // 2 % 2)
              compute main(...) joins products: acc[...] add= ... a_packed[k % 2, ...] ...
              commit_products()
              wait_products(1)
              if 1 <= k:
                mbarrier_arrive(&empty[(k - 1) % 2])
            wait_products(0)

    The loop has the form that `stage` by a `CopyUnit` makes, in loops over subgroups, and no other
    reader of the copies. ``copy`` is how the machine's unit makes each, which it has to take: of
    what masks hide, only what is outside of the tensor. What reads the copies accumulates in
    private memory. With one of the ``stages``, nothing is copied ahead. Of ``registers``, a lane of
    those that copy goes on with the first number, others with the second.

    Serial loops around the loop, as `order_workgroups` makes them, become each role's own, and
    iterations are counted through all of them (see `rounds`): the next round's first copies run
    while the others are at what comes after the loop. There they say that the last slot is empty.
    """
    _check(kernel, loop, stages, registers)
    renamed: dict[Buffer, Buffer] = {}

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if not _is_around(stmt, loop):
            return None
        specialization = _Specialization(kernel, stmt, place, loop, (stages, copy, registers))
        renamed.update(specialization.buffers)
        return specialization.stmt()

    body = rewrite_placed(kernel.body, Place(), change)
    return replace(kernel, body=reallocated(body, renamed))


def _is_around(stmt: Stmt, loop: str) -> TypeGuard[For]:
    """Whether ``stmt`` is a loop over subgroups around that one."""
    if not isinstance(stmt, For) or stmt.kind is not LoopKind.SUBGROUP:
        return False
    return holds_loop(stmt, loop)


def _check(kernel: Kernel, loop: str, stages: int, registers: tuple[int, int] | None) -> None:
    where = f"kernel {kernel.name}"
    if not any(_is_around(stmt, loop) for stmt in walk_stmts(kernel.body)):
        raise refusal(
            f"no subgroups are around the loop '{loop}'",
            where,
            "run loops around it as SUBGROUP, and stage tiles at it, first",
        )
    if registers is None:
        return
    copying, taken = registers
    if not 0 < copying < taken:
        raise refusal(
            f"{copying} registers for what copies, {taken} for the others",
            where,
            "choose the less first",
            why="the ones give what the others take",
        )


# The slots, what carries out copies, and the registers of those that copy and of the others.
_How = tuple[int, TileCopy, tuple[int, int] | None]


@dataclass(frozen=True)
class _Parts:
    """What stands in an iteration: the copies, and what reads them."""

    copies: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]


class _Specialization:
    """One nest of subgroups, of which the loop ``name`` is divided."""

    def __init__(self, kernel: Kernel, nest: For, place: Place, name: str, how: _How) -> None:
        self.stages, self.copy, self.registers = how
        stages = self.stages
        self.items, self.inside = work_items(nest, place)
        self.where = self.items[-1]
        taken = fresh_names(kernel, place) | {p.name for p in kernel.arrays}
        self.worker = var(fresh("w", taken))
        self.slot = var(fresh("slot", taken))
        self.full, self.empty = (
            buffer(fresh(stem, taken), s64, (stages,), space=Space.WORKGROUP)
            for stem in ("full", "empty")
        )
        self.count = prod(map(size_of, self.items))
        self.rounds = self._rounds(name)
        self.loop = self.where = self.rounds.loop
        self.here = next(
            within
            for stmt, within in walk_placed(self.items[-1].body, self.inside)
            if stmt is self.loop
        ).inside(self.loop)
        self.own = {item.var for item in self.items} | own_values(self.here, self.items)
        self.rounds.check_counted(self.inside.facts)
        self.parts = self._divided()
        filled = dict.fromkeys(copy.out.buffer for copy in self._computes(self.parts.copies))
        self.buffers = {old: staged(old, stages) for old in filled}
        self._check_copies(kernel)
        self._check_rest()

    # What is there.

    def _rounds(self, name: str) -> Rounds:
        if any(item.kind is not LoopKind.SUBGROUP for item in self.items):
            raise refusal(
                "its work-items are not subgroups that act as one",
                self.where,
                "stage tiles among subgroups",
            )
        return Rounds(self.items[-1].body, name)

    def _divided(self) -> _Parts:
        copies, rest = parts_between(self.loop)
        for stmt in self.rounds.beside():
            if isinstance(stmt, Call) and synchronized_group(stmt.function) is Group.WORKGROUP:
                raise refusal(
                    f"the subgroups meet at `{headline(stmt)}` outside of the loop",
                    self.where,
                    "specialize before results are handed on",
                    why="the subgroup that copies does not come there",
                )
        return _Parts(tuple(map(self._by_anyone, copies)), tuple(rest))

    def _by_anyone(self, stmt: Stmt) -> Stmt:
        """A copy without the condition that says which subgroup makes it."""
        items = {item.var for item in self.items}
        if isinstance(stmt, If) and stmt.orelse is None and variables(stmt.condition) <= items:
            stmt = stmt.then
        for access in accesses(stmt, Place()):
            if any(variables(index) & self.own for index in access.view.index):
                raise refusal(
                    f"subgroups make parts of the copy `{headline(access.stmt)}`",
                    self.where,
                    "stage whole tiles (by=CopyUnit())",
                )
        return stmt

    def _computes(self, stmts: tuple[Stmt, ...]) -> Iterator[Compute]:
        """The computes in ``stmts``, which hold nothing else besides loops."""
        for stmt in (s for part in stmts for s in walk_stmts(part)):
            if isinstance(stmt, Compute):
                yield stmt
            elif not isinstance(stmt, For) and sequence(stmt) == (stmt,):
                raise refusal(
                    f"`{headline(stmt)}` is neither a copy nor a product",
                    self.where,
                    "stage tiles first",
                )

    def _check_copies(self, kernel: Kernel) -> None:
        check_alone(kernel, self.loop, self.buffers)
        written = buffers_written(self.items[0])
        for copies in self.parts.copies:
            for stmt, place in walk_placed(copies, self.here):
                if not isinstance(stmt, Compute):
                    continue
                reason = self.copy.refuses(stmt, place.facts)
                if reason is not None:
                    raise refusal(
                        f"'{stmt.name}' is no copy of a box",
                        self.where,
                        "choose tiles that lie evenly in the tensor, or copy in another way",
                        why=reason,
                    )
                if stmt.operands[0].view.buffer in written:
                    raise refusal(
                        f"'{stmt.name}' copies what the subgroups write",
                        self.where,
                        "copy only what does not change",
                    )

    def _check_rest(self) -> None:
        for compute in self._computes(self.parts.rest):
            reads = {operand.view.buffer for operand in compute.operands}
            if compute.out.buffer.space is not Space.PRIVATE or compute.combiner is None:
                raise refusal(
                    f"'{compute.name}' does not add up in private memory",
                    self.where,
                    "stage the operands of one product",
                )
            if not reads <= self.buffers.keys():
                raise refusal(
                    f"'{compute.name}' does not read copies only",
                    self.where,
                    "stage all of its operands",
                )
            if any(operand.view.mask is not None for operand in compute.operands):
                raise refusal(
                    f"'{compute.name}' masks what it reads of copies",
                    self.where,
                    "combine no dims along which masks hide different parts",
                    "what was not to be read has to be zero in the copy, and no box makes it so",
                )

    # What becomes of it.

    def stmt(self) -> Stmt:
        """What stands in the place of the nest."""
        copies = self.worker == const(self.count)
        start = For(
            self.slot,
            const(self.stages),
            block(
                Call("mbarrier_init", (View(self.full, (self.slot,)), const(1))),
                Call("mbarrier_init", (View(self.empty, (self.slot,)), const(self.count))),
            ),
        )
        digits = digits_of(self.worker, list(map(size_of, self.items)))
        numbers = {item.var: digit for item, digit in zip(self.items, digits, strict=True)}
        multiplied = substitute_stmt(block(*self._multiplying()), numbers)
        body = block(
            If(copies, start),
            Call("barrier", ()),
            If(
                copies,
                block(*self._goes_on("give_registers", 0), *self._copying()),
                block(*self._goes_on("take_registers", 1), *sequence(multiplied)),
            ),
        )
        nest = For(self.worker, const(self.count + 1), body, LoopKind.SUBGROUP)
        return block(Allocate(self.full), Allocate(self.empty), nest)

    def _goes_on(self, function: str, role: int) -> Iterator[Stmt]:
        if self.registers is not None:
            yield Call(function, (const(self.registers[role]),))

    def _in_slots(self, stmt: Stmt) -> Stmt:
        """``stmt`` of an iteration, on the slot that is that one's."""
        for old, new in self.buffers.items():
            stmt = readdress(stmt, old, partial(in_slot, new, self.rounds.number % self.stages))
        return stmt

    def _place(self, of: Buffer, iteration: Expr) -> View:
        return View(of, (iteration % self.stages,))

    def _copying(self) -> tuple[Stmt, ...]:
        """What the subgroup does that copies: as often as the others multiply."""
        number = self.rounds.number
        full, empty = self._place(self.full, number), self._place(self.empty, number)

        def start(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Compute):
                return stmt
            return replace(stmt, instruction=self.copy.name, completion=full)

        copies = [rewrite_stmts(self._in_slots(copy), start) for copy in self.parts.copies]
        body = block(
            Call("mbarrier_wait", (empty, (number // self.stages + 1) % 2)),
            # One lane starts the copies. Others that came here two rounds late would take the phase
            # that they wait for as one that is still to end, and wait for ever.
            Call("subgroup_barrier", ()),
            Call("mbarrier_expect", (full, const(self._bytes()))),
            *copies,
        )
        lets = [let for let in self.rounds.lets if let.var not in self.own]
        return self.rounds.remade([replace(self.loop, body=body)], lambda stmt: stmt in lets)

    def _bytes(self) -> int:
        """What the copies of an iteration write."""
        total = 0
        for copies in self.parts.copies:
            for stmt, place in walk_placed(copies, Place()):
                if isinstance(stmt, Compute):
                    points = prod(map(size_of, place.loops)) * prod(map(size_of, stmt.dims))
                    total += points * stmt.out.buffer.dtype.bytes
        return total

    def _multiplying(self) -> tuple[Stmt, ...]:
        """What the other subgroups do: as before, but for the loop."""
        return self.rounds.remade(self._products(), lambda stmt: True)

    def _products(self) -> Iterator[Stmt]:
        number, step = self.rounds.number, self.loop.var
        # Of more than one slot, one is still read while the next product is started.
        ahead = min(1, self.stages - 1)

        def start(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Compute):
                return stmt
            return replace(stmt, completion=Queue.PRODUCTS)

        products = [rewrite_stmts(self._in_slots(stmt), start) for stmt in self.parts.rest]
        arrive = Call("mbarrier_arrive", (self._place(self.empty, number - ahead),))
        yield replace(
            self.loop,
            body=block(
                Call("mbarrier_wait", (self._place(self.full, number), number // self.stages % 2)),
                *products,
                Call("commit_products", ()),
                Call("wait_products", (const(ahead),)),
                If(const(ahead) <= step, arrive),
            ),
        )
        yield Call("wait_products", (const(0),))
        if ahead and self.rounds.repeated:
            # The slots that are still full are those that the next round fills.
            last = self.rounds.first + self.loop.extent - ahead
            yield Call("mbarrier_arrive", (self._place(self.empty, last),))
