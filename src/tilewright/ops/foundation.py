"""Ops without products: pooling, reductions, functions of elements, copies. Each is a formula of
its driver, and an epilogue.

Source: oneDNN's developer guide, "Pooling", "Reduction", "Eltwise", "Binary" and "Reorder".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.dtypes import DType, f32, s8
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Stmt
from tilewright.layout.tags import ANY
from tilewright.ops.attribute_arguments import attribute_arguments
from tilewright.ops.attributes import Attributes, check_sources
from tilewright.ops.elementwise import binary, copied, eltwise
from tilewright.ops.epilogue import float_type
from tilewright.ops.op import Argument, LayoutSpec, Op, Tensor, accumulator_of, check_types
from tilewright.ops.pooling import pool_accumulator, pooled
from tilewright.ops.reduction import reduce_accumulator, reduced
from tilewright.problems import (
    BinaryProblem,
    Direction,
    EltwiseProblem,
    Problem,
    ReduceProblem,
)
from tilewright.problems.reduce import NORMS

# When scales of a source may be applied to what a reduction gives (see `check_sources`).
_SCALED = {"max": "positive", "min": "positive", "mul": "never", **dict.fromkeys(NORMS, "never")}


@dataclass(frozen=True)
class Formula:
    """The computes of an op, the type that it computes in, by the types of its tensors, and when
    scales of its sources are factors of what they give; None: the computes apply them."""

    statements: Callable[[Any, Op, Mapping[str, Buffer]], Iterable[Stmt]]
    accumulator: Callable[[Any, Mapping[str, DType], Direction], DType]
    scaled: Callable[[Problem], str] | None = None


def _common(_: Problem, types: Mapping[str, DType], __: Direction) -> DType:
    return float_type(*types.values())


FORMULAS = {
    "pool": Formula(pooled, pool_accumulator, lambda p: _SCALED.get(p.algorithm, "always")),
    "reduce": Formula(reduced, reduce_accumulator, lambda p: _SCALED.get(p.algorithm, "always")),
    "eltwise": Formula(eltwise, _common, lambda _: "never"),
    "binary": Formula(binary, _common, lambda _: "always"),
    "reorder": Formula(copied, lambda _, types, __: accumulator_of(types["src"])),
}


@dataclass(frozen=True, repr=False)
class FoundationOp(Op):
    """What the formula of its driver says."""

    @property
    def function_name(self) -> str:
        return "elementwise" if self.kind in ("eltwise", "binary") else self.kind

    @property
    def shares_tags(self) -> bool:
        return self.kind != "reorder"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those of the problem; a gradient of the result comes first."""
        axes = getattr(self.problem, "spatial_names", None)
        letters = None if axes is None else "nc" + "".join(axes)
        if self._is_slope:
            shape = self.problem.shapes["src"]
            names = (("src", "in"), ("diff_dst", "in"), ("diff_src", "out"))
            return tuple(Tensor(name, shape, access) for name, access in names)
        shapes = list(self.problem.shapes.items())
        *sources, target = shapes if self.direction.is_forward else reversed(shapes)
        return (
            *(Tensor(name, shape, "in", letters) for name, shape in sources),
            Tensor(*target, self.attributes.result_access, letters),
        )

    @property
    def _is_slope(self) -> bool:
        """Whether it is the gradient of a function, which takes what that took, too."""
        return self.kind == "eltwise" and not self.direction.is_forward

    def _call(self) -> str | None:
        problem = self.problem
        if self._is_slope:
            return None
        if isinstance(problem, EltwiseProblem) and problem.function.scale != 1:
            return None  # a factor of its function, which no call says
        return super()._call()

    def _settings(self) -> tuple[str, ...]:
        problem = self.problem
        if isinstance(problem, EltwiseProblem):
            function = problem.function
            numbers = (function.alpha, function.beta) if function.beta else (function.alpha,)
            return (repr(function.function), *(map(repr, numbers) if any(numbers) else ()))
        if isinstance(problem, BinaryProblem):
            return (repr(problem.algorithm),)
        usual = problem.algorithm in ("", *problem.algorithms[:1])
        words: tuple[str, ...] = () if usual else (f"algorithm={problem.algorithm!r}",)
        if isinstance(problem, ReduceProblem) and problem.is_norm:
            words += (f"p={problem.p!r}", f"eps={problem.eps!r}")
        return words

    def _said_layouts(self) -> dict[str, LayoutSpec]:
        if self.kind != "binary":
            return super()._said_layouts()
        layouts = dict(self.layouts)
        if isinstance(layouts.get("src0", layouts.get("dst")), str):
            layouts = {"src0": ANY, "dst": ANY, **layouts}
        return {_source(name): layout for name, layout in layouts.items()}

    def _attribute_arguments(self) -> tuple[Argument, ...]:
        *sources, target = (self._argument(tensor) for tensor in self.tensors)
        inputs = {_source(source.name) if len(sources) > 1 else "src": source for source in sources}
        inputs.pop("src2", None)
        return attribute_arguments(self.attributes, target, inputs, driver=self.kind)

    def _statements(self, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
        return FORMULAS[self.kind].statements(self.problem, self, buffers)


def foundation_op(
    problem: Problem,
    direction: Direction = Direction.FWD_D,
    types: Mapping[str, DType] | DType = f32,
    layouts: Mapping[str, LayoutSpec] | None = None,
    attributes: Attributes | None = None,
) -> FoundationOp:
    """The op of ``problem``; ``types`` and ``layouts`` by tensor.

    Raises `UnsupportedError` for a direction, types and attributes that the driver does not take,
    and `LayoutError`.
    """
    driver = problem.driver
    attributes = attributes if attributes is not None else Attributes()
    if isinstance(types, DType):
        types = dict.fromkeys(problem.shapes, types)
    check_types(driver, types)
    problem.check_direction(direction)
    if attributes.bias is not None:
        raise UnsupportedError(f"{driver} has no bias", cure="use a post-op, add with per_oc")
    formula = FORMULAS[driver]
    if formula.scaled is not None:
        check_sources(f"{driver} {problem.algorithm}", attributes, formula.scaled(problem))
    accumulator = formula.accumulator(problem, types, direction)
    # A condition is of 8 bits.
    chosen = tuple((name, types.get(name, s8)) for name in problem.shapes)
    values = tuple((layouts or {}).items())
    if driver == "eltwise" and not direction.is_forward:
        if attributes != Attributes():
            raise UnsupportedError(
                "the gradient of eltwise takes no attributes", cure="make them an op of their own"
            )
        held = {"diff_dst": "dst", "diff_src": "src"}
        chosen += tuple((name, types[role]) for name, role in held.items())
        placed = dict(values)
        values = tuple((n, placed[r]) for n, r in {"src": "src", **held}.items() if r in placed)
    return FoundationOp(problem, chosen, accumulator, values, attributes, direction)


def _source(name: str) -> str:
    """What scales and calls name a tensor: the first source is ``src``."""
    return "src" if name == "src0" else name
