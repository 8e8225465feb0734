"""Kernels on the command line: read from files, verified on random calls, checked, shown, built."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from commands import Command
from kernel_examples import EXAMPLES
from measurements import PEAKS
from sweeps import in_turns
from tilewright.cli import benchmarking
from tilewright.dtypes import f32
from tilewright.engine.operations import operations_of
from tilewright.ir.constants import digest_of
from tilewright.ir.parser import parse_kernel, parse_kernels
from tilewright.ir.printer import to_text
from tilewright.targets.registry import find_target
from tilewright.testing.check import check_stages
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.kernel_data import Contents
from tilewright.testing.kernel_numbers import draw_numbers
from tilewright.testing.verify import Status, verify_on

SCALE = """
kernel scale(
    m: s64 in 1..4096, n: s64 in 4..4096 by 4, alpha: f32, in a: f32[m, n], out c: f32[m, n],
):
  compute scale(i in m, j in n):
    c[i, j] = alpha * max(a[i, j], 0.0)
"""
ADD = """
kernel add(in a: f32[4, 20], in b: f32[4, 20], out c: f32[4, 20]):
  compute add(i in 4, j in 20):
    c[i, j] = a[i, j] + b[i, j]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, with files of kernels."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scale.tw").write_text(SCALE, encoding="utf-8")
    (tmp_path / "two.tw").write_text(f"# two kernels\n{ADD}\n{SCALE}", encoding="utf-8")
    return tmp_path


def test_every_example_is_verified(tilewright: Command, folder: Path) -> None:
    texts = [textwrap.dedent(example.text).strip("\n") for example in EXAMPLES.values()]
    (folder / "all.tw").write_text("\n".join(texts) + "\n", encoding="utf-8")
    ended = tilewright("verify", "kernel", "--threads=2", "all.tw")
    assert ended.code == 0, ended.out + ended.err
    assert ended.lines[0] == "PASSED kernel --threads=2 all.tw:perceptron"
    assert ended.lines[-1] == "16 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("target", ["x86:avx2", "spirv:gpu", "nvidia:sm_80"])
def test_what_targets_get_is_verified_by_the_interpreter(
    tilewright: Command, folder: Path, target: str
) -> None:
    for verb, words in (("verify", ("--on=interpreter",)), ("check", ("--stage=all",))):
        ended = tilewright(verb, "kernel", "--target", target, *words, "two.tw")
        assert ended.code == 0, ended.out + ended.err
        assert ended.lines[-1] == "5 passed, 0 failed, 0 skipped"


def test_numbers_are_drawn_or_set(tilewright: Command, folder: Path) -> None:
    ended = tilewright("verify", "kernel", "--set", "n=8", "--set=alpha=0.5", "scale.tw")
    assert ended.lines[-1] == "4 passed, 0 failed, 0 skipped"
    assert all("--set=n=8 --set=alpha=0.5" in line for line in ended.lines[:-1])
    assert len({line.split()[2] for line in ended.lines[:-1]}) > 1  # of m
    more = tilewright("verify", "kernel", "--random", "7", "--seed", "3", "scale.tw")
    assert more.lines[-1] == "7 passed, 0 failed, 0 skipped"
    for line in more.lines[:-1]:
        words = line.split()[1:]
        assert tilewright("verify", *words).lines == [line, "1 passed, 0 failed, 0 skipped"]
    alone = tilewright("verify", "kernel", "two.tw:add")
    assert alone.lines == ["PASSED kernel two.tw:add", "1 passed, 0 failed, 0 skipped"]


def test_numbers_keep_their_promises() -> None:
    kernel = parse_kernel("""
kernel k(
    n: s64 in 8..64 by 8, pad: s64 in 0..3, beta: s32, low: u8, yes: bool, x: f32,
    in a: f32[n + pad], out c: f32[n],
):
  compute k(i in n):
    c[i] = select(yes, a[i + pad], x * f32(beta) + f32(low))
""")
    result = [draw_numbers(kernel, {}, seed) for seed in range(60)]
    assert {numbers["n"] for numbers in result} >= {8, 64}
    assert all(numbers["n"] in range(8, 65, 8) and numbers["pad"] in range(4) for numbers in result)
    # What decides no place is also at the limits of its type.
    assert {numbers["beta"] for numbers in result} >= {-(2**31), 2**31 - 1}
    assert all(0 <= numbers["low"] <= 255 for numbers in result)
    assert {numbers["yes"] for numbers in result} == {True, False}
    assert draw_numbers(kernel, {}, 5) == result[5]
    assert {draw_numbers(kernel, {"n": 16}, seed)["n"] for seed in range(9)} == {16}


