"""Digests of schedules: the same again, another where something changed."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

import digests
import schedule_replays
import tilewright as tw
from tilewright.engine import compile


def _row(text: str) -> tuple[digests.Digest, float]:
    (row,) = text.splitlines()
    _, *hashes, took = row.split("\t")
    return digests.Digest(*hashes), float(took)


def test_a_case_digests_alike_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("before", "after"):
        assert digests.main(["write", str(tmp_path / name), "--count", "4", "--jobs", "1"]) == 0
    assert digests.main(["compare", str(tmp_path / "before"), str(tmp_path / "after")]) == 0
    assert "4 cases in both files, 0 differ (none)" in capsys.readouterr().out


def test_of_each_driver_there_are_cases_on_all_targets() -> None:
    """Of a whole set as of drivers that no set is of, and not of convolutions alone."""
    counts = Counter(case.driver for _, case in digests.of_each_driver(1, seed=3))
    assert set(counts) == set(digests.DRIVERS)
    assert set(counts.values()) == {len(digests.TARGETS), len(digests.TARGETS) + 1}


def test_what_differs_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (digests.Digest("c", "i", "p", code) for code in ("1", "2"))
    (tmp_path / "before").write_text(digests.line("a", old, 1.0) + digests.line("b", old, 1.0))
    (tmp_path / "after").write_text(digests.line("a", new, 2.0) + digests.line("c", old, 1.0))
    assert digests.main(["compare", str(tmp_path / "before"), str(tmp_path / "after")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "a: code",
        "1 cases in both files, 1 differ (code 1)",
        "1 only before, 1 only after",
        "time after / before: 2.000 (geometric mean)",
    ]


def test_files_that_share_no_case_do_not_agree(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).write_text(digests.line(name, digests.Digest(), 1.0))
    assert digests.compare(tmp_path / "before", tmp_path / "after") == 1


def test_another_schedule_is_another_digest() -> None:
    op = tw.matmul("12x32:32x48")
    target = digests.find_target("x86:avx2")
    with digests.starting_from(digests.Facts.empty()):
        start = digests.Start.of(op.resolved())
        config, scheduled = digests.choose.choose(start, target.machine)
        kernels = {"": scheduled.kernel, **scheduled.packed}
        plain = digests.digest(config, {"": start.kernel}, digests.find_target("interpreter"))
        chosen = digests.digest(config, kernels, target)
    assert set(chosen.differences(plain)) == {"ir", "packs", "code"}
    assert chosen.differences(digests.digest(config, kernels, target)) == ()


def test_what_tests_compile_is_digested(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "digests"
    monkeypatch.setattr(compile, "_build", digests._digesting(compile._build, path))
    rows = []
    for extent in (48, 48, 32):
        compile.forget()
        monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
        tw.compile(tw.matmul(f"12x32:32x{extent}"), target="x86:avx2")
        rows.append(path.read_text().splitlines()[-1])
    names = [row.split("\t")[0] for row in rows]
    first, again, other = (_row(row)[0] for row in rows)
    assert names[0] == names[1] != names[2]
    assert first == again
    assert set(first.differences(other)) >= {"ir", "code"}


def test_the_sweep_has_every_target() -> None:
    drawn = {name for name, _ in islice(schedule_replays.cases(1, digests.TARGETS), 200)}
    assert drawn == set(digests.TARGETS)
