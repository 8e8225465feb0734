"""Searches: what is tried, what it costs, and what is kept of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from planted import Plant, Planted, undisturbed
from tilewright.errors import ArgumentError, DatabaseError, TuningError, UnsupportedError
from tilewright.graph.graph import Graph
from tilewright.measure.race import Race
from tilewright.tune.budget import Budget
from tilewright.tune.campaign import Campaign, local
from tilewright.tune.database import Database
from tilewright.tune.processes import CrashedError, HungError, Processes
from tilewright.tune.search import Search
from tilewright.tune.session import Options, check_searches
from tilewright.tune.strategies import STRATEGIES, maker_of
from tilewright.tune.subjects import subjects_of
from tilewright.tune.trial import Measuring
from tuned_rows import row

PLANTS = (
    Plant("run", 8.0),
    Plant("crash"),
    Plant("hang"),
    Plant("wrong"),
    Plant("refuse"),
    Plant("uncompilable"),
    Plant("defect"),
    Plant("run", 1.0),
    Plant("run", 20.0),
    Plant("run", 100.0),
)


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials in this process take as long as they say."""
    monkeypatch.setattr("tilewright.tune.trial.race", undisturbed)


class Here(Executor):
    """Runs in this process, at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def campaign(
    path: Path,
    *subjects: Planted,
    strategy: str = "exhaustive",
    trials: int | None = None,
    executor: Executor | None = None,
) -> Iterator[Campaign]:
    with Database(path) as database:
        measuring = Measuring(seconds=0.02)
        searches = [
            Search(subject, database, maker_of(strategy), measuring, trials) for subject in subjects
        ]
        yield Campaign(searches, executor or Here(), 2, Budget(trials=trials))


def test_what_is_wrong_with_a_point_costs_that_point_only(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with (
        local(2, limit=2.0) as (executor, _),
        campaign(path, Planted(PLANTS), executor=executor) as run,
    ):
        run.run()
        (search,) = run.searches
        assert search.pruned == 1  # it was predicted to take 100 ms
    with Database(path) as database:
        rows = {row.config: row for row in database.rows()}
    assert len(rows) == len(PLANTS) - 1
    said = {eval(config, {"Plant": Plant}).does: row for config, row in rows.items()}
    assert {does: row.outcome for does, row in said.items()} == {
        "run": "correct",
        "crash": "runtime",
        "hang": "timeout",
        "wrong": "correctness",
        "refuse": "constraints",
        "uncompilable": "compile",
        "defect": "runtime",
    }
    assert said["crash"].why.startswith("its process ended: signal 6 ended it")
    assert said["hang"].why == "it took longer than 2 s"
    assert said["wrong"].why == "y[0] is 1, expected 2"
    assert said["refuse"].why == "no such tile"
    assert said["defect"].why == "ValueError: a defect"


def test_what_was_tried_is_not_tried_again(tmp_path: Path) -> None:
    plants = tuple(Plant("run", 1.0 + n / 10) for n in range(6))
    path = tmp_path / "a.db"
    with campaign(path, Planted(plants), trials=3) as run:
        run.run()
        assert [search.tried for search in run.searches] == [3]
        assert run.left == 0
    with campaign(path, Planted(plants), trials=3) as run:
        run.run()
        assert run.trials == 0
    with campaign(path, Planted(plants), trials=6) as run:
        run.run()
        assert run.trials == 3
    with Database(path) as database:
        assert {row.config for row in database.rows()} == {repr(plant) for plant in plants}


def test_many_rows_that_were_tried_end_no_search(tmp_path: Path) -> None:
    plants = tuple(Plant("run", 1.0 + n / 1000) for n in range(1200))
    path, place = tmp_path / "a.db", asdict(Planted(plants).asked)
    with Database(path) as database:
        database.add_all(row(repr(plant), 1e-3 * plant.ms, **place) for plant in plants[:1100])
    with campaign(path, Planted(plants), trials=1101) as run:
        run.run()
        assert [search.tried for search in run.searches] == [1101]


def test_searches_take_turns(tmp_path: Path) -> None:
    plants = tuple(Plant("run", 1.0 + n / 10) for n in range(6))
    subjects = [Planted(plants, name) for name in ("a", "b", "c")]
    with campaign(tmp_path / "a.db", *subjects, trials=4) as run:
        told: list[str] = []
        run._told = lambda done: None if done.duel else told.append(done.search.subject.title)
        run.run()
    for count in range(1, 13):
        turns = [told[:count].count(name) for name in "abc"]
        assert max(turns) - min(turns) <= 2
    assert sorted(told) == sorted("abc" * 4)


def test_the_default_stays_unless_another_is_clearly_faster(tmp_path: Path) -> None:
    plants = (Plant("run", 5.0), Plant("unpredicted", 5.0), Plant("again", 5.0))
    with campaign(tmp_path / "a.db", Planted(plants)) as run:
        run.run()
        (search,) = run.searches
        assert search.tried == 3
        best = search.best
        assert best is not None
        assert best.config == repr(plants[0])
        assert search.duel() is None


def test_what_only_looked_faster_is_found_out_with_all_that_met_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plants = tuple(Plant(name, 1.0) for name in ("run", "lucky", "as fast", "as fast, too"))
    duels: list[str] = []

    def lucky(challenger: Any, incumbent: Any, seconds: float, **options: Any) -> Race:
        # In its trial, but not in the duel, which takes longer.
        is_duel = seconds > 0.05
        duels.extend(["duel"] * is_duel)
        luck = 0.5 if len(lucky_calls) == 1 else 1.0
        lucky_calls.append(0)
        return Race((1e-3 * luck,) * 12, () if incumbent is None else (1e-3,) * 12)

    lucky_calls: list[int] = []
    monkeypatch.setattr("tilewright.tune.trial.race", lucky)
    with campaign(tmp_path / "a.db", Planted(plants)) as run:
        run.run()
        (search,) = run.searches
        assert search.best is not None
        assert search.best.config == repr(plants[0])
        assert duels == ["duel"]
    with Database(tmp_path / "a.db") as database:
        seconds = {row.config: row.seconds or 0.0 for row in database.rows()}
    # Those that were as fast as the lucky one are as fast as the default.
    assert min(seconds.values()) == seconds[repr(plants[0])]
    assert max(seconds.values()) < 1.001 * min(seconds.values())


def test_a_default_that_is_wrong_ends_its_search(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with campaign(path, Planted((Plant("wrong"), Plant("run")))) as run:
        run.run()
        assert run.searches[0].failed == "correctness: y[0] is 1, expected 2"
        assert run.trials == 1
        with pytest.raises(TuningError) as caught:
            check_searches(run.searches)
    assert "the default of planted cannot be timed" in str(caught.value)
    assert "y[0] is 1" in str(caught.value)


def test_what_cannot_be_checked_ends_its_search_alone(tmp_path: Path) -> None:
    plants = Planted((Plant("unchecked"), Plant("run"))), Planted((Plant("run"),), "other")
    with campaign(tmp_path / "a.db", *plants) as run:
        run.run()
        assert [search.failed for search in run.searches] == [
            "constraints: too many elements",
            None,
        ]


def test_a_full_disk_ends_the_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    plants = tuple(Plant("run", 1.0 + n / 10) for n in range(6))
    stored = Database.add

    def full(self: Database, row: Any) -> None:
        if len(self.rows()) == 3:
            raise DatabaseError("the disk is full")
        stored(self, row)

    monkeypatch.setattr(Database, "add", full)
    with (
        campaign(path, Planted(plants)) as run,
        pytest.raises(DatabaseError, match="the disk is full"),
    ):
        run.run()
    monkeypatch.undo()
    with Database(path) as database:
        assert len(database.rows()) == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_finds_what_is_fastest(strategy: str, tmp_path: Path) -> None:
    plants = (Plant("run", 4.0), *(Plant("run", float(n)) for n in range(5, 9)), Plant("run", 1.0))
    with campaign(tmp_path / "a.db", Planted(plants), strategy=strategy) as run:
        run.run()
        best = run.searches[0].best
        assert best is not None
        assert best.config == repr(Plant("run", 1.0))


def ended() -> None:
    raise SystemExit(3)


def hung() -> None:
    while True:
        pass


def test_processes_end_alone() -> None:
    with Processes(1, limit=60.0) as processes:
        assert processes.submit(pow, 2, 5).result() == 32
        with pytest.raises(ZeroDivisionError):
            processes.submit(divmod, 1, 0).result()
        with pytest.raises(CrashedError, match="it ended with 3"):
            processes.submit(ended).result()
        processes.limit = 0.5
        with pytest.raises(HungError):
            processes.submit(hung).result()
        processes.limit = 60.0
        assert processes.submit(pow, 2, 6).result() == 64


@pytest.mark.parametrize("text", ["90s", "10m", "1.5h", "200 trials", "1 trial", " 2 m "])
def test_budgets(text: str) -> None:
    budget = Budget.parse(text)
    assert (budget.seconds is None) != (budget.trials is None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0s", "the budget is 0s"),
        ("0 trials", "nothing would be tried"),
        ("0.0m", "nothing can be tried in no time"),
        ("ten minutes", "'ten minutes' is no budget"),
        ("-3s", "'-3s' is no budget"),
        ("1.5 trials", "'1.5 trials' is no budget"),
        ("", "'' is no budget"),
        (None, "None is no budget"),
        (10, "10 is no budget"),
    ],
)
def test_what_is_no_budget(text: object, said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Budget.parse(text)
    assert said in str(caught.value)
    assert 'such as "90s", "10m", "2h" or "200 trials"' in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"jobs": 0}, "jobs is 0"),
        ({"jobs": True}, "jobs is True"),
        ({"seed": -1}, "seed is -1"),
        ({"strategy": "clever"}, "there is no strategy 'clever'"),
    ],
)
def test_what_is_no_option(options: dict[str, object], said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Options.checked(**{"budget": "1s", "strategy": "random", **options})  # type: ignore[arg-type]
    assert said in str(caught.value)


SCALE = """
kernel scale(n: s64 in 1..64, in x: f32[n, 8], out y: f32[n, 8]):
  compute scale(i in n, j in 8):
    y[i, j] = 2.0 * x[i, j]
