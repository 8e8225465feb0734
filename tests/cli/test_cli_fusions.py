"""``tilewright show fusion``: what a file fuses, the report, and the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Command
from tilewright.schedule.fusion.text import fusion_text, parse_fusion

CHAIN = """\
fusion chain:
  scale(a = a, x = x, t = t)
  add(t = t, y = y)
  promote t any

kernel scale(a: f32, in x: f32[1024], out t: f32[1024]):
  grid for g in 16:
    workgroup for i in 64:
      t[g * 64 + i] = a * x[g * 64 + i]
kernel add(in t: f32[1024], inout y: f32[1024]):
  grid for g in 16:
    workgroup for i in 64:
      y[g * 64 + i] = t[g * 64 + i] + y[g * 64 + i]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "chain.tw"
    path.write_text(CHAIN)
    return path


def test_all_stages(tilewright: Command, file: Path) -> None:
    ended = tilewright("show", "fusion", str(file))
    assert ended.code == 0
    text, rest = ended.out.split("# stage report\n")
    assert text == f"# fusion {file}\n# stage fusion\n{CHAIN}"
    assert fusion_text(parse_fusion(text)) == CHAIN.rstrip("\n")
    report, kernel = rest.split("# stage kernel\n")
    assert report.startswith("# fused: scale, add\n# buffer  promoted  bytes saved  why\n")
    assert "# t       private   8192         proved\n" in report
    assert "# predicted: " in report
    assert kernel.startswith("kernel chain(a: f32, in x: f32[1024], inout y: f32[1024]):\n")


def test_one_stage(tilewright: Command, file: Path, tmp_path: Path) -> None:
    ended = tilewright("show", "fusion", "--stage", "kernel", str(file))
    again = tmp_path / "kernel.tw"
    again.write_text(ended.out)
    assert tilewright("show", "kernel", "--stage", "naive", str(again)).code == 0


def test_what_is_not_fused(tilewright: Command, tmp_path: Path) -> None:
    path = tmp_path / "shift.tw"
    path.write_text(CHAIN.replace("= t[g * 64 + i]", "= t[1023 - g * 64 - i]"))
    ended = tilewright("show", "fusion", "--stage", "report", str(path))
    assert ended.code == 0
    assert "# an element of t may go from one workgroup to another\n" in ended.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--stage", "naive"), "there is no stage 'naive'"),
        (("--config", "x"), "fusion takes no --config"),
        (("--page", "p.html"), "fusion takes no --page"),
    ],
)
def test_bad_options(tilewright: Command, file: Path, words: tuple[str, ...], message: str) -> None:
    ended = tilewright("show", "fusion", *words, str(file))
    assert ended.code == 2
    assert message in ended.err


def test_no_file(tilewright: Command, file: Path) -> None:
    assert "there is nothing to do" in tilewright("show", "fusion").err
    assert "cannot read the fusion file" in tilewright("show", "fusion", f"{file}x").err
    assert "fusions have one verb: show" in tilewright("verify", "fusion", str(file)).err
