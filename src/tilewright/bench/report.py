"""What a benchmark run says: a table for people, JSON for programs."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from tilewright.bench.benchmark import Row
from tilewright.bench.peaks import Peaks
from tilewright.bench.torch_tensors import load_torch
from tilewright.targets.x86.assemble import host_cpu

SCHEMA = 1
# A table that goes to a file does not wrap.
_WIDTH = 200


def print_table(rows: Sequence[Row], peaks: Peaks, console: Console | None = None) -> None:
    """Prints one line a case, then the geometric mean and the worst of the ratios."""
    print_rows(rows, _title(peaks), console)


def print_rows(rows: Sequence[Row], title: str, console: Console | None = None) -> None:
    """The same for what ``title`` says."""
    console = console if console is not None else Console()
    if not console.is_terminal:
        console.width = _WIDTH
    others = list(dict.fromkeys(name for row in rows for name in row.other_peers))
    console.print(title, highlight=False)
    table = Table(box=None)
    table.add_column("case", no_wrap=True)
    columns = ["ms", "peer ms", "ratio", *(f"x {name}" for name in others)]
    columns += ["GFLOP/s", "GB/s", "% peak", "cold ms", "cached ms", "call us"]
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        seconds = [row.other_peers.get(name) for name in others]
        table.add_row(
            row.name,
            _number(row.ms, 4),
            _number(row.peer_ms, 4),
            _number(row.ratio, 3),
            *(_number(None if ms is None else ms / row.ms, 3) for ms in seconds),
            _number(row.gflops or None, 1),
            _number(row.gbytes_per_second, 1),
            _number(row.peak_percent, 1) + (f" {row.level}" if row.level else ""),
            _number(row.compile_cold_ms, 0),
            _number(row.compile_cached_ms, 1),
            _number(row.call_us, 2),
        )
    console.print(table)
    console.print(summary_line(rows), highlight=False)


def summary_line(rows: Sequence[Row]) -> str:
    """``peer oneDNN: geometric mean 1.043, worst 0.912 (resnet_50:conv1), of 20``."""
    found = summary(rows)
    if not found["compared"]:
        return f"{len(rows)} measured, nothing to compare with"
    return (
        f"peer {found['peer']}: geometric mean {found['geometric_mean']:.3f}, "
        f"worst {found['worst']:.3f} ({found['worst_case']}), of {found['compared']}"
    )


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The ratios of those rows that have a peer; None where there are none."""
    compared = [row for row in rows if row.ratio is not None]
    ratios = [row.ratio for row in compared if row.ratio is not None]
    worst = min(compared, key=lambda row: row.ratio or 0.0, default=None)
    return {
        "compared": len(compared),
        "peer": ", ".join(dict.fromkeys(row.peer for row in compared if row.peer)) or None,
        "geometric_mean": geometric_mean(ratios) if ratios else None,
        "worst": min(ratios, default=None),
        "worst_case": worst.name if worst else None,
    }


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def as_json(rows: Sequence[Row], peaks: Peaks, complete: bool = True) -> dict[str, Any]:
    """Everything that was measured, and on what; ``complete`` unless there was more to measure."""
    torch = load_torch()
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": host_cpu(), "system": platform.platform()},
        "torch": None if torch is None else str(torch.__version__),
        "threads": peaks.threads,
        "peaks": {
            "gflops": dict(peaks.gflops),
            "gbytes_per_second": dict(peaks.bandwidth),
        },
        "complete": complete,
        "rows": [row.as_json() for row in rows],
        "summary": summary(rows),
    }


def json_text(rows: Sequence[Row], peaks: Peaks, complete: bool = True) -> bytes:
    """`as_json` as a file holds it."""
    return (json.dumps(as_json(rows, peaks, complete), indent=1) + "\n").encode()


def _title(peaks: Peaks) -> str:
    compute = ", ".join(f"{kind} {value:.0f}" for kind, value in peaks.gflops.items())
    memory = ", ".join(f"{level} {value:.0f}" for level, value in peaks.bandwidth.items())
    threads = f"{peaks.threads} thread{'s' if peaks.threads > 1 else ''}"
    return f"{host_cpu()}, {threads}; measured peaks: {compute} GFLOP/s; {memory} GB/s"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
