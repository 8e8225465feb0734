"""Reports of searches: what a page says of rows, and what it does in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from browser import Browser, browser
from commands import Command
from tilewright.engine.page import anchor
from tilewright.errors import DatabaseError
from tilewright.tune.charts import Dot, over_trials, scatter
from tilewright.tune.database import Database, Row
from tilewright.tune.report import report_text
from tilewright.tune.trials import trials_of
from tuned_rows import row

DEFAULT = (
    "ContractionConfig(instruction='fma_f32x16', lanes='oc', tile={'oc': 32, 'ow': 7}, "
    "order=('oc', 'ow'), step={'ic': 4}, reduce_order=('ic',))"
)
STEPS = '# a schedule\nschedule.tile("main", {"oc": 32})\nschedule.done()'


def tried(config: str, seconds: float | None, **values: Any) -> Row:
    beside = {"beside": DEFAULT, "ratio": 1.0} if config != DEFAULT and seconds else {}
    return row(config, seconds, **{"schedule": STEPS, "conditions": beside, **values})


ROWS = [
    tried(DEFAULT, 2e-3, predicted=1e-3, conditions={"seed": 3}),
    tried(DEFAULT.replace("32,", "16,"), 4e-3, predicted=3e-3),
    tried(DEFAULT.replace("32,", "64,"), 1e-3, predicted=2e-3, schedule=STEPS.replace("32", "64")),
    tried("PlainConfig()", 8e-3, predicted=9e-3),
    tried(DEFAULT.replace("7", "5"), None, outcome="constraints", why="5 <does> not divide 7"),
    tried("PlainConfig()", 5e-3, kernel="other", title="another <kernel>"),
]


def stored(path: Path, rows: list[Row] = ROWS) -> list[Row]:
    with Database(path) as database:
        database.add_all(rows)
        return database.rows()


def test_rows_by_kernel_and_place(tmp_path: Path) -> None:
    first, second = trials_of(stored(tmp_path / "a.db"))
    assert (len(first.rows), len(second.rows)) == (5, 1)
    assert first.default is not None and first.default.config == DEFAULT
    assert first.best is not None and "64" in first.best.config
    assert first.gain == pytest.approx(2.0)
    # What was tried beside something was no default.
    assert second.default is None and second.gain is None
    assert first.outcomes == {"correct": 4, "constraints": 1}
    worth = {
        name: {value: best.seconds for value, best in rows.items()}
        for name, rows in first.worth().items()
    }
    assert worth["recipe"] == {"ContractionConfig": 1e-3, "PlainConfig": 8e-3}
    assert worth["tile.oc"] == {"64": 1e-3, "32": 2e-3, "16": 4e-3}
    assert list(worth) == ["recipe", "tile.oc"]


def test_cold_times_are_compared_with_cold_ones() -> None:
    cold = row("PlainConfig()", 1e-3, conditions={"cold": True})
    rows = [row(DEFAULT, 2e-3), cold, row("Lost()", None)]
    warm, emptied = trials_of(rows)
    assert [len(warm.rows), len(emptied.rows)] == [2, 2]
    assert warm.best is rows[0] and emptied.best is cold
    assert emptied.place == "x86, 1 thread, cold"


class Parts(HTMLParser):
    """The tags that are open, and the names and targets of links."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if tag == "a" and name == "href"]


def test_a_page_has_all_parts(tmp_path: Path) -> None:
    page = report_text("a.db", stored(tmp_path / "a.db"))
    assert "http" not in page.replace("http://www.w3.org", "")  # it needs no network
    assert "2 kernels, 6 trials: 2.000x the default, as a geometric mean" in page
    assert "2.00x the default: 2 ms &rarr; 1 ms" in page
    assert "rank correlation 0.80" in page
    assert page.count('<svg class="chart"') == 3  # nothing was predicted of the other
    assert "<b>tile.oc</b>" in page and "32 (default)" in page
    assert "5 &lt;does&gt; not divide 7" in page and "<does>" not in page
    assert "another &lt;kernel&gt;" in page and "<kernel>" not in page
    assert "seed 3" in page and "x86, 1 thread" in page
    told = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert told is not None
    data = json.loads(told.group(1))
    entries = {entry["label"]: entry for entry in data["entries"] if "label" in entry}
    assert set(entries) == {f"row {number}" for number in range(1, 7)}
    assert "before" not in entries["row 1"]
    best = entries["row 3"]
    assert data["texts"][best["before"]][-2] == 'schedule.tile("main", {"oc": 32})'
    assert data["texts"][best["after"]][-2] == 'schedule.tile("main", {"oc": 64})'
    assert len(best["changes"]) == 2  # the choice, and the step
    assert data["texts"][entries["row 5"]["after"]][0] == "constraints: 5 <does> not divide 7"
    parts = Parts()
    parts.feed(page)
    assert set(parts.links) == {anchor(label) for label in (*entries, "k", "another <kernel>")}


