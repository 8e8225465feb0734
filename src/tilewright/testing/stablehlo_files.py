"""StableHLO files that check themselves: each is right, wrong or refused, with the reason.

Each part of a file (``// -----`` separates them) is parsed, translated, compiled and run, and its
``check.expect_*`` decide. A part without checks is right when it translates and runs. Arguments of
functions are random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import ParseError, TilewrightError, UnsupportedError
from tilewright.frontends.stablehlo.parser import parse_modules
from tilewright.frontends.stablehlo.program import StableHLO, translated
from tilewright.frontends.stablehlo.syntax import Function, Module
from tilewright.frontends.stablehlo.types import Integer, Tensor
from tilewright.graph.compiling import compile_graph
from tilewright.ir.stmt import Param
from tilewright.testing.widened import exact_results

RIGHT, WRONG, REFUSED, UNREAD, BROKEN = "right", "wrong", "refused", "not read", "broken"


@dataclass(frozen=True)
class Outcome:
    """The result for one function of a file; ``why`` is the reason if it is not right."""

    file: str
    status: str
    why: str = ""


def outcomes(path: Path, target: str) -> Iterator[Outcome]:
    """The outcome of each entry function of a file."""
    name = str(path)
    try:
        modules = parse_modules(path.read_text(encoding="utf-8"), path.name, in_part=True)
    except ParseError as error:
        yield Outcome(name, UNREAD, str(error))
        return
    for module in modules:
        yield from (
            Outcome(name, UNREAD, str(parse_error)) for parse_error in module.broken.values()
        )
        for function in _entries(module):
            yield Outcome(name, *_outcome(module, function, target))


def _entries(module: Module) -> Sequence[Function]:
    """``main``, or each public function that no other one calls."""
    entry = module.entry()
    if entry is not None:
        return [entry]
    return [f for f in module.functions.values() if f.visibility != "private"]


def _outcome(module: Module, function: Function, target: str) -> tuple[str, str]:
    try:
        graph = _translated(module, function)
        fault = run(graph, target)
    except UnsupportedError as error:
        return REFUSED, error.what
    except TilewrightError as error:
        return BROKEN, str(error)
    return (RIGHT, "") if fault is None else (WRONG, fault)


# Values for dynamic sizes: one of them has to fit all.
_SIZES = (5, 8, 20)


def _translated(module: Module, function: Function) -> StableHLO:
    """The graph; dynamic sizes, and arguments that are single integers (as JAX passes sizes), all
    get the same number."""
    types = {argument.name: argument.type for argument in function.body.arguments}
    if not any(isinstance(type_, Tensor) and not type_.is_static for type_ in types.values()):
        return translated(module, function)
    last: TilewrightError | None = None
    for size in _SIZES:
        arguments: dict[str, Any] = {}
        for name, type_ in types.items():
            if not isinstance(type_, Tensor):
                continue
            if not type_.is_static:
                arguments[name] = tuple(
                    size if extent is None else extent for extent in type_.shape
                )
            elif not type_.shape and isinstance(type_.element, Integer):
                arguments[name] = size
        try:
            return translated(module, function, arguments)
        except UnsupportedError:
            raise
        except TilewrightError as error:
            last = error
    raise UnsupportedError(
        "its dynamic sizes do not fit any one number",
        why=None if last is None else last.what,
        cure="give them: from_stablehlo(text, arguments=...)",
    )


def run(graph: StableHLO, target: str) -> str | None:
    """Compiles a graph and runs it on random arguments: the fault that its checks find, or None."""
    return fault_of(graph, compile_graph(graph, target))


def fault_of(graph: StableHLO, compiled: Any, seed: int = 0) -> str | None:
    """The fault that a graph's checks find in a run of the compiled graph, or None."""
    rng = np.random.default_rng(seed)
    arguments = {
        param.name: _random(rng, param)
        for param in graph.kernel.arrays
        if param.name in graph.inputs
    }
    output = compiled(**arguments)
    names = graph.outputs
    results = {names[0]: output} if len(names) == 1 else {name: output[name] for name in names}
    return checked(graph, arguments, results)


def checked(
    graph: StableHLO, arguments: Mapping[str, NDArray[Any]], results: Mapping[str, NDArray[Any]]
) -> str | None:
    """The fault that a graph's checks find in results, or None. Results that differ from the file's
    are right if they are as near to those in f64."""
    exact = cache(lambda: exact_results(graph.kernel, arguments))
    for check in graph.checks:
        fault = check.fault(results, exact)
        if fault is not None:
            return f"line {check.span.line}: {fault}"
    return None


def _random(rng: np.random.Generator, param: Param) -> NDArray[Any]:
    shape = tuple(int(str(size)) for size in param.buffer.sizes)
    if param.dtype.is_float:
        return rng.standard_normal(shape).astype(param.dtype.numpy)
    return rng.integers(0, 2, shape).astype(param.dtype.numpy)


def worst_of(path: Path, target: str) -> Outcome:
    """The outcome of a file: the worst of its functions' outcomes."""
    order = (UNREAD, BROKEN, WRONG, REFUSED, RIGHT)
    empty = Outcome(str(path), REFUSED, "it has no function to run")
    results = outcomes(path, target)
    return min(results, key=lambda outcome: order.index(outcome.status), default=empty)
