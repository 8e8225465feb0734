"""A part of a graph whose sizes calls pass, as a program that is compiled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from torch.fx import Graph

from tilewright.frontends.torch.forms import Form
from tilewright.frontends.torch.open_sizes import Symbol, translating
from tilewright.frontends.torch.parts import Options, Part, Translated, translated
from tilewright.graph.compiling import Divided
from tilewright.graph.open_program import OpenProgram
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import StandIn, Var
from tilewright.ir.open_sizes import OpenSizes, for_all_sizes
from tilewright.ir.printer import to_text
from tilewright.newest import Newest

# Sets of sizes for which everything that a call needs is kept.
_KEPT = 256

# The sizes of the call that runs now, by their names.
NUMBERS: ContextVar[Mapping[str, int]] = ContextVar("NUMBERS")


class OpenPart:
    """A compiled part of a graph of open sizes; ``decided`` is what has to come out the same for
    the sizes of a call."""

    def __init__(
        self, graph: Graph, name: str, options: Options, symbols: Sequence[Symbol]
    ) -> None:
        """Raises `UnsupportedError` where sizes have to be numbers."""

        def build(example: int) -> tuple[Translated, OpenSizes]:
            with translating(symbols, example) as sizes:
                return translated(graph, name, options.checks), sizes

        self._what, self.decided = for_all_sizes(build, lambda what: to_text(what.kernel))
        self._program = OpenProgram(self._what.kernel, options.target, options.threads)
        self._parts: Newest[tuple[int, ...], Part] = Newest(_KEPT)
        self._names = [param.name for param in self._what.kernel.scalars]
        self.compiled = self._program.at(
            {symbol.param.name: symbol.hint for symbol in symbols if symbol.number is None}
        )

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """The results for these tensors, of the sizes that `NUMBERS` says."""
        numbers = NUMBERS.get()
        key = tuple([numbers[name] for name in self._names])
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = self._made(numbers)
        return part(*tensors)

    def _made(self, numbers: Mapping[str, int]) -> Part:
        what = self._what
        values = {param.var: numbers[param.name] for param in what.kernel.scalars}

        def closed(
            passed: tuple[tuple[str, Form] | None, ...],
        ) -> tuple[tuple[str, Form] | None, ...]:
            return tuple(
                None if entry is None else (entry[0], _closed(entry[1], values)) for entry in passed
            )

        closed_form = replace(what, inputs=closed(what.inputs), outputs=closed(what.outputs))
        return Part(closed_form, (), Divided(self._program.at(numbers), {}, None))


def _closed(form: Form, values: Mapping[Var, int]) -> Form:
    """``form`` for these sizes."""

    def number(size: int) -> int:
        return int(evaluate(size.expr, values)) if isinstance(size, StandIn) else size

    sizes, strides = tuple(map(number, form.sizes)), tuple(map(number, form.strides))
    return replace(form, sizes=sizes, strides=strides)
