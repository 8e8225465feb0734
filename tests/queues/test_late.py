"""What is decided when commands run: memory of buffers that are promoted in all their uses, which
is never allocated, and weights, which are packed once for what was written to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fusion_cases import add, scale
from needs import QUEUES
from queue_kernels import checked
from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError, KernelError

N = 256


@tw.kernel
def taken(x: tw.array("s32", 1), y: tw.array("s32", 1)):
    i = tw.global_id(0)
    y[i] = x[i]


@pytest.mark.parametrize("constants", [False, True])
def test_promoted_memory_is_not_allocated(queue: tw.Queue, constants: bool) -> None:
    x, y = (queue.buffer(np.ones(N, np.float32)) for _ in range(2))
    t = queue.buffer(shape=(N,), dtype="f32")
    for _ in range(2):
        with queue.fusion(promote={t: "private"}, constants=constants, require=True) as fusion:
            queue.submit(scale, (N,), 2.0, x, t)
            queue.submit(add, (N,), t, y.read_write())
        fusion.event.wait()
    again = fusion.submit(replace=[(y, queue.buffer(np.zeros(N, np.float32)))])
    again.wait()
    assert not t.has_memory
    assert (y.numpy() == 5).all()


def test_promoted_results_are_not_allocated(queue: tw.Queue) -> None:
    src = queue.buffer(np.ones((8, 16), np.float32))
    relu, scaled = tw.elementwise("8x16", "relu"), tw.elementwise("8x16", "linear", alpha=3.0)
    queue.start_fusion()
    first = queue.submit(relu, src=src).results["dst"]
    last = queue.submit(scaled, src=first).results["dst"]
    queue.complete_fusion(promote={first: "any"}, require=True)
    assert (last.numpy() == 3).all()
    assert last.has_memory and not first.has_memory


def test_lists_that_are_let_go_have_memory(queue: tw.Queue) -> None:
    x = queue.buffer(np.ones(N, np.float32))
    t, y = (queue.buffer(shape=(N,), dtype="f32") for _ in range(2))
    src = queue.buffer(np.ones((8, 16), np.float32))
    relu = tw.elementwise("8x16", "relu")
    for _ in range(2):
        queue.fill(y, 1.0)
        queue.start_fusion()
        assert not t.has_memory or _
        queue.submit(scale, (N,), 2.0, x, t)
        queue.submit(add, (N,), t, y)
        first = queue.submit(relu, src=src).results["dst"]
        last = queue.submit(relu, src=first).results["dst"]
        queue.wait()
        assert not queue.fusing
        queue.complete_fusion(promote={t: "private"})
        assert (t.numpy() == 2).all() and (y.numpy() == 3).all()
        assert (last.numpy() == 1).all() and first.has_memory
    queue.submit(scale, (N,), 5.0, x, t)
    assert (t.numpy() == 5).all()


def test_memory_that_comes_late(queue: tw.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a kernel that asserts; of arguments that do not fit; that which is not to be had."""
    t = queue.buffer(shape=(N,), dtype="s32")
    queue.fill(t, 6)
    queue.start_fusion()
    queue.submit(checked, (N,), N, 7, t)
    for has_memory in (False, True):
        wrong = queue.buffer(shape=(N,), dtype="f32")
        if has_memory:
            _ = wrong.array
        with pytest.raises(ArgumentError, match="elements"):
            queue.submit(checked, (N,), N, 0, wrong)
    late = queue.buffer(shape=(N,), dtype="s32")
    queue.submit(taken, (N,), t, late)
    last = queue.submit(checked, (N,), N, 7, late)
    queue.cancel_fusion()
    with pytest.raises(KernelError, match="too large"):
        last.wait()

    def none(*size: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tilewright.queues.room.Room.empty", none)
    x = np.ones(N, np.int32)
    queue.start_fusion()
    event = queue.submit(taken, (N,), x, queue.buffer(shape=(N,), dtype="s32"))
    queue.cancel_fusion()
    with pytest.raises(MemoryError):
        event.wait()


# Weights.


class Packs:
    """Counts what is packed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        pack = CompiledKernel.pack

        def counted(kernel: CompiledKernel, name: str, array: Any) -> Any:
            self.count += 1
            return pack(kernel, name, array)

        monkeypatch.setattr(CompiledKernel, "pack", counted)


@pytest.mark.parametrize("device", [device for device in QUEUES if device != "interpreter"])
def test_weights_are_packed_once(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packs = Packs(monkeypatch)
    kernel = tw.compile(tw.matmul("24x16:16x32"), device)
    same = tw.compile(tw.matmul("24x16:16x32", epilogue=[tw.relu()]), device)
    assert kernel.packed and kernel.packing["weights"].key == same.packing["weights"].key
    with tw.Queue(device) as queue:
        src = queue.buffer(np.ones((24, 16), np.float32))
        dst = queue.buffer(shape=(24, 32), dtype="f32")
        weights = queue.buffer(shape=(16, 32), dtype="f32")

        def run(what: CompiledKernel = kernel, taken: Any = weights) -> tuple[int, float]:
            """How often weights are packed, and an element of the product."""
            before = packs.count
            queue.submit(what, src=src, weights=taken, dst=dst).wait()
            return packs.count - before, float(dst.numpy()[3, 3])

        queue.fill(weights, 1.0)
        assert run() == (1, 16)
        assert run() == run(same) == run(taken=weights.read()) == (0, 16)
        # All that writes it counts, and parts of it, of which nobody has any more.
        queue.fill(weights[:, 3:5], 2.0)
        assert run() == (1, 32) and run() == (0, 32)
        with weights.host("write") as values:
            values[:] = 3.0
        assert run() == (1, 48) and run() == (0, 48)
        queue.host_task(lambda values: values.fill(1.0), weights)
        queue.submit(scale, (32,), 4.0, np.ones(32, np.float32), weights[3])
        assert run() == (1, 19) and run() == (0, 19)
        # A write that is still to come, behind a product that is late.
        event = queue.host_task(lambda values: values.fill(1.0), weights)
        products = [queue.submit(kernel, src=src, weights=weights) for _ in range(2)]
        queue.fill(weights, 5.0)
        products.append(queue.submit(kernel, src=src, weights=weights))
        assert [p.results["dst"].numpy()[0, 0] for p in products] == [16, 16, 80] and event.done
        assert run() == (0, 80)
        if device == "nvidia":
            return  # nobody has memory of a GPU
        # Who has the memory may write it: each run packs.
        value = np.asarray(weights)
        value[:] = 6.0
        assert run() == run() == (1, 96)


@pytest.mark.parametrize("device", [device for device in QUEUES if device != "interpreter"])
def test_fused_code_takes_packed_weights(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only commands write them; as the op does, whose epilogue the next kernel becomes."""
    packs = Packs(monkeypatch)
    product, relu = tw.matmul("24x16:16x32"), tw.elementwise("24x32", "relu")
    with tw.Queue(device) as queue:
        src, values = queue.buffer(np.ones((24, 16), "f4")), np.full((16, 32), 2, np.float32)
        weights, t = (queue.buffer(shape=s, dtype="f32") for s in ((16, 32), (24, 32)))
        dst = queue.buffer(shape=(24, 32), dtype="f32")

        def run(taken: Any = weights) -> tuple[int, float]:
            before = packs.count
            with queue.fusion(promote={t: "any"}, require=True):
                queue.submit(product, src=src, weights=taken, dst=t)
                queue.submit(relu, src=t, dst=dst)
            return float(dst.numpy()[3, 3]), packs.count - before

        queue.fill(weights, 1.0)
        assert run() == (16, 1) and run() == run(weights.read()) == (16, 0)
        queue.fill(weights, -1.0)
        queue.fill(weights[:, 3], 3.0)
        assert run() == (48, 1) and run() == (48, 0)
        assert run(values) == run(queue.buffer(values)) == (32, 0)  # these it reads as they lie
        assert not t.has_memory


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_of_the_callers_own(frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    packs = Packs(monkeypatch)
    array = np.ones((16, 32), np.float32)
    kernel = tw.compile(tw.matmul("24x16:16x32"), "x86")
    with tw.Queue("x86") as queue:
        array.flags.writeable = not frozen
        weights, view = queue.buffer(array), queue.buffer(array[:])
        src = np.ones((24, 16), np.float32)
        for taken in (weights, view):
            packs.count = 0
            for _ in range(3):
                event = queue.submit(kernel, src=src, weights=taken)
                event.wait()
            assert packs.count == (1 if frozen else 3)
        if not frozen:
            array[:] = 2.0
            event = queue.submit(kernel, src=src, weights=weights)
            assert (event.results["dst"].numpy() == 32).all()


def test_weights_that_do_not_fit_are_refused_at_once() -> None:
    kernel = tw.compile(tw.matmul("24x16:16x32"), "x86")
    with tw.Queue("x86") as queue:
        src = queue.buffer(np.ones((24, 16), np.float32))
        for shape, element in (((16, 31), "f32"), ((16, 32), "s32")):
            loose = queue.buffer(shape=shape, dtype=element)
            with pytest.raises(ArgumentError, match="weights has"):
                queue.submit(kernel, src=src, weights=loose)
