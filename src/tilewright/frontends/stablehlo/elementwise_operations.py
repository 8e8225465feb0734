"""Operations element by element: of whole tensors, and of single numbers in regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.errors import ProblemError, UnsupportedError
from tilewright.frontends.stablehlo import known
from tilewright.frontends.stablehlo.complex_numbers import COMPLEX
from tilewright.frontends.stablehlo.real_numbers import (
    BOOLEANS,
    DIRECTIONS,
    FLOATS,
    INTEGERS,
    compared,
    total_order,
    with_precision,
    wrapped,
)
from tilewright.frontends.stablehlo.regions import grouped, parts_of
from tilewright.frontends.stablehlo.syntax import Operation
from tilewright.frontends.stablehlo.translation import (
    Translation,
    arrays,
    computed,
    integer,
    integers,
    result_tensor,
    word,
    wrong,
)
from tilewright.frontends.stablehlo.types import (
    Complex,
    Element,
    Float,
    Integer,
    computed_type,
    part_count,
)
from tilewright.frontends.stablehlo.values import Array, Number, Value
from tilewright.ir.expr import Expr, binary, cast, const
from tilewright.ir.expr import select as choose
from tilewright.problems.complex_functions import magnitude, wide
from tilewright.tensor import views
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Tensor


@dataclass(frozen=True)
class Application:
    """An operation on ``numbers`` of ``elements``, which gives one of ``result``."""

    operation: Operation
    elements: Sequence[Element]
    result: Element
    numbers: Sequence[Number]


# How an operation computes one number.
Compute = Callable[[Application], Number]


def compute(
    operation: Operation,
    elements: Sequence[Element],
    result: Element,
    numbers: Sequence[Number],
) -> Number:
    """The number that ``operation`` gives of numbers of ``elements``, as one of ``result``."""
    name = operation.name.partition(".")[2]
    on = Application(operation, elements, result, numbers)
    special = _OWN.get(name)
    exprs = special(on) if special else _function(name, on)
    target = computed_type(result)
    assert target is not None
    exprs = tuple(cast(target, expr) if expr.type is not target else expr for expr in exprs)
    if isinstance(result, Integer) and result.bits in (2, 4):
        exprs = tuple(wrapped(expr, result.bits) for expr in exprs)
    if len(exprs) != part_count(result):
        raise ProblemError(
            f"{operation.name} of {elements[0]} does not give {result}",
            where=operation.span,
            cure="correct the types",
        )
    return exprs


def _function(name: str, on: Application) -> Number:
    first, numbers = on.elements[0], on.numbers
    if name == "select":
        chosen = zip(numbers[1], numbers[2], strict=True)
        return tuple(choose(numbers[0][0], a, b) for a, b in chosen)
    if isinstance(first, Complex):
        if name == "abs":
            return (magnitude(wide(numbers[0])),)
        function = COMPLEX.get(name)
        if function is not None:
            return function(*map(wide, numbers))
    else:
        table = FLOATS if isinstance(first, Float) else INTEGERS
        table = BOOLEANS if first == Integer(1) else table
        real = table.get(name)
        if real is not None:
            return (real(*(number[0] for number in numbers)),)
    raise UnsupportedError(
        f"{on.operation.name} is not defined on {first}",
        where=on.operation.span,
        cure="convert the operands to a type on which it is",
    )


def _convert(on: Application) -> Number:
    target = computed_type(on.result)
    assert target is not None
    number = on.numbers[0]
    if not isinstance(on.result, Complex):
        return (cast(target, number[0]),)
    if isinstance(on.elements[0], Complex):
        return number
    return cast(target, number[0]), const(0.0, target)


def _compare(on: Application) -> Number:
    direction = word(on.operation, "comparison_direction", DIRECTIONS)
    kind = word(
        on.operation, "compare_type", ("", "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")
    )
    a, b = on.numbers
    if isinstance(on.elements[0], Complex):
        if direction not in ("EQ", "NE"):
            raise UnsupportedError(
                f"complex numbers have no order {direction}",
                where=on.operation.span,
                cure="compare their parts, or their absolute values",
            )
        same = binary("eq", a[0], b[0]) & binary("eq", a[1], b[1])
        return (same if direction == "EQ" else ~same,)
    if kind == "TOTALORDER" and isinstance(on.elements[0], Float):
        return (compared(direction, total_order(a[0]), total_order(b[0])),)
    return (compared(direction, a[0], b[0]),)


def _complex(on: Application) -> Number:
    return on.numbers[0][0], on.numbers[1][0]


def _part(index: int) -> Compute:
    def part(on: Application) -> Number:
        number = on.numbers[0]
        if len(number) == 2:
            return (number[index],)
        return (number[0] if index == 0 else const(0.0, number[0].type),)

    return part


def _reduce_precision(on: Application) -> Number:
    exponent = integer(on.operation, "exponent_bits")
    mantissa = integer(on.operation, "mantissa_bits")
    float_types = ("f64", "f32", "f16", "bf16")
    if not 1 <= exponent <= 11 or not 0 <= mantissa <= 52:
        raise ProblemError(
            f"there is no float with {exponent} bits of exponent and {mantissa} of mantissa",
            where=on.operation.span,
            cure="give 1 to 11 and 0 to 52",
        )
    if str(on.elements[0]) not in float_types:
        raise UnsupportedError(
            f"reduce_precision is not defined on {on.elements[0]}",
            where=on.operation.span,
            cure=f"convert to one of {', '.join(float_types)}",
        )
    return (with_precision(on.numbers[0][0], exponent, mantissa),)


def _count_zeros(on: Application) -> Number:
    """Narrow integers do without the bits in front of them."""
    expr = INTEGERS["count_leading_zeros"](*_bits(on.elements[0], on.numbers[0]))
    bits = on.elements[0].bits if isinstance(on.elements[0], Integer) else 8
    return (expr - const(8 - bits, expr.type) if bits in (2, 4) else expr,)


def _count_ones(on: Application) -> Number:
    return (INTEGERS["popcnt"](*_bits(on.elements[0], on.numbers[0])),)


def _logical_shift(on: Application) -> Number:
    (a,) = _bits(on.elements[0], on.numbers[0])
    return (INTEGERS["shift_right_logical"](a, on.numbers[1][0]),)


def _bits(element: Element, number: Number) -> Number:
    """An integer's own bits, with zeros above where a byte holds it."""
    if isinstance(element, Integer) and element.bits in (2, 4):
        return (number[0] & const((1 << element.bits) - 1, number[0].type),)
    return number