def test_faults_of_code_are_found(folder: Path) -> None:
    case = KernelCase(parse_kernel(ADD), "add.tw")

    class Wrong:
        packed = ()

        def __init__(self, shift: float) -> None:
            self.shift = shift

        def pack(self, name: str, array: object) -> object:
            raise AssertionError

        def __call__(self, *, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
            out[...] = a + b
            out[2, 7] += self.shift

    assert verify_on(lambda: Wrong(0.0), case.trials()).status is Status.PASSED
    verdict = verify_on(lambda: Wrong(1e-3), case.trials())
    assert verdict.status is Status.FAILED
    assert verdict.reason.startswith("on integers: c[2, 7] is ")


def test_a_kernel_that_is_wrong_by_itself_fails(tilewright: Command, folder: Path) -> None:
    (folder / "wrong.tw").write_text(ADD.replace("a[i, j]", "a[i, j + 1]"), encoding="utf-8")
    ended = tilewright("verify", "kernel", "wrong.tw")
    assert ended.code == 1
    assert ended.lines[0].startswith("FAILED (InterpreterFault: ")
    assert "out of bounds" in ended.lines[0]
    checked = tilewright("check", "kernel", "wrong.tw")
    assert checked.code == 1 and "out of bounds" in checked.out


def test_races_are_found(tilewright: Command, folder: Path) -> None:
    (folder / "race.tw").write_text(
        "kernel race(in a: f32[64], out c: f32[1]):\n"
        "  grid for g in 4:\n    workgroup for i in 16:\n      c[0] = a[g * 16 + i]\n",
        encoding="utf-8",
    )
    ended = tilewright("check", "kernel", "--target=spirv:gpu", "--json=out.json", "race.tw")
    assert ended.code == 1
    assert "data race" in ended.out
    (result,) = json.loads((folder / "out.json").read_text(encoding="utf-8"))["cases"]
    assert result["case"] == "kernel --target=spirv:gpu race.tw"
    assert result["status"] == "FAILED"


def test_what_would_take_too_long_is_skipped(tilewright: Command, folder: Path) -> None:
    text = ADD.replace("4, 20", "65536, 65536").replace("in 4,", "in 65536,")
    (folder / "huge.tw").write_text(text.replace("in 20", "in 65536"), encoding="utf-8")
    long = SCALE.replace("j in n", "j in n, k in 65536").replace("=", "add=", 1)
    (folder / "long.tw").write_text(long, encoding="utf-8")
    for words in (("huge.tw",), ("--set=m=4096", "--set=n=4096", "--random=1", "long.tw")):
        ended = tilewright("verify", "kernel", *words)
        assert ended.code == 1
        checked = tilewright("check", "kernel", *words)
        assert checked.code == 2 and "too many to verify" in checked.err
        assert ended.lines[0].startswith("SKIPPED (")
        assert "too many to verify: the" in ended.lines[0]


def test_kernels_for_other_machines_are_skipped(tilewright: Command, folder: Path) -> None:
    text = "kernel lanes(inout x: f32[8]):\n  cluster for l in 8:\n    x[l] = 2.0 * x[l]\n"
    (folder / "lanes.tw").write_text(text + text.replace("lanes", "more"), encoding="utf-8")
    ended = tilewright("verify", "kernel", "lanes.tw")
    assert ended.code == 1
    assert ended.lines[0].startswith("SKIPPED (this target has no cluster loops: ")
    alone = tilewright("verify", "kernel", "lanes.tw:more")
    assert alone.code == 2 and "at lanes.tw:5:3" in alone.err and "cure: compile for" in alone.err


def test_barriers_that_not_all_reach_are_found(tilewright: Command, folder: Path) -> None:
    (folder / "half.tw").write_text(
        "kernel half(in a: f32[64], out c: f32[64]):\n  grid for g in 4:\n"
        "    alloc s: f32[16] workgroup\n    workgroup for i in 16:\n"
        "      s[i] = a[g * 16 + i]\n      if i < 8:\n        barrier()\n"
        "      c[g * 16 + i] = s[15 - i]\n",
        encoding="utf-8",
    )
    ended = tilewright("check", "kernel", "--target=nvidia:sm_80", "half.tw")
    assert ended.code == 1
    assert "divergent barrier: not all work-items of the workgroup reach it" in ended.out
    assert "at half.tw:7:9" in ended.out


def test_loops_that_do_not_end(tilewright: Command, folder: Path) -> None:
    """Of negative numbers this has no root."""
    (folder / "root.tw").write_text(
        "kernel root(in a: f32[4], out r: f32[4]):\n"
        "  for i in 4:\n"
        "    r[i] = max(a[i], 1.0)\n"
        "    while a[i] * 1e-06 < r[i] * r[i] - a[i]:\n"
        "      r[i] = 0.5 * (r[i] + a[i] / r[i])\n",
        encoding="utf-8",
    )
    ended = tilewright("verify", "kernel", "root.tw")
    assert ended.code == 1
    assert ended.lines[0].startswith("SKIPPED (the while repeats more than 5000 times: whether")
    checked = tilewright("check", "kernel", "root.tw")
    assert checked.code == 1 and "at root.tw:4:5" in checked.out


@pytest.mark.parametrize("target", in_turns(2, ["x86:avx2", "spirv:gpu"]))
def test_kernels_in_groups(tilewright: Command, folder: Path, target: str) -> None:
    """Each group's stages are checked against its first, on what the groups in front give."""
    text = textwrap.dedent(EXAMPLES["perceptron"].text)
    for size, small in (("32", "8"), ("64", "16"), ("96", "24")):
        text = text.replace(f"[{size}", f"[{small}").replace(f" {size}", f" {small}")
    (folder / "layers.tw").write_text(text, encoding="utf-8")
    words = ("kernel", "--target", target, "layers.tw")
    for stage in ("all", "perceptron_2: lowered"):
        ended = tilewright("check", *words, "--stage", stage)
        assert ended.code == 0, ended.out + ended.err
    shown = tilewright("show", *words, "--stage=config")
    assert shown.lines[1].startswith("GroupsConfig(groups=(")
    groups = [line for line in shown.lines if line.startswith("# perceptron_")]
    assert [line.split(":")[0] for line in groups] == ["# perceptron_1", "# perceptron_2"]
    page = tilewright("show", *words, "--page=page.html")
    assert page.code == 0, page.err
    written = (folder / "page.html").read_text(encoding="utf-8")
    assert "<h2>kernel perceptron_1</h2>" in written and "<h2>kernel perceptron_2</h2>" in written
    assert 'title="stage lowered"' in written  # the heading says of which group


def test_faults_of_a_group_are_found() -> None:
    kernel = tw.compile(parse_kernel(EXAMPLES["perceptron"].text), "x86:avx2").schedule
    stages = dict(kernel.stages)
    last = "perceptron_2: tiled"
    broken = to_text(stages[last]).replace("add= a * b", "add= a * -b")
    stages[last] = parse_kernel(broken)
    case = KernelCase(parse_kernel(EXAMPLES["perceptron"].text), "layers.tw")
    inputs = case.contents(Contents.INTEGERS)
    machine = find_target("x86:avx2").machine
    reports = check_stages(stages, kernel.packs, machine, inputs, "all")
    assert {r.stage: [i.kind for i in r.issues] for r in reports if r.issues} == {
        last: ["wrong result"]
    }


PADDED = """
kernel padded(
    in a: s64[5, 3]{0:2:12 1:3:4 0:4:1}, in ids: s32[9], in x: u8[16]{0:16:1 +4 ^1:1:1},
    out c: s64[9, 3]{0:3:16 1:4:4 0:4:1}, inout d: u8[16],
):
  compute gather(i in 9, j in 3):
    id = ids[i]
    c[i, j] = a[s64(id), j] * 4611686018427387905
  compute add(i in 16):
    d[i] = d[i] + x[i]
"""


def test_layouts_and_places(tilewright: Command, folder: Path) -> None:
    """Blocks with padding that the kernel does not write, swizzles, integers beyond those of f64,
    and contents that say places."""
    (folder / "padded.tw").write_text(PADDED, encoding="utf-8")
    for target in ("x86", "interpreter"):
        ended = tilewright("verify", "kernel", "--target", target, "padded.tw")
        assert ended.code == 0, ended.out + ended.err


def test_show_and_build(tilewright: Command, folder: Path) -> None:
    shown = tilewright("show", "kernel", "--target=x86:avx2", "two.tw")
    assert shown.code == 0
    heads = [line for line in shown.lines if line.startswith("# kernel")]
    assert heads == [f"# kernel --target=x86:avx2 two.tw:{name}" for name in ("add", "scale")]
    assert "# stage naive\nkernel add(" in shown.out
    for stage in ("llvm", "asm", "config", "cost"):
        assert tilewright("show", "kernel", "--stage", stage, "scale.tw").code == 0
    built = tilewright("build", "kernel", "two.tw", "-o", "out")
    assert built.code == 0, built.err
    assert {path.name for path in (folder / "out" / "1").iterdir()} >= {"scale.h", "scale.o"}


def test_stages_before_a_refusal(tilewright: Command, folder: Path) -> None:
    """What there is up to the stage that is refused is printed, and then the error."""
    two = """
kernel two(in x: f32[8], in w: f32[8], out y: f32[8]):
  compute line(i in 8):
    y[i] = x[i] * w[7 - i]
  vector for i in 8:
    vector for j in 8:
      y[j] = x[i]
"""
    (folder / "refused.tw").write_text(two, encoding="utf-8")
    ended = tilewright("show", "kernel", "--stage", "all", "refused.tw")
    assert ended.code == 2
    assert ended.err.startswith("tilewright: the vector loop 'j' is inside another one")
    assert "# stage naive\nkernel two(" in ended.out and "# stage lowered\n" in ended.out
    assert tilewright("show", "kernel", "--stage", "config", "refused.tw").out == ""


def test_contents_of_constants(tilewright: Command, folder: Path) -> None:
    """Their digests say which constants they are."""
    table = np.arange(12, dtype=np.float32)
    np.save(folder / "table.npy", table)
    wide = np.arange(4).astype(ml_dtypes.bfloat16)
    np.save(folder / "wide.npy", wide.view("V2"))
    text = f"""
kernel look(
    constant table: f32[3, 4] = {digest_of(table)}, constant wide: bf16[4] = {digest_of(wide)},
    in row: s8[5], out c: f32[5, 4],
):
  compute look(i in 5, j in 4):
    r = row[i]
    c[i, j] = table[s64(r), j] + f32(wide[j])
"""
    (folder / "look.tw").write_text(text, encoding="utf-8")
    words = ("--contents=table.npy", "--contents=wide.npy", "look.tw")
    for target in ("x86", "interpreter"):
        ended = tilewright("verify", "kernel", "--target", target, *words)
        assert ended.code == 0, ended.out + ended.err
    line = ended.lines[0].removeprefix("PASSED ")
    assert line == f"kernel --target=interpreter {' '.join(words)}"
    assert tilewright("check", "kernel", *words).code == 0
    alone = tilewright("verify", "kernel", "look.tw")
    assert alone.code == 2 and "on the command line, --contents FILE.npy" in alone.err
    np.save(folder / "other.npy", table + 1)
    other = tilewright("verify", "kernel", "--contents=other.npy", "look.tw")
    assert other.code == 2 and "other.npy is no constant of these kernels" in other.err
    short = text.replace("f32[3, 4]", "f64[3, 4]").replace(
        "= table[s64(r), j]", "= f32(table[0, j])"
    )
    (folder / "short.tw").write_text(short, encoding="utf-8")
    typed = tilewright("verify", "kernel", "--contents=table.npy", "short.tw")
    assert typed.code == 2 and "table has elements of type float32, expected f64" in typed.err


def test_run_on_files(tilewright: Command, folder: Path) -> None:
    a = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    np.save(folder / "a.npy", a)
    words = ("run", "kernel", "two.tw:scale", "-a", "a=a.npy", "-o", "out")
    ended = tilewright(*words, "--set", "alpha=2")
    assert ended.code == 0, ended.err
    np.testing.assert_array_equal(np.load(folder / "out" / "c.npy"), 2 * np.maximum(a, 0))
    for more, message in (
        ((), "alpha is missing"),
        (("--set=alpha=2", "-a", "b=a.npy"), "there is no argument 'b'"),
        (("--set=alpha=2", "--set=m=4"), "the array [3, 8]"),
    ):
        ended = tilewright(*words, *more)
        assert ended.code == 2 and message in ended.err, ended.err
    np.save(folder / "a.npy", a[:, :5])
    ended = tilewright(*words, "--set=alpha=2")
    assert ended.code == 2 and "n is 5, but it must be a multiple of 4" in ended.err
    two = tilewright("run", "kernel", "two.tw", "-a", "a=a.npy", "-o", "out")
    assert two.code == 2 and "2 cases are given" in two.err


def test_bench_times_a_call(
    tilewright: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarking, "measure_peaks", lambda threads: PEAKS)
    words = ("--threads=1", "--seconds=0.02", "--peer=interpreter", "--json=out.json")
    sizes = ("--set=m=16", "--set=n=16")
    ended = tilewright("bench", "kernel", *words, *sizes, "two.tw")
    assert ended.code == 0, ended.err
    result = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    add, scale = result["rows"]
    assert (add["name"], add["flops"], add["bytes"], add["peer"]) == ("add", 80, 960, "interpreter")
    assert (scale["flops"], scale["bytes"]) == (2 * 256, 2048)
    assert all(row["ratio"] > 1 and row["level"] == "L1" for row in result["rows"])
    assert scale["case"].startswith("kernel --threads=1 --set=m=16 --set=n=16 --set=alpha=")
    alone = tilewright("bench", "kernel", "--set=m=8", "scale.tw")
    assert alone.code == 2
    assert "n is not set" in alone.err and "cure: set it: --set n=NUMBER" in alone.err


def test_operations_are_counted() -> None:
    result = {name: operations_of(parse_kernel(e.text)) for name, e in EXAMPLES.items()}
    dense = 32 * 96 * 64 + 32 * 10 * 96
    assert result["perceptron"] == (2 * dense + 32 * 96, f32)
    assert result["gather"] == (0, None)
    assert result["Newton"] == (None, None)  # nobody knows how often it repeats
    assert result["symbolic scale"] == (None, None)  # nor this one's sizes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("verify kernel", "give a file with kernels"),
        ("verify kernel none.tw", "cannot read the kernel file none.tw"),
        ("verify kernel .", "Is a directory"),
        ("verify kernel binary.tw", "it is no text in UTF-8"),
        ("verify kernel empty.tw", "expected `kernel`, found the end of the text"),
        ("verify kernel wrong.tw", "wrong.tw:2:3"),
        ("verify kernel ill.tw", "ill.tw"),
        ("verify kernel same.tw", "has 2 kernels called 'add'"),
        ("verify kernel two.tw:mul", "choose one of add, scale"),
        ("verify kernel code.py", "code.py does not run: NameError: name 'kernel' is not defined"),
        ("verify kernel --set n scale.tw", "'n' sets no number"),
        ("verify kernel --set k=8 scale.tw", "choose one of m, n, alpha"),
        ("verify kernel --set n=8 two.tw:add", "the kernel takes none"),
        ("verify kernel --set n=5 scale.tw", "it must be a multiple of 4"),
        ("verify kernel --set n=8.5 scale.tw", "it must be an integer"),
        ("verify kernel --set alpha=x scale.tw", "it must be a number"),
        ("verify kernel --constant b scale.tw", "'b' cannot be constant"),
        ("verify kernel --dt f32 scale.tw", "kernel takes no --dt"),
        ("verify kernel --batch scale.tw scale.tw", "kernel takes no --batch"),
        ("verify kernel --set m=4096 --set n=65536 scale.tw", "at most 4096"),
        ("verify kernel negative.tw", "a size that may be negative"),
        ("verify conv --constant src ic3ih4oc5kh3", "conv takes no --constant"),
        ("verify conv --contents w.npy ic3ih4oc5kh3", "conv takes no --contents"),
        ("verify kernel --contents none.npy scale.tw", "cannot read none.npy"),
        ("show kernel --stage nothing scale.tw", "there is no stage 'nothing'"),
    ],
)
def test_bad_input(tilewright: Command, folder: Path, words: str, message: str) -> None:
    negative = SCALE.replace("f32[m, n]", "f32[m, n - 5000]")
    files = {
        "empty.tw": "# nothing\n",
        "wrong.tw": ADD.strip().replace("compute", "computes"),
        "ill.tw": ADD.replace("c[i, j] =", "a[i, j] ="),
        "same.tw": ADD + ADD,
        "code.py": "@kernel\ndef f(): ...\n",
        "negative.tw": negative,
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "binary.tw").write_bytes(b"\xff\xfe\x00")
    ended = tilewright(*words.split())
    assert ended.code == 2, ended.out
    assert message in ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err


