"""Kernels between the start of a fusion and its end: one kernel, or one after the other."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import QUEUES
from queue_kernels import Chain, N, add, after, checked, ints, scale_add, step
from tilewright.errors import ArgumentError, FusionError, QueueError, TilewrightError
from tilewright.queues import State
from tilewright.queues.fusing import Fusions
from tilewright.queues.scheduler import SCHEDULER


def test_two_kernels_become_one(queue: tw.Queue) -> None:
    chain = Chain(queue)
    queue.start_fusion()
    assert queue.fusing
    event = chain.submit()
    assert event.state is State.HELD
    assert queue.complete_fusion(promote={chain.t: "private"}, constants=True) is event
    assert not queue.fusing
    event.wait()
    report = queue.fusion_report
    assert report is not None and report.fused, str(report)
    assert report.kernels == ("add", "scale_add")
    assert [name for name, buffer in report.buffers.items() if buffer.promoted] == ["z"]
    assert (chain.y.numpy() == after()).all()
    assert (chain.t.numpy() == 1).all()  # nothing was written to memory
    assert event.profile.submit <= event.profile.start <= event.profile.end


def test_fused_kernels_keep_their_place(queue: tw.Queue) -> None:
    """They come after what their arguments ask for, and before what comes later."""
    chain, gate = Chain(queue), threading.Event()
    x_before = queue.host_task(lambda values: (gate.wait(20), values.fill(7)), chain.x)
    with queue.fusion() as fusion:
        chain.submit()
    behind = queue.submit(step, (N,), N, chain.y)
    assert not fusion.event.done
    gate.set()
    behind.wait()
    assert x_before.done
    assert fusion.report.fused
    assert (chain.y.numpy() == (5 * (5 * 2 + 7) + 1)).all()


def look(buffer: tw.Buffer, mode: str) -> None:
    with buffer.host(mode):
        pass


ABORTS: dict[str, Callable[[Chain, tw.Event, tw.Queue], object]] = {
    "wait for the event": lambda chain, event, other: event.wait(),
    "ask for the event": lambda chain, event, other: event.done,
    "tw.wait": lambda chain, event, other: tw.wait([event]),
    "wait for the queue": lambda chain, event, other: chain.queue.wait(),
    "host access": lambda chain, event, other: chain.y.numpy(),
    "host access of an input": lambda chain, event, other: look(chain.x, "write"),
    "array": lambda chain, event, other: np.asarray(chain.t),
    "DLPack": lambda chain, event, other: np.from_dlpack(chain.y),
    "close of a buffer": lambda chain, event, other: chain.t.close(),
    "copy": lambda chain, event, other: chain.queue.copy(ints(), chain.y),
    "fill": lambda chain, event, other: chain.queue.fill(chain.x, 3),
    "host task": lambda chain, event, other: chain.queue.host_task(lambda t: None, chain.t),
    "other queue by buffer": lambda chain, event, other: other.copy(ints(), chain.y),
    "other queue by event": lambda chain, event, other: other.fill(ints(), 1, depends_on=[event]),
    "cancel": lambda chain, event, other: chain.queue.cancel_fusion(),
}


@pytest.mark.parametrize("how", ABORTS)
def test_aborts(queue: tw.Queue, how: str) -> None:
    with tw.Queue("x86") as other:
        chain = Chain(queue)
        queue.start_fusion()
        event = chain.submit()
        ABORTS[how](chain, event, other)
        assert not queue.fusing
        if how == "cancel":
            with pytest.raises(FusionError, match="did not begin"):
                queue.complete_fusion()
        else:
            assert queue.complete_fusion() is event
        event.wait()
        report = queue.fusion_report
        assert report is not None and not report.fused and report.reason
        assert report.kernels == ("add", "scale_add")
        assert (chain.y.numpy() == after()).all()


@pytest.mark.parametrize("device", QUEUES)
def test_two_fusions_that_need_each_other(device: str) -> None:
    with tw.Queue(device) as first, tw.Queue(device) as second:
        x, y = first.buffer(ints()), first.buffer(ints(1))
        first.start_fusion()
        second.start_fusion()
        one = first.submit(step, (N,), N, x)
        two = second.submit(scale_add, (N,), N, 1, x, y, depends_on=[one])
        first.submit(scale_add, (N,), N, 1, y, x)
        tw.wait([first.complete_fusion(), second.complete_fusion(), one, two])
        stepped = 5 * ints() + 1
        assert (y.numpy() == 1 + stepped).all()
        assert (x.numpy() == stepped + 1 + stepped).all()


def test_close_of_the_queue(queue: tw.Queue) -> None:
    chain = Chain(queue)
    queue.start_fusion()
    event = chain.submit()
    queue.close()
    assert event.done
    assert (chain.y.numpy() == after()).all()


def test_a_list_that_is_let_go_while_it_is_fused(
    queue: tw.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, plan = Chain(queue), Fusions.plan

    def late(self: Fusions, *what: Any) -> object:
        queue.wait()
        return plan(self, *what)

    monkeypatch.setattr(Fusions, "plan", late)
    with queue.fusion() as fusion:
        chain.submit()
    assert fusion.report.reason == "the host waits for add"
    assert (chain.y.numpy() == after()).all()


def test_lists_of_none_and_of_one(queue: tw.Queue) -> None:
    with queue.fusion() as empty:
        pass
    empty.event.wait()
    assert not empty.report.fused
    x = queue.buffer(ints())
    with queue.fusion() as single:
        queue.submit(step, (N,), N, x)
    single.event.wait()
    assert "two at least" in single.report.reason
    assert (x.numpy() == 5 * ints() + 1).all()


def test_a_list_of_none_that_others_need(queue: tw.Queue) -> None:
    with tw.Queue("x86") as other, queue.fusion() as empty:
        other.host_task(lambda: None, depends_on=[empty.event]).wait()
        assert not queue.fusing
    assert "depends on a fusion" in empty.report.reason


def test_a_queue_that_is_dropped_while_it_fuses(queue: tw.Queue) -> None:
    """A list of none leaves nothing; kernels run when somebody looks, as before a close."""
    before, x = list(SCHEDULER._held), queue.buffer(ints())
    for kernels in (0, 2):
        own = tw.Queue(queue.device)
        own.start_fusion()
        for _ in range(kernels):
            own.submit(step, (N,), N, x)
        dropped = weakref.ref(own)
        del own
        gc.collect()
        assert (dropped() is None) == (not kernels)
        assert len(SCHEDULER._held) == len(before) + (kernels > 0)
    assert (x.numpy() == 5 * (5 * ints() + 1) + 1).all()
    assert before == SCHEDULER._held


def test_one_kernel_several_times(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    with queue.fusion(constants=True) as fusion:
        for _ in range(3):
            queue.submit(step, (N,), N, x)
    expected = ints()
    for _ in range(3):
        expected = (5 * expected + 1) & 0xFFFF
    assert (x.numpy() == expected).all()
    assert fusion.report.fused


def test_what_is_not_fused_runs_in_order(queue: tw.Queue) -> None:
    x, whole = queue.buffer(ints()), np.resize(ints(), 2 * N)
    lists: tuple[tuple[str, Callable[[], object]], ...] = (
        ("prints, or asserts", lambda: queue.submit(checked, (N,), N, 2**20, x)),
        ("share some", lambda: queue.submit(add, (N,), N, whole[:N], whole[N // 2 :][:N], x)),
    )
    for reason, submit in lists:
        with queue.fusion() as fusion:
            queue.submit(step, (N,), N, x)
            submit()
        fusion.event.wait()
        assert reason in fusion.report.reason
        assert reason in str(fusion.report)
    assert (x.numpy() == whole[:N] + 3 * whole[N // 2 :][:N]).all()


def test_require(queue: tw.Queue) -> None:
    x = queue.buffer(ints())
    queue.start_fusion()
    event = queue.submit(step, (N,), N, x)
    with pytest.raises(FusionError, match="two at least"):
        queue.complete_fusion(require=True)
    with pytest.raises(FusionError, match="do not become one"):
        event.wait()
    with pytest.raises(QueueError, match="cannot run"):
        x.numpy()
    queue.fill(x, 1)
    assert (x.numpy() == 1).all()


def test_an_exception_cancels(queue: tw.Queue) -> None:
    chain = Chain(queue)
    with pytest.raises(KeyError), queue.fusion() as fusion:
        chain.submit()
        raise KeyError
    assert fusion.report.reason == "it was cancelled"
    assert (chain.y.numpy() == after()).all()


def test_failures_reach_the_list(queue: tw.Queue) -> None:
    chain = Chain(queue)
    gate = threading.Event()

    def task(values: np.ndarray) -> None:
        gate.wait(20)
        raise ZeroDivisionError

    failed = queue.host_task(task, chain.x)
    with queue.fusion() as fusion:
        chain.submit()
    gate.set()
    with pytest.raises(QueueError, match="host task task"):
        fusion.event.wait()
    with pytest.raises(ZeroDivisionError):
        failed.wait()


def test_out_of_turn(queue: tw.Queue) -> None:
    queue.cancel_fusion()
    with pytest.raises(FusionError, match="did not begin"):
        queue.complete_fusion()
    queue.start_fusion()
    with pytest.raises(FusionError, match="inside of another"):
        queue.start_fusion()
    x = queue.buffer(ints())
    with pytest.raises(ArgumentError, match="is promoted"):
        queue.complete_fusion(promote={x: "everywhere"})
    queue.cancel_fusion()
    with pytest.raises(FusionError, match="has not begun"):
        _ = queue.fusion().event
    with queue.fusion(promote={x: "private"}) as fusion:
        queue.submit(step, (N,), N, ints())
        queue.submit(step, (N,), N, ints())
    assert "no kernel of the fusion takes" in fusion.report.reason


@tw.kernel
def signed(a: tw.f32, x: tw.array("f32", 1)):
    i = tw.global_id(0)
    x[i] = a * x[i]


def test_constants_that_look_alike(queue: tw.Queue) -> None:
    for zero in (0.0, -0.0):
        x = queue.buffer(np.ones(N, np.float32))
        with queue.fusion(constants=True) as fusion:
            queue.submit(signed, (N,), 1.0, x)
            queue.submit(signed, (N,), zero, x)
        assert (np.signbit(x.numpy()) == np.signbit(zero)).all()
        assert fusion.report.fused


def test_numbers_that_look_alike(queue: tw.Queue) -> None:
    """Each kernel has its own, though they have one name."""
    for numbers in ((0.0, -0.0), (-0.0, 0.0)):
        x, y = (queue.buffer(np.ones(N, np.float32)) for _ in range(2))
        with queue.fusion() as fusion:
            queue.submit(signed, (N,), numbers[0], x)
            queue.submit(signed, (N,), numbers[1], y)
        for number, buffer in zip(numbers, (x, y), strict=True):
            assert (np.signbit(buffer.numpy()) == np.signbit(number)).all()
        assert fusion.report.fused


@tw.kernel
def moved(x: tw.array("s32", 1), y: tw.array("s32", 1)):
    i = tw.global_id(0)
    y[i] = x[i + 1]


@pytest.mark.parametrize("check", [False, True])
def test_a_promise_that_does_not_hold_is_noticed(queue: tw.Queue, check: bool) -> None:
    """Each work-item reads what another one wrote, to memory that is said to be its own."""
    arrays = [np.arange(N + 2, dtype=np.int32) for _ in range(3)]
    x, t, y = map(queue.buffer, arrays)
    with queue.fusion(promote={t: "private"}, trust=True, check=check) as fusion:
        queue.submit(moved, (N + 1,), x, t)
        queue.submit(moved, (N + 1,), t, y)
    assert fusion.report.fused
    right = [*range(2, N + 2), N + 1, N + 1]
    if queue.device == "interpreter":
        # It finds what is read before it is written.
        with pytest.raises(TilewrightError):
            fusion.event.wait()
    elif check:
        with pytest.raises(FusionError, match="the fused kernel gives another y"):
            fusion.event.wait()
    else:
        fusion.event.wait()
    assert not check or (arrays[2] == right).all()


def test_a_fusion_that_is_right_passes_its_check(queue: tw.Queue) -> None:
    x, y = (queue.buffer(np.full(N, np.nan, np.float32)) for _ in range(2))
    with queue.fusion(check=True) as fusion:
        queue.submit(signed, (N,), 2.0, x)
        queue.submit(signed, (N,), -1.0, y)
        queue.submit(signed, (N,), 3.0, x)
    fusion.event.wait()
    assert fusion.report.fused
    assert np.isnan(x.numpy()).all()


PRODUCT = """
kernel product(in a: f32[24, 16], in b: f32[16, 32], out c: f32[24, 32]):
  compute start(m in 24, n in 32):
    c[m, n] = 0.0
  compute sums(m in 24, n in 32, k in 16):
    c[m, n] add= a[m, k] * b[k, n]
