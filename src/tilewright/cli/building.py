"""``tilewright build graph``: graphs as files for programs without Python."""

from __future__ import annotations

from pathlib import Path

from tilewright.cli.files import make_folder
from tilewright.cli.graph_files import GraphCase, graphs_of, only
from tilewright.cli.graphs import program_of
from tilewright.cli.kernels import file_of
from tilewright.cli.knobs import Knobs, refuse_options
from tilewright.errors import ProblemError
from tilewright.graph.exporting import export_programs
from tilewright.targets.c_names import unique_names


def build_graphs(knobs: Knobs, output: Path, name: str | None) -> None:
    """Carries out ``tilewright build graph``."""
    refuse_options(
        "build graph",
        knobs.given("constant"),
        why="what packs arguments would have to be written, too",
        cure="leave it out; constants of the graph itself are packed",
    )
    cases = only(list(graphs_of(knobs)))
    files = list(dict.fromkeys(file_of(case.source)[0] for case in cases))
    if name is None and len(files) != 1:
        raise ProblemError(
            f"{len(files)} files are given",
            where="--name",
            why="all their graphs become one, which needs a name",
            cure="give --name",
        )
    name = unique_names([files[0].stem])[0] if name is None else name
    make_folder(output, "--output")
    programs = dict(zip(_names(cases), (program_of(knobs, case) for case in cases), strict=True))
    export_programs(programs, output, name)
    for symbol, (title, program) in zip(unique_names(programs), programs.items(), strict=True):
        print(f"{output}: {name}_{symbol} ({title}), arena of {program.plan.arena} bytes")
    first = next(iter(programs.values()))
    print(f"  runs on {first.target.made_for}")


def _names(cases: list[GraphCase]) -> list[str]:
    """What the graphs are called in their files, each once."""
    names: list[str] = []
    for case in cases:
        base = name = case.graph.kernel.name
        number = 2
        while name in names:
            name, number = f"{base}_{number}", number + 1
        names.append(name)
    return names
