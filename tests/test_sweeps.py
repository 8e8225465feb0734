"""Of combinations that take long, a part is run, and `--sweep` runs the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps import in_turns

CONFTEST = """
import sweeps
def pytest_addoption(parser):
    sweeps.add_options(parser)
def pytest_configure(config):
    sweeps.register(config)
def pytest_collection_modifyitems(config, items):
    sweeps.choose(config, items)
"""
TESTS = """
import pytest
from sweeps import in_turns
@pytest.mark.parametrize(("a", "b"), in_turns(2, "xy", [1, 2]))
def test_it(a, b):
    pass
def test_always():
    pass
"""


def test_values_meet_in_turns() -> None:
    taken = [p.values for p in in_turns(3, "abc", range(3), range(6)) if not p.marks]
    assert len(taken) == 3 * 3 * 6 // 3
    for first, second in ((0, 1), (0, 2), (1, 2)):
        met = {(values[first], values[second]) for values in taken}
        assert len(met) == len({v[first] for v in taken}) * len({v[second] for v in taken})


@pytest.mark.parametrize(
    ("arguments", "names"),
    [([], ["test_it[x-1]", "test_it[y-2]", "test_always"]), (["--sweep"], ["x-2", "y-1"])],
)
def test_sweeps_run_the_others(tmp_path: Path, arguments: list[str], names: list[str]) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    code = f"import sys, pytest; sys.path.append({str(Path(__file__).parent)!r}); "
    code += "sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-q", "--collect-only", *arguments]
    # What this run was told is not for that one.
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = [line for line in ended.stdout.splitlines() if "::" in line]
    assert len(found) == len(names)
    assert all(name in line for name, line in zip(names, found, strict=True))
