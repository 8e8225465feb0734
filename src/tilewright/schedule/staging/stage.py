"""Operands in a better place: copied by whoever runs there, by all work-items of a workgroup, or by
a unit of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer, Space, Swizzle
from tilewright.ir.expr import Var, const
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import (
    Allocate,
    Call,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    LoopKind,
    Stmt,
    View,
)
from tilewright.ir.uses import view_variables
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import block, rewrite_stmts, walk_stmts
from tilewright.schedule.loops.tile import rename_dims, tile_compute
from tilewright.schedule.pipelines.barriers import is_barrier
from tilewright.schedule.queries.access import buffers_allocated, buffers_written
from tilewright.schedule.queries.place import (
    Place,
    around,
    holds,
    is_called,
    loops_named,
    rewrite_placed,
    sequence,
    size_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.runs import even_start, is_aligned, run_start, steps
from tilewright.schedule.queries.storage import BlockList
from tilewright.schedule.records.asks import an_unordered_compute, asks
from tilewright.schedule.records.transform import transform
from tilewright.schedule.staging.copiers import Copier, CopyUnit, Threads
from tilewright.schedule.staging.staging import Shape, Staging
from tilewright.schedule.staging.work_items import by_items, item_number, own_values, work_items

# Bytes that global memory moves at a time, on most devices.
_SEGMENT = 64


@transform
@asks(compute=an_unordered_compute)
def stage(
    kernel: Kernel,
    compute: str,
    operand: str,
    at: str | None = None,
    *,
    by: Copier | None = None,
    shape: Shape = "box",
    space: Space = Space.WORKGROUP,
    layout: BlockList = (),
    row_padding: Mapping[str, int] | None = None,
    swizzle: Swizzle | None = None,
    cast: DType | None = None,
    name: str | None = None,
) -> Kernel:
    """Copies what the compute reads through ``operand`` into a new buffer, and reads it there.

        for ow_o in 14:
          compute conv(ow in 4, kw in 3): s = src[ow_o*4 + ow + kw - 1 | 0 <= ... and ... < 56]
    ->  stage("conv", "s", at="ow_o")
        for ow_o in 14:
          alloc src_packed: f32[6] workgroup
          compute s_pack(ow_kw in 6):
            s = src[ow_o*4 + ow_kw - 1 | 0 <= ... and ... < 56]
            src_packed[ow_kw] = s
          compute conv(ow in 4, kw in 3): s = src_packed[ow + kw]

    The copy stands at the start of the loop ``at``, or of the kernel (after what fills the buffer
    there; directly before the compute, where ``at`` is its own name), and holds all that is read
    from there on. What a mask hides is zero in the copy, so that the compute reads without one.

    With ``shape="box"`` the copy has the tensor's dims that vary inside, each as long as the
    footprint, halo included; one is called like the compute's dims that index it, joined by ``_``.
    With ``shape="dims"`` it has the dims of the compute (and the loops in between) that the view
    depends on: packing, or im2col. ``layout`` orders and blocks these dims (see
    `storage.blocked_layout`); dims grow to whole blocks, filled with zeros. ``row_padding`` makes
    the step along a dim longer, against conflicts of banks or cache sets; ``swizzle`` avoids those
    without more memory, where steps are powers of two. ``cast`` converts at the copy. Names: the
    copying compute (``copy`` among the results of the step) is ``<operand>_pack``, the ``buffer``
    ``<its buffer>_packed`` or ``name``.

    ``by`` says who copies (see there): without it, each iteration of ``at`` for itself; `Threads`,
    all work-items of a workgroup for all of them; `CopyUnit`, the machine for all of them.
    """
    if at is not None and at != compute:
        loops_named(kernel, at)
    staging = Staging(
        kernel, compute, operand, shape, space, layout, row_padding or {}, swizzle, cast, name
    )
    if by is None:
        return _by_each(kernel, staging, at)
    _check(kernel, by, staging, at)
    assert at is not None
    return _Shared(staging, at, by).on_kernel(kernel)


def _check(kernel: Kernel, by: Copier, staging: Staging, at: str | None) -> None:
    where = f"kernel {kernel.name}"
    if at is None or at == staging.compute:
        raise refusal(
            "no loop is named for what a workgroup stages",
            where,
            "say `at` which loop inside its work-items, or at which of them",
        )
    if staging.space is not Space.WORKGROUP:
        raise refusal(
            f"a workgroup does not share {staging.space.value} memory",
            where,
            "leave `space` out, or `by`",
        )
    if isinstance(by, Threads):
        by.check(kernel)
    if isinstance(by, CopyUnit) and staging.dtype is not None:
        raise refusal(
            f"'{staging.operand}' is to become {staging.dtype.name} at the copy",
            where,
            "leave `cast` out, or let work-items copy",
            why="a unit copies elements as they are",
        )


def _behind_writers(parts: Sequence[Stmt], staging: Staging) -> int:
    """Where in the kernel what is to be copied is there: at its start, or after what fills it."""
    here = next((n for n, part in enumerate(parts) if holds(part, staging.compute)), 0)
    sources = {view.buffer for view in _sources(parts[here], staging)}
    writers = [n for n in range(here) if buffers_written(parts[n]) & sources]
    return writers[-1] + 1 if writers else 0


def _by_each(kernel: Kernel, staging: Staging, at: str | None) -> Kernel:
    """The copy wherever ``at`` is, by whoever runs there."""
    compute = staging.compute
    if at is None:
        parts = sequence(kernel.body)
        first = _behind_writers(parts, staging)
        staged = staging.on_body(block(*parts[first:]), Place())
        return replace(kernel, body=block(*parts[:first], *sequence(staged)))

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if at == compute and is_called(stmt, compute):
            return staging.on_body(stmt, place)
        if not (isinstance(stmt, For) and stmt.var.name == at):
            return None
        if not holds(stmt, compute):
            return None
        return replace(stmt, body=staging.on_body(stmt.body, place.inside(stmt)))

    body = rewrite_placed(kernel.body, Place(), change)
    if body is kernel.body:
        raise refusal(
            f"the loop '{at}' does not hold the compute '{compute}'",
            kernel,
            "choose a loop around it",
        )
    return replace(kernel, body=body)


@dataclass(frozen=True)
class _Shared:
    """What is staged for a whole workgroup in the loop ``at``, ``by`` whom."""

    staging: Staging
    at: str
    by: Copier

    def on_kernel(self, kernel: Kernel) -> Kernel:
        """The kernel with the copies. Raises `ScheduleError` where none could share them."""
        body = rewrite_placed(kernel.body, Place(), self.on_stmt)
        if body is kernel.body:
            raise refusal(
                f"no work-items are around the loop '{self.at}' with '{self.staging.compute}'",
                kernel,
                "run loops around it as WORKGROUP, SUBGROUP or LANE first",
            )
        return replace(kernel, body=body)

    def on_stmt(self, stmt: Stmt, place: Place) -> Stmt | None:
        """The work-items' loops with the buffers that they share around them."""
        if not (isinstance(stmt, For) and stmt.kind in THREADS):
            return None
        items, inside = work_items(stmt, place)
        if not self._holds(stmt):
            return None
        if any(loop.var.name == self.at for loop in items[:-1]):
            raise refusal(
                f"there are work-items inside the loop '{self.at}'",
                items[-1],
                f"stage at '{items[-1].var.name}', or at a loop inside",
                why="all work-items make the copies together",
            )
        buffers: list[Buffer] = []

        def on_loop(node: Stmt, here: Place) -> Stmt | None:
            if not isinstance(node, For) or node.var.name != self.at or not self._holds(node):
                return None
            body, buffer = self._on_body(node.body, here.inside(node), items)
            buffers.append(buffer)
            return replace(node, body=body)

        if items[-1].var.name == self.at:
            inner, buffer = self._on_body(items[-1].body, inside, items)
            buffers.append(buffer)
        else:
            inner = rewrite_placed(items[-1].body, inside, on_loop)
        return block(*(Allocate(b) for b in buffers), around(items, inner))

    def _holds(self, loop: For) -> bool:
        """Whether the loop ``at`` is in ``loop``, with the compute inside."""
        fors = [s for s in walk_stmts(loop) if isinstance(s, For) and s.var.name == self.at]
        return any(holds(nest, self.staging.compute) for nest in fors)

    def _on_body(self, body: Stmt, here: Place, items: Sequence[For]) -> tuple[Stmt, Buffer]:
        """``body`` after the copy, with the barriers that this needs; and the copy's buffer."""
        vars_ = own_values(here, items)
        _check_source(body, self.staging, vars_, items)
        buffer, pack, body = self.staging.split(body, here, items)
        self.staging.buffers.add(buffer.name)
        copy = self._copy(rename_dims(pack, here.names), items, here)
        barrier = Call("barrier", ())
        parts = sequence(body)
        first = _barrier_between(parts, self.staging.compute)
        if first is not None:
            return block(*parts[:first], copy, *parts[first:]), buffer
        return block(copy, barrier, *parts, barrier), buffer

    def _copy(self, pack: Compute, items: Sequence[For], here: Place) -> Stmt:
        """The part of a work-item in the copy ``pack``."""
        if isinstance(self.by, CopyUnit):
            return self._by_the_first(pack, items, here, self.by)
        order, source = _copy_order(pack), pack.operands[0].view
        runs = (order, source, _run(pack, order, self.by, here))
        return by_items(pack, items, here, runs, self.by.lanes, self.by.across)

    def _by_the_first(
        self, pack: Compute, items: Sequence[For], here: Place, unit: CopyUnit
    ) -> Stmt:
        """``pack`` in boxes, by the first of the work-items; with their dims, part by part."""
        sizes = dict(unit.boxes)
        if self.staging.shape == "dims":
            sizes = {dim.var.name: sizes.get(dim.var.name, 1) for dim in pack.dims}
        copies = rewrite_stmts(tile_compute(pack, here, sizes), _unrolled)
        return If(item_number(items)[0] == const(0), copies)


