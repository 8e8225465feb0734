"""The steps of a schedule, which the caches keep with the code."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from compiled import check, small
from tilewright.engine import compile
from tilewright.engine.disk_cache import decode, encode
from tilewright.engine.entry import read_entry, write_entry
from tilewright.engine.kept import KeptSteps
from tilewright.engine.request import request_of
from tilewright.machines import x86
from tilewright.recipes import choose
from tilewright.recipes.start import Start

PERCEPTRON = """
kernel perceptron(in x: f32[16, 32], in v: f32[32, 48], in w: f32[48, 8], out y: f32[16, 8]):
  alloc h: f32[16, 48]
  compute clear(m in 16, n in 48):
    h[m, n] = 0.0
  compute first(m in 16, n in 48, k in 32):
    h[m, n] add= x[m, k] * v[k, n]
  compute start(m in 16, n in 8):
    y[m, n] = 0.0
  compute second(m in 16, n in 8, k in 48):
    y[m, n] add= h[m, k] * w[k, n]
"""


def _unscheduled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was scheduled since."""
    result: list[Any] = []
    schedule = choose.schedule

    def counted(*given: Any) -> Any:
        result.append(given)
        return schedule(*given)

    monkeypatch.setattr(choose, "schedule", counted)
    return result


def _whats() -> dict[str, tuple[Any, str, tuple[str, ...]]]:
    return {
        "packed": (small(), "x86:avx2", ()),
        "groups": (tw.parse_kernel(PERCEPTRON), "x86:avx2", ("v", "w")),
        "workgroups": (tw.matmul("64x32:32x48"), "nvidia:sm_80", ()),
    }


@pytest.mark.parametrize("which", _whats())
def test_what_comes_from_disk_tells_its_steps(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    what, target, constant = _whats()[which]
    result = tw.compile(what, target, threads=1, constant=constant)
    compile.forget()
    scheduled = _unscheduled(monkeypatch)
    again = tw.compile(what, target, threads=1, constant=constant)
    assert again.from_cache
    text = again.source("schedule")
    assert text == result.source("schedule") and not scheduled
    replayed = tw.Schedule.replay(what, text, target, constant=constant)
    assert replayed.text() == text and str(replayed.kernel) == str(result.schedule.kernel)


def test_entries_stay_small() -> None:
    result = tw.compile(tw.parse_kernel(PERCEPTRON), "x86:avx2", threads=1)
    assert len(result.source("schedule")) > 2 * len(result._steps.data)


@pytest.mark.parametrize("damage", ["nothing", "half", "no text", "no steps", "another kernel's"])
def test_damaged_steps_are_made_again(own_cache: Path, damage: str) -> None:
    """Whoever seals such an entry loses nothing but the time: the code is what it was."""
    made = tw.compile(small(), threads=1)
    text = made.source("schedule")
    other = tw.compile(tw.matmul("4x8:8x4"), threads=1).source("schedule")
    data = {
        "nothing": b"",
        "half": made._steps.data[:-9],
        "no text": zlib.compress(b"\xff\xfe"),
        "no steps": zlib.compress(b"import os"),
        "another kernel's": zlib.compress(other.encode()),
    }[damage]
    for path in [kept for kept in own_cache.rglob("*") if kept.is_file()]:
        entry = decode(path.name, path.read_bytes())
        assert entry is not None
        found = read_entry(entry, request_of(small()))
        if found is not None:
            config, parts, _ = found
            payload, meta = write_entry(entry.key, config, parts, KeptSteps(data))
            path.write_bytes(b"".join(encode(entry.key, payload, meta)))
    compile.forget()
    again = tw.compile(small(), threads=1)
    assert again.from_cache and again._steps.data == data
    assert again.source("schedule") == text
    check(again)


def test_what_is_longer_than_any_schedule_is_not_unpacked() -> None:
    start = Start.of(small().resolved())
    bomb = KeptSteps(zlib.compress(b"#" * 10_000_000))
    assert len(bomb.data) < 20_000
    assert bomb.text(start, x86.machine("avx2")) is None
