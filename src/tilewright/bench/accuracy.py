"""How well predicted times fit measured ones, kind by kind, and what choosing by them costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tilewright.bench.timed_records import TimedRecord

ALL = "all"
_WIDTH = 120
# The title and the form of each column of the table, by its field.
_COLUMNS: Mapping[str, tuple[str, str]] = {
    "kernels": ("kernels", "d"),
    "problems": ("problems", "d"),
    "rank": ("rank", ".3f"),
    "ratio": ("ratio", ".3f"),
    "error": ("error", ".1%"),
    "regret": ("regret", ".1%"),
    "worst": ("worst", ".1%"),
    "chosen": ("chosen", ".1%"),
    "chosen_worst": ("worst", ".1%"),
}


@dataclass(frozen=True)
class Accuracy:
    """How predicted times of a ``kind`` of kernels fit.

    ``rank`` is Spearman's correlation of predicted and measured times, ``ratio`` the geometric mean
    of the former over the latter, and ``error`` the mean of how far off they are: ``max(ratio, 1 /
    ratio) - 1``, by its logarithm. The regret of a problem is how much longer than the best of its
    measured configs one takes: ``regret`` that of the default, on average, and ``worst`` the
    greatest; ``chosen`` and ``chosen_worst`` those of the config whose predicted time is least.
    Regrets are of the ``problems`` with two configs or more, None where there are none; the
    correlation of a single kernel is None.
    """

    kind: str
    kernels: int
    problems: int
    rank: float | None
    ratio: float
    error: float
    regret: float | None
    worst: float | None
    chosen: float | None
    chosen_worst: float | None


def accuracy(
    records: Sequence[TimedRecord], predicted: Callable[[TimedRecord], float]
) -> list[Accuracy]:
    """The accuracy of ``predicted``, the seconds that a model says of a record, on ``records``: a
    row for each kind, in the order in which these come, and the last one for all of them."""
    seconds = [predicted(record) for record in records]
    pairs = list(zip(records, seconds, strict=True))
    kinds = dict.fromkeys(record.kind for record in records)
    rows = [_row(kind, [pair for pair in pairs if pair[0].kind == kind]) for kind in kinds]
    return [*rows, _row(ALL, pairs)] if rows else []


def _row(kind: str, pairs: Sequence[tuple[TimedRecord, float]]) -> Accuracy:
    measured = np.array([record.seconds for record, _ in pairs])
    logarithms = np.log(np.array([seconds for _, seconds in pairs]) / measured)
    problems: dict[tuple[str, str, int], list[tuple[TimedRecord, float]]] = {}
    for pair in pairs:
        problems.setdefault(pair[0].run, []).append(pair)
    several = [group for group in problems.values() if len(group) > 1]
    defaults = [_regret(group, lambda pair: not pair[0].default) for group in several]
    chosen = [_regret(group, lambda pair: pair[1]) for group in several]
    return Accuracy(
        kind,
        len(pairs),
        len(several),
        rank_correlation([seconds for _, seconds in pairs], measured),
        float(np.exp(np.mean(logarithms))),
        math.expm1(float(np.mean(np.abs(logarithms)))),
        _mean(defaults),
        max(defaults, default=None),
        _mean(chosen),
        max(chosen, default=None),
    )


def _regret(
    group: Sequence[tuple[TimedRecord, float]],
    preference: Callable[[tuple[TimedRecord, float]], float],
) -> float:
    """How much longer than the best the config takes that ``preference`` has for the least."""
    best = min(record.seconds for record, _ in group)
    return min(group, key=preference)[0].seconds / best - 1


def _mean(regrets: Sequence[float]) -> float | None:
    return sum(regrets) / len(regrets) if regrets else None


def rank_correlation(first: Sequence[float], second: Any) -> float | None:
    """Spearman's: the correlation of the ranks, where equal numbers share the mean of theirs. None
    where either has one number only, or all the same."""
    ranks = [_ranks(np.asarray(values, float)) for values in (first, second)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Any) -> Any:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]


def print_accuracy(rows: Sequence[Accuracy], console: Console | None = None) -> None:
    """Prints a line for each row."""
    console = console if console is not None else Console()
    if not console.is_terminal:
        console.width = _WIDTH
    table = Table("kind", box=None)
    for title, _ in _COLUMNS.values():
        table.add_column(title, justify="right")
    for row in rows:
        cells = ((getattr(row, name), form) for name, (_, form) in _COLUMNS.items())
        table.add_row(row.kind, *("" if v is None else format(v, form) for v, form in cells))
    console.print(table)
