"""StableHLO files that check themselves: which are right, wrong, or refused, and why.

Each part of a file (``// -----`` separates them) is read, translated, compiled and run, and its
``check.expect_*`` decide. A part without checks is right when it translates and runs. Arguments
that a function takes get random numbers.
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
from tilewright.graph.program import compile_graph
from tilewright.ir.stmt import Param
from tilewright.testing.widened import exact_results

RIGHT, WRONG, REFUSED, UNREAD, BROKEN = "right", "wrong", "refused", "not read", "broken"


@dataclass(frozen=True)
class Outcome:
    """What became of one function of a file; ``why`` says what is not as it should be."""

    file: str
    status: str
    why: str = ""


def outcomes(path: Path, target: str) -> Iterator[Outcome]:
    """What becomes of each function of a file that a program could start with."""
    name = str(path)
    try:
        modules = parse_modules(path.read_text(encoding="utf-8"), path.name)
    except ParseError as error:
        yield Outcome(name, UNREAD, str(error))
        return
    for module in modules:
        for function in _entries(module):
            yield Outcome(name, *_outcome(module, function, target))


def _entries(module: Module) -> Sequence[Function]:
    """``main``, or each public function that no other one calls."""
    found = module.entry()
    if found is not None:
        return [found]
    return [each for each in module.functions.values() if each.visibility != "private"]


def _outcome(module: Module, function: Function, target: str) -> tuple[str, str]:
    try:
        graph = _translated(module, function)
        fault = run(graph, target)
    except UnsupportedError as error:
        return REFUSED, error.what
    except TilewrightError as error:
        return BROKEN, str(error)
    return (RIGHT, "") if fault is None else (WRONG, fault)


# What open sizes are tried as, where a function takes them: one has to fit all of them.
_SIZES = (5, 8, 20)


def _translated(module: Module, function: Function) -> StableHLO:
    """The graph; where sizes are open, with one number for all of them, and for the arguments that
    are single integers, as JAX passes sizes."""
    types = {each.name: each.type for each in function.body.arguments}
    if not any(isinstance(each, Tensor) and not each.is_static for each in types.values()):
        return translated(module, function)
    last: TilewrightError | None = None
    for size in _SIZES:
        given: dict[str, Any] = {}
        for name, type_ in types.items():
            if not isinstance(type_, Tensor):
                continue
            if not type_.is_static:
                given[name] = tuple(size if each is None else each for each in type_.shape)
            elif not type_.shape and isinstance(type_.element, Integer):
                given[name] = size
        try:
            return translated(module, function, given)
        except UnsupportedError:
            raise
        except TilewrightError as error:
            last = error
    raise UnsupportedError(
        "its open sizes are not those of any one number",
        why=None if last is None else last.what,
        cure="say them: from_stablehlo(text, arguments=...)",
    )


def run(graph: StableHLO, target: str) -> str | None:
    """Compiles a graph and runs it on random arguments: what its checks say is wrong, or None."""
    return fault_of(graph, compile_graph(graph, target))


def fault_of(graph: StableHLO, compiled: Any, seed: int = 0) -> str | None:
    """What the checks of a graph say of a run of what was compiled of it, or None."""
    rng = np.random.default_rng(seed)
    arguments = {
        each.name: _random(rng, each) for each in graph.kernel.arrays if each.name in graph.inputs
    }
    found = compiled(**arguments)
    names = graph.outputs
    results = {names[0]: found} if len(names) == 1 else {name: found[name] for name in names}
    return checked(graph, arguments, results)


def checked(
    graph: StableHLO, arguments: Mapping[str, NDArray[Any]], results: Mapping[str, NDArray[Any]]
) -> str | None:
    """What the checks of a graph say of results, or None. Those that are as near to f64's as what
    the file expects are right, though they differ from it."""
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
    """What becomes of a file: the worst of what becomes of its functions."""
    order = (UNREAD, BROKEN, WRONG, REFUSED, RIGHT)
    nothing = Outcome(str(path), REFUSED, "it has no function to run")
    found = outcomes(path, target)
    return min(found, key=lambda each: order.index(each.status), default=nothing)
