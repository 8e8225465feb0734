"""Products with weights that are made of small numbers: these become floats in registers, and what
scales whole groups of them leaves the sums.

    t[k, n] = (f32(q[k // 2, n] >> ... and 15) - z[k // 64, n]) * s[k // 64, n]
    y[m, n] add= x[m, k] * t[k, n]

naive
-> inlined (what makes the second factor, in the product)
-> factored (sums of x * q over a group, times its scale; sums of x, times zero point and scale)
-> copied (x, where it has another type)
-> packed, hoisted (q in the order in which it is read, as small as it is)
-> tiled (a block of columns on a thread; in it group by group, whose factors lie in rows; in these
   register tiles)
-> lowered, parallel

It takes less than panels of floats (`contraction`) where there are few rows, since memory delivers
a quarter, or an eighth, of the bytes; with many rows, making floats once for all of them does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.expr import Binary, Const, Expr, Var
from tilewright.ir.stmt import Compute, For, Kernel, Operand, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import variables, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.config import FactoredConfig
from tilewright.recipes.elementwise import lower_rest
from tilewright.recipes.model import CLOCK, MEMORY, Estimate
from tilewright.recipes.prologues import has_prologue, packable, prologues
from tilewright.recipes.recipe import Candidate
from tilewright.recipes.reshaping import fusable, fused, split_dims
from tilewright.recipes.roles import MAIN, RESULT, extents, find_compute, has_compute, roles
from tilewright.recipes.scheduled import ScheduledKernel
from tilewright.recipes.workers import parallelize_outermost
from tilewright.schedule.factor_out import factor_out
from tilewright.schedule.fuse import tile_and_fuse
from tilewright.schedule.hoist import hoist_pack
from tilewright.schedule.inline import inline
from tilewright.schedule.loops import lower_computes
from tilewright.schedule.partition import partition
from tilewright.schedule.place import holds
from tilewright.schedule.runs import strides
from tilewright.schedule.stage import stage
from tilewright.schedule.tile import tile
from tilewright.schedule.unit import drop_unit_dims

# What a sum over a group has at least: below, what is done for each would be most of the work.
_LEAST_GROUP = 8
# Cycles of a processor with AVX2, as measured: a vector becomes one of floats, a multiply-add, a
# number is spread over a vector; and what a tile takes at least, whose sums wait for one another.
_CONVERTED, _ADDED, _SPREAD, _LATENCY = 0.95, 0.5, 0.25, 4.0
# Cycles for each vector of results and group: its sum is loaded, scaled and added up.
_APPLIED = 4.0
# Columns whose sums one thread keeps in its cache, and how many of K stand in one step.
_COLUMNS, _STEP = 512, 8
# Blocks of columns that each core gets, where there are so many.
_BLOCKS = 4
# The rows of a register tile, at most, and its vectors: loads that begin with cache lines.
_ROWS, _VECTORS = 8, (1, 2, 4)
# Register tiles that are tried.
_TRIED = 4


@dataclass(frozen=True)
class _Product:
    """The product with what makes its second factor: ``weights`` is the operand that has an element
    for each of K and N, of which ``share`` neighbours along ``k`` are parts of one; the other
    operands are the same for ``group`` neighbours. ``rows`` are the dims of M, the longest last."""

    kernel: Kernel
    main: Compute
    lanes: str
    k: str
    rows: tuple[str, ...]
    weights: Operand
    group: int
    share: int

    @property
    def sizes(self) -> dict[str, int]:
        return extents(self.main)

    @property
    def ready(self) -> bool:
        """Whether neighbours along the lanes are neighbours in memory."""
        return strides(self.main, self.weights.view)[self.lanes] == 1

    @property
    def stored(self) -> int:
        """Bytes of the weights."""
        return self.weights.view.buffer.bytes


def _product(kernel: Kernel) -> _Product | None:
    """What the recipe goes by; None for another kernel."""
    if not has_compute(kernel, MAIN) or not has_prologue(kernel, 1):
        return None
    kernel = drop_unit_dims(kernel)
    kernel = fused(kernel, fusable(kernel))
    main = find_compute(kernel, MAIN)
    found, sizes = roles(main), extents(main)
    if len(found.n) != 1 or len(found.k) != 1 or found.batch or not main.out.buffer.dtype.is_float:
        return None
    try:
        for compute in prologues(kernel, main.operands[1].view.buffer):
            kernel = inline(kernel, compute.name)
    except ScheduleError:
        return None
    main = find_compute(kernel, MAIN)
    (lanes,), (k,) = found.n, found.k
    whole = [each for each in main.operands[1:] if {k, lanes} <= _names(each.view)]
    weights = max(whole, key=lambda each: math.prod(each.view.buffer.shape), default=None)
    if weights is None or not _is_small(weights.view):
        return None
    steps = [_alike(each.view, k, sizes[k]) for each in main.operands[1:] if each is not weights]
    group, share = reduce(math.gcd, steps, sizes[k]), _alike(weights.view, k, 0)
    if group < min(_LEAST_GROUP, sizes[k]) or group % share:
        return None
    rows = tuple(sorted(found.m, key=lambda dim: sizes[dim]))
    return _Product(kernel, main, lanes, k, rows, weights, group, share)


def _is_small(view: View) -> bool:
    stored = view.buffer.dtype
    return stored.is_integer and stored.bytes == 1 and view.mask is None


def _names(view: View) -> set[str]:
    return {each.name for each in view_variables(view)}


def _alike(view: View, k: str, size: int) -> int:
    """How many neighbours along ``k``, of ``size``, read the same through ``view``."""
    exprs = view.index if view.mask is None else (*view.index, view.mask)
    return reduce(math.gcd, (d for expr in exprs for d in _divisors(expr, k)), size)


def _divisors(expr: Expr, k: str) -> Iterator[int]:
    """By what ``k`` is divided wherever it stands in ``expr``; 1 where it stands otherwise."""
    match expr:
        case Binary(op="floordiv", a=Var(name=name), b=Const(value=value)) if name == k:
            yield int(value)
        case Binary(op="add" | "sub" | "mul"):
            yield from _divisors(expr.a, k)
            yield from _divisors(expr.b, k)
        case _:
            if any(each.name == k for each in variables(expr)):
                yield 1


# What may be chosen.


def candidates(
    kernel: Kernel, machine: Machine, prepack: str | None
) -> Iterator[Candidate[FactoredConfig, Estimate]]:
    """Configs in the order in which they should be tried; none where panels of floats are predicted
    to take less."""
    product = _product(kernel)
    if product is None:
        return
    found = [
        Candidate(config, _estimate(product, config, machine))
        for config in _configs(product, machine, prepack)
    ]
    found.sort(key=lambda each: each.prediction.seconds)
    panels = _panels(product, machine, packable(kernel, prepack))
    yield from (each for each in found[:_TRIED] if each.prediction.seconds < panels)


def _configs(product: _Product, machine: Machine, prepack: str | None) -> Iterator[FactoredConfig]:
    sizes = product.sizes
    vector = machine.lanes(product.main.out.buffer.dtype)
    row = product.rows[-1] if product.rows else None
    most = -(-sizes[product.lanes] // vector)
    share = -(-sizes[product.lanes] // (_BLOCKS * machine.cores))
    step = max(d for d in range(1, _STEP + 1) if product.group % d == 0 and d % product.share == 0)
    for height in range(1, min(_ROWS, sizes[row] if row is not None else 1) + 1):
        for vectors in (each for each in _VECTORS if each <= most):
            # The sums, the weights, one of the other factor for each part of these, and a mask.
            if height * vectors + vectors + product.share + 1 > machine.vector_registers:
                continue
            width = vectors * vector
            tile = {product.lanes: min(width, sizes[product.lanes])}
            yield FactoredConfig(
                lanes=product.lanes,
                tile=tile if row is None else {row: height, **tile},
                columns=max(1, min(_COLUMNS, share) // width) * width,
                step=step,
                pack=product.weights.view.buffer.name == prepack or not product.ready,
            )


def _estimate(product: _Product, config: FactoredConfig, machine: Machine) -> Estimate:
    sizes = product.sizes
    vector = machine.lanes(product.main.out.buffer.dtype)
    vectors = -(-config.tile[product.lanes] // vector)
    row = product.rows[-1] if product.rows else None
    height = config.tile.get(row, 1) if row is not None else 1
    tiles = -(-sizes[product.lanes] // (vectors * vector))
    tiles *= math.prod(-(-sizes[d] // config.tile.get(d, 1)) for d in product.rows)
    k = sizes[product.k]
    clock = CLOCK * machine.cores
    applied = _APPLIED * height * vectors / product.group
    busy = vectors * _CONVERTED + height * (vectors * _ADDED + _SPREAD) + applied
    limits = {
        "conversions": tiles * k * busy / clock,
        "latency": tiles * k * (_LATENCY + applied) / clock,
        "memory": product.stored / MEMORY,
    }
    return Estimate(limits, height * vectors)


def _panels(product: _Product, machine: Machine, packed: bool) -> float:
    """The seconds that the product takes with floats in memory, made in each call unless ``packed``
    beforehand."""
    sizes = product.sizes
    number = sizes[product.k] * sizes[product.lanes]
    type = product.main.out.buffer.dtype
    clock = CLOCK * machine.cores * machine.lanes(type)
    added = number * math.prod(sizes[d] for d in product.rows) * _ADDED / clock
    read = number * type.bytes / MEMORY
    if packed:
        return max(read, added)
    return (
        (product.stored + number * type.bytes) / MEMORY
        + number * _CONVERTED / clock
        + max(read, added)
    )


# Carrying it out.


def schedule(
    kernel: Kernel, machine: Machine, config: FactoredConfig, prepack: str | None
) -> ScheduledKernel:
    """Carries ``config`` out."""
    product = _product(kernel)
    if product is None:
        raise ScheduleError(
            f"{kernel.name} multiplies by nothing that it makes of integers of a byte",
            where=f"config {config!r}",
            cure="use a ContractionConfig",
        )
    _check(config, product)
    result = ScheduledKernel(kernel)
    result.stage("naive", kernel)
    result.stage("inlined", product.kernel)
    first, type = product.main.operands[0], product.main.out.buffer.dtype
    if first.var.type is not type:
        copied = stage(product.kernel, MAIN, first.var.name, space=Space.GLOBAL, cast=type)
        result.stage("copied", copied)
    dims = _Dims.of(product)
    result.stage("split", split_dims(result.kernel, dims.splits))
    result.stage("factored", factor_out(result.kernel, MAIN, dims.inner))
    if config.pack:
        _pack(result, config, product, dims, prepack)
    result.stage("tiled", _tiled(result.kernel, config, product, dims))
    vector = machine.lanes(type)
    result.stage("lowered", _lowered(result.kernel, config, product, dims, vector))
    result.stage("parallel", parallelize_outermost(result.kernel, machine))
    return result


@dataclass(frozen=True)
class _Dims:
    """What K is split in: ``outer``, the groups (None where there is one), and ``inner``, what a
    sum over one of them has, the parts of an element last."""

    splits: tuple[tuple[str, int], ...]
    outer: str | None
    inner: tuple[str, ...]

    @staticmethod
    def of(product: _Product) -> _Dims:
        splits: list[tuple[str, int]] = []
        outer, left = None, product.k
        if product.group < product.sizes[product.k]:
            splits.append((left, product.group))
            outer, left = f"{left}_q", f"{left}_r"
        if product.share == 1:
            return _Dims(tuple(splits), outer, (left,))
        splits.append((left, product.share))
        return _Dims(tuple(splits), outer, (f"{left}_q", f"{left}_r"))


def _check(config: FactoredConfig, product: _Product) -> None:
    """Refuses a config that names dims that the kernel does not have, or cuts groups apart."""
    allowed = (*product.rows, product.lanes)
    where = f"config {config!r}"
    if config.lanes != product.lanes:
        raise ScheduleError(
            f"lanes={config.lanes!r} is not along the weights",
            where=where,
            cure=f"use {product.lanes!r}",
        )
    for name, size in config.tile.items():
        if name not in allowed or size > product.sizes[name]:
            raise ScheduleError(
                f"tile={{{name!r}: {size}}} is not a part of a dim of the result",
                where=where,
                why=f"the result's dims are { {each: product.sizes[each] for each in allowed} }",
                cure="choose one of " + ", ".join(allowed),
            )
    if product.group % config.step or config.step % product.share:
        raise ScheduleError(
            f"step={config.step} is no part of a group",
            where=where,
            why=f"a group has {product.group}, of which {product.share} are one element",
            cure=f"choose a multiple of {product.share} that divides {product.group}",
        )
    if not config.pack and not product.ready:
        raise ScheduleError(
            "pack=False: the weights do not lie along the lanes", where=where, cure="set pack=True"
        )


def _pack(
    result: ScheduledKernel,
    config: FactoredConfig,
    product: _Product,
    dims: _Dims,
    prepack: str | None,
) -> None:
    """Lays the weights out in the order in which they are read, as small as they are."""
    lanes, width = product.lanes, _width(config)
    inside = -(-config.columns // width)
    layout: list[tuple[str, int | None]] = [(lanes, None)]
    layout += [(dims.outer, None)] if dims.outer is not None else []
    layout += [(lanes, inside), (dims.inner[0], None), (lanes, width)]
    buffer = product.weights.view.buffer
    name = f"{buffer.name}_packed"
    kernel = stage(
        result.kernel,
        MAIN,
        product.weights.var.name,
        shape="dims",
        space=Space.GLOBAL,
        layout=layout,
        name=name,
    )
    result.stage("packed", kernel)
    if buffer.name == prepack:
        try:
            pack, kernel = hoist_pack(kernel, name)
        except ScheduleError:
            # Something else reads the weights as they are: then each call packs them.
            return
        result.packs[buffer.name] = lower_rest(pack)
        result.stage("hoisted", kernel)


def _width(config: FactoredConfig) -> int:
    return config.tile.get(config.lanes, 1)


# What `factor_out` calls the sums' beginning, and what takes them to the results.
_BEGIN, _TOTAL = f"{MAIN}_sums_init", f"{MAIN}_total"


def _tiled(kernel: Kernel, config: FactoredConfig, product: _Product, dims: _Dims) -> Kernel:
    """Blocks of columns; in each, group by group, register tiles of sums."""
    lanes = config.lanes
    kernel = tile_and_fuse(
        kernel,
        RESULT,
        {lanes: config.columns},
        producers=("init", _TOTAL, _BEGIN, MAIN),
        storage=(*product.rows, lanes),
    )
    sizes = {each: config.tile.get(each, 1) for each in (*product.rows, lanes)}
    order = (lanes, *product.rows)
    if dims.outer is not None:
        sizes, order = {dims.outer: 1, **sizes}, (dims.outer, *order)
    kernel = tile_and_fuse(
        kernel, _TOTAL, sizes, order, producers=(_BEGIN, MAIN), storage=(*product.rows, lanes)
    )
    for loop in _loops_around(kernel, MAIN):
        if loop.startswith(tuple(f"{each}_o" for each in (*product.rows, lanes))):
            kernel = partition(kernel, loop, split_borders=True)
    return kernel


def _loops_around(kernel: Kernel, compute: str) -> list[str]:
    """The loops that hold the compute, outermost first."""
    loops = (stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, For))
    return list(dict.fromkeys(each.var.name for each in loops if holds(each, compute)))


def _lowered(
    kernel: Kernel, config: FactoredConfig, product: _Product, dims: _Dims, vector: int
) -> Kernel:
    """The register tile's sums stay in registers, so all of its indices are unrolled."""
    kernel = tile(kernel, MAIN, {dims.inner[0]: config.step // product.share})
    tile_dims = (*dims.inner, *product.rows, config.lanes)
    kernel = lower_computes(
        kernel,
        [_BEGIN, MAIN, _TOTAL],
        vector=config.lanes,
        lanes=vector,
        order=(*dims.inner, *product.rows),
        unroll=tile_dims,
    )
    kernel = lower_computes(
        kernel,
        ["init", RESULT],
        vector=config.lanes,
        lanes=vector,
        unroll=tile_dims if config.columns == _width(config) else (),
    )
    return lower_rest(kernel)
