"""The worker pool: every index runs exactly once, whoever calls, whatever happens around it."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import pytest

from needs import needs_x86
from tilewright.errors import SettingError
from tilewright.targets.x86.assemble import assemble
from tilewright.targets.x86.driver import Program
from tilewright.targets.x86.pool import Pool, worker_pool

pytestmark = needs_x86

# count: one more in args[index]. meet: returns when all are in it at once. repeat: many parallel
# regions without Python between. nested: a region in each index.
CODE = """
define void @count(ptr %args, i64 %index, i64 %count) {
  %at = getelementptr i64, ptr %args, i64 %index
  %old = atomicrmw add ptr %at, i64 1 seq_cst
  ret void
}
define void @meet(ptr %args, i64 %index, i64 %count) {
  %old = atomicrmw add ptr %args, i64 1 seq_cst
  br label %wait
wait:
  %there = load atomic i64, ptr %args seq_cst, align 8
  %all = icmp sge i64 %there, %count
  br i1 %all, label %done, label %wait
done:
  ret void
}
define void @repeat(ptr %entry, ptr %state, ptr %args, i64 %count, i64 %times) {
start:
  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %next, %loop ]
  call void %entry(ptr %state, ptr @count, ptr %args, i64 %count)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @nested(ptr %args, i64 %index, i64 %count) {
  %entry = load ptr, ptr %args
  %state_at = getelementptr ptr, ptr %args, i64 1
  %state = load ptr, ptr %state_at
  %counters = getelementptr ptr, ptr %args, i64 2
  call void %entry(ptr %state, ptr @count, ptr %counters, i64 3)
  ret void
}
"""

Counters = ctypes.c_int64 * 32


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(assemble(CODE, "x86-64"), ("count", "meet", "repeat", "nested"))


@pytest.fixture(params=["0", "30", "1000000"], ids=lambda us: f"spin{us}")
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """The pool with 4 threads: always asleep soon, sometimes, or never."""
    monkeypatch.setenv("TILEWRIGHT_THREADS", "4")
    monkeypatch.setenv("TILEWRIGHT_SPIN_US", request.param)
    pool = worker_pool()
    pool.stop()
    yield pool
    pool.stop()


def run(pool: Pool, program: Program, times: int, seed: int = 0, pause: float = 0.0) -> None:
    """Many calls with changing counts; the counters must be exact at every look."""
    counters, expected = Counters(), [0] * 32
    chance = random.Random(seed)
    for _ in range(times):
        threads = chance.choice([0, 1, 2, 2, 3, 4, 5, 9, 32])
        pool.run(program.address("count"), ctypes.addressof(counters), threads)
        for index in range(threads):
            expected[index] += 1
        if chance.random() < 0.1:
            assert list(counters) == expected
            time.sleep(pause * chance.random())
    assert list(counters) == expected


def test_every_index_runs_once(pool: Pool, program: Program) -> None:
    run(pool, program, 300, pause=0.001)
    assert pool.threads == 4


def test_native_callers(pool: Pool, program: Program) -> None:
    counters = Counters()
    repeat = ctypes.CFUNCTYPE(
        None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64
    )(program.address("repeat"))  # fmt: skip
    repeat(pool.entry, pool.state, ctypes.addressof(counters), 2, 3000)
    assert list(counters[:3]) == [3000, 3000, 0]


def test_a_caller_that_holds_the_gil(pool: Pool, program: Program) -> None:
    # PYFUNCTYPE does not release it; starting the workers and the join must still get through.
    counters = Counters()
    entry = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(pool.entry)
    for _ in range(100):
        entry(pool.state, program.address("count"), ctypes.addressof(counters), 4)
    assert list(counters[:5]) == [100] * 4 + [0]


def test_they_run_at_the_same_time(pool: Pool, program: Program) -> None:
    # Index 0 is the caller's; it only ends when workers do the others.
    counters = Counters()
    for _ in range(20):
        counters[0] = 0
        pool.run(program.address("meet"), ctypes.addressof(counters), 4)
        assert counters[0] == 4


def test_nested_regions_run_in_turn(pool: Pool, program: Program) -> None:
    args = (ctypes.c_int64 * 8)(pool.entry, pool.state)
    for _ in range(50):
        pool.run(program.address("nested"), ctypes.addressof(args), 4)
    assert list(args[2:]) == [200, 200, 200, 0, 0, 0]


def test_many_python_threads_at_once(pool: Pool, program: Program) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            run(pool, program, 150, seed, pause=0.0005)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        time.sleep(0.003)
        pool.stop()
    for thread in threads:
        thread.join()
    assert not failures


def test_fork(pool: Pool, program: Program) -> None:
    run(pool, program, 20)
    stop = threading.Event()

    def others() -> None:
        while not stop.is_set():
            run(pool, program, 20)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(4):
            assert exit_code_of_fork(pool, program) == 0
    finally:
        stop.set()
        thread.join()
    run(pool, program, 20)
    assert pool.threads == 4


def exit_code_of_fork(pool: Pool, program: Program) -> int:
    """Forks; the child runs regions with workers of its own, then assembles and loads code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: fork with threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            run(pool, program, 20)
            Program(assemble(CODE, "x86-64"), ("count",)).close()
            code = 0 if pool.threads == 4 else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


def test_one_thread_starts_no_worker(monkeypatch: pytest.MonkeyPatch, program: Program) -> None:
    monkeypatch.setenv("TILEWRIGHT_THREADS", "1")
    pool = worker_pool()
    pool.stop()
    run(pool, program, 50)
    assert pool.threads == 1
    pool.stop()


def test_idle_workers_sleep(monkeypatch: pytest.MonkeyPatch, program: Program) -> None:
    monkeypatch.setenv("TILEWRIGHT_THREADS", "4")
    monkeypatch.setenv("TILEWRIGHT_SPIN_US", "500")
    pool = worker_pool()
    pool.stop()
    run(pool, program, 10)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.05
    pool.stop()


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, **variables},
    )


USE = f"""
import ctypes, threading
from tilewright.targets.x86.pool import worker_pool
from tilewright.targets.x86.assemble import assemble
from tilewright.targets.x86.driver import Program
assert threading.active_count() == 1
program = Program(assemble({CODE!r}, "x86-64"), ("count",))
counters = (ctypes.c_int64 * 8)()
def use(times=1):
    for _ in range(times):
        worker_pool().run(program.address("count"), ctypes.addressof(counters), 3)
use()
assert worker_pool().threads == 3
assert list(counters) == [1, 1, 1, 0, 0, 0, 0, 0]
"""


CALLS_UNTIL_THE_END = "threading.Thread(target=use, args=(10**9,), daemon=True).start()"


@pytest.mark.parametrize(
    ("spin", "rest"),
    [
        ("0", ""),
        ("10000000", "import sys; sys.exit(0)"),
        ("0", CALLS_UNTIL_THE_END),
        ("10000000", CALLS_UNTIL_THE_END),
        ("1000", "import atexit; atexit.register(use)"),
        ("1000", "import os; pid = os.fork(); use(); os.waitpid(pid, 0) if pid else None"),
    ],
)
def test_the_interpreter_ends_cleanly(spin: str, rest: str) -> None:
    done = python(USE + rest, TILEWRIGHT_THREADS="3", TILEWRIGHT_SPIN_US=spin)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_wrong_setting_is_refused() -> None:
    done = python(USE, TILEWRIGHT_THREADS="many")
    assert done.returncode == 1
    assert SettingError.__name__ in done.stderr
    assert "TILEWRIGHT_THREADS has the wrong value 'many'" in done.stderr
