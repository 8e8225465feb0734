"""Configs that the engine takes from a database of tuning, and those that it does not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.config import database_in, settings
from tilewright.engine import CompiledKernel, compile, winners
from tilewright.engine.database_file import TuningWarning
from tilewright.engine.generator import generator_version
from tilewright.engine.request import request_of
from tilewright.engine.winners import Asked
from tilewright.errors import ArgumentError
from tilewright.graph import worker
from tilewright.graph.program import GraphProgram
from tilewright.ir.printer import to_text
from tilewright.recipes import choose
from tilewright.recipes.config import Config, OwnSchedule
from tilewright.targets.registry import find_target
from tilewright.tune.database import Database, Row
from tuned_rows import row_of

PROBLEM = "32x48:48x64"
ENDS = "; the next best, or the model, chooses"


@pytest.fixture
def path(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("TILEWRIGHT_DB", raising=False)
    monkeypatch.setattr(winners, "_said", set())
    monkeypatch.setattr(winners, "_unused", {})
    return tmp_path / "tuned.db"


def default(threads: int = 1) -> CompiledKernel:
    return tw.compile(tw.matmul(PROBLEM), threads=threads, database="")


def others(kernel: CompiledKernel) -> list[Config]:
    """Configs that the recipes do not prefer."""
    ((_, candidates),) = choose.candidates(
        kernel.start, kernel.target.machine, kernel.config
    ).values()
    configs = [candidate.config for candidate in candidates if candidate.config != kernel.config]
    assert len(configs) >= 2
    return configs


def store(path: Path, *rows: Row) -> None:
    with Database(path) as database:
        database.add_all(rows)


def test_the_fastest_row_is_taken(path: Path) -> None:
    kernel = default()
    first, second, *_ = others(kernel)
    store(path, row_of(kernel, first, 3e-6), row_of(kernel, second, 2e-6, times=(1e-6, 2e-6, 9e-6)))
    tuned = tw.compile(tw.matmul(PROBLEM), threads=1, database=path)
    assert tuned.config == second and not tuned.from_cache
    said = tuned.explain()
    assert f"config: {second!r}" in said
    assert f"chosen by: row 2 of the database {path}: 2 us a call (threads: 1, " in said
    assert "the median of 3, measured 20" in said
    assert "chosen by" in tuned._repr_html_()
    # The same code as that of the config, where it is given.
    assert tw.compile(tw.matmul(PROBLEM), threads=1, config=repr(second)).from_cache
    x, y = (np.random.default_rng(0).random(size, np.float32) for size in ((32, 48), (48, 64)))
    np.testing.assert_allclose(tuned(x, tuned.pack("weights", y)), x @ y, rtol=1e-5)
    assert tw.compile(tw.matmul(PROBLEM), threads=1, database=path).from_cache
    compile.forget()
    again = tw.compile(tw.matmul(PROBLEM), threads=1, database=str(path))
    assert again.from_cache and again.config == second and again.explain() == said


def test_who_else_chooses(path: Path) -> None:
    kernel = default()
    assert "chosen by: the recipes\ninstruction: " in kernel.explain()
    store(path, row_of(kernel, others(kernel)[0], 1e-6))
    values = tw.compile(
        tw.matmul(PROBLEM), threads=1, config=repr(others(kernel)[1]), database=path
    )
    assert values.config == others(kernel)[1] and "chosen by: the caller" in values.explain()
    schedule = kernel.source("schedule")
    own = tw.compile(tw.matmul(PROBLEM), threads=1, schedule=schedule, database=path)
    assert f"config: a schedule of {len(schedule.splitlines()) - 1} steps" in own.explain()
    assert "the caller" in own.explain()
    interpreted = tw.compile(tw.matmul(PROBLEM), target="interpreter", database=path)
    assert "chosen by: the recipes" in interpreted.explain()


def test_the_setting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = default()
    store(path, row_of(kernel, others(kernel)[0], 1e-6))
    monkeypatch.setenv("TILEWRIGHT_DB", str(path))
    assert settings().database == path
    assert tw.compile(tw.matmul(PROBLEM), threads=1).config == others(kernel)[0]
    assert default().config == kernel.config
    with database_in(""):
        assert settings().database is None
        with database_in(None):
            assert settings().database is None
    with pytest.raises(ArgumentError, match=r"3 is no database\n  cure: pass the path of a file"):
        tw.compile(tw.matmul(PROBLEM), database=3)  # type: ignore[arg-type]  # which it refuses


def test_two_processes_agree(path: Path, tmp_path: Path) -> None:
    kernel = default()
    store(path, row_of(kernel, others(kernel)[0], 1e-6))
    program = f"""
