"""`tilewright verify --target nvidia:LEVEL --on interpreter --batch` over the edges of convolution:
each generation's default schedules, in every direction, type and layout.

Each problem is verified once per generation, in one of the combinations, which take turns; every
combination occurs, also in the half of the problems that is no sweep.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from commands import Command
from sweeps import in_turns
from tilewright.bench import catalog
from tilewright.cli.cases import cases_of
from tilewright.cli.knobs import Knobs

LEVELS = ("sm_70", "sm_80", "sm_90a")
DIRECTIONS = ("FWD_B", "BWD_D", "BWD_WB")
TYPES = ("bf16", "f16", "tf32:tf32:f32", "f32", "s8:s8:s32")
TAGS = ("axb", "abx")
# Integers have no backward convolution.
COMBINATIONS = tuple(
    (direction, types, tag)
    for direction, types, tag in itertools.product(DIRECTIONS, TYPES, TAGS)
    if direction == "FWD_B" or not types.startswith("s8")
)


HALVES = (0, 1)


def _lines(level: str, direction: str, half: int) -> list[str]:
    """The lines of a batch file: of the combinations, those of one direction."""
    turn = LEVELS.index(level)
    shift = 7 * turn  # another generation has other combinations
    lines = [f"--dir={direction}"]
    problems = catalog.load("tails").problems[(half + turn) % 2 :: 2]
    for number, problem in enumerate(problems):
        chosen, types, tag = COMBINATIONS[(number + shift) % len(COMBINATIONS)]
        if chosen == direction:
            lines.append(f"--dt={types} --stag={tag} --dtag={tag} {problem.descriptor()}")
    return lines


def test_all_combinations_occur() -> None:
    for level in LEVELS:
        result = [
            [line for direction in DIRECTIONS for line in _lines(level, direction, half)[1:]]
            for half in HALVES
        ]
        assert sum(map(len, result)) == len(catalog.load("tails").problems)
        assert all(len(lines) >= len(COMBINATIONS) for lines in result)


@pytest.mark.parametrize(("half", "level", "direction"), in_turns(9, HALVES, LEVELS, DIRECTIONS))
def test_convolutions(
    tilewright: Command, own_cache: Path, tmp_path: Path, half: int, level: str, direction: str
) -> None:
    batch = tmp_path / "cases.txt"
    batch.write_text("\n".join(["# driver: conv", *_lines(level, direction, half), ""]))
    cases = cases_of(Knobs("conv", batch=batch))
    target = f"nvidia:{level}"
    options = ("--target", target, "--on", "interpreter", "--batch", str(batch))
    ended = tilewright("verify", "conv", *options)
    wrong = [line for line in ended.lines if not line.startswith("PASSED")]
    assert wrong == [f"{len(cases)} passed, 0 failed, 0 skipped"], ended.err
    assert ended.code == 0
