"""A fusion that is submitted again, with other arguments in place of some."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tilewright as tw
from queue_kernels import Chain, N, after, ints, step
from tilewright.errors import FusionError, QueueError


def test_a_block_and_its_list_again(queue: tw.Queue) -> None:
    chain = Chain(queue)
    with queue.fusion(constants=True) as fusion:
        chain.submit()
        with pytest.raises(FusionError, match="has not ended"):
            _ = fusion.report
    assert fusion.report.fused
    other = queue.buffer(ints(2))
    again = fusion.submit(replace=[(chain.y, other)])
    again.wait()
    for result in (chain.y, other):
        assert (result.numpy() == after()).all()
    assert (chain.t.numpy() == ints()).all()


def test_a_list_again_and_again(queue: tw.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """On memory that it had before nothing is held, and its place is kept."""
    chain = Chain(queue)
    with queue.fusion(constants=True, promote={chain.t: "private"}) as fusion:
        chain.submit()
    others = [queue.buffer(ints(2)) for _ in range(2)]
    for other in others:
        fusion.submit(replace=[(chain.y, other)]).wait()
    with queue.fusion(), pytest.raises(FusionError, match="inside of another"):
        fusion.submit(replace=[(chain.y, others[0])])
    monkeypatch.setattr("tilewright.queues.fusing.Fusions.plan", None)
    gate = threading.Event()
    queue.host_task(lambda values: (gate.wait(20), values.fill(1)), others[0])
    again = [fusion.submit(replace=[(chain.y, other)]) for other in others]
    behind = queue.submit(step, (N,), N, others[0])
    assert again[0].name == "the fusion of add, scale_add" and not again[0].done
    assert queue.fusion_report is fusion.report and "test_fusion_again" in again[0].place
    gate.set()
    behind.wait()
    assert (others[0].numpy() == 5 * (5 + ints()) + 1).all()
    assert (others[1].numpy() == 5 * after() + ints()).all()
    others[1].close()
    with pytest.raises(QueueError, match="is closed"):
        fusion.submit(replace=[(chain.y, others[1])])
    queue.submit(step, (N,), N, others[0]).wait()


def test_results_of_a_list_again(queue: tw.Queue) -> None:
    """A kernel takes what the one before it gives this time."""
    one, two = (queue.buffer(np.full((8, 16), k, np.float32)) for k in (1, 2))
    relu, triple = tw.elementwise("8x16", "relu"), tw.elementwise("8x16", "linear", alpha=3.0)
    for dead in (False, True):
        promote: dict[tw.Buffer, str] = {}
        with queue.fusion(promote=promote) as fusion:
            first = queue.submit(relu, src=one).results["dst"]
            last = queue.submit(triple, src=first).results["dst"]
            if dead:
                promote[first] = "any"
        again = fusion.submit(replace=[(one, two)])
        assert (last.numpy() == 3).all() and (again.results["dst"].numpy() == 6).all()
        assert fusion.report.fused and first.has_memory != dead
        assert dead or (first.numpy() == 1).all()


def test_a_list_again_that_was_let_go(queue: tw.Queue) -> None:
    """Kernels that were submitted behind that belong to it."""
    one, two = (queue.buffer(np.full((8, 16), k, np.float32)) for k in (1, 2))
    triple = tw.elementwise("8x16", "linear", alpha=3.0)
    first, second = (queue.buffer(shape=(8, 16), dtype="f32") for _ in range(2))
    with queue.fusion() as fusion:
        between = queue.submit(triple, src=one).results["dst"]
        assert (between.numpy() == 3).all()
        queue.submit(triple, src=between, dst=first)
    assert not fusion.report.fused and (first.numpy() == 9).all()
    fusion.submit(replace=[(one, two), (first, second)]).wait()
    assert (second.numpy() == 18).all() and (first.numpy() == 9).all()
    assert queue.fusion_report is not None and queue.fusion_report.fused