import tilewright as tw
kernel = tw.compile(tw.matmul({PROBLEM!r}), threads=1)
print(kernel.code.binary.hex(), repr(kernel.config))
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "TILEWRIGHT_DB": str(path),
                "TILEWRIGHT_CACHE_DIR": str(tmp_path / cache),
            },
        ).stdout
        for cache in ("one", "other")
    }
    tuned = tw.compile(tw.matmul(PROBLEM), threads=1, database=path)
    assert said == {f"{tuned.code.binary.hex()} {tuned.config!r}\n"}
    assert tuned.code.binary != kernel.code.binary


@pytest.mark.parametrize(
    "values",
    [
        *({"generator": "another"}, {"features": "others"}, {"target": "x86:avx2"}),
        *({"threads": 2}, {"kernel": "another"}, {"outcome": "correctness"}),
    ],
    ids=lambda values: next(iter(values)),
)
def test_rows_of_something_else(path: Path, values: dict[str, Any]) -> None:
    kernel = default()
    store(path, row_of(kernel, others(kernel)[0], 1e-6, **values))
    assert tw.compile(tw.matmul(PROBLEM), threads=1, database=path).config == kernel.config


def test_rows_that_do_not_fit(path: Path) -> None:
    """Each is said once, and the best that fits is taken."""
    kernel = default()
    fits = others(kernel)[0]
    store(
        path,
        row_of(kernel, "Unknown(tile=3)", 1e-6),
        row_of(kernel, "StencilConfig(lanes='n', vector=7)", 2e-6),
        row_of(kernel, "OwnSchedule(text='nonsense')", 3e-6),
        row_of(kernel, fits, 4e-6),
    )
    with pytest.warns(TuningWarning) as caught:
        tuned = tw.compile(tw.matmul(PROBLEM), threads=1, database=path)
    assert tuned.config == fits
    said = [str(warning.message) for warning in caught]
    assert len(said) == 3
    for number, text in enumerate(said, start=1):
        assert text.startswith(f"row {number} of {path} is not used: ")
        assert text.endswith(ENDS)
    assert "'Unknown(tile=3)' is not a config" in said[0]
    again = tw.compile(tw.matmul(PROBLEM), threads=1, database=path)
    assert again.config == fits
    chosen, *unused = [text.removesuffix(ENDS) for text in (again.origin, *said)]
    assert chosen.startswith(f"row 4 of the database {path}: 4 us")
    assert chosen.endswith("; ".join(("", *unused)))


def test_rows_whose_schedules_no_longer_replay(path: Path) -> None:
    """One of the user's own, and one that is not what its config gives now, as where a recipe of
    the user's changed: also where the code is in the cache already."""
    kernel = default()
    first, second = others(kernel)[:2]
    own = kernel.source("schedule").splitlines()[0] + '\nschedule.tile("nowhere", {"k": 3})\n'
    record = tw.compile(tw.matmul(PROBLEM), threads=1, config=second).source("schedule")
    store(
        path,
        row_of(kernel, OwnSchedule(own), 1e-6),
        row_of(kernel, first, 2e-6, schedule=record),
    )
    with pytest.warns(TuningWarning) as caught:
        tuned = tw.compile(tw.matmul(PROBLEM), threads=1, database=path)
    assert len(caught) == 2
    assert tuned.config == kernel.config
    why = [
        f"row 1 of {path} is not used: step 1 does not fit: tile: there is no compute 'nowhere'",
        f"row 2 of {path} is not used: its config gives another schedule than the one that was "
        "timed",
    ]
    assert f"chosen by: the recipes; {why[0]}; {why[1]}\n" in tuned.explain()
    store(path, row_of(kernel, second, 3e-6, schedule=record))
    tuned = tw.compile(tw.matmul(PROBLEM), threads=1, database=path)
    assert tuned.config == second
    assert why[1] in tuned.explain()


def test_a_damaged_row(path: Path) -> None:
    kernel = default()
    store(path, row_of(kernel, others(kernel)[0], 1e-6), row_of(kernel, others(kernel)[1], 2e-6))
    with Database(path) as database:
        database._connection.execute("UPDATE trials SET data = x'00' WHERE number = 1")
        database._connection.execute("UPDATE trials SET seconds = 0.0 WHERE number = 2")
    assert tw.compile(tw.matmul(PROBLEM), threads=1, database=path).config == kernel.config


