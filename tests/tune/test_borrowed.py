"""Searches by executors of the caller's, and what ends them."""

from __future__ import annotations

from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from planted import Plant, Planted, Undisturbed
from tilewright.engine.generator import generator_version
from tilewright.errors import ArgumentError, TuningError
from tilewright.targets.registry import find_target
from tilewright.tune import at_worker, launch_subject
from tilewright.tune.at_worker import Kind
from tilewright.tune.borrowed import Borrowed
from tilewright.tune.budget import Budget
from tilewright.tune.campaign import Campaign
from tilewright.tune.database import Database
from tilewright.tune.search import Search
from tilewright.tune.strategies import maker_of
from tilewright.tune.trial import Measuring

X86 = find_target("x86")
KIND = Kind(X86.name, X86.identity, generator_version())


def outcomes(path: Path, executor: Executor, *plants: Plant, kind: Kind = KIND) -> dict[str, str]:
    """What came of the points, once a search has ended."""
    borrowed = Borrowed(executor, kind)
    with Database(path) as database:
        search = Search(Planted(plants), database, maker_of("exhaustive"), Measuring())
        try:
            Campaign([search], Undisturbed(borrowed), 2, Budget()).run()
        finally:
            borrowed.shutdown(wait=False)
        return {row.config: row.outcome for row in database.rows()}


def test_points_that_crash_harm_no_thread(tmp_path: Path) -> None:
    plants = (Plant("run", 4.0), Plant("crash"), Plant("run", 1.0))
    with ThreadPoolExecutor(2) as threads:
        ended = outcomes(tmp_path / "a.db", threads, *plants)
        assert threads.submit(int, "1").result() == 1  # it is still the caller's
    assert [ended[repr(plant)] for plant in plants] == ["correct", "runtime", "correct"]
    assert not at_worker._own._idle


def test_autotune_by_threads(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with ThreadPoolExecutor(2) as threads:
        tuned = tw.autotune(
            tw.matmul("16x32:32x48"),
            threads=1,
            budget="3 trials",
            database=path,
            jobs=2,
            executor=threads,
        )
    assert f"of the database {path}" in tuned.explain()
    with Database(path) as database:
        assert [row.outcome for row in database.rows()] == ["correct"] * 3


def test_an_executor_that_dies(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    plants = (Plant("run", 4.0), Plant("end its parent"), Plant("run", 1.0), Plant("run", 2.0))
    with ProcessPoolExecutor(1) as pool:
        for _ in range(2):  # the second one finds it dead
            with pytest.raises(TuningError) as caught:
                outcomes(path, pool, *plants)
            assert "the executor of the search has ended" in str(caught.value)
            assert "goes on where it stopped" in str(caught.value)
    with Database(path) as database:
        assert repr(plants[0]) in {row.config for row in database.rows()}
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(TuningError, match="cannot schedule new futures after shutdown"):
        outcomes(tmp_path / "b.db", pool, *plants)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Kind("x86", "another processor", KIND.generator), f"it is {X86.identity}"),
        (Kind("x86", X86.identity, "older"), "it has another version of Tilewright, or of LLVM"),
    ],
)
def test_workers_of_another_kind_time_nothing(kind: Kind, said: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads, pytest.raises(TuningError) as caught:
        outcomes(tmp_path / "a.db", threads, Plant("run", 4.0), kind=kind)
    assert "a worker cannot time kernels for x86" in str(caught.value)
    assert said in str(caught.value)
    assert "cure: use workers with the same processor" in str(caught.value)


class Client:
    """Has a method of that name, as Dask's client has."""

    def submit(self, *args: Any) -> str:
        return "a future of its own"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"executor": 3}, "executor is 3"),
        ({"executor": ThreadPoolExecutor}, "executor is a type"),
        ({"executor": Client(), "scheduler": "h:1"}, "an executor and a scheduler are given"),
        ({"jobs": 2, "scheduler": "h:1"}, "jobs and a scheduler are given"),
    ],
)
def test_what_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        tw.autotune(tw.matmul("4x8:8x16"), budget="1 trial", **options)
    assert said in str(caught.value)
    assert caught.value.cure


def test_futures_of_another_interface_are_refused() -> None:
    with pytest.raises(TuningError) as caught:
        tw.autotune(tw.matmul("4x8:8x16"), budget="1 trial", executor=Client())  # type: ignore[arg-type]
    assert "which is no future" in str(caught.value)
    assert "client.get_executor()" in str(caught.value)


def test_arguments_of_a_launch_stay_on_their_machine(tmp_path: Path) -> None:
    with pytest.raises(TuningError) as caught:
        launch_subject._stored(tmp_path / "launch-0")
    assert "they lie in a file of the machine that searches" in str(caught.value)
