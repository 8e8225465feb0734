"""A roofline plot: what was reached, under what the machine can do."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.bench.benchmark import Row
from tilewright.errors import UnsupportedError
from tilewright.measure.peaks import Peaks


def plot_format(path: Path) -> str:
    """The format of a plot in the file ``path``, by its suffix.

    Raises `UnsupportedError` without matplotlib, or for a format that it lacks.
    """
    _, figure = _axes()
    known = figure.canvas.get_supported_filetypes()
    found = path.suffix.removeprefix(".").lower()
    if found not in known:
        raise UnsupportedError(
            f"cannot draw {path.name}",
            why=f"there is no format {path.suffix!r}",
            cure="name it .png, .svg or .pdf",
        )
    return found


def plot(rows: Sequence[Row], peaks: Peaks, suffix: str) -> bytes:
    """A file of the format ``suffix`` with GFLOP/s over FLOPs per byte, ours and the peer's.

    Raises `UnsupportedError` without matplotlib.
    """
    axes, figure = _axes()
    points = [row for row in rows if row.flops and row.bytes]
    intensities = [row.flops / row.bytes for row in points] or [1.0]
    low, high = min(intensities) / 2, max(intensities) * 2
    for level, bandwidth in peaks.bandwidth.items():
        axes.plot([low, high], [bandwidth * low, bandwidth * high], lw=0.8, label=f"{level}")
    for kind, limit in peaks.gflops.items():
        axes.axhline(limit, lw=0.8, ls="--", color="gray")
        axes.annotate(kind, (high, limit), ha="right", va="bottom", fontsize=8)
    for label, marker, reached in (
        ("tilewright", "o", [row.gflops for row in points]),
        ("peer", "x", [row.gflops / row.ratio if row.ratio else None for row in points]),
    ):
        shown = [(i, r) for i, r in zip(intensities, reached, strict=False) if r is not None]
        axes.scatter([i for i, _ in shown], [r for _, r in shown], marker=marker, label=label)
    axes.set(xscale="log", yscale="log", xlabel="valid FLOPs per byte", ylabel="GFLOP/s")
    axes.set_ylim(top=2 * max(peaks.gflops.values(), default=1.0))
    axes.legend(fontsize=8)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=suffix, dpi=150)
    return drawn.getvalue()


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
