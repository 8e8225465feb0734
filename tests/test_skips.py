"""Tests that were skipped are noted; where only hardware may be missing, others are failures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import skips
from checkout import ROOT

CONFTEST = """
import skips
def pytest_addoption(parser):
    skips.add_options(parser)
def pytest_configure(config):
    skips.register(config)
"""
TESTS = """
import pytest
import skips
def test_runs():
    pass
def test_hardware():
    skips.lacking("there is no GPU")
def test_package():
    pytest.importorskip("no_such_package")
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in ``folder``, on one worker beside the process that notes."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS)
    code = f"import sys, pytest; sys.path.append({str(Path(__file__).parent)!r}); "
    code += "sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-q", "-n1", "--rootdir", str(folder), *arguments]
    environment = {"PYTHONPATH": str(Path(__file__).parent), "PATH": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_skipped_tests_are_noted(tmp_path: Path) -> None:
    ended = run(tmp_path, "--note-skipped", "skipped.txt")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    noted = (tmp_path / "skipped.txt").read_text().splitlines()
    assert noted == ["test_it.py::test_hardware", "test_it.py::test_package"]
    assert "skipped 1: hardware: there is no GPU" in ended.stdout
    assert "skipped 1: could not import 'no_such_package'" in ended.stdout


def test_reasons_are_counted() -> None:
    words = ["no torch"] * 3 + ["no GPU"] * 2 + [str(number) for number in range(9)]
    lines = skips.reasons_in_words(words)
    assert lines[:2] == ["skipped 3: no torch", "skipped 2: no GPU"]
    assert lines[-1] == "skipped 3: 3 other reasons, which -rs says"


@pytest.mark.parametrize(("test", "code"), [("hardware", 0), ("package", 1)])
def test_skips_that_an_installation_would_avoid_fail(tmp_path: Path, test: str, code: int) -> None:
    ended = run(tmp_path, "--only-hardware-skips", f"test_it.py::test_{test}")
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert ("not for want of hardware" in ended.stdout) == (code == 1)


def test_the_folder_of_data_is_not_taken_for_one_of_tests(tmp_path: Path) -> None:
    (option,) = re.findall(r"data=\((--.+)\)", (ROOT / ".ci" / "run").read_text())
    words = re.sub(r"\.\./[^ ]+", str(tmp_path), option).split()
    # Like .ci/run, this names no file of tests: they lie where pyproject.toml says.
    command = [sys.executable, "-m", "pytest", *words, "--markers"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