"""


def test_ops_and_kernels_by_name_become_one(queue: tw.Queue) -> None:
    rng = np.random.default_rng(0)
    a, other, b = (
        rng.integers(-3, 4, shape).astype(np.float32) for shape in ((24, 16), (24, 16), (16, 32))
    )
    product = tw.parse_kernel(PRODUCT)
    scale = tw.elementwise("24x32", "linear", alpha=0.5, beta=1.0)
    relu = tw.compile(tw.elementwise("24x32", "relu"), queue.device)
    x, t, u = queue.buffer(a), *(queue.buffer(shape=(24, 32), dtype="f32") for _ in range(2))
    with queue.fusion(promote={t: "any", u: "any"}, check=True) as fusion:
        queue.submit(product, a=x, b=b, c=t)
        queue.submit(scale, src=t, dst=u)
        event = queue.submit(relu, src=u)
    event.wait()
    report = fusion.report
    assert report.fused and report.kernels[0] == "product"
    assert [name for name, buffer in report.buffers.items() if buffer.promoted] == ["c", "dst"]
    assert (event.results["dst"].numpy() == np.maximum(a @ b * 0.5 + 1, 0)).all()
    again = fusion.submit(replace=[(x, queue.buffer(other))])
    again.wait()
    assert (again.results["dst"].numpy() == np.maximum(other @ b * 0.5 + 1, 0)).all()


@pytest.mark.parametrize("is_packed", [False, True])
def test_weights_that_are_packed_or_not(queue: tw.Queue, is_packed: bool) -> None:
    """Packed ones are taken as they are; others are packed when what writes them is done."""
    compiled = tw.compile(tw.matmul("24x16:16x32", epilogue=[tw.relu()]), queue.device)
    assert bool(compiled.packed) == (queue.device != "interpreter")
    ones = np.ones((16, 32), np.float32)
    src = queue.buffer(np.ones((24, 16), np.float32))
    loose = queue.buffer(shape=(16, 32), dtype="f32")
    queue.fill(loose, 1.0)
    weights = compiled.pack("weights", ones) if is_packed and compiled.packed else loose
    with queue.fusion() as fusion:
        first = queue.submit(compiled, src=src, weights=weights).results["dst"]
        event = queue.submit(tw.elementwise("24x32", "abs"), src=first)
    event.wait()
    assert (event.results["dst"].numpy() == 16).all()
    assert fusion.report.fused == (weights is loose)
    assert fusion.report.fused or "it takes packed arrays" in fusion.report.reason
    queue.fill(loose, 2.0)
    alone = queue.submit(compiled, src=src, weights=weights)
    assert (alone.results["dst"].numpy() == (32 if weights is loose else 16)).all()
    with pytest.raises(ArgumentError):
        queue.submit(compiled, src=src, weights=np.ones((16, 31), np.float32))


@tw.kernel
def taken(x: tw.array("s32", 1), y: tw.array("s32", 1)):
    i = tw.global_id(0)
    y[i] = x[i]


@pytest.mark.parametrize("said", [None, "none"])
def test_buffers_say_their_scope(queue: tw.Queue, said: str | None) -> None:
    x = queue.buffer(np.arange(N, dtype=np.int32))
    y, t = (queue.buffer(shape=(N,), dtype="s32", promote=p) for p in (None, "private"))
    with queue.fusion(promote=None if said is None else {t: said}) as fusion:
        queue.submit(taken, (N,), x, t)
        queue.submit(taken, (N,), t, y)
    fusion.event.wait()
    assert (y.numpy() == np.arange(N)).all()
    promoted = {name: buffer.promoted for name, buffer in fusion.report.buffers.items()}
    assert list(promoted.values()).count("private") == (said is None)


def test_a_scope_that_is_none(queue: tw.Queue) -> None:
    with pytest.raises(ArgumentError, match="promoted to 'shared'"):
        queue.buffer(shape=(N,), dtype="s32", promote="shared")
