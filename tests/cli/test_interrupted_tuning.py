"""Ctrl-C, and a full disk, while `tilewright tune` searches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tilewright.tune.database import Database

COMMAND = (sys.executable, "-m", "tilewright")
LEAST = 80_000  # bytes of a file, with room for the tables and a few rows


def test_what_was_tried_is_kept_and_the_best_is_said(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    words = ["tune", "matmul", "--threads", "1", "--jobs", "1", "--budget", "10m", "--db"]
    process = subprocess.Popen(
        [*COMMAND, *words, str(file), "16x32:32x48"],
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


def test_a_disk_that_gets_full_ends_the_search_with_the_best(tmp_path: Path) -> None:
    """The system refuses to write more, in the midst of a search; the next one goes on."""
    file = tmp_path / "a.db"
    words = ["tune", "matmul", "--threads", "1", "--jobs", "1", "--strategy", "random", "--db"]
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += f"resource.setrlimit(resource.RLIMIT_FSIZE, ({LEAST}, resource.RLIM_INFINITY))"
    program = f"{limit}; from tilewright.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words, str(file), "--budget", "200 trials", "2x3:3x4"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "disk I/O error" in done.stderr and "look at the disk and at its quota" in done.stderr
    kept = len(rows(file))
    assert kept >= 1
    assert f"{kept} tried  matmul --dt=f32 2x3:3x4" in done.stdout
    again = subprocess.run(
        [*COMMAND, *words, str(file), "--budget", f"{kept + 2} trials", "2x3:3x4"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (again.returncode, again.stderr) == (0, "")
    assert f"{kept + 2} tried  matmul --dt=f32 2x3:3x4" in again.stdout
