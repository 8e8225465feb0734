"""Queues of a GPU, by a driver that stands for NVIDIA's and interprets kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import queue_programs
import tilewright as tw
from nvidia_driver import Interface
from nvidia_interpreter import Interpreting, interpreting_gpu
from queue_kernels import MASK, Chain, add, after, checked, ints, scale_add, step
from skips import HARDWARE
from tilewright.targets.nvidia import device as nvidia

# Where there is a GPU, other tests of queues run on it.
pytestmark = pytest.mark.skipif(bool(nvidia.devices()), reason=f"{HARDWARE}there is a GPU")
N = 64


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> Iterator[Interpreting]:
    with interpreting_gpu(monkeypatch) as driver:
        yield driver


@pytest.fixture
def queue(gpu: Interpreting) -> Iterator[tw.Queue]:
    with tw.Queue("nvidia") as result:
        yield result


def filled(queue: tw.Queue, values: np.ndarray) -> tw.Buffer:
    """A buffer in the device's memory."""
    buffer = queue.buffer(shape=values.shape, dtype=values.dtype)
    queue.copy(buffer, values)
    return buffer


def test_a_chain(queue: tw.Queue, gpu: Interpreting) -> None:
    x, y, z = filled(queue, ints()), queue.buffer(shape=(N,), dtype="s32"), queue.buffer(ints(1))
    queue.fill(y, 7)
    queue.submit(scale_add, (N,), N, 2, x, y, local=(16,))
    queue.wait()
    copies = len(gpu.named("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"))
    assert copies == 1  # to x: the kernel's arrays are on the device
    queue.submit(add, (N,), N, x, y, z).wait()
    expected = ints() + 14
    assert (y.numpy() == expected).all()
    assert (np.asarray(y) == expected).all()
    assert (np.from_dlpack(y) == expected).all()
    assert (z.numpy() == ints() + 3 * expected).all()


def test_the_host_writes(queue: tw.Queue) -> None:
    x = filled(queue, ints())
    with x.host("read_write") as values:
        values[3] = 17
    with x.host("read") as values:
        assert values[3] == 17
        with pytest.raises(ValueError, match="read-only"):
            values[3] = 18
    with pytest.raises(ValueError, match="is a copy"):
        x.__array__(copy=False)
    queue.submit(step, (N,), N, x)
    expected = ints()
    expected[3] = 17
    assert (x.numpy() == 5 * expected + 1).all()


def test_host_tasks(queue: tw.Queue) -> None:
    x, y, array = filled(queue, ints()), filled(queue, ints(0)), ints(2)

    def task(values: np.ndarray, result: np.ndarray, number: int, plain: np.ndarray) -> None:
        assert not values.flags.writeable
        result[:] = values + number + plain

    queue.host_task(task, x.read(), y, 3, array)
    assert (y.numpy() == ints() + 5).all()


def test_parts_of_a_buffer(queue: tw.Queue) -> None:
    x, y = filled(queue, ints()), filled(queue, ints(0))
    queue.fill(x[::2], 9)
    queue.copy(x[8:12], y[:4])
    queue.submit(step, (16,), 16, x[16:32])
    queue.submit(step, (8,), 8, x[33:41])  # no multiple of 16 bytes
    expected = ints()
    expected[::2] = 9
    expected[8:12] = 0
    expected[16:32] = 5 * expected[16:32] + 1
    expected[33:41] = 5 * expected[33:41] + 1
    assert (x.numpy() == expected).all()
    assert (x[1::4].numpy() == expected[1::4]).all()
    queue.copy(x[8:], x[:-8])  # overlapping
    assert (x[8:].numpy() == expected[:-8]).all()


@pytest.mark.parametrize("kind", ["u8", "f16", "f32", "f64", "s64", "bf16"])
def test_elements(queue: tw.Queue, kind: str) -> None:
    x, y = (queue.buffer(shape=(5, 3), dtype=kind) for _ in range(2))
    queue.fill(x, 3)
    queue.copy(y, x)
    assert (y.numpy().astype(np.float64) == 3).all()


