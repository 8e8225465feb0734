"""A roofline plot: measured rates under the machine's peaks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.bench.benchmark import Row
from tilewright.bench.report import machine_title
from tilewright.errors import UnsupportedError
from tilewright.measure.peaks import Peaks


def plot_format(path: Path) -> str:
    """The format of a plot in the file ``path``, by its suffix.

    Raises `UnsupportedError` without matplotlib, or for a format that it lacks.
    """
    _, figure = _axes()
    formats = figure.canvas.get_supported_filetypes()
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in formats:
        raise UnsupportedError(
            f"cannot draw {path.name}",
            why=f"there is no format {path.suffix!r}",
            cure="name it .png, .svg or .pdf",
        )
    return suffix


@dataclass(frozen=True)
class Line:
    """A piece of a roof, from one point (FLOPs per byte, GFLOP/s) to another."""

    name: str
    start: tuple[float, float]
    end: tuple[float, float]


def roofs(peaks: Peaks, low: float, high: float) -> tuple[list[Line], list[Line]]:
    """The slopes of memories and the ceilings of arithmetic from intensity ``low`` to ``high``,
    each only where it bounds: below the highest ceiling, and right of the steepest slope."""
    top, steepest = max(peaks.gflops.values()), max(peaks.bandwidth.values())
    slopes = [
        Line(level, (low, width * low), (end, width * end))
        for level, width in peaks.bandwidth.items()
        if (end := min(high, top / width)) > low
    ]
    ceilings = [
        Line(kind, (start, limit), (high, limit))
        for kind, limit in peaks.gflops.items()
        if (start := max(low, limit / steepest)) < high
    ]
    return slopes, ceilings


def plot(rows: Sequence[Row], peaks: Peaks, suffix: str) -> bytes:
    """A file of the format ``suffix`` with GFLOP/s over FLOPs per byte, ours and the peer's; rows
    that are noisy are hollow.

    Raises `UnsupportedError` without matplotlib.
    """
    axes, figure = _axes()
    _draw(axes, rows, peaks)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=suffix, dpi=150)
    return drawn.getvalue()


def _draw(axes: Any, rows: Sequence[Row], peaks: Peaks) -> None:
    points = [(row.flops / row.bytes, row) for row in rows if row.flops and row.bytes]
    intensities = [intensity for intensity, _ in points] or [1.0]
    # The end of the slowest memory's slope is always visible.
    ridge = max(peaks.gflops.values()) / min(peaks.bandwidth.values())
    low, high = min(*intensities, ridge) / 2, 2 * max(*intensities, ridge)
    slopes, ceilings = roofs(peaks, low, high)
    for line in slopes:
        axes.plot(*zip(line.start, line.end, strict=True), lw=0.8, label=line.name)
    for line in ceilings:
        axes.plot(*zip(line.start, line.end, strict=True), lw=0.8, ls="--", color="gray")
        axes.annotate(line.name, line.end, ha="right", va="bottom", fontsize=8)
    # A side has one color in all rows, noisy or not.
    ours = [(intensity, row.gflops, bool(row.noise)) for intensity, row in points]
    theirs = [(i, row.gflops / row.ratio, bool(row.noise)) for i, row in points if row.ratio]
    _scatter(axes, "tilewright", ours, marker="o", color="C4")
    _scatter(axes, "peer", theirs, marker="s", color="C5")
    for intensity, row in points:
        axes.annotate(
            row.name,
            (intensity, row.gflops),
            xytext=(3, 3),
            textcoords="offset points",
            fontsize=6,
            parse_math=False,
        )
    axes.set(xscale="log", yscale="log", xlabel="valid FLOPs per byte", ylabel="GFLOP/s")
    axes.set_xlim(low, high)
    axes.set_ylim(top=2 * max(peaks.gflops.values()))
    axes.set_title(machine_title(peaks), fontsize=10)
    axes.legend(fontsize=8)


def _scatter(
    axes: Any, label: str, points: Sequence[tuple[float, float, bool]], marker: str, color: str
) -> None:
    """Points of one side; those that are noisy are hollow."""
    for noisy in (False, True):
        shown = [(x, y) for x, y, hollow in points if hollow == noisy]
        if shown:
            axes.scatter(
                *zip(*shown, strict=True),
                marker=marker,
                facecolors="none" if noisy else color,
                edgecolors=color,
                label=f"{label}, noisy" if noisy else label,
            )


def _axes() -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError(
            "plots need matplotlib", cure="pip install 'tilewright[plot]', or leave --plot out"
        ) from error
    figure: Any = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.subplots(), figure
