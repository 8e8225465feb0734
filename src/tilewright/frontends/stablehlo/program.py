"""A text as a graph that can be compiled: its inputs, results and checks by name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.calls import checked_call
from tilewright.errors import ArgumentError, ProblemError, UnsupportedError, one_of, short
from tilewright.frontends.stablehlo import types
from tilewright.frontends.stablehlo.checks import Check
from tilewright.frontends.stablehlo.donations import donated
from tilewright.frontends.stablehlo.open_dims import Asserted, OpenDims
from tilewright.frontends.stablehlo.operations import HANDLERS
from tilewright.frontends.stablehlo.parser import parse_module
from tilewright.frontends.stablehlo.syntax import Function, Module
from tilewright.frontends.stablehlo.syntax import Value as Named
from tilewright.frontends.stablehlo.translation import Translation, computed
from tilewright.frontends.stablehlo.types import Complex, computed_type
from tilewright.frontends.stablehlo.values import Array, Token, Value
from tilewright.frontends.stablehlo.view_operations import split_parts, stacked
from tilewright.graph.graph import Graph
from tilewright.graph.opening import opened
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Expr, as_expr
from tilewright.ir.open_sizes import OpenSizes
from tilewright.ir.visit import substitute
from tilewright.tensor.tensor import Builder, Tensor


@dataclass(frozen=True, eq=False)
class StableHLO(Graph):
    """The graph of a StableHLO program. ``results`` are the names of what its function returns (a
    call gives those that `checks` compare besides): of what is written in place of a donated
    argument, that argument's. Complex tensors have a last dim of 2."""

    results: tuple[str, ...] = ()
    checks: tuple[Check, ...] = field(default=())


@checked_call
def from_stablehlo(
    text: str | os.PathLike[str],
    function: str | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    file: str | None = None,
) -> StableHLO:
    """The graph of a StableHLO program in MLIR's text, pretty or generic, or of the file that has
    it, by its path; ``tw.compile`` takes it.

    ``function`` is the one that is run: ``main`` without, or the only one that is public. The
    inputs are called as its arguments are (``arg0``), the results ``result0`` and so on, or as
    ``jax.result_info`` says. An argument that is donated (``tf.aliasing_output``,
    ``jax.buffer_donor``) is written in place: a result of its type and sizes is left in it, under
    its name. Complex tensors have a last dim of 2; integers of fewer than 8 bits
    are bytes.

    Sizes that the text leaves open (``tensor<?x4xf32>``, as JAX exports symbolic shapes) stay so,
    but for those that ``arguments`` says: by the name of an argument its shape, a tuple (None for a
    size that stays open); or an integer or an array of integers, which it is in this graph then: so
    shapes may depend on it.

    Raises `ArgumentError` for what is no text and no file that has one, `ParseError` where it is
    malformed, `ProblemError` where it makes no sense, and `UnsupportedError` for what is not
    translated, each of these with line and column; ``file`` is its name in them, by default that of
    the path. (With ``file``, a string is a text.)
    """
    program, file = _text_of(text, file)
    module = parse_module(program, file, in_part=function is not None)
    return translated(module, _entry(module, function), arguments)


def _text_of(source: object, file: str | None) -> tuple[str, str | None]:
    """The text of a program that is ``source``, or whose path is, and what errors call it."""
    is_path = isinstance(source, os.PathLike) or (
        # A program has a function, which has a body.
        isinstance(source, str)
        and file is None
        and source.strip() != ""
        and not set("\n{") & set(source)
    )
    if isinstance(source, str) and not is_path:
        return source, file
    if not is_path:
        raise ArgumentError(
            f"{short(source)} is no program of StableHLO",
            where="text",
            cure="pass its text, as a file has it, or as_text() of what JAX lowers gives it; or "
            "the path of a file",
        )
    try:
        path = Path(source)  # type: ignore[arg-type]
        return path.read_text(encoding="utf-8"), file or path.name
    except (OSError, ValueError, TypeError) as error:
        raise ArgumentError(
            f"cannot read {short(str(source))}",
            where="text",
            why=getattr(error, "strerror", None) or "it is no text in UTF-8",
            cure="pass the path of a file with a program in MLIR's text, or the text itself",
        ) from error


