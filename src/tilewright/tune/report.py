"""A report of searches as one page: how they went, what choices are worth, what was tried."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Sequence

from tilewright.bench.accuracy import rank_correlation
from tilewright.bench.report import geometric_mean
from tilewright.engine.overview import duration
from tilewright.engine.page import Entry, anchor, page_text
from tilewright.engine.rows import OUTCOMES, Row
from tilewright.errors import DatabaseError
from tilewright.tune import charts
from tilewright.tune.charts import Dot
from tilewright.tune.exchange import choices_of
from tilewright.tune.trials import Trials, trials_of

# Of a choice, so many values are listed, and of a kernel so many reasons of failures.
_MOST_VALUES = 8
_MOST_REASONS = 6
_FASTER = 1.005


def report_text(title: str, rows: Sequence[Row]) -> str:
    """The page as HTML, in one file that needs no network: of all kernels; of each, charts, the
    worth of its choices and the conditions; of each trial, its choices and steps beside those of
    the default. Raises `DatabaseError` where there are no ``rows``."""
    kernels = trials_of(rows)
    if not kernels:
        raise DatabaseError(
            "there is nothing to report",
            why=f"{title} has no rows",
            cure="tune something first: tilewright tune conv --set resnet_50 --db tuned.db",
        )
    names = _names(kernels)
    entries = [Entry("", "all kernels", sheet=_Summary(kernels, names).html())]
    for name, trials in zip(names, kernels, strict=True):
        entries += _entries(name, trials)
    return page_text(title, entries, folded=True, style=_STYLE + charts.STYLE)


def _names(kernels: Sequence[Trials]) -> list[str]:
    """What tells kernels apart: their titles, with the places of those that were in several."""
    titles = Counter(trials.title for trials in kernels)
    placed = [t.title if titles[t.title] == 1 else f"{t.title} ({t.place})" for t in kernels]
    counts: Counter[str] = Counter()
    names: list[str] = []
    for name in placed:
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name} #{counts[name]}")
    return names


def _entries(name: str, trials: Trials) -> Iterator[Entry]:
    gain = _ratio(trials.gain)
    # Its own group, so that its trials are listed only beside it.
    yield Entry(name, name, gain, sheet=_Sheet(trials).html())
    default = trials.default
    for row in sorted(trials.rows, key=lambda row: (row.seconds is None, row.seconds or 0.0)):
        note = row.outcome if row.seconds is None else duration(row.seconds)
        before = None
        if row is default:
            note += ", the default"
        elif default is not None:
            before = _text(default, steps=bool(row.schedule))
        text = _text(row, steps=bool(row.schedule))
        yield Entry(name, _label(row), note, before, text, True, beside="the default, and")


def _text(row: Row, steps: bool) -> str:
    """What is compared: how it ended, where it did not end well, the choices, and the ``steps``,
    where they are there."""
    lines = [] if row.outcome == "correct" else [f"{row.outcome}: {row.why}"]
    lines += [f"{name} = {value}" for name, value in choices_of(row.config).items()]
    return "\n".join([*lines, "", row.schedule] if steps else lines)


def _label(row: Row) -> str:
    return f"row {row.number}"


def _ratio(gain: float | None) -> str:
    return "" if gain is None else f"{gain:.2f}x"


class _Summary:
    """What is said of all ``kernels``, which have ``names``."""

    def __init__(self, kernels: Sequence[Trials], names: Sequence[str]) -> None:
        self._kernels, self._names = kernels, names

    def html(self) -> str:
        """The first sheet."""
        return "\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        gains = [trials.gain for trials in self._kernels if trials.gain is not None]
        count, tried = len(self._kernels), sum(len(trials.rows) for trials in self._kernels)
        faster = sum(gain > _FASTER for gain in gains)
        said = f"{count} kernel{'s' if count > 1 else ''}, {tried} trials"
        if gains:
            said += f": {geometric_mean(gains):.3f}x the default, as a geometric mean"
        yield f"<p>{said}</p>"
        yield f"<p>{faster} of {len(gains)} became faster than their default.</p>"
        outcomes: Counter[str] = sum((t.outcomes for t in self._kernels), Counter())
        yield from _outcomes(outcomes)
        yield "<h3>Kernels</h3>"
        yield '<table class="figures"><tr><th>kernel<th>default<th>best<th><th>tried<th>failed</tr>'
        for name, trials in zip(self._names, self._kernels, strict=True):
            failed = len(trials.rows) - len(trials.correct)
            yield (
                f'<tr><td class="name"><a href="{html.escape(anchor(name))}">{html.escape(name)}'
                f"</a><td>{_time(trials.default)}<td>{_time(trials.best)}"
                f"<td>{_ratio(trials.gain)}<td>{len(trials.rows)}<td>{failed or ''}</tr>"
            )
        yield "</table>"


class _Sheet:
    """What is said of the ``trials`` of one kernel."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials

    def html(self) -> str:
        """Its sheet."""
        parts = (self._verdict(), self._charts(), self._worth(), self._failures())
        return "\n".join(line for part in (*parts, self._conditions()) for line in part)

    def _verdict(self) -> Iterator[str]:
        trials, best, default = self._trials, self._trials.best, self._trials.default
        if best is None:
            verdict = "nothing could be timed"
        elif default is None:
            verdict = f"{_time(best)}, by {_link(best)}; the default's time is not there"
        elif best is default:
            verdict = f"the default stays, at {_time(default)}: nothing was clearly faster"
        else:
            verdict = f"{_ratio(trials.gain)} the default: {_time(default)} &rarr; {_time(best)}"
            verdict += f", by {_link(best)}"
        yield f"<p>{verdict}</p>"
        yield from _outcomes(trials.outcomes)

    def _charts(self) -> Iterator[str]:
        rows = list(enumerate(self._trials.rows, start=1))
        over = charts.over_trials([self._dot(n, row.seconds, row) for n, row in rows])
        measured = [row for _, row in rows if row.seconds and row.predicted]
        beside = charts.scatter([self._dot(r.predicted or 0.0, r.seconds, r) for r in measured])
        yield '<div class="charts">'
        if over:
            yield f"<figure><figcaption>Best over trials</figcaption>{over}</figure>"
        if beside:
            rank = rank_correlation(
                [row.predicted or 0.0 for row in measured], [row.seconds or 0.0 for row in measured]
            )
            said = "" if rank is None else f", rank correlation {rank:.2f}"
            caption = f"Measured by predicted time{said}"
            yield f"<figure><figcaption>{caption}</figcaption>{beside}</figure>"
        yield "</div>"
        if over:
            yield '<p class="dim">Green: the best. Orange: the default. A cross: it failed.'
            yield "A dashed line: as predicted." if beside else "No time was predicted."
            yield "</p>"

    def _dot(self, x: float, seconds: float | None, row: Row) -> Dot:
        kind = "dot"
        if row is self._trials.default:
            kind = "default"
        elif row is self._trials.best:
            kind = "best"
        title = f"{_label(row)}: {row.outcome if seconds is None else duration(seconds)}"
        return Dot(x, seconds, f"{title}\n{row.config}", anchor(_label(row)), kind)

    def _worth(self) -> Iterator[str]:
        worth, default = self._trials.worth(), self._trials.default
        if not worth:
            return
        usual = {} if default is None else choices_of(default.config)
        yield "<h3>What each choice is worth: the best time that was measured by its value</h3>"
        yield '<table class="figures">'
        for name, rows in worth.items():
            fastest = min(row.seconds or 0.0 for row in rows.values())
            for position, (value, row) in enumerate(list(rows.items())[:_MOST_VALUES]):
                seconds = row.seconds or 0.0
                said = html.escape(f"{value[:57]}..." if len(value) > 60 else value or "none")
                star = " (default)" if str(usual.get(name)) == value else ""
                width = 100 * fastest / (seconds or 1.0)
                yield (
                    f'<tr><td class="name">{"" if position else f"<b>{html.escape(name)}</b>"}'
                    f'<td class="name">{said}{star}<td>{duration(seconds)}'
                    f"<td>{seconds / (fastest or 1.0):.2f}x"
                    f'<td class="bar"><i style="width: {width:.0f}%"></i><td>{_link(row)}</tr>'
                )
            more = len(rows) - _MOST_VALUES
            if more > 0:
                yield f'<tr><td><td class="name dim">and {more} more, which are slower</tr>'
        yield "</table>"

    def _failures(self) -> Iterator[str]:
        failed = [row for row in self._trials.rows if row.outcome != "correct"]
        if not failed:
            return
        reasons: dict[tuple[str, str], list[Row]] = {}
        for row in failed:
            reasons.setdefault((row.outcome, row.why), []).append(row)
        listed = sorted(reasons.items(), key=lambda item: -len(item[1]))
        yield "<h3>What failed</h3>"
        yield '<table class="figures">'
        for (outcome, why), rows in listed[:_MOST_REASONS]:
            yield (
                f'<tr><td>{len(rows)}<td class="word">{outcome}<td class="name">{html.escape(why)}'
                f"<td>{_link(rows[0])}</tr>"
            )
        if len(listed) > _MOST_REASONS:
            yield f'<tr><td><td class="dim">and {len(listed) - _MOST_REASONS} other reasons</tr>'
        yield "</table>"

    def _conditions(self) -> Iterator[str]:
        rows = self._trials.rows
        first = rows[0]
        stamps = sorted(row.stamp for row in rows)
        seconds = sum(row.compile_seconds for row in rows)
        facts = {
            "place": self._trials.place,
            "features": first.features,
            "generator": first.generator,
            "data": ", ".join(
                sorted({f"seed {r.conditions['seed']}" for r in rows if "seed" in r.conditions})
            ),
            "caches": "emptied before each call"
            if self._trials.cold
            else "as the call before left",
            "measured": f"{stamps[0][:19]} to {stamps[-1][:19]} (UTC)",
            "compiling": f"{duration(seconds)} in all" if seconds else "",
            "command": "" if first.problem.startswith("#") else first.problem,
        }
        yield '<h3>Conditions</h3>\n<table class="figures">'
        for name, text in facts.items():
            if text:
                yield f'<tr><td class="name">{name}<td class="name">{html.escape(text)}</tr>'
        yield "</table>"


