"""The meaning of a kernel, by the interpreter, and how far correct code may be from it.

Code may sum in another order, keep sums in higher precision, and call other functions than the
interpreter does. The bound on the difference is an estimate, not a theorem as for ops
(`testing.bounds`): for each statement, as many roundings of its type as it combines values in one
element, and some more for functions; relative to the size of the results, at least 1. Integers that
do not depend on floats have to be equal.
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

# Roundings besides those of sums: library functions are within a few units in the last place.
_UNITS = 32
# Assumed iterations of a loop whose extent is not constant.
_UNKNOWN = 256
# The interpreter takes about a second for 10^7 points.
_MOST_POINTS = 10**9
# Limit of iterations of a `while`: a longer one may not end at all.
MOST_REPEATS = 5_000


def memory_of(param: Param, dtype: DType | None = None) -> Buffer:
    """The whole array as a tensor, padding included; with ``dtype`` in place of its type."""
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
    """The accepted values of each result of ``kernel``, and whether anything was stored. ``arrays``
    are its arguments, of known shapes, ``contents`` their contents (padding included); ``exact``:
    these are integers. If the results in wider types are the right ones, ``wide`` is the kernel in
    wider types (`testing.widened`).

    Raises `InterpreterFault` for faults of the kernel, and `UnsupportedError` where a `while`
    repeats too often.
    """
    judge = wide or kernel
    types = {param.name: param.dtype for param in judge.arrays}
    wholes = {param.name: memory_of(param, types[param.name]) for param in arrays}
    memory: dict[str, Any] = {}
    for param in arrays:
        whole = wholes[param.name]
        if param.access == "out":
            raw = np.full(whole.layout.extent * whole.dtype.bytes, 0xFF, np.uint8)
            memory[param.name] = raw.view(whole.dtype.numpy)
        else:
            memory[param.name] = pack(whole, contents[param.name].astype(whole.dtype.numpy))
    stored = run(judge, {**numbers, **memory}, repeats=MOST_REPEATS)
    results = {
        param.name: unpack(wholes[param.name], memory[param.name])
        for param in arrays
        if param.access != "in"
    }
    return around(kernel, numbers, results, exact=exact), stored


def around(
    kernel: Kernel,
    numbers: Mapping[str, Scalar],
    results: Mapping[str, Any],
    *,
    exact: bool = False,
) -> dict[str, Accepted]:
    """The values that are accepted of each result of ``kernel`` where ``results`` are right."""
    bound = bind_scalars(kernel, numbers)
    roundings, truncated = _roundings(bound), _truncates(bound)
    return {
        param.name: _accepted(
            results[param.name], param.dtype, roundings, 0 if exact or not truncated else 1
        )
        for param in bound.arrays
        if param.access != "in"
    }


def _accepted(want: Any, dtype: DType, roundings: float, steps: int) -> Accepted:
    """``want`` within ``roundings`` relative to its size; integers within ``steps``."""
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
    """The sum of the roundings of all statements, relative to the size of their results."""
    total = 0.0
    for stmt, times in _repeated(kernel.body, 1):
        if isinstance(stmt, Store | Compute):
            total += sum(
                roundoff(buffer.dtype)
                * (_terms(stmt, buffer, times) + _UNITS * (buffer.dtype.is_float))
                for buffer in _written(stmt)
                if buffer.dtype.is_float
            )
        total += _UNITS * max(map(roundoff, _rounding_types(stmt)), default=0.0)
    return total


def _repeated(stmt: Stmt, times: int) -> Iterator[tuple[Stmt, int]]:
    """Each statement, and the number of times that it runs."""
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
    """The number of values that a statement combines in one element of its result."""
    points = times * math.prod(_count(extent) for extent in _extents(stmt))
    elements = math.prod(size if isinstance(size, int) else 1 for size in written.sizes)
    return max(1, points // max(1, elements))


def _extents(stmt: Stmt) -> tuple[Expr, ...]:
    return tuple(dim.extent for dim in stmt.dims) if isinstance(stmt, Compute) else ()


def _written(stmt: Store | Compute) -> list[Buffer]:
    if isinstance(stmt, Store):
        return [stmt.buffer]
    return [view.buffer for view in stmt.outputs]


def _rounding_types(stmt: Stmt) -> Iterator[DType]:
    """The float types in which the expressions of a statement compute."""
    for expr in direct_exprs(stmt):
        for node in walk(expr):
            if isinstance(node, Binary | Unary | Cast) and node.type.is_float:
                yield node.type


def _truncates(kernel: Kernel) -> bool:
    """Whether floats become integers: then a rounding error may change one by 1."""
    return any(
        isinstance(node, Cast) and not node.type.is_float and node.a.type.is_float
        for stmt in walk_stmts(kernel.body)
        for expr in direct_exprs(stmt)
        for node in walk(expr)
    )


def check_length(kernel: Kernel, numbers: Mapping[str, Scalar], most: int = _MOST_POINTS) -> None:
    """Raises `UnsupportedError` where the interpreter would take too long: of more than ``most``
    points."""
    points = sum(
        times * math.prod(_count(extent) for extent in _extents(stmt))
        for stmt, times in _repeated(bind_scalars(kernel, numbers).body, 1)
        if isinstance(stmt, Compute | Store)
    )
    if points > most:
        raise UnsupportedError(
            f"{points} points are too many to verify",
            where=f"kernel {kernel.name}",
            why=f"the interpreter computes the reference, and its limit is {most}",
            cure="set smaller sizes, such as --set n=64, or write a smaller kernel of its kind",
        )