def _entry(module: Module, name: str | None) -> Function:
    if name is not None and not isinstance(name, str):
        raise ArgumentError(
            f"{short(name)} is no name of a function", where="function", cure="pass a text, or None"
        )
    function = module.function(name) if name is not None else module.entry()
    if function is None:
        names = ", ".join(f"@{label}" for label in module.functions)
        what = "which function is meant?" if name is None else f"there is no function @{name}"
        raise ProblemError(what, where=module.span, cure=f'say function="..."; there are {names}')
    return function


def translated(
    module: Module, function: Function, sizes: Mapping[str, Any] | None = None
) -> StableHLO:
    """The graph of one function; ``sizes`` are the ``arguments`` of `from_stablehlo`."""
    if sizes is not None and not isinstance(sizes, Mapping):
        raise ArgumentError(
            f"{short(sizes)} names no arguments",
            where="arguments",
            cure='give a mapping, such as {"arg0": (4, 3)}',
        )
    said = dict(sizes or {})
    entry = _described(function, said)
    dims = OpenDims.of([named for named in entry if named.name not in said])
    if not dims.params:
        return _Reading(module, function, entry, said, dims).graph()
    while True:
        try:
            return _opened(module, function, entry, said, dims)
        except Asserted as asserted:
            dims = asserted.dims


def _opened(
    module: Module,
    function: Function,
    entry: Sequence[Named],
    fixed: Mapping[str, Any],
    dims: OpenDims,
) -> StableHLO:
    """The graph for all sizes that ``dims`` leave open. Raises `Asserted` where the program asserts
    more of them than that."""

    def read(open_sizes: OpenSizes, numbers: Mapping[str, int]) -> StableHLO:
        return _Reading(module, function, entry, fixed, dims, open_sizes, numbers).graph()

    def cure(names: Sequence[str]) -> str:
        name = next(argument for argument, _ in dims.sizes)
        return f'say sizes: from_stablehlo(text, arguments={{"{name}": (4, 3)}})'

    return opened(dims.params, {}, read, cure)


def _described(function: Function, said: dict[str, Any]) -> list[Named]:
    """The arguments of ``function``, with sizes that are ``said`` of them. In ``said``, contents
    are left."""
    names = [argument.name for argument in function.body.arguments]
    for name in said:
        if name not in names:
            raise ProblemError(
                f"@{function.name} has no argument {name!r}",
                where=function.span,
                cure=one_of(name, names),
            )
    entry: list[Named] = []
    for named in function.body.arguments:
        if isinstance(said.get(named.name), tuple | list):
            named = _shaped(named, tuple(said.pop(named.name)))
        elif said.get(named.name) is None:
            said.pop(named.name, None)
        if not isinstance(named.type, types.Tensor | types.Token):
            raise UnsupportedError(
                f"the argument %{named.name} is of type {named.type}",
                where=named.span,
                why="a graph takes tensors of as many dims as the program says",
                cure="write its dims, or say its sizes: arguments={...: (4, 3)}",
            )
        entry.append(named)
    return entry


