"""What comes again is planned once, though its results are new each time: calls, and batches that
fuse without being told."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import dtype
from tilewright.errors import ArgumentError
from tilewright.queues import plans
from tilewright.queues.fusing import Fusions
from tilewright.runtime.arrays import describe, span_of


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[str]:
    """One entry for each call of a function of ``owner``."""
    calls: list[str] = []
    function: Callable[..., object] = getattr(owner, name)

    def call(*arguments: object, **options: object) -> object:
        calls.append(name)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_calls_with_new_results(queue: tw.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = counted(monkeypatch, plans, "plan_call")
    op, abs_ = tw.matmul("8x4:4x16"), tw.elementwise("8x16", "abs")
    src, weights = (queue.buffer(shape=shape, dtype="f32") for shape in ((8, 4), (4, 16)))
    results = []
    for value in (1.0, -2.0, 3.0):
        queue.fill(src, value)
        queue.fill(weights, value)
        results.append(queue.submit(op, src=src, weights=weights).results["dst"])
    queue.fill(weights, -1.0)
    last = queue.submit(op, src=src, weights=weights)
    turned = queue.submit(abs_, src=last.results["dst"])
    queue.start_fusion()
    held = queue.submit(op, src=src, weights=weights).results["dst"]
    queue.cancel_fusion()
    assert planned == ["plan_call"] * 2
    values = [buffer.numpy() for buffer in (*results, turned.results["dst"], held)]
    for array, wanted in zip(values, (4, 16, 36, 12, -12), strict=True):
        assert (array == wanted).all()
    src.close()
    with pytest.raises(tw.QueueError, match="closed"):
        queue.submit(op, src=src, weights=weights)


DOUBLED = tw.parse_kernel(
    """kernel doubled(n: s64 in 1..10000, in x: f32[n], out y: f32[n]):
  for i in n:
    y[i] = x[i] + x[i]
"""
)


TIMES = tw.parse_kernel(
    """kernel times(n: s64 in 1..10000, a: f32, in x: f32[n], out y: f32[n]):
  for i in n:
    y[i] = a * x[i]
