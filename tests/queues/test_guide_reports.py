"""The reports that the guide to fusing shows are those that its programs print."""

from __future__ import annotations

import linecache
import re

import pytest

from checkout import ROOT

GUIDE = ROOT / "docs" / "fusing.md"


def lines_of(report: str) -> list[str]:
    """Without the predicted times, which are those of a machine, and without places."""
    plain = re.sub(r"submitted at .*?:\d+", "submitted at a place", report)
    lines = [line.rstrip() for line in plain.strip().splitlines()]
    return [line for line in lines if not line.startswith("predicted:")]


def test_reports_in_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    shown = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    scope: dict[str, object] = {}
    printed: list[str] = []
    for number, program in enumerate(programs):
        # Kernels in Python need their source.
        file = f"<{GUIDE.name} {number}>"
        code = compile(program, file, "exec")
        linecache.cache[file] = (len(program), None, program.splitlines(keepends=True), file)
        exec(code, scope)
        out = capsys.readouterr().out
        printed += [out] if out else []
    assert list(map(lines_of, printed)) == list(map(lines_of, shown))
