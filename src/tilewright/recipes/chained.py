"""Products that are chained through a normalization of rows, or that go along rows and columns of
what stands between them, on a CPU: attention, and its gradients.

naive -> prepared (what one compute makes for another of the same points is made there; sums are
divided instead of their terms) -> shared (all computes, a tile of rows at a time, what they hand on
in the tile) -> online (a part of what is normalized at a time) -> tiles (of each tile of rows, what
recipes make of it as a kernel of one worker's) -> lowered -> parallel

Of gradients (`crossed`), instead of all up to tiles:
naive -> shared (all computes, for each head) -> crossed (columns, and for these rows, a tile of
both at a time: sums along both go on)

What one product hands to the other never leaves the cache of the worker that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf, prod

from tilewright.errors import ScheduleError
from tilewright.facts.affine import affine, difference
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Select, Var, conjuncts, const, var
from tilewright.ir.stmt import Allocate, Compute, Kernel, LoopKind
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.choice import Choice, around, sizes_around
from tilewright.recipes.config import ChainedConfig
from tilewright.recipes.lowering import finish, lower_rest
from tilewright.recipes.nests import in_common_loops
from tilewright.recipes.recipe import Recipe
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import are_known, bytes_of, extents
from tilewright.recipes.start import Start
from tilewright.schedule.queries.access import accesses
from tilewright.schedule.queries.chained import Chain, chained
from tilewright.schedule.queries.contractions import points
from tilewright.schedule.queries.crossed import Crossed
from tilewright.schedule.queries.flow import flow, item_of
from tilewright.schedule.queries.place import Place, sequence
from tilewright.schedule.schedule import KernelSchedule

# Rows of a tile: a register tile of the products has a few of them, and what is read for all of
# them should be read seldom.
_ROWS = (64, 32, 16, 8, 4, 2, 1)
# Keys in a part, without a mask. With one that leaves parts out, the size that leaves the least to
# do, where each part takes as long as some keys more: it brings sums and maxima of rows up to date.
_KEYS, _MASKED, _PER_PART = 256, (256, 128, 64), 8
# Columns in a part, of gradients.
_COLUMNS = 128
# What parts are multiples of: the vectors of most types.
_MULTIPLE = 16
# Rows for which keys and values are read once, about as fast as memory gives them: bytes that are
# asked for ahead, in steps of at least so many, of arrays that no second cache holds.
_FEW, _AHEAD, _LEAST, _LARGE = 8, 8192, 1024, 1 << 20
# How many times the time of even work the last worker may take.
_EVEN = 1.25
# Bytes of a stack for what is packed.
_ROOM = 2 << 20
# Bytes of memory for what is packed of all heads at once, which a call takes beside its arguments.
_ONCE = 256 << 20
# A schedule of a kernel for a machine.
Scheduled = Callable[[Start, Machine], KernelSchedule]


class Chained(Recipe[ChainedConfig]):
    """Tiles of rows on threads. ``inside`` schedules what is done to one."""

    name, config = "chained", ChainedConfig

    def __init__(self, inside: Scheduled) -> None:
        self.inside = inside

    def matches(self, start: Start, machine: Machine) -> bool:
        return (
            not start.structured
            and not start.kernel.scalars
            and machine.threaded
            and is_chain(start.kernel)
        )

    def space(self, start: Start, machine: Machine) -> Sequence[ChainedConfig]:
        """As many rows and keys as leave what is handed on in the cache of a worker, and leave all
        workers rows. Where a mask may skip keys, fewer of them are skipped more often."""
        chain = _chain(start.kernel)
        if isinstance(chain, Crossed):
            return [_crossed_tiles(start.kernel, chain)]
        assert chain is not None
        keys, length = _parts(start.kernel)
        sizes = _extents(start.kernel, chain)
        rows, others = _split(chain, sizes)
        held = sum(map(bytes_of, flow(start.kernel)[0])) // prod(sizes)
        if keys:
            held = held * keys // length
        for size in _ROWS:
            pieces = others * -(-rows // size)
            fits = held * size <= machine.caches[1] and pieces >= machine.cores
            if size == 1 or (fits and size <= rows):
                return [ChainedConfig(_even(rows, size), keys)]
        return []

    def choices(self, start: Start, machine: Machine) -> tuple[Choice, ...]:
        (default,) = self.space(start, machine)
        return around(
            default,
            rows=sizes_around(default.rows, _ROWS),
            keys=(0, *sizes_around(_KEYS, (128, 512))),
        )

    def schedule(self, s: KernelSchedule, machine: Machine, config: ChainedConfig) -> None:
        """Carries ``config`` out."""
        s.mark("naive")
        chain = _chain(s.kernel)
        if isinstance(chain, Chain):
            _prepare(s)
            s.mark("prepared")
            chain = _chain(s.kernel)
        if chain is None:
            raise ScheduleError(
                f"{s.kernel.name} is not two products chained through a normalization",
                where=f"config {config!r}",
                cure="use a config of another recipe",
            )
        last = _second(computes_in(s.kernel))
        if isinstance(chain, Crossed):
            _both_ways(s, chain, config)
        else:
            _by_rows(s, chain, config)
        recipes = tuple(name for name in machine.recipes if name != self.name)
        worker = replace(machine, cores=1, recipes=recipes)
        s.on_tiles(last, lambda kernel: self.inside(Start(kernel, kernel), worker))
        s.mark("tiles")
        for name in _packed(s.kernel):
            s.attempt(partial(_pack_once, s, name))
        s.mark("packed once")
        lower_rest(s, machine=machine)
        s.mark("lowered")
        finish(s, machine)
        if chain.rows and config.rows <= _FEW:
            for array, loop, ahead in list(_streams(s.kernel)):
                s.attempt(partial(s.prefetch, array, loop, ahead, second=True))
            s.mark("asked early")


def _streams(kernel: Kernel) -> Iterator[tuple[str, str, int]]:
    """The arrays of which each element is read for a few rows only, about as fast as memory gives
    them, each with the loop that goes through it, and how many iterations ahead it is asked for."""
    ahead_of: dict[str, tuple[str, int]] = {}
    buffers = {param.buffer for param in kernel.arrays if param.access == "in"}
    for access in accesses(kernel.body, Place()):
        buffer = access.view.buffer
        if buffer not in buffers or buffer.name in ahead_of or bytes_of(buffer) < _LARGE:
            continue
        offset = affine(buffer.layout.offset_of(access.view.index))
        for loop in reversed(access.place.loops):
            step = offset.terms.get(loop.var, 0) * buffer.dtype.bytes
            if loop.kind is LoopKind.SERIAL and step >= _LEAST:
                ahead_of[buffer.name] = loop.var.name, -(-_AHEAD // step)
                break
    yield from ((name, loop, ahead) for name, (loop, ahead) in ahead_of.items())


def _packed(kernel: Kernel) -> list[str]:
    """What is allocated in loops and may be what a product reads of its factors."""
    buffers = [stmt.buffer for stmt in walk_stmts(kernel.body) if isinstance(stmt, Allocate)]
    return list(dict.fromkeys(buffer.name for buffer in buffers if bytes_of(buffer) >= _LEAST))


def _pack_once(s: KernelSchedule, name: str) -> bool:
    """Packs ``name`` ahead of all loops; whether there is room for that and what already is."""
    s.fill_once(name)
    ahead = [
        allocate.buffer for allocate in sequence(s.kernel.body) if isinstance(allocate, Allocate)
    ]
    return sum(map(bytes_of, ahead)) <= _ONCE


def _by_rows(s: KernelSchedule, chain: Chain, config: ChainedConfig) -> None:
    """A tile of rows at a time, and of each a part of what they are normalized by."""
    computes = computes_in(s.kernel)
    handed_on, _ = flow(s.kernel)
    dims = {c.name: [level[n] for level in chain.levels] for n, c in enumerate(computes)}
    sizes = [1] * len(chain.levels)
    if chain.rows:
        longest = max(chain.rows, key=lambda n: _extents(s.kernel, chain)[n])
        sizes[longest] = config.rows
    in_common_loops(s, dims, sizes, tail="apart")
    for buffer in handed_on:
        s.lay_out(buffer.name, shrink=True)
    s.mark("shared")
    peak = _peak(computes)
    if config.keys and peak is not None:
        s.online(peak.name, config.keys)
        # The last part may be shorter: a product fills all that it writes to.
        for buffer in handed_on:
            s.lay_out(buffer.name, shrink=True)
        s.mark("online")


def _both_ways(s: KernelSchedule, chain: Crossed, config: ChainedConfig) -> None:
    """For each head, columns a tile at a time, and for these, rows. Sums of rows stand in memory
    for all columns."""
    computes = computes_in(s.kernel)
    sizes = extents(next(compute for compute in computes if compute.name == chain.first))
    dims = {c.name: [level[n] for level in chain.levels] for n, c in enumerate(computes)}
    keep = [buffer.name for buffer in chain.sums]
    in_common_loops(s, dims, [1] * len(chain.levels), keep=keep)
    s.mark("shared")
    longest = max(chain.rows, key=lambda name: sizes[name])
    s.in_parts(chain.first, chain.columns, config.keys or sizes[chain.columns])
    for name in (*(row for row in chain.rows if row != longest), longest):
        if sizes[name] > 1:
            s.in_parts(chain.first, name, config.rows if name == longest else 1)
    s.mark("crossed")


def fits(kernel: Kernel, machine: Machine) -> bool:
    """Whether ``kernel`` is two such products, the other factors of a tile, which may be packed for
    it, have room on a worker's stack, and workers have about as much to do. A few rows are read
    with one factor: those of fewer heads than workers leave some of these nothing."""
    chain = _chain(kernel)
    if not isinstance(chain, Chain):
        return chain is not None
    sizes = _extents(kernel, chain)
    rows = prod(sizes)
    heads = rows // prod(sizes[n] for n in chain.rows)
    if rows // heads <= _FEW and -(-heads // machine.cores) * machine.cores > _EVEN * heads:
        return False
    keys, length = _parts(kernel)
    products = [compute for compute in computes_in(kernel) if points(item_of(compute))]
    packed = 4 * sum(prod(extents(product).values()) // rows for product in products)
    return (packed * keys // length if keys else packed) <= _ROOM


def is_chain(kernel: Kernel) -> bool:
    """Whether ``kernel`` is two such products."""
    return _chain(kernel) is not None


def _chain(kernel: Kernel) -> Chain | Crossed | None:
    """The products that ``kernel`` is, where it is nothing else."""
    if not are_known(kernel):
        return None
    allocated, items = flow(kernel)
    chains = chained(items, frozenset(allocated))
    whole = len(chains) == 1 and len(chains[0].items) == len(items)
    return chains[0] if whole else None


def _extents(kernel: Kernel, chain: Chain | Crossed) -> list[int]:
    """How long the levels are."""
    first = computes_in(kernel)[0]
    return [extents(first)[names[0]] for names in chain.levels]


def _split(chain: Chain, sizes: Sequence[int]) -> tuple[int, int]:
    """The length of the rows' longest level, and the product of all other levels."""
    rows = max((sizes[n] for n in chain.rows), default=1)
    return rows, prod(sizes) // rows