"""
)


def test_calls_with_numbers_and_accessors(queue: tw.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """And on arrays that are read-only; another number is another call."""
    planned = counted(monkeypatch, plans, "plan_call")
    x, frozen = np.arange(32, dtype=np.float32), np.ones(32, np.float32)
    frozen.flags.writeable = False
    for array in (queue.buffer(x), queue.buffer(frozen), queue.buffer(x).read()):
        for a in (2.0, 2.0, -0.0, 0.0, -0.0):
            y = queue.submit(TIMES, a=a, x=array).results["y"].numpy()
            values = array.buffer if isinstance(array, tuple) else array
            np.testing.assert_array_equal(y, np.float32(a) * values.numpy())
            np.testing.assert_array_equal(np.signbit(y), np.signbit(np.float32(a) * np.ones(32)))
    assert len(planned) == 9
    with pytest.raises(ArgumentError, match="discarded"):
        queue.submit(TIMES, a=2.0, x=queue.buffer(x).discard())


@tw.kernel
def doubled_where_one(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    assert x[i] == 1.0
    y[i] = x[i] + x[i]


def gone(memory: list[weakref.ref[Any]]) -> bool:
    """Whether nobody holds it; workers, who drop what they held after the host goes on, may."""
    for _ in range(300):
        gc.collect()
        if all(reference() is None for reference in memory):
            return True
        time.sleep(0.01)
    return False


def test_plans_hold_no_buffers(queue: tw.Queue) -> None:
    """Neither of calls that get memory later, nor of kernels with assertions."""
    x = queue.buffer(np.ones(64, np.float32))
    late, y = (queue.buffer(shape=(64,), dtype="f32") for _ in range(2))
    queue.start_fusion()
    queue.submit(DOUBLED, x=x, y=late)
    queue.cancel_fusion()
    queue.submit(doubled_where_one, (64,), x, y)
    assert (late.numpy() == 2).all() and (y.numpy() == 2).all()
    memory = [weakref.ref(y.array), weakref.ref(late)]
    queue.start_fusion()
    queue.cancel_fusion()
    del y, late
    queue.wait()
    assert gone(memory)
    with pytest.raises(tw.TilewrightError):
        queue.submit(doubled_where_one, (64,), queue.buffer(np.zeros(64, np.float32)), x)
        queue.wait()


@tw.kernel
def doubled_1d(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[i] = x[i] + x[i]


@pytest.mark.parametrize("late", [False, True])
def test_plans_of_lists_hold_no_memory(queue: tw.Queue, late: bool) -> None:
    """Neither arrays and buffers that they took, nor results."""
    x = np.ones(64, np.float32)
    buffers = [queue.buffer(shape=(64,), dtype="f32") for _ in range(3)]
    if not late:
        queue.fill(buffers[0], 0.0)
    with queue.fusion() as fusion:
        queue.submit(doubled_1d, (64,), x, buffers[0])
        queue.submit(doubled_1d, (64,), buffers[0], buffers[1])
    again = fusion.submit()
    again.wait()
    with queue.fusion() as results:
        result = queue.submit(DOUBLED, x=buffers[1]).results["y"]
        queue.submit(doubled_1d, (64,), result, buffers[2])
    queue.submit(doubled_1d, (64,), result, buffers[1])
    assert (buffers[1].numpy() == 16).all() and (buffers[2].numpy() == 16).all()
    memory = [weakref.ref(buffer) for buffer in (x, result, *buffers)]
    queue.start_fusion()
    queue.cancel_fusion()
    queue.wait()
    del x, result, buffers, fusion, again, results
    assert gone(memory)


def test_what_stands_for_a_buffer_in_keys(queue: tw.Queue) -> None:
    """No number does, which the memory of a buffer that is gone would be taken for."""
    x, y = (queue.buffer(np.ones(8, np.float32)) for _ in range(2))
    queue.submit(doubled_where_one, (8,), x, y)
    with pytest.raises(ArgumentError):
        queue.submit(doubled_where_one, (8,), x.identity, y)


@pytest.mark.parametrize("constants", [False, True])
def test_lists_with_new_results(
    queue: tw.Queue, constants: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their fused code is looked for once, for every number that becomes part of it."""
    result = counted(monkeypatch, Fusions, "_template")
    x = queue.buffer(np.arange(32, dtype=np.float32))
    for a in (2.0, 2.0, 3.0, 3.0):
        with queue.fusion(constants=constants, require=True):
            between = queue.submit(TIMES, a=a, x=x).results["y"]
            y = queue.submit(DOUBLED, x=between).results["y"]
        np.testing.assert_array_equal(y.numpy(), 2 * a * np.arange(32))
    assert len(result) == (2 if constants else 1)
    with queue.fusion() as fusion:
        queue.submit(TIMES, a=2.0, x=x, y=y)
        queue.submit(DOUBLED, x=y, y=x[:])
    assert not fusion.report.fused  # one list of this form, whose memory overlaps


@pytest.mark.parametrize("device", ["x86", "interpreter"])
def test_batches_of_one_pattern(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = counted(monkeypatch, Fusions, "_template")
    counts = []
    with tw.Queue(device, fusion="auto") as queue:
        for size in (32, 32, 48, 32, 48):
            x = queue.buffer(np.ones(size, np.float32))
            opened = threading.Event()
            queue.host_task(lambda _, opened=opened: opened.wait(30), x)
            t = queue.buffer(shape=(size,), dtype="f32")
            y = queue.buffer(shape=(size,), dtype="f32")
            events = [
                queue.submit(DOUBLED, x=x, y=t),
                queue.submit(DOUBLED, x=t, y=y),
            ]
            del t
            opened.set()
            assert (y.numpy() == 4).all()
            assert events[0].name.startswith("the fusion of")
            counts.append(len(result))
    # Another size is another pattern.
    assert counts[0] == counts[1] < counts[2] == counts[3] == counts[4]


@pytest.mark.parametrize("kind", ["f32", "u8", "bf16"])
def test_the_bytes_of_an_array(kind: str) -> None:
    whole = np.zeros((6, 5, 4), dtype(kind).numpy)
    for array in (whole, whole.T, whole[::2, ::-1], whole[3, 2, 1], whole[:0], whole[..., ::-3]):
        array = np.asarray(array)
        assert span_of(array) == describe(array).span
