"""Kernels of elementwise computes, reductions and scans on a CPU: norms, softmax, sums, argmax.

prepared (operands named, cheap producers computed where they are read) -> shared (computes that
follow one another tile by tile in common loops, what they hand on in the tile) -> widened (what is
reduced along neighbours in memory, in several vectors of partial results) -> bits (extremes of
floats by those of their bits) -> lowered -> parallel
"""

from __future__ import annotations

from collections import Counter
from math import prod

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.computes import addressing, complication, index_variables
from tilewright.ir.expr import Const, Var, as_expr
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.layout.roles import MAIN, Role, roles
from tilewright.machines.machine import Machine
from tilewright.recipes.choice import Choice, around, sizes_around, vectors_around
from tilewright.recipes.config import ReductionConfig
from tilewright.recipes.copies import Rows, asked_early, moved_bytes
from tilewright.recipes.lowering import finish, lower_rest
from tilewright.recipes.nests import (
    ALONE,
    SUMS,
    Nest,
    contiguous_level,
    from_memory,
    in_common_loops,
    nests,
    reduced_together,
    row_of,
    rows_in_one,
    widened_rows,
)
from tilewright.recipes.prologues import without_producers
from tilewright.recipes.recipe import Recipe, is_contraction
from tilewright.recipes.reducible import (
    NARROWEST,
    computes_in,
    contiguous_dim,
    divided,
    in_memory,
    kept_dims,
    most_read,
    reduced_run,
    reduces,
    shorter,
    whole_dims,
)
from tilewright.recipes.reducing import (
    by_bits,
    carried,
    flushed,
    rows_together,
    scanned,
    widened,
)
from tilewright.recipes.reshaping import with_whole_dims
from tilewright.recipes.roles import bytes_of, extents, find_compute, known_sizes, steps_of
from tilewright.recipes.start import Start
from tilewright.recipes.transposed_tiles import transposed, transposition, vectorized
from tilewright.schedule.queries.access import buffers_allocated
from tilewright.schedule.queries.flow import with_operands
from tilewright.schedule.queries.place import loops_around, sequence, views_of
from tilewright.schedule.schedule import KernelSchedule

# Bytes that one iteration keeps to itself: they lie on the stack of a thread.
_KEPT = 1 << 18
# Neighbours that are a tile where nobody knows how many there are: a thread has one of those that
# are usual, as runs in memory should be long.
_FEW = (256, 512)


def _contracts(compute: Compute) -> bool:
    """Whether it sums up products of rows and columns, which want tiles in registers."""
    product = with_operands(compute) if len(compute.outputs) == 1 else None
    return product is not None and {Role.M, Role.N, Role.K} <= set(roles(product).values())


def _is_simple(compute: Compute) -> bool:
    return not (compute.instruction or compute.completion is not None or addressing(compute))


# Rows of a product up to which it may pay to read a tile of the other factor again instead of
# copying it.
_ROWS = 8
# Steps of a row, of one after the other, that are written out.
_STEPS = 8
# Vectors of a row that is mapped, from which on that is not written out for several rows.
_LONG = 8


