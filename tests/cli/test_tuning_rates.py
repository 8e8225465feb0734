"""``tilewright tune --fit`` and ``--accuracy``, on times that are invented."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from commands import Command
from tilewright.bench.timed_records import TimedRecord, append
from tilewright.engine.request import request_of
from tilewright.ir.printer import to_text
from tilewright.predict.time import cycles_of
from tilewright.predict.work import work_of
from tilewright.recipes import choose
from tilewright.targets.registry import find_target
from tilewright.targets.x86.assemble import host_cpu
from tilewright.testing.timed_cases import timed_cases

TITLES = [
    "kind",
    "kernels",
    "problems",
    "rank",
    "ratio",
    "error",
    *("regret", "worst", "chosen", "worst"),
]


@pytest.fixture(scope="module")
def times(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of kernels for AVX2, where all takes twice as long as by the costs that ship."""
    machine = find_target("x86:avx2").machine
    assert machine.costs is not None
    slower = {kind: 2 * cycles for kind, cycles in machine.costs.cycles.items()}
    costs = replace(machine.costs, cycles=slower)
    records = []
    for case in timed_cases(40, 1, ("row reduction", "transpose")):
        _, scheduled = choose.choose(request_of(case.what).start(), machine)
        text = to_text(scheduled.kernel)
        empty = TimedRecord(
            case.kind, case.name, "x86:avx2", host_cpu(), 1, "-", True, 1, 1, 0, text
        )
        seconds = cycles_of(work_of(empty.kernel, machine, 1), costs) / costs.clock
        records.append(replace(empty, seconds=seconds))
    path = tmp_path_factory.mktemp("times") / "times.jsonl"
    append(path, records)
    return path


def columns(lines: Sequence[str], kind: str) -> list[list[str]]:
    return [line.split()[len(kind.split()) :] for line in lines if line.strip().startswith(kind)]


def test_accuracy_and_fit(
    tilewright: Command, times: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times that are twice the predicted ones; after a fit, they are not."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    options = "--target", "x86:avx2", "--minutes", "0", "--records", str(times)
    json_file = tmp_path / "found.json"
    ended = tilewright("tune", "--accuracy", *options, "--json", str(json_file))
    assert ended.code == 0, ended.err
    assert TITLES in [line.split() for line in ended.lines]
    assert columns(ended.lines, "all") == [["40", "0", "1.000", "0.500", "100.0%"]]
    (*_, last) = json.loads(json_file.read_text())["accuracy"]
    assert last["ratio"] == pytest.approx(0.5) and last["regret"] is None
    assert not (tmp_path / "cache" / "costs").exists()

    ended = tilewright("tune", "--fit", *options)
    assert ended.code == 0, ended.err
    before, after = columns(ended.lines, "all")
    assert before[3] == "0.500" and float(after[3]) == pytest.approx(1, abs=0.1)
    (kept,) = (tmp_path / "cache" / "costs").iterdir()
    assert f"kept in {kept}" in ended.out
    assert json.loads(kept.read_text())["kernels"] == 40


def test_bad_input(tilewright: Command) -> None:
    ended = tilewright("tune", "--fit", "--accuracy")
    assert ended.code == 2 and "--fit and --accuracy are given" in ended.err
    ended = tilewright("tune", "--fit", "--target", "nvidia:sm_80")
    assert ended.code == 2 and "kernels for nvidia:sm_80 do not run here" in ended.err
    ended = tilewright("tune", "--accuracy", "--target", "interpreter")
    assert ended.code == 2 and "no times of kernels are predicted" in ended.err
