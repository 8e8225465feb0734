"""Pipelining: what an iteration reads is copied while earlier ones compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from tilewright.ir.buffer import Buffer, LayoutBlock, Space, buffer
from tilewright.ir.expr import Const, Expr, const, var
from tilewright.ir.stmt import (
    Allocate,
    Call,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    LoopKind,
    Operand,
    Stmt,
    View,
)
from tilewright.ir.visit import block, rewrite_stmts, substitute_stmt, walk_stmts
from tilewright.schedule.pipelines.barriers import check_alone, parts_between
from tilewright.schedule.pipelines.products_ahead import makes_fragments, products_ahead
from tilewright.schedule.queries.access import buffers_written, readdress
from tilewright.schedule.queries.place import (
    Place,
    fresh,
    loops_named,
    rewrite_placed,
    sequence,
    size_of,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.runs import run_start
from tilewright.schedule.records.asks import a_loop_of_plain_computes, asks
from tilewright.schedule.records.transform import transform
from tilewright.schedule.staging.work_items import zero_outside

# Where the buffers of a pipeline begin: whole vectors and segments stay whole.
_ALIGNMENT = 64
_BARRIER = Call("barrier", ())
# Asynchronous copies that are written out: the addresses of more do not fit into registers.
_UNROLLED_COPIES = 8


class Fill(Enum):
    """How the next tile gets into its buffer."""

    COPY = "copy"  # before the present one is computed
    REGISTERS = "registers"  # loaded before, stored after: the loads' latency is hidden
    ASYNC = "async"  # by the machine, while anything else runs


@transform
@asks(loop=a_loop_of_plain_computes)
def pipeline(kernel: Kernel, loop: str, stages: int = 2, fill: Fill = Fill.COPY) -> Kernel:
    """Copies ahead: iteration ``i`` starts the copies of iteration ``i + stages - 1``.

        for k in 8:
          compute a_pack(...): a_packed[...] = src[k, ...]
          barrier()
          compute main(...): ... a_packed[...] ...
          barrier()
    ->  pipeline("k", 2)
        compute a_pack(...): a_packed[0, ...] = src[0, ...]
        for k in 8:
          barrier()
          if k + 1 < 8:
            compute a_pack(...): a_packed[(k + 1) % 2, ...] = src[k + 1, ...]
          compute main(...): ... a_packed[k % 2, ...] ...
        barrier()

    The loop has the form that `stage` makes, and no other reader of the copies. Each gets
    ``stages`` buffers. With ``Fill.ASYNC`` the copies are asynchronous (nothing is converted on the
    way), and each iteration waits for its own; other ways of filling go one iteration ahead, so
    more than two stages would not be used.

    Copies to private memory, fragments for products, need no barriers, and two buffers that have
    names, as they may be in registers. Their loop is the last statement of one that was pipelined
    with ``Fill.ASYNC``, and written out, with an even number of products. What the first of a step
    takes is copied during the last of the step before (see `products_ahead`).

        for step in 8:
          unrolled for k_o in 4:
            alloc a_fragment: bf16[64, 16] private
            compute a_pack(...): a_fragment[m, k] = a_shared[step % 2, m, k + k_o*16]
            compute main(...): acc[m, n] add= ... a_fragment[m, k] ...
    ->  pipeline("k_o")
        compute a_pack(...): a_fragment[m, k] = a_shared[0, m, k]
        for step in 8:
          ...
          compute a_pack(...): a_fragment_ahead[m, k] = a_shared[step % 2, m, k + 48]
          compute main(...): acc[m, n] add= ... a_fragment[m, k] ...
          if step + 1 < 8:
            compute a_pack(...): a_fragment[m, k] = a_shared[(step + 1) % 2, m, k]
          compute main(...): acc[m, n] add= ... a_fragment_ahead[m, k] ...
    """
    if stages < 2 or (stages > 2 and fill is not Fill.ASYNC):
        raise refusal(
            f"{stages} stages",
            kernel,
            "choose 2, or 2 and more with Fill.ASYNC",
            why="without asynchronous copies, one iteration is prepared ahead",
        )
    renamed: dict[Buffer, Buffer] = {}

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        parts = sequence(stmt)
        if any(makes_fragments(part, loop) for part in parts):
            return _products_ahead(kernel, parts, place, loop, fill)
        if not (isinstance(stmt, For) and stmt.var.name == loop):
            return None
        piped = _Pipeline(stmt, stages, fill, fresh_names(kernel, place), place)
        piped.check(kernel)
        renamed.update(piped.buffers)
        return piped.stmt()

    body = rewrite_placed(kernel.body, Place(), change)
    return replace(kernel, body=reallocated(body, renamed))


def _products_ahead(
    kernel: Kernel, parts: Sequence[Stmt], place: Place, loop: str, fill: Fill
) -> Stmt:
    """``parts`` of a block, one of them with products whose fragments are copied ahead."""
    around = next(part for part in parts if makes_fragments(part, loop))
    if fill is not Fill.COPY or len(loops_named(kernel, loop)) > 1:
        raise refusal(
            f"'{loop}' copies to private memory",
            around,
            "leave out `fill`, and rename all loops of that name but one",
            why="its products load what they take, and each loop has names of its own",
        )
    at, ahead = parts.index(around), products_ahead(around, fresh_names(kernel, place))
    return block(*parts[:at], *ahead, *parts[at + 1 :])


def fresh_names(kernel: Kernel, place: Place) -> frozenset[str]:
    """The names that new variables and buffers at ``place`` do not take."""
    buffers = {s.buffer.name for s in walk_stmts(kernel.body) if isinstance(s, Allocate)}
    return taken_names(kernel) | place.names | buffers


_Pieces = Callable[[Expr], tuple[Stmt, ...]]


@dataclass
class _Pipeline:
    """One loop to be pipelined."""

    loop: For
    stages: int
    fill: Fill
    taken: frozenset[str]
    place: Place

    def __post_init__(self) -> None:
        if self.loop.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
            raise refusal("its iterations do not run in order", self.loop, "choose a serial loop")
        parts, self.rest = parts_between(self.loop)
        copies = [_Copy.of(s) for s in parts]
        self.copies = [copy for copy in copies if copy is not None]
        if len(self.copies) != len(parts):
            raise refusal("more than copies stands before the barrier", self.loop, "stage first")
        filled = [copy.compute.out.buffer for copy in self.copies]
        self.buffers = {buffer: staged(buffer, self.stages) for buffer in filled}

    def check(self, kernel: Kernel) -> None:
        """Refuses copies that others read, or that the way of filling cannot do."""
        check_alone(kernel, self.loop, self.buffers)
        for copy in [copy.compute for copy in self.copies]:
            if copy.out.buffer.space is not Space.WORKGROUP or copy.combiner is not None:
                raise refusal(
                    f"'{copy.name}' is no copy to shared memory", self.loop, "stage first"
                )
            if {o.view.buffer for o in copy.operands} & buffers_written(self.loop):
                raise refusal(
                    f"the loop writes what '{copy.name}' copies",
                    self.loop,
                    "copy only what does not change",
                )
            if self.fill is Fill.COPY:
                continue
            if not all(isinstance(d.extent, Const) for d in copy.dims):
                raise refusal(
                    f"in '{copy.name}' an extent is not constant", self.loop, "choose Fill.COPY"
                )
            computes = len(copy.operands) != 1 or copy.body is not copy.operands[0].var
            if self.fill is Fill.ASYNC and computes:
                raise refusal(
                    f"'{copy.name}' computes on the way, which asynchronous copies do not",
                    self.loop,
                    "convert where the copy is read, or choose Fill.COPY",
                )

    def stmt(self) -> Stmt:
        """What stands in the place of the loop."""
        match self.fill:
            case Fill.ASYNC:
                return self._asynchronous()
            case Fill.COPY:
                return self._synchronous(lambda i: self._guarded(i, self._copies_of(i)), _nothing)
            case Fill.REGISTERS:
                return self._in_registers()

    # The pieces: copies for an iteration, and what reads them.

    def _at(self, stmt: Stmt, iteration: Expr) -> Stmt:
        """``stmt`` for another iteration, on that one's buffers."""
        moved = substitute_stmt(stmt, {self.loop.var: iteration})
        slot = iteration % self.stages
        for old, new in self.buffers.items():
            moved = readdress(moved, old, partial(in_slot, new, slot))
        return moved

    def _copies_of(self, iteration: Expr) -> tuple[Stmt, ...]:
        return tuple(self._at(copy.on_lanes(copy.compute), iteration) for copy in self.copies)

    def _guarded(self, iteration: Expr, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return (If(iteration < self.loop.extent, block(*stmts)),) if stmts else ()

    def _rest_of(self, iteration: Expr) -> tuple[Stmt, ...]:
        return tuple(self._at(stmt, iteration) for stmt in self.rest)

    # The three forms.

    def _synchronous(self, before: _Pieces, after: _Pieces) -> Stmt:
        following = self.loop.var + 1
        body = block(
            _BARRIER,
            *before(following),
            *self._rest_of(self.loop.var),
            *self._guarded(following, after(following)),
        )
        first = self._guarded(const(0), self._copies_of(const(0)))
        return block(*first, replace(self.loop, body=body), _BARRIER)

    def _in_registers(self) -> Stmt:
        held = [_Held(copy, self.taken) for copy in self.copies]

        def load(iteration: Expr) -> tuple[Stmt, ...]:
            inside = iteration < self.loop.extent
            moved = [_only(self._at(h.load, iteration), inside) for h in held]
            return tuple(h.copy.on_lanes(load) for h, load in zip(held, moved, strict=True))

        def store(iteration: Expr) -> tuple[Stmt, ...]:
            return tuple(h.copy.on_lanes(self._at(h.store, iteration)) for h in held)

        return block(*(Allocate(h.buffer) for h in held), self._synchronous(load, store))

    def _asynchronous(self) -> Stmt:
        ahead = self.stages - 1

        def start(iteration: Expr) -> tuple[Stmt, ...]:
            copies = tuple(
                copy.on_lanes(_asynchronous(self._at(copy.compute, iteration), self.place))
                for copy in self.copies
            )
            return (*self._guarded(iteration, copies), Call("commit_copies", ()))

        first = [stmt for stage in range(ahead) for stmt in start(const(stage))]
        body = block(
            Call("wait_copies", (const(ahead - 1),)),
            _BARRIER,
            *start(self.loop.var + ahead),
            *self._rest_of(self.loop.var),
        )
        done = Call("wait_copies", (const(0),))
        return block(*first, replace(self.loop, body=body), done, _BARRIER)


def _nothing(_iteration: Expr) -> tuple[Stmt, ...]:
    return ()


def _only(load: Stmt, inside: Expr) -> Stmt:
    """``load`` with zeros where ``inside`` does not hold: registers always have a value."""
    assert isinstance(load, Compute)
    return zero_outside(load, inside)


def in_slot(new: Buffer, slot: Expr, view: View) -> View:
    """``view`` in one ``slot`` of ``new``, which has several of the view's buffer."""
    return View(new, (slot, *view.index), view.mask)


def reallocated(body: Stmt, renamed: Mapping[Buffer, Buffer]) -> Stmt:
    """``body`` with other buffers allocated in the place of those that are ``renamed``."""

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Allocate) and stmt.buffer in renamed:
            return Allocate(renamed[stmt.buffer], stmt.span)
        return stmt

    return rewrite_stmts(body, change)