class _Reading:
    """Goes through a function once: with ``numbers`` and what stands for others as the sizes that
    ``dims`` leave open."""

    def __init__(
        self,
        module: Module,
        function: Function,
        entry: Sequence[Named],
        fixed: Mapping[str, Any],
        dims: OpenDims,
        open_sizes: OpenSizes | None = None,
        numbers: Mapping[str, int] | None = None,
    ) -> None:
        self._function, self._entry, self._fixed = function, entry, fixed
        self._dims, self._numbers = dims, numbers or {}
        self._builder = Builder(function.name, open_sizes)
        whole = open_sizes is not None and len(open_sizes.scalars) == len(dims.params)
        # (Where some are numbers, what is asserted of the others was taken in before.)
        self._translation = Translation(
            module, self._builder, HANDLERS, self._assert if whole else None
        )
        self._taken: set[str] = set()

    def graph(self) -> StableHLO:
        """The graph."""
        function, translation = self._function, self._translation
        arguments: list[Value] = []
        inputs: dict[str, Tensor] = {}
        for named in self._entry:
            if isinstance(named.type, types.Token):
                arguments.append(Token())
            elif named.name in self._fixed:
                arguments.append(_fixed(translation, named, self._fixed[named.name]))
            else:
                with self._builder.at(span=named.span):
                    inputs[named.name], value = self._input(named)
                arguments.append(value)
        results = self._results(translation.call(function, arguments, function.span), inputs)
        if not results and not translation.checks:
            raise UnsupportedError(
                f"@{function.name} returns nothing", where=function.span, cure="return a tensor"
            )
        return StableHLO(
            self._builder.kernel(), results=tuple(results), checks=tuple(translation.checks)
        )

    def _assert(self, condition: Expr) -> None:
        dims = self._dims.asserting(condition)
        if dims is not None:
            raise Asserted(dims)

    def _size(self, expr: Expr) -> int:
        """What stands for the size of an argument."""
        values = {param.var: self._numbers[param.name] for param in self._dims.params}
        open_sizes = self._builder.open_sizes
        if open_sizes is None or all(type(number) is int for number in values.values()):
            return int(evaluate(expr, values))
        return open_sizes.size(substitute(expr, {v: as_expr(n) for v, n in values.items()}))

    def _input(self, named: Named) -> tuple[Tensor, Array]:
        """The input as a call passes it, and as operations take it."""
        assert isinstance(named.type, types.Tensor)
        builder, element = self._builder, named.type.element
        computed(element)
        name, shape = _name(named.name, "arg", self._taken), self._dims.shape(named, self._size)
        if isinstance(element, Complex):
            whole = builder.input(name, computed_type(element), (*shape, 2))
            return whole, Array(element, split_parts(whole))
        whole = builder.input(name, computed_type(element), shape)
        return whole, Array(element, (whole,))

    def _results(self, values: Sequence[Value], inputs: Mapping[str, Tensor]) -> list[str]:
        """The names of what the function returns, which becomes what the graph gives."""
        function, builder = self._function, self._builder
        tensors = {
            n: stacked(value.parts) for n, value in enumerate(values) if isinstance(value, Array)
        }
        donors = donated(function, inputs, tensors)
        results: list[str] = []
        for number, tensor in tensors.items():
            donor = donors.get(number)
            if donor is not None and donor.buffer is not None:
                results.append(donor.buffer.name)
                with builder.at(span=function.span):
                    builder.update(donor, tensor)
                continue
            info = function.result_attributes[number].get("jax.result_info", "")
            name = _name(info if isinstance(info, str) else "", f"result{number}", self._taken)
            name = name if re.search("[A-Za-z]", name) else f"result{number}"
            results.append(name)
            with builder.at(name, function.span):
                builder.output(name, tensor)
        return results


def _shaped(named: Named, shape: tuple[int | None, ...]) -> Named:
    """An argument whose sizes are ``shape``: None for those that stay open."""
    type_ = named.type
    fits = isinstance(type_, types.Tensor) and type_.rank == len(shape)
    if (
        not isinstance(type_, types.Tensor)
        or not fits
        or any(
            (a is not None if b is None else type(b) is not int or b < 0 or a not in (None, b))
            for a, b in zip(type_.shape, shape, strict=True)
        )
    ):
        raise ProblemError(
            f"the argument %{named.name} is of type {type_}, not of the shape {list(shape)}",
            where=named.span,
            cure="give a size for each dim, those of the type where it has them",
        )
    return replace(named, type=replace(type_, shape=shape))


def _fixed(translation: Translation, named: Named, value: Any) -> Array:
    """An argument that is known when the graph is made."""
    type_ = named.type
    element = type_.element if isinstance(type_, types.Tensor) else None
    array = np.asarray(value)
    if not isinstance(element, types.Integer) or array.dtype.kind not in "iub":
        raise ProblemError(
            f"the argument %{named.name} is of type {type_}",
            where=named.span,
            why="what decides sizes are integers",
            cure="give integers, or a shape as a tuple",
        )
    return translation.constant_of(array.astype(types.numpy_type(element)), element)


def _name(wanted: str, usual: str, taken: set[str]) -> str:
    """A name for a parameter: letters, digits and underscores of ``wanted``, one that is free."""
    stem = re.sub(r"\W+", "_", wanted).strip("_")
    stem = stem if stem and stem[0].isalpha() else f"{usual}{stem}"
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}_{number}", number + 1
    taken.add(name)
    return name
