"""``tilewright profile``: where the time of a graph goes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tilewright.bench.floor import peaks_of
from tilewright.cli.graph_files import GraphCase, graphs_of, only
from tilewright.cli.graphs import program_of
from tilewright.cli.knobs import Knobs
from tilewright.cli.output import open_output
from tilewright.engine.operations import operations_of
from tilewright.errors import UnsupportedError
from tilewright.graph.listing import title
from tilewright.graph.program import GraphProgram, Timed
from tilewright.measure.peaks import Peaks
from tilewright.measure.stamp import stamped

# What a launch is called in a table at most.
_WIDEST = 48


@dataclass(frozen=True)
class Line:
    """A kernel of a program: how often it ran in a call, the seconds of all its runs, the least
    that the roofline allows (None: not known), what limits that, and what the graph calls it."""

    kernel: str
    runs: int
    seconds: float
    floor: float | None
    level: str
    titles: tuple[str, ...]


def profile_graphs(
    knobs: Knobs, trace: Path | None, calls: int, json_file: Path | None = None
) -> None:
    """Does what ``tilewright profile graph`` is asked for."""
    cases = only(list(graphs_of(knobs)))
    with ExitStack() as stack:
        output = open_output(stack, trace, "--trace")
        figures = open_output(stack, json_file, "--json")
        graphs: list[dict[str, Any]] = []
        events: list[dict[str, Any]] = []
        for number, case in enumerate(cases):
            program = program_of(knobs, case)
            if not program.target.runs_here:
                raise UnsupportedError(
                    f"kernels for {program.target.name} do not run here",
                    cure="choose another --target",
                )
            runs = timed_calls(program, case, calls)
            peaks = peaks_of(program.target, program.threads)
            print(f"# {case.arguments()}")
            found = lines(program, runs, peaks)
            print("\n".join(table(found)))
            graphs.append({"graph": case.arguments(), "kernels": [*map(asdict, found)]})
            events += _events(program, case.source, number, runs[-1])
        if figures is not None:
            figures.write(stamped(1, {"calls": calls, "graphs": graphs}))
        if output is not None:
            output.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())
            print(f"{output.path}: open it in https://ui.perfetto.dev")


def timed_calls(program: GraphProgram, case: GraphCase, calls: int) -> list[list[Timed]]:
    """So many calls, launch by launch, behind one that nobody looks at."""
    arguments = case.case(0).call(program)
    program.timed(**arguments)
    return [program.timed(**arguments) for _ in range(calls)]


def lines(
    program: GraphProgram, runs: Sequence[Sequence[Timed]], peaks: Peaks | None
) -> list[Line]:
    """A line for each kernel, the one that takes the longest first; the median of all calls."""
    found: list[Line] = []
    for number, group in enumerate(program.groups):
        mine = {n for n, each in enumerate(program.launches) if each.kernel == number}
        each = [[t.seconds for t in run if t.launch in mine] for run in runs]
        count = len(each[-1])
        floor, level = None, ""
        if peaks is not None:
            flops, element = operations_of(group.kernel)
            moved = sum(param.buffer.bytes for param in group.kernel.arrays)
            roof = peaks.roof(flops or 0, moved, element)
            floor, level = roof.seconds * count, roof.level or "arithmetic"
        titles = tuple(title(program.launches[n]) for n in sorted(mine))
        name = f"{group.kernel.name} {number}"
        found.append(Line(name, count, median(map(sum, each)), floor, level, titles))
    return sorted(found, key=lambda line: -line.seconds)


def table(found: Sequence[Line]) -> Iterator[str]:
    """The lines in words, and their sum."""
    total = sum(line.seconds for line in found)
    rows = [("kernel", "runs", "us", "%", "floor us", "of it", "by", "first of")]
    for line in found:
        rows.append(
            (
                line.kernel,
                str(line.runs),
                f"{1e6 * line.seconds:.1f}",
                f"{100 * line.seconds / total:.0f}",
                "" if line.floor is None else f"{1e6 * line.floor:.1f}",
                "" if line.floor is None else f"{100 * line.floor / line.seconds:.0f}%",
                line.level,
                _short(line.titles[0]) if line.titles else "",
            )
        )
    known = [line.floor for line in found if line.floor is not None]
    floor = f"{1e6 * sum(known):.1f}" if known else ""
    share = f"{100 * sum(known) / total:.0f}%" if known else ""
    runs = sum(line.runs for line in found)
    rows.append(("all", str(runs), f"{1e6 * total:.1f}", "100", floor, share, "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [each.rjust(w) for each, w in zip(row[1:-1], widths[1:-1], strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *cells, row[-1]]).rstrip()


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _events(
    program: GraphProgram, source: str, process: int, run: Sequence[Timed]
) -> Iterator[dict[str, Any]]:
    """A call in Chrome's format of traces, which Perfetto reads: times are in microseconds."""
    yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": source}}
    for each in run:
        launch = program.launches[each.launch]
        kernel = program.groups[launch.kernel].kernel
        place = None if launch.span is None else launch.span.place
        yield {
            "ph": "X",
            "pid": process,
            "tid": 0,
            "name": title(launch),
            "cat": kernel.name,
            "ts": 1e6 * each.start,
            "dur": 1e6 * each.seconds,
            "args": {
                "kernel": f"{kernel.name} {launch.kernel}",
                "buffers": [repr(buffer) for buffer in launch.buffers],
                **({} if place is None else {"at": place}),
            },
        }
