"""What a kernel that is no op is verified on: numbers that keep its promises, and contents of
arrays.

Sizes are small: the interpreter, which says what is right, is slow. What says places in other
arrays, as the rows of a gather do, holds places that are there.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.ir.arguments import Scalar
from tilewright.ir.buffer import Buffer, Size
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.stmt import (
    Allocate,
    Compute,
    For,
    Kernel,
    Let,
    Param,
    ScalarParam,
    Stmt,
    Store,
)
from tilewright.ir.symbols import bind_scalars
from tilewright.ir.visit import direct_exprs, variables, walk, walk_stmts
from tilewright.testing.data import exact_limit, integers, reals
from tilewright.testing.inputs import MAX_ELEMENTS

# Exact in all types, and in products of a few.
_FACTORS = (0.5, 2.0, -1.0, 4.0, 0.25)
# The greatest size that is drawn, by how many sizes there are.
_GREATEST = {1: 2000, 2: 200, 3: 60}
_GREATEST_OF_MANY = 16


def draw_numbers(kernel: Kernel, given: Mapping[str, Scalar], seed: int) -> dict[str, Scalar]:
    """A number for each scalar parameter of ``kernel``: that of ``given``, or a random one that
    keeps what the parameter promises. (So all arrays have a shape: verified kernels see to it.)"""
    rng = random.Random(seed)
    sizes = _sizes(kernel)
    free = [each for each in kernel.scalars if each.name not in given]
    greatest = _GREATEST.get(sum(each.var in sizes for each in free), _GREATEST_OF_MANY)
    drawn = {each.name: _drawn(each, rng, each.var in sizes, greatest) for each in free}
    return {each.name: {**drawn, **given}[each.name] for each in kernel.scalars}


def _drawn(param: ScalarParam, rng: random.Random, size: bool, greatest: int) -> Scalar:
    if param.dtype.kind == "bool":
        return rng.random() < 0.5
    if param.dtype.is_float:
        return rng.choice(_FACTORS)
    by = param.divisor
    lowest = 1 if size else max(-9, int(param.dtype.lowest))
    low = param.low if param.low is not None else min(lowest, param.high or lowest)
    high = param.high if param.high is not None else max(9, low)
    if size:
        high = max(low, min(high if param.high is not None else greatest, greatest))
    first = -(-low // by)
    last = max(first, high // by)
    return by * rng.choice((first, last, rng.randint(first, last), rng.randint(first, last)))


def _sizes(kernel: Kernel) -> set[Var]:
    """The parameters on which depends how much memory or work there is."""
    found: set[Var] = set()
    for param in kernel.arrays:
        found |= param.buffer.symbols
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case Allocate():
                found |= stmt.buffer.symbols
            case For():
                found |= variables(stmt.extent)
            case Compute():
                found = found.union(*(variables(dim.extent) for dim in stmt.dims))
    return found


def make_contents(
    kernel: Kernel,
    arrays: Sequence[Param],
    numbers: Mapping[str, Scalar],
    *,
    exact: bool,
    seed: int,
) -> dict[str, Any]:
    """An array for each of ``arrays`` (of known shapes) that the kernel reads, padding included;
    ``exact``: of integers.

    Raises `UnsupportedError` where they are too large to verify.
    """
    total = sum(math.prod(padded(each)) for each in arrays)
    if total > MAX_ELEMENTS:
        raise UnsupportedError(
            f"{total} elements are too many to verify",
            why=f"the limit is {MAX_ELEMENTS}",
            cure="set smaller sizes, such as --set n=64, or write a smaller kernel of its kind",
        )
    limits = _limits(bind_scalars(kernel, numbers))
    found = {}
    for param in arrays:
        if param.access == "out":
            continue
        # By name, so that an argument has the same data whatever else there is.
        own, shape, dtype = seed + zlib.crc32(param.name.encode()), padded(param), param.dtype
        if param.name in limits:
            found[param.name] = _places(shape, dtype, limits[param.name], own)
        else:
            make = integers if exact else reals
            found[param.name] = make(shape, dtype, seed=own)
    return found


def padded(param: Param) -> tuple[int, ...]:
    """The shape of all that an array's layout holds."""
    return param.buffer.layout.padded_shape(len(param.buffer.sizes))


def _places(shape: tuple[int, ...], dtype: DType, below: int, seed: int) -> Any:
    """Numbers from 0 to ``below``, as far as the type has them; each once where there are enough of
    them."""
    generator = np.random.default_rng(seed)
    count = math.prod(shape)
    below = min(below, exact_limit(dtype) + 1)
    if count <= below:
        drawn = generator.permutation(below)[:count]
    else:
        drawn = generator.integers(0, max(1, below), count)
    return drawn.reshape(shape).astype(dtype.numpy)


def _limits(kernel: Kernel) -> dict[str, int]:
    """For each array whose elements stand in an index: the least size of what is indexed so."""
    found: dict[str, int] = {}
    for source, size in _indexed(kernel.body):
        if isinstance(size, int):
            found[source.name] = min(size, found.get(source.name, size))
    return found


def _indexed(body: Stmt) -> Iterator[tuple[Buffer, Size]]:
    """Each buffer that is loaded for an index, with the size of the dim that is indexed."""
    loaded: dict[Var, tuple[Buffer, ...]] = {}

    def sources(expr: Expr) -> tuple[Buffer, ...]:
        own = [node.buffer for node in walk(expr) if isinstance(node, Load)]
        return (*own, *(b for each in variables(expr) for b in loaded.get(each, ())))

    def used(buffer: Buffer, index: Sequence[Expr]) -> Iterator[tuple[Buffer, Size]]:
        for place, size in zip(index, buffer.sizes, strict=True):
            yield from ((source, size) for source in sources(place))

    for stmt in walk_stmts(body):
        if isinstance(stmt, Let):
            loaded[stmt.var] = sources(stmt.value)
        if isinstance(stmt, Compute):
            for operand in stmt.operands:
                yield from used(operand.view.buffer, operand.view.index)
                loaded[operand.var] = (operand.view.buffer,)
            for view in stmt.outputs:
                yield from used(view.buffer, view.index)
        for expr in direct_exprs(stmt):
            for node in walk(expr):
                if isinstance(node, Load):
                    yield from used(node.buffer, node.index)
        if isinstance(stmt, Store):
            yield from used(stmt.buffer, stmt.index)
