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
from tilewright.cli.files import open_output
from tilewright.cli.graph_files import graphs_of, only
from tilewright.cli.graphs import program_of, timed_calls
from tilewright.cli.knobs import Knobs
from tilewright.engine.operations import operations_of
from tilewright.graph.listing import title
from tilewright.graph.program import GraphProgram, Timed
from tilewright.measure.peaks import Peaks
from tilewright.measure.stamp import stamped
from tilewright.predict.time import predicted
from tilewright.tables import aligned

# The greatest length of a launch's name in a table.
_WIDEST = 48


@dataclass(frozen=True)
class Line:
    """A kernel of a program: its runs in a call, the seconds of all of them, the least that the
    roofline allows (None: unknown), the bound on that, its names in the graph, and the seconds that
    were predicted (None: no model says)."""

    kernel: str
    runs: int
    seconds: float
    floor: float | None
    level: str
    titles: tuple[str, ...]
    predicted: float | None


def profile_graphs(
    knobs: Knobs, trace: Path | None, calls: int, json_file: Path | None = None
) -> None:
    """Carries out ``tilewright profile graph``."""
    cases = only(list(graphs_of(knobs)))
    with ExitStack() as stack:
        output = open_output(stack, trace, "--trace")
        figures = open_output(stack, json_file, "--json")
        graphs: list[dict[str, Any]] = []
        events: list[dict[str, Any]] = []
        for number, case in enumerate(cases):
            program = program_of(knobs, case)
            runs = timed_calls(program, case, calls)
            peaks = peaks_of(program.target, program.threads)
            print(f"# {case.arguments()}")
            kernel_lines = lines(program, runs, peaks)
            print("\n".join(table(kernel_lines)))
            graphs.append({"graph": case.arguments(), "kernels": [*map(asdict, kernel_lines)]})
            events += _events(program, case.source, number, runs[-1])
        if figures is not None:
            figures.write(stamped(1, {"calls": calls, "graphs": graphs}))
        if output is not None:
            output.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())
            print(f"{output.path}: open it in https://ui.perfetto.dev")


def lines(
    program: GraphProgram, runs: Sequence[Sequence[Timed]], peaks: Peaks | None
) -> list[Line]:
    """A line for each kernel, the longest first; the median of all calls."""
    result: list[Line] = []
    for number, group in enumerate(program.groups):
        numbers = {n for n, launch in enumerate(program.launches) if launch.kernel == number}
        seconds = [[t.seconds for t in run if t.launch in numbers] for run in runs]
        count = len(seconds[-1])
        floor, level = None, ""
        if peaks is not None:
            flops, element = operations_of(group.kernel)
            moved = sum(param.buffer.bytes for param in group.kernel.arrays)
            roof = peaks.roof(flops or 0, moved, element)
            floor, level = roof.seconds * count, roof.level or "arithmetic"
        titles = tuple(title(program.launches[n]) for n in sorted(numbers))
        name = f"{group.kernel.name} {number}"
        time = predicted(group.compiled.schedule.kernel, program.target.machine)
        expected = None if time is None else time.seconds * count
        line = Line(name, count, median(map(sum, seconds)), floor, level, titles, expected)
        result.append(line)
    return sorted(result, key=lambda line: -line.seconds)


def table(kernel_lines: Sequence[Line]) -> list[str]:
    """The lines as a table, and their sum."""
    total = sum(line.seconds for line in kernel_lines)
    rows = [("kernel", "runs", "us", "%", "predicted us", "floor us", "of it", "by", "first of")]
    for line in kernel_lines:
        rows.append(
            (
                line.kernel,
                str(line.runs),
                f"{1e6 * line.seconds:.1f}",
                f"{100 * line.seconds / total:.0f}" if total else "",
                _microseconds(line.predicted),
                _microseconds(line.floor),
                # A launch may be shorter than a tick of the clock.
                f"{100 * line.floor / line.seconds:.0f}%" if line.floor and line.seconds else "",
                line.level,
                _short(line.titles[0]) if line.titles else "",
            )
        )
    floors = [line.floor for line in kernel_lines if line.floor is not None]
    times = [line.predicted for line in kernel_lines if line.predicted is not None]
    expected = _microseconds(sum(times) if times else None)
    floor = _microseconds(sum(floors) if floors else None)
    share = f"{100 * sum(floors) / total:.0f}%" if floors else ""
    runs = sum(line.runs for line in kernel_lines)
    rows.append(("all", str(runs), f"{1e6 * total:.1f}", "100", expected, floor, share, "", ""))
    return aligned(rows, right=range(1, len(rows[0]) - 1))


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e6 * seconds:.1f}"


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _events(
    program: GraphProgram, source: str, process: int, run: Sequence[Timed]
) -> Iterator[dict[str, Any]]:
    """A call in Chrome's trace format, which Perfetto reads: times are in microseconds."""
    yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": source}}
    for timed in run:
        launch = program.launches[timed.launch]
        kernel = program.groups[launch.kernel].kernel
        place = None if launch.span is None else launch.span.place
        yield {
            "ph": "X",
            "pid": process,
            "tid": 0,
            "name": title(launch),
            "cat": kernel.name,
            "ts": 1e6 * timed.start,
            "dur": 1e6 * timed.seconds,
            "args": {
                "kernel": f"{kernel.name} {launch.kernel}",
                "buffers": [repr(buffer) for buffer in launch.buffers],
                **({} if place is None else {"at": place}),
            },
        }
