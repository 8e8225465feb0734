"""Reports of a benchmark run: a table for people, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tilewright.bench.benchmark import Row
from tilewright.bench.torch_tensors import load_torch
from tilewright.measure.peaks import Peaks
from tilewright.measure.stamp import stamp
from tilewright.targets.x86.assemble import host_cpu

SCHEMA = 2
# Width of a table in a file, which does not wrap.
_WIDTH = 250
_PADDING = 2
_NOISY = "noisy"
# Columns that always stay, and the order in which others are dropped (x: other peers').
_KEPT = ("ms", "ratio", _NOISY)
_LEAST_FIRST = (
    *("cached ms", "cold ms", "its call us", "call us", "GB/s", "its spread", "of best"),
    *("x", "GFLOP/s", "net", "spread", "% peak", "peer ms"),
)
# Least width of broken names.
_LEAST_NAME = 20
# Columns of a table that is printed row by row, and the least width of each.
_STREAMED = (
    *("ms", "spread", "peer ms", "its spread", "ratio", "of best", "net", _NOISY, "GFLOP/s"),
    *("GB/s", "% peak", "cold ms", "cached ms", "call us", "its call us"),
)
_CELL = 10


@dataclass(frozen=True)
class _Column:
    """A column of the table: its title and its cells."""

    title: str
    cells: list[str]

    @property
    def rank(self) -> str:
        """Its name in `_LEAST_FIRST`."""
        return "x" if self.title.startswith("x ") else self.title

    @property
    def width(self) -> int:
        return max(map(len, (self.title, *self.cells))) + _PADDING


def print_table(
    rows: Sequence[Row],
    peaks: Peaks,
    console: Console | None = None,
    doubts: Sequence[str] = (),
) -> None:
    """Prints a line per case, then the geometric mean and the worst of the ratios; ``doubts`` are
    the reasons to doubt the peaks."""
    print_rows(rows, _title(peaks), console, doubts)


def print_rows(
    rows: Sequence[Row],
    title: str,
    console: Console | None = None,
    doubts: Sequence[str] = (),
) -> None:
    """The same under ``title``. Columns that do not fit are dropped, the least important first; no
    number is shortened."""
    console = console if console is not None else Console()
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(title, highlight=False)
    for line in _doubtful(doubts):
        console.print(line, highlight=False, markup=False)
    names = [row.name for row in rows]
    columns, left_out = _fitting(_columns(rows), names, console.width)
    table = Table(box=None)
    table.add_column("case", overflow="fold")
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True, min_width=column.width - 2)
    for position, name in enumerate(names):
        table.add_row(escape(name), *(column.cells[position] for column in columns))
    console.print(table)
    notes = notes_of(rows)
    if left_out:
        notes.append("no room for " + ", ".join(left_out) + ": a wider terminal, or --json, has it")
    for note in notes:
        console.print(note, highlight=False, markup=False)


class RowLines:
    """A table that is printed row by row, for files and pipes: it shows progress, and survives an
    interrupt."""

    def __init__(self, names: Sequence[str], peaks: Peaks) -> None:
        """``names`` are those of all possible rows."""
        self._width = max(map(len, ("case", *names)))
        self._title = _title(peaks)
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Prints a row; ratios to other peers follow at its end."""
        if not self._rows:
            print(self._title)
            self._line("case", list(_STREAMED))
        self._rows.append(row)
        columns = _columns([row])
        cells = {column.title: column.cells[0] for column in columns}
        others = [f"{column.title}: {column.cells[0]}" for column in columns if column.rank == "x"]
        self._line(row.name, [cells.get(title, "") for title in _STREAMED], others)

    def end(self, doubts: Sequence[str]) -> None:
        """Prints the notes on all rows, if there are any."""
        for line in (*_doubtful(doubts), *notes_of(self._rows)) if self._rows else ():
            print(line, flush=True)

    def _line(self, name: str, cells: Sequence[str], others: Sequence[str] = ()) -> None:
        widths = [max(len(title), _CELL) for title in _STREAMED]
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        line = "  ".join([name.ljust(self._width), *padded, *others])
        print(line.rstrip(), flush=True)