"""


def test_what_cannot_be_tuned() -> None:
    op = tw.matmul("4x8:8x16")
    for target, said in (("nvidia:sm_80", "it does not run here"), ("interpreter", "as they are")):
        with pytest.raises(UnsupportedError) as caught:
            subjects_of(op, target)
        assert f"kernels for {target} cannot be timed" in str(caught.value)
        assert said in str(caught.value)
    with pytest.raises(ArgumentError, match="cannot be tuned"):
        subjects_of("conv")
    with pytest.raises(ArgumentError, match="n is not set"):
        subjects_of(tw.parse_kernel(SCALE))


def test_folders_of_searches_that_were_killed_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = subprocess.Popen(["true"])
    process.wait()
    left, running = (
        tmp_path / f"tilewright-tune-{number}-x" for number in (process.pid, os.getpid())
    )
    for folder in (left, running, tmp_path / "other"):
        (folder / "cache").mkdir(parents=True)
    with local(1) as (_, folder):
        assert folder.is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {running.name, "other"}


def test_autotune_from_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    op = tw.matmul("16x32:32x48")
    tuned = tw.autotune(op, threads=1, budget="3 trials", database=path, jobs=1)
    assert f"of the database {path}" in tuned.explain()
    with Database(path) as database:
        rows = database.rows()
    assert len(rows) == 3
    assert all(row.outcome == "correct" for row in rows)
    assert tw.compile(op, threads=1, database=path).config == tuned.config
    # Without a database, the winner is there all the same.
    again = tw.autotune(tw.parse_kernel(SCALE), threads=1, budget="1 trial", numbers={"n": 16})
    assert "row 1 of the database" in again.explain()


GRAPH = """
kernel two(in a: f32[16, 16], in b: f32[16, 16], out y: f32[16, 16], out z: f32[16, 16]):
  compute clear(i in 16, j in 16):
    y[i, j] = 0.0
  compute multiply(i in 16, j in 16, k in 16):
    y[i, j] add= a[i, k] * b[k, j]
  compute exponential(i in 16, j in 16):
    z[i, j] = exp(y[i, j])
"""


def test_each_kernel_of_a_graph_is_tuned(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    graph = Graph(tw.parse_kernel(GRAPH))
    tuned = tw.autotune(graph, threads=1, budget="1 trial", jobs=1, database=path)
    assert tuned.explain().count(f"of the database {path}") == 2