def test_devices_copy_to_each_other(queue: tw.Queue) -> None:
    with tw.Queue("interpreter") as other:
        x, y = filled(queue, ints()), other.buffer(shape=(N,), dtype="s32")
        other.copy(y, x)
        other.submit(step, (N,), N, y)
        queue.copy(x, y)
        assert (x.numpy() == 5 * ints() + 1).all()
        with pytest.raises(tw.TilewrightError, match="a buffer of nvidia"):
            other.submit(step, (N,), N, x)


def test_ops_and_their_results(queue: tw.Queue) -> None:
    op = tw.matmul("16x8:8x4", epilogue=[tw.relu()])
    random = np.random.default_rng(0)
    src, weights = (random.random(shape, np.float32) - 0.5 for shape in ((16, 8), (8, 4)))
    x, w = filled(queue, src), filled(queue, weights)
    for again in range(2):
        dst = queue.submit(op, src=x, weights=w).results["dst"]
        wanted = np.maximum(src @ weights, 0)
        np.testing.assert_allclose(dst.numpy(), wanted, 1e-5, 1e-6, err_msg=str(again))
        weights = weights[::-1].copy()
        queue.copy(w, weights)


def test_fusion(queue: tw.Queue) -> None:
    chain = Chain(queue)
    chain.t = queue.buffer(shape=(N,), dtype="s32")
    with queue.fusion(promote={chain.t: "private"}, require=True) as fusion:
        chain.submit()
    assert fusion.report.buffers["z"].promoted == "private"
    assert (chain.y.numpy() == after()).all()
    y = filled(queue, ints(2))
    fusion.submit(replace=[(chain.y, y)])
    assert (y.numpy() == after()).all()


def test_a_fusion_that_is_checked(queue: tw.Queue) -> None:
    x, t, y = filled(queue, ints()), filled(queue, ints(1)), filled(queue, ints(2))
    with queue.fusion(check=True) as fusion:
        queue.submit(add, (N,), N, x, ints(0), t)
        queue.submit(scale_add, (N,), N, 5, t, y)
    fusion.event.wait()
    assert (y.numpy() == after()).all()


def test_assertions_of_a_kernel(queue: tw.Queue) -> None:
    x = filled(queue, ints())
    with pytest.raises(tw.TilewrightError, match="too large"):
        queue.submit(checked, (N,), N, 60, x).wait()


def test_the_memory_is_used_again_and_freed(queue: tw.Queue, gpu: Interpreting) -> None:
    x = filled(queue, ints())
    queue.wait()
    at = x.array.ctypes.data
    x.close()
    del x
    y = filled(queue, ints(1))
    queue.wait()
    assert y.array.ctypes.data == at
    del y
    queue.close()
    assert not gpu.memory


def test_other_libraries_take_the_memory(queue: tw.Queue) -> None:
    x = filled(queue, ints())
    queue.submit(step, (N,), N, x)
    interface = x.__cuda_array_interface__
    assert interface["data"] == (x.array.ctypes.data, False)
    assert (interface["shape"], interface["typestr"]) == ((N,), "<i4")
    with pytest.raises(AttributeError, match="host's memory"):
        _ = queue.buffer(ints()).__cuda_array_interface__


def test_arrays_of_other_libraries_on_the_device(queue: tw.Queue) -> None:
    with pytest.raises(tw.TilewrightError, match="CPU's memory"):
        queue.submit(step, (N,), N, Interface(ints()))


def test_what_the_driver_reports_fails_the_event(queue: tw.Queue, gpu: Interpreting) -> None:
    from nvidia_driver import Status

    x = filled(queue, ints())
    queue.submit(step, (N,), N, x).wait()
    gpu.failing["cuLaunchKernel"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    failed = queue.submit(step, (N,), N, x)
    with pytest.raises(tw.TilewrightError, match="ILLEGAL_ADDRESS"):
        failed.wait()
    with pytest.raises(tw.QueueError, match="step"):
        x.numpy()


def test_random_programs(gpu: Interpreting) -> None:
    for seed in range(2000, 2020):
        assert queue_programs.faults(seed, ("nvidia", "interpreter")) == []
    assert MASK == 0xFFFF
