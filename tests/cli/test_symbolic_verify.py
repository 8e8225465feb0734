"""`verify --symbolic`: one kernel for all numbers of some sizes, verified at many; and `bench
--symbolic`: beside the kernel of one size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from measurements import PEAKS
from tilewright.cli import benchmarking
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.problems import parse
from tilewright.testing.case import Case
from tilewright.testing.symbolic_case import SymbolicCase, verify_sizes
from tilewright.testing.symbolic_ops import resized, symbolic_kernel
from tilewright.testing.verify import Status


def case(driver: str, descriptor: str, names: str, **knobs: object) -> SymbolicCase:
    return SymbolicCase(Case(parse(driver, descriptor), **knobs), tuple(names.split(",")))  # type: ignore[arg-type]


def compiled(kernel: Kernel, constant: Sequence[str]) -> tw.CompiledKernel:
    return tw.compile(kernel, constant=tuple(constant), threads=2)


@pytest.mark.parametrize(
    ("driver", "descriptor", "names"),
    [
        ("matmul", "40x24:24x48", "M,N,K"),
        ("matmul", "3x40x24:3x24x48", "D0,M"),
        ("conv", "mb3ic8ih6oc8kh3ph1", "MB"),
        ("conv", "mb3ic8ih5oc8kh1", "MB"),
        ("softmax", "12x40", "D0,D1"),
        ("lnorm", "12x40", "D0"),
        ("reduce", "12x40:1x40", "D0,D1"),
        ("eltwise", "12x40", "MB,D1"),
        ("transpose", "12x40:1x0", "D0,D1"),
        ("tile", "12x40:2x3", "D0"),
        ("pad", "12x40:1x-1:0x2", "D0"),
        ("arg", "12x40", "D0,D1"),
    ],
)
def test_many_sizes_through_one_kernel(driver: str, descriptor: str, names: str) -> None:
    verdict = verify_sizes(case(driver, descriptor, names), compiled, sizes=5)
    assert verdict.status is Status.PASSED, verdict.reason
    ran, rest = verdict.reason.split(" ", 1)
    assert int(ran) >= 4 and rest == "sizes through one kernel"


def test_weights_of_known_sizes_are_packed() -> None:
    symbolic = case("matmul", "40x24:24x48", "M")
    assert symbolic.constant(symbolic.kernel()) == ("weights",)
    assert verify_sizes(symbolic, compiled, sizes=4).status is Status.PASSED
    symbolic = case("matmul", "40x24:24x48", "N")
    assert symbolic.constant(symbolic.kernel()) == ()


def test_a_crash_is_a_failure_of_the_case() -> None:
    def crash(kernel: Kernel, constant: Sequence[str]) -> tw.CompiledKernel:
        raise AssertionError("boom")

    verdict = verify_sizes(case("matmul", "9x3:3x8", "M"), crash)
    assert verdict.status is Status.FAILED and verdict.reason == "crashed: AssertionError: boom"


def test_a_wrong_kernel_fails_at_a_size() -> None:
    def wrong(kernel: Kernel, constant: Sequence[str]) -> tw.CompiledKernel:
        # Right for as many rows as vectors have lanes.
        text = to_text(kernel).replace("init(m in M,", "init(m in min(M, 8),")
        return compiled(parse_kernel(text), ())

    verdict = verify_sizes(case("matmul", "9x3:3x8", "M"), wrong)
    assert verdict.status is Status.FAILED and verdict.reason.startswith("at M=")


def test_what_a_name_says() -> None:
    problem = parse("matmul", "2x40x24:1x24x48")
    assert resized(problem, "M", 7).descriptor() == "2x7x24:1x24x48"
    assert resized(problem, "D0", 7).descriptor() == "7x40x24:1x24x48"
    assert resized(parse("conv", "mb3ic8ih6oc8kh3ph1"), "MB", 5).mb == 5  # type: ignore[attr-defined]
    for wrong in ("B", "D7", "m"):
        with pytest.raises(ProblemError, match=f"matmul has no size {wrong}"):
            resized(parse("matmul", "40x24:24x48"), wrong, 3)


def kernel_of(text: str, at: Mapping[str, int]) -> Kernel:
    return parse_kernel(text.format(**{name: size for name, size in at.items()}, **_made(at)))


def _made(at: Mapping[str, int]) -> dict[str, int]:
    a, b = at.get("A", 1), at.get("B", 1)
    return {"area": a * b + 2, "half": a // 2, "mean": a}


SCALED = """
kernel scaled(in x: f32[{A}, {B}], out y: f32[{area}]):
  compute f(i in {A}, j in {B}):
    y[i * {B} + j + 2] = x[i, j] / {mean}.0
