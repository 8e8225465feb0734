"""Functions of a program into a graph: which value is what, and which operation is translated how.

`Translation` goes through a function's operations; the files of operations (`view_operations` and
the others) have a function for each, found by name in the tables of `operations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from tilewright.errors import ProblemError, Span, TilewrightError, UnsupportedError
from tilewright.frontends.stablehlo import quantized, types
from tilewright.frontends.stablehlo.attribute_names import check_attributes
from tilewright.frontends.stablehlo.attributes import Word
from tilewright.frontends.stablehlo.checks import Check
from tilewright.frontends.stablehlo.elements import Elements
from tilewright.frontends.stablehlo.syntax import Function, Module, Operation, Region
from tilewright.frontends.stablehlo.syntax import Value as Named
from tilewright.frontends.stablehlo.types import Element, Type
from tilewright.frontends.stablehlo.values import Array, Group, Token, Value
from tilewright.ir.expr import Expr
from tilewright.tensor.known import is_open, tensor_of_known
from tilewright.tensor.tensor import Builder, Tensor

Handler = Callable[["Translation", Operation, Sequence[Value]], Sequence[Value]]
# Calls in calls: recursion would not end, and no program is so deep.
_DEEPEST = 100
_MOST_KNOWN = 4096


class Translation:
    """A module on its way into ``builder``."""

    def __init__(
        self,
        module: Module,
        builder: Builder,
        handlers: Mapping[str, Handler],
        asserted: Callable[[Expr], None] | None = None,
    ) -> None:
        self.module = module
        self.builder = builder
        self.handlers = handlers
        # Told of conditions that the program asserts of sizes that calls pass.
        self.asserted = asserted
        self.checks: list[Check] = []
        self._scopes: list[dict[int, Value]] = [{}]
        self._calls: list[str] = []
        self.inside = 0  # of how many loops and branches
        self.scalar = False  # whether a region is made an expression of single numbers

    # Functions and regions.

    def call(self, function: Function, arguments: Sequence[Value], span: Span) -> list[Value]:
        """The results of ``function``, whose operations become part of the graph."""
        if function.name in self._calls or len(self._calls) >= _DEEPEST:
            raise UnsupportedError(
                f"@{function.name} calls itself",
                where=span,
                why="a graph has no recursion",
                cure="write a loop: stablehlo.while",
            )
        if len(arguments) != len(function.body.arguments):
            raise ProblemError(
                f"@{function.name} takes {len(function.body.arguments)} values, "
                f"not {len(arguments)}",
                where=span,
                cure="give a value for each argument",
            )
        self._calls.append(function.name)
        try:
            return self.region(function.body, arguments)
        finally:
            self._calls.pop()

    def region(self, region: Region, arguments: Sequence[Value]) -> list[Value]:
        """What a region returns for ``arguments``."""
        self._scopes.append({})
        try:
            for named, value in zip(region.arguments, arguments, strict=True):
                self.bind(named, value)
            for operation in region.operations:
                results = self.operation(operation)
                if operation is region.operations[-1]:
                    return list(results)
            return []
        finally:
            self._scopes.pop()

    def bind(self, named: Named, value: Value) -> None:
        """Says what a name stands for."""
        check_type(named.type, value, named.span)
        self._scopes[-1][id(named)] = value

    def value(self, named: Named) -> Value:
        """What a name stands for."""
        for scope in reversed(self._scopes):
            if id(named) in scope:
                return scope[id(named)]
        raise ProblemError(
            f"%{named.name} has no value here", where=named.span, cure="define it in front of this"
        )

    def operation(self, operation: Operation) -> Sequence[Value]:
        """Translates one; what it gives is known by its names then."""
        handler = self.handlers.get(operation.name)
        if handler is None:
            raise self.unknown(operation)
        check_attributes(operation)
        operands = [self.value(operand) for operand in operation.operands]
        title = operation.results[0].name if operation.results else ""
        short = operation.name.partition(".")[2]
        name = f"v{title}" if title[:1].isdigit() else title
        try:
            with self.builder.at(name or short, operation.span):
                if quantized.concerns(operation):
                    results = quantized.computed_as_floats(
                        self.builder, operation, operands, partial(handler, self)
                    )
                else:
                    results = handler(self, operation, operands)
        except TilewrightError as error:
            if error.span is not None:
                raise
            raise type(error)(
                error.what, where=operation.span, why=error.why, cure=error.cure
            ) from None
        if operation.name in RETURNS:
            return results
        if len(results) != len(operation.results):
            raise ProblemError(
                f"{operation.name} gives {len(results)} results, not {len(operation.results)}",
                where=operation.span,
                cure="name as many results as it gives",
            )
        for named, value in zip(operation.results, results, strict=True):
            self.bind(named, value)
        return results

    def unknown(self, operation: Operation) -> UnsupportedError:
        why = DEVICES.get(operation.name.partition(".")[2])
        return UnsupportedError(
            f"{operation.name} is not translated",
            where=operation.span,
            why=why or "no operation of this name is known here",
            cure="leave it out, or run this part elsewhere",
        )

    # What handlers ask.

    def array(self, element: Element, *parts: Tensor, known: Any = None) -> Array:
        """A value from its tensors."""
        small = known is not None and np.asarray(known).size <= _MOST_KNOWN
        return Array(element, parts, np.asarray(known) if small else None)

    def constant(self, elements: Elements) -> Array:
        """A constant's value."""
        return self.constant_of(elements.value, elements.type.element)

    def constant_of(self, value: Any, element: Element) -> Array:
        """An array of numpy's as a value."""
        if isinstance(element, types.Complex):
            return Array(
                element, (self.builder.constant(value.real), self.builder.constant(value.imag))
            )
        computed(element)
        if is_open(value):
            dtype = types.computed_type(element)
            assert dtype is not None
            return Array(element, (tensor_of_known(self.builder, value, dtype),), value)
        if value.dtype == object:
            value = value.astype(types.numpy_type(element))
        whole = isinstance(element, types.Integer | types.Index)
        contents = value if whole and value.size <= _MOST_KNOWN else None
        return Array(element, (self.builder.constant(value),), contents)

    @contextmanager
    def control(self) -> Iterator[None]:
        """Around what may run several times, or not at all."""
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


