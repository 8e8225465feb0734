"""What comes again is planned once, though its results are new each time: calls, and batches that
fuse without being told."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import dtype
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
    values = [each.numpy() for each in (*results, turned.results["dst"], held)]
    for each, wanted in zip(values, (4, 16, 36, 12, -12), strict=True):
        assert (each == wanted).all()
    src.close()
    with pytest.raises(tw.QueueError, match="closed"):
        queue.submit(op, src=src, weights=weights)


DOUBLED = tw.parse_kernel(
    """kernel doubled(n: s64 in 1..10000, in x: f32[n], out y: f32[n]):
  for i in n:
    y[i] = x[i] + x[i]
"""
)


@pytest.mark.parametrize("device", ["x86", "interpreter"])
def test_batches_of_one_pattern(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch, Fusions, "_template")
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
            counts.append(len(made))
    # Another size is another pattern.
    assert counts[0] == counts[1] < counts[2] == counts[3] == counts[4]


@pytest.mark.parametrize("kind", ["f32", "u8", "bf16"])
def test_the_bytes_of_an_array(kind: str) -> None:
    whole = np.zeros((6, 5, 4), dtype(kind).numpy)
    for array in (whole, whole.T, whole[::2, ::-1], whole[3, 2, 1], whole[:0], whole[..., ::-3]):
        array = np.asarray(array)
        assert span_of(array) == describe(array).span