SAXPY = """import tilewright as tw


@tw.function
def twice(x):
    return x + x


@tw.kernel
def saxpy(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i] + twice(y[i])
"""


def test_source_stands_beside_every_stage(tilewright: Command, folder: Path) -> None:
    (folder / "saxpy.py").write_text(SAXPY, encoding="utf-8")
    shown = tilewright("show", "kernel", "--stage", "all", "saxpy.py:saxpy").out
    stages = dict(stage.split("\n", 1) for stage in shown.split("# stage ")[1:])
    assert {"naive", "vectors"} <= stages.keys()
    for text in stages.values():
        parse_kernel(text)
        beside = {line.split("# ", 1)[1] for line in text.splitlines() if "  # " in line}
        assert beside >= {
            "saxpy.py:12: if i < n:",
            "saxpy.py:13: y[i] = a * x[i] + twice(y[i])",
            "saxpy.py:6: return x + x",
        }
        stored = [line for line in text.splitlines() if line.strip().startswith("y[")]
        assert stored and all("# saxpy.py:13: y[i] = " in line for line in stored)
    # The source of a text is the text: only where something became of a line, it stands there.
    scheduled = tilewright("show", "kernel", "--stage", "all", "two.tw:add").out
    first = scheduled.split("# stage ")[1]
    assert "two.tw:" not in first and "# two.tw:4: compute add(i in 4, j in 20):" in scheduled


