"""A text as a graph that can be compiled: its inputs, results and checks by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilewright.errors import ProblemError, UnsupportedError
from tilewright.frontends.stablehlo import types
from tilewright.frontends.stablehlo.checks import Check
from tilewright.frontends.stablehlo.operations import HANDLERS
from tilewright.frontends.stablehlo.parser import parse_module
from tilewright.frontends.stablehlo.syntax import Function, Module
from tilewright.frontends.stablehlo.translation import Translation, computed
from tilewright.frontends.stablehlo.types import Complex, computed_type
from tilewright.frontends.stablehlo.values import Array, Token, Value
from tilewright.frontends.stablehlo.view_operations import split_parts, stacked
from tilewright.graph.builder import Builder
from tilewright.graph.graph import Graph


@dataclass(frozen=True, eq=False)
class StableHLO(Graph):
    """The graph of a StableHLO program. ``results`` are the names of what its function returns (a
    call gives those that `checks` compare besides); complex tensors have a last dim of 2."""

    results: tuple[str, ...] = ()
    checks: tuple[Check, ...] = field(default=())


def from_stablehlo(text: str, function: str | None = None, *, file: str | None = None) -> StableHLO:
    """The graph of a StableHLO program in MLIR's text, pretty or generic; ``tw.compile`` takes it.

    ``function`` is the one that is run: ``main`` without, or the only one that is public. The
    inputs are called as its arguments are (``arg0``), the results ``result0`` and so on, or as
    ``jax.result_info`` says. Complex tensors have a last dim of 2; integers of fewer than 8 bits
    are bytes.

    Raises `ParseError` where the text is malformed, `ProblemError` where it makes no sense, and
    `UnsupportedError` for what is not translated, each with line and column; ``file`` is its name
    in them.
    """
    module = parse_module(text, file)
    return translated(module, _entry(module, function))


def _entry(module: Module, name: str | None) -> Function:
    found = module.functions.get(name) if name is not None else module.entry()
    if found is None:
        names = ", ".join(f"@{each}" for each in module.functions)
        what = "which function is meant?" if name is None else f"there is no function @{name}"
        raise ProblemError(what, where=module.span, cure=f'say function="..."; there are {names}')
    return found


def translated(module: Module, function: Function) -> StableHLO:
    """The graph of one function of ``module``."""
    builder = Builder(function.name)
    translation = Translation(module, builder, HANDLERS)
    arguments: list[Value] = []
    taken: set[str] = set()
    for named in function.body.arguments:
        if isinstance(named.type, types.Token):
            arguments.append(Token())
            continue
        if not isinstance(named.type, types.Tensor) or not named.type.is_static:
            raise UnsupportedError(
                f"the argument %{named.name} is of type {named.type}",
                where=named.span,
                why="a graph has tensors whose sizes are known",
                cure="write its sizes",
            )
        with builder.at(span=named.span):
            arguments.append(_input(builder, _name(named.name, "arg", taken), named.type))
    found = translation.call(function, arguments, function.span)
    results: list[str] = []
    for number, value in enumerate(found):
        if not isinstance(value, Array):
            continue
        info = function.result_attributes[number].get("jax.result_info", "")
        name = _name(info if isinstance(info, str) else "", f"result{number}", taken)
        name = name if re.search("[A-Za-z]", name) else f"result{number}"
        results.append(name)
        with builder.at(name, function.span):
            builder.output(name, stacked(value.parts))
    if not results and not translation.checks:
        raise ProblemError(
            f"@{function.name} returns nothing", where=function.span, cure="return a tensor"
        )
    return StableHLO(builder.kernel(), results=tuple(results), checks=tuple(translation.checks))


def _input(builder: Builder, name: str, type_: types.Tensor) -> Array:
    computed(type_.element)
    element = computed_type(type_.element)
    if isinstance(type_.element, Complex):
        whole = builder.input(name, element, (*type_.sizes, 2))
        return Array(type_.element, split_parts(whole))
    return Array(type_.element, (builder.input(name, element, type_.sizes),))


def _name(wanted: str, usual: str, taken: set[str]) -> str:
    """A name for a parameter: letters, digits and underscores of ``wanted``, one that is free."""
    stem = re.sub(r"\W+", "_", wanted).strip("_")
    stem = stem if stem and stem[0].isalpha() else f"{usual}{stem}"
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}_{number}", number + 1
    taken.add(name)
    return name
