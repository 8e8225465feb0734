"""Which tests run by default, and which are left to sweeps: together they are all."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import sweeps
from checkout import ROOT

CONFTEST = """
from pathlib import Path
import sweeps
sweeps.LONG = Path(__file__).parent / "long.txt"
def pytest_addoption(parser):
    sweeps.add_options(parser)
def pytest_configure(config):
    sweeps.register(config)
def pytest_collection_modifyitems(config, items):
    sweeps.choose(config, items)
"""
TESTS = """
import time
import pytest
import sweeps
def test_alone():
    end = time.process_time() + sweeps._LONGEST + 0.1
    while time.process_time() < end:
        pass
@pytest.mark.parametrize("number", range(40))
def test_many(number):
    pass
@pytest.mark.parametrize(("a", "b"), sweeps.in_turns(2, range(4), range(4)))
def test_turns(a, b):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "long.txt").write_text("test_it.py::test_alone 0\ntest_it.py::test_many 4\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[set[str], str]:
    """Runs pytest in ``folder``: the tests that passed, and all that it printed."""
    code = f"import sys, pytest; sys.path.append({str(Path(__file__).parent)!r}); "
    code += "sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-rp", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    ended = subprocess.run(
        [sys.executable, "-c", code, *options],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parent), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    passed = {
        line.removeprefix("PASSED ") for line in ended.stdout.splitlines() if "PASSED" in line
    }
    return passed, ended.stdout


def test_values_meet_in_turns() -> None:
    taken = [p.values for p in sweeps.in_turns(3, "abc", range(3), range(6)) if not p.marks]
    assert len(taken) == 3 * 3 * 6 // 3
    for first, second in ((0, 1), (0, 2), (1, 2)):
        met = {(values[first], values[second]) for values in taken}
        assert len(met) == len({v[first] for v in taken}) * len({v[second] for v in taken})


def test_what_runs_by_default_and_what_is_left_to_sweeps_is_all(folder: Path) -> None:
    default, said = run(folder, "-n1")
    swept, _ = run(folder, "--sweep")
    assert len(default | swept) == 1 + 40 + 16 and not default & swept
    assert f"left out, as they take long: {len(swept)} (--sweep runs them)" in said
    assert "test_it.py::test_alone" in swept
    assert 4 <= sum("test_many" in test for test in default) <= 20
    assert sum("test_turns" in test for test in default) == 8


def test_what_is_named_runs_and_all_by_an_option(folder: Path) -> None:
    turn = "test_it.py::test_turns[0-1]"
    assert run(folder, "test_it.py::test_many", turn)[0] == {
        turn,
        *(f"test_it.py::test_many[{number}]" for number in range(40)),
    }
    assert len(run(folder, "--whole")[0]) == 1 + 40 + 16


def test_what_takes_long_is_noted(folder: Path) -> None:
    (folder / "long.txt").write_text("test_it.py::test_many 4\ntest_other.py::test_it 3\n")
    passed, _ = run(folder, "-n1", "--note-long")
    assert len(passed) == 1 + 40 + 8
    lines = (folder / "long.txt").read_text().splitlines()
    # What was not measured is as it was.
    noted = [line for line in lines if not line.startswith("#")]
    assert noted == ["test_it.py::test_alone 0", "test_other.py::test_it 3"]


def test_a_share_leaves_at_least_one_case() -> None:
    for cases in (1, 2, 3, 7, 50):
        seconds = {f"a.py::test[{number}]": 0.3 for number in range(cases)}
        every = {
            name: int(number)
            for name, number in (
                line.rsplit(" ", 1)
                for line in sweeps.long_text(seconds, {}).splitlines()
                if not line.startswith("#")
            )
        }
        assert any(sweeps.drawn(test, every) for test in seconds)


def test_functions_that_take_long_are_there() -> None:
    named = defaultdict(set)
    for name in sweeps.read_long():
        path, _, function = name.partition("::")
        named[path].add(function)
    assert named
    for path, functions in named.items():
        there = set(re.findall(r"def (\w+)\(", (ROOT / path).read_text(encoding="utf-8")))
        assert functions <= there, f"{path}: renamed or gone, so mend tests/long.txt"
