"""Queues that fuse without being told: what becomes one kernel, what does not, and that nobody can
tell by the results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import QUEUES, needs_opencl
from queue_kernels import add, checked, scale_add, step
from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError, QueueError
from tilewright.queues.decisions import Decisions
from tilewright.queues.fusing import Fusions

N = 64


@pytest.fixture(params=QUEUES)
def queue(request: pytest.FixtureRequest) -> Iterator[tw.Queue]:
    with tw.Queue(request.param, fusion="auto") as result:
        yield result


class Gate:
    """A host task that holds up what touches some memory, until it is opened."""

    def __init__(self, queue: tw.Queue, *memory: Any) -> None:
        self._opened = threading.Event()
        self.event = queue.host_task(lambda *_: self._opened.wait(30), *memory)

    def open(self) -> None:
        self._opened.set()


def ints(*values: int) -> np.ndarray:
    return np.resize(np.array(values or range(N), np.int32), N)


def joined(*events: tw.Event) -> bool:
    """Whether these are, and were run as, one kernel."""
    for event in events:
        event.wait()
    first = events[0]
    return first.name.startswith("the fusion of") and all(e.parts == (first,) for e in events[1:])


def fresh(queue: tw.Queue) -> tw.Buffer:
    return queue.buffer(shape=(N,), dtype="s32")


def test_a_chain_becomes_one(queue: tw.Queue) -> None:
    x, t, y = queue.buffer(ints()), queue.buffer(ints(1)), queue.buffer(ints(2))
    gate = Gate(queue, x)
    events = [
        queue.submit(add, (N,), N, x, ints(0), t),
        queue.submit(scale_add, (N,), N, 5, t, y),
        queue.submit(step, (N,), N, y),
    ]
    assert not any(event.done for event in events)
    gate.open()
    assert joined(*events)
    assert (t.numpy() == ints()).all()
    assert (y.numpy() == (5 * (10 + ints()) + 1) & 0xFFFF).all()
    (report,) = queue.fusion_reports
    assert report.fused
    assert report.kernels == ("add", "scale_add", "step")
    assert report.buffers["z"].promoted is None  # the caller has it
    assert len({event.profile for event in events}) == 1


def test_memory_that_nobody_has_is_not_written(queue: tw.Queue) -> None:
    x, t, y = queue.buffer(ints()), fresh(queue), fresh(queue)
    gate = Gate(queue, x)
    events = [
        queue.submit(add, (N,), N, x, ints(0), t),
        queue.submit(add, (N,), N, t, t.read(), y),
    ]
    del t
    gate.open()
    assert joined(*events)
    assert (y.numpy() == 4 * ints()).all()
    (report,) = queue.fusion_reports
    assert [name for name, buffer in report.buffers.items() if buffer.promoted] == ["z"]


def test_memory_that_somebody_has_in_another_way_is_written(queue: tw.Queue) -> None:
    x, whole, exposed, y = queue.buffer(ints()), fresh(queue), fresh(queue), fresh(queue)
    part = whole[8:]
    array = exposed[:] if queue.device == "nvidia" else np.asarray(exposed)
    gate = Gate(queue, x)
    events = [
        queue.submit(add, (N,), N, x, ints(0), whole),
        queue.submit(add, (N,), N, x, ints(0), exposed),
        queue.submit(add, (N,), N, whole, exposed, y),
    ]
    del whole, exposed
    gate.open()
    assert joined(*events)
    queue.wait()
    assert (part.numpy() == ints()[8:]).all()
    assert (np.asarray(array) == ints()).all()


def test_what_others_read_later_is_written(queue: tw.Queue) -> None:
    x, t, y, copy = queue.buffer(ints()), fresh(queue), fresh(queue), np.zeros(N, np.int32)
    gate = Gate(queue, x)
    first = queue.submit(add, (N,), N, x, ints(0), t)
    second = queue.submit(add, (N,), N, t, ints(0), y)
    queue.copy(copy, t)
    del t
    gate.open()
    assert joined(first, second)
    queue.wait()
    assert (copy == ints()).all()


def test_results_of_ops(queue: tw.Queue) -> None:
    x = queue.buffer(ints().astype(np.float32).reshape(8, 8) - 30)
    gate = Gate(queue, x)
    first = queue.submit(tw.elementwise("8x8", "relu"), src=x)
    second = queue.submit(tw.elementwise("8x8:8x8", "add"), src0=first.results["dst"], src1=x)
    values = second.results["dst"]
    seen: list[tw.Event] = []
    second.add_callback(seen.append)
    gate.open()
    tw.wait([first, second])
    assert second.done
    assert seen == [second]
    x_now = x.numpy()
    assert (first.results["dst"].numpy() == np.maximum(x_now, 0)).all()
    assert (values.numpy() == np.maximum(x_now, 0) + x_now).all()
    (report,) = queue.fusion_reports
    assert report.fused, str(report)
    after = queue.host_task(lambda: None, depends_on=[second])
    after.wait()
    assert after.profile.start >= second.profile.end


def test_results_that_nobody_has(queue: tw.Queue) -> None:
    x = queue.buffer(ints().astype(np.float32).reshape(8, 8) - 30)
    gate, values = Gate(queue, x), x
    for function in ("relu", "abs", "square"):
        values = queue.submit(tw.elementwise("8x8", function), src=values).results["dst"]
    gate.open()
    assert (values.numpy() == np.maximum(x.numpy(), 0) ** 2).all()
    (report,) = queue.fusion_reports
    assert sum(buffer.promoted is not None for buffer in report.buffers.values()) == 2


def test_a_kernel_behind_nothing_runs_at_once(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    for _ in range(3):
        queue.submit(step, (N,), N, x).wait()
    assert queue.fusion_reports == ()


@pytest.mark.parametrize("device", ["x86", pytest.param("spirv", marks=needs_opencl)])
def test_no_kernel_waits_for_what_it_does_not_need(device: str) -> None:
    with tw.Queue(device, fusion="auto") as queue:
        waits_for_its_own(queue)


def waits_for_its_own(queue: tw.Queue) -> None:
    x, y = queue.buffer(ints()), queue.buffer(ints())
    first, second = Gate(queue, x), Gate(queue, y)
    event = queue.submit(step, (N,), N, x)
    later = queue.submit(scale_add, (N,), N, 2, x, y)
    independent = queue.submit(step, (N,), N, queue.buffer(ints()))
    first.open()
    event.wait()
    assert not later.done
    second.open()
    later.wait()
    independent.wait()
    assert (y.numpy() == (2 * ints() + 5 * ints() + 1) & 0xFFFF).all()


def test_what_is_no_kernel_stands_between(queue: tw.Queue) -> None:
    x, y = queue.buffer(ints()), fresh(queue)
    gate = Gate(queue, x)
    first = queue.submit(step, (N,), N, x)
    queue.copy(y, x)
    second = queue.submit(step, (N,), N, x)
    gate.open()
    second.wait()
    assert first.profile.end <= second.profile.start
    assert (y.numpy() == 5 * ints() + 1).all()
    assert queue.fusion_reports == ()


def test_kernels_that_do_not_go_together(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    gate = Gate(queue, x)
    first = queue.submit(step, (N,), N, x, local=(8,))
    second = queue.submit(step, (N,), N, x, local=(32,))
    gate.open()
    assert not joined(first, second)
    (report,) = queue.fusion_reports
    assert not report.fused
    assert "workgroups of 8 and of 32" in report.reason
    assert (x.numpy() == 5 * (5 * ints() + 1) + 1).all()


def test_two_chains_that_take_turns() -> None:
    with tw.Queue("x86", fusion="auto") as queue:
        x, y = queue.buffer(ints()), queue.buffer(ints())
        gate = Gate(queue, x, y)
        events = [queue.submit(step, (N,), N, buffer) for buffer in (x, y, x, y)]
        both = queue.submit(scale_add, (N,), N, 1, x, y)
        gate.open()
        both.wait()
        assert joined(events[0], events[2])
        assert joined(events[1], events[3])
        assert not joined(events[1], both)  # it comes after the other chain, too
        assert (y.numpy() == 2 * (5 * (5 * ints() + 1) + 1)).all()


def test_what_would_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.queues.decisions._COMMAND", -1.0)
    with tw.Queue("x86", fusion="auto") as queue:
        x = queue.buffer(ints())
        gate = Gate(queue, x)
        first, second = (queue.submit(step, (N,), N, x) for _ in range(2))
        gate.open()
        assert not joined(first, second)
        (report,) = queue.fusion_reports
        assert "longer, as predicted" in report.reason


def test_one_contraction_in_each_kernel() -> None:
    rng = np.random.default_rng(0)
    product = tw.matmul("16x16:16x16")
    weights = rng.random((16, 16), np.float32)
    with tw.Queue("x86", fusion="auto") as queue:
        x = queue.buffer(rng.random((16, 16), np.float32))
        gate, values = Gate(queue, x), x
        for _ in range(2):
            values = queue.submit(product, src=values, weights=weights).results["dst"]
            values = queue.submit(tw.elementwise("16x16", "relu"), src=values).results["dst"]
        gate.open()
        expected = x.numpy() @ weights @ weights
        np.testing.assert_allclose(values.numpy(), expected, rtol=1e-5)
        # Two decisions: the caller has the last result, and not the one before.
        assert [report.fused for report in queue.fusion_reports] == [True, True]
        assert all(len(report.kernels) == 2 for report in queue.fusion_reports)


def test_weights_of_a_fused_kernel_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[str] = []
    pack = CompiledKernel.pack

    def noted(self: CompiledKernel, name: str, array: Any) -> Any:
        packed.append(name)
        return pack(self, name, array)

    monkeypatch.setattr(CompiledKernel, "pack", noted)
    rng = np.random.default_rng(0)
    conv = tw.convolution("mb1ic16ih8oc64oh8kh3ph1", src="nhwc", dst="nhwc")
    relu = tw.elementwise("1x64x8x8", "relu", src="nhwc", dst="nhwc")
    x = np.moveaxis(rng.random((1, 8, 8, 16), np.float32) - 0.5, 3, 1)
    with tw.Queue("x86", fusion="auto") as queue:
        weights = queue.buffer(shape=(64, 16, 3, 3), dtype="f32")
        for turn in (1.0, 1.0, 2.0):
            if not packed or turn == 2.0:
                queue.copy(weights, turn * np.ones((64, 16, 3, 3), np.float32))
            source = queue.buffer(x)
            gate = Gate(queue, source)
            values = queue.submit(conv, src=source, weights=weights).results["dst"]
            values = queue.submit(relu, src=values).results["dst"]
            gate.open()
            around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))).sum(1)[0]
            sums = np.lib.stride_tricks.sliding_window_view(around, (3, 3)).sum((2, 3))
            expected = np.broadcast_to(np.maximum(turn * sums, 0), (64, 8, 8))
            np.testing.assert_allclose(values.numpy()[0], expected, rtol=1e-4, atol=1e-4)
        (report,) = queue.fusion_reports
        assert report.fused
    assert len(packed) == 2


def test_what_comes_again_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[object] = []
    anew = Decisions._decided_anew

    def noted(self: Decisions, *arguments: Any) -> Any:
        decided.append(arguments)
        return anew(self, *arguments)

    monkeypatch.setattr(Decisions, "_decided_anew", noted)
    with tw.Queue("x86", fusion="auto") as queue:
        for turn in range(4):
            x, y = queue.buffer(ints()), fresh(queue)
            gate = Gate(queue, x)
            first = queue.submit(add, (N,), N, x, ints(0), y)
            second = queue.submit(scale_add, (N,), N, turn, x, y)
            gate.open()
            assert joined(first, second)
            assert (y.numpy() == turn * ints() + ints()).all()
    assert len(decided) == 4  # an integer may be a size
    assert len(queue.fusion_reports) == 4


def test_a_failed_command_fails_those_that_need_it(queue: tw.Queue) -> None:
    x, y = queue.buffer(ints()), queue.buffer(ints())
    opened = threading.Event()

    def fails(*arrays: np.ndarray) -> None:
        opened.wait(30)
        raise KeyError("no")

    failed = queue.host_task(fails, x)
    first = queue.submit(step, (N,), N, x)
    second = queue.submit(scale_add, (N,), N, 1, x, y)
    opened.set()
    for event in (first, second):
        with pytest.raises(QueueError, match="host task fails"):
            event.wait()
    with pytest.raises(KeyError):
        failed.wait()
    queue.fill(x, 2)
    assert (x.numpy() == 2).all()


def test_a_fused_kernel_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Fusions.plan

    def failing(self: Fusions, *arguments: Any) -> Any:
        def work(threads: int) -> None:
            raise KeyError("no")

        return plan(self, *arguments)._replace(work=work)

    monkeypatch.setattr(Fusions, "plan", failing)
    with tw.Queue("x86", fusion="auto") as queue:
        x = queue.buffer(ints())
        gate = Gate(queue, x)
        events = [queue.submit(step, (N,), N, x) for _ in range(2)]
        gate.open()
        for event in events:
            with pytest.raises(KeyError) as raised:
                event.wait()
            assert "the fusion of step, step" in str(raised.value.__notes__)
        queue.fill(x, 0)
        assert (x.numpy() == 0).all()


def test_a_decision_that_fails_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any) -> Any:
        raise AssertionError("a mistake of ours")

    monkeypatch.setattr("tilewright.queues.decisions._together", failing)
    queue = tw.Queue("x86", fusion="auto")
    x = queue.buffer(ints())
    gate = Gate(queue, x)
    events = [queue.submit(step, (N,), N, x) for _ in range(2)]
    gate.open()
    for event in events:
        event.wait()
    assert (x.numpy() == 5 * (5 * ints() + 1) + 1).all()
    with pytest.raises(AssertionError, match="a mistake of ours"):
        queue.close()


def test_kernels_that_are_not_fused_by_anybody(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    gate = Gate(queue, x)
    first = queue.submit(checked, (N,), N, 9999, x)
    second = queue.submit(step, (N,), N, x)
    gate.open()
    second.wait()
    first.wait()
    assert (x.numpy() == 5 * (ints() + 1) + 1).all()


def test_fusion_mode_on_such_a_queue(queue: tw.Queue) -> None:
    x, t, y = queue.buffer(ints()), fresh(queue), queue.buffer(ints(0))
    gate = Gate(queue, x)
    before = queue.submit(step, (N,), N, x)
    with queue.fusion(promote={t: "private"}) as fusion:
        queue.submit(add, (N,), N, x, ints(0), t)
        queue.submit(scale_add, (N,), N, 1, t, y)
    after = queue.submit(step, (N,), N, y)
    gate.open()
    after.wait()
    before.wait()
    assert fusion.report.fused
    assert (y.numpy() == 5 * (5 * ints() + 1) + 1).all()


def test_two_queues() -> None:
    with tw.Queue("x86", fusion="auto") as first, tw.Queue("interpreter", fusion="auto") as second:
        array, y = ints(), ints(0)
        gate = Gate(first, array)
        events: list[tw.Event] = []
        for queue in (first, second, first):
            events += [queue.submit(step, (N,), N, array) for _ in range(2)]
        last = second.submit(add, (N,), N, array, ints(0), y)
        gate.open()
        last.wait()
        expected = ints()
        for _ in range(6):
            expected = (5 * expected + 1) & 0xFFFF
        assert (y == expected).all()
        assert all(joined(*events[n : n + 2]) for n in (0, 2, 4))


@pytest.mark.parametrize(
    "look", [tw.Buffer.numpy, np.asarray, lambda b: b.host("read").__enter__()]
)
def test_the_host_looks(queue: tw.Queue, look: Callable[[tw.Buffer], np.ndarray]) -> None:
    x, y = queue.buffer(ints()), fresh(queue)
    gate = Gate(queue, x)
    queue.submit(step, (N,), N, x)
    queue.submit(add, (N,), N, x, ints(0), y)
    threading.Timer(0.01, gate.open).start()
    assert (look(y) == 5 * ints() + 1).all()


def test_another_word() -> None:
    with pytest.raises(ArgumentError, match="fusion='all'"):
        tw.Queue("x86", fusion="all")