"""
LEAST = """
kernel least(in x: f32[{A}, 4], inout y: f32[4]):
  compute f(i in {A}, j in 4):
    x = x[i, j]
    combiner least(v: f32; w: f32) from ({mean}.0) = min(v, w)
    y[j] least= x
"""


def test_numbers_are_sums_of_products_of_sizes() -> None:
    kernel = symbolic_kernel(partial(kernel_of, SCALED), ("A", "B"))
    text = to_text(kernel)
    assert "A: s64 in 1..4096, B: s64 in 1..4096" in text.replace("\n    ", " ")
    assert "out y: f32[A * B + 2]" in text and "x[i, j] / f32(A)" in text
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y = tw.compile(kernel, "interpreter")(x=x, out=np.zeros(14, np.float32))
    assert np.array_equal(y[2:], (x / np.float32(3)).ravel())


def test_what_decides_more_than_numbers_is_refused() -> None:
    halves = SCALED.replace("i in {A}", "i in {half}")
    with pytest.raises(UnsupportedError, match="A, B cannot be sizes that calls pass"):
        symbolic_kernel(partial(kernel_of, halves), ("A", "B"))
    verdict = verify_sizes(case("topk", "4x16:3", "D1"), compiled)
    assert verdict.status is Status.SKIPPED and "no sums of products" in verdict.reason

    def steps(at: Mapping[str, int]) -> Kernel:
        compute = "  compute f{n}(i in {A}):\n    y[i] = x[i, 0]\n"
        body = "".join(compute.format(n=n, A=at["A"]) for n in range(at["A"]))
        return parse_kernel(f"kernel k(in x: f32[{at['A']}, 1], out y: f32[{at['A']}]):\n{body}")

    with pytest.raises(UnsupportedError, match="it has other statements for other sizes"):
        symbolic_kernel(steps, ("A",))
    with pytest.raises(UnsupportedError, match="depends on them: an identity must be a const"):
        symbolic_kernel(partial(kernel_of, LEAST), ("A",))
    names = ("A", "B", "C", "D", "E")
    with pytest.raises(ProblemError, match="too many sizes"):
        symbolic_kernel(partial(kernel_of, SCALED), names)
    with pytest.raises(ProblemError, match="a size is named twice"):
        symbolic_kernel(partial(kernel_of, SCALED), ("A", "A"))


def test_the_command_line(tilewright: Command) -> None:
    done = tilewright("verify", "matmul", "--symbolic", "M", "8x4:4x8")
    assert done.code == 0
    assert "PASSED (12 sizes through one kernel) matmul --symbolic=M " in done.out
    for words, said in (
        (("matmul", "--symbolic", "Q", "8x4:4x8"), "matmul has no size Q"),
        (("matmul", "--symbolic", "M", "--against", "torch", "8x4:4x8"), "go with --against"),
        (("matmul", "--symbolic", "M", "--config", "tile={}", "8x4:4x8"), "go with --config"),
    ):
        done = tilewright("verify", *words)
        assert done.code == 2 and said in done.err


def test_one_kernel_is_timed_beside_that_of_a_size(
    tilewright: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarking, "measure_peaks", lambda threads: PEAKS)
    words = ("bench", "matmul", "--symbolic=M", "--threads=1", "--seconds=0.02")
    out = tmp_path / "out.json"
    ended = tilewright(*words, f"--json={out}", "9x16:16x32", "64x16:16x32")
    assert ended.code == 0, ended.err
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert [row["peer"] for row in rows] == ["any size"] * 2
    assert rows[1]["case"] == "matmul --threads=1 --dt=f32 64x16:16x32 --symbolic=M"
    refused = tilewright(*words, "--peer=none", "9x16:16x32")
    assert refused.code == 2 and "--symbolic does not go with --peer" in refused.err


def test_calls_that_are_too_large_to_check_are_left_out() -> None:
    """Of 200 rows, the reference would have several arrays of 420 million doubles."""
    large = case("eltwise", "4x2097152", "D0")
    sizes = [at["D0"] for at in large.drawn(6, 0)]
    few = [n for n in sizes if n * 2097152 <= 1 << 24]
    assert few and len(few) < len(sizes)
    verdict = verify_sizes(large, compiled, sizes=6)
    assert verdict.reason == f"{len(few)} sizes through one kernel"
