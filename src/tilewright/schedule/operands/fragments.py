"""Matrices that the lanes of a subgroup hold together: their layout, and who does what on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Buffer, Layout, LayoutBlock, Space
from tilewright.ir.expr import Const, Expr, Var, const, var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Compute, Dim, For, Kernel, LoopKind, Stmt, View
from tilewright.ir.visit import map_exprs, replace_buffer, rewrite_stmts, substitute, variables
from tilewright.layout.fragments import Copies, Fragment, registers
from tilewright.machines.instruction import Instruction
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    fresh,
    rewrite_computes,
    views_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_plain_compute, asks, positive
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify


@transform
@asks(compute=a_plain_compute)
def hold(
    kernel: Kernel,
    compute: str,
    name: str,
    instruction: Instruction,
    operand: str,
    dims: Mapping[str, str],
) -> Kernel:
    """Spreads the private buffer called ``name`` over the lanes of a subgroup, in tiles as the
    ``instruction`` has its operand (or result) called ``operand``; ``dims`` maps its dims to those
    of the compute that uses the buffer.

        alloc acc: f32[32, 8] private
        compute init(i in 32, j in 8): acc[i, j] = 0.0
    ->  hold("init", "acc", mma_m16n8k16, "c", {"m": "i", "n": "j"})
        alloc acc: f32[32, 8] private {0:2:4 0:2:2 0:8:32 1:4:8 1:2:1}

    Where the fragment has copies, the buffer has one more dim, their number: who fills the buffer
    makes all of them, and the compute takes the one for its own index. ``dims`` then maps the dim
    along which that is chosen as well.

        alloc held: f16[16, 4] private
        compute a_pack(m in 16, k in 4): held[m, k] = a[m, k]
        compute main(m in 16, n in 16, k in 4): acc[m, n] add= held[m, k] * b[k, n]
    ->  hold("main", "held", mma_m16n16k4, "a", {"m": "m", "k": "k", "n": "n"})
        alloc held: f16[16, 4, 2] private {...}
        compute a_pack(m in 16, k in 4, copy in 2): held[m, k, copy] = a[m, k]
        compute main(m in 16, n in 16, k in 4): acc[m, n] add= held[m, k, n // 4 % 2] * b[k, n]
    """
    fragment = _fragment(instruction, operand)
    uses = [view for stmt, _ in computes_named(kernel, compute) for view in views_of(stmt)]
    views_of_buffer = {v.buffer: v for v in uses if v.buffer.name == name}
    if not views_of_buffer:
        raise refusal(
            f"'{compute}' uses no buffer '{name}'",
            kernel,
            "choose one of " + ", ".join(sorted({v.buffer.name for v in uses})),
        )
    body = kernel.body
    for old, view in views_of_buffer.items():
        layout = _layout(view, fragment, dims)
        copies = () if fragment.copies is None else (fragment.copies.count,)
        new = Buffer(name, old.dtype, (*old.shape, *copies), layout, old.space)
        if fragment.copies is not None:
            body = _with_copies(body, old, fragment.copies, (compute, dims))
        body = replace_buffer(body, old, new)
    return replace(kernel, body=body)


def _fragment(instruction: Instruction, operand: str) -> Fragment:
    """How the lanes hold an operand, or the result."""
    roles = (instruction.out, *instruction.operands)
    for role in roles:
        if role.name == operand and role.fragment is not None:
            return role.fragment
    held = [role.name for role in roles if role.fragment is not None]
    raise refusal(
        f"lanes hold no '{operand}' of {instruction.name}",
        f"instruction {instruction.name}",
        "choose one of " + ", ".join(held) if held else "choose one that multiplies matrices",
        why=f"its result and operands are {', '.join(role.name for role in roles)}",
    )


def _with_copies(
    body: Stmt, buffer: Buffer, copies: Copies, reader: tuple[str, Mapping[str, str]]
) -> Stmt:
    """``body`` with one more index for ``buffer``: of what the ``reader`` takes, and of what is
    written all."""
    name, dims = reader

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Compute) or all(v.buffer is not buffer for v in views_of(stmt)):
            return stmt
        if stmt.out.buffer is buffer and stmt.combiner is None:
            lane = var(fresh("copy", {d.var.name for d in stmt.dims}))
            out = replace(stmt.out, index=(*stmt.out.index, lane))
            return replace(stmt, dims=(*stmt.dims, Dim(lane, const(copies.count)))).with_result(out)
        chosen = next((d.var for d in stmt.dims if d.var.name == dims.get(copies.dim)), None)
        if stmt.name != name or stmt.out.buffer is buffer or chosen is None:
            raise refusal(
                f"there are copies of '{buffer.name}', of which '{stmt.name}' takes none",
                stmt,
                "stage an operand of it, and hold that",
                why=f"only '{name}' chooses one, by '{dims.get(copies.dim)}'",
            )
        number = copies.number(chosen)
        operands = tuple(
            replace(o, view=replace(o.view, index=(*o.view.index, number)))
            if o.view.buffer is buffer
            else o
            for o in stmt.operands
        )
        return replace(stmt, operands=operands)

    return rewrite_stmts(body, change)


def _layout(view: View, fragment: Fragment, dims: Mapping[str, str]) -> Layout:
    """The layout of the buffer of ``view`` as tiles of ``fragment``."""
    shape = view.buffer.shape
    names = [index.name if isinstance(index, Var) else "" for index in view.index]
    along = [names.index(dims[d]) if dims.get(d) in names else -1 for d in fragment.dims]
    others = [n for dim, n in enumerate(shape) if dim not in along]
    if -1 in along or view.buffer.space is not Space.PRIVATE or any(n != 1 for n in others):
        raise refusal(
            f"'{view.buffer.name}' is no matrix of " + ", ".join(dims.values()),
            to_text(view),
            "name the dims that index it",
            why="lanes hold private buffers that are indexed by two dims of a compute",
        )
    tiled = fragment.tiled([shape[dim] for dim in along])
    along.append(len(shape))  # the number of the copy, if there are some
    return Layout(tuple(replace(b, dim=along[b.dim]) for b in tiled.blocks))


@transform
@asks(computes=a_plain_compute, lanes=positive)
def on_lanes(kernel: Kernel, computes: Sequence[str], lanes: int, name: str = "lane") -> Kernel:
    """Divides computes on matrices that a subgroup holds among its lanes: each does what it holds.

        alloc acc: f32[8, 8] private {lane m + 8 registers}
        compute init(m in 8, n in 8): acc[m, n] = 0.0
    ->  on_lanes(["init"], 8)
        alloc acc: f32[8, 8] private {...}
        lane for lane in 8:
          compute init(n in 8): acc[lane, n] = 0.0

    Dims of the compute that are parts of one that lanes and registers share are called after it.
    The compute reads or writes exactly one such matrix (or several that are spread alike), by its
    own dims:
    all of it, or a piece of which each lane holds as much as any other (``acc[m + p*4, n]``).
    """

    def change(compute: Compute, place: Place) -> Stmt:
        spread = _Spread(compute, lanes, var(fresh(name, place.names)))
        return For(spread.lane, const(lanes), spread.on_lane(place), LoopKind.LANE)

    return rewrite_computes(kernel, computes, change)


def _allocated_outside(place: Place) -> set[Buffer]:
    """What is allocated around the subgroups here: no lane holds a part of it."""
    loops = [i for i, step in enumerate(place.steps) if _is_subgroup(step)]
    outside = place.steps[: loops[0]] if loops else ()
    return {step.buffer for step in outside if isinstance(step, Allocate)}


def _is_subgroup(step: object) -> bool:
    return isinstance(step, For) and step.kind is LoopKind.SUBGROUP


@dataclass(frozen=True)
class _Spread:
    """A compute that is divided among ``lane``s."""

    compute: Compute
    lanes: int
    lane: Var

    def on_lane(self, place: Place) -> Compute:
        """What one lane does."""
        buffer, dims = self._matrix(place)
        held = registers(buffer.layout, self.lanes)
        taken = place.names | {d.var.name for d in self.compute.dims}
        values: dict[Var, Expr] = {dim.var: const(0) for dim in dims.values()}
        inner = dict.fromkeys(dims, 1)
        block_dims: list[tuple[int, Dim]] = []
        for block in self._blocks(buffer, dims, held):
            dim = dims[block.dim]
            if block.stride >= held:
                digit: Expr = self.lane // (block.stride // held) % block.size
            else:
                part = var(fresh(f"{dim.var.name}_r", taken))
                taken |= {part.name}
                digit = part
                block_dims.append((block.stride, Dim(part, const(block.size))))
            values[dim.var] = values[dim.var] + digit * inner[block.dim]
            inner[block.dim] *= block.size
        block_dims.sort(key=lambda pair: -pair[0])
        moved = map_exprs(replace(self.compute, dims=()), lambda e: substitute(e, values))
        assert isinstance(moved, Compute)
        kept = [d for d in self.compute.dims if d.var not in values]
        return replace(moved, dims=(*kept, *(dim for _, dim in block_dims)))

    def _blocks(self, buffer: Buffer, dims: Mapping[int, Dim], held: int) -> Iterator[LayoutBlock]:
        """The blocks of the buffer's layout, innermost first, as much of each as the compute goes
        through."""
        left = {number: _size(dim) for number, dim in dims.items()}
        for block in reversed(buffer.layout.blocks):
            if block.size == 1:
                continue
            if block.stride < held < block.stride * block.size:
                raise refusal(
                    f"no lane holds a part of '{buffer.name}' by itself",
                    self.compute,
                    "spread it over the lanes first (`hold`)",
                )
            size = min(block.size, left[block.dim])
            if left[block.dim] % size or (size < block.size and block.stride >= held):
                raise refusal(
                    f"{_size(dims[block.dim])} along '{dims[block.dim].var.name}' are no piece of "
                    f"'{buffer.name}' of which all lanes hold as much",
                    self.compute,
                    "go through all of it, or through whole tiles of the fragment",
                )
            left[block.dim] //= size
            if size > 1:
                yield replace(block, size=size)

    def _matrix(self, place: Place) -> tuple[Buffer, dict[int, Dim]]:
        """The matrix that lanes hold, and by its dims those of the compute."""
        others = _allocated_outside(place)
        held = [
            v
            for v in views_of(self.compute)
            if v.buffer.space is Space.PRIVATE and v.buffer not in others
        ]
        if not held:
            raise refusal(
                "no operand is in registers", self.compute, "choose a compute on a fragment"
            )
        lying = [(view.buffer, self._along(view, place)) for view in held]
        if any(self._shares(*pair) != self._shares(*lying[0]) for pair in lying):
            raise refusal(
                "its operands lie in registers in different ways",
                self.compute,
                "hold them in one layout",
            )
        return lying[0]

    def _shares(self, buffer: Buffer, dims: Mapping[int, Dim]) -> dict[Var, list[tuple[int, int]]]:
        """What each dim of the compute is made of, innermost first: sizes, and the steps of the
        lane, 0 where a lane goes on."""
        held = registers(buffer.layout, self.lanes)
        shares: dict[Var, list[tuple[int, int]]] = {dim.var: [] for dim in dims.values()}
        for block in self._blocks(buffer, dims, held):
            share, step = shares[dims[block.dim].var], block.stride // held
            if share and not step and not share[-1][1]:
                share[-1] = (share[-1][0] * block.size, 0)
            else:
                share.append((block.size, step))
        return shares

    def _along(self, view: View, place: Place) -> dict[int, Dim]:
        """Which dim of the compute goes through each of a matrix."""
        dims = {dim.var: dim for dim in self.compute.dims}
        along: dict[int, Dim] = {}
        for number, (index, size) in enumerate(zip(view.index, view.buffer.shape, strict=True)):
            dim = next((dims[v] for v in variables(index) if v in dims), None)
            # Pieces begin where one would if they went through all of it, one after another.
            if size > 1 and not (
                dim is not None
                and size % (_size(dim) or size + 1) == 0
                and place.facts.divisible(simplify(index - dim.var, place.facts), _size(dim))
            ):
                raise refusal(
                    f"it does not go through all of '{view.buffer.name}' by its dims, nor a piece",
                    self.compute,
                    f"write the view as {view.buffer.name}[dims], here it is {to_text(view)}",
                )
            if dim is not None:
                along[number] = dim
        return along


def _size(dim: Dim) -> int:
    """The extent of a dim; 0 if it is not constant."""
    return int(dim.extent.value) if isinstance(dim.extent, Const) else 0