class Reductions(Recipe[ReductionConfig]):
    """Computes that follow one another, tile by tile in common loops, on threads."""

    name, config = "reductions", ReductionConfig

    def contends(self, start: Start, machine: Machine) -> bool:
        """Where a contraction would copy B in each call, and use it for few rows: a vector times a
        matrix whose neighbours lie along the reduction, or of another type than its sums."""
        if start.packable or not is_contraction(start.kernel):
            return False
        main = find_compute(start.kernel, MAIN)
        sizes, steps = extents(main), steps_of(main, main.operands[1].view)
        role = roles(main)
        few = prod(sizes[dim] for dim, part in role.items() if part is Role.M) <= _ROWS
        turned = any(steps.get(dim) == 1 for dim, part in role.items() if part is Role.K)
        return few and (turned or main.operands[1].view.buffer.dtype is not main.out.buffer.dtype)

    def matches(self, start: Start, machine: Machine) -> bool:
        """Whether the kernel is computes alone, at places that dims say. Of sizes that a call
        passes, work-items share no work, and products are not summed up here."""
        kernel = start.kernel
        if not machine.threaded and kernel.scalars:
            return False
        if start.structured and not whole_dims(kernel):
            return False
        stmts = sequence(kernel.body)
        if not all(isinstance(stmt, Allocate | Compute) for stmt in stmts):
            return False
        computes = [stmt for stmt in stmts if isinstance(stmt, Compute)]
        names = {compute.name for compute in computes}
        if kernel.scalars and any(map(_contracts, computes)):
            return False
        return len(names) == len(computes) and all(map(_is_simple, computes))

    def space(self, start: Start, machine: Machine) -> list[ReductionConfig]:
        """Vectors of the machine's size for the widest type, for the narrowest floats that it
        computes on if all are narrower, and enough of them to hide how long an operation takes;
        and, where no vector of that size fills what is contiguous, shorter ones."""
        kernel = start.kernel
        floats = [array.dtype.bytes for array in kernel.arrays if array.dtype.is_float]
        least = machine.narrowest if len(floats) == len(kernel.arrays) else 4
        widest = moved_bytes(kernel, machine) or max((least, *floats))
        lanes = max(1, machine.vector_bytes // widest)
        parts = 4 * machine.cores if machine.cores > 1 else 1
        return [ReductionConfig(vector=n, parts=parts) for n in (lanes, *shorter(kernel, lanes))]

    def choices(self, start: Start, machine: Machine) -> tuple[Choice, ...]:
        default, *others = self.space(start, machine)
        widths = vectors_around(default.vector, machine)
        return around(
            default,
            vector=[*widths, *(other.vector for other in others)],
            copies=(1, 2, 4, 8),
            columns=(256, 512, 1024, 2048, 4096, 8192, 16384),
            rows=(1, 2, 4, 8, 16),
            parts=() if machine.cores == 1 else sizes_around(machine.cores, (1, 2, 4, 8, 16)),
        )

    def schedule(self, s: KernelSchedule, machine: Machine, config: ReductionConfig) -> None:
        """Carries ``config`` out."""
        s.mark("naive")
        in_memory(s, machine)
        s.drop_unit_dims()
        s.name_operands()
        without_producers(s)
        flushed(s)
        s.mark("prepared")
        # Rows of a length that a call passes, or is no whole vectors, would each have a rest.
        if s.kernel.scalars:
            with_whole_dims(s)
            s.mark("fused")
        elif not any(map(reduces, computes_in(s.kernel))):
            with_whole_dims(s, quotients=False)
            s.mark("fused")
        for compute in computes_in(s.kernel):
            divided(s, compute, config)
        rows_in_one(s, config, machine)
        s.mark("in one")
        computes = computes_in(s.kernel)
        if len(computes) == 1 and _turned(s, computes[0], machine):
            return
        ahead: list[Rows] = []
        for number, nest in enumerate(nests(computes, config.columns, config.parts), 1):
            if nest.levels:
                _shared(s, nest, config, machine)
                s.mark(f"shared {number}")
                loops = _loops(s.kernel, nest.computes[0].name)
                if contiguous_level(nest) is None and loops:
                    tables = from_memory(s.kernel, nest, machine)
                    ahead += [Rows(table, loops[-1], 1) for table in tables]
        in_rows, together, sums = set[str](), set[str](), set[str]()
        for compute in _by_name(s.kernel):
            along = reduced_run(compute, config.vector)
            row = row_of(compute, config, machine) if along is not None else None
            if along is not None and row is not None:
                by_bits(s, compute.name)
                stmt = find_compute(s.kernel, compute.name)
                sums |= widened_rows(s, stmt, row, along, machine, config)
                together.add(compute.name)
                s.mark(f"widened {compute.name}")
            elif along is not None:
                widened(s, compute.name, along, config.vector, config.copies, machine)
                s.mark(f"widened {compute.name}")
                by_bits(s, compute.name)
            elif (scan := scanned(compute)) is not None:
                carried(s, compute, scan)
                s.mark(f"carried {compute.name}")
            elif reduces(compute) and contiguous_dim(compute) is not None:
                _rows_at_a_time(s, compute, config)
                s.mark(f"rows {compute.name}")
                by_bits(s, compute.name)
                in_rows.add(compute.name)

        def unrolled(part: Compute) -> list[str]:
            short = _short(part) if part.name in together - sums else []
            most = SUMS if part.name in sums else config.copies
            return [*_unrolled(part, config, most, part.name in in_rows), *short]

        lower_rest(s, config.vector, machine, unrolled, tails=True)
        s.mark("lowered")
        finish(s, machine)
        asked_early(s, ahead)


def _turned(s: KernelSchedule, compute: Compute, machine: Machine) -> bool:
    """Whether ``compute`` reads what lies in another order than its result: it then goes in squares
    that are transposed in registers, and ``s`` is done."""
    if complication(compute) is not None or compute.combiner is not None:
        return False
    if not all(isinstance(dim.extent, Const) for dim in compute.dims):
        return False
    plan = transposition(s.kernel, compute.name, machine)
    if plan is None:
        return False
    transposed(s, compute.name, plan, machine)
    s.mark("transposed")
    vectorized(s, compute.name, plan)
    s.mark("vectors")
    finish(s, machine)
    return True


def _by_name(kernel: Kernel) -> list[Compute]:
    """The computes, of those by one name (a tile and a shorter one) the first."""
    unique: dict[str, Compute] = {}
    for compute in computes_in(kernel):
        unique.setdefault(compute.name, compute)
    return list(unique.values())


def _shared(s: KernelSchedule, nest: Nest, config: ReductionConfig, machine: Machine) -> None:
    """The computes of ``nest`` tile by tile: a row at a time, or a block of columns where what is
    contiguous is shared."""
    sizes = [1] * len(nest.levels)
    along, together = contiguous_level(nest), ALONE
    if along is not None:
        sizes[along] = _columns(nest, along, config)
    else:
        together = reduced_together(nest, config, machine)
        sizes[nest.row] = max(rows_together(nest, config, machine), together.rows)
        if together.rows > 1:
            for n in nest.again:
                sizes[n] = nest.extents[n]
    loops = in_common_loops(s, nest.dims, sizes, _large(s.kernel, nest, sizes))
    sized = known_sizes(nest.computes[0])
    for names, length, size in zip(nest.levels, nest.extents, sizes, strict=True):
        passed = size > 1 and (together.longest or names[0] not in sized)
        if names[-1] in loops and (passed or (length % size and length > size)):
            # The last tile is shorter, and apart.
            s.partition(loops[names[-1]], longest=together.longest)
    if together.longest:
        taken = {buffer.name for buffer in buffers_allocated(s.kernel.body)}
        handed_on = (view.buffer.name for compute in nest.computes for view in compute.outputs)
        for name in dict.fromkeys(handed_on):
            if name in taken:
                s.lay_out(name, shrink=True)
    if together.rows > 1:
        _one_by_one(s, nest, sizes[nest.row])


def _one_by_one(s: KernelSchedule, nest: Nest, tile: int) -> None:
    """``kernel`` with the rows of ``nest`` behind its last whole tile one by one. Where masks end,
    other tiles may be apart, too: these stay whole."""
    whole = {compute.name for compute in computes_in(s.kernel)}
    s.name_apart([compute.name for compute in nest.computes])
    apart = [compute for compute in computes_in(s.kernel) if compute.name not in whole]
    names = nest.levels[nest.row]
    for start in range(0, len(apart), len(names)):
        piece = zip(apart[start : start + len(names)], names, strict=True)
        # Of a single row, the computes have no dim any more.
        dims = {
            compute.name: [name]
            for compute, name in piece
            if name in extents(compute) and known_sizes(compute).get(name) != tile
        }
        if dims:
            in_common_loops(s, dims, [1])


def _columns(nest: Nest, along: int, config: ReductionConfig) -> int:
    """How many neighbours are a tile: as many as leave all threads enough, all of them as many if
    that can be."""
    length = nest.extents[along]
    others = prod(nest.extents) // max(1, length)
    sized = nest.levels[along][0] in known_sizes(nest.computes[0])
    least, most = (NARROWEST, config.columns) if sized else _FEW
    parts = config.parts if sized else max(1, config.parts // 4)
    wanted = max(least, min(most, length * others // parts))
    even = [n for n in range(wanted, wanted // 2, -1) if length % n == 0 and n % config.vector == 0]
    return even[0] if even else wanted // NARROWEST * NARROWEST


def _large(kernel: Kernel, nest: Nest, sizes: list[int]) -> list[str]:
    """The buffers whose tile is too large to be a thread's own."""
    names: list[str] = []
    for view in (view for compute in nest.computes for view in compute.outputs):
        if view.buffer.symbols:
            left = _greatest_tile(kernel, nest, sizes, view.buffer)
        else:
            left = bytes_of(view.buffer)
            for length, size in zip(nest.extents, sizes, strict=True):
                left = left // max(1, length) * min(size, length)
        if left is None or left > _KEPT:
            names.append(view.buffer.name)
    return names


def _greatest_tile(kernel: Kernel, nest: Nest, sizes: list[int], held: Buffer) -> int | None:
    """How many bytes a tile of ``held`` may have, where calls pass sizes; None where that is
    open."""
    facts, tile = Facts.of(kernel), held.dtype.bytes
    extents = {dim.var.name: dim.extent for dim in nest.computes[0].dims}
    levels = list(zip([extents[level[0]] for level in nest.levels], sizes, strict=True))
    for expr in map(as_expr, held.sizes):
        most = facts.bounds(expr)[1]
        shared = next((level for level in levels if level[0] is expr), None)
        if shared is not None:
            levels.remove(shared)
            most = shared[1] if most is None else min(most, shared[1])
        if most is None:
            return None
        tile *= most
    return tile


def _rows_at_a_time(s: KernelSchedule, compute: Compute, config: ReductionConfig) -> None:
    """``compute`` on a vector of several rows at a time, so that results are loaded and stored once
    for all of these."""
    length, kept = extents(compute), kept_dims(compute)
    along = contiguous_dim(compute)
    assert along is not None
    steps = steps_of(compute, most_read(compute))
    reduced = sorted((n for n in length if n not in kept), key=lambda name: -(steps[name] or 0))
    *outer, rows = reduced
    if length[rows] == 1 or length[along] < config.vector:
        return
    tiles = {rows: min(config.rows, length[rows]), along: config.vector}
    _whole_tiles(s, compute.name, dict.fromkeys(outer, 1) | tiles, (*outer, rows, along))
    # In a register for these rows: LLVM does not see that nothing else writes the result. Several
    # results and combiners of the kernel's own stay in memory.
    s.attempt(lambda: s.stage_result(compute.name, compute.name, whole=True))


def _whole_tiles(
    s: KernelSchedule, compute: str, tiles: dict[str, int], order: tuple[str, ...]
) -> None:
    """``compute`` in ``tiles``, the shorter ones at the ends apart from the others."""
    before = Counter(_loops(s.kernel, compute))
    s.tile(compute, tiles, order)
    # Several computes by that name may have loops of other names.
    for loop in Counter(_loops(s.kernel, compute)) - before:
        if loop in _loops(s.kernel, compute):
            s.partition(loop)


def _loops(kernel: Kernel, compute: str) -> list[str]:
    """The names of the loops around ``compute``, outermost first."""
    return [loop.var.name for loop in loops_around(kernel, compute)]


def _short(compute: Compute) -> list[str]:
    """The dims that it reduces in a few steps, with what is the same for all rows in registers."""
    if len(compute.operands) < 2:
        return []
    sizes, kept = known_sizes(compute), kept_dims(compute)
    return [name for name, size in sizes.items() if name not in kept and size <= _STEPS]


def _unrolled(compute: Compute, config: ReductionConfig, vectors: int, in_rows: bool) -> list[str]:
    """The dims that index buffers that are as small as so many ``vectors``, which are registers,
    and rows of a tile of them."""
    most = vectors * config.vector
    sizes, along = known_sizes(compute), contiguous_dim(compute)
    # A long row that is only mapped reads what is its own once: its code is there once, too.
    long = not reduces(compute) and sizes.get(along or "", 0) >= _LONG * config.vector
    small = [
        view
        for view in (compute.outputs if long else views_of(compute))
        if view.buffer.space is Space.PRIVATE and prod(view.buffer.shape) <= most
    ]
    used = frozenset[Var]().union(*map(index_variables, small))
    if in_rows or (not small and reduces(compute) and along is not None):
        kept = kept_dims(compute)
        rows = {name for name, size in sizes.items() if name not in kept and size <= config.rows}
    else:
        rows = set()
    return [d.var.name for d in compute.dims if d.var in used or d.var.name in rows]
