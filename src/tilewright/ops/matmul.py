"""Matrix multiplication, batched: a contraction without sliding windows.

Dims: ``b0``, ``b1`` and so on for the batch, ``m``, ``n``, ``k``. A batch dim that one operand
broadcasts is read at 0 there. Transposition is a layout: ``ba`` for a transposed matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.dtypes import DType, f32, f64
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, const, var
from tilewright.ir.stmt import Dim, Stmt, View
from tilewright.layout.tags import CANONICAL
from tilewright.ops.attribute_arguments import attribute_arguments
from tilewright.ops.attributes import Attributes
from tilewright.ops.contraction import Contraction, contract
from tilewright.ops.domain import dim
from tilewright.ops.epilogue import Result
from tilewright.ops.group_factors import (
    as_held,
    check_groups,
    dequantized,
    has_groups,
    with_groups,
    without,
)
from tilewright.ops.op import (
    Argument,
    LayoutSpec,
    Op,
    Tensor,
    accumulator_words,
    check_types,
    chosen_accumulator,
)
from tilewright.problems import Direction, MatmulProblem, Shape


@dataclass(frozen=True, repr=False)
class Matmul(Op):
    """``dst = epilogue(src * weights)``; a bias varies along n.

    Scales and zero points for groups of K: see `ops.group_factors`.
    """

    problem: MatmulProblem

    function_name: ClassVar[str] = "matmul"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """``src``, ``weights``, ``dst``."""
        accesses = ("in", "in", self.attributes.result_access)
        shapes = dict(self.problem.shapes)
        if has_groups(self.attributes):
            shapes["weights"], _ = as_held(shapes["weights"], self.dtype_of("weights"))
        return tuple(
            Tensor(name, shape, access, CANONICAL[: len(shape)])
            for (name, shape), access in zip(shapes.items(), accesses, strict=True)
        )

    def _settings(self) -> tuple[str, ...]:
        return accumulator_words(self.accumulator, self.dtype_of("src"), self.dtype_of("weights"))

    def _argument(self, tensor: Tensor) -> Argument:
        argument = super()._argument(tensor)
        if tensor.name != "weights" or not has_groups(self.attributes):
            return argument
        return replace(argument, dtype=as_held(argument.shape, argument.dtype)[1])

    @property
    def _channel(self) -> int:
        return len(self.problem.dst_shape) - 1

    def _attribute_arguments(self) -> tuple[Argument, ...]:
        src, weights, dst = (self._argument(tensor) for tensor in self.tensors)
        weights = replace(weights, shape=self.problem.weights_shape, dtype=self.dtype_of("weights"))
        return attribute_arguments(
            self.attributes,
            dst,
            {"src": src, "weights": weights},
            driver="matmul",
            channel=self._channel,
        )

    def _statements(self, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
        problem, attributes = self.problem, self.attributes
        factors = {name: buffers[name] for name in ("src", "weights")}
        for name in with_groups(attributes):
            held = self.dtype_of(name)
            values = dequantized(
                name, problem.shapes[name], held, self.accumulator, attributes, buffers
            )
            yield from values.statements
            factors[name], attributes = values.buffer, without(attributes, name)
        views = Contraction(
            a=View(factors["src"], _index(problem.batch_src, ("m", "k"))),
            b=View(factors["weights"], _index(problem.batch_wei, ("k", "n"))),
            c=View(buffers["dst"], tuple(dst_dim.var for dst_dim in _dst_dims(problem))),
            kept=_dst_dims(problem),
            reduced=(dim("k", problem.k),),
        )
        result = Result(
            views.kept,
            views.c.buffer,
            views.c.index,
            driver="matmul",
            channel=self._channel,
            inputs={"src": views.a, "weights": views.b},
        )
        yield from contract(views, self.accumulator, result, attributes, buffers)


def matmul_op(
    problem: MatmulProblem,
    types: Mapping[str, DType] | DType = f32,
    layouts: Mapping[str, LayoutSpec] | None = None,
    attributes: Attributes | None = None,
    accumulator: DType | None = None,
    bias: bool = False,
) -> Matmul:
    """The matmul ``problem``; arguments as of `convolution.convolution_op`.

    ``bias`` asks for a bias of the type ``types["bias"]`` (f32 unless given), unless ``attributes``
    have one.
    """
    attributes = attributes if attributes is not None else Attributes()
    if isinstance(types, DType):
        types = dict.fromkeys(problem.shapes, types)
    check_types("matmul", types)
    acc = chosen_accumulator(accumulator, types["src"], types["weights"])
    if bias and attributes.bias is None:
        attributes = replace(attributes, bias=types.get("bias", f64 if acc is f64 else f32))
    if with_groups(attributes):
        if accumulator is None and not acc.is_float:
            acc = f32
        check_groups(problem, types, attributes, acc)
    chosen = tuple((name, types[name]) for name in problem.shapes)
    direction = Direction.FWD_D if attributes.bias is None else Direction.FWD_B
    return Matmul(problem, chosen, acc, tuple((layouts or {}).items()), attributes, direction)


def _dst_dims(problem: MatmulProblem) -> tuple[Dim, ...]:
    batch = tuple(dim(f"b{i}", size) for i, size in enumerate(problem.batch))
    return (*batch, dim("m", problem.m), dim("n", problem.n))


def _index(batch: Shape, matrix: tuple[str, str]) -> tuple[Expr, ...]:
    leading = [const(0) if size == 1 else var(f"b{i}") for i, size in enumerate(batch)]
    return (*leading, *(var(name) for name in matrix))
