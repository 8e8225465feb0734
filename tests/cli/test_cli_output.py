"""Files that commands write, and commands that are interrupted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from measurements import PEAKS, ROW
from tilewright.bench.benchmark import Row
from tilewright.cli import benchmarking
from tilewright.cli.files import OutputFile, make_folder
from tilewright.errors import ArgumentError, UnsupportedError

pytestmark = pytest.mark.usefixtures("own_cache")
SMALL = ["mb1ic2ih4oc2kh1", "mb1ic4ih4oc2kh1", "mb1ic6ih4oc2kh1"]
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")


# Files.


def test_a_file_is_opened_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"older and longer")
    with OutputFile(path, "--json") as file:
        assert path.read_bytes() == b"older and longer"
        file.write(b"first")
        assert path.read_bytes() == b"first"
        file.write(b"2")
    assert path.read_bytes() == b"2"


def test_nothing_is_left_of_a_file_that_was_not_written(tmp_path: Path) -> None:
    older = tmp_path / "older"
    older.touch()
    with OutputFile(older, "--json"), OutputFile(tmp_path / "new", "--json"):
        assert (tmp_path / "new").exists()
    assert older.exists() and not (tmp_path / "new").exists()


def test_a_pipe_is_written_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with OutputFile(tmp_path / "pipe", "--json") as file:
        assert not file.replaceable
        file.write(b"all")
    assert os.read(reader, 10) == b"all"
    os.close(reader)


@needs_full
def test_a_full_disk_has_the_name_of_the_file(tilewright: Command) -> None:
    file = OutputFile(FULL, "--json")
    with pytest.raises(
        ArgumentError, match=r"cannot write /dev/full\n[^$]*No space left"
    ) as result:
        file.write(b"some")
    assert result.value.where == "--json"
    ended = tilewright("check", "matmul", "--json", "/dev/full", "4x4:4x4")
    assert ended.code == 2
    assert "cannot write /dev/full" in ended.err and "No space left" in ended.err


@needs_full
def test_a_full_output_is_an_error() -> None:
    code = "from tilewright.cli import main; main()"
    with FULL.open("w") as output:
        ended = subprocess.run(
            [sys.executable, "-c", code, "sets"], stdout=output, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 2
    assert ended.stderr == "tilewright: the output: No space left on device\n"


PLACES = {
    "a folder": lambda tmp_path: tmp_path,
    "no folder": lambda tmp_path: tmp_path / "none" / "out",
    "inside of a file": lambda tmp_path: tmp_path / "file" / "out",
    "a long name": lambda tmp_path: tmp_path / ("x" * 300),
}


@pytest.mark.parametrize("option", ["bench --json", "bench --plot", "check --json"])
@pytest.mark.parametrize("place", PLACES)
def test_files_that_cannot_be_written_are_refused_before_the_run(
    tilewright: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str, place: str
) -> None:
    def measured(*arguments: Any) -> Any:
        raise AssertionError("it ran")

    monkeypatch.setattr(benchmarking, "measure_peaks", measured)
    monkeypatch.setattr("tilewright.cli.check.check_op", measured)
    (tmp_path / "file").touch()
    path = PLACES[place](tmp_path)
    command, name = option.split()
    if name == "--plot":
        pytest.importorskip("matplotlib")
        monkeypatch.setattr(benchmarking, "plot_format", lambda path: "png")
    ended = tilewright(command, "conv", name, str(path), SMALL[0])
    assert ended.code == 2
    assert f"cannot write {path}" in ended.err and f"where: {name}" in ended.err


def test_plots_that_cannot_be_drawn_are_refused_before_the_run(
    tilewright: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(benchmarking, "measure_peaks", lambda threads: 1 / 0)
    path = tmp_path / "plot.xyz"
    ended = tilewright("bench", "conv", "--plot", str(path), SMALL[0])
    assert ended.code == 2 and "cannot draw plot.xyz" in ended.err
    assert not path.exists()

    def missing(path: Path) -> str:
        raise UnsupportedError("plots need matplotlib")

    monkeypatch.setattr(benchmarking, "plot_format", missing)
    assert tilewright("bench", "conv", "--plot", str(path), SMALL[0]).code == 2


def test_folders_that_cannot_be_written_are_refused_before_the_run(
    tilewright: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tilewright.cli.inspecting.compile_case", lambda *_: 1 / 0)
    (tmp_path / "file").touch()
    np.save(tmp_path / "src.npy", np.zeros((2, 2), np.float32))
    folder = str(tmp_path / "file" / "folder")
    for words in (
        ("build", "conv", SMALL[0]),
        ("run", "eltwise", "2x2", "-a", f"src={tmp_path / 'src.npy'}"),
    ):
        ended = tilewright(*words, "-o", folder)
        assert ended.code == 2 and f"cannot write {folder}" in ended.err
    make_folder(tmp_path / "a" / "b", "--output")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_an_export_names_the_file(tmp_path: Path) -> None:
    kernel = tw.compile(tw.matmul("4x4:4x4"), threads=1)
    name = f"{kernel.code.abi.entry}.h"
    (tmp_path / name).mkdir()
    with pytest.raises(ArgumentError, match=f"cannot write to {tmp_path / name}"):
        kernel.export(tmp_path, kernel.code.abi.entry)


# Interrupts.


class KilledError(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("ending", [KeyboardInterrupt, KilledError])
def test_a_bench_that_is_interrupted_leaves_what_it_has(
    tilewright: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: type[Exception]
) -> None:
    done: list[Row] = []

    def row(*arguments: Any) -> Row:
        if len(done) == 2:
            raise ending
        done.append(ROW)
        return ROW

    monkeypatch.setattr(benchmarking, "_row", row)
    monkeypatch.setattr(benchmarking, "measure_peaks", lambda threads: PEAKS)
    path, plot = tmp_path / "out.json", tmp_path / "out.svg"
    path.write_text("older " * 10_000)
    words = ["bench", "conv", "--json", str(path), *SMALL]
    if ending is KilledError:
        with pytest.raises(KilledError):
            tilewright(*words)
    else:
        pytest.importorskip("matplotlib")
        ended = tilewright(*words, "--plot", str(plot))
        assert ended.code == 130
        assert "interrupted, with 2 of 3 cases" in ended.err
        assert ended.out.count(ROW.name) == 3  # two rows, and the worst of them
        assert "<svg" in plot.read_text()
    result = json.loads(path.read_text())
    assert len(result["rows"]) == 2 and not result["complete"]
    assert result["summary"]["compared"] == 2


def test_a_bench_that_is_done_is_complete(
    tilewright: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order: list[str] = []

    def noted(name: str, value: Any) -> Any:
        return lambda *_: order.append(name) or value

    monkeypatch.setattr(benchmarking, "_row", noted("row", ROW))
    monkeypatch.setattr(benchmarking, "measure_peaks", noted("peaks", PEAKS))
    monkeypatch.setattr(benchmarking, "load_torch", noted("torch", None))
    path = tmp_path / "out.json"
    assert tilewright("bench", "conv", "--json", str(path), *SMALL).code == 0
    # What is interrupted while it is loaded would keep the report from being written.
    # Peaks are measured again, in case somebody was in their way.
    assert order == ["torch", "peaks", "row", "row", "row", "peaks"]
    result = json.loads(path.read_text())
    assert len(result["rows"]) == 3 and result["complete"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("eltwise --alg relu,elu:0.5 4x8", ["4x8 f32 relu", "4x8 f32 elu:0.5"]),
        ("softmax --alg SOFTMAX,LOGSOFTMAX 4x8", ["4x8 f32 SOFTMAX 1", "4x8 f32 LOGSOFTMAX 1"]),
        ("reduce --alg max --dt f32,bf16 4x8:4x1", ["4x8:4x1 f32 max", "4x8:4x1 bf16 max"]),
        ("eltwise 4x8 8x8", ["4x8", "8x8"]),
    ],
)
def test_a_row_has_the_knobs_that_differ_in_its_name(
    tilewright: Command, monkeypatch: pytest.MonkeyPatch, words: str, names: list[str]
) -> None:
    labels: list[str] = []
    monkeypatch.setattr(benchmarking, "_row", lambda *values: labels.append(values[-1]) or ROW)
    monkeypatch.setattr(benchmarking, "measure_peaks", lambda threads: PEAKS)
    assert tilewright("bench", *words.split()).code == 0
    assert labels == names


# Whoever runs the tests in the background has its children ignore interrupts.
_INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
_LOADING = f"""{_INTERRUPTED}
wanted, *sys.argv[1:] = sys.argv[1:]

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Watch())
from tilewright.cli import main
main()
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("typer", "sets"),
        ("tilewright.cli.app", "sets"),
        ("tilewright.cli.information", "sets"),
        ("numpy", "sets"),
        ("llvmlite.binding", "targets"),
        ("tilewright.recipes", "verify conv ic8ih6oc8kh3"),
    ],
)
def test_an_interrupt_while_loading(module: str, words: str) -> None:
    command = [sys.executable, "-c", _LOADING, module, *words.split()]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


_RUNNING = f"""{_INTERRUPTED}
from tilewright.cli import main
import tilewright.cli.information as information
import tilewright.cli.app as app

app.settings = lambda: os.kill(os.getpid(), signal.SIGINT)
sys.argv[1:] = ["sets"]
main()
"""


def test_an_interrupt_while_running() -> None:
    ended = subprocess.run([sys.executable, "-c", _RUNNING], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_nothing_is_loaded_before_an_interrupt_would_be_noticed() -> None:
    code = "import sys, tilewright.cli; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.split())
    assert not loaded & {"numpy", "llvmlite", "typer", "rich", "ml_dtypes", "tilewright.errors"}


def test_what_runs_in_the_background_ignores_interrupts() -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from tilewright.cli import main\n"
        "sys.argv[1:] = ['sets']\n"
        "try: main()\n"
        "finally: assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
