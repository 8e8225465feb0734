"""Reduction of a tensor along some dims: sum, mean, maximum, minimum, product.

Dims: ``d0``, ``d1`` and so on, those of ``src``. Source: oneDNN's developer guide, "Reduction".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tilewright.dtypes import DType, f32
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, cast, const
from tilewright.ir.stmt import Allocate, Compute, Stmt, View
from tilewright.ops.attribute_arguments import attribute_arguments
from tilewright.ops.attributes import Attributes, check_sources
from tilewright.ops.domain import accumulator, dim, fill, operand
from tilewright.ops.epilogue import Result, epilogue, float_type
from tilewright.ops.op import Argument, LayoutSpec, Op, Tensor, accumulator_of, check_types
from tilewright.problems import ReduceProblem
from tilewright.problems.functions import number

_COMBINERS = {
    "sum": "add",
    "mean": "add",
    "mul": "mul",
    "max": "max",
    "min": "min",
}


@dataclass(frozen=True, repr=False)
class Reduction(Op):
    """``src`` reduced to ``dst`` along the dims that are 1 there."""

    problem: ReduceProblem

    kind: ClassVar[str] = "reduce"
    function_name: ClassVar[str] = "reduce"
    shares_tags: ClassVar[bool] = True

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """``src`` and ``dst``."""
        problem = self.problem
        return (
            Tensor("src", problem.src_shape, "in"),
            Tensor("dst", problem.dst_shape, self.attributes.result_access),
        )

    def _settings(self) -> tuple[str, ...]:
        algorithm = self.problem.algorithm
        return () if algorithm == "sum" else (f"algorithm={algorithm!r}",)

    def _attribute_arguments(self) -> tuple[Argument, ...]:
        src, dst = (self._argument(tensor) for tensor in self.tensors)
        return attribute_arguments(self.attributes, dst, {"src": src}, driver="reduce")

    def _statements(self, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
        problem = self.problem
        domain = [dim(f"d{i}", size) for i, size in enumerate(problem.src_shape)]
        reduced = [domain[i] for i in problem.reduced_dims]
        kept = tuple(each for each in domain if each not in reduced)
        acc = accumulator("acc", self.accumulator, kept)
        out = View(acc, tuple(each.var for each in kept))
        a = operand("a", buffers["src"], tuple(each.var for each in domain))
        body = cast(self.accumulator, a.var)
        yield Allocate(acc)
        yield fill("init", acc, kept, self._neutral)
        combiner = _COMBINERS[problem.algorithm]
        yield Compute.single("main", (*kept, *reduced), out, (a,), body, combiner)
        total = operand("acc", acc, out.index)
        value: Expr = total.var
        dst = buffers["dst"]
        if problem.algorithm == "mean":
            value = cast(float_type(self.accumulator, dst.dtype), value)
            count = prod(problem.src_shape[i] for i in problem.reduced_dims)
            value = value / number(count, value)
        index = tuple(const(0) if each in reduced else each.var for each in domain)
        result = Result(kept, dst, index, driver="reduce", inputs={"src": a.view})
        yield epilogue("epilogue", (total,), value, result, self.attributes, buffers)

    @property
    def _neutral(self) -> float:
        match self.problem.algorithm:
            case "max":
                return self.accumulator.lowest
            case "min":
                return self.accumulator.highest
            case "mul":
                return 1
            case _:
                return 0


def reduction_op(
    problem: ReduceProblem,
    types: Mapping[str, DType] | DType = f32,
    layouts: Mapping[str, LayoutSpec] | None = None,
    attributes: Attributes | None = None,
) -> Reduction:
    """The reduction ``problem``; ``types`` for ``src`` and ``dst``.

    Sums of integers are kept in s32, products of integers in f32, which does not wrap; floats that
    are narrower than f32 in that, of which no step rounds a maximum.
    """
    attributes = attributes if attributes is not None else Attributes()
    if isinstance(types, DType):
        types = dict.fromkeys(problem.shapes, types)
    check_types("reduce", types)
    if attributes.bias is not None:
        raise UnsupportedError("a reduction has no bias", cure="use a post-op, add")
    algorithm = problem.algorithm
    linear, ordered = algorithm in ("sum", "mean"), algorithm in ("max", "min")
    scaled = "always" if linear else "positive" if ordered else "never"
    check_sources(f"reduce {algorithm}", attributes, scaled)
    src = types["src"]
    if algorithm == "mul":
        acc = float_type(src)
    else:
        acc = src if ordered and src.is_integer else accumulator_of(src)
    chosen = tuple((name, types[name]) for name in problem.shapes)
    given = tuple((layouts or {}).items())
    return Reduction(problem, chosen, acc, given, attributes)
