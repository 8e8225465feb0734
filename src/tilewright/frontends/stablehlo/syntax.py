"""A StableHLO program as a tree: modules, functions, regions, blocks, operations, values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import ParseError, Span
from tilewright.frontends.stablehlo.types import Type


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """What an operation gives or a block takes, by its name in the text (without ``%``)."""

    name: str
    type: Type
    span: Span


@dataclass(frozen=True, eq=False, slots=True)
class Operation:
    """``results = name(operands) {attributes} (regions)``, in whichever form it was written.

    ``span`` is its name's place, ``places`` those of its attributes.
    """

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Region, ...]
    span: Span
    places: Mapping[str, Span] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class Region:
    """One block: what it takes, and its operations, the last of which returns.

    Control flow between blocks is none of StableHLO's.
    """

    arguments: tuple[Value, ...]
    operations: tuple[Operation, ...]
    span: Span

    def walk(self) -> Iterator[Operation]:
        """All operations, those in regions after the operations that have them."""
        for operation in self.operations:
            yield operation
            for region in operation.regions:
                yield from region.walk()


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """``func.func``: a name, what it takes and gives, a body. ``attributes`` of the arguments and
    the results stand beside those of the function."""

    name: str
    body: Region
    results: tuple[Type, ...]
    span: Span
    visibility: str | None = None
    argument_attributes: tuple[Mapping[str, Any], ...] = ()
    result_attributes: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Module:
    """Functions by name; ``broken`` are errors of those that could not be read."""

    name: str | None
    functions: Mapping[str, Function]
    span: Span
    broken: Mapping[str, ParseError] = field(default_factory=dict)

    def function(self, name: str) -> Function | None:
        """The function of that name. Raises the error of one that could not be read."""
        if name in self.broken:
            raise self.broken[name]
        return self.functions.get(name)

    def entry(self) -> Function | None:
        """The function that a program runs: ``main``, or the only public one, or the only one."""
        if "main" in self.functions:
            return self.functions["main"]
        public = [
            function for function in self.functions.values() if function.visibility != "private"
        ]
        return public[0] if len(public) == 1 else None