def spoiled(path: Path, how: str, kernel: CompiledKernel) -> str:
    """Makes something wrong of ``path``; returns what is said of it."""
    if how == "missing":
        return "cannot open .*No such file or directory.*: the model chooses; name a file"
    if how == "text":
        path.write_text("no database, but some text that is long enough" * 9)
        return "SQLite cannot use .*file is not a database .*: the model chooses; name another"
    store(path, row_of(kernel, others(kernel)[0], 1e-6))
    if how == "others'":
        path.chmod(0o666)
        return "is not yours .*others may write to it.*: the model chooses; copy its rows into"
    if how == "newer":
        with Database(path) as database:
            database._connection.execute("PRAGMA user_version = 99")
        return "is a database of version 99 .*reads and writes version 1.*: the model chooses"
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))
    return "SQLite cannot use .*malformed.*: the model chooses; save what can be read of it"


@pytest.mark.parametrize("how", ["missing", "text", "others'", "newer", "damaged"])
def test_what_is_no_database(path: Path, how: str) -> None:
    kernel = default()
    said = spoiled(path, how, kernel)
    with pytest.warns(TuningWarning, match=said):
        tuned = tw.compile(tw.matmul(PROBLEM), threads=1, database=path)
    assert tuned.config == kernel.config
    why = said.partition(": the model chooses")[0]
    assert re.search(f"chosen by: the recipes; .*{why}\n", tuned.explain())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was said
        tw.compile(tw.matmul(PROBLEM), threads=1, database=path)


def test_while_somebody_writes(path: Path) -> None:
    kernel = default()
    store(path, row_of(kernel, others(kernel)[0], 1e-6))
    with Database(path) as database:
        database._connection.execute("BEGIN IMMEDIATE")
        database._connection.execute("DELETE FROM trials")
        tuned = tw.compile(tw.matmul(PROBLEM), threads=1, database=path)
        assert tuned.config == others(kernel)[0]
        database._connection.execute("ROLLBACK")


def test_kernels_of_a_graph(path: Path) -> None:
    graph = tw.from_stablehlo(
        """
module @two {
  func.func @main(%x: tensor<32x48xf32>, %w: tensor<48x64xf32>, %v: tensor<64x16xf32>)
      -> tensor<32x16xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<32x48xf32>, tensor<48x64xf32>) -> tensor<32x64xf32>
    %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0]
        : (tensor<32x64xf32>, tensor<64x16xf32>) -> tensor<32x16xf32>
    return %1 : tensor<32x16xf32>
  }
}
"""
    )
    program = tw.compile(graph, threads=1, database="")
    assert isinstance(program, GraphProgram)
    first = program.groups[0].compiled
    store(path, row_of(first, others(first)[0], 1e-6))
    tuned = tw.compile(graph, threads=1, database=path)
    assert isinstance(tuned, GraphProgram)
    assert tuned.groups[0].compiled.config == others(first)[0]
    said = tuned.explain()
    assert said.count("chosen by: row 1 of the database") == 1
    assert said.count("chosen by: the recipes") == len(tuned.groups) - 1
    assert tw.compile(graph, threads=1, database=path).from_cache


def test_devices_that_run_kernels_whole() -> None:
    """What was tuned with some threads is used with any."""
    request = request_of(tw.matmul(PROBLEM))
    threads = {
        name: Asked.of(request, find_target(name), 7).threads for name in ("x86", "nvidia:sm_80")
    }
    assert threads == {"x86": 7, "nvidia:sm_80": 1}


def test_the_generators_version_is_that_of_its_sources() -> None:
    assert len(generator_version()) == 16
    program = "from tilewright.engine.generator import generator_version as v; print(v())"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.strip() == generator_version()


def test_without_a_database_none_is_loaded() -> None:
    program = """
import sys
import tilewright as tw
tw.compile(tw.matmul("8x8:8x8"), threads=1)
print("sqlite3" in sys.modules)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TILEWRIGHT_DB": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.strip() == "False"


def test_a_process_that_compiles_for_another(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks the same database, for as many threads."""
    kernel = tw.matmul(PROBLEM).kernel()
    compiled = tw.compile(kernel, threads=3, database="")
    store(path, row_of(compiled, others(compiled)[0], 1e-6))
    common = {"target": "x86", "threads": 3, "database": str(path)}
    task = {"text": to_text(kernel), "constant": [], **common}
    monkeypatch.setattr(sys, "stdin", StringIO(json.dumps(task) + "\n"))
    worker.main()
    assert capsys.readouterr().out == "ready\ndone\n"
    tuned = tw.compile(kernel, threads=3, database=path)
    assert tuned.config == others(compiled)[0] and tuned.from_cache
