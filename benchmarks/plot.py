"""Draws the ratios in ``docs/benchmarks.md`` as bars, into ``docs/results.svg``.

    python benchmarks/plot.py

Needs matplotlib. Bars are the geometric means of three tables: convolutions on one thread, what is
no contraction in f32 on one thread, and models on the newest machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
# Of each table that is drawn: its heading, what the legend says of it, the column of ratios.
TABLES = (
    (
        "Convolutions and products, beside oneDNN",
        "convolutions of ResNet-50, beside oneDNN",
        2,
    ),
    ("What is no contraction, beside PyTorch", "f32, beside PyTorch and torch.compile", 1),
    ("Whole models, beside PyTorch", "models, f32, beside PyTorch", 6),
)


def rows(page: str, heading: str, column: int) -> Iterator[tuple[str, float]]:
    """Name and ratio of each row that has one; of work on several threads, that on one."""
    _, _, rest = page.partition(f"## {heading}\n")
    for line in rest.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > column and re.match(r"\d+\.\d+( \(|$)", cells[column]) and cells[1] != "2":
            yield cells[0].replace("`", ""), float(cells[column].split()[0])


def main() -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    matplotlib.rcParams.update({"svg.hashsalt": "results", "svg.fonttype": "none"})
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    drawn = [(label, dict(rows(page, heading, column))) for heading, label, column in TABLES]
    count = sum(len(ratios) for _, ratios in drawn)
    figure, axes = plt.subplots(figsize=(9, 0.28 * count + 0.8), layout="constrained")
    for label, ratios in drawn:
        bars = axes.barh(list(ratios), list(ratios.values()), label=label)
        axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.legend(frameon=False)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("the peer's time by ours: above 1, Tilewright is faster")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / "results.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
