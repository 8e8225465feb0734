"""Those that build make way for the one that times."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tilewright.tune import timing as locks
from tilewright.tune.processes import HungError, Processes
from tilewright.tune.timing import building, timing


def test_who_builds_stands_still_while_another_times(tmp_path: Path) -> None:
    lock, steps = str(tmp_path / "lock"), [0]
    ended, moved = threading.Event(), []

    def times() -> None:
        for _ in range(3):
            with timing(lock):
                before = steps[0]
                time.sleep(0.02)
                moved.append(steps[0] - before)
        ended.set()

    thread = threading.Thread(target=times)
    with building(lock):
        thread.start()
        while not ended.is_set():
            steps[0] += 1
    thread.join()
    assert steps[0] > 0
    assert moved == [0, 0, 0]


def _held(path: Path) -> bool:
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def test_a_child_process_that_goes_on_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    monkeypatch.setattr(locks, "at_work", lambda: True)
    with building(str(lock)):
        gate = os.open(f"{lock}.gate", os.O_RDWR)
        fcntl.flock(gate, fcntl.LOCK_EX)  # another one wants to time
        signal.raise_signal(signal.SIGALRM)
        assert _held(lock)
        os.close(gate)
    assert not _held(lock)


def test_many_build_at_a_time(tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    with building(lock), building(lock):
        thread = threading.Thread(target=lambda: building(lock).__enter__())
        thread.start()
        thread.join()
    with building(""), timing(""), timing(""):
        assert not list(tmp_path.glob("*.gate.gate"))


def _hangs_while_it_is_timed(lock: str) -> None:
    with timing(lock):
        time.sleep(60)


def _builds(lock: str, begun: str) -> str:
    with building(lock):
        Path(begun).touch()
        while not Path(f"{lock}.hangs").exists():
            time.sleep(0.01)
        time.sleep(0.1)  # the gate is closed meanwhile
    return "built"


def test_who_waits_for_one_that_hangs_is_not_ended_for_it(tmp_path: Path) -> None:
    """The builder began first, so that its time would be up first."""
    lock = str(tmp_path / "lock")
    processes = Processes(2, limit=1.5)
    try:
        begun = tmp_path / "begun"
        builder = processes.submit(_builds, lock, str(begun))
        while not begun.exists():
            time.sleep(0.01)
        hangs = processes.submit(_hangs_while_it_is_timed, lock)
        time.sleep(0.8)
        Path(f"{lock}.hangs").touch()
        with pytest.raises(HungError):
            hangs.result()
        assert builder.result() == "built"
    finally:
        processes.shutdown(wait=False)