def staged(old: Buffer, stages: int) -> Buffer:
    """``stages`` of the buffer, one after the other; of a swizzled one, in whole periods."""
    whole = max(1, _ALIGNMENT // old.dtype.bytes)
    if old.layout.swizzle is not None:
        whole = math.lcm(whole, old.layout.swizzle.period)
    stride = -(-old.layout.extent // whole) * whole
    moved = tuple(LayoutBlock(b.dim + 1, b.size, b.stride) for b in old.layout.blocks)
    layout = replace(old.layout, parts=(LayoutBlock(0, stages, stride), *moved))
    return Buffer(old.name, old.dtype, (stages, *old.shape), layout, old.space)


@dataclass(frozen=True)
class _Copy:
    """The part of a work-item in a copy, or that of each lane of a subgroup in the loop ``lanes``
    over them."""

    compute: Compute
    lanes: For | None = None

    @staticmethod
    def of(stmt: Stmt) -> _Copy | None:
        """The copy that ``stmt`` is, if it is one."""
        if isinstance(stmt, Compute):
            return _Copy(stmt)
        if isinstance(stmt, For) and stmt.kind is LoopKind.LANE and isinstance(stmt.body, Compute):
            return _Copy(stmt.body, stmt)
        return None

    def on_lanes(self, stmt: Stmt) -> Stmt:
        """``stmt`` in the loop over lanes."""
        return stmt if self.lanes is None else replace(self.lanes, body=stmt)


class _Held:
    """A copy in two halves: into registers, and from there."""

    def __init__(self, copy: _Copy, taken: frozenset[str]) -> None:
        self.copy = copy
        compute = copy.compute
        # What a subgroup allocates is held by its lanes, one part each.
        dims = [Dim(copy.lanes.var, copy.lanes.extent)] if copy.lanes is not None else []
        dims += compute.dims
        sizes = tuple(int(d.extent.value) for d in dims if isinstance(d.extent, Const))
        name = fresh(f"{compute.out.buffer.name}_next", taken)
        self.buffer = buffer(name, compute.out.buffer.dtype, sizes, space=Space.PRIVATE)
        here = View(self.buffer, tuple(d.var for d in dims))
        # What lies beyond the copy is loaded as zero, and not stored.
        self.load = replace(compute, name=f"{compute.name}_load").with_result(here)
        # Of what is computed on the way, the result is held.
        first = next((operand.var.name for operand in compute.operands), "held")
        held = var(first, compute.out.buffer.dtype)
        self.store = replace(
            compute, name=f"{compute.name}_store", operands=(Operand(held, here),)
        ).with_result(body=held)


def _asynchronous(copy: Stmt, place: Place) -> Stmt:
    """The copy as calls; neighbours in the source, along the last dim, as the lanes of one."""
    assert isinstance(copy, Compute)
    source = copy.operands[0].view
    stmt: Stmt = Call("copy_async", (replace(copy.out, mask=None), source))
    if copy.out.mask is not None:
        stmt = If(copy.out.mask, stmt)
    facts = place.facts_with(copy.dims)
    for position, dim in enumerate(reversed(copy.dims)):
        size, kind = size_of(dim), LoopKind.UNROLLED
        if position == 0 and run_start(source, dim.var, size, facts, across=True) is not None:
            kind = LoopKind.VECTOR
        elif size > _UNROLLED_COPIES:
            kind = LoopKind.SERIAL
        stmt = For(dim.var, dim.extent, stmt, kind)
    return stmt
