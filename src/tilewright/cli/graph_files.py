"""Graphs of the command line: read from files."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tilewright.cli.files import read_text
from tilewright.cli.kernels import draws, file_of, kernel_cases, numbers_of
from tilewright.cli.knobs import Knobs, nothing_to_do, refuse_options
from tilewright.errors import ProblemError, TilewrightError, one_of
from tilewright.frontends.models import from_onnx, from_torch, load_exported
from tilewright.frontends.stablehlo.parser import parse_modules
from tilewright.frontends.stablehlo.program import translated
from tilewright.frontends.stablehlo.syntax import Function, Module
from tilewright.graph.graph import Graph
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.second_opinion import SecondOpinion


@dataclass(frozen=True, eq=False)
class GraphCase:
    """A graph of a file. ``source`` is its name on the command line, ``FILE`` or ``FILE:NAME``;
    ``second`` gives the results of the framework that it comes from, if that can be run, and
    ``settings`` are sizes (``n=64``) that were open in it."""

    graph: Graph
    source: str
    second: SecondOpinion | None = None
    settings: tuple[str, ...] = ()

    def case(self, seed: int) -> KernelCase:
        """The graph as a kernel, with random contents."""
        case = KernelCase(self.graph.kernel, self.source, {}, self.graph.constant, seed)
        return next(draws(case, 1, seed))

    def arguments(self, seed: int = 0) -> str:
        """The arguments for this graph, shell-quoted."""
        words = ["graph", *(f"--set={setting}" for setting in self.settings)]
        return shlex.join([*words, *([f"--seed={seed}"] if seed else []), self.source])


@dataclass(frozen=True)
class Refused:
    """A file that is no graph that can be compiled, with the reason."""

    source: str
    error: TilewrightError

    def arguments(self, seed: int = 0) -> str:
        """The arguments for this file, shell-quoted."""
        return shlex.join(["graph", self.source])


def graphs_of(knobs: Knobs) -> Iterator[GraphCase | Refused]:
    """The graphs of the files in the options, in order, including those that cannot be read.

    Raises `ProblemError` for options that graphs do not have, and without a file.
    """
    refuse_options("graph", [*knobs.texts, *knobs.given("batch", "config")])
    if not knobs.descriptors:
        raise nothing_to_do("give files with graphs: graph FILE, of " + ", ".join(READERS))
    # A mistyped name is an error, not a refused graph.
    for source in knobs.descriptors:
        path, _ = file_of(source)
        if not path.exists():
            raise ProblemError(
                f"cannot read {path}",
                where=f"graph {source}",
                why="No such file or directory",
                cure="give files with graphs",
            )
    for source in knobs.descriptors:
        try:
            yield from _read(source, knobs)
        except TilewrightError as error:
            yield Refused(source, error)


def _read(source: str, knobs: Knobs) -> list[GraphCase | Refused]:
    path, _ = file_of(source)
    if path.suffix not in READERS:
        raise ProblemError(
            f"{path} is no file of a graph that is known",
            where=f"graph {source}",
            why=f"its name ends in {path.suffix!r}" if path.suffix else "its name has no ending",
            cure="give a file that ends in one of " + ", ".join(READERS),
        )
    return list(READERS[path.suffix](source, knobs))


def _text_graphs(source: str, knobs: Knobs) -> Iterator[GraphCase | Refused]:
    """Kernels in text, each as a graph."""
    refuse_options("a graph in text", knobs.given("set"))
    for case in kernel_cases([source], (), knobs.constant, knobs.contents):
        yield GraphCase(Graph(case.kernel, case.constant), case.source)


def _stablehlo_graphs(source: str, knobs: Knobs) -> Iterator[GraphCase | Refused]:
    """The StableHLO programs of a file: the ``main`` of each part, or each public function. An
    error in one does not affect the others."""
    _refuse_contents(knobs)
    path, name = file_of(source)
    text = read_text(path, f"graph {source}", "give a file of text")
    modules = parse_modules(text, str(path), in_part=True)
    broken = {title: error for module in modules for title, error in module.broken.items()}
    for title, error in broken.items():
        if name in ("", title):
            yield Refused(f"{path}:{title}", error)
    if name in broken:
        return
    entries = [(module, function) for module in modules for function in _entries(module, name)]
    if not entries and (name or not broken):
        names = [function for module in modules for function in module.functions]
        raise ProblemError(
            f"{path} has no function {name!r}" if name else f"{path} has no function to run",
            where=f"graph {source}",
            cure=one_of(name, names) if names else "give a file with a function",
        )
    for module, function in entries:
        own_source = source if len(entries) == 1 else f"{path}:{function.name}"
        try:
            graph = _with_sizes(translated(module, function), knobs)
            yield GraphCase(graph, own_source, settings=tuple(knobs.sets))
        except TilewrightError as error:
            yield Refused(own_source, error)


def _onnx_graphs(source: str, knobs: Knobs) -> Iterator[GraphCase | Refused]:
    """The graph of an ONNX model."""
    path = _whole(source, knobs, "a model of ONNX")
    graph = _with_sizes(from_onnx(path), knobs)
    # Imported after `from_onnx`, which explains a missing onnx.
    from tilewright.frontends.onnx.reference import evaluated

    second = SecondOpinion("ONNX's reference evaluator", partial(evaluated, path, graph))
    yield GraphCase(graph, source, second, tuple(knobs.sets))


def _exported_graphs(source: str, knobs: Knobs) -> Iterator[GraphCase | Refused]:
    """The graph of an exported program of PyTorch."""
    path = _whole(source, knobs, "an exported program")
    exported = load_exported(path)
    graph = _with_sizes(from_torch(exported), knobs)
    # Imported after `from_torch`, as above.
    from tilewright.frontends.torch.reference import eager_results

    second = SecondOpinion("PyTorch", partial(eager_results, exported))
    yield GraphCase(graph, source, second, tuple(knobs.sets))


def _with_sizes(graph: Graph, knobs: Knobs) -> Graph:
    """``graph`` for the sizes that are set; those that are open in it have to be set all or none.

    Raises `ProblemError` for a name that is none of them.
    """
    if not knobs.sets:
        return graph
    names = [scalar.name for scalar in graph.kernel.scalars]
    numbers = numbers_of(graph.kernel, knobs.sets)
    wrong = [word for word in knobs.sets if word.partition("=")[0] not in names]
    if wrong or len(numbers) < len(names) or not graph.closing:
        raise ProblemError(
            f"{' '.join(wrong or knobs.sets)} does not set the sizes",
            where="--set",
            why=f"those that calls pass are {' '.join(names)}" if names else "all are numbers",
            cure="set all of them" if names else "leave it out",
        )
    return graph.closing({name: int(number) for name, number in numbers.items()})


def _whole(source: str, knobs: Knobs, what: str) -> Path:
    """The file of ``source``, for formats with one graph in a file."""
    _refuse_contents(knobs)
    path, name = file_of(source)
    if name:
        raise ProblemError(
            f"{path} has no part {name!r}",
            where=f"graph {source}",
            why=f"{what} is one graph",
            cure=f"leave it out: graph {path}",
        )
    return path


def _entries(module: Module, name: str) -> list[Function]:
    """The functions of a module that can be run alone, or the one called ``name``."""
    if name:
        return [module.functions[name]] if name in module.functions else []
    main = module.entry()
    if main is not None:
        return [main]
    return [f for f in module.functions.values() if f.visibility != "private"]


def _refuse_contents(knobs: Knobs) -> None:
    options = knobs.given("constant", "contents")
    refuse_options("such a graph", options, why="it is for kernels in text")


Reader = Callable[[str, Knobs], Iterator[GraphCase | Refused]]
# By the ending of the file's name.
READERS: dict[str, Reader] = {
    ".tw": _text_graphs,
    ".mlir": _stablehlo_graphs,
    ".onnx": _onnx_graphs,
    ".pt2": _exported_graphs,
}


def only(cases: Sequence[GraphCase | Refused]) -> list[GraphCase]:
    """The graphs. Raises the error of the first refused file."""
    for case in cases:
        if isinstance(case, Refused):
            raise case.error
    return [case for case in cases if isinstance(case, GraphCase)]