_OWN: dict[str, Compute] = {
    "compare": _compare,
    "complex": _complex,
    "convert": _convert,
    "count_leading_zeros": _count_zeros,
    "imag": _part(1),
    "popcnt": _count_ones,
    "real": _part(0),
    "reduce_precision": _reduce_precision,
    "shift_right_logical": _logical_shift,
}
NAMES = sorted({*_OWN, *FLOATS, *INTEGERS, *BOOLEANS, *COMPLEX, "select"})
# Of these, a single number goes with all elements of the others.
_SINGLE = {"select": (0,), "clamp": (0, 2)}


def translate(
    translation: Translation, operation: Operation, operands: Sequence[Value]
) -> Sequence[Value]:
    """An elementwise operation on whole tensors."""
    name = operation.name.partition(".")[2]
    sources = arrays(operation, operands, _TAKES.get(name, 2 if name in _TWO else 1))
    result = result_tensor(operation)
    computed(result.element)
    for number in _SINGLE.get(name, ()):
        others = [array for n, array in enumerate(sources) if n not in _SINGLE[name]]
        if sources[number].rank == 0 and others[0].rank:
            sources[number] = spread(sources[number], others[0].shape)
    if any(array.shape != sources[0].shape for array in sources):
        shapes = ", ".join(str(array.type) for array in sources)
        raise ProblemError(
            f"{operation.name} of {shapes}",
            where=operation.span,
            why="it takes elements at the same places",
            cure="broadcast them to one shape first: stablehlo.broadcast_in_dim",
        )
    _check_elements(operation, name, sources)
    if result.element == sources[0].element and name == "convert":
        return [sources[0]]
    direction = word(operation, "comparison_direction", DIRECTIONS) if name == "compare" else ""
    certain = known.elementwise(operation, sources, result.element, direction)
    if certain is not None:
        return [translation.constant_of(certain, result.element)]
    return [applied(translation, operation, sources, result.element)]


