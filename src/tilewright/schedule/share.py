"""Operands in memory that a workgroup shares, which its work-items fill together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space, Swizzle
from tilewright.ir.expr import Const, Expr, Var, all_of, conjuncts, const, var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import (
    Allocate,
    Call,
    Compute,
    Dim,
    For,
    Kernel,
    Let,
    LoopKind,
    Operand,
    Stmt,
    View,
)
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import block, map_compute, map_exprs, substitute, variables, walk_stmts
from tilewright.schedule.access import (
    buffers_allocated,
    buffers_written,
    view_variables,
)
from tilewright.schedule.digits import digits_of
from tilewright.schedule.fuse import rename_dims
from tilewright.schedule.place import (
    Place,
    around,
    computes_named,
    fresh,
    holds,
    loops_named,
    rewrite_placed,
    sequence,
    size_of,
)
from tilewright.schedule.promote import Promotion
from tilewright.schedule.runs import even_start, uniform
from tilewright.schedule.storage import BlockList
from tilewright.schedule.transform import transform
from tilewright.simplify import simplify_kernel

# Bytes that global memory moves at a time, on most devices.
_SEGMENT = 64


@transform
def share(
    kernel: Kernel,
    compute: str,
    operands: Sequence[str],
    at: str,
    *,
    by: Literal["tensor", "dims"] | Mapping[str, Literal["tensor", "dims"]] = "dims",
    layout: Mapping[str, BlockList] | None = None,
    row_padding: Mapping[str, Mapping[str, int]] | None = None,
    swizzle: Mapping[str, Swizzle] | None = None,
    cast: Mapping[str, DType] | None = None,
    vector: int = 1,
    lanes: int = 0,
) -> Kernel:
    """Copies what all work-items of a workgroup read through ``operands`` into memory they share.

        workgroup for t in 4:
          for k_o in 2:
            compute f(i in 2, k in 8): x = src[t*2 + i, k_o*8 + k] ...
    ->  share("f", ["x"], at="k_o")
        alloc src_packed: f32[4, 2, 8] workgroup
        workgroup for t in 4:
          for k_o in 2:
            compute x_pack(part in 16):
              x = src[part // 2, k_o*8 + part % 2 * 4 + t]
              src_packed[part // 4, part // 2 % 2, part % 2 * 4 + t] = x
            barrier()
            compute f(i in 2, k in 8): x = src_packed[t, i, k] ...
            barrier()

    The work-items are the loops of the hierarchy around the loop ``at`` (which may be the innermost
    of them), nested directly in one another. Each copies every so manieth run of ``vector``
    neighbours (or of half as many, ...) in the source, so that neighbouring work-items read
    neighbouring memory. ``by``, ``layout``, ``row_padding``, ``swizzle`` and ``cast`` are those of
    `promote` by operand (``by``: or of all).

    Where subgroups act as one, they make the copies with so many ``lanes`` each, in loops of their
    own. Otherwise (0) the work-items of the nest are all there are.
    """
    loops_named(kernel, at, "share")
    computes_named(kernel, compute, "share")
    if vector < 1 or not operands:
        raise ScheduleError(
            f"share: {len(operands)} operands, {vector} elements at a time",
            where=f"kernel {kernel.name}",
            cure="name the operands to copy, and 1 element or more",
        )
    made = [
        Promotion(
            kernel,
            compute,
            operand,
            by if isinstance(by, str) else by.get(operand, "dims"),
            Space.WORKGROUP,
            (layout or {}).get(operand, ()),
            (row_padding or {}).get(operand, {}),
            (swizzle or {}).get(operand),
            (cast or {}).get(operand),
            None,
        )
        for operand in operands
    ]

    def copy(pack: Compute, items: list[For], here: Place) -> Stmt:
        """The part of a work-item in the copy ``pack``."""
        order, source = _copy_order(pack), pack.operands[0].view
        return by_items(pack, items, here, (order, source, _run(pack, order, vector)), lanes)

    return Sharing("share", tuple(made), compute, at, copy).on_kernel(kernel)


def _run(pack: Compute, order: Sequence[Dim], vector: int) -> int:
    """How many elements to copy at a time: through the digits of joined dims only what stays
    together, as elements that are stored apart are loaded one by one, better by neighbours."""
    source, inner = pack.operands[0].view, order[-1].var
    together = even_start(source, inner) is not None or even_start(pack.out, inner) is not None
    return vector if together else 1


@dataclass(frozen=True)
class Sharing:
    """The copies to make, of what the compute reads in the loop ``at``; ``copy`` is what a
    work-item does of one (of the loops over work-items given, at a place inside)."""

    transform: str
    promotions: tuple[Promotion, ...]
    compute: str
    at: str
    copy: Callable[[Compute, list[For], Place], Stmt]

    def on_kernel(self, kernel: Kernel) -> Kernel:
        """The kernel with the copies. Raises `ScheduleError` where nobody could share them."""
        body = rewrite_placed(kernel.body, Place(), self.on_stmt)
        if body is kernel.body:
            raise ScheduleError(
                f"{self.transform}: no work-items are around the loop '{self.at}' with "
                f"'{self.compute}'",
                where=f"kernel {kernel.name}",
                cure="run loops around it as WORKGROUP, SUBGROUP or LANE first",
            )
        return simplify_kernel(replace(kernel, body=body))

    def on_stmt(self, stmt: Stmt, place: Place) -> Stmt | None:
        """The work-items' loops with the buffers that they share around them."""
        if not (isinstance(stmt, For) and stmt.kind in THREADS):
            return None
        items, inside = work_items(stmt, place, self.transform)
        if not _holds(stmt, self.at, self.compute):
            return None
        if any(loop.var.name == self.at for loop in items[:-1]):
            raise ScheduleError(
                f"{self.transform}: there are work-items inside the loop '{self.at}'",
                where=headline(items[-1]),
                why="all work-items make the copies together",
                cure=f"share at '{items[-1].var.name}', or at a loop inside",
            )
        buffers: list[Buffer] = []

        def on_loop(node: Stmt, here: Place) -> Stmt | None:
            if not isinstance(node, For) or node.var.name != self.at:
                return None
            if not _holds(node, self.at, self.compute):
                return None
            body, new = self._on_body(node.body, here.inside(node), items)
            buffers.extend(new)
            return replace(node, body=body)

        if items[-1].var.name == self.at:
            inner, buffers = self._on_body(items[-1].body, inside, items)
        else:
            inner = rewrite_placed(items[-1].body, inside, on_loop)
        return block(*(Allocate(b) for b in buffers), around(items, inner))

    def _on_body(self, body: Stmt, here: Place, items: list[For]) -> tuple[Stmt, list[Buffer]]:
        """Copies, a barrier, ``body``, a barrier; and the copies' buffers."""
        copies: list[Stmt] = []
        buffers: list[Buffer] = []
        own = own_values(here, items, self.transform)
        for promotion in self.promotions:
            _check_source(body, promotion, own, items)
            buffer, pack, body = promotion.split(body, here, items)
            buffers.append(buffer)
            for each in self.promotions:
                each.buffers.add(buffer.name)
            copies.append(self.copy(rename_dims(pack, here.names), items, here))
        barrier = Call("barrier", ())
        return block(*copies, barrier, *sequence(body), barrier), buffers


def _holds(loop: For, at: str, compute: str) -> bool:
    """Whether the loop ``at`` is in ``loop``, with the compute inside."""
    found = [s for s in walk_stmts(loop) if isinstance(s, For) and s.var.name == at]
    return any(holds(each, compute) for each in found)


def work_items(outermost: For, place: Place, transform: str) -> tuple[list[For], Place]:
    """The loops over work-items, nested directly in one another, and the place inside them."""
    loops = [outermost]
    place = place.inside(outermost)
    while isinstance(loops[-1].body, For) and loops[-1].body.kind in THREADS:
        loops.append(loops[-1].body)
        place = place.inside(loops[-1])
    for loop in loops:
        if not isinstance(loop.extent, Const):
            raise ScheduleError(
                f"{transform}: the number of work-items along '{loop.var.name}' is not constant",
                where=headline(loop),
                cure="pad the computes to whole tiles before they are divided among work-items",
            )
    return loops, place


def own_values(here: Place, items: Sequence[For], transform: str) -> set[Var]:
    """The lets around here that differ between work-items; refuses where these do not all come
    here, and equally often."""
    varying: set[Var] = {loop.var for loop in items}
    own: set[Var] = set()
    steps = here.steps
    inside = next(i for i, step in enumerate(steps) if step is items[-1]) + 1
    for step in steps[inside:]:
        match step:
            case Let():
                if variables(step.value) & (varying | own):
                    own.add(step.var)
            case For() | Expr():
                decides = step.extent if isinstance(step, For) else step
                if variables(decides) & (varying | own):
                    raise ScheduleError(
                        f"{transform}: some work-items may not get to the barrier",
                        where=headline(step) if isinstance(step, For) else to_text(step),
                        why="it depends on the work-item",
                        cure="share at a loop outside of this, or pad to whole tiles first",
                    )
            case _:
                pass
    return own


def _check_source(body: Stmt, promotion: Promotion, own: set[Var], items: list[For]) -> None:
    """Refuses to copy what work-items have or make themselves."""
    made = buffers_written(items[0]) | buffers_allocated(items[0])
    for view in _sources(body, promotion):
        used = view_variables(view)
        if view.buffer in made:
            raise ScheduleError(
                f"share: '{view.buffer.name}' is written by work-items",
                where=to_text(view),
                why="others would copy it before",
                cure="share what is only read",
            )
        if used & own:
            raise ScheduleError(
                f"share: the view of '{promotion.operand}' depends on a let of the work-item",
                where=to_text(view),
                why="others that copy for it have another value",
                cure="share before the let is made",
            )


def _sources(body: Stmt, promotion: Promotion) -> Iterator[View]:
    """The views to copy from."""
    for stmt in walk_stmts(body):
        if isinstance(stmt, Compute) and stmt.name == promotion.compute:
            yield from (o.view for o in stmt.operands if o.var.name == promotion.operand)


def item_number(loops: Sequence[For]) -> tuple[Expr, int]:
    """The number of a work-item in its workgroup, and how many there are."""
    number: Expr = const(0)
    count = 1
    for loop in loops:
        assert isinstance(loop.extent, Const)
        number = number * int(loop.extent.value) + loop.var
        count *= int(loop.extent.value)
    return number, count


def by_items(
    compute: Compute,
    items: Sequence[For],
    here: Place,
    runs: tuple[Sequence[Dim], View, int],
    lanes: int,
) -> Stmt:
    """What one of the ``items`` does of ``compute``, as `together` has it; where subgroups act as
    one, in a loop over their ``lanes``."""
    if not lanes:
        return together(compute, items, here, runs)
    lane = var(fresh("lane", here.names | {d.var.name for d in compute.dims}))
    loop = For(lane, const(lanes), compute, LoopKind.LANE)
    return replace(loop, body=together(compute, [*items, loop], here.inside(loop), runs))


def together(
    compute: Compute, items: Sequence[For], here: Place, runs: tuple[Sequence[Dim], View, int]
) -> Compute:
    """The part of ``compute``, which stands for what all ``items`` do, that one work-item does.

    ``runs``: the dims, the one along which neighbours do neighbours last, and how many elements of
    a view one does at a time (or half as many, ...), where these are neighbours in memory there.
    """
    order, view, vector = runs
    number, count = item_number(items)
    sizes = {dim.var: size_of(dim) for dim in compute.dims}
    inner = order[-1].var
    wide, same = vector, None
    while wide > 1 and same is None:
        same = uniform(compute, view, inner, wide, here) if sizes[inner] % wide == 0 else None
        wide = wide if same is not None else wide // 2
    total = prod(sizes.values())
    taken = here.names | {o.var.name for o in compute.operands}
    part = var(fresh("part", taken))
    lane = var(fresh("element", taken))
    rounds = -(-total // (count * wide))

    def at(element: Expr) -> dict[Var, Expr]:
        position = (part * count + number) * wide + element
        digits = digits_of(position, [sizes[dim.var] for dim in order])
        return {dim.var: digit for dim, digit in zip(order, digits, strict=True)}

    first = at(const(0))
    values = at(lane) if wide > 1 else first
    # What holds for all of a run or for none of it is asked once.
    asked = {condition: substitute(condition, first) for condition in same or ()}
    compute = map_compute(
        replace(compute, dims=()),
        lambda v: replace(v, mask=all_of(asked.get(c, c) for c in conjuncts(v.mask))),
    )
    moved = map_exprs(compute, lambda e: substitute(e, values))
    assert isinstance(moved, Compute)
    run = [Dim(lane, const(wide))] if wide > 1 else []
    moved = replace(moved, dims=(Dim(part, const(rounds)), *run))
    if rounds * count * wide == total:
        return moved
    # The run, not the element: all of a vector is copied, or nothing.
    return _bounded(moved, part * count + number < total // wide)


def _bounded(compute: Compute, inside: Expr) -> Compute:
    """``compute`` where ``inside`` holds; elsewhere it touches nothing."""
    out = replace(compute.out, mask=all_of((inside, *conjuncts(compute.out.mask))))
    return zero_outside(compute, inside).with_result(out)


def zero_outside(compute: Compute, inside: Expr) -> Compute:
    """``compute`` with operands that are zero where ``inside`` does not hold."""
    operands = tuple(
        Operand(o.var, replace(o.view, mask=all_of((inside, *conjuncts(o.view.mask)))))
        for o in compute.operands
    )
    return replace(compute, operands=operands)


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


def steps(dims: Sequence[Dim], view: View) -> dict[Var, int]:
    """How far apart in memory the first two elements along each dim are."""
    offset = view.buffer.layout.offset_of(view.index)
    start: dict[Var, Expr] = dict.fromkeys(variables(offset), const(0))

    def where(place: dict[Var, Expr]) -> int:
        at = substitute(offset, place)
        return int(at.value) if isinstance(at, Const) else 0

    first = where(start)
    return {
        dim.var: abs(where({**start, dim.var: const(1)}) - first) if dim.var in start else 0
        for dim in dims
    }
