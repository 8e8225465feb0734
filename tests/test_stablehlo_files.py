"""StableHLO's own test data, where ``--stablehlo FOLDER`` says it lies; and files of our own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import skips
from commands import Command
from tilewright.testing.stablehlo_files import REFUSED, RIGHT, WRONG, Outcome, outcomes, table

GOOD = """
func.func @main() {
  %0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = stablehlo.multiply %0, %0 : tensor<2xf32>
  check.expect_eq_const %1, dense<[1.0, 4.0]> : tensor<2xf32>
  return
}
"""
BAD = GOOD.replace("[1.0, 4.0]", "[1.0, 5.0]")
FOREIGN = "func.func @main() {\n%0 = stablehlo.replica_id : tensor<ui32>\nreturn\n}\n"
# Of the files in a folder every so many, from this one on.
STEP, FIRST = 60, 7


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    found = []
    for name, text in (("good", GOOD), ("bad", BAD), ("foreign", FOREIGN), ("text", "x")):
        path = tmp_path / f"{name}.mlir"
        path.write_text(text, encoding="utf-8")
        found.append(str(path))
    return found


def test_outcomes(files: Sequence[str]) -> None:
    found = [each for file in files for each in outcomes(Path(file), "interpreter")]
    assert [each.status for each in found] == [RIGHT, WRONG, REFUSED, "not read"]
    assert found[1].why == "line 5: 1 of 2 elements differ: at [1] it is 4.0, expected 5.0"
    lines = table([*found, Outcome(files[0], WRONG)]).splitlines()
    assert lines[1].split()[1:] == ["4", "0", "1", "2", "0", "1"]
    assert lines[2] == "    1 refused: stablehlo.replica_id is not translated"


def test_the_command_judges_by_a_files_own_checks(
    files: Sequence[str], tilewright: Command
) -> None:
    ended = tilewright("verify", "graph", "--target", "interpreter", *files)
    lines = ended.out.splitlines()
    assert lines[0].startswith("PASSED") and lines[1].startswith("FAILED (line 5: 1 of 2")
    assert lines[2].startswith("REFUSED (") and lines[3].startswith("REFUSED (")
    assert lines[4] == "1 passed, 1 failed, 2 refused" and ended.code == 1


def test_a_part_of_the_folder(request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--stablehlo")
    if folder is None:
        skips.lacking("StableHLO's test data is not here")
    paths = sorted(Path(folder).rglob("*.mlir"))[FIRST::STEP]
    found = [each for path in paths for each in outcomes(path, "interpreter")]
    assert found and not [each for each in found if each.status not in (RIGHT, REFUSED)]
