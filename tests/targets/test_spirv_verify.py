"""`tilewright verify --target spirv --batch` over the sets: every direction, type and layout, on
the schedules for processors and for GPUs.

Each convolution of a set is verified once per machine, in one of the combinations, which take
turns; every combination occurs, also in the half of the problems that is no sweep. The other
drivers' files in ``sets`` say what they combine.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from checkout import TESTS
from commands import Command
from needs import needs_opencl
from sweeps import in_turns
from tilewright.bench import catalog
from tilewright.cli.cases import cases_of
from tilewright.cli.knobs import Knobs

pytestmark = needs_opencl

SETS = TESTS / "sets"
# The schedules of each, which run on one device; GPUs' take longer to compile.
TARGETS = ("spirv", "spirv:gpu")
DIRECTIONS = ("FWD_B", "BWD_D", "BWD_WB")
TYPES = ("f32", "f16")
TAGS = ("axb", "abx", "aBx16b")
COMBINATIONS = tuple(itertools.product(DIRECTIONS, TYPES, TAGS))
# Of the small networks' problems, one in so many.
EVERY = {"spirv": 4, "spirv:gpu": 6}
# Taps, pixels or both that some phases lack; one that is dilated by a part of its stride.
STRIDED = (
    "mb2ic32ih14oc32kh3ph1sh2",
    "mb1ic64ih14oc32kh1sh2",
    "mb1ic32ih13iw10oc24kh5kw4ph2pw1sh3sw2",
    "mb1g2ic32ih11oc32kh3ph2dh1sh4",
)
OTHERS = ("integers", "matmul", "pool", "reduce", "eltwise", "binary", "reorder")


def _convolutions(target: str) -> list[str]:
    tails = [problem.descriptor() for problem in catalog.load("tails").problems]
    networks = cases_of(Knobs("conv", batch=SETS / "networks.txt"))
    return tails + [case.problem.descriptor() for case in networks[:: EVERY[target]]]


HALVES = (0, 1)


def _lines(target: str, direction: str, half: int) -> list[str]:
    """The lines of a batch file: of the combinations, those of one direction."""
    shift = TARGETS.index(target)  # the other machine has another combination
    lines = [f"--dir={direction}"]
    for number, descriptor in enumerate(_convolutions(target)[(half + shift) % 2 :: 2]):
        chosen, type_, tag = COMBINATIONS[(number + shift) % len(COMBINATIONS)]
        if chosen == direction:
            lines.append(f"--dt={type_} --stag={tag} --dtag={tag} {descriptor}")
    return lines


def _verify(tilewright: Command, driver: str, target: str, batch: Path) -> None:
    cases = cases_of(Knobs(driver, batch=batch))
    ended = tilewright("verify", driver, "--target", target, "--batch", str(batch))
    wrong = [line for line in ended.lines if not line.startswith("PASSED")]
    assert wrong == [f"{len(cases)} passed, 0 failed, 0 skipped"], ended.err
    assert ended.code == 0


@pytest.mark.parametrize(("half", "target", "direction"), in_turns(8, HALVES, TARGETS, DIRECTIONS))
def test_convolutions(
    tilewright: Command, own_cache: Path, tmp_path: Path, half: int, target: str, direction: str
) -> None:
    batch = tmp_path / "cases.txt"
    batch.write_text("\n".join(["# driver: conv", *_lines(target, direction, half), ""]))
    _verify(tilewright, "conv", target, batch)


@pytest.mark.parametrize(("half", "target"), in_turns(3, HALVES, TARGETS))
def test_strided_convolutions_by_data(
    tilewright: Command, own_cache: Path, tmp_path: Path, half: int, target: str
) -> None:
    # Each type and each problem are in both halves.
    lines = [
        f"--dt={type_} --stag=axb --dtag=axb {descriptor}"
        for row, type_ in enumerate((*TYPES, "bf16"))
        for column, descriptor in enumerate(STRIDED)
        if (row + column + half) % 2 == 0
    ]
    batch = tmp_path / "cases.txt"
    batch.write_text("\n".join(["# driver: conv", "--dir=BWD_D", *lines, ""]))
    _verify(tilewright, "conv", target, batch)


@pytest.mark.parametrize(("name", "target"), in_turns(5, OTHERS, TARGETS))
def test_others(tilewright: Command, own_cache: Path, name: str, target: str) -> None:
    driver = "conv" if name == "integers" else name
    _verify(tilewright, driver, target, SETS / f"{name}.txt")


def test_every_combination_occurs() -> None:
    for target in TARGETS:
        for half in HALVES:
            lines = [
                line for direction in DIRECTIONS for line in _lines(target, direction, half)[1:]
            ]
            result = {tuple(line.split()[:3]) for line in lines}
            assert len(result) == len(TYPES) * len(TAGS)
            assert len(lines) >= 35


@pytest.mark.skipif(shutil.which("spirv-val") is None, reason="needs spirv-val")
def test_build(tilewright: Command, own_cache: Path, tmp_path: Path) -> None:
    built = ("build", "conv", "--target", "spirv:gpu", "-o", str(tmp_path), "ic16ih7oc20kh3ph1")
    assert tilewright(*built).code == 0
    modules = sorted(tmp_path.glob("*.spv"))
    assert modules
    for module in modules:
        subprocess.run(["spirv-val", str(module)], check=True)
    assert "local memory" in next(tmp_path.glob("*.md")).read_text()
