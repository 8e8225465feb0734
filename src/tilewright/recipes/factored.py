"""Products with weights that are made of small numbers: these become floats in registers, and what
scales whole groups of them leaves the sums.

    t[k, n] = (f32(q[k // 2, n] >> ... and 15) - z[k // 64, n]) * s[k // 64, n]
    y[m, n] add= x[m, k] * t[k, n]

naive
-> inlined (what makes the second factor, in the product)
-> words (q in numbers as large as a dot product's factors, where one adds up)
-> split, copied (x, where it has another type, or in the order of q's parts)
-> factored (sums of x * q over a group, times its scale; sums of x, times zero point and scale)
-> packed, hoisted (q in the order in which it is read, as small as it is)
-> tiled (a block of columns on a thread; in it group by group, whose factors lie in rows; in these
   register tiles)
-> lowered, parallel

A dot product (``instruction``) takes neighbours of a type of 16 bits. A word of 16 bits has four
weights of 4 bits, and a weight's value is looked up by its bits (`targets.llvm.tables`); the
neighbours of a pair are so the same parts of two words:

    k = 8 c + 4 j + part        (j: the pair's neighbours, which are words side by side in memory)

It takes less than panels of floats (`contraction`) where there are few rows, since memory delivers
a quarter, or an eighth, of the bytes; with many rows, making floats once for all of them does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.dtypes import DType, dtype
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.stmt import Kernel, Operand
from tilewright.ir.uses import view_variables
from tilewright.layout.roles import INIT, MAIN, RESULT
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import FactoredConfig
from tilewright.recipes.copies import copied
from tilewright.recipes.factored_model import (
    Product,
    candidates,
    dots,
    has_steps,
    parts_of,
    product_of,
    step_of,
    takes,
)
from tilewright.recipes.lowering import lower_rest, parallelize
from tilewright.recipes.model import Estimate
from tilewright.recipes.prologues import computed_in_copies, is_computed
from tilewright.recipes.recipe import Candidate, RankedRecipe
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.reshaping import halves, split_dims
from tilewright.recipes.roles import find_compute, named_after
from tilewright.recipes.start import Start
from tilewright.schedule.records.transform import Handles
from tilewright.schedule.schedule import KernelSchedule


class Factored(RankedRecipe[FactoredConfig]):
    """Products with weights that are made of small integers: factors of groups apply to sums."""

    name, config = "factored", FactoredConfig

    def candidates(
        self, start: Start, machine: Machine
    ) -> Iterator[Candidate[FactoredConfig, Estimate]]:
        return candidates(start.exact, machine, start.prepacked)

    def legal(self, kernel: Kernel, machine: Machine, config: FactoredConfig) -> dict[str, str]:
        product = product_of(KernelSchedule(kernel, machine))
        if product is None:
            return config.forms()
        sizes, group = product.sizes, product.group
        names = [dot.name for dot in dots(product, machine)]
        steps = [n for n in range(1, group + 1) if group % n == 0 and n % product.share == 0]
        return config.forms() | {
            "lanes": repr(product.lanes),
            "tile": "; ".join(f"{d}: 1 to {sizes[d]}" for d in (*product.rows, product.lanes)),
            "columns": f"1 or more, best a multiple of the tile's {product.lanes}",
            "step": " or ".join(map(str, steps)),
            "pack": "True or False" if product.ready else "True",
            "instruction": " or ".join(repr(instruction_name) for instruction_name in ("", *names)),
        }

    def schedule(self, s: KernelSchedule, machine: Machine, config: FactoredConfig) -> None:
        """Carries ``config`` out."""
        s.mark("naive")
        product = product_of(s)
        if product is None:
            raise ScheduleError(
                f"{s.kernel.name} multiplies by nothing that it makes of integers of a byte",
                where=f"config {config!r}",
                cure="use a ContractionConfig",
            )
        dot = machine.instruction(config.instruction) if config.instruction else None
        _check(config, product, dot)
        s.mark("inlined")
        dims, weights = _Dims.of(product, dot), product.weights.var.name
        if dot is not None:
            s.read_words(MAIN, weights, product.axis, _word(dot))
            s.mark("words")
        split_dims(s, dims.splits)
        s.mark("split")
        first, type = product.main.operands[0], product.main.out.buffer.dtype
        if dot is not None:
            _in_order(s, first, dims)
            s.mark("copied")
        elif first.var.type is not type:
            s.stage(MAIN, first.var.name, shape="dims", space=Space.GLOBAL, cast=type)
            s.mark("copied")
        sums = s.factor_out(MAIN, dims.inner)
        s.mark("factored")
        if config.pack:
            _pack(s, config, product, dims, machine)
        _tiled(s, config, product, dims, sums)
        s.mark("tiled")
        operands = {
            operand.var.name: operand.view for operand in find_compute(s.kernel, MAIN).operands
        }
        if dot is not None:
            _tensorized(s, product, dims, dot)
            s.mark("tensorized")
        _lowered(s, config, product, dims, sums, machine.lanes(type))
        if config.ahead and dims.outer is not None:
            s.prefetch(operands[weights].buffer.name, dims.outer, config.ahead)
        s.mark("lowered")
        parallelize(s, machine)
        s.mark("parallel")


@dataclass(frozen=True)
class _Dims:
    """What K is split in: ``outer``, the groups (None where there is one), and ``inner``, what a
    sum over one of them has: its steps, the ``pair`` that a dot product adds up (None without one),
    and the parts of an element."""

    splits: tuple[tuple[str, int], ...]
    outer: str | None
    inner: tuple[str, ...]
    pair: str | None = None

    @staticmethod
    def of(product: Product, dot: Instruction | None) -> _Dims:
        splits: list[tuple[str, int]] = []
        outer, left = None, product.k
        if product.group < product.sizes[product.k]:
            splits.append((left, product.group))
            outer, left = halves(left)
        if product.share == 1:
            return _Dims(tuple(splits), outer, (left,))
        if dot is None:
            splits.append((left, product.share))
            return _Dims(tuple(splits), outer, halves(left))
        steps, step = halves(left)
        pair, part = halves(step)
        splits += [(left, step_of(product, dot)), (step, parts_of(product, dot))]
        return _Dims(tuple(splits), outer, (steps, pair, part), pair)


def _word(dot: Instruction) -> DType:
    """The word that has so many bits as a factor of ``dot``."""
    return dtype(f"u{dot.operands[1].dtype.bits}")


def _in_order(s: KernelSchedule, first: Operand, dims: _Dims) -> None:
    """``kernel`` with the first factor in the order in which the other's parts are taken, pairs
    side by side."""
    main = find_compute(s.kernel, MAIN)
    (view,) = (operand.view for operand in main.operands if operand.var is first.var)
    varying = {view_variable.name for view_variable in view_variables(view)}
    inner = [name for name in dims.inner if name != dims.pair]
    order = [dim.var.name for dim in main.dims if dim.var.name not in dims.inner]
    layout = [(name, None) for name in (*order, *inner, dims.pair) if name in varying]
    s.stage(MAIN, first.var.name, shape="dims", space=Space.GLOBAL, layout=layout)


def _check(config: FactoredConfig, product: Product, dot: Instruction | None) -> None:
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
                why=f"the result's dims are { {name: product.sizes[name] for name in allowed} }",
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
    if dot is not None:
        _check_dot(config, product, dot)


def _check_dot(config: FactoredConfig, product: Product, dot: Instruction) -> None:
    """Refuses a dot product that the kernel has no words for, and tiles that are not full."""
    where = f"config {config!r}"
    if not takes(dot, product):
        raise ScheduleError(
            f"instruction={dot.name!r} does not add up products of {product.kernel.name}",
            where=where,
            why="it takes pairs of one type, with weights of which some are one element",
            cure='set instruction=""',
        )
    sizes, step = product.sizes, step_of(product, dot)
    whole = all(sizes[name] % size == 0 for name, size in config.tile.items())
    if config.step != step or not has_steps(product, dot) or not config.pack:
        raise ScheduleError(
            f"instruction={dot.name!r} takes {step} of K at a time, from packed words",
            where=where,
            why=f"a group has {product.group}, which should be several steps",
            cure=f'set step={step} and pack=True, or instruction=""',
        )
    if not whole or _width(config) % dot.sizes["n"] or config.columns % _width(config):
        raise ScheduleError(
            f"instruction={dot.name!r} needs full tiles",
            where=where,
            why=f"the result has { {name: sizes[name] for name in config.tile} }",
            cure=f"choose tiles that divide it, along {config.lanes!r} by {dot.sizes['n']}",
        )


def _pack(
    s: KernelSchedule,
    config: FactoredConfig,
    product: Product,
    dims: _Dims,
    machine: Machine,
) -> None:
    """Lays the weights out in the order in which they are read, as small as they are."""
    lanes, width = product.lanes, _width(config)
    inside = -(-config.columns // width)
    layout: list[tuple[str, int | None]] = [(lanes, None)]
    layout += [(dims.outer, None)] if dims.outer is not None else []
    layout += [(lanes, inside), (dims.inner[0], None), (lanes, width)]
    layout += [(dims.pair, None)] if dims.pair is not None else []
    buffer = product.weights.view.buffer
    operands = find_compute(s.kernel, MAIN).operands
    (held,) = (o.view.buffer for o in operands if o.var.name == product.weights.var.name)
    staged = s.stage(
        MAIN,
        product.weights.var.name,
        shape="dims",
        space=Space.GLOBAL,
        layout=layout,
        name=named_after(buffer.name, "packed"),
    )
    computed_in_copies(s, held)
    s.mark("packed")
    # Where something else reads the weights as they are, each call packs them.
    if buffer.name == s.prepacked and s.attempt(lambda: s.hoist_pack(staged["buffer"])):
        lower_rest(s.packs[buffer.name])
        s.mark("hoisted")
        return
    s.log.notes.append(
        f"{buffer.name}: brought into the order of reading in each call; to do it once, leave its "
        "layout to the kernel, or say that it is constant, and pack it"
    )
    for copy in computes_in(s.kernel):
        if copy.name == staged["copy"] and not is_computed(copy):
            copied(s, copy.name, machine, inside=True)
            s.mark("copied in squares")


def _width(config: FactoredConfig) -> int:
    return config.tile.get(config.lanes, 1)


def _tiled(
    s: KernelSchedule, config: FactoredConfig, product: Product, dims: _Dims, sums: Handles
) -> None:
    """Blocks of columns; in each, group by group, register tiles of ``sums``."""
    lanes, begin, total = config.lanes, sums["begin"], sums["total"]
    blocks = s.compute_at(
        RESULT,
        {lanes: config.columns},
        producers=(INIT, total, begin, MAIN),
        storage=(*product.rows, lanes),
    )
    sizes = {dim: config.tile.get(dim, 1) for dim in (*product.rows, lanes)}
    order = (lanes, *product.rows)
    if dims.outer is not None:
        sizes, order = {dims.outer: 1, **sizes}, (dims.outer, *order)
    storage = (*product.rows, lanes)
    tiles = s.compute_at(total, sizes, order, producers=(begin, MAIN), storage=storage)
    wide = [tiles[dim] for dim in order if sizes[dim] > 1 and dim in tiles]
    for loop in (*(blocks[dim] for dim in (lanes,) if dim in blocks), *wide):
        if s.has(loop):
            s.partition(loop, split_borders=True)


def _tensorized(s: KernelSchedule, product: Product, dims: _Dims, dot: Instruction) -> None:
    """What words have becomes the factors of ``dot``, in registers, each once for all rows."""
    steps, pair, part = dims.inner
    s.tile(MAIN, {steps: 1})
    factors, _ = s.precompute(
        MAIN,
        product.weights.var.name,
        cast=dot.operands[1].dtype,
        order=(part, product.lanes, pair),
    )
    vector = named_after(product.lanes, pair)
    s.fuse_dims([product.lanes, pair], vector, computes=[factors], digits=True)
    s.lower_computes(
        [factors],
        vector=vector,
        lanes=dot.sizes["n"] * dot.sizes["k"],
        unroll=(part, vector),
    )
    s.tensorize(MAIN, dot, {"n": product.lanes, "k": pair})


def _lowered(
    s: KernelSchedule,
    config: FactoredConfig,
    product: Product,
    dims: _Dims,
    sums: Handles,
    vector: int,
) -> None:
    """The register tile's sums stay in registers, so all of its indices are unrolled."""
    parts = [sums["begin"], sums["total"]]
    if dims.pair is None:
        s.tile(MAIN, {dims.inner[0]: config.step // product.share})
        parts.append(MAIN)
    tile_dims = (*dims.inner, *product.rows, config.lanes)
    s.lower_computes(
        parts,
        vector=config.lanes,
        lanes=vector,
        order=(*dims.inner, *product.rows),
        unroll=tile_dims,
    )
    s.lower_computes(
        [INIT, RESULT],
        vector=config.lanes,
        lanes=vector,
        unroll=tile_dims if config.columns == _width(config) else (),
    )
    lower_rest(s)
