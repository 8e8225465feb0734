"""The command line before it does anything: versions, help, what a shell completes, what is
loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from datetime import datetime
from importlib import import_module
from pathlib import Path

import pytest

import tilewright as tw
from checkout import ROOT
from commands import Command
from tilewright.cli import app, completing
from tilewright.problems import DRIVERS


def test_the_version(tilewright: Command) -> None:
    assert tilewright("--version").out == f"tilewright {tw.__version__}\n"
    ended = subprocess.run(
        [sys.executable, "-m", "tilewright", "--version"], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (0, f"tilewright {tw.__version__}\n")


def test_the_version_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    result = project["tool"]["setuptools"]["dynamic"]["version"]
    assert result == {"attr": "tilewright.__version__"}


@pytest.mark.parametrize("name", app._COMMANDS)
def test_what_a_command_is_for_is_the_first_sentence_of_its_help(name: str) -> None:
    home, line = app._COMMANDS[name]
    command = getattr(import_module(f"tilewright.cli.{home}"), f"{name}_command")
    assert " ".join(command.__doc__.partition("\n\n")[0].split()) == line


# After each command, which parts of the compiler it has loaded.
_LOADED = """
import sys
from typer.testing import CliRunner
from tilewright.cli.app import app

for line in sys.argv[1:]:
    assert CliRunner().invoke(app, line.split()).exit_code == 0, line
    parts = ("numpy", "torch", "llvmlite", "tilewright.ir", "tilewright.recipes")
    print(line, *(part for part in parts if part in sys.modules), sep=": ")
"""


def test_commands_load_what_they_need() -> None:
    lines = ["--help", "verify --help", "cache", "sets", "rules min", "doctor"]
    ended = subprocess.run(
        [sys.executable, "-c", _LOADED, *lines], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == [
        "--help",
        "verify --help",
        "cache",
        "sets: numpy: tilewright.ir",
        "rules min: numpy: tilewright.ir",
        "doctor: numpy: llvmlite: tilewright.ir",
    ]


def test_importing_loads_nothing_else() -> None:
    code = "import sys, tilewright; print(*(name for name in sys.modules if 'tilewright' in name))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["tilewright"]


def test_doctor_speaks_in_words(tilewright: Command) -> None:
    lines = tilewright("doctor").lines
    assert len(lines) > 5
    for line in lines:
        assert not any(mark in line for mark in ("('", '("', "None")), line


# Completion.


def _completed(words: str) -> list[str]:
    """What bash is offered for the last of ``words``."""
    environment = {
        **os.environ,
        "_TILEWRIGHT_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words.split(" ")),
        "COMP_CWORD": str(words.count(" ")),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "tilewright"], env=environment, capture_output=True, text=True
    )
    return ended.stdout.split()


def test_shells_complete_commands_options_and_values() -> None:
    assert _completed("tilewright ver") == ["verify"]
    assert _completed("tilewright verify con") == ["conv", "concat"]
    assert _completed("tilewright show conv --st") == ["--stag", "--stage"]
    assert _completed("tilewright verify conv --set resnet") == ["resnet_50"]


def test_shells_complete_variants_of_targets() -> None:
    """Bash takes a colon for a word, and completes what stands behind it."""
    assert _completed("tilewright show conv --target x86 : avx2") == ["avx2"]
    assert "amx" in _completed("tilewright show conv --target x86 :")
    assert _completed("tilewright show conv --target x86 : avx2 --st") == ["--stag", "--stage"]
    assert completing.targets("nvidia:sm_8") == ["nvidia:sm_80", "nvidia:sm_89"]  # as others


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("verfy conv", "did you mean verify?"),
        ("show conv --target x68 ic4ih5oc6kh3", "did you mean x86?"),
        ("show conv --target avx2 ic4ih5oc6kh3", "did you mean x86:avx2?"),
        ("show conv --target sm_80 ic4ih5oc6kh3", "did you mean nvidia:sm_80?"),
        ("show conv --target x86:avx3 ic4ih5oc6kh3", "did you mean avx2?"),
    ],
)
def test_what_was_meant(words: str, meant: str) -> None:
    command = [sys.executable, "-m", "tilewright", *words.split()]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and meant in ended.stderr


def test_figures_in_files_say_when_and_where(tmp_path: Path, tilewright: Command) -> None:
    problem = "ic4ih5oc6kh3"
    for words, key in (
        (["targets"], "targets"),
        (["doctor"], "found"),
        (["verify", "conv", problem], "cases"),
        (["check", "conv", problem], "cases"),
        (["show", "conv", "--stage", "cost", "--target=x86:avx2", problem], "cases"),
    ):
        file = tmp_path / f"{words[0]}.json"
        assert tilewright(*words, f"--json={file}").code == 0
        result = json.loads(file.read_text(encoding="utf-8"))
        assert isinstance(result["schema"], int) and result["machine"]["cpu"]
        assert datetime.fromisoformat(result["date"]).tzinfo is not None
        assert result[key], words
    assert result["cases"][0]["flops"] == 7776


def test_figures_of_a_stage_that_has_none(tilewright: Command) -> None:
    ended = tilewright("show", "conv", "--json=x.json", "ic4ih5oc6kh3")
    assert ended.code == 2 and "--json is for the cost" in ended.err


def test_what_is_completed_is_there() -> None:
    assert tuple(DRIVERS) == completing.DRIVERS
    assert completing.targets("") == ["x86", "nvidia", "spirv", "interpreter"]
    assert completing.directions("BWD_W") == ["BWD_W", "BWD_WB"]
    assert completing.stages("s") == ["schedule"]
    assert completing.sets("resn") == ["resnet_50"]


def test_a_shell_can_be_told(tilewright: Command) -> None:
    assert "--install-completion" in tilewright("--help").out
