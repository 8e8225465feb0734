"""The command line: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from commands import Command, Ended
from tilewright.cli.cases import cases_of
from tilewright.cli.knobs import Knobs
from tilewright.errors import ProblemError
from tilewright.ir.parser import parse_kernel
from tilewright.testing.verify import Status, Verdict

SMALL = "mb1ic3ih4oc5kh3ph1"


def test_verify_one(tilewright: Command) -> None:
    ended = tilewright("verify", "conv", SMALL)
    assert ended == Ended(0, f"PASSED conv --dt=f32 {SMALL}\n1 passed, 0 failed, 0 skipped\n", "")


def test_verify_lanes_that_share_a_masked_element(tilewright: Command) -> None:
    """One kd of a vector is inside the source: its index is a number, and the mask is not."""
    ended = tilewright(
        *("verify", "conv", "--dir", "BWD_W", "--stag", "deabc", "--wtag", "aBcdef8b"),
        *("--attr-fpmath", "bf16", "--target", "x86:avx2"),
        "g2mb1ic8id7ih7iw7oc2oh6ow6kd3kh3kw5sd2sh2pd2ph3pw2dh1",
    )
    assert ended.code == 0, ended.err


def test_lists_make_products(tilewright: Command) -> None:
    ended = tilewright(
        *("verify", "conv", "--dir", "FWD_B,BWD_WB", "--dt", "f32,bf16", "--threads", "1"),
        *("--stag=axb", SMALL, "mb1ic8iw5oc8kw3"),
    )
    assert ended.code == 0
    assert ended.lines[-1] == "8 passed, 0 failed, 0 skipped"
    assert ended.lines[3] == (f"PASSED conv --threads=1 --dir=BWD_WB --dt=bf16 --stag=axb {SMALL}")


@pytest.mark.parametrize(
    "words",
    [
        ("matmul", "--bia-dt=f32", "3x5:5x7"),
        ("matmul", "--dir=FWD_B", "--wtag=ba", "3x5:5x7"),
        ("matmul", "--attr-fpmath=strict,tf32,bf16", "3x5:5x7"),
        ("pool", "--alg=max,avg_np,avg_p", "mb1ic5ih5kh3sh2ph1"),
        ("pool", "--dir=BWD_D", "--alg=avg_p", "mb1ic5ih5kh3sh2ph1"),
        ("reduce", "--alg=sum,mean,max,min,mul", "3x4x5:3x1x5"),
        ("eltwise", "--alg=elu:0.5", "--attr-post-ops=relu", "3x17"),
        ("binary", "--alg=sub", "3x17:1x17"),
        ("reorder", "--dt=f32:s8", "--stag=abcd", "--dtag=aBcd8b", "2x3x4x5"),
    ],
)
def test_every_driver(tilewright: Command, words: tuple[str, ...]) -> None:
    ended = tilewright("verify", *words)
    assert ended.code == 0, ended.out + ended.err
    assert ended.lines[-1].endswith("passed, 0 failed, 0 skipped")


def test_a_line_reproduces_its_case(tilewright: Command) -> None:
    first = tilewright("verify", "conv", "--random", "3", "--seed", "5")
    *lines, _ = first.lines
    assert len(lines) == 3
    for line in lines:
        status, _, words = line.partition(" ")
        assert tilewright("verify", *words.split()).lines[0] == line, status


def test_many_cases_on_a_terminal(tilewright: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [
        Verdict(Status.PASSED),
        Verdict(Status.SKIPPED, "there is no such thing"),
        Verdict(Status.FAILED, "on integers: dst[0] is 1, expected 2"),
    ]
    verdicts = itertools.cycle(ends)
    monkeypatch.setattr("tilewright.cli.checking.verify", lambda op, compile, more: next(verdicts))
    many = ("verify", "eltwise", "--random", "24")
    # What goes to a file or a pipe has all.
    everything = tilewright(*many)
    assert len(everything.lines) == 25
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ended = tilewright(*many)
    assert ended.code == everything.code == 1
    assert ended.lines == [
        *(line for line in everything.lines if line.startswith("FAILED")),
        "SKIPPED 8: there is no such thing",
        everything.lines[-1],
    ]
    assert tilewright(*many, "--verbose").lines == everything.lines
    few = tilewright("verify", "eltwise", "--random", "3")
    assert few.lines[:-1] == everything.lines[:3]


def test_a_failure_is_exit_code_1(tilewright: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Verdict(Status.FAILED, "on integers: dst[0] is 1, expected 2")
    monkeypatch.setattr("tilewright.cli.checking.verify", lambda op, compile, more: wrong)
    ended = tilewright("verify", "conv", SMALL)
    assert ended.code == 1
    assert ended.lines == [
        f"FAILED (on integers: dst[0] is 1, expected 2) conv --dt=f32 {SMALL}",
        "0 passed, 1 failed, 0 skipped",
    ]


def test_what_does_not_fit_is_skipped_among_others(tilewright: Command) -> None:
    ended = tilewright("verify", "conv", "--stag", "nhwc", SMALL, "mb1ic8iw5oc8kw3")
    assert ended.code == 0
    assert ended.lines[1].startswith("SKIPPED (tag 'nhwc' does not fit a tensor of 3 dims")
    assert ended.lines[-1] == "1 passed, 0 failed, 1 skipped"
    alone = tilewright("verify", "conv", "--stag", "nhwc", "mb1ic8iw5oc8kw3")
    assert alone.code == 2
    assert "tag 'nhwc' does not fit" in alone.err


@pytest.mark.parametrize("verb", ["verify", "check"])
def test_nothing_but_skipped_cases_is_exit_code_1(tilewright: Command, verb: str) -> None:
    ended = tilewright(verb, "conv", "--stag", "nhwc", "mb1ic8iw5oc8kw3", "mb1ic8iw6oc8kw3")
    assert ended.code == 1
    assert ended.lines[-1] == "0 passed, 0 failed, 2 skipped"
    assert ended.err == "no kernel was run: every case was skipped, for the reasons above\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("verify conv ic3ih4kh3", "oc is missing"),
        ("verify conv ic3ih4oc5kh9", "the kernel does not fit"),
        ("verify conv --dt f33 SMALL", "unknown element type 'f33'"),
        ("verify conv --dt u8:s8 SMALL", "2 types are given for 3 tensors"),
        ("verify conv --dir FWD SMALL", "unknown direction"),
        ("verify conv --stag nhhw SMALL", "dim 'h' stands twice"),
        ("verify conv --attr-post-ops relo SMALL", "unknown post-op"),
        ("verify conv --attr-fpmath f16 SMALL", "unknown fpmath 'f16'"),
        ("verify conv --attr-fpmath tf32 --dt s8 SMALL", "fpmath tf32 for operands of s8 and s8"),
        ("verify pool --attr-fpmath tf32 mb1ic5ih5kh3", "pool takes no --attr-fpmath"),
        ("verify conv --mb one SMALL", "--mb takes a whole number"),
        ("verify conv --alg max SMALL", "conv takes no --alg"),
        ("verify pool --wtag ab mb1ic5ih5kh3", "pool takes no --wtag"),
        ("verify pool --alg mix mb1ic5ih5kh3", "unknown algorithm 'mix'"),
        ("verify reduce --dir BWD_D 3x4:3x1", "reduce has no direction BWD_D"),
        (
            "verify conv --dir BWD_W --attr-post-ops relu SMALL",
            "takes no scales, zero points and post-ops",
        ),
        ("verify cnv SMALL", "unknown driver 'cnv'"),
        ("verify conv", "there is nothing to do"),
        ("verify conv --set resnet_51", "unknown set 'resnet_51'"),
        ("verify matmul --set resnet_50", "set resnet_50 is for conv"),
        ("verify conv --batch /nowhere/file", "cannot read the batch file"),
        ("verify conv --random 3 --dt f32", "random cases draw their knobs themselves"),
        ("verify conv --config 1+1 SMALL", "is not a config"),
        ("verify conv --target z80 SMALL", "there is no target 'z80'"),
        ("show conv --stage nothing SMALL", "there is no stage 'nothing'"),
        ("run conv -a src -o out SMALL", "'src' is not NAME=FILE"),
        ("run conv -a src=/nowhere.npy -o out SMALL", "cannot read /nowhere.npy"),
        ("bench conv --json /nowhere/out.json SMALL", "cannot write /nowhere/out.json"),
        ("verify conv --frobnicate SMALL", "No such option: --frobnicate"),
        ("verify conv --threads 0 SMALL", "--threads"),
        ("frobnicate", "there is no command 'frobnicate'"),
    ],
)
def test_bad_input(tilewright: Command, words: str, message: str) -> None:
    ended = tilewright(*words.replace("SMALL", SMALL).split())
    assert ended.code == 2
    assert message in ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err


def test_no_traceback_from_a_process_of_its_own() -> None:
    code = "from tilewright.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "verify", "conv", "ic"], capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("tilewright: ")
    assert "Traceback" not in ended.stderr


def test_help_has_examples(tilewright: Command) -> None:
    assert "verify" in tilewright("--help").out
    for command in ("verify", "bench", "show", "build", "run", "rules", "targets", "sets"):
        ended = tilewright(command, "--help")
        assert ended.code == 0
        assert f"tilewright {command}" in ended.out


def test_batch_files(tmp_path: Path) -> None:
    inner = tmp_path / "inner.txt"
    inner.write_text("ic1ih1oc1kh1\n")
    file = tmp_path / "cases.txt"
    file.write_text(
        f"# driver: conv\n{SMALL} # a comment\n--dt=bf16 --dir=BWD_D\n"
        f'{SMALL}n"two words"\n\n--batch=inner.txt\n--reset\n{SMALL}\n'
    )
    cases = cases_of(Knobs("conv", texts={"mb": "2"}, batch=file))
    assert [case.arguments() for case in cases] == [
        "conv --dt=f32 ic3ih4oc5kh3ph1",
        "conv --dir=BWD_D --dt=bf16 'ic3ih4oc5kh3ph1n\"two words\"'",
        "conv --dir=BWD_D --dt=bf16 ic1ih1oc1kh1",
        "conv --dt=f32 ic3ih4oc5kh3ph1",
    ]


def test_bad_batch_files(tmp_path: Path) -> None:
    file = tmp_path / "cases.txt"
    for text, message in (
        ("# driver: pool\n", "the file is for pool, not conv"),
        ("--batch=cases.txt\n", "batch files read each other"),
        ("--frobnicate=1\n", "unknown option --frobnicate"),
        ('ic3n"open\n', "the line has an open quote"),
    ):
        file.write_text(text)
        with pytest.raises(ProblemError, match=message):
            cases_of(Knobs("conv", batch=file))


def test_a_bad_line_is_its_own_failure(tmp_path: Path, tilewright: Command) -> None:
    file = tmp_path / "cases.txt"
    file.write_text(
        f'--frobnicate=1 {SMALL}\n{SMALL}n"open\nic3zz\n--grouped=8:1 {SMALL}\n'
        f"--grouped= --skip-impl=ref\n{SMALL} {SMALL}\n"
    )
    ended = tilewright("verify", "conv", "--batch", str(file))
    assert ended.code == 1
    assert [line.partition(" ")[0] for line in ended.lines[:-1]] == [
        *("FAILED", "FAILED", "FAILED", "SKIPPED", "PASSED", "PASSED", "PASSED")
    ]
    assert "(unknown option --frobnicate" in ended.lines[0] and "line 1)" in ended.lines[0]
    assert "--grouped=8:1 is not available" in ended.lines[3]
    assert ended.err.count("--skip-impl is ignored: a problem has one implementation") == 1


def test_sets_are_batch_files(tilewright: Command) -> None:
    ended = tilewright("sets", "tails")
    cases = cases_of(Knobs("conv", sets=("tails",)))
    assert ended.lines == [case.problem.descriptor() for case in cases]


def test_show(tilewright: Command) -> None:
    ended = tilewright("show", "conv", SMALL)
    assert ended.code == 0
    texts = ended.out.split("# stage ")[1:]
    assert texts[0].startswith("naive\n")
    for text in texts:
        parse_kernel(text.partition("\n")[2])
    config = tilewright("show", "conv", "--stage", "config", SMALL).lines[1]
    again = tilewright("show", "conv", "--stage", "config", "--config", config, SMALL)
    assert again.lines[1] == config
    assert "define" in tilewright("show", "conv", "--stage", "llvm", SMALL).out
    assert "ret" in tilewright("show", "conv", "--stage", "asm", SMALL).out
    assert "flops: " in tilewright("show", "conv", "--stage", "cost", SMALL).out


def test_show_candidates(tilewright: Command) -> None:
    words = ("show", "matmul", "--stage=config", "--dt=bf16", "96x64:64x80")
    ended = tilewright(*words, "--target=nvidia:sm_80")
    assert ended.lines[1].startswith(
        "WorkgroupConfig(product=Product(instruction='mma_m16n8k16_f32_bf16'"
    )
    assert ended.lines[2] == "# chosen by: the recipes"
    title, head, *rows = ended.lines[3:]
    assert rows.pop() == "# instruction: mma_m16n8k16_f32_bf16 (2048 products at a time)"
    assert title.startswith("# predicted, not measured: the config above")
    assert re.split("  +", head) == [
        *("# config", "us", "limit", "% of peak", "waves", "held", "KiB", "registers")
    ]
    # The chosen one, whose way to store is decided for it alone, and then all, the best first.
    cells = [re.split("  +", row) for row in rows]
    times = [float(row[1]) for row in cells]
    assert cells[0][0] == cells[1][0] and times[0] <= times[1] and len(rows) > 8
    assert times[1:] == sorted(times[1:])
    again = tilewright(*words, "--target=nvidia:sm_80", "--config", ended.lines[1])
    assert again.lines[2] == "# chosen by: the caller"
    assert again.lines[3:] == ended.lines[3:]
    ended = tilewright(*words, "--target=spirv:gpu")
    assert ended.lines[3:] == ["# no model predicts times of such kernels on spirv-gpu"]
    ended = tilewright(*words, "--target=x86:avx2")
    title, head, first, *rows = ended.lines[3:]
    assert title.startswith("# predicted, not measured") and head.split()[1:4] == [
        *("config", "us", "limit")
    ]
    assert first.startswith("# fma_f32x8, tile ") and rows[-3].startswith("# no instruction")
    assert rows[-2:] == [
        "# instruction: fma_f32x8 (8 products at a time)",
        "# instruction: not vdpbf16ps_512 (32 products at a time): x86-avx2 has no avx512bf16",
    ]


def test_build(tilewright: Command, tmp_path: Path) -> None:
    ended = tilewright("build", "conv", SMALL, "-o", str(tmp_path / "build"))
    assert ended.code == 0
    suffixes = {path.suffix for path in (tmp_path / "build").iterdir()}
    assert {".o", ".h"} <= suffixes
    several = tilewright("build", "conv", "--dt=f32,bf16", SMALL, "-o", str(tmp_path / "two"))
    assert several.code == 0
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["0", "1"]


def test_run(tilewright: Command, tmp_path: Path) -> None:
    src = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    weights = np.ones((3, 2, 1, 1), np.float32)
    for name, array in (("src", src), ("weights", weights)):
        np.save(tmp_path / f"{name}.npy", array)
    words = ["run", "conv", "mb1ic2ih4oc3kh1", "-o", str(tmp_path / "out"), "--dtag=nChw8c"]
    arrays = [f"-asrc={tmp_path / 'src.npy'}", f"-aweights={tmp_path / 'weights.npy'}"]
    ended = tilewright(*words, *arrays)
    assert ended.code == 0, ended.err
    result = np.load(tmp_path / "out" / "dst.npy")
    assert np.array_equal(result, np.repeat(src.sum(axis=1, keepdims=True), 3, axis=1))
    assert tilewright(*words, arrays[0]).err.startswith("tilewright: weights is missing")
    unknown = tilewright(*words, *arrays, f"-abias={tmp_path / 'src.npy'}")
    assert "there is no argument 'bias'" in unknown.err
    wrong = tilewright(*words, "--dt=f64", *arrays)
    assert wrong.code == 2
    assert "src has elements of type float32, expected f64" in wrong.err


def test_run_with_raw_bf16(tilewright: Command, tmp_path: Path) -> None:
    values = np.arange(8).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "src.npy", values)
    words = ("run", "eltwise", "--dt=bf16", "--alg=square", "8", "-o", str(tmp_path))
    assert tilewright(*words, f"-asrc={tmp_path / 'src.npy'}").code == 0
    result = np.load(tmp_path / "dst.npy").view(ml_dtypes.bfloat16)
    assert result.tolist() == [0, 1, 4, 9, 16, 25, 36, 49]


def test_information(tilewright: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    rules = tilewright("rules", "div").lines
    assert rules[-1] == f"{len(rules) - 1} rules" and len(rules) > 5
    unknown = tilewright("rules", "nosuch")
    assert unknown.code == 2 and "no rule has 'nosuch' in its name" in unknown.err
    assert tilewright("targets").lines[0].startswith("x86: ")
    assert "resnet_50: conv, 20 problems" in tilewright("sets").lines
    doctor = tilewright("doctor").out
    for word in ("processor", "features", "llvmlite", "torch", "threads", str(tmp_path)):
        assert word in doctor
    assert "entries  0" in tilewright("cache").out
    tilewright("verify", "conv", "mb1ic4ih6oc11kh2")
    assert tilewright("cache", "--clear").out.endswith("entries removed\n")
    assert "entries  0" in tilewright("cache").out


def test_a_wrong_setting_is_bad_input() -> None:
    command = [sys.executable, "-c", "from tilewright.cli import main; main()", "sets"]
    environment = {**os.environ, "TILEWRIGHT_THREADS": "zero"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "TILEWRIGHT_THREADS" in done.stderr and "Traceback" not in done.stderr
