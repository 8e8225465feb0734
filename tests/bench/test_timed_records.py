"""Times that rates are fitted to: what is kept of them, and how a model is judged by them. No time
is asserted."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tilewright.bench.accuracy import (
    accuracy,
    print_accuracy,
    rank_correlation,
)
from tilewright.bench.fitting import collect, prepare
from tilewright.bench.timed_records import TimedRecord, append, read_records
from tilewright.engine import compile_kernel
from tilewright.errors import ArgumentError, UnsupportedError
from tilewright.ir.compare import same
from tilewright.problems import parse
from tilewright.recipes.config import parse_config
from tilewright.targets.registry import find_target
from tilewright.testing.case import Case
from tilewright.testing.timed_cases import TimedCase, timed_cases


def case_of(driver: str, text: str) -> TimedCase:
    case = Case(parse(driver, text))
    return TimedCase(driver, case.arguments(), case)


CASES = (
    case_of("softmax", "8x64"),
    case_of("matmul", "24x32:32x48"),
    *timed_cases(1, 2, ["launch"]),
)


def test_what_is_kept(tmp_path: Path) -> None:
    """Of each config the scheduled kernel; what a file has is not measured again."""
    file, said, held = tmp_path / "times" / "x.jsonl", list[str](), list[str]()

    @contextmanager
    def alone() -> Iterator[None]:
        held.append("begin")
        yield
        held.append("end")

    options = {"seconds": 0.0, "batch": 2, "alone": alone, "progress": said.append}
    records = list(collect(CASES[:2], "x86", 1, file, **options))
    assert held == ["begin", "end"]
    assert read_records(file) == records
    assert len(said) == 1 and said[0].startswith(f"{len(records)} kernels in ")
    records += collect(CASES, "x86", 1, file, **options)
    assert read_records(file) == records
    assert not list(collect(CASES, "x86", 1, file, **options))
    for case in CASES:
        mine = [record for record in records if record.problem == case.name]
        assert [record.default for record in mine] == [True] + [False] * (len(mine) - 1)
        assert len({record.text for record in mine}) == len(mine) > 1
        for record in mine:
            assert record.kind == case.kind and record.seconds >= record.best > 0
            kernel = compile_kernel(case.what, "x86", 1, parse_config(record.config))
            if case.numbers:
                assert not record.kernel.scalars
            else:
                assert same(record.kernel, kernel.schedule.kernel)


def test_the_same_case_has_the_same_configs() -> None:
    first, again = (prepare(CASES[1], "x86", 1, 3) for _ in range(2))
    assert list(first.kernels) == list(again.kernels)
    assert 2 <= len(first.kernels) <= 4


def test_what_is_refused_is_passed_over(tmp_path: Path) -> None:
    records = collect((CASES[0],), "nvidia:sm_12", 1, tmp_path / "x.jsonl", seconds=0.0)
    with pytest.raises(UnsupportedError, match="sm_12"):
        find_target("nvidia:sm_12")
    assert not list(records)


RECORD = TimedRecord("scan", "a", "x86", "some", 1, "PlainConfig()", True, 2e-6, 1e-6, 0.01, "k")


def test_files(tmp_path: Path) -> None:
    """A line that a process did not finish does not count, and the next one takes its place."""
    file = tmp_path / "x.jsonl"
    assert read_records(file) == []
    second = replace(RECORD, numbers={"n": 3, "scale": 0.5}, noise=("others had the cores",))
    append(file, [RECORD, second])
    text = file.read_text()
    file.write_text(text + RECORD.line()[:40])
    assert read_records(file) == [RECORD, second]
    append(file, [RECORD])
    assert file.read_text() == text + RECORD.line()
    file.write_text(RECORD.line()[:40] + "\n" + text)
    with pytest.raises(ArgumentError, match="line 1 is no record of a time") as error:
        read_records(file)
    assert "name a file that the same version wrote" in str(error.value)
    file.write_text(json.dumps({"kind": "scan"}) + "\n")
    with pytest.raises(ArgumentError, match="KeyError: 'problem'"):
        read_records(file)


def test_ranks() -> None:
    assert rank_correlation([1, 2, 30], [2, 5, 7]) == pytest.approx(1)
    assert rank_correlation([3, 2, 1], [2, 5, 7]) == pytest.approx(-1)
    # Equal ones have the mean of their ranks: of (1, 2.5, 2.5, 4) and (1, 3, 2, 4).
    assert rank_correlation([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(4.5 / 22.5**0.5)
    assert rank_correlation([1, 1], [1, 2]) is None
    assert rank_correlation([1], [2]) is None


def test_accuracy() -> None:
    """Of two problems: one whose default is best, and one whose default takes twice as long."""
    predicted: dict[float, float] = {}
    records = []
    for problem, default, seconds, said in (
        ("a", True, 1.0, 2.0),
        ("a", False, 4.0, 4.0),
        ("b", True, 6.0, 3.0),
        ("b", False, 3.0, 6.0),
        ("c", True, 8.0, 8.0),
    ):
        kind = "norm" if problem == "c" else "scan"
        record = replace(RECORD, kind=kind, problem=problem, default=default, seconds=seconds)
        records.append(record)
        predicted[seconds] = said
    scan, norm, whole = accuracy(records, lambda record: predicted[record.seconds])
    assert (scan.kind, scan.kernels, scan.problems) == ("scan", 4, 2)
    assert scan.rank == pytest.approx(0.2)
    assert scan.ratio == pytest.approx(2**0.25) and scan.error == pytest.approx(2**0.75 - 1)
    assert (scan.regret, scan.worst) == (0.5, 1.0)
    assert (scan.chosen, scan.chosen_worst) == (0.5, 1.0)
    assert (norm.kernels, norm.problems, norm.rank, norm.error) == (1, 0, None, 0)
    assert (norm.regret, norm.worst, norm.chosen, norm.chosen_worst) == (None,) * 4
    assert (whole.kind, whole.kernels, whole.problems) == ("all", 5, 2)
    assert whole.error == pytest.approx(2**0.6 - 1)
    exact, *_ = accuracy(records, lambda record: record.seconds)
    assert (exact.rank, exact.ratio, exact.error, exact.chosen) == (pytest.approx(1), 1, 0, 0)
    assert accuracy([], lambda record: 1.0) == []

    stream = io.StringIO()
    print_accuracy([scan, norm, whole], Console(file=stream))
    head, first, second, last = (line.split() for line in stream.getvalue().splitlines())
    titles = "kind kernels problems rank ratio error regret worst chosen worst"
    assert head == titles.split()
    assert first == ["scan", "4", "2", "0.200", "1.189", "68.2%", *("50.0%", "100.0%") * 2]
    assert second == ["norm", "1", "0", "1.000", "0.0%"] and last[0] == "all"