def _doubtful(doubts: Sequence[str]) -> list[str]:
    return ["doubtful peaks: " + "; ".join(doubts)] if doubts else []


def notes_of(rows: Sequence[Row]) -> list[str]:
    """The notes below a table."""
    return [summary_line(rows), *_notes(rows)]


def _columns(rows: Sequence[Row]) -> list[_Column]:
    """All columns but the first one."""
    others = list(dict.fromkeys(name for row in rows for name in row.other_peers))
    columns = {
        "ms": [_number(row.ms, 4) for row in rows],
        "spread": [_percent(row.spread) for row in rows],
        "peer ms": [_number(row.peer_ms, 4) for row in rows],
        "its spread": [_percent(row.peer_spread) for row in rows],
        "ratio": [_number(row.ratio, 3) for row in rows],
        "of best": [_number(row.best_ratio, 3) for row in rows],
        "net": [_number(row.net_ratio, 3) for row in rows],
    }
    if any(row.noise for row in rows):
        columns[_NOISY] = [_NOISY if row.noise else "" for row in rows]
    for name in others:
        times = [(row.other_peers.get(name), row.ms) for row in rows]
        columns[f"x {name}"] = [_number(None if ms is None else ms / ours, 3) for ms, ours in times]
    columns |= {
        "GFLOP/s": [_number(row.gflops or None, 1) for row in rows],
        "GB/s": [_number(row.gbytes_per_second, 1) for row in rows],
        "% peak": [
            _number(row.peak_percent, 1) + (f" {row.level}" if row.level else "") for row in rows
        ],
        "cold ms": [_number(row.compile_cold_ms, 0) for row in rows],
        "cached ms": [_number(row.compile_cached_ms, 1) for row in rows],
        "call us": [_number(row.call_us, 2) for row in rows],
        "its call us": [_number(row.peer_call_us, 2) for row in rows],
    }
    return [_Column(title, cells) for title, cells in columns.items()]


def _fitting(
    columns: list[_Column], names: Sequence[str], width: int
) -> tuple[list[_Column], list[str]]:
    """The columns that fit, and the titles of the others."""
    # Names may be broken, but not into very short pieces.
    longest = min(max(map(len, ("case", *names))), _LEAST_NAME) + _PADDING
    columns, left_out = list(columns), []
    # Empty columns are dropped first.
    columns = [column for column in columns if set(column.cells) != {"-"} or column.title in _KEPT]
    while longest + sum(column.width for column in columns) > width:
        droppable = [column for column in columns if column.title not in _KEPT]
        if not droppable:
            break
        first = min(droppable, key=lambda column: _LEAST_FIRST.index(column.rank)).title
        columns = [column for column in columns if column.title != first]
        left_out.append(first)
    return columns, left_out


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """The noisy rows and the reasons, why rows have no peer, and the multiplying instructions."""
    noisy = [row for row in rows if row.noise]
    if noisy:
        more = f"; and {len(noisy) - 1} more, whose reasons --json has" if len(noisy) > 1 else ""
        yield f"noisy: {noisy[0].name}: " + "; ".join(noisy[0].noise) + more
    for title, reasons in (
        ("no peer", [row.no_peer for row in rows]),
        ("instruction", [row.instruction or None for row in rows]),
    ):
        names: dict[str, list[str]] = {}
        for row, reason in zip(rows, reasons, strict=True):
            if reason is not None:
                names.setdefault(reason, []).append(row.name)
        for reason, row_names in names.items():
            more = f" and {len(row_names) - 1} more" if len(row_names) > 1 else ""
            yield f"{title}: {row_names[0]}{more}: {reason}"


