"""Ctrl-C while `tilewright tune` searches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tilewright.tune.database import Database


def test_what_was_tried_is_kept_and_the_best_is_said(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    words = ["tune", "matmul", "--threads", "1", "--jobs", "1", "--budget", "10m", "--db"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", *words, str(file), "16x32:32x48"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Where the tests run in the background, it would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not rows(file):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    # As a terminal does: to all processes.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == f"interrupted: what was tried is in {file}\n"
    count = len(rows(file))
    assert f"{count} tried  matmul --dt=f32 16x32:32x48" in out


def rows(file: Path) -> list[object]:
    if not file.exists():
        return []
    with Database(file) as database:
        return list(database.rows())
