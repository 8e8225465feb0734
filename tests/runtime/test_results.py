"""Results are arrays of the library that the arguments came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import COMPUTED, DType, tf32
from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("own_cache")
TYPES = [type_ for type_ in COMPUTED if type_ is not tf32]


@pytest.fixture
def product() -> CompiledKernel:
    return tw.compile(tw.matmul("3x4:4x5"), threads=1)


def copying(element: DType) -> CompiledKernel:
    """A kernel whose second result has other strides, and the third also gaps."""
    outs = ["out y: T[2, 3, 4]", "out last: T[2, 3, 4] {0:2:12 2:4:3 1:3:1}"]
    outs.append("out apart: T[2, 3, 4] {0:2:30 1:3:10 2:4:1}")
    lines = [f"kernel copy(in x: T[2, 3, 4], {', '.join(outs)}):"]
    for name in ("y", "last", "apart"):
        lines.append(f"  compute {name}(i in 2, j in 3, k in 4):")
        lines.append(f"    {name}[i, j, k] = x[i, j, k]")
    text = "\n".join(lines).replace("T[", f"{element}[")
    return tw.compile(tw.parse_kernel(text), "interpreter")


def counted(element: DType) -> Any:
    return (np.arange(24).reshape(2, 3, 4) % 5 % 2).astype(element.numpy)


@pytest.mark.parametrize("element", TYPES, ids=str)
def test_torch_in_torch_out(element: DType) -> None:
    torch = pytest.importorskip("torch")
    kernel = copying(element)
    array = counted(element)
    x = torch.from_numpy(array.astype(np.float32)).to(getattr(torch, element.numpy_name))
    strides = [(12, 4, 1), (12, 1, 3), (30, 10, 1)]
    for wanted, (name, made) in zip(strides, kernel(x).items(), strict=True):
        assert type(made) is torch.Tensor and made.dtype is x.dtype, name
        assert made.shape == (2, 3, 4) and made.stride() == wanted
        assert (made.to(torch.float32) == x.to(torch.float32)).all()
    assert (kernel(x)["apart"].as_strided((50,), (1,)).to(torch.float32)[4:10] == 0).all()


@pytest.mark.parametrize("element", TYPES, ids=str)
def test_jax_in_jax_out(element: DType) -> None:
    jax = pytest.importorskip("jax")
    kernel = copying(element)
    array = counted(element)
    x = jax.numpy.asarray(array)
    if x.dtype != array.dtype:
        with pytest.raises(ArgumentError, match=f"y has {element} elements, and JAX has none"):
            kernel(array, apart=jax.numpy.ones(3, "float32"))
        return
    results = kernel(x)
    assert len(results) > 1
    for name, result in results.items():
        assert isinstance(result, jax.Array) and result.dtype == x.dtype, name
        assert result.devices() == x.devices()
        np.testing.assert_array_equal(np.asarray(result), array)


def test_results_of_jax_are_no_copies(product: CompiledKernel) -> None:
    """They lie where the kernel wrote them, types that numpy has no DLPack for, too."""
    jax = pytest.importorskip("jax")
    from tilewright.runtime.results import new_result

    like = jax.numpy.ones(3, "float32")
    for element in ("float32", "bfloat16", "float8_e5m2"):
        form = tw.compile(tw.matmul("3x4:4x5", dtype=element), threads=1).signature.forms["dst"]
        memory, finish = new_result("dst", form, like)
        assert finish is not None
        assert finish(memory).unsafe_buffer_pointer() == memory.ctypes.data


def test_results_of_jax_keep_their_memory(product: CompiledKernel) -> None:
    jax = pytest.importorskip("jax")
    weights = product.pack("weights", jax.numpy.ones((4, 5), "float32"))
    result = [product(jax.numpy.full((3, 4), i, "float32"), weights) for i in range(50)]
    assert [float(array[2, 4]) for array in result] == [4.0 * i for i in range(50)]
    assert float((result[7] + result[8]).sum()) == 15 * 60


def test_jax_arrays_that_are_still_computed(product: CompiledKernel) -> None:
    jax = pytest.importorskip("jax")
    ones = jax.numpy.ones((600, 600), "float32")
    slow = jax.jit(lambda x: (x @ x @ x @ x @ x)[:3, :4])
    slow(ones)
    weights = product.pack("weights", np.ones((4, 5), np.float32))
    assert float(product(slow(ones), weights)[0, 0]) == pytest.approx(4 * 600.0**4, rel=1e-4)


def test_several_libraries_in_one_call(product: CompiledKernel) -> None:
    """The first of torch or JAX, in the order of the arguments; numpy's count for nothing, nor
    what is packed."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    kernel = tw.compile(
        tw.elementwise("3x5", "abs", epilogue=[tw.add("left"), tw.add("right")]), threads=1
    )
    values = {"numpy": np.ones((3, 5), np.float32), "torch": torch.ones(3, 5)}
    values["jax"] = jax.numpy.ones((3, 5), "float32")
    kinds = {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array}
    for names, wanted in (
        (("numpy", "numpy", "numpy"), "numpy"),
        (("numpy", "numpy", "torch"), "torch"),
        (("numpy", "jax", "torch"), "jax"),
        (("torch", "jax", "numpy"), "torch"),
    ):
        src, left, right = (values[name] for name in names)
        result = kernel(right=right, left=left, src=src)  # not the order of the call
        assert isinstance(result, kinds[wanted]), names
        assert (np.asarray(result) == 3).all()
    weights = product.pack("weights", torch.ones(4, 5))
    assert type(product(np.ones((3, 4), np.float32), weights)) is np.ndarray
    out = np.zeros((3, 5), np.float32)
    assert product(torch.ones(3, 4), weights, out=out) is out


def test_parameters_and_subclasses_give_plain_tensors() -> None:
    torch = pytest.importorskip("torch")
    kernel = tw.compile(tw.elementwise("3x5", "abs"), threads=1)

    class Own(torch.Tensor):  # type: ignore[misc, name-defined]
        pass

    parameter = torch.nn.Parameter(torch.ones(3, 5), requires_grad=False)
    for x in (parameter, torch.ones(3, 5).as_subclass(Own)):
        assert type(kernel(x)) is torch.Tensor


def test_sizes_that_calls_tell() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    kernel = tw.compile(
        tw.parse_kernel("""
kernel twice(n: s64 in 1..64, in x: bf16[n], out y: bf16[n]):
  compute twice(i in n):
    y[i] = x[i] + x[i]
"""),
        threads=1,
    )
    assert kernel(torch.ones(7, dtype=torch.bfloat16)).tolist() == [2.0] * 7
    assert kernel(jax.numpy.ones(9, "bfloat16")).tolist() == [2.0] * 9


def test_what_torch_cannot_make(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    kernel = tw.compile(tw.elementwise("3x5", "abs"), threads=1)
    x = torch.ones(3, 5)

    def full(*given: Any, **options: Any) -> Any:
        raise RuntimeError("not enough memory: you tried to allocate 60 bytes.")

    monkeypatch.setattr(torch, "empty_strided", full)
    with pytest.raises(ArgumentError, match=r"no tensor for dst[^$]*not enough memory[^$]*out="):
        kernel(x)
