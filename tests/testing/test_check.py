"""Checking stages: right kernels have no finding, and each planted fault is found in its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from sweeps import in_turns
from tilewright.errors import ProblemError
from tilewright.ir import parse_kernel, verify
from tilewright.machines import spirv
from tilewright.machines.x86 import machine as x86_machine
from tilewright.problems import DRIVERS
from tilewright.testing.check import Issue, Note, StageReport, check_op, check_stages, table
from tilewright.testing.random_problems import random_cases

PARAMS = "in src: f32[16, 14, 14], in wei: f32[16, 16, 3, 3], out dst: f32[16, 14, 14]"
NAIVE = f"""kernel conv({PARAMS}):
  alloc acc: f32[16, 14, 14] private
  compute init(oc in 16, oh in 14, ow in 14):
    acc[oc, oh, ow] = 0.0
  compute main(oc in 16, oh in 14, ow in 14, ic in 16, kh in 3, kw in 3):
    a = src[ic, oh + kh - 1, ow + kw - 1 | 1 <= oh + kh and oh + kh < 15 and 1 <= ow + kw and ow + kw < 15]
    b = wei[oc, ic, kh, kw]
    acc[oc, oh, ow] add= a * b
  compute write(oc in 16, oh in 14, ow in 14):
    a = acc[oc, oh, ow]
    dst[oc, oh, ow] = a
