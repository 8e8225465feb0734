"""The steps of all tiles' reductions in even shares, which need not end with a tile: stream-K.

A workgroup's share is a run of steps, in the order of the tiles. The workgroup finishes the tiles
that lie in its share. Of one that an end of the share cuts, which are two at most, it keeps what
it has accumulated. A second grid has a workgroup for each end between two shares: where it is the
first that cuts its tile, it adds up the tile's parts, in order, and finishes it. So the result is
the same in every run, and no workgroup waits for another.

Osama, Merrill, Cecka, Garland, Owens: "Stream-K: Work-centric Parallel Decomposition for Dense
Matrix-Matrix Multiplication on the GPU" (PPoPP 2023); there, workgroups wait for parts of others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd

from tilewright.ir.buffer import Buffer, Layout, LayoutBlock
from tilewright.ir.expr import Const, Expr, Var, const, maximum, minimum, var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import (
    Allocate,
    Compute,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Operand,
    Stmt,
    View,
)
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import block, replace_buffer, substitute_stmt, walk_stmts
from tilewright.schedule.loops.merge_loops import merged_loop
from tilewright.schedule.queries.access import accesses, buffers_allocated, buffers_written
from tilewright.schedule.queries.identity import is_identity
from tilewright.schedule.queries.place import (
    Place,
    claim,
    fresh,
    loops_named,
    names_in,
    perfect_nest,
    rewrite_placed,
    sequence,
    size_of,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_loop_of_plain_computes, asks, positive
from tilewright.schedule.records.transform import give, transform


@transform
@asks(loop=a_loop_of_plain_computes, workgroups=positive, vector=positive)
def stream_k(
    kernel: Kernel, loop: str, workgroups: int, name: str = "stream", *, vector: int = 1
) -> Kernel:
    """Divides the iterations of ``loop``, of all tiles of the grid, evenly among ``workgroups``.

        grid for m_o in 3:
          workgroup for t in 16:
            alloc acc: f32[4] private
            compute init(i in 4): acc[i] = 0.0
            for k in 5:
              compute main(i in 4): acc[i] add= x    (x = src[m_o*64 + t*4 + i, k])
            compute end(i in 4): dst[m_o*64 + t*4 + i] = acc[i]
    ->  stream_k("k", 2)
        alloc acc_parts: f32[2, 2, 16, 4]
        grid for group in 2:
          workgroup for t in 16:
            let begin = group*15 // 2
            let end = (group*15 + 15) // 2
            for turn in (end - 1)//5 - begin//5 + 1:
              let m_o = begin//5 + turn
              let first = max(begin - m_o*5, 0)
              let count = min(end - m_o*5, 5) - first
              alloc acc: f32[4] private
              compute init(i in 4): acc[i] = 0.0
              for k in count:
                compute main(i in 4): acc[i] add= x    (x = src[m_o*64 + t*4 + i, first + k])
              if count == 5:
                compute end(i in 4): dst[m_o*64 + t*4 + i] = acc[i]
              else:
                compute stream_store(i in 4): acc_parts[group, min(turn, 1), t, i] = acc[i]
        grid for cut in 1:
          workgroup for t in 16:
            let m_o = (cut*15 + 15)//2 // 5
            if (m_o*10 + 1)//15 == cut:
              alloc acc: f32[4] private
              compute init(i in 4): acc[i] = 0.0
              for piece in (m_o*10 + 9)//15 - cut + 1:
                compute stream_sum(i in 4): acc[i] add= x
                  (x = acc_parts[cut + piece, min(m_o - (cut + piece)*15//2 // 5, 1), t, i])
              compute end(i in 4): dst[m_o*64 + t*4 + i] = acc[i]

    A share has two iterations or more: there are fewer workgroups where there is not as much to do.
    Where no share ends inside a tile, no parts are kept, and there is no second grid. The loop is
    serial, with a constant number of iterations that accumulate in one buffer, and stands in loops
    over tiles and their work-items, before these share memory. In memory the parts of the
    work-items lie side by side, ``vector`` elements of each at a time. Among the results of the
    step, ``store`` keeps what a share has of a tile, and ``combine`` adds that up.
    """
    result = loops_named(kernel, loop, any_kind=False)
    taken = taken_names(kernel) | names_in(kernel)[0]
    stmts: list[Stmt] = []

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if not (isinstance(stmt, For) and stmt.kind in (LoopKind.GRID, *THREADS)):
            return None
        if any(part is result[0][0] for part in walk_stmts(stmt)):
            stmts.append(_Streaming(_nest(stmt, loop, taken), workgroups, name, vector).stmt())
            return stmts[-1]
        return None

    body = rewrite_placed(kernel.body, Place(), change)
    if not stmts or len(result) > 1:
        raise refusal(
            f"{len(result)} loops '{loop}' stand in {len(stmts)} nests of workgroups",
            result[0][0],
            "distribute tiles over workgroups first, and name a loop inside",
            why="the iterations of one loop, in all tiles of a grid, are shared",
        )
    return replace(kernel, body=body)


@dataclass(frozen=True)
class _Nest:
    """What a grid does in each of its ``tiles``, whose number is called ``tile``."""

    tile: Var
    tiles: int
    lets: tuple[Stmt, ...]
    items: tuple[For, ...]
    before: tuple[Stmt, ...]
    loop: For
    after: tuple[Stmt, ...]
    # Names of variables and buffers.
    taken: frozenset[str]

    @property
    def steps(self) -> int:
        """The iterations of a tile."""
        return size_of(self.loop)


def _nest(outermost: For, loop: str, taken: frozenset[str]) -> _Nest:
    """The loops over tiles as one, those over work-items, and what these do."""
    grid, inner = perfect_nest(outermost, (LoopKind.GRID,))
    names = [loop.var.name for loop in grid]
    tile, tiles = var(fresh("tile", taken)), 1
    if names:
        # One loop keeps its name: the tile's number is what others call so.
        merged = merged_loop(outermost, names, tile.name) if len(names) > 1 else outermost
        if not isinstance(merged.extent, Const):
            raise refusal(
                "how many tiles there are is not constant",
                outermost,
                "choose grid loops of constant extent",
                why="the shares are computed from it",
            )
        tile, tiles, inner = merged.var, int(merged.extent.value), merged.body
    *lets, inner = sequence(inner)
    items, inner = perfect_nest(inner, THREADS)
    body = sequence(inner)
    at = [i for i, s in enumerate(body) if isinstance(s, For) and s.var.name == loop]
    if len(at) != 1 or not all(isinstance(stmt, Let) for stmt in lets):
        raise refusal(
            f"'{loop}' does not stand directly in loops over tiles and their work-items",
            outermost,
            "stream before operands are shared, and name the outermost loop of the reduction",
            why="its iterations are divided, and the rest is done for each tile",
        )
    steps = body[at[0]]
    assert isinstance(steps, For)
    if steps.kind is not LoopKind.SERIAL or not isinstance(steps.extent, Const):
        raise refusal(
            "its iterations do not run in order, or how many there are is not constant",
            steps,
            "choose a serial loop of constant extent",
            why="the shares are runs of them",
        )
    before, after = body[: at[0]], body[at[0] + 1 :]
    return _Nest(tile, tiles, tuple(lets), items, before, steps, after, taken)


class _Streaming:
    """The shares of a nest: what is accumulated, where its parts lie, and the two grids."""

    def __init__(self, nest: _Nest, workgroups: int, name: str, vector: int) -> None:
        self.nest = nest
        self.name = name
        total = nest.tiles * nest.steps
        if not total:
            raise refusal(
                "workgroups share no iterations",
                nest.loop,
                "choose a loop that runs",
                why="each has some",
            )
        # Of a share of one iteration the loop would be gone, at which operands are shared.
        self.workgroups = max(1, min(workgroups, total // 2))
        self.taken = set(nest.taken)
        self.sum = _accumulating(nest)
        self.init = _initializer(nest, self.sum)
        ends = [g * total // self.workgroups for g in range(self.workgroups + 1)]
        self.cut = any(end % nest.steps for end in ends)
        # Where none is cut, whole tiles are shared.
        self.steps = nest.steps if self.cut else 1
        self.total = nest.tiles * self.steps
        # Only the first and the last tile of a share can be cut.
        several = any((b - 1) // nest.steps > a // nest.steps for a, b in pairwise(ends))
        self.kept = 2 if several else 1
        self.parts = self._parts(vector)

    def _parts(self, vector: int) -> Buffer:
        """Room for what each workgroup keeps: the work-items' vectors side by side."""
        old = self.init.out.buffer
        items = [int(e.extent.value) for e in self.nest.items if isinstance(e.extent, Const)]
        shape = (self.workgroups, self.kept, *items, *old.shape)
        first = len(shape) - len(old.shape)
        tiles_of = [(first + b.dim, b.size) for b in old.layout.blocks]
        vectors: list[tuple[int, int]] = []
        if tiles_of:
            dim, size = tiles_of.pop()
            width = gcd(size, vector)
            tiles_of.append((dim, size // width))
            vectors = [(dim, width)] if width > 1 else []
        order = [(0, self.workgroups), (1, self.kept), *tiles_of]
        order += [*((2 + i, size) for i, size in enumerate(items)), *vectors]
        stride, blocks = 1, list[LayoutBlock]()
        for dim, size in reversed(order):
            blocks.append(LayoutBlock(dim, size, stride))
            stride *= size
        name = fresh(f"{old.name}_parts", self.taken)
        return Buffer(name, old.dtype, shape, Layout(tuple(reversed(blocks))))

    def _name(self, name: str) -> Var:
        return var(claim(name, self.taken))

    # The shares.

    def _begin(self, group: Expr) -> Expr:
        """The first iteration, of all tiles, in the share of ``group``."""
        return group * self.total // self.workgroups

    def _owner(self, iteration: Expr) -> Expr:
        """The workgroup that has ``iteration``."""
        return (iteration * self.workgroups + (self.workgroups - 1)) // self.total

    def _kept_at(self, group: Expr, turn: Expr) -> View:
        """What ``group`` keeps of the tile that it takes at ``turn``."""
        items = (loop.var for loop in self.nest.items)
        slot = minimum(turn, self.kept - 1)
        return View(self.parts, (group, slot, *items, *self.init.out.index))

    # The two grids.

    def stmt(self) -> Stmt:
        """What stands in the place of the nest."""
        if not self.cut:
            return self._shares()
        return block(Allocate(self.parts), self._shares(), self._finish())

    def _grid(self, number: Var, count: int, body: Stmt) -> Stmt:
        for loop in reversed(self.nest.items):
            body = replace(loop, body=body)
        return For(number, const(count), body, LoopKind.GRID)

    def _shares(self) -> Stmt:
        """Each workgroup with the tiles of its share."""
        nest, steps = self.nest, self.steps
        names = ("group", "turn", "begin", "end", "first", "count")
        group, turn, begin, end, first, count = map(self._name, names)
        done: Stmt = nest.loop
        lets: list[Stmt] = [Let(nest.tile, begin // steps + turn), *nest.lets]
        last: tuple[Stmt, ...] = nest.after
        if self.cut:
            lets.append(Let(first, maximum(begin - nest.tile * steps, 0)))
            lets.append(Let(count, minimum(end - nest.tile * steps, steps) - first))
            moved = substitute_stmt(nest.loop.body, {nest.loop.var: first + nest.loop.var})
            done = replace(nest.loop, extent=count, body=moved)
            store = self._copy("store", self._kept_at(group, turn), self.init.out)
            give("store", "compute", store.name)
            last = (If(count == steps, block(*nest.after), store),)
        tile = block(*lets, *nest.before, done, *last)
        turns = (end - 1) // steps - begin // steps + 1
        share = (Let(begin, self._begin(group)), Let(end, self._begin(group + 1)))
        return self._grid(group, self.workgroups, block(*share, For(turn, turns, tile)))

    def _finish(self) -> Stmt:
        """For each end of a share inside a tile that is the first there: the tile's parts added up
        and what comes after."""
        nest, steps = self.nest, self.steps
        cut, piece = self._name("cut"), self._name("piece")
        group = cut + piece
        begin = nest.tile * steps
        source = self._kept_at(group, nest.tile - self._begin(group) // steps)
        add = self._copy("sum", self.init.out, source).with_result(combiner=self.sum.combiner)
        give("combine", "compute", add.name)
        pieces = self._owner(begin + (steps - 1)) - cut + 1
        body = block(*nest.lets, *nest.before, For(piece, pieces, add), *nest.after)
        for old in {s.buffer for s in walk_stmts(body) if isinstance(s, Allocate)}:
            body = replace_buffer(body, old, replace(old))
        first = If(self._owner(begin) == cut, body)
        number = Let(nest.tile, self._begin(cut + 1) // steps)
        return self._grid(cut, self.workgroups - 1, block(number, first))

    def _copy(self, what: str, out: View, source: View) -> Compute:
        x = Operand(var(fresh("x", self.taken), self.parts.dtype), source)
        return Compute.single(f"{self.name}_{what}", self.init.dims, out, (x,), x.var)


def _accumulating(nest: _Nest) -> Compute:
    """What accumulates in the loop, in one buffer that the tile allocates."""
    buffers = buffers_allocated(nest.loop)
    touched = [a for a in accesses(nest.loop, Place()) if a.view.buffer not in buffers]
    sums = [access.stmt for access in touched if access.writes]
    written = {access.view.buffer for access in touched if access.writes}
    read = {access.view.buffer for access in touched if not access.writes}
    if len(written) != 1 or not written <= _declared(nest) or written & read:
        raise refusal(
            "its iterations do more than accumulate in one buffer, which stands before the loop",
            nest.loop,
            "name the loop of one reduction into a buffer of its own",
            why="what the shares of a tile accumulate is added up afterwards",
        )
    compute = sums[0]
    combiners = {s.combiner if isinstance(s, Compute) else None for s in sums}
    if not isinstance(compute, Compute) or None in combiners or len(combiners) > 1:
        raise refusal(
            f"not all that writes '{written.pop().name}' there combines in one way",
            nest.loop,
            "stream before computes are lowered to loops",
            why="parts of a tile are combined as its iterations are",
        )
    return compute


def _initializer(nest: _Nest, compute: Compute) -> Compute:
    """What gives each tile, and each part of one, what it begins with."""
    acc = compute.out.buffer
    others = set[Buffer]().union(*map(buffers_written, nest.before)) - _declared(nest)
    if others:
        raise refusal(
            f"'{min(b.name for b in others)}' is written before it",
            nest.loop,
            "stream a nest that writes results behind the loop",
            why="that would be done again for each part of a tile",
        )
    writers = [s for s in nest.before if acc in buffers_written(s)]
    init = writers[0] if len(writers) == 1 else None
    if not isinstance(init, Compute) or init.operands or init.combiner:
        raise refusal(
            f"what initializes '{acc.name}' is not one compute before it",
            nest.loop,
            "stream before computes are lowered to loops",
            why="each part of a tile is initialized, and kept where that is",
        )
    if not is_identity(init.body, compute.combiner):
        raise refusal(
            f"'{acc.name}' begins with {to_text(init.body)}",
            init,
            "begin with what changes nothing, and combine the rest afterwards",
            why=f"each part would begin with that, and {compute.combiner} it to the result",
        )
    return init


def _declared(nest: _Nest) -> set[Buffer]:
    return {stmt.buffer for stmt in nest.before if isinstance(stmt, Allocate)}
