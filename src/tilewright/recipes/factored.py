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

from dataclasses import dataclass

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes.config import FactoredConfig
from tilewright.recipes.elementwise import lower_rest
from tilewright.recipes.factored_model import Product, product_of
from tilewright.recipes.reshaping import split_dims
from tilewright.recipes.roles import MAIN, RESULT, find_compute
from tilewright.recipes.scheduled import ScheduledKernel
from tilewright.recipes.workers import parallelize_outermost
from tilewright.schedule.factor_out import factor_out
from tilewright.schedule.fuse import tile_and_fuse
from tilewright.schedule.hoist import hoist_pack
from tilewright.schedule.loops import lower_computes
from tilewright.schedule.partition import partition
from tilewright.schedule.place import loops_around
from tilewright.schedule.prefetch import prefetch
from tilewright.schedule.stage import stage
from tilewright.schedule.tile import tile


def schedule(
    kernel: Kernel, machine: Machine, config: FactoredConfig, prepack: str | None
) -> ScheduledKernel:
    """Carries ``config`` out."""
    product = product_of(kernel)
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
    lowered = _lowered(result.kernel, config, product, dims, vector)
    if config.ahead and dims.outer is not None:
        operands = {each.var.name: each.view for each in find_compute(result.kernel, MAIN).operands}
        weights = operands[product.weights.var.name].buffer.name
        lowered = prefetch(lowered, weights, dims.outer, config.ahead)
    result.stage("lowered", lowered)
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
    def of(product: Product) -> _Dims:
        splits: list[tuple[str, int]] = []
        outer, left = None, product.k
        if product.group < product.sizes[product.k]:
            splits.append((left, product.group))
            outer, left = f"{left}_q", f"{left}_r"
        if product.share == 1:
            return _Dims(tuple(splits), outer, (left,))
        splits.append((left, product.share))
        return _Dims(tuple(splits), outer, (f"{left}_q", f"{left}_r"))


def _check(config: FactoredConfig, product: Product) -> None:
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
    product: Product,
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


def _tiled(kernel: Kernel, config: FactoredConfig, product: Product, dims: _Dims) -> Kernel:
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
    for loop in dict.fromkeys(each.var.name for each in loops_around(kernel, MAIN)):
        if loop.startswith(tuple(f"{each}_o" for each in (*product.rows, lanes))):
            kernel = partition(kernel, loop, split_borders=True)
    return kernel


def _lowered(
    kernel: Kernel, config: FactoredConfig, product: Product, dims: _Dims, vector: int
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