"""  # noqa: E501
# A row of the result per workgroup; 4 channels at a time, copied while the 4 before are added up.
# The weights of an output channel are rotated by its number, so that rows begin in other banks.
PIPELINED = f"""kernel conv({PARAMS}):
  grid for oh in 14:
    alloc s: f32[2, 4, 3, 16] workgroup
    alloc w: f32[2, 16, 36] workgroup
    workgroup for oc in 16:
      workgroup for ow in 14:
        id = oc * 14 + ow
        alloc acc: f32[1] private
        acc[0] = 0.0
        for k in 5:
          if k < 4:
            if id < 192:
              ic = id // 48
              row = oh + id // 16 % 3
              c = id % 16
              copy_async(&s[k % 2, ic, id // 16 % 3, c], &src[k * 4 + ic, row - 1, c - 1 | 1 <= row and row < 15 and 1 <= c and c < 15])
            for i in 3:
              e = id + i * 224
              if e < 576:
                o = e // 36
                copy_async(&w[k % 2, o, (e + o) % 36], &wei[o, k * 4 + e % 36 // 9, e % 9 // 3, e % 3])
          commit_copies()
          if 1 <= k:
            wait_copies(1)
            barrier()
            for ic2 in 4:
              for kh in 3:
                for kw in 3:
                  acc[0] = acc[0] + s[(k + 1) % 2, ic2, kh, ow + kw] * w[(k + 1) % 2, oc, (ic2 * 9 + kh * 3 + kw + oc) % 36]
            barrier()
        wait_copies(0)
        dst[oc, oh, ow] = acc[0]
"""  # noqa: E501


def check(text: str, machine: str = "gpu") -> StageReport:
    naive, kernel = parse_kernel(NAIVE), parse_kernel(text)
    verify(kernel)
    generator = np.random.default_rng(0)
    shapes = {"src": (16, 14, 14), "wei": (16, 16, 3, 3)}
    inputs = {
        name: generator.integers(-4, 5, shape).astype(np.float32) for name, shape in shapes.items()
    }
    stages = {"naive": naive, "pipelined": kernel}
    (report,) = check_stages(stages, {}, spirv.machine(machine), inputs)
    assert report.stage == "pipelined"
    return report


def test_a_pipelined_convolution_has_no_finding() -> None:
    report = check(PIPELINED)
    assert report.issues == ()
    notes = {f"{note.access} {note.buffer}": note for note in report.notes}
    assert notes["load s"].conflicts == 1.0
    assert notes["load w"].accesses == 14 * 7 * 4 * 36
    text = PIPELINED.splitlines()
    for note in report.notes:
        assert text[note.line - 1].strip() == note.text


class Planted(NamedTuple):
    """One text in place of another: the kind of fault it makes, and how the line of it begins."""

    old: str
    new: str
    kind: str
    line: str


ADD_UP, COPY_ROW, COPY_WEIGHTS = "acc[0] = acc[0] + s[", "copy_async(&s[", "copy_async(&w["
ARRIVED = "            wait_copies(1)\n            barrier()\n"
USED = "            barrier()\n        wait_copies(0)\n"
FAULTS = {
    "missing barrier": Planted(ARRIVED, "            wait_copies(1)\n", "data race", ADD_UP),
    "missing second barrier": Planted(USED, "        wait_copies(0)\n", "data race", COPY_ROW),
    "one too many": Planted("e < 576", "e < 577", "out of bounds", COPY_WEIGHTS),
    "one too few": Planted("e < 576", "e < 575", "uninitialized read", ADD_UP),
    "unmasked tail": Planted("1 <= row and row < 15", "1 <= row", "out of bounds", COPY_ROW),
    "wrong swizzle": Planted("kw + oc) % 36", "kw) % 36", "wrong result", "dst"),
    "read before write": Planted("acc[0] = 0.0", "pass", "uninitialized read", ADD_UP),
    "divergent barrier": Planted(
        USED,
        "            if ow < 9:\n              barrier()\n        wait_copies(0)\n",
        "divergent barrier",
        "barrier()",
    ),
    "too many pending": Planted("_copies(1)", "_copies(2)", "access before arrival", ADD_UP),
    "missing commit": Planted("          commit_copies()\n", "", "access before arrival", ADD_UP),
    "copies left": Planted("if k < 4", "if k * 0 < 4", "copy never waited for", COPY_ROW),
    "two lanes, one element": Planted("oh, ow] = acc", "oh, ow // 2] = acc", "data race", "dst["),
    "race of workgroups": Planted("[oc, oh, ow] = acc", "[oc, 3, ow] = acc", "data race", "dst["),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(fault: str) -> None:
    planted = FAULTS[fault]
    assert PIPELINED.count(planted.old) == 1
    text = PIPELINED.replace(planted.old, planted.new)
    if fault == "copies left":
        # The last turn copies the first channels again, and nobody waits for them.
        text = text.replace("k * 4", "k % 4 * 4").replace("        wait_copies(0)\n", "")
    issues = check(text).issues
    issue = next(issue for issue in issues if issue.kind == planted.kind)
    assert issue.text.startswith(planted.line)
    if planted.kind != "wrong result":
        assert text.splitlines()[issue.line - 1].strip() == issue.text
        assert issue.text in issue.message


def test_conflicts_are_counted_in_their_line() -> None:
    """Rows of weights 64 words apart: a subgroup wants those of 3 output channels (once, of 4)."""
    plain = PIPELINED.replace("(e + o) % 36", "e % 36").replace("kw + oc) % 36", "kw) % 36")
    far = "w: f32[2, 16, 36] {0:2:1024 1:16:64 2:36:1} workgroup"
    slow = plain.replace("w: f32[2, 16, 36] workgroup", far)
    conflicts = {}
    for name, text in (("dense", plain), ("far", slow)):
        report = check(text)
        assert report.issues == ()
        notes = [n for n in report.notes if (n.access, n.buffer) == ("load", "w")]
        assert text.splitlines()[notes[0].line - 1].strip() == notes[0].text
        conflicts[name] = (notes[0].conflicts, notes[0].worst)
    assert conflicts == {"dense": (1.0, 1), "far": (22 / 7, 4)}


def test_aborted_runs_are_findings() -> None:
    text = PIPELINED.replace("barrier()\n            for", "teleport()\n            for")
    kernel = parse_kernel(text)
    stages = {"naive": parse_kernel(NAIVE), "pipelined": kernel}
    inputs: dict[str, Any] = {}
    (report,) = check_stages(stages, {}, spirv.machine("gpu"), inputs)
    assert report.issues[-1].kind == "aborted"
    assert "does not know the function 'teleport'" in report.issues[-1].message


def test_results_that_are_not_written_are_wrong() -> None:
    report = check(PIPELINED.replace("        dst[oc", "        if oc < 15:\n          dst[oc"))
    assert [issue.kind for issue in report.issues] == ["wrong result"]
    assert report.issues[0].count == 196 and "dst at offset 2940 is 77" in report.issues[0].message


@pytest.mark.parametrize(("driver", "kind"), in_turns(2, DRIVERS, ["cpu", "gpu"]))
def test_default_schedules_have_no_finding(driver: str, kind: str) -> None:
    stages = 0
    for case in random_cases(driver, 4, seed=5):
        reports = check_op(case.op(), spirv.machine(kind), costs=False)
        stages += len(reports)
        for report in reports:
            assert report.issues == (), case.arguments()
    assert stages >= 4


def test_stages_by_name() -> None:
    op = next(iter(random_cases("conv", 1, seed=2))).op()
    machine = x86_machine("avx2", cores=2)
    every = [report.stage for report in check_op(op, machine, "all")]
    assert "naive" in every and "tiled" in every
    (last,) = check_op(op, machine)
    assert last.stage == every[-1]
    (tiled,) = check_op(op, machine, "tiled")
    assert tiled.stage == "tiled"
    with pytest.raises(ProblemError, match="there is no stage 'flat'"):
        check_op(op, machine, "flat")


# The command.

SMALL = "mb1ic3ih4oc5kh3ph1"
SLOW = Note(4, "s[t * 32] = 1.0", "s", "store", 8, conflicts=32.0, worst=32)


def test_command(tilewright: Command, tmp_path: Path) -> None:
    file = tmp_path / "findings.json"
    ended = tilewright("check", "conv", "--json", str(file), "--stage", "all", SMALL)
    assert ended.code == 0
    assert ended.lines == [f"PASSED conv --dt=f32 {SMALL}", "1 passed, 0 failed, 0 skipped"]
    (case,) = json.loads(file.read_text(encoding="utf-8"))["cases"]
    assert case["case"] == f"conv --dt=f32 {SMALL}" and case["status"] == "PASSED"
    assert [stage["stage"] for stage in case["stages"]][:3] == ["pack weights", "naive", "fused"]


def test_command_with_findings(
    tilewright: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    race = Issue("data race", 7, "s[0] = t", "data race on 's'\n  where: s[0] = t", 12)
    report = StageReport("mapped", (race,), (SLOW,))
    monkeypatch.setattr("tilewright.cli.check.check_op", lambda *_: [report])
    file = tmp_path / "findings.json"
    ended = tilewright("check", "conv", f"--json={file}", SMALL)
    assert ended.code == 1
    assert ended.out == (
        f"FAILED conv --dt=f32 {SMALL}\n"
        "  stage mapped, line 7: data race (12 accesses)\n"
        "    data race on 's'\n"
        "      where: s[0] = t\n"
        "  stage mapped: accesses that cost more than they should\n"
        "    line  access   conflicts  worst  coalescing  statement\n"
        "    4     store s  32.00      32     100%        s[t * 32] = 1.0\n"
        "0 passed, 1 failed, 0 skipped\n"
    )
    (case,) = json.loads(file.read_text(encoding="utf-8"))["cases"]
    assert case["stages"][0]["issues"][0]["line"] == 7
    assert case["stages"][0]["notes"][0]["conflicts"] == 32.0


def test_notes_fail_only_where_asked(tilewright: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    report = StageReport("mapped", (), (SLOW,))
    monkeypatch.setattr("tilewright.cli.check.check_op", lambda *_: [report])
    assert tilewright("check", "conv", SMALL).code == 0
    ended = tilewright("check", "conv", "--strict", SMALL)
    assert ended.code == 1 and ended.lines[0].startswith("FAILED")


def test_command_on_random_problems(tilewright: Command) -> None:
    ended = tilewright("check", "matmul", "--random", "3", "--seed", "4", "--target", "x86:avx2")
    assert ended.code == 0 and len(ended.lines) == 4
    assert "--target=x86:avx2" in ended.lines[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"conv --stage flat {SMALL}", "there is no stage 'flat'"),
        (f"conv --target abacus {SMALL}", "there is no target 'abacus'"),
        ("conv", "there is nothing to do"),
        (f"conv --json /nowhere/x.json {SMALL}", "cannot write /nowhere/x.json"),
    ],
)
def test_bad_input(tilewright: Command, words: str, message: str) -> None:
    ended = tilewright("check", *words.split())
    assert ended.code == 2 and message in ended.err


def test_help_has_examples(tilewright: Command) -> None:
    ended = tilewright("check", "--help")
    assert ended.code == 0 and "tilewright check conv --stage all" in ended.out


def test_table_is_aligned() -> None:
    lines = table([SLOW, Note(12, "y[t] = 1.0", "y", "store", 3, efficiency=0.25)])
    assert lines[1:] == [
        "4     store s  32.00      32     100%        s[t * 32] = 1.0",
        "12    store y  1.00       1      25%         y[t] = 1.0",
    ]


def test_steps_that_rounding_errors_reach_are_no_finding() -> None:
    """Sums of quotients round; in another order, ``round`` may take them to the next integer."""
    op = tw.pool(
        "mb3ic5ih5iw5kh2kw3ph1pw1",
        algorithm="avg_p",
        direction="bwd_data",
        epilogue=[tw.unary("round")],
    )
    assert [issue for report in check_op(op, spirv.machine("gpu")) for issue in report.issues] == []