def _parts(kernel: Kernel) -> tuple[int, int]:
    """How much of what rows are normalized by is a part (0: all of it), and how much there is."""
    computes = computes_in(kernel)
    peak = _peak(computes)
    if peak is None:
        return 0, 0
    length = _reduced(peak)
    masked = next(filter(_compares, computes), None)
    sizes = (_even(length, size) for size in (_MASKED if masked is not None else (_KEYS,)))
    keys = min(sizes, key=lambda size: (1 + _PER_PART / size) * _gone_through(masked, peak, size))
    trial = KernelSchedule(kernel)
    _prepare(trial)
    streams = length > keys and trial.attempt(lambda: trial.online(peak.name, keys))
    return (keys if streams else 0), length


def _gone_through(masked: Compute | None, peak: Compute, keys: int) -> int:
    """How much tiles of rows go through of what ``peak`` reduces, in parts of ``keys``: those that
    the conditions of ``masked`` leave something of, as far as they are linear."""
    views = [o.view for o in peak.operands if masked and o.view.buffer is masked.out.buffer]
    length = _reduced(peak)
    if masked is None or not views:
        return length
    kept = index_variables(peak.out)
    key = next(i for n, i in enumerate(masked.out.index) if views[0].index[n] not in kept)
    assert isinstance(masked.body, Select)
    forms = [form for c in conjuncts(masked.body.condition) if (form := difference(c))]
    forms = [form for form in forms if key in form.terms and len(form.terms) == 2]
    rows = {term for form in forms for term in form.terms} - {key}
    names = {term.name for term in rows if isinstance(term, Var)} & extents(masked).keys()
    if len(rows) != 1 or len(names) != 1:
        return length
    (row,), (name,) = rows, names
    size, total = extents(masked)[name], 0
    for first in range(0, size, _ROWS[0]):
        last, low, high = min(first + _ROWS[0], size) - 1, 0, length - 1
        for form in forms:
            step, slope = form.terms[key], form.terms[row]
            most = form.constant + slope * (last if slope > 0 else first)
            if step < 0:
                high = min(high, most // -step)
            else:
                low = max(low, -(most // step))
        total += max(0, high // keys - low // keys + 1) * keys
    return total


def _prepare(s: KernelSchedule) -> None:
    """One exponential of a difference, and sums that are divided instead of their terms."""
    for compute in computes_in(s.kernel):
        readers = [c for c in computes_in(s.kernel) if _reads(c, compute)]
        if compute.combiner is None and len(readers) == 1 and readers[0].combiner is None:
            s.attempt(partial(s.inline, compute.name))
    for compute in computes_in(s.kernel):
        if compute.combiner is None:
            s.attempt(partial(s.divide_late, compute.name))


def _reads(reader: Compute, maker: Compute) -> bool:
    """Whether ``reader`` reads what another compute makes."""
    return reader is not maker and any(
        operand.view.buffer is maker.out.buffer for operand in reader.operands
    )


def _peak(computes: Sequence[Compute]) -> Compute | None:
    """The first maximum."""
    return next((compute for compute in computes if compute.combiner == "max"), None)


def _second(computes: Sequence[Compute]) -> str:
    """The second product."""
    return [compute.name for compute in computes if points(item_of(compute))][-1]


def _even(length: int, size: int) -> int:
    """About ``size``, so that parts of that size are equally long but for some."""
    whole = -(-length // max(1, round(length / size)))
    return min(length, -(-whole // _MULTIPLE) * _MULTIPLE) if size > _MULTIPLE else size


def _crossed_tiles(kernel: Kernel, chain: Crossed) -> ChainedConfig:
    """Tiles of rows and columns, of which a few stay in the cache of a worker."""
    sizes = extents(next(compute for compute in computes_in(kernel) if compute.name == chain.first))
    rows = max(sizes[name] for name in chain.rows)
    most = max(size for size in _ROWS if size <= rows)
    return ChainedConfig(_even(rows, most), _even(sizes[chain.columns], _COLUMNS))


def _reduced(compute: Compute) -> int:
    """How much the compute reduces to one result."""
    kept = index_variables(compute.out)
    return prod(n for dim, n in extents(compute).items() if var(dim) not in kept)


def _compares(compute: Compute) -> bool:
    """Whether it takes -inf in place of something by a comparison of places."""
    value = compute.body
    if not isinstance(value, Select) or value.b is not const(-inf, value.type):
        return False
    return any(difference(conjunct) is not None for conjunct in conjuncts(value.condition))
