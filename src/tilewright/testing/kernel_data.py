"""What a kernel that is no op is verified on: the contents of arrays.

Sizes are small: the interpreter, which says what is right, is slow. What says places in other
arrays, as the rows of a gather do, holds places that are there.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.ir.arguments import Scalar
from tilewright.ir.buffer import Buffer, Size
from tilewright.ir.expr import Expr, Var
from tilewright.ir.load import Load
from tilewright.ir.stmt import (
    Compute,
    Kernel,
    Let,
    Param,
    Stmt,
    Store,
)
from tilewright.ir.symbols import bind_scalars
from tilewright.ir.visit import direct_exprs, variables, walk, walk_stmts
from tilewright.testing.data import exact_limit, extremes, integers, reals
from tilewright.testing.influences import Decided, adds_floats, asks_for_finite, deciding, updated
from tilewright.testing.inputs import MAX_ELEMENTS


class Contents(Enum):
    """What arrays hold; the value is what reports call it."""

    INTEGERS = "integers"
    REALS = "reals"
    LIMITS = "limits"  # infinities, NaN, and what narrower types do not hold


def make_contents(
    kernel: Kernel,
    arrays: Sequence[Param],
    numbers: Mapping[str, Scalar],
    kind: Contents,
    seed: int,
    *,
    careful: bool,
) -> dict[str, Any]:
    """An array for each of ``arrays`` (of known shapes) that the kernel reads, padding included.
    ``careful``: what decides places and the lengths of loops is small and not negative.

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
    deciding_ = deciding(kernel, Decided.LENGTH, Decided.PLACE)
    names = {each.name for each in deciding_ if isinstance(each, Buffer)}
    counters = {each.name for each in updated(kernel)} & names
    adds, finite = adds_floats(kernel), asks_for_finite(kernel)
    found = {}
    for param in arrays:
        if param.access == "out":
            continue
        # By name, so that an argument has the same data whatever else there is.
        own, shape, dtype = seed + zlib.crc32(param.name.encode()), padded(param), param.dtype
        if param.name in limits:
            found[param.name] = _places(shape, dtype, limits[param.name], own)
        elif careful and param.name in names and dtype.is_integer:
            # Counters begin at 0, and no loop has a negative length.
            made = np.abs(integers(shape, dtype, seed=own))
            found[param.name] = np.zeros_like(made) if param.name in counters else made
        elif kind is Contents.LIMITS and not (careful and param.name in names):
            found[param.name] = extremes(shape, dtype, seed=own, adds=adds, finite=finite)
        else:
            make = integers if kind is Contents.INTEGERS else reals
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