RETURNS = ("func.return", "stablehlo.return", "chlo.return")

# Operations that no single device can carry out, and why.
_SEVERAL = "it is about several devices, and a graph runs on one"
_HOST = "it exchanges values with the host while the graph runs"
DEVICES: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "all_gather",
            "all_reduce",
            "all_to_all",
            "collective_broadcast",
            "collective_permute",
            "collective_reduce",
            "cross-replica-sum",
            "partition_id",
            "reduce_scatter",
            "replica_id",
            "run_parallel",
        ),
        _SEVERAL,
    ),
    **dict.fromkeys(("infeed", "outfeed", "recv", "send"), _HOST),
}


def computed(element: Element) -> None:
    """Refuses elements that kernels have no type for."""
    if types.computed_type(element) is None:
        raise UnsupportedError(
            f"nothing computes on {element}",
            cure="convert it to bf16, f8E4M3FN or f8E5M2 before",
        )


def check_type(type_: Type, value: Value, span: Span) -> None:
    """Refuses a value that is not of the type that the program says."""
    if isinstance(value, Token):
        fits = isinstance(type_, types.Token)
    elif isinstance(value, Group):
        fits = isinstance(type_, types.Tuple) and len(type_.parts) == len(value.parts)
    elif isinstance(type_, types.Unranked):
        fits = type_.element == value.element
    else:
        fits = (
            isinstance(type_, types.Tensor)
            and type_.element == value.element
            and type_.rank == value.rank
            and all(a is None or a == b for a, b in zip(type_.shape, value.shape, strict=True))
        )
    if not fits:
        actual = value.type if isinstance(value, Array) else type(value).__name__.lower()
        raise ProblemError(
            f"this is of type {actual}, not {type_}",
            where=span,
            why="its operation gives that for these operands",
            cure="write the type that the operation gives",
        )