def applied(
    translation: Translation, operation: Operation, values: Sequence[Array], result: Element
) -> Array:
    """``operation`` of the elements of tensors of one shape."""
    elements = [array.element for array in values]

    def function(numbers: Sequence[Number]) -> Number:
        return compute(operation, elements, result, numbers)

    return mapped(translation, function, values, result, operation.name.partition(".")[2])


def mapped(
    translation: Translation,
    function: Callable[[Sequence[Number]], Number],
    values: Sequence[Array],
    result: Element,
    name: str,
) -> Array:
    """``function`` of the numbers of tensors of one shape, which gives one of ``result``."""
    elements = [array.element for array in values]
    flat = parts_of(values)

    def part(index: int) -> Tensor:
        def value(*parts: Expr) -> Expr:
            return function(grouped(parts, elements))[index]

        if translation.scalar:
            number = value(*(tensor.value for tensor in flat))
            return Tensor(translation.builder, flat[0].shape, number)
        return elementwise(value, *flat, name=name)

    return Array(result, tuple(map(part, range(part_count(result)))))


def _broadcast(
    translation: Translation, operation: Operation, operands: Sequence[Value]
) -> Sequence[Value]:
    """``chlo.broadcast_add`` and the like: dims of 1, and those that an operand lacks, are
    repeated."""
    sources = arrays(operation, operands, 2, 3)
    rank = max(array.rank for array in sources)
    dims = [[*range(rank - array.rank, rank)] for array in sources]
    if operation.attributes.get("broadcast_dimensions") is not None:
        least = min(array.rank for array in sources)
        said = integers(operation, "broadcast_dimensions", count=least)
        if sorted(set(said)) != said or not all(0 <= n < rank for n in said):
            raise wrong(operation, "broadcast_dimensions", f"dims of {rank}, in order")
        dims = [
            said if array.rank == least else dim for array, dim in zip(sources, dims, strict=True)
        ]
    try:
        shape = np.broadcast_shapes(
            *(
                [dict(zip(to, array.shape, strict=True)).get(n, 1) for n in range(rank)]
                for array, to in zip(sources, dims, strict=True)
            )
        )
    except ValueError:
        raise ProblemError(
            f"{operation.name} of {', '.join(str(array.type) for array in sources)}",
            where=operation.span,
            why="dims are equal, or one of them is 1",
            cure="give operands of such shapes",
        ) from None
    repeated = [
        replace(
            array,
            parts=tuple(views.broadcast_in_dim(part, shape, to) for part in array.parts),
            known=array.known if array.shape == shape else None,
        )
        for array, to in zip(sources, dims, strict=True)
    ]
    plain = replace(operation, name=operation.name.replace("broadcast_", ""))
    return translate(translation, plain, repeated)


def spread(array: Array, shape: Sequence[int]) -> Array:
    """A single number at every place of ``shape``."""
    parts = tuple(views.broadcast_to(part, shape) for part in array.parts)
    return Array(array.element, parts)


_TAKES = {"select": 3, "clamp": 3}
_TWO = {
    "add", "and", "atan2", "compare", "complex", "divide", "maximum", "minimum", "mulhi",
    "multiply", "next_after", "or", "polygamma", "power", "remainder", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "subtract", "xor", "zeta",
}  # fmt: skip


def _check_elements(operation: Operation, name: str, values: Sequence[Array]) -> None:
    """Operands are of one type, but the condition of a select, which is one of truth values."""
    same = values
    if name == "select":
        same = values[1:]
        if values[0].element != Integer(1):
            raise ProblemError(
                f"the condition of a select is {values[0].element}",
                where=operation.span,
                cure="give truth values: tensor<...xi1>",
            )
    if any(array.element != same[0].element for array in same):
        elements = ", ".join(str(array.element) for array in same)
        raise ProblemError(
            f"{operation.name} of {elements}",
            where=operation.span,
            why="both sides have one element type",
            cure="convert one of them: stablehlo.convert",
        )


HANDLERS = {
    **{f"stablehlo.{name}": translate for name in NAMES},
    **{f"chlo.{name}": translate for name in NAMES},
    **{f"chlo.broadcast_{name}": _broadcast for name in (*_TWO, "select")},
}
