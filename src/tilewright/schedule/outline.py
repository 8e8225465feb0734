"""What stands in loops as kernels of their own, on tiles, and back.

    kernel softmax(in x: f32[64, 32], out y: f32[64, 32]):
      for i_o in 4:
        alloc s: f32[16] private
        compute zero(i in 16): s[i] = 0.0
        compute total(i in 16, j in 32): s[i] add= x       (x = x[i_o*16 + i, j])
        compute part(i in 16, j in 32): y[i_o*16 + i, j] = x / s
->  kernel softmax_part(in x: f32[16, 32], out y: f32[16, 32]):
      alloc s: f32[16] private
      compute zero(i in 16): s[i] = 0.0
      compute total(i in 16, j in 32): s[i] add= x         (x = x[i, j])
      compute part(i in 16, j in 32): y[i, j] = x / s

What a kernel of the second form becomes can be put back: the tile ``x[i, j]`` is
``x[i_o*16 + i, j]``, and memory that all workers would reach is each worker's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr, const
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Compute,
    For,
    Kernel,
    Param,
    ScalarParam,
    Stmt,
    View,
)
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, replace_buffer, walk_stmts
from tilewright.schedule.fusion.names import named_apart, names_bound, variables_in
from tilewright.schedule.groups import reshaped
from tilewright.schedule.queries.access import (
    Access,
    accesses,
    buffers_allocated,
    readdress,
    run_along,
)
from tilewright.schedule.queries.flow import item_of
from tilewright.schedule.queries.place import (
    Place,
    is_called,
    rewrite_placed,
    sequence,
    walk_placed,
)
from tilewright.schedule.queries.refusal import refusal, running
from tilewright.simplify import simplify_kernel


@dataclass(frozen=True, eq=False)
class Tile:
    """What the outlined kernel has as ``buffer`` is a part of ``whole``, from ``base`` on."""

    buffer: Buffer
    whole: Buffer
    base: tuple[Expr, ...]

    def inside(self, view: View) -> View:
        """A view of the whole as one of the tile."""
        moved = (at - base for at, base in zip(view.index, self.base, strict=True))
        return View(self.buffer, tuple(moved), view.mask)

    def outside(self, view: View) -> View:
        """A view of the tile as one of the whole."""
        moved = (at + base for at, base in zip(view.index, self.base, strict=True))
        return View(self.whole, tuple(moved), view.mask)


@dataclass(frozen=True, eq=False)
class Part:
    """The statements of one block that stand from ``first`` to before ``last``, as a ``kernel`` of
    their own on ``tiles``."""

    block: Block
    first: int
    last: int
    kernel: Kernel
    tiles: tuple[Tile, ...]

    @property
    def run(self) -> Stmt:
        """The statements."""
        return Block(self.block.body[self.first : self.last])


@dataclass(frozen=True, eq=False)
class Outlines:
    """A kernel, of which blocks stand as kernels of their own."""

    kernel: Kernel
    parts: tuple[Part, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of the blocks, in program order."""
        return tuple(part.kernel for part in self.parts)

    def together(
        self, kernels: Sequence[Kernel], packed: Mapping[str, int] = MappingProxyType({})
    ) -> Kernel:
        """The kernel with what ``kernels``, which became of the blocks, do in place of these;
        ``packed`` names the arguments that the one of them takes packed, and says how many arrays
        it takes instead of each: packed once for all tiles."""
        params: dict[str, tuple[Param, ...]] = {}
        for part, kernel in zip(self.parts, kernels, strict=True):
            arrays = iter(kernel.arrays)
            for tile in part.tiles:
                new = tuple(islice(arrays, packed.get(tile.buffer.name, 1)))
                if tile.buffer.name in packed:
                    self._check_packed(part, tile)
                    params[tile.buffer.name] = new
        taken = names_bound(self.kernel.body) | {param.name for param in self.kernel.params}
        for part in self.parts:
            taken -= names_bound(part.run)
        bodies: dict[Stmt, tuple[Part, Stmt]] = {
            part.block: (part, _put_back(part, kernel, set(taken)))
            for part, kernel in zip(self.parts, kernels, strict=True)
        }

        def change(stmt: Stmt, place: Place) -> Stmt | None:
            if stmt not in bodies:
                return None
            part, run = bodies[stmt]
            # Other parts may stand in what is beside this one.
            others = [rewrite_placed(inner, place, change) for inner in part.block.body]
            return block(*others[: part.first], run, *others[part.last :])

        body = rewrite_placed(self.kernel.body, Place(), change)
        all_params = tuple(new for p in self.kernel.params for new in params.get(p.name, (p,)))
        return simplify_kernel(replace(self.kernel, params=all_params, body=body))

    def _check_packed(self, part: Part, tile: Tile) -> None:
        """Refuses what cannot be packed for all tiles at once: a part of an array, or one that
        something else reads."""
        inside = sum(tile.whole in buffers_in(stmt) for stmt in sequence(part.run))
        all_ = (s for s in walk_stmts(self.kernel.body) if not isinstance(s, Block | For))
        others = sum(tile.whole in buffers_in(stmt) for stmt in all_) > inside
        if others or any(base is not const(0) for base in tile.base):
            raise refusal(
                f"put_together: '{tile.whole.name}' cannot be packed for all tiles",
                part.kernel,
                "pack it in the kernel of the tile",
                why="others read it as it is" if others else "each tile reads another part of it",
            )