def summary_line(rows: Sequence[Row]) -> str:
    """``peer oneDNN: geometric mean 1.043, worst 0.912 (resnet_50:conv1), of 20; without what calls
    cost 0.981, of 12; 3 noisy, without them 1.050``. If all are noisy, the least times count."""
    figures = summary(rows)
    if not figures["compared"]:
        return f"{len(rows)} measured, nothing to compare with"
    if figures["noisy"] == figures["compared"] and figures["best_geometric_mean"] is not None:
        # The best time of a side is the undisturbed one.
        least, medians = figures["best_geometric_mean"], figures["geometric_mean"]
        return (
            f"peer {figures['peer']}: geometric mean of the least times {least:.3f}, of "
            f"{figures['compared']}, which are all noisy; of the medians {medians:.3f}"
        )
    parts = [
        f"peer {figures['peer']}: geometric mean {figures['geometric_mean']:.3f}, "
        f"worst {figures['worst']:.3f} ({figures['worst_case']}), of {figures['compared']}"
    ]
    if figures["net_compared"]:
        net, count = figures["net_geometric_mean"], figures["net_compared"]
        parts.append(f"without what calls cost {net:.3f}, of {count}")
    if figures["noisy"]:
        quiet = figures["quiet_geometric_mean"]
        without_noisy = "" if quiet is None else f", without them {quiet:.3f}"
        parts.append(f"{figures['noisy']} noisy{without_noisy}")
    return "; ".join(parts)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The ratios of the rows that have a peer; None for figures without any."""
    compared = [row for row in rows if row.ratio is not None]
    ratios = [row.ratio for row in compared if row.ratio is not None]
    net = [row.net_ratio for row in compared if row.net_ratio is not None]
    best = [row.best_ratio for row in compared if row.best_ratio is not None]
    quiet = [row.ratio for row in compared if row.ratio is not None and not row.noise]
    worst = min(compared, key=lambda row: row.ratio or 0.0, default=None)
    return {
        "compared": len(compared),
        "peer": ", ".join(dict.fromkeys(row.peer for row in compared if row.peer)) or None,
        "geometric_mean": geometric_mean(ratios) if ratios else None,
        "worst": min(ratios, default=None),
        "worst_case": worst.name if worst else None,
        "net_compared": len(net),
        "net_geometric_mean": geometric_mean(net) if net else None,
        "noisy": len(compared) - len(quiet),
        "quiet_geometric_mean": geometric_mean(quiet) if quiet else None,
        "best_geometric_mean": geometric_mean(best) if best else None,
    }


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def as_json(
    rows: Sequence[Row], peaks: Peaks, complete: bool = True, doubts: Sequence[str] = ()
) -> dict[str, Any]:
    """All measured figures, and the machine; ``complete`` unless the run was cut off; ``doubts``
    are the reasons to doubt the peaks."""
    torch = load_torch()
    return {
        **stamp(SCHEMA, peaks.device),
        "torch": None if torch is None else str(torch.__version__),
        "threads": peaks.threads,
        "peaks": {
            "gflops": dict(peaks.gflops),
            "gbytes_per_second": dict(peaks.bandwidth),
            "doubts": list(doubts),
        },
        "complete": complete,
        "rows": [row.as_json() for row in rows],
        "summary": summary(rows),
    }


def json_text(
    rows: Sequence[Row], peaks: Peaks, complete: bool = True, doubts: Sequence[str] = ()
) -> bytes:
    """`as_json` as the contents of a file."""
    return (json.dumps(as_json(rows, peaks, complete, doubts), indent=1) + "\n").encode()


def _title(peaks: Peaks) -> str:
    compute = ", ".join(f"{kind} {value:.0f}" for kind, value in peaks.gflops.items())
    memory = ", ".join(f"{level} {value:.0f}" for level, value in peaks.bandwidth.items())
    kind = "peak figures" if peaks.device else "measured peaks"
    return f"{machine_title(peaks)}; {kind}: {compute} GFLOP/s; {memory} GB/s"


def machine_title(peaks: Peaks) -> str:
    """``znver4, 2 threads``, or ``gpu NVIDIA H100, torch 2.13.0``."""
    if peaks.device:
        return ", ".join(f"{kind} {value}" for kind, value in peaks.device.items())
    return f"{host_cpu()}, {peaks.threads} thread{'s' if peaks.threads > 1 else ''}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f}%"
