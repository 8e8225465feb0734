"""Weights of 4 and 8 bits, and quantized values, as PyTorch and ONNX say them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from needs import needs_x86
from tilewright.graph.passes.pipeline import optimized

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
helper = onnx.helper
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
RNG = np.random.default_rng


class Function(torch.nn.Module):  # type: ignore[misc]
    """A function of tensors and of buffers as a module."""

    def __init__(self, function: Callable[..., Any], **buffers: Any) -> None:
        super().__init__()
        self.function = function
        self.names = list(buffers)
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x: Any) -> Any:
        return self.function(x, *(getattr(self, name) for name in self.names))


def exported(module: Any, x: Any) -> Any:
    return tw.from_torch(torch.export.export(module, (x,)))


def integers(kernel: Any) -> bool:
    """Whether all its sums of products are those of u8 and s8."""
    text = str(kernel)
    return "add= s32(" in text and "f32 add=" not in text


@needs_x86
@pytest.mark.parametrize("target", ["interpreter", "x86"])
@pytest.mark.parametrize("shape", [(3, 64, 128), (16, 128, 64)])
def test_weights_of_4_bits_as_pytorch_packs_them(shape: tuple[int, int, int], target: str) -> None:
    m, n, k = shape
    rng = RNG(0)
    q = torch.tensor(rng.integers(0, 16, (n, k)), dtype=torch.int32)
    factors = torch.tensor(rng.uniform(0.5, 1.5, (k // 32, n, 2)), dtype=torch.float32)
    factors[0, 3, 0] = 0.0
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q, 1)
    x = torch.tensor(rng.normal(size=(m, k)), dtype=torch.float32)
    module = Function(
        lambda x, w, f: torch.ops.aten._weight_int4pack_mm_for_cpu(x, w, 32, f), w=packed, f=factors
    )
    program = tw.compile(exported(module, x), target=target, threads=1)
    each = factors.double().repeat_interleave(32, 0)
    weights = (q.T.double() - 8) * each[..., 0] + each[..., 1]
    wanted = (x.double() @ weights).numpy()
    np.testing.assert_allclose(program(x.numpy()), wanted, rtol=1e-4, atol=2e-3)
    np.testing.assert_allclose(module(x).numpy(), wanted, rtol=2e-2, atol=0.5)


def test_weights_of_8_bits_of_pytorch() -> None:
    rng = RNG(0)
    w = torch.tensor(rng.integers(-128, 128, (16, 32)), dtype=torch.int8)
    scales = torch.tensor(rng.uniform(0.5, 1.5, 16) / 100, dtype=torch.float32)
    x = torch.tensor(rng.normal(size=(4, 32)), dtype=torch.float32)
    module = Function(torch.ops.aten._weight_int8pack_mm, w=w, scales=scales)
    result = tw.compile(exported(module, x), target="interpreter")(x.numpy())
    wanted = x.double() @ (w.T.double() * scales.double())
    np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_what_pt2e_exports_multiplies_integers() -> None:
    import_module("torch.ao.quantization.fx._decomposed")
    d, rng = torch.ops.quantized_decomposed, RNG(0)
    weight = torch.tensor(rng.integers(-127, 128, (8, 4, 3, 3)), dtype=torch.int8)
    linear = torch.tensor(rng.integers(-127, 128, (5, 8)), dtype=torch.int8)
    scales = torch.tensor(rng.uniform(0.5, 1.5, 8) / 100, dtype=torch.float32)
    zeros = torch.zeros(8, dtype=torch.int64)

    def net(x: Any, w: Any, s: Any, z: Any, v: Any) -> Any:
        q = d.quantize_per_tensor(x, 0.05, 7, -128, 127, torch.int8)
        x = d.dequantize_per_tensor(q, 0.05, 7, -128, 127, torch.int8)
        w = d.dequantize_per_channel(w, s, z, 0, -127, 127, torch.int8)
        y = torch.nn.functional.conv2d(x, w, None, 1, 1).relu()
        q = d.quantize_per_tensor(y, 0.0625, 3, 0, 255, torch.uint8)
        y = d.dequantize_per_tensor(q, 0.0625, 3, 0, 255, torch.uint8).mean((2, 3))
        q = d.quantize_per_tensor(y, 0.015625, 3, 0, 255, torch.uint8)
        y = d.dequantize_per_tensor(q, 0.015625, 3, 0, 255, torch.uint8)
        v = d.dequantize_per_tensor(v, 0.01, 0, -127, 127, torch.int8)
        return torch.nn.functional.linear(y, v)

    x = torch.tensor(rng.normal(size=(2, 4, 6, 6)) * 2, dtype=torch.float32)
    module = Function(net, w=weight, s=scales, z=zeros, v=linear)
    graph = exported(module, x)
    assert integers(optimized(graph.kernel))
    result = tw.compile(graph, target="interpreter")(x.numpy())
    np.testing.assert_allclose(result, module(x).numpy(), atol=0.02)


def blocks(rng: Any, kind: str, n: int, k: int, group: int) -> tuple[Any, Any]:
    """A model of one product by weights with scales and zero points of groups, and these."""
    groups = k // group
    q, z = rng.integers(0, 16, (n, k)), rng.integers(0, 16, (n, groups))
    scale = rng.uniform(0.5, 1.5, (n, groups)).astype(np.float32) / 10
    if kind == "s4":
        q, z = q - 8, z - 8
    weights = (q.reshape(n, groups, group) - z[..., None]) * scale.astype(np.float64)[..., None]
    constants: dict[str, Any] = {"s": scale}
    if kind == "nbits":
        constants["q"] = (q[:, 0::2] | q[:, 1::2] << 4).astype(np.uint8).reshape(n, groups, -1)
        wide = np.pad(z, ((0, 0), (0, groups % 2)))
        constants["z"] = (wide[:, 0::2] | wide[:, 1::2] << 4).astype(np.uint8).reshape(-1)
        attributes = {"N": n, "K": k, "bits": 4, "block_size": group}
        node = helper.make_node(
            "MatMulNBits", ["x", "q", "s", "z"], ["y"], domain="com.microsoft", **attributes
        )
        nodes = [node]
    else:
        type_ = ml_dtypes.int4 if kind == "s4" else ml_dtypes.uint4
        constants |= {"q": q.T.astype(type_), "z": z.T.astype(type_), "s": scale.T.copy()}
        nodes = [
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0, block_size=group),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ]
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", 1, (2, k))],
        [helper.make_tensor_value_info("y", 1, (2, n))],
        [onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10), weights.reshape(n, k)


@needs_x86
@pytest.mark.parametrize("kind", ["nbits", "s4", "u4"])
def test_products_read_weights_of_4_bits(kind: str) -> None:
    rng = RNG(0)
    model, weights = blocks(rng, kind, 512, 1184, 32)
    program = tw.compile(tw.from_onnx(model), target="x86", threads=1)
    x = rng.normal(size=(2, 1184)).astype(np.float32)
    np.testing.assert_allclose(program(x=x), x @ weights.T, rtol=1e-4, atol=1e-3)
    # Two weights to a byte, and nothing as large as floats beside them.
    (launch,) = program.launches
    sizes = {buffer.name: buffer.bytes for buffer in launch.buffers}
    assert max(sizes.values()) == 512 * 1184 // 2, sizes
