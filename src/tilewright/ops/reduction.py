"""Reduction of a tensor along some dims: sum, mean, maximum, minimum, product.

Dims: ``d0``, ``d1`` and so on, those of ``src``. Source: oneDNN's developer guide, "Reduction".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, cast, const, maximum, unary
from tilewright.ir.stmt import Allocate, Compute, Stmt, View
from tilewright.ops.domain import accumulator, dim, fill, operand
from tilewright.ops.epilogue import Result, epilogue, float_type
from tilewright.ops.op import Op, accumulator_of
from tilewright.problems import Direction, ReduceProblem
from tilewright.problems.functions import number, power

# The combiner, and what it begins with, by the accumulator's type.
_COMBINERS: dict[str, tuple[str, Callable[[DType], float]]] = {
    "sum": ("add", lambda _: 0),
    "mean": ("add", lambda _: 0),
    "mul": ("mul", lambda _: 1),
    "max": ("max", lambda type: type.lowest),
    "min": ("min", lambda type: type.highest),
}


def reduced(problem: ReduceProblem, op: Op, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
    """``src`` reduced to ``dst`` along the dims that are 1 there."""
    domain = [dim(f"d{i}", size) for i, size in enumerate(problem.src_shape)]
    summed = [domain[i] for i in problem.reduced_dims]
    kept = tuple(other for other in domain if other not in summed)
    acc = accumulator("acc", op.accumulator, kept)
    out = View(acc, tuple(other.var for other in kept))
    a = operand("a", buffers["src"], tuple(other.var for other in domain))
    body = cast(op.accumulator, a.var)
    if problem.is_norm:
        body = power(unary("abs", body), problem.p)
    combiner, neutral = _COMBINERS["sum" if problem.is_norm else problem.algorithm]
    yield Allocate(acc)
    yield fill("init", acc, kept, neutral(op.accumulator))
    yield Compute.single("main", (*kept, *summed), out, (a,), body, combiner)
    total = operand("acc", acc, out.index)
    value: Expr = total.var
    dst = buffers["dst"]
    if problem.algorithm == "mean":
        value = cast(float_type(op.accumulator, dst.dtype), value)
        count = prod(problem.src_shape[i] for i in problem.reduced_dims)
        value = value / number(count, value)
    if problem.is_norm:
        value = cast(float_type(op.accumulator, dst.dtype), value)
        least = number(problem.eps, value)
        value = maximum(value, least) if problem.algorithm.endswith("max") else value + least
        value = value if "power" in problem.algorithm else power(value, 1 / problem.p)
    index = tuple(const(0) if other in summed else other.var for other in domain)
    result = Result(kept, dst, index, driver="reduce", inputs={"src": a.view})
    yield epilogue("epilogue", (total,), value, result, op.attributes, buffers)


def reduce_accumulator(
    problem: ReduceProblem, types: Mapping[str, DType], direction: Direction
) -> DType:
    """Sums of integers are kept in s32, products and norms of them in f32, which does not wrap;
    floats that are narrower than f32 in that, of which no step rounds a maximum."""
    src = types["src"]
    if problem.algorithm == "mul" or problem.is_norm:
        return float_type(src)
    return src if problem.algorithm in ("max", "min") and src.is_integer else accumulator_of(src)
