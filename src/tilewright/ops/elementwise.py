"""Elementwise ops: a function of one tensor, or of two with broadcast. There is only an epilogue.

Dims: ``d0``, ``d1`` and so on, those of ``dst``. Where a source has size 1 it is read at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.dtypes import DType, f32
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, cast, const, var
from tilewright.ir.stmt import Operand, Stmt, View
from tilewright.layout.tags import ANY
from tilewright.ops.attribute_arguments import attribute_arguments
from tilewright.ops.attributes import Attributes, check_sources
from tilewright.ops.domain import dim, operand
from tilewright.ops.elementwise_functions import apply_binary, apply_unary
from tilewright.ops.epilogue import Result, epilogue, factor_at, float_type
from tilewright.ops.op import Argument, LayoutSpec, Op, Tensor, check_types
from tilewright.problems import BinaryProblem, EltwiseProblem, Shape


@dataclass(frozen=True, repr=False)
class Eltwise(Op):
    """``dst = function(src)``."""

    problem: EltwiseProblem

    kind: ClassVar[str] = "eltwise"
    function_name: ClassVar[str] = "elementwise"
    shares_tags: ClassVar[bool] = True

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """``src`` and ``dst``."""
        shape = self.problem.shape
        return (Tensor("src", shape, "in"), Tensor("dst", shape, self.attributes.result_access))

    def _call(self) -> str | None:
        # A factor of its function is none that a call says.
        return super()._call() if self.problem.function.scale == 1 else None

    def _settings(self) -> tuple[str, ...]:
        function = self.problem.function
        numbers = (function.alpha, function.beta) if function.beta else (function.alpha,)
        return (repr(function.function), *(map(repr, numbers) if any(numbers) else ()))

    def _attribute_arguments(self) -> tuple[Argument, ...]:
        _, dst = (self._argument(tensor) for tensor in self.tensors)
        return attribute_arguments(self.attributes, dst, {}, driver="eltwise")

    def _statements(self, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
        a = operand("a", buffers["src"], points(self.problem.shape))
        value = apply_unary(self.problem.function, cast(self.accumulator, a.var))
        result = whole(buffers["dst"], "eltwise")
        yield epilogue("epilogue", (a,), value, result, self.attributes, buffers)


@dataclass(frozen=True, repr=False)
class BinaryOp(Op):
    """``dst = function(src0, src1)``; scales (of ``src`` for src0) are applied to the sources."""

    problem: BinaryProblem

    kind: ClassVar[str] = "binary"
    function_name: ClassVar[str] = "elementwise"
    shares_tags: ClassVar[bool] = True

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """``src0``, ``src1`` and ``dst``."""
        accesses = ("in", "in", self.attributes.result_access)
        return tuple(
            Tensor(name, shape, access)
            for (name, shape), access in zip(self.problem.shapes.items(), accesses, strict=True)
        )

    def _settings(self) -> tuple[str, ...]:
        return (repr(self.problem.algorithm),)

    def _said_layouts(self) -> dict[str, LayoutSpec]:
        found = dict(self.layouts)
        if isinstance(found.get("src0", found.get("dst")), str):
            found = {"src0": ANY, "dst": ANY, **found}
        return {"src" if name == "src0" else name: each for name, each in found.items()}

    def _attribute_arguments(self) -> tuple[Argument, ...]:
        src0, src1, dst = (self._argument(tensor) for tensor in self.tensors)
        inputs = {"src": src0, "src1": src1}
        return attribute_arguments(self.attributes, dst, inputs, driver="binary")

    def _statements(self, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
        result = whole(buffers["dst"], "binary")
        sources = {"src": buffers["src0"], "src1": buffers["src1"]}
        views = {name: View(source, points(source.shape)) for name, source in sources.items()}
        result = replace(result, inputs=views)
        operands: list[Operand] = []
        values: list[Expr] = []
        for name, view in views.items():
            element = operand("a" if name == "src" else "b", view.buffer, view.index)
            value = cast(self.accumulator, element.var)
            operands.append(element)
            scale = self.attributes.scale(name)
            if scale is not None:
                added, factor = factor_at(scale, value.type, result, buffers)
                operands.extend(added)
                value = value * factor
            values.append(value)
        rest = replace(
            self.attributes, scales=tuple(s for s in self.attributes.scales if s.tensor == "dst")
        )
        value = apply_binary(self.problem.algorithm, *values)
        yield epilogue("epilogue", operands, value, result, rest, buffers)


def eltwise_op(
    problem: EltwiseProblem,
    types: Mapping[str, DType] | DType = f32,
    layouts: Mapping[str, LayoutSpec] | None = None,
    attributes: Attributes | None = None,
) -> Eltwise:
    """A function of every element; ``types`` for ``src`` and ``dst``."""
    chosen, given, attributes = _given("eltwise", problem.shapes, types, layouts, attributes)
    acc = float_type(*(type_ for _, type_ in chosen))
    return Eltwise(problem, chosen, acc, given, attributes)


def binary_op(
    problem: BinaryProblem,
    types: Mapping[str, DType] | DType = f32,
    layouts: Mapping[str, LayoutSpec] | None = None,
    attributes: Attributes | None = None,
) -> BinaryOp:
    """A function of two tensors; ``types`` by their names."""
    chosen, given, attributes = _given("binary", problem.shapes, types, layouts, attributes)
    check_sources("binary", attributes, "always")
    acc = float_type(*(type_ for _, type_ in chosen))
    return BinaryOp(problem, chosen, acc, given, attributes)


def points(shape: Shape) -> tuple[Expr, ...]:
    """The index of a tensor that is broadcast to the domain where it has size 1."""
    return tuple(const(0) if size == 1 else var(f"d{i}") for i, size in enumerate(shape))


def whole(out: Buffer, driver: str) -> Result:
    """The result over every element of ``out``."""
    domain = tuple(dim(f"d{i}", size) for i, size in enumerate(out.shape))
    return Result(domain, out, tuple(each.var for each in domain), driver)


def _given(
    kind: str,
    shapes: Mapping[str, Shape],
    types: Mapping[str, DType] | DType,
    layouts: Mapping[str, LayoutSpec] | None,
    attributes: Attributes | None,
) -> tuple[tuple[tuple[str, DType], ...], tuple[tuple[str, LayoutSpec], ...], Attributes]:
    """What all constructors here are given, in the form that ops hold."""
    attributes = attributes if attributes is not None else Attributes()
    if isinstance(types, DType):
        types = dict.fromkeys(shapes, types)
    check_types(kind, types)
    if attributes.bias is not None:
        raise UnsupportedError(f"{kind} has no bias", cure="use a post-op, add with per_oc")
    chosen = tuple((name, types[name]) for name in shapes)
    return chosen, tuple((layouts or {}).items()), attributes
