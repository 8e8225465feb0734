"""`CompiledKernel.pack` takes arrays in any order, of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import inputs
from tilewright.engine import CompiledKernel, Packed
from tilewright.engine.compile import forget
from tilewright.engine.trace import Trace
from tilewright.errors import ArgumentError
from tilewright.targets.llvm.module import Module
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target

pytestmark = pytest.mark.usefixtures("own_cache")
SHAPE = (16, 8, 3, 3)


@pytest.fixture
def kernel(own_cache: object) -> CompiledKernel:
    """A convolution whose weights are packed."""
    op = tw.convolution("mb1ic8ih6oc16kh3ph1", src="nhwc", dst="nhwc", epilogue=[tw.bias()])
    return tw.compile(op, threads=1)


def result(kernel: CompiledKernel, weights: Any) -> Any:
    arrays = inputs(kernel)
    return kernel(src=arrays["src"], weights=kernel.pack("weights", weights), bias=arrays["bias"])


def misaligned(array: Any) -> Any:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    results = raw[1:].view(np.float32).reshape(array.shape)
    results[...] = array
    return results


ORDERS: dict[str, Callable[[Any], Any]] = {
    "channels last": lambda w: w.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2),
    "reversed": lambda w: w[::-1, :, ::-1].copy()[::-1, :, ::-1],
    "part": lambda w: np.pad(w, 1)[1:-1, 1:-1, 1:-1, 1:-1],
    "every other": lambda w: np.repeat(w, 2, axis=1)[:, ::2],
    "misaligned": misaligned,
}


@pytest.mark.parametrize("order", ORDERS)
def test_any_order(kernel: CompiledKernel, order: str) -> None:
    weights = inputs(kernel)["weights"]
    array = ORDERS[order](weights)
    assert array.strides != weights.strides or order == "misaligned"
    np.testing.assert_array_equal(result(kernel, array), result(kernel, weights))
    with pytest.raises(ArgumentError, match="weights has shape"):
        kernel.pack("weights", array[1:])
    with pytest.raises(ArgumentError, match="weights has f64 elements"):
        kernel.pack("weights", array.astype(np.float64))


def test_one_element_for_all(kernel: CompiledKernel) -> None:
    ones = np.broadcast_to(np.float32(1), SHAPE)
    np.testing.assert_array_equal(result(kernel, ones), result(kernel, np.ones(SHAPE, np.float32)))


def test_torch(kernel: CompiledKernel) -> None:
    torch = pytest.importorskip("torch")
    plain = inputs(kernel)["weights"]
    wanted = result(kernel, plain)
    weights = torch.from_numpy(plain.copy()).to(memory_format=torch.channels_last)
    assert not weights.is_contiguous()
    np.testing.assert_array_equal(result(kernel, weights), wanted)
    parameter = torch.nn.Parameter(weights)
    with pytest.raises(ArgumentError, match=r"requires grad[^$]*torch\.no_grad\(\)"):
        kernel.pack("weights", parameter)
    with torch.no_grad():
        np.testing.assert_array_equal(result(kernel, parameter), wanted)
    with torch.inference_mode():
        np.testing.assert_array_equal(result(kernel, parameter), wanted)


def test_parameters_in_calls(kernel: CompiledKernel) -> None:
    """Also after a call without them, which makes the next ones quicker."""
    torch = pytest.importorskip("torch")
    arrays = inputs(kernel)
    weights = kernel.pack("weights", arrays["weights"])
    bias = torch.nn.Parameter(torch.from_numpy(arrays["bias"]))
    wanted = kernel(arrays["src"], weights, arrays["bias"])
    for values in (bias, bias.detach(), bias):
        with torch.no_grad():
            results = kernel(arrays["src"], weights, values)
        assert not results.requires_grad
        np.testing.assert_array_equal(results, wanted)
        with pytest.raises(ArgumentError, match="bias is a torch tensor, one that requires grad"):
            kernel(arrays["src"], weights, bias)


def test_bf16_of_torch_and_jax() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    op = tw.convolution("mb1ic8ih6oc16kh3ph1", dtype="bf16", src="nhwc", dst="nhwc")
    kernel = tw.compile(op, threads=1)
    arrays = inputs(kernel)
    plain = arrays["weights"]
    wanted = kernel(arrays["src"], kernel.pack("weights", plain)).astype(np.float32)
    tensor = torch.from_numpy(plain.astype(np.float32)).bfloat16()
    for weights in (tensor.to(memory_format=torch.channels_last), jax.numpy.asarray(plain)):
        results = kernel(arrays["src"], kernel.pack("weights", weights))
        np.testing.assert_array_equal(results.astype(np.float32), wanted)


def test_what_needs_no_packing() -> None:
    """It is a copy only where it lies otherwise, and then of its library."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    op = tw.matmul("3x4:4x5", weights="ba", epilogue=[tw.sum()])
    kernel = tw.compile(op, threads=1)
    weights = np.arange(20, dtype=np.float32).reshape(4, 5)
    assert kernel.packed == ()
    fitting = np.asfortranarray(weights)
    assert kernel.pack("weights", fitting) is fitting
    out, ones = np.zeros((3, 5), np.float32), np.ones((3, 4), np.float32)
    for values, kind in (
        (weights, np.ndarray),
        (torch.from_numpy(weights), torch.Tensor),
        (jax.numpy.asarray(weights), jax.Array),
    ):
        results = kernel.pack("weights", values)
        assert isinstance(results, kind) and results is not values
        kernel(ones, results, out=out)
    assert (out == 3 * (ones @ weights)).all()
    # Results are written where the caller has them, whatever they look like.
    wrong = np.zeros((5, 3), np.float32).T
    assert kernel.pack("dst", wrong) is wrong


def test_numbers_are_returned() -> None:
    text = """
kernel scale(n: s64 in 1..64, alpha: f32, in x: f32[n], out y: f32[n]):
  compute scale(i in n):
    y[i] = alpha * x[i]
"""
    kernel = tw.compile(tw.parse_kernel(text), threads=1)
    x = np.ones(9, np.float32)
    assert kernel.pack("alpha", 2.0) == 2.0 and kernel.pack("x", x[::-1]).base is x


def test_packed_says_what_it_is(kernel: CompiledKernel) -> None:
    packed = kernel.pack("weights", inputs(kernel)["weights"])
    assert type(packed) is Packed and packed.device is None
    (memory,) = packed.data
    assert packed.pointers == (memory.ctypes.data,) and memory.ctypes.data % 64 == 0


def test_equal_code_is_assembled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    target = type(find_target("x86"))
    assemble, sizes = target.assemble, list[int]()

    def counted(self: Target, module: Module, apart: bool = False) -> bytes:
        sizes.append(len(module.text))
        return assemble(self, module, apart)

    monkeypatch.setattr(target, "assemble", counted)
    forget()
    op = tw.convolution("mb1ic16ih6oc32kh3ph1")
    counts = []
    for step, trace in ((1, None), (2, None), (2, Trace(level=0))):
        kernel = tw.compile(op, threads=1, config=f"step={{'ic': {step}}}", trace=trace)
        assert kernel.packed == ("weights",)
        counts.append(len(sizes))
    # The second kernel packs its weights as the first does; a trace shows all of it.
    assert counts == [2, 3, 5]
