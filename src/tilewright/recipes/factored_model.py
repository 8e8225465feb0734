"""Products with weights that are made of small integers, as the recipe `factored` sees them: what
they are, and what a model says of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce

from tilewright.ir.expr import Binary, Const, Expr, Var
from tilewright.ir.stmt import Compute, Kernel, Operand, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import variables
from tilewright.layout.roles import MAIN
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import FactoredConfig
from tilewright.recipes.model import Estimate
from tilewright.recipes.parts.product import neighbours
from tilewright.recipes.prologues import has_prologue, packable, prologues
from tilewright.recipes.recipe import Candidate
from tilewright.recipes.reshaping import fuse_neighbours
from tilewright.recipes.roles import extents, find_compute, has_compute, roles
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule

# What a sum over a group has at least: below, what is done for each would be most of the work.
_LEAST_GROUP = 8
# Cycles of a processor with AVX2, as measured: a vector becomes one of floats, a multiply-add, a
# number is spread over a vector; and what a tile takes at least, whose sums wait for one another.
_CONVERTED, _ADDED, _SPREAD, _LATENCY = 0.95, 0.5, 0.25, 4.0
# With a dot product, on a processor with AVX-512: a vector is looked up, pairs are added up.
_LOOKED_UP = 0.45
# Cycles for each byte of weights that a call brings into the order of reading, in squares, besides
# what memory takes to read it and to write it.
_TURNED = 0.4
# Cycles for each vector of results and group: its sum is loaded, scaled and added up.
_APPLIED = 4.0
# Columns whose sums one thread keeps in its cache, and how many of K stand in one step.
_COLUMNS, _STEP = 512, 8
# Blocks of columns that each core gets, where there are so many.
_BLOCKS = 4
# How far ahead packed weights are asked for: what the first cache keeps beside the sums.
_AHEAD = 16 << 10
# The rows of a register tile, at most, and its vectors: loads that begin with cache lines.
_ROWS, _VECTORS = 8, (1, 2, 4)
# Register tiles that are tried.
_TRIED = 4


@dataclass(frozen=True)
class Product:
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
    def axis(self) -> int:
        """The axis of the weights' array along which ``k`` is."""
        index = self.weights.view.index
        return next(i for i, e in enumerate(index) if self.k in {v.name for v in variables(e)})

    @property
    def stored(self) -> int:
        """Bytes of the weights."""
        return self.weights.view.buffer.bytes


def product_of(s: KernelSchedule) -> Product | None:
    """What the recipe goes by, whose prologue is in the product then; None for another kernel."""
    if not has_compute(s.kernel, MAIN) or not has_prologue(s.kernel, 1):
        return None
    s.drop_unit_dims()
    fuse_neighbours(s)
    main = find_compute(s.kernel, MAIN)
    by_role, sizes = roles(main), extents(main)
    if (
        len(by_role.n) != 1
        or len(by_role.k) != 1
        or by_role.batch
        or not main.out.buffer.dtype.is_float
    ):
        return None
    makers = prologues(s.kernel, main.operands[1].view.buffer)
    if not all(s.attempt(partial(s.inline, compute.name)) for compute in makers):
        return None
    main = find_compute(s.kernel, MAIN)
    (lanes,), (k,) = by_role.n, by_role.k
    whole = [operand for operand in main.operands[1:] if {k, lanes} <= _names(operand.view)]
    weights = max(whole, key=lambda operand: math.prod(operand.view.buffer.shape), default=None)
    if weights is None or not _is_small(weights.view):
        return None
    steps = [
        _alike(operand.view, k, sizes[k]) for operand in main.operands[1:] if operand is not weights
    ]
    group, share = reduce(math.gcd, steps, sizes[k]), _alike(weights.view, k, 0)
    if group < min(_LEAST_GROUP, sizes[k]) or group % share:
        return None
    rows = tuple(sorted(by_role.m, key=lambda dim: sizes[dim]))
    return Product(s.kernel, main, lanes, k, rows, weights, group, share)


def _is_small(view: View) -> bool:
    stored = view.buffer.dtype
    return stored.is_integer and stored.bytes == 1 and view.mask is None


def _names(view: View) -> set[str]:
    return {view_variable.name for view_variable in view_variables(view)}


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
            if any(variable.name == k for variable in variables(expr)):
                yield 1


def step_of(product: Product, dot: Instruction) -> int:
    """How many of K ``dot`` takes: the neighbours of a pair are parts of two words."""
    return neighbours(dot) * parts_of(product, dot)


def parts_of(product: Product, dot: Instruction) -> int:
    """How many weights a word has, which is as large as a factor of ``dot``."""
    return product.share * dot.operands[1].dtype.bits // product.weights.view.buffer.dtype.bits


def has_steps(product: Product, dot: Instruction) -> bool:
    """Whether a group is several whole steps of ``dot``."""
    step = step_of(product, dot)
    return product.group > step and product.group % step == 0


def takes(dot: Instruction, product: Product) -> bool:
    """Whether ``dot`` adds up pairs of the first factor's type, with weights of words."""
    out, first = product.main.out.buffer.dtype, product.main.operands[0].var.type
    types = {operand.dtype for operand in dot.operands}
    pairs = neighbours(dot) > 1 and set(dot.sizes) == {"n", "k"}
    unsigned = product.weights.view.buffer.dtype.kind == "uint"
    return pairs and dot.out.dtype is out and types == {first} and product.share > 1 and unsigned


# What may be chosen.


