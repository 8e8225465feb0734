"""Graphs of the command line: read from files."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.cli.kernels import draws, kernel_cases
from tilewright.cli.knobs import Knobs
from tilewright.errors import ProblemError, TilewrightError
from tilewright.graph.graph import Graph
from tilewright.testing.kernel_case import KernelCase


@dataclass(frozen=True, eq=False)
class GraphCase:
    """A graph of a file. ``source`` is its place on the command line, ``FILE`` or ``FILE:NAME``."""

    graph: Graph
    source: str

    def case(self, seed: int) -> KernelCase:
        """It as a kernel, with contents that it may be called on."""
        found = KernelCase(self.graph.kernel, self.source, {}, self.graph.constant, seed)
        return next(draws(found, 1, seed))

    def arguments(self, seed: int = 0) -> str:
        """The arguments that ask for this, shell-quoted."""
        return shlex.join(["graph", *([f"--seed={seed}"] if seed else []), self.source])


@dataclass(frozen=True)
class Refused:
    """A file that is no graph that could be compiled, and why."""

    source: str
    error: TilewrightError

    def arguments(self, seed: int = 0) -> str:
        """The arguments that ask for this, shell-quoted."""
        return shlex.join(["graph", self.source])


def graphs_of(knobs: Knobs) -> Iterator[GraphCase | Refused]:
    """The graphs of the files that the options name, in order; those that cannot be read, too.

    Raises `ProblemError` for options that graphs do not have, and where there is no file.
    """
    useless = [*knobs.texts, *(["batch"] if knobs.batch is not None else [])]
    useless += ["set"] if knobs.sets else []
    useless += ["config"] if knobs.config is not None else []
    for name in useless:
        raise ProblemError(f"graph takes no --{name}", where=f"--{name}", cure="leave it out")
    if not knobs.descriptors:
        raise ProblemError(
            "there is nothing to do",
            where="the command line",
            cure="give files with graphs: graph FILE, of " + ", ".join(READERS),
        )
    for source in knobs.descriptors:
        try:
            yield from _read(source, knobs)
        except TilewrightError as error:
            yield Refused(source, error)


def _read(source: str, knobs: Knobs) -> list[GraphCase]:
    path = Path(source) if Path(source).exists() else Path(source.rpartition(":")[0] or source)
    if path.suffix not in READERS:
        raise ProblemError(
            f"{path} is no file of a graph that is known",
            where=f"graph {source}",
            why=f"its name ends in {path.suffix!r}" if path.suffix else "its name has no ending",
            cure="give a file that ends in one of " + ", ".join(READERS),
        )
    return list(READERS[path.suffix](source, knobs))


def _of_text(source: str, knobs: Knobs) -> Iterator[GraphCase]:
    """Kernels in text, each as a graph."""
    for case in kernel_cases([source], (), knobs.constant, knobs.contents):
        yield GraphCase(Graph(case.kernel, case.constant), case.source)


Reader = Callable[[str, Knobs], Iterator[GraphCase]]
# By how the name of a file ends.
READERS: dict[str, Reader] = {".tw": _of_text}


def only(found: Sequence[GraphCase | Refused]) -> list[GraphCase]:
    """The graphs. Raises the error of the first that cannot be read."""
    for each in found:
        if isinstance(each, Refused):
            raise each.error
    return [each for each in found if isinstance(each, GraphCase)]
