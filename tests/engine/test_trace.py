"""What `TILEWRIGHT_DEBUG` prints, level by level, and the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.engine.compile import forget
from tilewright.engine.trace import Trace
from tilewright.errors import ArgumentError
from tilewright.ir import parse_kernel

LINE = re.compile(r"(part|stage|pass)\s+\S.*\d ms( +(changed|-))?")


def compiled(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", str(level))
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    forget()
    tw.compile(tw.convolution("mb1ic16ih8oc16oh8kh3ph1", src="nhwc", dst="nhwc"), threads=1)


def printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], level: int
) -> list[str]:
    compiled(monkeypatch, level)
    return capfd.readouterr().err.splitlines()


def test_silent_by_default(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert printed(monkeypatch, capfd, 0) == []


def test_one_line_for_each_step(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = printed(monkeypatch, capfd, 1)
    assert all(LINE.fullmatch(line) for line in lines)
    names = [line.split()[1] for line in lines]
    for name in (
        "schedule",
        "naive",
        "tensorized",
        "lanes",
        "steps",
        "hoist",
        "lets",
        "lower",
        "assemble",
    ):
        assert name in names
    assert not any(line.endswith(("changed", "-")) for line in lines)


@pytest.mark.usefixtures("own_cache")
def test_what_comes_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lines() -> list[str]:
        tw.compile(tw.matmul("4x4:4x4"), threads=1)
        return capfd.readouterr().err.splitlines()

    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    assert not any("cache" in line for line in lines())
    for place in ("in memory", "on disk"):
        if place == "on disk":
            forget()
        (line,) = lines()
        assert LINE.fullmatch(line) and line.startswith(f"part  from the cache {place} ")
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "0")
    assert lines() == []


def test_what_changed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    lines = printed(monkeypatch, capfd, 2)
    assert all(LINE.fullmatch(line) for line in lines)
    assert all(line.endswith(("changed", "-")) for line in lines if not line.startswith("part"))


def test_the_kernel_the_code_and_the_rewrites(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    third = printed(monkeypatch, capfd, 3)
    fourth = printed(monkeypatch, capfd, 4)
    fifth = printed(monkeypatch, capfd, 5)
    kernels = [at for at, line in enumerate(third) if line.startswith("kernel conv_fwd_d(")]
    changed = [line for line in third if LINE.fullmatch(line) and line.endswith("changed")]
    assert len(kernels) == len(changed) > 3  # those of the kernel, and none of its packing
    same = [
        at
        for at, line in enumerate(third)
        if line.startswith(("stage", "pass")) and line[-1] == "-"
    ]
    assert same and all(LINE.fullmatch(third[at + 1]) for at in same[:-1])  # a line, no kernel
    assert any(line.startswith('      tile("main", ') for line in third)  # a transform
    assert not any(".cfi" in line or "retq" in line for line in third)
    assert any("retq" in line for line in fourth)
    rewrite = re.compile(r"  [\w-]+: .+ => .+")
    assert not any(rewrite.fullmatch(line) for line in fourth)
    assert any(rewrite.fullmatch(line) for line in fifth)


KERNEL = """
kernel k(in src: f32[8, 8], out dst: f32[8, 8, 4]):
  for i in 8:
    for j in 8:
      for k in 4:
        dst[i, j, k] = src[i // 2, j]
"""


def test_the_page_has_the_kernels_behind_the_passes(tmp_path: Path) -> None:
    trace = Trace(level=0)
    trace.passes(parse_kernel(KERNEL))
    with trace.part("lower & more"):
        pass
    trace.page(tmp_path / "page.html", "a < b")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>a &lt; b</title>" in text
    assert "t = i // 2" in text
    assert '<script type="application/json"' in text
    assert "lower &amp; more" in text
    assert [(s.kind, s.name, s.changed) for s in trace.steps] == [
        ("pass", "lanes", False),
        ("pass", "steps", False),
        ("pass", "hoist", True),
        ("pass", "lets", False),
        ("part", "lower & more", None),
    ]
    for path in (tmp_path, tmp_path / "none" / "page.html"):
        with pytest.raises(ArgumentError, match=f"cannot write {path}"):
            trace.page(path)


def test_a_trace_can_be_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    op = tw.convolution("mb1ic16ih8oc16oh8kh3ph1", src="nhwc", dst="nhwc")
    for _ in range(2):  # the second time from memory, if it was asked
        trace = Trace(level=0)
        tw.compile(op, threads=1, trace=trace)
        passes = [step.name for step in trace.steps if step.kind == "pass"]
        assert passes[:4] == ["lanes", "steps", "hoist", "lets"]
        assert any(step.kind == "stage" and step.kernel is not None for step in trace.steps)