def _time(row: Row | None) -> str:
    return "" if row is None else duration(row.seconds or 0.0)


def _link(row: Row) -> str:
    label = _label(row)
    return f'<a href="{anchor(label)}">{label}</a>'


def _outcomes(outcomes: Counter[str]) -> Iterator[str]:
    """How many ended how, as bars."""
    most = max(outcomes.values())
    yield '<div class="bars">'
    for name in OUTCOMES:
        if outcomes[name]:
            width = 100 * outcomes[name] / most
            kind = "" if name == "correct" else ' class="bad"'
            yield (
                f"<b>{name}</b><span>{outcomes[name]}</span>"
                f'<div class="bar"><i{kind} style="width: {width:.1f}%"></i></div><small></small>'
            )
    yield "</div>"


_STYLE = """
.charts { display: flex; flex-wrap: wrap; gap: 1em } figure { margin: 0; flex: 1 1 24em;
  max-width: 40em } figcaption { font-weight: 600; margin-bottom: .3em }
.figures { font: inherit; border-collapse: collapse } .dim { color: var(--dim) }
.figures td, .figures th { white-space: nowrap; text-align: right; padding: .15em .8em .15em 0;
  font-variant-numeric: tabular-nums; vertical-align: baseline }
.figures .name, .figures th:first-child { text-align: left; white-space: normal;
  overflow-wrap: anywhere }
.figures .word { text-align: left }
.figures td.bar { width: 12em; min-width: 6em; background: none; vertical-align: middle }
.figures td.bar i { height: .8em }
.bar i.bad { background: light-dark(#c00, #ff7a70) }
nav button:not(.inner) b { white-space: normal; overflow-wrap: anywhere }
"""
