"""Reorder: a copy into another layout or element type, with scales and zero points.

``dst = convert((src - zero point of src) * scale of src / scale of dst + zero point of dst)``, and
post-ops before the last scale. Without attributes integers are clipped, and pass through no float.

Dims: ``d0``, ``d1`` and so on. Source: oneDNN's developer guide, "Reorder".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.dtypes import DType, f32
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, cast
from tilewright.ir.stmt import Stmt, View
from tilewright.ops.attribute_arguments import attribute_arguments
from tilewright.ops.attributes import Attributes
from tilewright.ops.domain import operand
from tilewright.ops.elementwise import whole
from tilewright.ops.epilogue import Result, epilogue, factor_at
from tilewright.ops.op import Argument, LayoutSpec, Op, Tensor, accumulator_of, check_types
from tilewright.problems import ReorderProblem


@dataclass(frozen=True, repr=False)
class Reorder(Op):
    """``dst = src``, converted."""

    problem: ReorderProblem

    kind: ClassVar[str] = "reorder"
    function_name: ClassVar[str] = "reorder"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """``src`` and ``dst``."""
        shape = self.problem.shape
        return (Tensor("src", shape, "in"), Tensor("dst", shape, self.attributes.result_access))

    def _attribute_arguments(self) -> tuple[Argument, ...]:
        src, dst = (self._argument(tensor) for tensor in self.tensors)
        return attribute_arguments(self.attributes, dst, {"src": src}, driver="reorder")

    def _statements(self, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
        target: Result = whole(buffers["dst"], "reorder")
        result = replace(target, inputs={"src": View(buffers["src"], target.index)})
        a = operand("a", buffers["src"], result.index)
        operands = [a]
        value: Expr = a.var
        point = self.attributes.zero_point("src")
        if point is not None:
            # Wide enough that the difference of two small integers does not wrap.
            value = cast(self.accumulator, value)
            added, zero = factor_at(point, self.accumulator, result, buffers)
            operands.extend(added)
            value = value - zero
        yield epilogue("epilogue", operands, value, result, self.attributes, buffers)


def reorder_op(
    problem: ReorderProblem,
    types: Mapping[str, DType] | DType = f32,
    layouts: Mapping[str, LayoutSpec] | None = None,
    attributes: Attributes | None = None,
) -> Reorder:
    """The copy ``problem``; ``types`` and ``layouts`` for ``src`` and ``dst``."""
    attributes = attributes if attributes is not None else Attributes()
    if isinstance(types, DType):
        types = dict.fromkeys(problem.shapes, types)
    check_types("reorder", types)
    if attributes.bias is not None:
        raise UnsupportedError("a reorder has no bias", cure="use a post-op, add")
    chosen = tuple((name, types[name]) for name in problem.shapes)
    acc = accumulator_of(types["src"])
    return Reorder(problem, chosen, acc, tuple((layouts or {}).items()), attributes)