def candidates(
    kernel: Kernel, machine: Machine, prepack: str | None
) -> Iterator[Candidate[FactoredConfig, Estimate]]:
    """Configs in the order in which they should be tried; none where panels of floats are predicted
    to take less."""
    product = product_of(KernelSchedule(kernel, machine))
    if product is None:
        return
    panels_tried = [
        Candidate(config, _estimate(product, config, machine, prepack))
        for config in _configs(product, machine, prepack)
    ]
    # Where the same limits two of them, the next limit decides: nothing overlaps as a whole.
    panels_tried.sort(
        key=lambda candidate: sorted(candidate.prediction.limits.values(), reverse=True)
    )
    panels = _panels(product, machine, packable(kernel, prepack))
    panels += _turning(product, machine, prepack)
    yield from (
        candidate for candidate in panels_tried[:_TRIED] if candidate.prediction.seconds < panels
    )


def _configs(product: Product, machine: Machine, prepack: str | None) -> Iterator[FactoredConfig]:
    packed = product.weights.view.buffer.name == prepack
    for dot in dots(product, machine) if packed else ():
        yield from _of_instruction(product, machine, dot, pack=True)
    yield from _of_instruction(product, machine, None, pack=packed or not product.ready)


def dots(product: Product, machine: Machine) -> Iterator[Instruction]:
    """The dot products that take the words of weights."""
    first, out = product.main.operands[0].var.type, product.main.out.buffer.dtype
    for dot in machine.products(out, first, first):
        fits = takes(dot, product) and dot.sizes["n"] == machine.lanes(out)
        if fits and has_steps(product, dot):
            yield dot


def _of_instruction(
    product: Product, machine: Machine, dot: Instruction | None, pack: bool
) -> Iterator[FactoredConfig]:
    sizes = product.sizes
    vector = machine.lanes(product.main.out.buffer.dtype)
    row = product.rows[-1] if product.rows else None
    most = -(-sizes[product.lanes] // vector)
    share = -(-sizes[product.lanes] // (_BLOCKS * machine.cores))
    step = max(d for d in range(1, _STEP + 1) if product.group % d == 0 and d % product.share == 0)
    if dot is not None:
        step = step_of(product, dot)
    for height in range(1, min(_ROWS, sizes[row] if row is not None else 1) + 1):
        for vectors in (count for count in _VECTORS if count <= most):
            # The sums, the weights, one of the other factor for each part of these, and a mask.
            if height * vectors + vectors + product.share + 1 > machine.vector_registers:
                continue
            width = vectors * vector
            tile = {product.lanes: min(width, sizes[product.lanes])}
            tile = tile if row is None else {row: height, **tile}
            if dot is not None and any(sizes[name] % size for name, size in tile.items()):
                continue
            columns = max(1, min(_COLUMNS, share) // width) * width
            groups = max(1, _AHEAD * product.share // (columns * product.group))
            yield FactoredConfig(
                lanes=product.lanes,
                tile=tile,
                columns=columns,
                step=step,
                pack=pack,
                ahead=groups if pack and product.group < sizes[product.k] else 0,
                instruction="" if dot is None else dot.name,
            )


def _turning(product: Product, machine: Machine, prepack: str | None) -> float:
    """The seconds in which each call brings the weights into the order of reading: 0 where they lie
    so, or are packed beforehand."""
    if product.ready or product.weights.view.buffer.name == prepack:
        return 0.0
    stored = product.stored
    core = machine.core
    return 2 * stored / core.memory + stored * _TURNED / (core.clock * machine.cores)


def _estimate(
    product: Product, config: FactoredConfig, machine: Machine, prepack: str | None
) -> Estimate:
    sizes = product.sizes
    vector = machine.lanes(product.main.out.buffer.dtype)
    vectors = -(-config.tile[product.lanes] // vector)
    row = product.rows[-1] if product.rows else None
    height = config.tile.get(row, 1) if row is not None else 1
    tiles = -(-sizes[product.lanes] // (vectors * vector))
    tiles *= math.prod(-(-sizes[d] // config.tile.get(d, 1)) for d in product.rows)
    k = sizes[product.k]
    clock = machine.core.clock * machine.cores
    applied = _APPLIED * height * vectors / product.group
    converted, together = _CONVERTED, 1
    if config.instruction:
        converted, together = _LOOKED_UP, neighbours(machine.instruction(config.instruction))
    busy = vectors * converted + height * (vectors * _ADDED + _SPREAD) / together + applied
    limits = {
        "conversions": tiles * k * busy / clock,
        "latency": tiles * k * (_LATENCY / together + applied) / clock,
        "memory": product.stored / machine.core.memory,
    }
    turning = _turning(product, machine, prepack)
    if turning:
        # Nothing is multiplied meanwhile.
        limits["packing in each call"] = turning + max(limits.values())
    return Estimate(limits, height * vectors)


def _panels(product: Product, machine: Machine, packed: bool) -> float:
    """The seconds that the product takes with floats in memory, made in each call unless ``packed``
    beforehand."""
    sizes = product.sizes
    number = sizes[product.k] * sizes[product.lanes]
    type = product.main.out.buffer.dtype
    clock = machine.core.clock * machine.cores * machine.lanes(type)
    added = number * math.prod(sizes[d] for d in product.rows) * _ADDED / clock
    memory = machine.core.memory
    read = number * type.bytes / memory
    if packed:
        return max(read, added)
    return (
        (product.stored + number * type.bytes) / memory
        + number * _CONVERTED / clock
        + max(read, added)
    )
