"""What a kernel means, by the interpreter, and how far correct code may be from that.

Code may add up in another order, keep sums in higher precision, and call other functions than the
interpreter does. The bound on what comes of it is an estimate, not a theorem as those of ops
(`testing.bounds`) are: of each statement, as many roundings of its type as it combines values in
one element, and some more for functions; relative to the size of the results, at least 1. Integers
that no float goes into have none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.interpret import pack, run, unpack
from tilewright.ir.arguments import Scalar
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.expr import Binary, Cast, Const, Expr, Unary
from tilewright.ir.stmt import Compute, For, Kernel, Param, Stmt, Store, While
from tilewright.ir.symbols import bind_scalars
from tilewright.ir.visit import direct_exprs, nested, walk, walk_stmts
from tilewright.testing.approximate import Accepted
from tilewright.testing.bounds import roundoff
from tilewright.testing.kernel_data import padded

# Roundings of what is no sum: library functions are within a few units in the last place.
_UNITS = 32
# How often a loop runs of which nothing is known before it does.
_UNKNOWN = 256
# The interpreter takes about a second for 10^7 points.
_MOST_POINTS = 10**9
# Of a loop that repeats so often nobody knows whether it ends at all.
MOST_REPEATS = 5_000


def memory_of(param: Param, dtype: DType | None = None) -> Buffer:
    """All that an array's layout holds as a tensor, padding included; of another ``dtype``."""
    return buffer(param.name, dtype or param.dtype, padded(param), param.buffer.layout)


def meaning(
    kernel: Kernel,
    arrays: Sequence[Param],
    numbers: Mapping[str, Scalar],
    contents: Mapping[str, Any],
    *,
    exact: bool,
    wide: Kernel | None = None,
) -> tuple[dict[str, Accepted], bool]:
    """What each result of ``kernel`` may be, and whether anything was stored. ``arrays`` are its
    arguments, of known shapes, ``contents`` what they hold (padding included), ``exact``: integers.
    ``wide`` is the same in wider types (`testing.widened`), where those are to say what is right.

    Raises `InterpreterFault` for what the kernel does wrong, and `UnsupportedError` where a `while`
    repeats too often.
    """
    known = bind_scalars(kernel, numbers)
    judge = wide or kernel
    types = {each.name: each.dtype for each in judge.arrays}
    wholes = {each.name: memory_of(each, types[each.name]) for each in arrays}
    memory: dict[str, Any] = {}
    for param in arrays:
        whole = wholes[param.name]
        if param.access == "out":
            raw = np.full(whole.layout.extent * whole.dtype.bytes, 0xFF, np.uint8)
            memory[param.name] = raw.view(whole.dtype.numpy)
        else:
            memory[param.name] = pack(whole, contents[param.name].astype(whole.dtype.numpy))
    stored = run(judge, {**numbers, **memory}, repeats=MOST_REPEATS)
    roundings, truncated = _roundings(known), _truncates(known)
    accepted = {
        param.name: _accepted(
            unpack(wholes[param.name], memory[param.name]),
            param.dtype,
            roundings,
            steps=0 if exact or not truncated else 1,
        )
        for param in arrays
        if param.access != "in"
    }
    return accepted, stored


def _accepted(want: Any, dtype: DType, roundings: float, steps: int) -> Accepted:
    """``want`` within ``roundings`` relative to its size; integers within so many ``steps``."""
    if not dtype.is_float:
        if steps == 0:
            return Accepted(want, want, want)
        wide = want.astype(np.float64)
        return Accepted(wide, wide - steps, wide + steps)
    wide = want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        sizes = np.abs(wide[np.isfinite(wide) & (wide != 0)])
        typical = max(1.0, float(np.median(sizes)) if sizes.size else 0.0)
        tolerance = (roundings + _UNITS * roundoff(dtype)) * (np.abs(wide) + typical)
        tolerance = np.where(np.isfinite(wide), tolerance, 0.0)
        return Accepted(wide, wide - tolerance, wide + tolerance)


def _roundings(kernel: Kernel) -> float:
    """The sum of the roundings of all statements, relative to the size of what they compute."""
    total = 0.0
    for stmt, times in _repeated(kernel.body, 1):
        if isinstance(stmt, Store | Compute):
            total += sum(
                roundoff(each.dtype) * (_terms(stmt, each, times) + _UNITS * (each.dtype.is_float))
                for each in _written(stmt)
                if each.dtype.is_float
            )
        total += _UNITS * max(map(roundoff, _rounding_types(stmt)), default=0.0)
    return total


def _repeated(stmt: Stmt, times: int) -> Iterator[tuple[Stmt, int]]:
    """Each statement, and how often it runs."""
    yield stmt, times
    inner = times
    if isinstance(stmt, For):
        inner *= _count(stmt.extent)
    elif isinstance(stmt, While):
        inner *= _UNKNOWN
    for part in nested(stmt):
        yield from _repeated(part, inner)


def _count(extent: Expr) -> int:
    return int(extent.value) if isinstance(extent, Const) else _UNKNOWN


def _terms(stmt: Stmt, written: Buffer, times: int) -> int:
    """How many values a statement combines in one element of what it writes."""
    points = times * math.prod(_count(each) for each in _extents(stmt))
    elements = math.prod(size if isinstance(size, int) else 1 for size in written.sizes)
    return max(1, points // max(1, elements))


def _extents(stmt: Stmt) -> tuple[Expr, ...]:
    return tuple(dim.extent for dim in stmt.dims) if isinstance(stmt, Compute) else ()


def _written(stmt: Store | Compute) -> list[Buffer]:
    if isinstance(stmt, Store):
        return [stmt.buffer]
    return [view.buffer for view in stmt.outputs]


def _rounding_types(stmt: Stmt) -> Iterator[DType]:
    """The floats in which the expressions of a statement compute."""
    for expr in direct_exprs(stmt):
        for node in walk(expr):
            if isinstance(node, Binary | Unary | Cast) and node.type.is_float:
                yield node.type


def _truncates(kernel: Kernel) -> bool:
    """Whether floats become integers: a rounding error may move one by a step then."""
    return any(
        isinstance(node, Cast) and not node.type.is_float and node.a.type.is_float
        for stmt in walk_stmts(kernel.body)
        for expr in direct_exprs(stmt)
        for node in walk(expr)
    )


def check_length(kernel: Kernel, numbers: Mapping[str, Scalar]) -> None:
    """Raises `UnsupportedError` where the interpreter would take too long."""
    points = sum(
        times * math.prod(_count(each) for each in _extents(stmt))
        for stmt, times in _repeated(bind_scalars(kernel, numbers).body, 1)
        if isinstance(stmt, Compute | Store)
    )
    if points > _MOST_POINTS:
        raise UnsupportedError(
            f"{points} points are too many to verify",
            where=f"kernel {kernel.name}",
            why=f"the interpreter says what is right, and the limit is {_MOST_POINTS}",
            cure="set smaller sizes, such as --set n=64, or write a smaller kernel of its kind",
        )
