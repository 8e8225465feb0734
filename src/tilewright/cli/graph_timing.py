"""``tilewright bench`` of graphs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewright.cli.files import open_output
from tilewright.cli.graph_files import GraphCase, graphs_of, only
from tilewright.cli.graphs import program_of, timed_calls
from tilewright.cli.knobs import Knobs, refuse_options
from tilewright.cli.profiling import lines
from tilewright.cli.progress import progress
from tilewright.config import cache_in
from tilewright.engine.compile import forget
from tilewright.errors import UnsupportedError
from tilewright.graph.compiling import compile_graph
from tilewright.graph.program import GraphProgram
from tilewright.graph.stored import forget_cuts
from tilewright.measure.rounds import Measured, measure
from tilewright.measure.stamp import stamped
from tilewright.tables import aligned
from tilewright.targets.registry import find_target

# Calls whose launches are timed one by one.
_CALLS = 5


@dataclass(frozen=True)
class Row:
    """The figures of a graph. Times are in seconds, memory in bytes; ``cold_seconds`` is the time
    of compiling with an empty cache, ``cached_seconds`` with the disk cache that it leaves.
    ``kernels`` are the times of all runs of each kernel, launched one by one: None if the target
    does not support that."""

    graph: str
    seconds: dict[str, float]
    spread: dict[str, float]
    noise: tuple[str, ...]
    launches: int
    arena_bytes: int
    live_bytes: int
    cold_seconds: float
    cached_seconds: float
    kernels: list[dict[str, Any]] | None

    def cells(self, kernels: int, peer: str) -> list[str]:
        """The row as cells of a table."""
        cells = [self.graph, f"{1e3 * self.seconds['ours']:.4g}", f"{self.spread['ours']:.0%}"]
        if peer:
            theirs = self.seconds[peer]
            cells += [f"{1e3 * theirs:.4g}", f"{theirs / self.seconds['ours']:.2f}"]
        cells += [str(kernels), str(self.launches)]
        cells += [f"{size / 1e6:.3g}" for size in (self.arena_bytes, self.live_bytes)]
        cells += [f"{time:.2f}" for time in (self.cold_seconds, self.cached_seconds)]
        return [*cells, "noisy" if self.noise else ""]


def bench_graphs(
    knobs: Knobs, file: Path | None, seconds: float, peer: str, unused: Sequence[tuple[str, Any]]
) -> None:
    """Carries out ``tilewright bench graph``."""
    refuse_options("graph", (name for name, value in unused if value))
    # PyTorch does not read these graphs.
    peer = "" if peer in ("auto", "none") else peer
    if peer:
        find_target(peer)
    cases = only(list(graphs_of(knobs)))
    theirs = [f"{peer} ms", "ratio"] if peer else []
    table = [["graph", "ms", "spread", *theirs, "kernels", "launches", "arena MB", "live MB"]]
    table[0] += ["cold s", "cached s", ""]
    rows: list[Row] = []
    with ExitStack() as stack:
        output = open_output(stack, file, "--json")
        for case in progress(cases, len(cases), "bench"):
            program, row = _measured(knobs, case, seconds, peer)
            rows.append(row)
            table.append(row.cells(len(program.groups), peer))
        print("\n".join(aligned(table, right=range(1, len(table[0]) - 1))))
        if output is not None:
            data = {"target": program.target.name, "threads": program.threads}
            output.write(stamped(1, data | {"graphs": [*map(asdict, rows)]}))


def _measured(knobs: Knobs, case: GraphCase, seconds: float, peer: str) -> tuple[GraphProgram, Row]:
    with tempfile.TemporaryDirectory() as folder, cache_in(Path(folder)):
        _forget()
        cold = program_of(knobs, case).compile_seconds
        _forget()
        program = program_of(knobs, case)
    measured = _times(knobs, case, program, seconds, peer)
    row = Row(
        case.source,
        {side: timing.median for side, timing in measured.times.items()},
        {side: timing.spread for side, timing in measured.times.items()},
        measured.noise,
        len(program.launches),
        program.arena.bytes,
        program.arena.live,
        cold,
        program.compile_seconds,
        _kernels(program, case),
    )
    return program, row


def _forget() -> None:
    """Drops compiled kernels from memory, as in a new process."""
    forget()
    forget_cuts()


def _times(
    knobs: Knobs, case: GraphCase, program: GraphProgram, seconds: float, peer: str
) -> Measured:
    sides = {"ours": program.bind(**case.case(0).call(program))}
    if peer:
        other = compile_graph(case.graph, peer, knobs.threads, knobs.constant)
        sides[peer] = other.bind(**case.case(0).call(other))
    return measure(sides, seconds=seconds, threads=program.threads)


def _kernels(program: GraphProgram, case: GraphCase) -> list[dict[str, Any]] | None:
    try:
        runs = timed_calls(program, case, _CALLS)
    except UnsupportedError:
        return None
    return [
        {"kernel": line.kernel, "runs": line.runs, "seconds": line.seconds, "computes": line.titles}
        for line in lines(program, runs, None)
    ]
