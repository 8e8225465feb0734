"""What queues refuse, and where errors of commands go."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import QUEUES
from queue_kernels import add, checked, scale_add, step
from tilewright.errors import ArgumentError, KernelError, QueueError, UnsupportedError

N = 64


@pytest.fixture(params=QUEUES)
def queue(request: pytest.FixtureRequest) -> Iterator[tw.Queue]:
    result = tw.Queue(request.param)
    yield result
    result.wait()
    result.close()


def ints(*values: int) -> np.ndarray:
    return np.resize(np.array(values or range(N), np.int32), N)


def fails(queue: tw.Queue, *arguments: Any) -> tw.Event:
    """A command that fails, on these arguments."""

    def task(*values: object) -> None:
        raise ZeroDivisionError("on purpose")

    return queue.host_task(task, *arguments)


def finished(event: tw.Event) -> tw.Event:
    """The event, which has failed."""
    with pytest.raises(ZeroDivisionError):
        event.wait()
    return event


def test_an_error_says_where_its_command_was_submitted(queue: tw.Queue) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        fails(queue).wait()
    assert "host task task" in raised.value.__notes__[0]
    assert "test_queue_errors.py" in raised.value.__notes__[0]


def test_errors_reach_what_needs_the_result(queue: tw.Queue) -> None:
    x, y, z = (queue.buffer(ints()) for _ in range(3))
    gate = threading.Event()
    queue.host_task(lambda values: gate.wait(20), x)
    first = fails(queue, x)
    second = queue.submit(scale_add, (N,), N, 1, x, y)
    third = queue.submit(scale_add, (N,), N, 1, y, z)
    over = queue.fill(y, 3)
    gate.set()
    over.wait()
    for event in (second, third):
        with pytest.raises(QueueError) as raised:
            event.wait()
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert "host task task" in str(raised.value)
    with pytest.raises(QueueError, match="host task task"):
        z.numpy()
    assert (y.numpy() == 3).all()
    finished(first)


def test_errors_do_not_reach_what_only_comes_after() -> None:
    with tw.Queue("x86", in_order=True) as queue:
        x, y = queue.buffer(ints()), queue.buffer(ints())
        failed = fails(queue, x.read())
        queue.submit(step, (N,), N, x).wait()
        queue.submit(step, (N,), N, y).wait()
        assert (x.numpy() == 5 * ints() + 1).all()
        finished(failed)


def test_writing_over_what_failed(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    finished(fails(queue, x))
    with pytest.raises(QueueError, match="failed, on which it depends"):
        queue.submit(step, (N,), N, x)
    queue.submit(add, (N,), N, ints(1), ints(2), x.discard())
    assert (x.numpy() == 7).all()


def test_an_assertion_of_a_kernel(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    with pytest.raises(KernelError, match="too large") as raised:
        queue.submit(checked, (N,), N, 7, x).wait()
    assert "submitted at" in raised.value.__notes__[0]


def test_a_fault_in_the_interpreter() -> None:
    with tw.Queue("interpreter") as queue:
        x = queue.buffer(ints())
        event = queue.submit(step, (2 * N,), 2 * N, x)
        with pytest.raises(tw.TilewrightError, match="out of bounds"):
            event.wait()


def test_waiting_for_a_queue_raises_what_nobody_saw() -> None:
    queue = tw.Queue("x86")
    seen, unseen = fails(queue), fails(queue)
    finished(seen)
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        queue.wait()
    queue.wait()
    assert unseen.done
    fails(queue)
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        queue.close()
    queue.close()


def test_leaving_the_block_raises_what_nobody_saw() -> None:
    with pytest.raises(ZeroDivisionError), tw.Queue("x86") as queue:
        fails(queue)
    with pytest.raises(KeyError), tw.Queue("x86") as queue:
        fails(queue)
        raise KeyError


def test_what_runs_on_workers_neither_submits_nor_waits(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    other = threading.Event()
    pending = queue.host_task(lambda values: other.wait(20), x)
    tried: tuple[Callable[[], object], ...] = (
        lambda: queue.submit(step, (N,), N, x),
        x.numpy,
        queue.wait,
    )
    for function in tried[:2]:
        apart = tw.Queue("x86")
        with pytest.raises(QueueError, match="a host task submits"):
            if queue.in_order:
                other.set()
            apart.host_task(function).wait()
    other.set()
    pending.wait()
    errors: list[str] = []
    called = threading.Event()

    def callback(event: tw.Event) -> None:
        try:
            queue.submit(step, (N,), N, x)
        except QueueError as error:
            errors.append(error.what)
        called.set()

    queue.fill(x, 1).add_callback(callback)
    assert called.wait(20)
    assert errors == ["a callback submits a command, or looks into a buffer"]


def test_a_callback_that_raises(queue: tw.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", told.append)
    event = queue.fill(ints(), 1)
    event.wait()
    event.add_callback(lambda event: 1 / 0)
    assert isinstance(told[0].exc_value, ZeroDivisionError)


def test_a_thread_does_not_wait_for_itself(queue: tw.Queue) -> None:
    x, y = queue.buffer(ints()), queue.buffer(ints())
    with x.host("write"):
        event = queue.submit(scale_add, (N,), N, 1, x, y)
        for waits in (event.wait, queue.wait, y.numpy, x.numpy, x.close, x[3:5].close):
            with pytest.raises(QueueError, match="which waits for it"):
                waits()
    event.wait()
    x.close()
    with x.__class__("x86", (N,), tw.s32, None) as own, own.host():
        own.numpy()


def test_bad_submissions(queue: tw.Queue) -> None:
    x, closed = queue.buffer(ints()), queue.buffer(ints())
    closed.close()
    closed.close()
    other = tw.Queue("interpreter" if queue.device != "interpreter" else "x86")
    foreign = other.buffer(ints())
    shut = tw.Queue(queue.device)
    shut.close()
    failed = finished(fails(queue))
    matmul = tw.matmul("4x8:8x16")
    compiled = tw.compile(matmul, target=other.device)
    wrong: tuple[tuple[type[Exception], str, Callable[[], object]], ...] = (
        (QueueError, "a buffer of", lambda: queue.submit(step, (N,), N, foreign)),
        (QueueError, "closed", lambda: queue.submit(step, (N,), N, closed)),
        (QueueError, "closed", lambda: queue.fill(closed, 1)),
        (QueueError, "closed", closed.numpy),
        (QueueError, "queue is closed", lambda: shut.fill(x, 1)),
        (QueueError, "failed", lambda: queue.fill(x, 1, depends_on=[failed])),
        (ArgumentError, "does not divide", lambda: queue.submit(step, (9,), 9, x, local=(4,))),
        (ArgumentError, "1 arguments are given", lambda: queue.submit(step, (N,), N)),
        (ArgumentError, "3 arguments are given", lambda: queue.submit(step, (N,), N, x, x)),
        (ArgumentError, "without a range", lambda: queue.submit(step)),
        (ArgumentError, "by name", lambda: queue.submit(step, (N,), n=N, x=x)),
        (ArgumentError, "elements", lambda: queue.submit(step, (N,), N, ints().astype("f4"))),
        (ArgumentError, "to be read", lambda: queue.submit(step, (N,), N, x.read())),
        (
            ArgumentError,
            "discarded, and is read",
            lambda: queue.submit(scale_add, (N,), N, 1, x.discard(), ints()),
        ),
        (ArgumentError, "shares memory", lambda: queue.submit(scale_add, (8,), 8, 1, x[4:], x)),
        (ArgumentError, "to be read", lambda: queue.submit(scale_add, (N,), N, 1, x.read(), x)),
        (ArgumentError, "cannot be compiled", lambda: queue.submit(3, (N,), N, x)),
        (ArgumentError, "arguments in order", lambda: queue.submit(matmul, x)),
        (ArgumentError, "is compiled for", lambda: queue.submit(compiled, src=x)),
        (ArgumentError, "is copied to", lambda: queue.copy(x, ints()[:3])),
        (ArgumentError, "is no element", lambda: queue.fill(x, "three")),
        (ArgumentError, "is no element", lambda: queue.fill(x, 2**40)),
        (ArgumentError, "is no function", lambda: queue.host_task(x)),
        (ArgumentError, "is no event", lambda: queue.fill(x, 1, depends_on=[3])),
        (ArgumentError, "is no event", lambda: queue.fill(x, 1, depends_on=failed)),
        (ArgumentError, "is no event", lambda: tw.wait(3)),
        (ArgumentError, "host access", lambda: x.host("w")),
        (ArgumentError, "has no part", lambda: x[N + 1]),
        (ArgumentError, "a mask", lambda: x[ints() > 3]),
        (ArgumentError, "no array, and no shape", queue.buffer),
        (ArgumentError, "and a shape", lambda: queue.buffer(ints(), shape=3)),
        (ArgumentError, "shape of a buffer", lambda: queue.buffer(shape=(-1,), dtype="f32")),
        (UnsupportedError, "element type", lambda: queue.buffer(shape=(3,), dtype="f31")),
        (ArgumentError, "is not an array", lambda: queue.buffer("text")),
        (UnsupportedError, "no target", lambda: tw.Queue("z80")),
        (ArgumentError, "threads is", lambda: tw.Queue("x86", threads=0)),
    )
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()
    frozen = ints()
    frozen.flags.writeable = False
    buffer = queue.buffer(frozen)
    for call in (
        lambda: queue.fill(buffer, 1),
        lambda: queue.submit(step, (N,), N, buffer),
        lambda: queue.copy(buffer, x),
    ):
        with pytest.raises(ArgumentError, match="read-only"):
            call()
    assert (x.numpy() == ints()).all()
    other.close()


def test_times_of_an_event(queue: tw.Queue) -> None:
    gate = threading.Event()
    event = queue.host_task(lambda: gate.wait(20))
    with pytest.raises(QueueError, match="is not finished"):
        _ = event.profile
    gate.set()
    with tw.Queue("x86", profile=False) as plain:
        event = plain.fill(ints(), 1)
        event.wait()
        with pytest.raises(QueueError, match="no times"):
            _ = event.profile


def test_a_kernel_that_was_changed_on_disk(
    queue: tw.Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what Python loaded; the rest, `test_lang_refused` has."""
    name = f"changed_{queue.device.partition(':')[0]}"
    path = tmp_path / f"{name}.py"
    text = """
import tilewright as tw

@tw.kernel
def k(x: tw.array("s32", 1)):
    x[tw.global_id(0)] = 1
"""
    path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    k = importlib.import_module(name).k
    path.write_text(text.replace("= 1", "= 2 + 3"))
    x = queue.buffer(ints())
    queue.submit(k, (N,), x)
    assert (x.numpy() == 1).all()