def _unrolled(stmt: Stmt) -> Stmt:
    return replace(stmt, kind=LoopKind.UNROLLED) if isinstance(stmt, For) else stmt


def _barrier_between(parts: Sequence[Stmt], compute: str) -> int | None:
    """Where the first barrier is, if it stands before ``compute``, and another one at the end: then
    neither a copy in front of the first nor one of the next iteration needs any more."""
    barriers = [i for i, stmt in enumerate(parts) if is_barrier(stmt)]
    if not barriers or barriers[-1] != len(parts) - 1:
        return None
    before = parts[: barriers[0]]
    return None if any(holds(part, compute) for part in before) else barriers[0]


def _run(pack: Compute, order: Sequence[Dim], by: Threads, here: Place) -> int:
    """How many elements to copy at a time: through the digits of fused dims, and past blocks of a
    layout, only what stays together, as elements that are stored apart are loaded one by one,
    better by neighbours; but where they begin at multiples of so many, one access loads them."""
    source, inner, wide = pack.operands[0].view, order[-1].var, by.vector
    if even_start(source, inner) is not None:
        return wide
    facts = here.facts_with(pack.dims)
    while wide > 1 and run_start(pack.out, inner, wide, facts, by.across) is None:
        start = run_start(source, inner, wide, facts)
        if start is not None and is_aligned(start, wide, facts):
            return wide
        wide //= 2
    return wide


