"""StableHLO's own test data, where ``--stablehlo FOLDER`` says it lies; and files of our own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import skips
from commands import Command
from tilewright.dtypes import dtype
from tilewright.ir.constants import digest_of
from tilewright.ir.parser import parse_kernel
from tilewright.testing.stablehlo_files import REFUSED, RIGHT, WRONG, outcomes, worst_of
from tilewright.testing.widened import exact_results

GOOD = """
func.func @main() {
  %0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = stablehlo.multiply %0, %0 : tensor<2xf32>
  check.expect_eq_const %1, dense<[1.0, 4.0]> : tensor<2xf32>
  return
}
"""
BAD = GOOD.replace("[1.0, 4.0]", "[1.0, 5.0]")
NEAR = """
func.func @main() {
  %x = stablehlo.constant dense<[0.1, 0.3]> : tensor<2xf32>
  %y = stablehlo.add %x, %x : tensor<2xf32>
  %e = stablehlo.constant dense<[WANTED, 0.6]> : tensor<2xf32>
  stablehlo.custom_call @check.expect_KIND(%y, %e) : (tensor<2xf32>, tensor<2xf32>) -> ()
  return
}
"""
FOREIGN = "func.func @main() {\n%0 = stablehlo.replica_id : tensor<ui32>\nreturn\n}\n"
# Of the files in a folder every so many, from this one on.
STEP, FIRST = 60, 7


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    result = []
    for name, text in (("good", GOOD), ("bad", BAD), ("foreign", FOREIGN), ("text", "x")):
        path = tmp_path / f"{name}.mlir"
        path.write_text(text, encoding="utf-8")
        result.append(str(path))
    return result


def test_outcomes(files: Sequence[str]) -> None:
    result = [outcome for file in files for outcome in outcomes(Path(file), "interpreter")]
    assert [case.status for case in result] == [RIGHT, WRONG, REFUSED, "not read"]
    assert result[1].why == "line 5: 1 of 2 elements differ: at [1] it is 4.0, expected 5.0"
    assert result[2].why == "stablehlo.replica_id is not translated"
    both = Path(files[0]).with_name("both.mlir")
    both.write_text(f"{GOOD}// -----\n{BAD}// -----\n{FOREIGN}", encoding="utf-8")
    assert worst_of(both, "interpreter").status == WRONG


@pytest.mark.parametrize(
    ("kind", "wanted", "status"),
    [
        ("close", "0.20000002", RIGHT),
        # Twenty units: ours are nearer to f64's.
        ("close", "0.2000003", RIGHT),
        ("almost_eq", "0.2000003", RIGHT),
        ("eq", "0.2000003", WRONG),
        ("close", "0.2000015", WRONG),
        ("close", "nan", WRONG),
    ],
)
def test_what_a_file_expects_may_be_rounded_worse(
    kind: str, wanted: str, status: str, tmp_path: Path
) -> None:
    path = tmp_path / "near.mlir"
    text = NEAR.replace("KIND", kind).replace("WANTED", wanted).replace("nan", "0x7FC00000")
    path.write_text(text, encoding="utf-8")
    (result,) = outcomes(path, "interpreter")
    assert result.status == status, result.why


def test_kernels_are_widened_with_their_numbers() -> None:
    values = np.array([0.1, 2.5], np.float32)
    digest = digest_of(values)
    text = f"""
kernel scaled(in x: f32[2], constant c: f32[2] = {digest}, out y: f32[2], out z: bf16[2]):
  compute scaled(i in 2):
    x = x[i]
    c = c[i]
    y[i] = select(x < inf, x * 0.1 + c * 1e-05, f32(bf16(x)))
    z[i] = bf16(x)
"""
    kernel = parse_kernel(text, constants={digest: values})
    x = np.array([1.0, 3.0], np.float32)
    result = exact_results(kernel, {"x": x})
    tenth, small = (float(np.float32(number)) for number in (0.1, 1e-05))
    assert result["y"].dtype == np.float64 and result["z"].dtype == dtype("bf16").numpy
    np.testing.assert_allclose(
        result["y"], x.astype(np.float64) * tenth + values.astype(np.float64) * small, rtol=1e-15
    )
    bits = text.replace("f32(bf16(x))", "bitcast(f32, bitcast(u32, x))")
    assert exact_results(parse_kernel(bits, constants={digest: values}), {"x": x}) == {}


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
    result = [outcome for path in paths for outcome in outcomes(path, "interpreter")]
    assert result and not [case for case in result if case.status not in (RIGHT, REFUSED)]