def test_charts_have_a_place_for_every_trial() -> None:
    times = [2e-3, None, 4e-3, 1e-3]
    dots = [Dot(n, time, f"trial <{n}>") for n, time in enumerate(times, start=1)]
    chart = over_trials(dots)
    assert chart.count("<circle") == 3 and chart.count('class="failed"') == 1
    assert "trial &lt;1&gt;" in chart and "trial <" not in chart
    line = re.search(r'class="line" d="([^"]*)"', chart)
    # It steps down once, where the best changes.
    assert line is not None and line.group(1).count("V") == 1
    assert over_trials([Dot(1, None, "failed")]) == ""
    # Equal times are no axis of no length.
    assert over_trials([Dot(n, 1e-3, "") for n in range(3)]).count("<circle") == 3
    assert scatter([Dot(1e-3, 1e-3, "a"), Dot(0.0, 1e-3, "not predicted")]).count("<circle") == 1
    assert scatter([Dot(0.0, 1e-3, "not predicted")]) == ""


def test_no_rows_are_no_report() -> None:
    with pytest.raises(DatabaseError, match=r"there is nothing to report.*\n.*a\.db has no rows"):
        report_text("a.db", [])


def test_the_command_reports(tilewright: Command, tmp_path: Path) -> None:
    file, page = tmp_path / "a.db", tmp_path / "a.html"
    words = ("--threads", "1", "--budget", "2 trials", "--jobs", "1", "16x32:32x48")
    done = tilewright("tune", "matmul", *words, "--db", str(file), "--report", str(page))
    assert (done.code, done.err) == (0, "")
    text = page.read_text(encoding="utf-8")
    assert "1 kernel, 2 trials" in text and "schedule.tensorize" in text
    stored(file)
    done = tilewright("tune", "--db", str(file), "--report", str(page))
    assert (done.code, done.out) == (0, f"{page}: a report of {file}\n")
    assert "3 kernels, 8 trials" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "there is nothing to do"),
        (("--report", "{}/a.html", "--db", "{}/none.db"), "none.db"),
        (("--report", "{}/a.html", "--db", "{}/empty.db"), "there is nothing to report"),
        (("--report", "{}/a.html", "--db", "{}/a.txt"), "SQLite cannot use"),
        (("--report", "{}/none/a.html", "--db", "{}/empty.db"), "cannot write"),
        (("--report", "{}/a.html", "--set", "resnet_50"), "takes no --set"),
    ],
)
def test_what_is_refused(
    tilewright: Command, arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    stored(tmp_path / "empty.db", [])
    (tmp_path / "a.txt").write_text("not a database, by any means\n" * 100)
    words = [word.format(tmp_path) for word in arguments]
    database = () if "--db" in words else ("--db", str(tmp_path / "empty.db"))
    done = tilewright("tune", *words, *database)
    assert (done.code, done.out) == (2, "")
    assert said in done.err and "cure: " in done.err
    assert not (tmp_path / "a.html").exists()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Browser]:
    """A browser in which a report is open."""
    path = tmp_path / "a.html"
    path.write_text(report_text("a.db", stored(tmp_path / "a.db")), encoding="utf-8")
    with browser(tmp_path / "profile") as page:
        page.open(path)
        yield page


def test_clicking_through_a_report(opened: Browser) -> None:
    current = "document.querySelector('nav [aria-current]').title"
    listed = "[...document.querySelectorAll('nav button')].filter(b => b.offsetHeight).length"
    sheet = "document.querySelector('.sheet:not([hidden])').innerText"
    edges = "[document.documentElement, document.querySelector('main')]"
    edges += ".every(e => e.scrollWidth <= e.clientWidth)"
    assert opened.value(current) == "all kernels"
    assert opened.value(listed) == 3  # trials are listed beside their kernel only
    assert opened.value(edges)
    opened.click(".sheet:not([hidden]) a[href='#k']")
    assert opened.value(current) == "k"
    assert opened.value(listed) == 8
    assert "2.00x the default" in opened.value(sheet)
    assert opened.value(edges)
    opened.click(".sheet:not([hidden]) a[href='#row-3']")
    assert opened.value(current) == "row 3"
    assert opened.value("document.getElementById('what').textContent") == (
        "the default, and row 3: 2 places changed"
    )
    assert opened.value(edges)
    assert opened.errors == []
