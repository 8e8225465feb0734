"""`tilewright check` and `verify` of functions with `@tw.kernel`, with no option: every planted
fault is found, no right kernel has one, and what does nothing does not pass."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from checkout import TESTS
from commands import Command
from lang_kernels import CASES, Case
from sweeps import in_turns
from tilewright.cli.kernels import draws, kernel_cases
from tilewright.errors import UnsupportedError
from tilewright.targets.registry import find_target
from tilewright.testing.check import check_kernel
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.kernel_numbers import draw_numbers

KERNELS = TESTS / "lang_kernels"
RIGHT, FAULTY = KERNELS / "right.py", KERNELS / "faulty.py"
MACHINE = find_target("x86:avx2").machine


def names(path: Path) -> list[str]:
    return re.findall(r"^def (\w+)", path.read_text(encoding="utf-8"), re.M)


def kinds() -> dict[str, str]:
    """Of each faulty kernel the kind of its fault, which a comment in front of it says."""
    text = FAULTY.read_text(encoding="utf-8")
    return {name: kind for kind, name in re.findall(r"^# (.+)\n@.*\ndef (\w+)", text, re.M)}


def found(case: KernelCase) -> set[str]:
    """The kinds of faults of ``case``."""
    return {issue.kind for report in check_kernel(case, MACHINE) for issue in report.issues}


def test_there_are_enough() -> None:
    assert len(names(RIGHT)) >= 20 and len(names(FAULTY)) >= 20
    assert list(kinds()) == names(FAULTY)


@pytest.mark.parametrize("name", names(RIGHT))
def test_right_kernels_pass(name: str) -> None:
    (case,) = kernel_cases([f"{RIGHT}:{name}"], (), ())
    stored = False
    for drawn in draws(case, 0, 0):
        reports = check_kernel(drawn, MACHINE)
        assert not [issue.message for report in reports for issue in report.issues]
        stored |= any(report.stored for report in reports)
    assert stored


@pytest.mark.parametrize(("name", "kind"), kinds().items())
def test_planted_faults_are_found(name: str, kind: str) -> None:
    (case,) = kernel_cases([f"{FAULTY}:{name}"], (), ())
    kinds_found = set()
    for drawn in draws(case, 0, 0):
        with suppress(UnsupportedError):  # a target refuses it
            kinds_found |= found(drawn)
    assert kind in kinds_found


@pytest.mark.parametrize("each", in_turns(2, CASES), ids=lambda case: case.name)
def test_the_suite_passes(each: Case) -> None:
    """Kernels as they are launched, of numbers that nobody chose for them."""
    arguments = each.arguments(np.random.default_rng(0))
    kernel = each.kernel.specialized(each.range, *arguments, local=each.locals[0])
    for seed in range(4):
        numbers = draw_numbers(kernel, {}, seed)
        assert not found(KernelCase(kernel, each.name, numbers, seed=seed, python=True)), numbers


def drawn(source: str, name: str, tmp_path: Path) -> list[dict[str, object]]:
    path = tmp_path / f"{name}.py"
    path.write_text(f"import tilewright as tw\n\n\n{source}", encoding="utf-8")
    (case,) = kernel_cases([str(path)], (), ())
    return [dict(draw.numbers) for draw in draws(case, 8, 0)]


SAXPY = """@tw.kernel
def saxpy(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]
"""


def test_numbers_go_together(tmp_path: Path) -> None:
    cases = drawn(SAXPY, "saxpy", tmp_path)
    assert all(case["x_0"] == case["y_0"] == case["n"] for case in cases)
    less = {int(case["global_0"]) - int(case["n"]) for case in cases}  # type: ignore[call-overload]
    assert less >= {0, 1} and max(less) > 1 and min(less) == 0
    assert min(int(case["n"]) for case in cases) == 1  # type: ignore[call-overload]


NOTHING = """@tw.kernel
def nothing(x: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i < 0:
        x[i] = 0.0
"""


@pytest.mark.parametrize("verb", ["check", "verify"])
def test_nothing_stored_is_no_pass(verb: str, tilewright: Command, tmp_path: Path) -> None:
    path = tmp_path / "nothing.py"
    path.write_text(f"import tilewright as tw\n\n\n{NOTHING}\n\n{SAXPY}", encoding="utf-8")
    ended = tilewright(verb, "kernel", f"{path}:nothing")
    assert ended.code == 1
    assert ended.lines[0].startswith("SKIPPED (no work-item stored anything) kernel ")
    assert ended.lines[-1] == "0 passed, 0 failed, 4 skipped"
    assert tilewright(verb, "kernel", f"{path}:saxpy").code == 0
    empty = tilewright(verb, "kernel", "--set=global_0=0", f"{path}:saxpy")
    assert empty.code == 1 and "no work-item stored anything" in empty.out


def test_divisions_by_zero_are_faults_of_python_only(tmp_path: Path) -> None:
    """In the IR they give 0."""
    (case,) = kernel_cases([f"{FAULTY}:quotient"], (), ())
    first = next(draws(case, 1, 0))
    assert found(first) == {"division by zero"}
    text = KernelCase(first.kernel, "quotient.tw", first.numbers, seed=first.seed)
    assert not found(text)
