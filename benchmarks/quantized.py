"""Quantized networks (ONNX, QDQ) beside the same in f32, onnxruntime and OpenVINO.

    python benchmarks/quantized.py resnet mobilenet bert --threads 2

Weights are random, of s8 with a scale for each channel; what lies between layers is of u8 with a
zero point. All sides run in turns; times are medians in milliseconds. ``step`` is the greatest
difference from onnxruntime's result, in steps of the result's quantization.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

STEP, ZERO = np.float32(0.03), np.uint8(118)


class Net:
    """Collects a graph: of floats, or quantized where onnxruntime's quantizer would."""

    def __init__(self, quantized: bool) -> None:
        self.quantized, self.rng = quantized, np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def rounded(self, x: str, zero: int | None = None, step: Any = STEP) -> str:
        """An activation, quantized and back."""
        if not self.quantized:
            return x
        factors = [self.constant(step), self.constant(ZERO if zero is None else np.uint8(zero))]
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *factors), *factors)

    def weight(self, shape: tuple[int, ...], fan_in: int, axis: int) -> tuple[str, Any]:
        q = self.rng.integers(-127, 128, shape).astype(np.int8)
        scale = self.rng.uniform(0.5, 1.5, shape[axis]).astype(np.float32)
        scale *= np.float32(1.4 / 73 / fan_in**0.5)
        if not self.quantized:
            along = [1] * len(shape)
            along[axis] = -1
            return self.constant(q * scale.reshape(along)), scale
        zeros = np.zeros(shape[axis], np.int8)
        factors = [self.constant(scale), self.constant(zeros)]
        return self.node("DequantizeLinear", self.constant(q), *factors, axis=axis), scale

    def bias(self, scale: Any) -> str:
        q = self.rng.integers(-3000, 3000, scale.shape).astype(np.int32)
        step = (scale * STEP).astype(np.float32)
        if not self.quantized:
            return self.constant(q.astype(np.float32) * step)
        factors = [self.constant(step), self.constant(np.zeros(scale.shape, np.int32))]
        return self.node("DequantizeLinear", self.constant(q), *factors, axis=0)

    def conv(self, x: str, c: int, o: int, k: int = 1, s: int = 1, group: int = 1) -> str:
        w, scale = self.weight((o, c // group, k, k), c // group * k * k, 0)
        more = {"kernel_shape": [k, k], "strides": [s, s], "pads": [k // 2] * 4, "group": group}
        return self.node("Conv", x, w, self.bias(scale), **more)

    def linear(self, x: str, i: int, o: int) -> str:
        w, scale = self.weight((i, o), i, 1)
        return self.node("Add", self.node("MatMul", x, w), self.bias(scale))

    def model(self, shape: tuple[int, ...], out: str, size: tuple[int, ...]) -> Any:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "net",
            [value("x", TensorProto.FLOAT, shape)],
            [value(out, TensorProto.FLOAT, size)],
            self.constants,
        )
        sets = [helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=sets, ir_version=10)


def resnet(net: Net) -> Any:
    """ResNet-50."""
    x = net.rounded(net.node("Relu", net.conv(net.rounded("x"), 3, 64, 7, 2)), 0)
    more = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    x, channels = net.rounded(net.node("MaxPool", x, **more), 0), 64
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for n in range(blocks):
            s = stride if n == 0 else 1
            y = net.rounded(net.node("Relu", net.conv(x, channels, width)), 0)
            y = net.rounded(net.node("Relu", net.conv(y, width, width, 3, s)), 0)
            y = net.rounded(net.conv(y, width, 4 * width))
            if n == 0:
                x = net.rounded(net.conv(x, channels, 4 * width, 1, s))
            x, channels = net.rounded(net.node("Relu", net.node("Add", y, x)), 0), 4 * width
    x = net.rounded(net.node("Flatten", net.node("GlobalAveragePool", x)), 0)
    return net.model((1, 3, 224, 224), net.rounded(net.linear(x, 2048, 1000)), (1, 1000))


def mobilenet(net: Net) -> Any:
    """MobileNetV2."""
    low, high = net.constant(np.float32(0)), net.constant(np.float32(6))

    def clipped(y: str) -> str:
        return net.rounded(net.node("Clip", y, low, high), 0, np.float32(6 / 255))

    x, channels = clipped(net.conv(net.rounded("x"), 3, 32, 3, 2)), 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2))
    for factor, width, blocks, stride in (*table, (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for n in range(blocks):
            s, inside = stride if n == 0 else 1, channels * factor
            y = x if factor == 1 else clipped(net.conv(x, channels, inside))
            y = clipped(net.conv(y, inside, inside, 3, s, inside))
            y = net.rounded(net.conv(y, inside, width))
            x = net.rounded(net.node("Add", x, y)) if s == 1 and channels == width else y
            channels = width
    x = clipped(net.conv(x, 320, 1280))
    x = net.rounded(net.node("Flatten", net.node("GlobalAveragePool", x)), 0)
    return net.model((1, 3, 224, 224), net.rounded(net.linear(x, 1280, 1000)), (1, 1000))


def bert(net: Net) -> Any:
    """Two layers of BERT base, 128 tokens."""
    heads = net.constant(np.array([1, 128, 12, 64]))
    whole = net.constant(np.array([1, 128, 768]))
    ones = net.constant(np.ones(768, np.float32)), net.constant(np.zeros(768, np.float32))

    def split(y: str, order: list[int]) -> str:
        return net.node("Transpose", net.node("Reshape", net.rounded(y), heads), perm=order)

    x = net.rounded("x")
    for _ in range(2):
        q, k, v = (net.linear(x, 768, 768) for _ in range(3))
        scores = net.node("MatMul", split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]))
        scores = net.node("Mul", scores, net.constant(np.float32(0.125)))
        shares = net.rounded(net.node("Softmax", scores, axis=-1), 0, np.float32(1 / 255))
        y = net.node("MatMul", shares, split(v, [0, 2, 1, 3]))
        y = net.node("Reshape", net.node("Transpose", y, perm=[0, 2, 1, 3]), whole)
        y = net.linear(net.rounded(y), 768, 768)
        x = net.rounded(net.node("LayerNormalization", net.node("Add", x, y), *ones))
        y = net.rounded(net.node("Gelu", net.linear(x, 768, 3072)))
        y = net.linear(y, 3072, 768)
        x = net.rounded(net.node("LayerNormalization", net.node("Add", x, y), *ones))
    return net.model((1, 128, 768), x, (1, 128, 768))


NETS = {each.__name__: each for each in (resnet, mobilenet, bert)}
Call = Callable[[], Any]


def ours(model: Any, x: Any, threads: int) -> Call:
    program = tw.compile(tw.from_onnx(model), target="x86", threads=threads)
    return lambda: program(x=x)


def by_onnxruntime(model: Any, x: Any, threads: int) -> Call:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    result = model.SerializeToString()
    session = ort.InferenceSession(result, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})[0]


