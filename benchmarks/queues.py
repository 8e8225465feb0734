#!/usr/bin/env python3
"""Times queues: what a submission costs, independent kernels in and out of order, chains of
elementwise kernels fused and one by one, other lists, and blocks of networks that are submitted
layer by layer to a queue that fuses without being told (images are small: 56x56 at most).

Times are the medians of rounds that take turns. Where torch is there, it runs the blocks beside. A
submission's time is processor time of the thread that submits, to a queue whose commands wait. A
chain's ideal ratio is that of the bytes that move.

Exit status: 0.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import tilewright as tw

EXAMPLES = """examples:
  python benchmarks/queues.py
  python benchmarks/queues.py --device spirv --only chains --rounds 9
"""
PARTS = ("submit", "independent", "chains", "fusions", "shapes", "epilogue", "blocks")
KERNELS = 16
SUBMISSIONS = 500


@tw.kernel
def spin(n: tw.s32, x: tw.array("f32", 1)):
    i = tw.global_id(0)
    value = x[i]
    for _ in range(n):
        value = value * 0.999 + 0.5
    x[i] = value


@tw.kernel
def scale(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i]


def filled(queue: tw.Queue, *shape: int) -> tw.Buffer:
    """A buffer in the device's memory, of ones."""
    buffer = queue.buffer(shape=shape, dtype="f32")
    queue.fill(buffer, 1.0)
    return buffer


def median(call: Callable[[], None], rounds: int) -> float:
    """Seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def submissions(device: str, rounds: int) -> None:
    times = []
    with tw.Queue(device) as queue:
        x, y = (filled(queue, 64) for _ in range(2))
        queue.submit(scale, (64,), 64, 2.0, x, y).wait()
        for _ in range(rounds):
            gate = threading.Event()
            queue.host_task(lambda values, gate=gate: gate.wait(60), y)
            start = time.thread_time()
            for _ in range(SUBMISSIONS):
                queue.submit(scale, (64,), 64, 2.0, x, y)
            times.append((time.thread_time() - start) / SUBMISSIONS)
            gate.set()
            queue.wait()
    print(f"submit: {statistics.median(times) * 1e6:.1f} us")


def independent(device: str, rounds: int) -> None:
    seconds = {}
    for in_order in (True, False):
        with tw.Queue(device, in_order=in_order) as queue:
            buffers = [filled(queue, 64) for _ in range(KERNELS)]

            def run(queue: tw.Queue = queue, buffers: list[tw.Buffer] = buffers) -> None:
                for buffer in buffers:
                    queue.submit(spin, (64,), 100_000, buffer, local=(64,))
                queue.wait()

            run()
            seconds[in_order] = median(run, rounds)
    print(
        f"{KERNELS} independent kernels: in order {seconds[True] * 1e3:.2f} ms, out of order "
        f"{seconds[False] * 1e3:.2f} ms, {seconds[True] / seconds[False]:.2f} x"
    )


def chains(device: str, rounds: int, mebibytes: int) -> None:
    n = mebibytes * 2**20 // 4
    with tw.Queue(device) as queue:
        for length in (2, 4, 8):
            buffers = [filled(queue, n) for _ in range(length + 1)]
            inner = dict.fromkeys(buffers[1:-1], "private")

            def submit(buffers: list[tw.Buffer] = buffers) -> None:
                for source, to in pairwise(buffers):
                    queue.submit(scale, (n,), n, 0.5, source, to)

            def one_by_one(submit: Callable[[], None] = submit) -> None:
                submit()
                queue.wait()

            def fused(
                submit: Callable[[], None] = submit, inner: dict[tw.Buffer, str] = inner
            ) -> None:
                with queue.fusion(promote=inner, constants=True, require=True) as fusion:
                    submit()
                fusion.event.wait()

            one_by_one()
            fused()
            apart, together = median(one_by_one, rounds), median(fused, rounds)
            print(
                f"chain of {length} on {mebibytes} MiB: one by one {apart * 1e3:.1f} ms, fused "
                f"{together * 1e3:.1f} ms, {apart / together:.2f} x, ideal {length:.2f} x"
            )
            for buffer in buffers:
                buffer.close()


def small_fusions(device: str, rounds: int) -> None:
    """Both to a queue whose commands wait."""
    listed, again = [], []
    with tw.Queue(device) as queue:
        buffers = [filled(queue, 64) for _ in range(5)]
        other = filled(queue, 64)
        inner = dict.fromkeys(buffers[1:-1], "private")
        for _ in range(rounds + 1):
            gate = threading.Event()
            queue.host_task(lambda *values, gate=gate: gate.wait(60), buffers[-1], other)
            for _ in range(20):
                start = time.thread_time()
                with queue.fusion(promote=inner, constants=True, require=True) as fusion:
                    for source, to in pairwise(buffers):
                        queue.submit(scale, (64,), 64, 0.5, source, to)
                listed.append(time.thread_time() - start)
            for _ in range(20):
                start = time.thread_time()
                fusion.submit(replace=[(buffers[-1], other)])
                again.append(time.thread_time() - start)
            gate.set()
            queue.wait()
    for name, times in {"fused from the cache": listed, "the same fusion again": again}.items():
        print(f"four kernels, {name}: {statistics.median(times[20:]) * 1e6:.0f} us")


def turns(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each of ``calls``, which take turns; each runs twice before."""
    for call in (*calls.values(), *calls.values()):
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(value) for name, value in times.items()}


