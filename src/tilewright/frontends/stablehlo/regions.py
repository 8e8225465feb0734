"""Regions as functions of single numbers: what reductions combine by, and sorts compare by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.errors import ProblemError, UnsupportedError
from tilewright.frontends.stablehlo.syntax import Operation, Region
from tilewright.frontends.stablehlo.translation import RETURNS, Translation
from tilewright.frontends.stablehlo.types import Complex, Element, Integer, part_count
from tilewright.frontends.stablehlo.values import Array, Number
from tilewright.ir.expr import Expr
from tilewright.tensor.reductions import Combine
from tilewright.tensor.tensor import Tensor

Function = Callable[[Sequence[Number]], list[Number]]

_NAMED = {
    "stablehlo.add": "add",
    "stablehlo.multiply": "mul",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
    "stablehlo.and": "and",
    "stablehlo.or": "or",
}
# Of truth values.
_LOGIC = {"add": "or", "mul": "and", "max": "or", "min": "and", "and": "and", "or": "or"}


def region_of(operation: Operation, number: int = 0, takes: int | None = None) -> Region:
    """A region of an operation, which takes so many values."""
    if len(operation.regions) <= number:
        raise ProblemError(
            f"{operation.name} has {len(operation.regions)} regions",
            where=operation.span,
            cure=f"write {number + 1}",
        )
    region = operation.regions[number]
    if takes is not None and len(region.arguments) != takes:
        raise ProblemError(
            f"the region of {operation.name} takes {len(region.arguments)} values, not {takes}",
            where=region.span,
            cure=f"write ^bb0(...) with {takes} arguments",
        )
    if not region.operations or region.operations[-1].name not in RETURNS:
        raise ProblemError(
            f"the region of {operation.name} returns nothing",
            where=region.span,
            cure="end it with stablehlo.return",
        )
    return region


def named_combiner(region: Region, element: Element) -> str | None:
    """The name of what a region of two values does, where reductions know one."""
    if len(region.operations) != 2 or len(region.arguments) != 2:
        return None
    step, back = region.operations
    names = {id(argument) for argument in region.arguments}
    plain = {id(operand) for operand in step.operands} == names and len(step.operands) == 2
    name = _NAMED.get(step.name)
    if name is None or not plain or [*back.operands] != [*step.results]:
        return None
    if isinstance(element, Complex):
        return name if name == "add" else None
    if isinstance(element, Integer):
        if element.bits == 1:
            return _LOGIC[name]
        if element.bits < 8 and name in ("add", "mul"):
            return None
    return name


def replaces(region: Region) -> bool:
    """Whether a region of two values gives the second one."""
    if len(region.operations) != 1 or len(region.arguments) != 2:
        return False
    return [*region.operations[0].operands] == [region.arguments[1]]


def function_of(translation: Translation, region: Region, elements: Sequence[Element]) -> Function:
    """``region`` as a function of numbers of ``elements``."""

    def run(numbers: Sequence[Number]) -> list[Number]:
        builder, outer = translation.builder, translation.scalar
        arrays = [
            Array(element, tuple(Tensor(builder, (), expr) for expr in number))
            for element, number in zip(elements, numbers, strict=True)
        ]
        translation.scalar = True
        try:
            with builder.nested() as emitted:
                results = translation.region(region, arrays)
        finally:
            translation.scalar = outer
        if emitted or not all(isinstance(result, Array) and result.rank == 0 for result in results):
            raise UnsupportedError(
                "this region is no expression of single numbers",
                where=region.span,
                why="it is computed for each element of a reduction, a sort or a scatter",
                cure="use elementwise operations in it",
            )
        return [result.number for result in results if isinstance(result, Array)]

    return run


def parts_of(arrays: Sequence[Array]) -> list[Tensor]:
    """The tensors of values, in order."""
    return [part for array in arrays for part in array.parts]


def grouped(values: Sequence[Expr], elements: Sequence[Element]) -> list[Number]:
    """Expressions as numbers of ``elements``."""
    rest = iter(values)
    return [tuple(next(rest) for _ in range(part_count(element))) for element in elements]


def arrays_of(tensors: Sequence[Tensor], elements: Sequence[Element]) -> list[Array]:
    """Tensors as values of ``elements``."""
    rest = iter(tensors)
    return [
        Array(element, tuple(next(rest) for _ in range(part_count(element))))
        for element in elements
    ]


def combiner_of(translation: Translation, region: Region, elements: Sequence[Element]) -> Combine:
    """``region``, which takes old and new values of ``elements``, as what reductions take."""
    function = function_of(translation, region, [*elements, *elements])

    def combine(old: Sequence[Expr], new: Sequence[Expr]) -> Sequence[Expr]:
        results = function([*grouped(old, elements), *grouped(new, elements)])
        return [part for result in results for part in result]

    return combine