def arrays(operation: Operation, operands: Sequence[Value], *counts: int) -> list[Array]:
    """The operands as tensors; as many as one of ``counts``, where there are any."""
    if counts and len(operands) not in counts:
        number = " or ".join(map(str, counts))
        raise ProblemError(
            f"{operation.name} takes {number} operands, not {len(operands)}",
            where=operation.span,
            cure=f"give {number}",
        )
    values = []
    for operand in operands:
        if not isinstance(operand, Array):
            raise ProblemError(
                f"{operation.name} takes tensors",
                where=operation.span,
                cure="take the tensor out of the tuple first",
            )
        values.append(operand)
    return values


def result_tensor(operation: Operation, index: int = 0) -> types.Tensor:
    """The type of a result, which is a tensor."""
    type_ = operation.results[index].type if index < len(operation.results) else None
    if not isinstance(type_, types.Tensor):
        raise ProblemError(
            f"{operation.name} gives a tensor, not {type_}",
            where=operation.span,
            cure="write its type as tensor<...>",
        )
    return type_


# Attributes.


def wrong(operation: Operation, name: str, wanted: str) -> ProblemError:
    """The error about an attribute."""
    return ProblemError(
        f"{name} of {operation.name} is not {wanted}",
        where=operation.places.get(name, operation.span),
        cure=f"give {wanted}",
    )


def integers(
    operation: Operation, name: str, default: Sequence[int] | None = None, count: int | None = None
) -> list[int]:
    """An attribute that is a list of numbers, however it is written."""
    value = operation.attributes.get(name)
    if value is None and default is not None:
        value = list(default)
    if isinstance(value, Elements) and value.value.dtype.kind in "iub" and value.value.size < 10000:
        value = [int(number) for number in value.value.reshape(-1)]
    if not isinstance(value, list | tuple) or not all(isinstance(e, int) for e in value):
        raise wrong(operation, name, "a list of whole numbers")
    if count is not None and len(value) != count:
        raise wrong(operation, name, f"a list of {count} numbers")
    return [int(number) for number in value]


def integer(operation: Operation, name: str, default: int | None = None) -> int:
    """An attribute that is a whole number."""
    value = operation.attributes.get(name, default)
    if not isinstance(value, int):
        raise wrong(operation, name, "a whole number")
    return int(value)


def flag(operation: Operation, name: str, default: bool = False) -> bool:
    """An attribute that is true or false."""
    value = operation.attributes.get(name, default)
    if not isinstance(value, bool):
        raise wrong(operation, name, "true or false")
    return value


def word(operation: Operation, name: str, choices: Sequence[str], default: str = "") -> str:
    """An attribute that is one of some names."""
    value = operation.attributes.get(name, Word(default))
    text = value.text if isinstance(value, Word) else value
    if text not in choices:
        raise wrong(operation, name, f"one of {', '.join(choice for choice in choices if choice)}")
    return str(text)


def padding(operation: Operation, name: str, rank: int) -> list[tuple[int, int]]:
    """An attribute with two numbers for each dim."""
    value = operation.attributes.get(name)
    if value is None:
        return [(0, 0)] * rank
    if isinstance(value, Elements) and value.type.count <= 10000:
        value = value.value.tolist() if value.type.rank == 2 else value.value.reshape(-1).tolist()
    if rank == 1 and isinstance(value, list) and len(value) == 2 and isinstance(value[0], int):
        value = [value]
    fits = isinstance(value, list) and len(value) == rank
    if not fits or any(
        not isinstance(pair, list)
        or len(pair) != 2
        or not all(isinstance(number, int) for number in pair)
        for pair in value
    ):
        if rank == 0 and isinstance(value, list) and not value:
            return []
        raise wrong(operation, name, f"{rank} pairs of whole numbers")
    return [(int(low), int(high)) for low, high in value]
