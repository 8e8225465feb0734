"""The contents of arrays with which a kernel that is no op is verified.

Sizes are small, because the interpreter, which computes the reference, is slow. Arrays of places in
other arrays, such as the rows of a gather, hold valid places.
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
from tilewright.testing.data import exact_limit, integers, limit_values, reals
from tilewright.testing.influences import Decided, adds_floats, asks_for_finite, deciding, updated
from tilewright.testing.inputs import MAX_ELEMENTS


class Contents(Enum):
    """What arrays contain; the value is the name in reports."""

    INTEGERS = "integers"
    REALS = "reals"
    LIMITS = "limits"  # infinities, NaN, and numbers beyond narrower types


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
    ``careful``: numbers that places and lengths of loops depend on are small and not negative.

    Raises `UnsupportedError` if they are too large to verify.
    """
    total = sum(math.prod(padded(array)) for array in arrays)
    if total > MAX_ELEMENTS:
        raise UnsupportedError(
            f"{total} elements are too many to verify",
            why=f"the limit is {MAX_ELEMENTS}",
            cure="set smaller sizes, such as --set n=64, or write a smaller kernel of its kind",
        )
    limits = _limits(bind_scalars(kernel, numbers))
    sources = deciding(kernel, Decided.LENGTH, Decided.PLACE)
    names = {source.name for source in sources if isinstance(source, Buffer)}
    counters = {buffer.name for buffer in updated(kernel)} & names
    adds, finite = adds_floats(kernel), asks_for_finite(kernel)
    contents = {}
    for param in arrays:
        if param.access == "out":
            continue
        # By name, so that an argument's data do not depend on the other arguments.
        own_seed, shape, dtype = seed + zlib.crc32(param.name.encode()), padded(param), param.dtype
        if param.name in limits:
            contents[param.name] = _places(shape, dtype, limits[param.name], own_seed)
        elif careful and param.name in names and dtype.is_integer:
            # Counters begin at 0, and lengths of loops are not negative.
            values = np.abs(integers(shape, dtype, seed=own_seed))
            contents[param.name] = np.zeros_like(values) if param.name in counters else values
        elif kind is Contents.LIMITS and not (careful and param.name in names):
            contents[param.name] = limit_values(
                shape, dtype, seed=own_seed, adds=adds, finite=finite
            )
        else:
            make = integers if kind is Contents.INTEGERS else reals
            contents[param.name] = make(shape, dtype, seed=own_seed)
    return contents


def padded(param: Param) -> tuple[int, ...]:
    """The shape of an array with the padding of its layout."""
    return param.buffer.layout.padded_shape(len(param.buffer.sizes))


def _places(shape: tuple[int, ...], dtype: DType, below: int, seed: int) -> Any:
    """Numbers from 0 to ``below``, as far as the type allows; each once if there are enough."""
    generator = np.random.default_rng(seed)
    count = math.prod(shape)
    below = min(below, exact_limit(dtype) + 1)
    if count <= below:
        drawn = generator.permutation(below)[:count]
    else:
        drawn = generator.integers(0, max(1, below), count)
    return drawn.reshape(shape).astype(dtype.numpy)


def _limits(kernel: Kernel) -> dict[str, int]:
    """For each array whose elements stand in an index: the least size of a dim indexed by them."""
    limits: dict[str, int] = {}
    for source, size in _indexed(kernel.body):
        if isinstance(size, int):
            limits[source.name] = min(size, limits.get(source.name, size))
    return limits


def _indexed(body: Stmt) -> Iterator[tuple[Buffer, Size]]:
    """Each buffer that is loaded for an index, with the size of the indexed dim."""
    loaded: dict[Var, tuple[Buffer, ...]] = {}

    def sources(expr: Expr) -> tuple[Buffer, ...]:
        buffers = [node.buffer for node in walk(expr) if isinstance(node, Load)]
        return (*buffers, *(b for name in variables(expr) for b in loaded.get(name, ())))

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