def _check_source(body: Stmt, staging: Staging, vars_: set[Var], items: Sequence[For]) -> None:
    """Refuses to copy what work-items have or make themselves."""
    buffers = buffers_written(items[0]) | buffers_allocated(items[0])
    for view in _sources(body, staging):
        used = view_variables(view)
        if view.buffer in buffers:
            raise refusal(
                f"'{view.buffer.name}' is written by work-items",
                to_text(view),
                "stage what is only read",
                why="others would copy it before",
            )
        if used & vars_:
            raise refusal(
                f"the view of '{staging.operand}' depends on a let of the work-item",
                to_text(view),
                "stage before the let is made",
                why="others that copy for it have another value",
            )


def _sources(body: Stmt, staging: Staging) -> Iterator[View]:
    """The views to copy from."""
    for stmt in walk_stmts(body):
        if is_called(stmt, staging.compute):
            yield from (o.view for o in stmt.operands if o.var.name == staging.operand)


def _copy_order(pack: Compute) -> list[Dim]:
    """The dims of the copy from the slowest to the one along which neighbours are copied.

    Innermost is what lies together in the source, until that is a segment of global memory. In
    which order segments are read is free, so there the destination decides: what lies together in
    it is stored by work-items that are neighbours.
    """
    source, target = (steps(pack.dims, view) for view in (pack.operands[0].view, pack.out))
    # A dim that moves no address at first (a mask's, a quotient's) has no neighbours to copy.
    left = sorted(pack.dims, key=lambda dim: (source[dim.var] == 0, source[dim.var]))
    wanted = _SEGMENT // pack.operands[0].view.buffer.dtype.bytes
    inner: list[Dim] = [left.pop(0)]
    run = size_of(inner[0])
    while left and run < wanted and 0 < source[left[0].var] <= run:
        inner.append(left.pop(0))
        run *= size_of(inner[-1])
    left.sort(key=lambda dim: target[dim.var])
    return [*reversed(left), *reversed(inner)]
