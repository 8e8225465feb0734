"""Fused code that is kept, in memory and on disk: what finds it, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fusion_cases import scale
from tilewright.engine.disk_cache import DiskCache
from tilewright.recipes.fusing import fuse

N = 256


@tw.kernel
def doubled(x: tw.array("T", 1), t: tw.array("T", 1)):
    i = tw.global_id(0)
    t[i] = x[i] + x[i]


class Counted:
    """How many fusions are made for lists; the disk cache has nothing at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.count = 0
        disk = DiskCache(folder, 1 << 24)
        monkeypatch.setattr("tilewright.queues.fused_code.fuse", self.fuse)
        monkeypatch.setattr("tilewright.queues.fused_code.open_disk_cache", lambda: disk)

    def fuse(self, *what: Any, **options: Any) -> object:
        self.count += 1
        return fuse(*what, **options)

    def run(
        self,
        queue: tw.Queue,
        a: float = 2.0,
        size: int = N,
        last: int | None = None,
        local: tuple[int] | None = None,
        scope: str = "none",
        dtype: str = "f4",
        **options: bool,
    ) -> int:
        x, t, y = (queue.buffer(np.ones(N, dtype)) for _ in range(3))
        z, w = (queue.buffer(np.ones(N, np.float32)) for _ in range(2))
        before = self.count
        with queue.fusion(promote={t: scope}, require=True, **options) as fusion:  # type: ignore[arg-type]
            queue.submit(doubled, (size,), x, t, local=local)
            queue.submit(doubled, (size,), t, y, local=local)
            queue.submit(scale, (last or size,), a, w, z, local=local)
        assert (y.numpy()[:size] == 4).all() and (z.numpy()[: last or size] == a).all()
        promoted = [buffer.promoted for buffer in fusion.report.buffers.values()]
        assert promoted.count(scope) == (scope != "none")
        return self.count - before


def test_what_finds_fused_code_and_what_does_not(
    queue: tw.Queue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counted = Counted(monkeypatch, tmp_path)
    news: list[dict[str, Any]] = [
        {},
        {"scope": "private"},
        {"constants": True},
        {"constants": True, "a": 3.0},
        {"barriers": False},
        {"trust": True},
        {"local": (64,)},
        {"last": 128},
        {"dtype": "i4"},
    ]
    for options in news:
        assert counted.run(queue, **options) == 1, options
    for options in (*news, {"a": 7.0}, {"size": 128}):
        assert counted.run(queue, **options) == 0, options
    # A queue of its own has what is on disk, as another process has; the interpreter leaves
    # nothing there.
    with tw.Queue(queue.device) as again:
        for options in news:
            assert counted.run(again, **options) == (queue.device == "interpreter"), options
    with tw.Queue("spirv" if queue.device == "x86" else "x86") as other:
        assert counted.run(other) == 1


@pytest.mark.parametrize("damage", [b"", b"kernel", b"kernel k(in x: f32[4])"])
def test_what_is_damaged_on_disk_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: bytes
) -> None:
    counted = Counted(monkeypatch, tmp_path)
    with tw.Queue("x86") as queue:
        assert counted.run(queue) == 1
    put = DiskCache.put
    disk = DiskCache(tmp_path, 1 << 24)
    for path in tmp_path.glob("v1/*/*"):
        entry = disk.get(path.name)
        assert entry is not None and entry.payload.startswith(b"kernel")
        put(disk, path.name, damage, {**entry.meta, **({} if damage else {"report": {}})})
    with tw.Queue("x86") as queue:
        assert counted.run(queue) == 1
