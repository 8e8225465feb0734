"""Which computes of a kernel share loops, and over which of their dims; reductions along neighbours
on a processor, several rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Var, var
from tilewright.ir.stmt import Compute, Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ReductionConfig
from tilewright.recipes.reducible import computes_in, kept_dims, most_read, reduced_run
from tilewright.recipes.reshaping import with_whole_dims
from tilewright.recipes.roles import (
    CLOSE,
    bytes_of,
    extents,
    find_compute,
    known_sizes,
    named_after,
    steps_of,
)
from tilewright.recipes.transposed_tiles import Transposition, operands_transposed
from tilewright.schedule.loops.tile import Tail
from tilewright.schedule.queries.access import buffers_allocated
from tilewright.schedule.queries.place import fresh, taken_names, views_of
from tilewright.schedule.queries.shared_dims import same_dims, shared_dims
from tilewright.schedule.records.transform import Handles
from tilewright.schedule.schedule import KernelSchedule


@dataclass(frozen=True)
class Nest:
    """Computes that follow one another, and the dims that they share: of each level, outermost
    first, the name of the dim in each compute."""

    computes: tuple[Compute, ...]
    levels: tuple[tuple[str, ...], ...]

    @property
    def dims(self) -> dict[str, list[str]]:
        """The shared dims of each compute."""
        return {c.name: [level[n] for level in self.levels] for n, c in enumerate(self.computes)}

    def pieces(self, columns: int) -> int:
        """How many tiles there are, of rows, or of so many columns."""
        near = contiguous_level(self) if self.levels else None
        return prod(
            -(-size // columns) if n == near else size for n, size in enumerate(self.extents)
        )

    @property
    def extents(self) -> tuple[int, ...]:
        """How long the levels are."""
        return tuple(extents(self.computes[0])[level[0]] for level in self.levels)

    @property
    def again(self) -> tuple[int, ...]:
        """The levels inside of the rows', where they are so short that a row has them all at
        once."""
        inside = range(self.row + 1, len(self.levels))
        few = prod(self.extents[n] for n in inside) <= _FACTORS
        return tuple(inside) if few else ()

    @property
    def row(self) -> int:
        """The level of the rows: the innermost along which the largest array has other elements.
        Levels inside of it read the same ones again."""
        place, steps = _largest(self)
        others = [n for n, names in enumerate(self.levels) if steps[names[place]] != 0]
        return others[-1] if others else len(self.levels) - 1


def in_common_loops(
    s: KernelSchedule,
    dims: Mapping[str, Sequence[str]],
    sizes: Sequence[int],
    keep: Sequence[str] = (),
    tail: Tail = "mask",
) -> Handles:
    """Computes that follow one another in tiles of ``sizes``, over the ``dims`` of each; the loops
    are called like the dims of the last."""
    *producers, last = dims
    along = {name: dims[name] for name in producers}
    tiles = dict(zip(dims[last], sizes, strict=True))
    return s.compute_at(last, tiles, producers=along, keep=keep, tail=tail)


def nests(computes: Sequence[Compute], columns: int, parts: int) -> list[Nest]:
    """All of ``computes`` in nests, in order. One takes the next compute if that leaves as many
    pieces of work as either has by itself, or ``parts``, which is enough; of neighbours in memory,
    ``columns`` are one piece."""
    same = same_dims(computes)

    def nest(members: Sequence[int]) -> Nest:
        levels = shared_dims(computes, same, members)
        return _ordered(Nest(tuple(computes[n] for n in members), tuple(map(tuple, levels))))

    levels_of: list[Nest] = []
    last: list[int] = []
    for n in range(len(computes)):
        alone = nest([n])
        if levels_of:
            joined = nest([*last, n])
            most = max(levels_of[-1].pieces(columns), alone.pieces(columns))
            if joined.levels and joined.pieces(columns) >= min(parts, most):
                last.append(n)
                levels_of[-1] = joined
                continue
        levels_of.append(alone)
        last = [n]
    return levels_of


def _ordered(nest: Nest) -> Nest:
    """``nest`` with the levels in the order of memory, the longest steps outside."""
    place, steps = _largest(nest)
    levels = sorted(nest.levels, key=lambda level: -(steps[level[place]] or 0))
    return Nest(nest.computes, tuple(levels))


def contiguous_level(nest: Nest) -> int | None:
    """The level along which neighbours in the largest of all arrays are neighbours in memory; where
    there is none, that along which all results are neighbours, and what is read of that array lies
    a few elements apart, as with the windows of a pooling."""
    place, steps = _largest(nest)
    near = [n for n, names in enumerate(nest.levels) if steps[names[place]] == 1]
    if near:
        return near[0]
    for n, names in enumerate(nest.levels):
        step = steps[names[place]]
        if step is not None and 1 < step <= CLOSE and _along_results(nest, names):
            return n
    return None


def _along_results(nest: Nest, names: Sequence[str]) -> bool:
    """Whether neighbours along the dims called ``names``, one for each compute, are neighbours in
    all results."""
    return all(
        steps_of(compute, view)[name] == 1
        for compute, name in zip(nest.computes, names, strict=True)
        for view in compute.outputs
    )


def _largest(nest: Nest) -> tuple[int, dict[str, int | None]]:
    """The place of the compute that reaches the largest array, and the steps of its dims in it."""
    views = [(n, view) for n, compute in enumerate(nest.computes) for view in views_of(compute)]
    place, view = max(views, key=lambda pair: bytes_of(pair[1].buffer))
    return place, steps_of(nest.computes[place], view)


# The share of the first cache that rows may fill that are read again. Of those that come from
# memory a page may be: it has nothing to do until what a processor looks ahead by ends.
_SHARE = 3 / 4
# Vectors of a row that are worth a vector of partial results: other rows hide how long one takes.
_VECTORS = 4
# Lanes that are combined one after the other.
_CHAIN = 4
# Factors that each row may have, and sums of rows and factors in registers.
_FACTORS, SUMS = 8, 16


class Together(NamedTuple):
    """How many rows are reduced at a time, where no dim is longer than ``longest`` says of what a
    call passes."""

    rows: int
    longest: Mapping[str, int]


ALONE = Together(1, {})


def reduced_together(nest: Nest, config: ReductionConfig, machine: Machine) -> Together:
    """How many rows of the innermost level of ``nest`` are reduced at a time: as many as a square
    that is transposed in registers has; 1 where nothing is reduced along neighbours, what is read
    again would fill too much of the first cache, threads would have too few tiles, or vectors side
    by side gain nothing. Of rows whose
    length a call passes, as many as may be: what short ones take is what there is to save."""
    computes = [
        compute for compute in nest.computes if reduced_run(compute, config.vector) is not None
    ]
    if machine.core.chains == 1 or not computes:
        return ALONE
    rows = max(1, prod(nest.extents))
    again = max(map(bytes_of, _read_again(nest)), default=0)
    room = machine.core.page if again >= machine.caches[-1] else _SHARE * machine.caches[0]
    length = extents(computes[0])[reduced_run(computes[0], config.vector) or ""]
    for side in _sides(computes, config, machine):
        held = side * again // rows
        if nest.extents[nest.row] < side or rows // side < config.parts:
            continue
        passed = _passed_lengths(computes, config)
        if held <= room or passed:
            most = int(room * length / max(1, held))
            return Together(side, dict.fromkeys(passed if again else (), most))
    return ALONE


def _passed_lengths(computes: Sequence[Compute], config: ReductionConfig) -> list[str]:
    """The dims of ``computes`` that are reduced along neighbours, as long as a call says."""
    dims = {
        dim.var.name: None
        for compute in computes
        for dim in compute.dims
        if dim.var.name == reduced_run(compute, config.vector) and not isinstance(dim.extent, Const)
    }
    return list(dims)


def from_memory(kernel: Kernel, nest: Nest, machine: Machine) -> list[str]:
    """The arrays of which ``nest`` reads rows again that come from memory: the next row is asked
    for while this one is computed, as a processor itself looks ahead by less. A row and the next
    one have to stay near."""
    if not machine.past_caches or kernel.scalars:
        return []
    rows, buffers = prod(nest.extents), {p.buffer for p in kernel.arrays if p.access == "in"}
    return [
        buffer.name
        for buffer in _read_again(nest)
        if buffer in buffers
        and bytes_of(buffer) >= machine.caches[-1]
        and machine.core.page <= bytes_of(buffer) // rows <= machine.caches[1] // 4
    ]


def rows_in_one(s: KernelSchedule, config: ReductionConfig, machine: Machine) -> None:
    """Rows that lie one after the other along one dim, if more of them are then reduced at a time,
    or fewer are left after those that are."""

    def together() -> float:
        chain = nests(computes_in(s.kernel), config.columns, config.parts)
        return sum(_mean(nest, config, machine) for nest in chain if nest.levels)

    def whole() -> bool:
        before = together()
        with_whole_dims(s)
        return together() > before

    s.attempt(whole)


def _mean(nest: Nest, config: ReductionConfig, machine: Machine) -> float:
    """How many rows go together on the average, with the single ones behind those that do."""
    rows, length = reduced_together(nest, config, machine).rows, max(1, nest.extents[nest.row])
    return rows * (length // rows * rows) / length


def row_of(compute: Compute, config: ReductionConfig, machine: Machine) -> str | None:
    """The dim of the rows, where ``compute`` reduces a tile of them, each to a result of its own,
    or to a few, of other factors; None where it has one row."""
    kept = kept_dims(compute) & {dim.var.name for dim in compute.dims}
    steps = steps_of(compute, most_read(compute))
    contiguous = [name for name in kept if len(kept) == 1 or steps[name] != 0]
    row = contiguous[0] if len(contiguous) == 1 else ""
    apart = all(steps_of(compute, view).get(row) for view in compute.outputs)
    sizes = known_sizes(compute)
    few = prod(sizes.get(name, _FACTORS + 1) for name in kept - {row}) <= _FACTORS
    return row if apart and few and sizes.get(row) in _sides([compute], config, machine) else None


def widened_rows(
    s: KernelSchedule,
    compute: Compute,
    row: str,
    along: str,
    machine: Machine,
    config: ReductionConfig,
) -> set[str]:
    """``compute``, on a tile of rows, in vectors of partial results: row by row up to the last
    vector of each, and all rows together from there on. With several factors for each row, a few
    rows at a time: what is loaded of either serves all of the other. Gives the names of computes on
    those sums, which are registers then."""
    length = extents(compute)
    before = {stmt.name for stmt in computes_in(s.kernel)} - {compute.name}
    factors = prod(length[name] for name in kept_dims(compute) & length.keys() - {row})
    # As a power of 2, so that squares have whole ones.
    together = 1 << (SUMS // factors).bit_length() - 1 if factors > 1 else 1
    copies = max(1, min(config.copies, length[along] // (config.vector * _VECTORS)))
    copies = copies if factors == 1 else 1
    across = s.rfactor(compute.name, along, copies, lanes=config.vector, masked=True)["combine"]
    # What a row has found is in registers until that is all of it.
    late = [operand.view for operand in find_compute(s.kernel, across).operands]
    for view in late:
        s.lay_out(view.buffer.name, since=across)
    place = next(n for n, index in enumerate(late[0].index) if index is var(row))
    computes = [
        sums_of for sums_of in computes_in(s.kernel) if sums_of.name not in {across, *before}
    ]
    rows = {part.name: row if row in known_sizes(part) else _at(part, place) for part in computes}
    in_common_loops(s, {name: [dim] for name, dim in rows.items()}, [together])
    _across(s, across, row, machine)
    if factors == 1:
        return set()
    _in_steps(s, compute.name, config.vector)
    return set(rows)


def _in_steps(s: KernelSchedule, name: str, vector: int) -> None:
    """The compute, whose sums are registers, step by step of what it reduces."""
    compute = find_compute(s.kernel, name)
    kept = kept_dims(compute)
    names = [dim.var.name for dim in compute.dims]
    sums = [name_ for name_ in names if name_ in kept]
    order = [*(name_ for name_ in names if name_ not in kept), *sums]
    s.lower_computes([name], vector=sums[-1], lanes=vector, order=order, unroll=sums)


def _at(copy: Compute, place: int) -> str:
    """The dim that indexes the ``place`` of what ``copy`` makes."""
    index = copy.out.index[place]
    assert isinstance(index, Var)
    return index.name


def _across(s: KernelSchedule, compute: str, row: str, machine: Machine) -> None:
    """``compute``, which combines lanes of several rows, on vectors of rows; some lanes side by
    side."""
    widened = find_compute(s.kernel, compute)
    side = known_sizes(widened)[row]
    others = kept_dims(widened) & known_sizes(widened).keys() - {row}
    (lane,) = known_sizes(widened).keys() - {row, *others}
    if others:
        s.tile(compute, dict.fromkeys(sorted(others), 1))
        widened = find_compute(s.kernel, compute)
    turns = {o.var.name: machine.transposes(o.view.buffer.dtype)[side] for o in widened.operands}
    s.tile(compute, {lane: side})
    operands_transposed(s, compute, Transposition(turns, row, lane, side, row))
    chain = fresh(named_after(lane, "chain"), taken_names(s.kernel))
    before = buffers_allocated(s.kernel.body)
    parts = s.rfactor(compute, lane, max(1, side // _CHAIN), chain)
    for name in sorted(buffer.name for buffer in buffers_allocated(s.kernel.body) - before):
        s.lay_out(name, space=Space.PRIVATE)
    s.lower_computes(
        [parts["begin"], compute, parts["combine"]],
        vector=row,
        lanes=side,
        order=[lane, chain],
        unroll=[lane, chain],
    )


def _read_again(nest: Nest) -> list[Buffer]:
    """What several computes of ``nest`` reach."""
    reached = Counter(
        buffer
        for compute in nest.computes
        for buffer in {view.buffer for view in views_of(compute)}
    )
    return [buffer for buffer, times in reached.items() if times > 1]


def _sides(computes: Iterable[Compute], config: ReductionConfig, machine: Machine) -> list[int]:
    """How long the sides of squares may be that are transposed, of all results, the longest first:
    as vectors are whole ones."""
    types = [view.buffer.dtype for compute in computes for view in compute.outputs]
    sides = set.intersection(*(set(machine.transposes(dtype)) for dtype in types))
    return sorted((side for side in sides if config.vector % side == 0), reverse=True)