def by_openvino(model: Any, x: Any, threads: int) -> Call:
    import io

    import openvino as ov

    core = ov.Core()
    config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    read = core.read_model(io.BytesIO(model.SerializeToString()))
    request = core.compile_model(read, "CPU", config).create_infer_request()
    return lambda: request.infer({"x": x}, share_inputs=True, share_outputs=True)[0]


def measured(name: str, threads: int, seconds: float) -> str:
    """A line of a table."""
    quantized, plain = NETS[name](Net(True)), NETS[name](Net(False))
    shape = [d.dim_value for d in quantized.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    calls = {
        "int8": ours(quantized, x, threads),
        "f32": ours(plain, x, threads),
        "onnxruntime": by_onnxruntime(quantized, x, threads),
        "openvino": by_openvino(quantized, x, threads),
    }
    results = {side: np.array(call(), np.float32) for side, call in calls.items()}
    times: dict[str, list[float]] = {side: [] for side in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for side, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            times[side].append(time.perf_counter() - start)
    line = "  ".join(f"{s} {statistics.median(t) * 1e3:7.2f}" for s, t in times.items())
    exact = results["onnxruntime"]
    steps = {s: float(np.abs(r - exact).max() / STEP) for s, r in results.items()}
    return f"{name:10} {line}  step {steps['int8']:.1f} (openvino {steps['openvino']:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NET", help=", ".join(NETS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--save", metavar="FOLDER", help="write the models only")
    args = parser.parse_args()
    for name in args.names or NETS:
        if args.save:
            onnx.save(NETS[name](Net(True)), f"{args.save}/{name}.onnx")
        else:
            print(measured(name, args.threads, args.seconds), flush=True)


if __name__ == "__main__":
    main()
