"""Mutated calls, configs and texts of kernels end well, or in an error of the project's tree; the
long sweep is ``python tests/fuzz_face.py --count 500000``."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import suppress

import pytest

import face_texts
import fuzz_face
from checkout import TESTS
from face_calls import Calls
from sweeps import in_turns
from tilewright.errors import InterpreterFault, TilewrightError
from tilewright.ir import parse_kernel, verify

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize("seed", in_turns(2, range(4)))
def test_calls(seed: int) -> None:
    found_all = list(fuzz_face.faults(seed, 0, 700, texts=0.0))
    assert len(found_all) == 700
    for found in found_all:
        assert found is None, f"{found.text}\n{found.error}"


@pytest.mark.parametrize("seed", in_turns(2, range(4)))
def test_texts(seed: int) -> None:
    found_all = list(fuzz_face.faults(seed, 0, 150, texts=1.0))
    assert len(found_all) == 150
    for found in found_all:
        assert found is None, f"{found.text}\n{found.error}"


def test_foreign_exceptions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Calls, "call", lambda calls: "len(3)")
    result = fuzz_face.fault(random.Random(0), 7, texts=0.0)
    assert result is not None
    assert (result.number, result.text) == (7, "len(3)")
    assert "TypeError" in result.place
    monkeypatch.setattr(Calls, "call", lambda calls: "tw.matmul('4x5')")
    assert fuzz_face.fault(random.Random(0), 7, texts=0.0) is None


def test_cases_depend_on_seed_and_number_alone() -> None:
    first = [Calls(random.Random(f"3 {number}")).call() for number in range(50)]
    assert first == [Calls(random.Random(f"3 {number}")).call() for number in range(50)]
    assert len(set(first)) > 40


def test_many_cases_are_right() -> None:
    """A fuzzer whose cases are all refused at the door finds nothing."""
    texts = [face_texts.text(random.Random(f"1 {number}")) for number in range(200)]
    right = 0
    for text in texts:
        try:
            verify(parse_kernel(text))
        except TilewrightError:
            continue
        right += 1
    assert right > 30


@pytest.mark.parametrize("text", face_texts.SEEDS)
def test_seeds_are_right(text: str) -> None:
    verify(parse_kernel(text))
    # Places that have to differ do not in arrays of zeros.
    with suppress(InterpreterFault):
        face_texts.check(text)


def test_the_sweep_reports() -> None:
    """The command runs, counts, and ends with 0."""
    program = TESTS / "fuzz_face.py"
    words = [sys.executable, str(program), "--count", "30", "--texts", "0.5"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "30 cases of seed 0: 0 foreign exceptions" in ended.stdout