GATHERS = """
import tilewright as tw

@tw.kernel
def follow(count: tw.array("s32", 1), next: tw.array("s32", 1), at: tw.array("s32", 1)):
    i = tw.global_id(0)
    for k in range(count[i]):
        at[i] = next[next[at[i]]]
"""


def test_the_report_of_what_runs_one_by_one(tmp_path: Path, tilewright: Command) -> None:
    file = tmp_path / "gathers.py"
    file.write_text(GATHERS)
    values = ("kernel", f"{file}:follow", "--target=x86:avx2", "--stage=config")
    said = tilewright("show", *values).out
    assert "PlainConfig()" in said
    assert "# work-items run one after the other; as lanes they would access memory so:" in said
    assert "gathered" in said
    said = tilewright("show", *values, "--config=vector=8").out
    assert "one after the other" not in said and "gathered" in said


def test_what_python_files_print_is_no_output(tilewright: Command, folder: Path) -> None:
    text = """import tilewright as tw

print("on the way")


@tw.kernel
def double(x: tw.array("f32", 1)):
    x[tw.global_id(0)] = 2.0 * x[tw.global_id(0)]


if __name__ == "__main__":
    print("as a program")
"""
    (folder / "double.py").write_text(text, encoding="utf-8")
    for words in (
        ("show", "kernel", "--stage=naive", "double.py"),
        ("check", "kernel", "double.py:double"),
        ("build", "kernel", "double.py", "-o", "out"),
    ):
        ended = tilewright(*words)
        assert ended.code == 0, ended.err
        assert "on the way" in ended.err and "on the way" not in ended.out
        assert "as a program" not in ended.out + ended.err
    shown = tilewright("show", "kernel", "--stage=naive", "double.py").out
    assert [parsed.name for parsed in parse_kernels(shown)] == ["double"]
    (folder / "ends.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    ended = tilewright("check", "kernel", "ends.py")
    assert ended.code == 2 and 'if __name__ == "__main__"' in ended.err
