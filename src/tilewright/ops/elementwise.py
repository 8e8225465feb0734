"""Elementwise formulas: a function of one tensor or of two with broadcast, and a copy.

A copy is ``dst = convert((src - zero point of src) * scale of src / scale of dst + zero point of
dst)``, and post-ops before the last scale. Without attributes integers are clipped, and pass
through no float.

Dims: ``d0``, ``d1`` and so on, those of ``dst``. Where a source has size 1 it is read at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, cast, const, select, var
from tilewright.ir.expr import binary as binary_expr
from tilewright.ir.stmt import Operand, Stmt, View
from tilewright.ops.domain import dim, operand
from tilewright.ops.elementwise_functions import apply_binary, apply_unary
from tilewright.ops.epilogue import Result, epilogue, factor_at
from tilewright.ops.op import Op
from tilewright.problems import BinaryProblem, EltwiseProblem, ReorderProblem, Shape
from tilewright.problems.activations import scaled
from tilewright.problems.elementwise import SELECT
from tilewright.problems.slopes import SLOPES


def eltwise(problem: EltwiseProblem, op: Op, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
    """``dst = function(src)``; backward the gradient times the derivative at ``src``."""
    if not op.direction.is_forward:
        yield from _gradient(problem, op, buffers)
        return
    a = operand("a", buffers["src"], _points(problem.shape))
    value = apply_unary(problem.function, cast(op.accumulator, a.var))
    yield epilogue("epilogue", (a,), value, _whole(op, buffers), op.attributes, buffers)


def _gradient(problem: EltwiseProblem, op: Op, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
    points, function = _points(problem.shape), problem.function
    a, back = operand("a", buffers["src"], points), operand("b", buffers["diff_dst"], points)
    s, g = (cast(op.accumulator, read.var) for read in (a, back))
    slope = SLOPES[function.function].build(s, function.alpha, function.beta)
    out = buffers["diff_src"]
    domain = tuple(dim(f"d{i}", size) for i, size in enumerate(out.shape))
    result = Result(domain, out, tuple(axis.var for axis in domain), op.kind)
    value = scaled(g * slope, function.scale)
    yield epilogue("epilogue", (a, back), value, result, op.attributes, buffers)


def binary(problem: BinaryProblem, op: Op, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
    """``dst = function(src0, src1)``, or one of these where ``src2`` says; scales (of ``src`` for
    src0) are applied to the sources."""
    sources = {"src": buffers["src0"], "src1": buffers["src1"]}
    views = {name: View(source, _points(source.shape)) for name, source in sources.items()}
    result = replace(_whole(op, buffers), inputs=views)
    operands: list[Operand] = []
    values: list[Expr] = []
    for name, view in views.items():
        element = operand("a" if name == "src" else "b", view.buffer, view.index)
        value = cast(op.accumulator, element.var)
        operands.append(element)
        scale = op.attributes.scale(name)
        if scale is not None:
            added, factor = factor_at(scale, value.type, result, buffers)
            operands.extend(added)
            value = value * factor
        values.append(value)
    rest = replace(
        op.attributes, scales=tuple(s for s in op.attributes.scales if s.tensor == "dst")
    )
    if problem.algorithm == SELECT:
        condition = operand("c", buffers["src2"], _points(buffers["src2"].shape))
        operands.append(condition)
        chosen = binary_expr("ne", condition.var, const(0, condition.var.type))
        value = select(chosen, *values)
    else:
        value = apply_binary(problem.algorithm, *values)
    yield epilogue("epilogue", operands, value, result, rest, buffers)


def copied(problem: ReorderProblem, op: Op, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
    """``dst = src``, converted."""
    target = _whole(op, buffers)
    result = replace(target, inputs={"src": View(buffers["src"], target.index)})
    a = operand("a", buffers["src"], result.index)
    operands = [a]
    value: Expr = a.var
    point = op.attributes.zero_point("src")
    if point is not None:
        # Wide enough that the difference of two small integers does not wrap.
        value = cast(op.accumulator, value)
        added, zero = factor_at(point, op.accumulator, result, buffers)
        operands.extend(added)
        value = value - zero
    yield epilogue("epilogue", operands, value, result, op.attributes, buffers)


def _points(shape: Shape) -> tuple[Expr, ...]:
    """The index of a tensor that is broadcast to the domain where it has size 1."""
    return tuple(const(0) if size == 1 else var(f"d{i}") for i, size in enumerate(shape))


def _whole(op: Op, buffers: Mapping[str, Buffer]) -> Result:
    """The result over every element of ``dst``."""
    out = buffers["dst"]
    domain = tuple(dim(f"d{i}", size) for i, size in enumerate(out.shape))
    return Result(domain, out, tuple(axis.var for axis in domain), op.kind)
