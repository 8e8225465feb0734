"""The examples run, are short, and print what they show."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

from checkout import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_eleven() -> None:
    assert len(EXAMPLES) == 11


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(
    path: Path, capsys: pytest.CaptureFixture[str], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_cache.parent)
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert ast.get_docstring(ast.parse(text))
    if "import torch" in text:
        pytest.importorskip("torch")
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
