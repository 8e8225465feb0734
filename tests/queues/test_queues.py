"""Queues, buffers and events: what runs, in which order, and what the host sees of it."""

from __future__ import annotations

import gc
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from graphs import graph
from needs import QUEUES
from queue_kernels import add, scale_add, step
from tilewright.graph.graph import Graph
from tilewright.queues import State
from tilewright.queues.scheduler import SCHEDULER
from tilewright.tensor.contractions import matmul

N = 64


@pytest.fixture(params=QUEUES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(device: str) -> Iterator[tw.Queue]:
    with tw.Queue(device) as result:
        yield result


def ints(*values: int) -> np.ndarray:
    return np.resize(np.array(values or range(N), np.int32), N)


class Gate:
    """A host task that runs until it is opened: what comes after it does not run before."""

    def __init__(self, queue: tw.Queue, *arguments: object) -> None:
        self._opened = threading.Event()
        self.event = queue.host_task(lambda *_: self._opened.wait(20), *arguments)

    def open(self) -> None:
        self._opened.set()


def test_a_chain(queue: tw.Queue) -> None:
    x, y, z = queue.buffer(ints()), queue.buffer(shape=(N,), dtype="s32"), queue.buffer(ints(1))
    queue.fill(y, 7)
    queue.submit(scale_add, (N,), N, 2, x, y, local=(16,))
    event = queue.submit(add, (N,), N, x, y, z)
    event.wait()
    assert event.done
    expected = ints() + 14
    assert (y.numpy() == expected).all()
    assert (z.numpy() == ints() + 3 * expected).all()


def test_submit_does_not_wait(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    gate = Gate(queue, x)
    event = queue.submit(step, (N,), N, x)
    assert not event.done
    assert event.state is State.WAITING
    gate.open()
    event.wait()
    assert (x.numpy() == 5 * ints() + 1).all()


def test_independent_commands_overtake() -> None:
    with tw.Queue("x86", threads=2) as queue:
        x, y = queue.buffer(ints()), queue.buffer(ints())
        gate = Gate(queue, x)
        late = queue.submit(step, (N,), N, x)
        if SCHEDULER._workers > 1:
            queue.submit(step, (N,), N, y).wait()
            assert not late.done
        gate.open()
        late.wait()
        assert (x.numpy() == 5 * ints() + 1).all()


def test_in_order() -> None:
    with tw.Queue("x86", in_order=True) as queue:
        x, y = queue.buffer(ints()), queue.buffer(ints())
        gate = Gate(queue, x)
        event = queue.submit(step, (N,), N, y)
        time.sleep(0.01)
        assert event.state is State.WAITING
        gate.open()


def test_the_interpreter_is_in_order() -> None:
    with tw.Queue("interpreter") as queue:
        assert queue.in_order


def test_readers_do_not_wait_for_each_other() -> None:
    with tw.Queue("x86") as queue:
        x = queue.buffer(ints())
        gate = Gate(queue, x.read())
        reading = queue.host_task(lambda values: None, x.read())
        writing = queue.submit(step, (N,), N, x)
        assert reading.state is not State.WAITING
        assert writing.state is State.WAITING
        gate.open()


def test_two_queues_by_buffer_and_by_event(device: str) -> None:
    with tw.Queue(device) as first, tw.Queue(device) as second:
        x, y = first.buffer(ints()), second.buffer(ints(0))
        gate = Gate(first, x)
        by_memory = second.submit(scale_add, (N,), N, 1, x, y)
        z = second.buffer(ints())
        by_event = second.submit(step, (N,), N, z, depends_on=[gate.event])
        assert by_memory.state is by_event.state is State.WAITING
        gate.open()
        tw.wait([by_memory, by_event])
        assert (y.numpy() == ints()).all()
        assert (z.numpy() == 5 * ints() + 1).all()


def test_copies_across_devices() -> None:
    with tw.Queue("x86") as first, tw.Queue("interpreter") as second:
        x, y = first.buffer(ints()), second.buffer(shape=(N,), dtype="s32")
        first.submit(step, (N,), N, x)
        first.copy(y, x)
        second.submit(step, (N,), N, y)
        assert (y.numpy() == 5 * (5 * ints() + 1) + 1).all()


def test_arrays_that_overlap_depend_on_each_other(queue: tw.Queue) -> None:
    whole = np.resize(ints(), 2 * N)
    gate = Gate(queue, whole[N // 2 : N])
    behind = queue.submit(step, (N,), N, whole[:N])
    beside = queue.submit(step, (N,), N, whole[N:])
    assert behind.state is State.WAITING
    if not queue.in_order:
        assert beside.state is not State.WAITING
    part = queue.buffer(whole)[N // 4 : N // 4 + 8]
    event = queue.fill(part, 3)
    assert event.state is State.WAITING
    gate.open()
    queue.wait()
    expected = 5 * np.resize(ints(), 2 * N) + 1
    expected[N // 4 : N // 4 + 8] = 3
    assert (whole == expected).all()


def test_a_buffer_is_the_memory_of_its_array(queue: tw.Queue) -> None:
    array = ints()
    with queue.buffer(array) as x:
        queue.submit(step, (N,), N, x)
    assert (array == 5 * ints() + 1).all()


def test_parts_of_buffers(queue: tw.Queue) -> None:
    x = queue.buffer(np.zeros((4, N), np.int32))
    queue.fill(x, 1)
    queue.submit(scale_add, (N,), N, 2, x[0], x[2])
    assert (x.numpy()[:, 0] == [1, 1, 3, 1]).all()
    assert len(x) == 4
    assert x[1:3].shape == (2, N)


def test_results_of_compiled_kernels(queue: tw.Queue) -> None:
    clip = tw.parse_kernel("""
kernel clip(in x: f32[4, 8], out y: f32[4, 8]):
  compute clip(i in 4, j in 8):
    y[i, j] = min(max(x[i, j], 0.0), 6.0)
""")
    x = queue.buffer(np.full((4, 8), 9, np.float32))
    event = queue.submit(clip, x=x)
    assert (event.results["y"].numpy() == 6).all()
    compiled = tw.compile(clip, target=queue.device)
    y = queue.buffer(shape=(4, 8), dtype="f32")
    assert queue.submit(compiled, x=event.results["y"], y=y).results == {}
    assert (y.numpy() == 6).all()


def test_ops_and_packed_weights(queue: tw.Queue) -> None:
    op = tw.matmul("4x8:8x16", epilogue=[tw.relu()])
    kernel = tw.compile(op, target=queue.device)
    weights = np.arange(128, dtype=np.float32).reshape(8, 16)
    src = queue.buffer(np.ones((4, 8), np.float32))
    packed = kernel.pack("weights", weights)
    first = queue.submit(kernel, src=src, weights=packed)
    assert (first.results["dst"].numpy() == weights.sum(0)).all()


@pytest.mark.parametrize("layers", [1, 20])
def test_graphs(queue: tw.Queue, layers: int) -> None:
    """Those of many computes are programs of several kernels, and not fused; weights that they take
    packed are packed again when they were written."""
    x, w = np.ones((4, 8), np.float32), queue.buffer(np.full((8, 8), 0.125, np.float32))

    def build(a: Any, b: Any) -> Any:
        for _ in range(layers):
            a = matmul(a, b)
        return a

    program = Graph(graph(build, a=x, b=x[:1].repeat(8, 0)), constant=("b",))
    for expected in (1.0, 2.0**layers):
        with queue.fusion() as fusion:
            first = queue.submit(program, a=x, b=w).results["y"]
            last = queue.submit(tw.elementwise("4x8", "relu"), src=first).results["dst"]
        assert (last.numpy() == expected).all()
        assert fusion.report.fused == (layers == 1)
        assert layers == 1 or "a graph is several kernels" in fusion.report.reason
        queue.fill(w, 0.25)


def test_host_tasks_get_arrays(queue: tw.Queue) -> None:
    x, y = queue.buffer(ints()), queue.buffer(ints(0))
    seen = []

    def task(values: np.ndarray, result: np.ndarray, number: int) -> None:
        seen.append((values.flags.writeable, number))
        result += values * number

    queue.submit(step, (N,), N, x)
    queue.host_task(task, x.read(), y, 3)
    queue.submit(step, (N,), N, y)
    assert (y.numpy() == 5 * (3 * (5 * ints() + 1)) + 1).all()
    assert seen == [(False, 3)]


def test_host_access(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    queue.submit(step, (N,), N, x)
    with x.host("write") as values:
        assert (values == 5 * ints() + 1).all()
        event = queue.submit(step, (N,), N, x)
        time.sleep(0.005)
        assert event.state is State.WAITING
        values[:] = 2
    event.wait()
    with x.host() as values:
        assert (values == 11).all()
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1


def test_arrays_of_buffers(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    queue.submit(step, (N,), N, x)
    expected = 5 * ints() + 1
    assert (np.asarray(x) == expected).all()
    assert (np.from_dlpack(x) == expected).all()
    assert (np.array(x, np.float64) == expected).all()
    assert np.shares_memory(np.asarray(x), np.from_dlpack(x))
    assert not np.shares_memory(np.asarray(x), x.numpy())


def test_torch_tensors(queue: tw.Queue) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(N, dtype=torch.int32)
    x = queue.buffer(tensor)
    queue.submit(step, (N,), N, x)
    queue.submit(step, (N,), N, tensor)
    queue.wait()
    assert (tensor.numpy() == 5 * (5 * ints() + 1) + 1).all()
    assert (torch.from_dlpack(x) == tensor).all()


def test_callbacks_and_profiles(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    called: list[tw.Event] = []
    gate = Gate(queue, x)
    event = queue.submit(step, (N,), N, x)
    event.add_callback(called.append)
    gate.open()
    event.wait()
    event.add_callback(called.append)
    queue.wait()
    for _ in range(100):
        if len(called) == 2:
            break
        time.sleep(0.01)
    assert called == [event, event]
    assert 0 < event.profile.submit < event.profile.start < event.profile.end
    assert gate.event.profile.end <= event.profile.start


def test_two_threads_submit(queue: tw.Queue) -> None:
    x = queue.buffer(ints(0))
    counts = [queue.buffer(ints(0)) for _ in range(2)]

    def submit(own: tw.Buffer) -> None:
        for _ in range(20):
            queue.submit(scale_add, (N,), N, 1, ints(1), own)
            queue.submit(scale_add, (N,), N, 1, ints(1), x)

    threads = [threading.Thread(target=submit, args=(count,)) for count in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (x.numpy() == 40).all()
    assert all((count.numpy() == 20).all() for count in counts)


def test_arguments_are_kept_and_then_freed(queue: tw.Queue) -> None:
    array = ints()
    reference = weakref.ref(array)
    x = queue.buffer(ints(0))
    gate = Gate(queue, x)
    queue.submit(scale_add, (N,), N, 1, array, x)
    temporary = queue.buffer(ints())
    dropped = weakref.ref(temporary)
    queue.submit(scale_add, (N,), N, 1, temporary, x)
    del array, temporary
    gc.collect()
    assert reference() is not None
    assert dropped() is not None
    gate.open()
    assert (x.numpy() == 2 * ints()).all()
    queue.wait()
    for _ in range(100):
        gc.collect()
        if reference() is None and dropped() is None:
            break
        time.sleep(0.01)
    assert reference() is None
    assert dropped() is None


def test_an_empty_range(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    queue.submit(step, (0,), 0, x).wait()
    assert (x.numpy() == ints()).all()


@tw.kernel
def signed(a: tw.f32, x: tw.array("f32", 1)):
    i = tw.global_id(0)
    x[i] = a * x[i]


def test_submissions_that_look_alike(queue: tw.Queue) -> None:
    """Numbers that are equal, and not the same."""
    x = queue.buffer(np.ones(N, np.float32))
    for zero in (0.0, -0.0, 0.0, np.float32(-0.0), np.float32(0.0)):
        queue.fill(x, 1.0)
        queue.submit(signed, (N,), zero, x)
        assert (np.signbit(x.numpy()) == np.signbit(zero)).all()


def test_what_is_outside_of_a_kernel_changes(queue: tw.Queue) -> None:
    """A kernel that was planned for a submission is not taken again."""
    scope = {"tw": tw, "FACTOR": 2}
    text = textwrap.dedent("""
        @tw.kernel
        def scaled(x: tw.array("s32", 1)):
            i = tw.global_id(0)
            x[i] = x[i] * FACTOR
    """)
    import linecache

    linecache.cache["<scaled>"] = (len(text), None, text.splitlines(keepends=True), "<scaled>")
    exec(compile(text, "<scaled>", "exec"), scope)
    x = queue.buffer(ints())
    queue.submit(scope["scaled"], (N,), x)
    queue.submit(scope["scaled"], (N,), x)
    scope["FACTOR"] = 3
    with pytest.raises(tw.TilewrightError, match="FACTOR was 2"):
        queue.submit(scope["scaled"], (N,), x)
    assert (x.numpy() == 4 * ints()).all()
