"""Lists of a queue that become one kernel, or do not: ops, ranges, kinds of arguments, threads.
Each leaves what its kernels leave one by one."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fusion_cases import add, add_bias, ids_1, ids_2, ids_3, scale
from queue_kernels import step
from tilewright.errors import ArgumentError, CompilationError

N = 256


@pytest.mark.parametrize("whole", [False, True])
def test_ops_and_functions(queue: tw.Queue, whole: bool) -> None:
    """Work-items in Python become the epilogue of an op, whatever sizes their arrays have; two ops
    with theirs are one kernel, too."""
    draw = np.random.default_rng(2)

    def drawn(*shape: int) -> tw.Buffer:
        return queue.buffer(draw.integers(-3, 4, shape).astype(np.float32))

    x, w1, b1, w2, b2 = drawn(8, 16), drawn(16, 32), drawn(32), drawn(32, 16), drawn(16)
    p1, t1, p2 = (queue.buffer(shape=(8, n), dtype="f32", promote="any") for n in (32, 32, 16))
    y = queue.buffer(shape=(8, 16), dtype="f32")
    queue.start_fusion()
    queue.submit(tw.matmul("8x16:16x32"), src=x, weights=w1, dst=p1)
    queue.submit(add_bias, (8, 32), p1, b1, t1)
    h = queue.submit(tw.elementwise("8x32", "relu"), src=t1).results["dst"]
    if not whole:
        queue.complete_fusion(require=True)
        queue.start_fusion()
    queue.submit(tw.matmul("8x32:32x16"), src=h, weights=w2, dst=p2)
    queue.submit(add_bias, (8, 16), p2, b2, y)
    queue.complete_fusion(require=True, promote={h: "any"} if whole else None)
    report = queue.fusion_report
    assert report is not None and report.kernels[-2:] == ("matmul_fwd_d", "add_bias")
    hidden = np.maximum(x.numpy() @ w1.numpy() + b1.numpy(), 0)
    assert (y.numpy() == hidden @ w2.numpy() + b2.numpy()).all()
    assert [buffer.has_memory for buffer in (p1, t1, h, p2)] == [False, False, not whole, False]


# Ranges.


@pytest.mark.parametrize(
    "ranges", [((50,), (5, 13), (2, 3, 7)), ((130,), (2, 65)), ((3, 2, 20), (4,))]
)
def test_ranges_of_all_dims(queue: tw.Queue, ranges: tuple[tuple[int, ...], ...]) -> None:
    """Each work-item has the ids of its own kernel."""
    functions = {1: ids_1, 2: ids_2, 3: ids_3}
    outs: list[list[np.ndarray]] = []
    for _ in range(2):
        outs.append([np.full((np.prod(sizes), 2), -1, np.int32) for sizes in ranges])
    for sizes, out in zip(ranges, outs[0], strict=True):
        queue.submit(functions[len(sizes)], sizes, out)
    with queue.fusion() as fusion:
        for sizes, out in zip(ranges, outs[1], strict=True):
            queue.submit(functions[len(sizes)], sizes, out)
    queue.wait()
    assert fusion.report.fused, fusion.report.reason
    for alone, fused in zip(*outs, strict=True):
        np.testing.assert_array_equal(fused, alone)


def test_ranges_in_groups(queue: tw.Queue) -> None:
    """Fewer groups in the first dim are fused; other sizes, and dims behind the first, are not."""
    lists: tuple[tuple[str, tuple[Any, ...], tuple[Any, ...]], ...] = (
        ("", ((128,), (64,)), ((64,), (64,))),
        ("workgroups of 64 and of 32", ((128,), (64,)), ((128,), (32,))),
        ("2 x 2 and of 2 x 4 workgroups", ((4, 32), (2, 16)), ((4, 64), (2, 16))),
    )
    for reason, *ranges in lists:
        outs = [np.full((np.prod(sizes), 2), -1, np.int32) for sizes, _ in ranges]
        with queue.fusion() as fusion:
            for (sizes, local), out in zip(ranges, outs, strict=True):
                queue.submit(ids_1 if len(sizes) == 1 else ids_2, sizes, out, local=local)
        queue.wait()
        assert fusion.report.fused == (not reason)
        assert reason in fusion.report.reason
        for (sizes, _), out in zip(ranges, outs, strict=True):
            alone = np.zeros_like(out)
            (ids_1 if len(sizes) == 1 else ids_2).launch(sizes, alone, target="interpreter")
            np.testing.assert_array_equal(out, alone)


def test_a_group_that_is_not_whole_is_refused_at_once(queue: tw.Queue) -> None:
    x = queue.buffer(np.zeros(N, np.int32))
    with queue.fusion() as fusion:
        queue.submit(step, (N,), N, x, local=(64,))
        with pytest.raises(ArgumentError, match="does not divide"):
            queue.submit(step, (100,), 100, x, local=(64,))
        queue.submit(step, (N,), N, x, local=(64,))
    assert (x.numpy() == 6).all()
    assert fusion.report.fused


# Arguments.


@pytest.mark.parametrize("offset", [None, (32,)])
def test_parts_of_buffers_and_offsets(queue: tw.Queue, offset: tuple[int] | None) -> None:
    memory = [queue.buffer(np.arange(2 * N, dtype=np.float32)) for _ in range(2)]
    x, y = memory[0][64 : 64 + N], memory[1][128 : 128 + N]
    t = queue.buffer(np.zeros(N, np.float32))
    with queue.fusion() as fusion:
        queue.submit(scale, (N - 32,), 2.0, x, t, offset=offset)
        queue.submit(add, (N - 32,), t, y, offset=offset)
    start = 0 if offset is None else 32
    at = np.arange(start, start + N - 32)
    expected = np.arange(2 * N, dtype=np.float32)
    expected[128 + at] += 2.0 * (64 + at)
    np.testing.assert_array_equal(memory[1].numpy(), expected)
    np.testing.assert_array_equal(memory[0].numpy(), np.arange(2 * N))
    assert fusion.report.fused, fusion.report.reason


def test_views_of_views(queue: tw.Queue) -> None:
    """Parts of parts, around memory that is promoted."""
    wide = [np.arange(4 * N, dtype=np.float32).reshape(2, 2 * N) for _ in range(2)]
    x, y = (queue.buffer(array)[1][8:][:N][2:] for array in wide)
    t = queue.buffer(shape=(2, N), dtype="f32")[1][2:]
    with queue.fusion(promote={t: "private"}) as fusion:
        queue.submit(scale, (N - 2,), 2.0, x, t)
        queue.submit(add, (N - 2,), t, y)
    fusion.event.wait()
    assert fusion.report.fused, fusion.report.reason
    assert [buffer.promoted for buffer in fusion.report.buffers.values()] == [None, "private", None]
    expected = np.arange(4 * N, dtype=np.float32).reshape(2, 2 * N)
    np.testing.assert_array_equal(wide[0], expected)
    expected[1, 10 : 8 + N] *= 3
    np.testing.assert_array_equal(wide[1], expected)


@tw.kernel
def doubled(x: tw.array("f32", 2), t: tw.array("f32", 2)):
    i, j = tw.global_id(0), tw.global_id(1)
    t[i, j] = 2.0 * x[i, j]


@tw.kernel
def turned(t: tw.array("f32", 2), y: tw.array("f32", 2)):
    """Each workgroup, a row of 4, turns its part around."""
    i, j = tw.global_id(0), tw.global_id(1)
    y[i, j] = y[i, j] + t[i, tw.group_id(1) * 4 + 3 - tw.local_id(1)]


PARTS = {
    "gaps": (slice(None, None, 2), slice(1, None, 3)),
    "gaps behind each other": (slice(1, None, 2), slice(0, 8)),
    "a number": (slice(None, 8), 3, slice(None, None, 2)),
}


@pytest.mark.parametrize("scope", ["private", "local"])
@pytest.mark.parametrize("part", PARTS)
def test_parts_with_strides(queue: tw.Queue, part: str, scope: str) -> None:
    """They are promoted as others are, and what lies between their elements stays."""
    shape = (16, 4, 16) if part == "a number" else (16, 24)
    wide = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + k for k in range(2)]
    t, x, y = (
        memory[PARTS[part]]
        for memory in (queue.buffer(shape=shape, dtype="f32"), *map(queue.buffer, wide))
    )
    assert x.shape == (8, 8)
    with queue.fusion(promote={t: scope}, require=True) as fusion:
        queue.submit(doubled, (8, 8), x, t, local=(1, 4))
        if scope == "private":
            queue.submit(doubled, (8, 8), t, y, local=(1, 4))
        else:
            queue.submit(turned, (8, 8), t, y, local=(1, 4))
    fusion.event.wait()
    assert [buffer.promoted for buffer in fusion.report.buffers.values()] == [None, scope, None]
    expected = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1
    values = 2 * wide[0][PARTS[part]]
    within = values.reshape(8, 2, 4)[:, :, ::-1].reshape(8, 8)
    expected[PARTS[part]] = 2 * values if scope == "private" else expected[PARTS[part]] + within
    np.testing.assert_array_equal(wide[1], expected)


def test_columns_and_rows_of_one_array(queue: tw.Queue) -> None:
    """A transposed buffer, which both kernels take; another gap is another list."""
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    t, y = (queue.buffer(shape=(8, 8), dtype="f32") for _ in range(2))
    for rows in (x.T, np.arange(128, dtype=np.float32).reshape(8, 16).T[::2]):
        with queue.fusion(promote={t: "any"}, require=True) as fusion:
            queue.submit(doubled, (8, 8), rows, t)
            queue.submit(doubled, (8, 8), t, y)
        np.testing.assert_array_equal(y.numpy(), 4 * rows)
        assert fusion.report.buffers["t"].promoted == "private"


def test_the_same_bytes_in_another_shape(queue: tw.Queue) -> None:
    """Sizes of an array do not go with its memory where kernels take it in two shapes."""
    wide, y, z = np.arange(128, dtype=np.float32).reshape(2, 64), *np.zeros((2, 2, 2), np.float32)
    with queue.fusion() as fusion:
        queue.submit(doubled, (2, 2), wide, y)
        queue.submit(doubled, (2, 2), wide.reshape(64, 2), z)
    fusion.event.wait()
    np.testing.assert_array_equal(y, [[0, 2], [128, 130]])
    np.testing.assert_array_equal(z, [[0, 2], [4, 6]])


def test_arrays_that_are_copied(queue: tw.Queue) -> None:
    """What runs backwards, or lies between another's elements; and one array for two parameters."""
    x, y = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    b = queue.buffer(y)
    queue.submit(scale, (N,), 2.0, queue.buffer(x)[::-1], b)
    queue.submit(add, (N,), b, b)
    queue.submit(add, (N // 2,), b[::2], b[1::2])
    expected = 4 * np.arange(N, dtype=np.float32)[::-1]
    expected[1::2] += expected[::2]
    np.testing.assert_array_equal(b.numpy(), expected)
    with queue.fusion() as fusion:
        queue.submit(scale, (N,), 2.0, b[::-1], x)
        queue.submit(scale, (N,), 2.0, x, y[:])
    assert not fusion.report.fused and "backwards" in fusion.report.reason
    np.testing.assert_array_equal(b.numpy(), 4 * expected[::-1])


def test_arrays_as_they_are(queue: tw.Queue) -> None:
    """Kernels that have nothing to do with each other, and one array for both."""
    x, y, z = (np.full(N, k, np.float32) for k in range(1, 4))
    with queue.fusion() as fusion:
        queue.submit(scale, (N,), 2.0, x, y)
        queue.submit(scale, (N,), 3.0, x, z)
    fusion.event.wait()
    assert fusion.report.fused and list(fusion.report.buffers) == ["x", "t", "t_2"]
    assert (y == 2).all() and (z == 3).all()


def test_dependencies_that_are_said(queue: tw.Queue) -> None:
    """One on a kernel of the list is its order; one on another command, the whole list's."""
    gate = threading.Event()
    before = queue.host_task(lambda: gate.wait(20))
    x, y = (queue.buffer(np.zeros(N, np.int32)) for _ in range(2))
    with queue.fusion(require=True) as fusion:
        first = queue.submit(step, (N,), N, x, depends_on=[before])
        queue.submit(step, (N,), N, y, depends_on=[first])
    assert not fusion.event.done
    gate.set()
    fusion.event.wait()
    assert fusion.event.profile.start >= before.profile.end
    assert (x.numpy() == 1).all() and (y.numpy() == 1).all()


def test_commands_in_between_that_touch_nothing_of_it(queue: tw.Queue) -> None:
    x, y, z = (queue.buffer(np.zeros(N, np.int32)) for _ in range(3))
    with tw.Queue("x86") as other, queue.fusion(require=True):
        queue.submit(step, (N,), N, x)
        # In a queue in order all that follows depends on the list.
        beside = other if queue.in_order else queue
        events = [
            beside.host_task(lambda values: values.fill(4), y),
            beside.copy(z, y),
            beside.fill(y, 5),
            other.fill(np.zeros(N, np.int32), 1),
        ]
        tw.wait(events)
        with z.host() as values:
            assert (values == 4).all()
        queue.submit(step, (N,), N, x)
    assert (x.numpy() == 6).all()


def test_compilers_that_refuse_the_fused_kernel(
    queue: tw.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*what: object, **options: object) -> None:
        raise CompilationError("no such code")

    x = queue.buffer(np.zeros(N, np.int32))
    monkeypatch.setattr("tilewright.queues.fused_code.compile_kernel", refuses)
    with queue.fusion() as fusion:
        queue.submit(step, (N,), N, x)
        queue.submit(step, (N,), N, x)
    assert (x.numpy() == 6).all()
    assert not fusion.report.fused and "no such code" in fusion.report.reason


# Threads.


def test_two_threads_submit_to_a_list(queue: tw.Queue) -> None:
    buffers = [queue.buffer(np.zeros(N, np.int32)) for _ in range(2)]

    def submits(own: tw.Buffer) -> None:
        for _ in range(6):
            queue.submit(step, (N,), N, own)

    with queue.fusion() as fusion:
        threads = [threading.Thread(target=submits, args=(buffer,)) for buffer in buffers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert fusion.report.fused and len(fusion.report.kernels) == 12
    expected = 0
    for _ in range(6):
        expected = (5 * expected + 1) & 0xFFFF
    assert all((buffer.numpy() == expected).all() for buffer in buffers)


def test_a_thread_waits_while_another_one_submits(queue: tw.Queue) -> None:
    """Lists are let go, or not; the order stays."""
    x = queue.buffer(np.zeros(N, np.int32))
    ended = threading.Event()

    def waits() -> None:
        while not ended.is_set():
            queue.wait()

    thread = threading.Thread(target=waits)
    thread.start()
    try:
        for _ in range(8):
            with queue.fusion():
                for _ in range(3):
                    queue.submit(step, (N,), N, x)
    finally:
        ended.set()
        thread.join()
    expected = 0
    for _ in range(24):
        expected = (5 * expected + 1) & 0xFFFF
    assert (x.numpy() == expected).all()
