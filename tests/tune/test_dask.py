"""Searches on the workers of a Dask scheduler, and workers that are lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from planted import Plant, Planted, Undisturbed, undisturbed
from tilewright.engine.generator import generator_version
from tilewright.errors import ArgumentError, TilewrightError, TuningError, UnsupportedError
from tilewright.targets.registry import find_target
from tilewright.tune import workers
from tilewright.tune.at_worker import Kind
from tilewright.tune.budget import Budget
from tilewright.tune.campaign import Campaign
from tilewright.tune.database import Database
from tilewright.tune.processes import LostError
from tilewright.tune.search import Search
from tilewright.tune.session import Options
from tilewright.tune.strategies import maker_of
from tilewright.tune.trial import Measuring, Task
from tilewright.tune.workers import Workers

PLANTS = tuple(Plant("run", ms) for ms in (4.0, 7.0, 2.0, 5.0, 1.0, 6.0, 3.0))
BEST = repr(Plant("run", 1.0))
X86 = find_target("x86")
KIND = Kind(X86.name, X86.identity, generator_version())


class Ending(Executor):
    """Runs in this process, but ends trials of which ``ends`` says how."""

    def __init__(self, ends: Callable[[Task], BaseException | None]) -> None:
        self.ends = ends

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        error = self.ends(args[0])
        if error is None:
            future.set_result(fn(*args))
        else:
            future.set_exception(error)
        return future


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.tune.trial.race", undisturbed)


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a scheduler with two workers of its own, which are processes of this machine:
    a test may end them."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as there:
        yield there.scheduler_address


def searched(path: Path, executor: Executor, *plants: Plant) -> Search:
    """A search that has ended."""
    with Database(path) as database:
        search = Search(Planted(plants), database, maker_of("exhaustive"), Measuring())
        Campaign([search], executor, 3, Budget()).run()
    return search


def outcomes(path: Path) -> dict[str, tuple[str, str]]:
    with Database(path) as database:
        return {row.config: (row.outcome, row.why) for row in database.rows()}


def test_workers_find_the_winner_that_one_finds_though_some_are_lost(
    cluster: str, tmp_path: Path
) -> None:
    one = searched(tmp_path / "one.db", Ending(lambda task: None), *PLANTS)
    assert one.best is not None
    assert one.best.config == BEST
    ending = Plant("end its parent", 2.5)
    plants = (*PLANTS[:3], ending, *PLANTS[3:])
    with Workers(cluster, KIND) as executor:
        assert executor.count == 2
        two = searched(tmp_path / "two.db", Undisturbed(executor), *plants)
    assert two.best is not None
    assert (two.best.config, two.best.times) == (BEST, one.best.times)
    ended = outcomes(tmp_path / "two.db")
    assert ended.keys() == {repr(plant) for plant in plants}
    outcome, why = ended.pop(repr(ending))
    assert outcome == "runtime"
    assert why.startswith("the worker tcp://")
    assert why.endswith(" was lost")
    assert set(ended.values()) == {("correct", "")}


def test_autotune_by_workers(cluster: str, tmp_path: Path) -> None:
    path, op = tmp_path / "a.db", tw.matmul("16x32:32x48")
    tuned = tw.autotune(op, threads=1, budget="1 trial", database=path, scheduler=cluster)
    assert f"of the database {path}" in tuned.explain()


def test_workers_of_another_kind_time_nothing(cluster: str) -> None:
    for other, said in (
        (Kind("x86", "another processor", KIND.generator), f"it is {X86.identity}"),
        (Kind("x86", X86.identity, "older"), "it has another version of Tilewright, or of LLVM"),
        (Kind("nvidia:sm_90a", "", ""), "nvidia:sm_90a does not run there"),
    ):
        with pytest.raises(TuningError) as caught:
            Workers(cluster, other)
        assert f"no worker of {cluster} can time kernels for {other.target}" in str(caught.value)
        assert said in str(caught.value)
        assert f"cure: start some: dask worker {cluster} --nthreads 1" in str(caught.value)


def test_schedulers_that_are_none_or_have_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "_ANSWERING", 0.3)
    monkeypatch.setattr(workers, "_ARRIVING", 0.1)
    for address in ("127.0.0.1:9", "scheduler", "ftp://127.0.0.1:9", ""):
        with pytest.raises(TuningError) as caught:
            Workers(address, KIND)
        assert f"there is no Dask scheduler at {address}" in str(caught.value)
        assert "cure: start one with `dask scheduler`" in str(caught.value)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", processes=True) as there,
        pytest.raises(TuningError, match="why: it has no workers"),
    ):
        Workers(there.scheduler_address, KIND)


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UnsupportedError) as caught:
        Workers("tcp://127.0.0.1:8786", KIND)
    assert "Dask's distributed is not installed" in str(caught.value)
    assert "python3 -m pip install 'tilewright[dask]'" in str(caught.value)


def test_jobs_are_for_this_machine() -> None:
    with pytest.raises(ArgumentError, match="jobs and a scheduler are given"):
        Options.checked("1s", "random", 2, scheduler="tcp://127.0.0.1:8786")


def test_a_worker_that_is_lost_costs_its_trial_only(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    calls: list[str] = []

    def lost(task: Task) -> BaseException | None:
        """With the default's first trial, the second point, and the first duel."""
        calls.append(repr(task.point))
        duel = task.incumbent == PLANTS[0] and task.measuring.seconds > 0.2
        first = calls.count(repr(task.point)) == 1
        gone = (
            (task.point == PLANTS[0] and first) or task.point == PLANTS[1] or (duel and not duels)
        )
        duels.extend(["duel"] * duel)
        return LostError("the worker w was lost") if gone else None

    duels: list[str] = []
    search = searched(path, Ending(lost), *PLANTS)
    assert (search.failed, calls.count(repr(PLANTS[0])), len(duels)) == (None, 2, 2)
    assert search.best is not None
    assert search.best.config == BEST
    assert "duel" in search.best.conditions
    ended = outcomes(path)
    assert ended.pop(repr(PLANTS[1])) == ("runtime", "the worker w was lost")
    assert set(ended.values()) == {("correct", "")}
    # Nothing is known of that point: the next run tries it.
    calls.clear()
    searched(path, Ending(lambda task: calls.append(repr(task.point))), *PLANTS)
    assert calls == [repr(PLANTS[1])]


def test_workers_that_are_always_lost_end_the_search(tmp_path: Path) -> None:
    search = searched(tmp_path / "a.db", Ending(lambda task: LostError("w was lost")), *PLANTS)
    assert search.failed == "runtime: w was lost"


@pytest.mark.parametrize("error", [BrokenExecutor("a process ended"), TuningError("no worker")])
def test_an_executor_that_ends(error: Exception, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with pytest.raises(TilewrightError) as caught:
        searched(path, Ending(lambda task: error if task.point == PLANTS[2] else None), *PLANTS)
    if isinstance(error, BrokenExecutor):
        assert "the executor of the search has ended" in str(caught.value)
        assert "why: BrokenExecutor: a process ended" in str(caught.value)
        assert "goes on where it stopped" in str(caught.value)
    assert repr(PLANTS[0]) in outcomes(path)