@running("outline")
def outline(kernel: Kernel, compute: str) -> Outlines:
    """What stands beside ``compute``, computes and what they allocate with nothing else in between,
    as a kernel of its own on tiles; several where there are several of that name.

    What they reach of a buffer becomes a buffer of that size, wherever loops around them say where
    that begins. Refuses with `ScheduleError` where ``compute`` stands in no loop; what is left of
    tiles may, beside them.
    """
    places = [(s, p) for s, p in walk_placed(kernel.body, Place()) if _holds(s, compute)]
    if not any(place.loops for _, place in places):
        raise refusal(
            f"'{compute}' stands in no loop"
            if places
            else f"there is no block with the compute '{compute}'",
            kernel,
            "tile it first, together with what it depends on (compute_at)",
        )
    parts: list[Part] = []
    for stmt, place in places:
        assert isinstance(stmt, Block)
        name = f"{kernel.name}_part{len(parts) + 1 if len(places) > 1 else ''}"
        parts.append(_outlined(name, kernel, stmt, place, compute))
    return Outlines(kernel, tuple(parts))


def _holds(stmt: Stmt, compute: str) -> bool:
    return isinstance(stmt, Block) and any(is_called(part, compute) for part in stmt.body)


def _outlined(name: str, kernel: Kernel, whole: Block, place: Place, compute: str) -> Part:
    at = next(n for n, part in enumerate(whole.body) if is_called(part, compute))
    others = [n for n, s in enumerate(whole.body) if not isinstance(s, Allocate | Compute)]
    first = max((n + 1 for n in others if n < at), default=0)
    last = min((n for n in others if n > at), default=len(whole.body))
    stmt = Block(whole.body[first:last])
    item = item_of(stmt)
    inside = buffers_allocated(stmt)
    reached: dict[Buffer, list[Access]] = {}
    for access in accesses(stmt, place):
        if access.view.buffer not in inside:
            reached.setdefault(access.view.buffer, []).append(access)
    tiles = tuple(_tile(whole, value) for whole, value in reached.items())
    body: Stmt = stmt
    for tile in tiles:
        body = readdress(body, tile.whole, tile.inside)
    arrays = [Param(tile.buffer, item.access(tile.whole)) for tile in tiles]
    numbers = tuple(_numbers(kernel, place))
    outlined = simplify_kernel(Kernel(name, (*numbers, *arrays), body))
    used = variables_in(outlined.body)
    params = tuple(p for p in outlined.params if isinstance(p, Param) or p.var in used)
    return Part(whole, first, last, replace(outlined, params=params), tiles)


def _tile(whole: Buffer, touching: Sequence[Access]) -> Tile:
    """The part of ``whole`` that the accesses ``touching`` reach: of each dim, all of it, or a run
    that begins where something outside says."""
    base: list[Expr] = []
    sizes: list[int] = list(whole.shape)
    for dim in range(whole.rank):
        begin = run_along(dim, touching)
        if (
            begin is None
            or sum(layout_block.dim == dim for layout_block in whole.layout.blocks) > 1
        ):
            base.append(const(0))
            continue
        base.append(begin[0])
        sizes[dim] = begin[1]
    blocks = tuple(
        layout_block
        if base[layout_block.dim] is const(0)
        else replace(layout_block, size=sizes[layout_block.dim])
        for layout_block in whole.layout.blocks
    )
    layout = replace(whole.layout, parts=blocks)
    tile = replace(whole, sizes=tuple(sizes), layout=layout, space=Space.GLOBAL)
    return Tile(tile, whole, tuple(base))


def _numbers(kernel: Kernel, place: Place) -> Iterator[ScalarParam]:
    """What the statements at ``place`` may take from outside: what a call passes, and where loops
    are."""
    yield from kernel.scalars
    for loop in place.loops:
        low, high = place.facts.bounds(loop.var)
        yield ScalarParam(loop.var, low, high)


def _put_back(part: Part, kernel: Kernel, taken: set[str]) -> Stmt:
    """What ``kernel``, which became of the block, does to what the block reached."""
    arrays = {param.name: param.buffer for param in kernel.arrays}
    # Loops around the block may be called like those that recipes made.
    body = named_apart(kernel.body, taken)
    for tile in part.tiles:
        now = arrays.get(tile.buffer.name)
        if now is None:
            continue  # it is packed
        if now is not tile.buffer:
            body = reshaped(body, now, tile.buffer)
        body = readdress(body, tile.buffer, tile.outside)
    for buffer in sorted(buffers_allocated(body), key=lambda allocated: allocated.name):
        if buffer.space is Space.GLOBAL:
            body = replace_buffer(body, buffer, replace(buffer, space=Space.PRIVATE))
    return body