def shown(what: str, seconds: dict[str, float]) -> None:
    first, second = list(seconds)[:2]
    each = ", ".join(f"{name} {value * 1e3:.2f} ms" for name, value in seconds.items())
    print(f"{what}: {each}, {seconds[first] / seconds[second]:.2f} x", flush=True)


@tw.kernel
def add(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1), z: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i < n:
        z[i] = x[i] + y[i]


@tw.kernel
def smoothed(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    tile = tw.local((256,), "f32")
    i = tw.local_id(0)
    tile[i] = x[tw.global_id(0)]
    tw.barrier()
    y[tw.global_id(0)] = 0.5 * tile[i] + 0.25 * (tile[(i + 1) % 256] + tile[(i + 255) % 256])


def shapes(device: str, rounds: int, mebibytes: int) -> None:
    """A diamond, a pair of stencils within groups, and elementwise, row reduction, elementwise."""
    n = mebibytes * 2**20 // 4
    rows = n // 1024
    with tw.Queue(device) as queue:
        x, s, t, y = (filled(queue, n) for _ in range(4))
        table, total = (filled(queue, rows, k) for k in (1024, 1))
        other, last = (filled(queue, rows, 1024) for _ in range(2))
        squares = tw.elementwise(f"{rows}x1024", "square")
        sums = tw.reduce(f"{rows}x1024:{rows}x1", algorithm="sum")
        minus = tw.elementwise(f"{rows}x1024:{rows}x1", "sub")

        def diamond() -> None:
            queue.submit(scale, (n,), n, 0.5, x, s)
            queue.submit(scale, (n,), n, 0.25, x, t)
            queue.submit(add, (n,), n, s, t, y)

        def stencils() -> None:
            queue.submit(smoothed, (n,), x, t, local=(256,))
            queue.submit(smoothed, (n,), t, y, local=(256,))

        def reduced() -> None:
            queue.submit(squares, src=table, dst=other)
            queue.submit(sums, src=other, dst=total)
            queue.submit(minus, src0=other, src1=total, dst=last)

        lists = {
            "diamond": (diamond, {s: "any", t: "any"}),
            "pair of stencils": (stencils, {t: "any"}),
            "elementwise, row sums, elementwise": (reduced, {other: "any", total: "any"}),
        }
        for name, (submit, promote) in lists.items():

            def one_by_one(submit: Callable[[], None] = submit) -> None:
                submit()
                queue.wait()

            def fused(
                submit: Callable[[], None] = submit, promote: dict[tw.Buffer, str] = promote
            ) -> None:
                with queue.fusion(promote=promote, constants=True) as fusion:
                    submit()
                fusion.event.wait()

            seconds = turns({"one by one": one_by_one, "fused": fused}, rounds)
            shown(f"{name} on {mebibytes} MiB", seconds)
            assert queue.fusion_report is not None
            if not queue.fusion_report.fused:
                print(queue.fusion_report)


class Layers:
    """Ops of networks on images whose channels lie last, each made once, and their parameters."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.ops: dict[tuple[object, ...], object] = {}
        self.arrays: dict[str, np.ndarray] = {}

    def image(self, channels: int, size: int) -> np.ndarray:
        return self.random.random((1, size, size, channels), np.float32).transpose(0, 3, 1, 2)

    def buffer(self, queue: tw.Queue, image: np.ndarray) -> tw.Buffer:
        """An image, which has no negative values, in the device's memory."""
        shape = "x".join(map(str, image.shape))
        op = self.op(tw.elementwise, shape, "abs", src="nhwc", dst="nhwc")
        return queue.submit(op, src=image).results["dst"]

    def array(self, name: str, *shape: int) -> np.ndarray:
        if name not in self.arrays:
            self.arrays[name] = (self.random.random(shape, np.float32) - 0.5) / shape[-1]
        return self.arrays[name]

    def convolution(self, inputs: int, outputs: int, size: int, taps: int) -> object:
        text = f"mb1ic{inputs}ih{size}oc{outputs}oh{size}kh{taps}ph{taps // 2}"
        return self.op(tw.convolution, text, src="nhwc", dst="nhwc")

    def op(self, make: Callable[..., object], *arguments: str, **layouts: str) -> object:
        key = (make, *arguments)
        if key not in self.ops:
            self.ops[key] = make(*arguments, **layouts)
        return self.ops[key]


class Network(Layers):
    """Blocks of a network, submitted layer by layer."""

    def __init__(self, queue: tw.Queue, layers: Layers) -> None:
        self.queue, self.layers = queue, layers
        self.buffers: dict[str, tw.Buffer] = {}

    def buffer(self, name: str, *shape: int) -> tw.Buffer:
        if name not in self.buffers:
            self.buffers[name] = self.queue.buffer(shape=shape, dtype="f32")
            self.queue.copy(self.buffers[name], self.layers.array(name, *shape))
        return self.buffers[name]

    def conv(self, x: tw.Buffer, name: str, outputs: int, taps: int) -> tw.Buffer:
        inputs, size = x.shape[1:3]
        weights = self.buffer(f"{name} weights {inputs} {outputs}", outputs, inputs, taps, taps)
        op = self.layers.convolution(inputs, outputs, size, taps)
        return self.queue.submit(op, src=x, weights=weights).results["dst"]

    def channels(self, x: tw.Buffer, function: str, name: str) -> tw.Buffer:
        _, channels, size, _ = x.shape
        text = f"1x{channels}x{size}x{size}:1x{channels}x1x1"
        other = self.buffer(f"{name} {channels}", 1, channels, 1, 1)
        op = self.layers.op(tw.elementwise, text, function, src="nhwc", src1="nhwc", dst="nhwc")
        return self.queue.submit(op, src0=x, src1=other).results["dst"]

    def plus(self, x: tw.Buffer, y: tw.Buffer) -> tw.Buffer:
        shape = "x".join(map(str, x.shape))
        text = f"{shape}:{shape}"
        op = self.layers.op(tw.elementwise, text, "add", src="nhwc", src1="nhwc", dst="nhwc")
        return self.queue.submit(op, src0=x, src1=y).results["dst"]

    def relu(self, x: tw.Buffer) -> tw.Buffer:
        shape = "x".join(map(str, x.shape))
        op = self.layers.op(tw.elementwise, shape, "relu", src="nhwc", dst="nhwc")
        return self.queue.submit(op, src=x).results["dst"]

    def vgg(self, x: tw.Buffer) -> tw.Buffer:
        for number in range(2):
            x = self.conv(x, f"conv {number}", x.shape[1], 3)
            x = self.relu(self.channels(x, "add", f"bias {number}"))
        return x

    def resnet(self, x: tw.Buffer) -> tw.Buffer:
        y, channels = x, x.shape[1]
        for number, taps in enumerate((1, 3, 1)):
            y = self.conv(y, f"conv {number}", channels // 4 if number < 2 else channels, taps)
            y = self.channels(y, "mul", f"scale {number}")
            y = self.channels(y, "add", f"shift {number}")
            y = self.relu(y) if number < 2 else self.plus(y, x)
        return self.relu(y)


class Torch(Network):
    """The same by torch, which runs each layer when it is called."""

    def __init__(self, torch: Any, layers: Layers, device: str) -> None:
        self.torch, self.layers = torch, layers
        self.device = "cuda" if device.startswith("nvidia") else "cpu"
        self.kept: dict[str, Any] = {}

    def weights(self, name: str, *shape: int) -> Any:
        if name not in self.kept:
            self.kept[name] = self.tensor(self.layers.array(name, *shape))
        return self.kept[name]

    def tensor(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array).to(self.device)

    def conv(self, x: Any, name: str, outputs: int, taps: int) -> Any:
        inputs = x.shape[1]
        weights = self.weights(f"{name} weights {inputs} {outputs}", outputs, inputs, taps, taps)
        return self.torch.nn.functional.conv2d(x, weights, padding=taps // 2)

    def channels(self, x: Any, function: str, name: str) -> Any:
        other = self.weights(f"{name} {x.shape[1]}", 1, x.shape[1], 1, 1)
        return x * other if function == "mul" else x + other

    def plus(self, x: Any, y: Any) -> Any:
        return x + y

    def relu(self, x: Any) -> Any:
        return self.torch.relu(x)


def epilogue(device: str, rounds: int) -> None:
    """A convolution, scale, bias, relu and a sum, submitted as five and fused, beside the op with
    that epilogue."""
    channels, size = 64, 56
    layers = Layers()
    with tw.Queue(device) as queue:
        x, other = (layers.buffer(queue, layers.image(channels, size)) for _ in range(2))
        weights, scales, bias = (
            queue.buffer(shape=shape, dtype="f32")
            for shape in ((channels, channels, 3, 3), *[(1, channels, 1, 1)] * 2)
        )
        for number, buffer in enumerate((weights, scales, bias)):
            queue.copy(buffer, layers.array(str(number), *buffer.shape))
        between = [layers.buffer(queue, layers.image(channels, size)) for _ in range(5)]
        promote = dict.fromkeys(between[:-1], "any")
        text = f"mb1ic{channels}ih{size}oc{channels}oh{size}kh3ph1"
        plain = layers.convolution(channels, channels, size, 3)
        whole = f"1x{channels}x{size}x{size}"
        tags = {"src": "nhwc", "src1": "nhwc", "dst": "nhwc"}
        times, plus = (
            tw.elementwise(f"{whole}:1x{channels}x1x1", function, **tags)
            for function in ("mul", "add")
        )
        relu = tw.elementwise(whole, "relu", src="nhwc", dst="nhwc")
        both = tw.elementwise(f"{whole}:{whole}", "add", **tags)

        def five() -> None:
            queue.submit(plain, src=x, weights=weights, dst=between[0])
            queue.submit(times, src0=between[0], src1=scales, dst=between[1])
            queue.submit(plus, src0=between[1], src1=bias, dst=between[2])
            queue.submit(relu, src=between[2], dst=between[3])
            queue.submit(both, src0=between[3], src1=other, dst=between[4])

        def one_by_one() -> None:
            five()
            queue.wait()

        def fused() -> None:
            with queue.fusion(promote=promote) as fusion:
                five()
            fusion.event.wait()

        op = tw.convolution(
            text,
            src="nhwc",
            dst="nhwc",
            epilogue=[
                *(tw.mul("scale", policy="per_oc"), tw.add("bias", policy="per_oc")),
                *(tw.relu(), tw.add("residual")),
            ],
        )
        dst = layers.buffer(queue, layers.image(channels, size))
        parameters = {"weights": weights, "scale": scales, "bias": bias, "dst": dst}

        def as_op() -> None:
            queue.submit(op, src=x, residual=other, **parameters).wait()

        calls = {"op with its epilogue": as_op, "fused": fused, "one by one": one_by_one}
        seconds = turns(calls, rounds)
        shown("conv, scale, bias, relu, add", seconds)
        assert queue.fusion_report is not None
        if not queue.fusion_report.fused:
            print(queue.fusion_report)
        for call in (one_by_one, fused):
            queue.fill(between[-1], 0.0)
            call()
            np.testing.assert_allclose(between[-1].numpy(), dst.numpy(), rtol=1e-3, atol=1e-4)


def blocks(device: str, rounds: int) -> None:
    """Three blocks in a row, one by one and without being told."""
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None:
        torch.set_grad_enabled(False)
        torch.backends.cudnn.allow_tf32 = False  # on GPUs it would round f32 to 10 bits
    layers = Layers()
    sizes = {"vgg": ((64, 56), (128, 28), (256, 28), (512, 14))}
    sizes["resnet"] = ((256, 56), (512, 28), (1024, 14), (2048, 7))
    for name, each in sizes.items():
        for channels, size in each:
            block(device, rounds, name, layers.image(channels, size), layers, torch)


def block(
    device: str, rounds: int, name: str, image: np.ndarray, layers: Layers, torch: Any
) -> None:
    calls: dict[str, Callable[[], object]] = {}
    last: dict[str, np.ndarray] = {}
    with tw.Queue(device) as plain, tw.Queue(device, fusion="auto") as auto:
        nets: dict[str, Network] = {}
        inputs: dict[str, Any] = {}
        for kind, queue in (("one by one", plain), ("auto", auto)):
            nets[kind], inputs[kind] = Network(queue, layers), layers.buffer(queue, image)
        if torch is not None:
            net = Torch(torch, layers, device)
            nets["torch"], inputs["torch"] = net, net.tensor(image)
        for kind, net in nets.items():

            def run(kind: str = kind, net: Network = net) -> None:
                x = inputs[kind]
                for _ in range(3):
                    x = getattr(net, name)(x)
                last[kind] = x.cpu().numpy() if kind == "torch" else x.numpy()

            calls[kind] = run
        for _ in range(5):  # batches of several lengths are met
            calls["auto"]()
        # By itself: threads of torch's that wait take time from others.
        beside = {kind: calls.pop(kind) for kind in tuple(calls) if kind == "torch"}
        shown(f"{name}, {image.shape}", turns(calls, rounds) | turns(beside, rounds))
        for kind, values in last.items():
            wanted = last["one by one"]
            atol = 1e-3 * float(np.abs(wanted).max())
            np.testing.assert_allclose(values, wanted, 0, atol, err_msg=kind)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="x86", help="the target of the queues (default: x86)")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--mebibytes", type=int, default=64, help="of each array of a chain")
    options = parser.parse_args()
    if options.only in (None, "submit"):
        submissions(options.device, options.rounds)
    if options.only in (None, "independent"):
        independent(options.device, options.rounds)
    if options.only in (None, "fusions"):
        small_fusions(options.device, options.rounds)
    if options.only in (None, "chains"):
        chains(options.device, options.rounds, options.mebibytes)
    if options.only in (None, "shapes"):
        shapes(options.device, options.rounds, options.mebibytes)
    if options.only in (None, "epilogue"):
        epilogue(options.device, options.rounds)
    if options.only in (None, "blocks"):
        blocks(options.device, options.rounds)


if __name__ == "__main__":
    main()
