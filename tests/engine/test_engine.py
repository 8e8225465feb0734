"""Compiled kernels: calling them, arguments that do not fit, and threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import check, inputs, packed, small
from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError
from tilewright.ops.op import Op

pytestmark = pytest.mark.usefixtures("own_cache")
NHWC = (0, 3, 1, 2)  # from an array in memory order to the logical one


# Calls.


def test_call() -> None:
    kernel = tw.compile(small(), threads=1)
    assert repr(kernel) == "<conv kernel for x86: mb1ic8ih6oc32kh3ph1>"
    assert kernel.packed == ("weights",)
    check(kernel)
    arrays = packed(kernel, inputs(kernel))
    fresh = kernel(**arrays)
    assert fresh.shape == (1, 32, 6, 6)
    out = np.zeros((1, 6, 6, 32), np.float32).transpose(NHWC)
    for values in ({"out": out}, {"dst": out}, {"out": {"dst": out}}):
        out[...] = 77
        assert kernel(**arrays, **values) is out
        np.testing.assert_array_equal(out, fresh)


def test_arguments_in_order() -> None:
    kernel = tw.compile(small(), threads=1)
    arrays = packed(kernel, inputs(kernel))
    wanted = kernel(**arrays)
    src, weights, bias = (arrays[name] for name in ("src", "weights", "bias"))
    np.testing.assert_array_equal(kernel(src, weights, bias), wanted)
    np.testing.assert_array_equal(kernel(src, weights, bias=bias), wanted)
    out = np.zeros((1, 6, 6, 32), np.float32).transpose(NHWC)
    assert kernel(src, weights, bias, out) is out
    np.testing.assert_array_equal(out, wanted)
    out[...] = 0
    kernel.bind(src, weights, bias, out=out)()
    np.testing.assert_array_equal(out, wanted)
    with pytest.raises(ArgumentError, match=r"src is given twice[^$]*src, weights, bias, dst"):
        kernel(src, weights, bias, src=src)
    with pytest.raises(ArgumentError, match="5 arrays are given for 4 arguments"):
        kernel.bind(src, weights, bias, out, out)
    with pytest.raises(ArgumentError, match="'bias' is missing"):
        kernel(src, weights)


@pytest.mark.parametrize("name", ["out", "stream"])
def test_no_argument_is_called_like_what_calls_take(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"an argument cannot be called '{name}'"):
        tw.matmul("4x5:5x6", epilogue=[tw.add(name)])


def test_an_argument_may_be_called_self() -> None:
    kernel = tw.compile(tw.elementwise("4x5", "relu", epilogue=[tw.add("self")]), threads=1)
    ones = np.ones((4, 5), np.float32)
    np.testing.assert_array_equal(kernel(ones, self=ones), 2 * ones)
    bound = kernel.bind(src=ones, self=ones, out=np.empty_like(ones))
    bound()


def test_arguments_that_need_no_packing_are_returned() -> None:
    kernel = tw.compile(small(), threads=1)
    array = inputs(kernel)["src"]
    assert kernel.pack("src", array) is array


def test_several_results() -> None:
    op = tw.convolution("mb2ic6ih5oc8kh3ph1", direction="BWD_WB", src="nhwc", dst="nhwc")
    kernel = tw.compile(op, threads=2)
    check(kernel)
    arrays = inputs(kernel)
    results = kernel(**arrays)
    assert list(results) == ["weights", "bias"]
    bias = np.full(8, 77, np.float32)
    again = kernel(**arrays, out={"bias": bias})
    assert again["bias"] is bias
    np.testing.assert_array_equal(bias, results["bias"])
    np.testing.assert_array_equal(again["weights"], results["weights"])


def test_results_that_are_added_to() -> None:
    kernel = tw.compile(tw.matmul("5x8:8x16", epilogue=[tw.sum()]), threads=1)
    arrays = inputs(kernel)
    assert "dst" in arrays
    before = arrays.pop("dst")
    with pytest.raises(ArgumentError, match=r"dst is missing[^$]*adds to it[^$]*pass dst="):
        kernel(**packed(kernel, arrays))
    out = before.copy()
    kernel(**packed(kernel, arrays), out=out)
    np.testing.assert_array_equal(out, arrays["src"] @ arrays["weights"] + before)


def test_bind() -> None:
    kernel = tw.compile(small(), threads=2)
    arrays = inputs(kernel)
    out = np.zeros((1, 6, 6, 32), np.float32).transpose(NHWC)
    run = kernel.bind(**packed(kernel, arrays), out=out)
    for sign in (1, -1):
        arrays["src"] *= sign
        run()
        np.testing.assert_array_equal(out, kernel(**packed(kernel, arrays)))
    with pytest.raises(ArgumentError, match="'src' is missing"):
        kernel.bind(weights=kernel.pack("weights", arrays["weights"]), bias=arrays["bias"])


# Arguments that do not fit.


def _readonly() -> Any:
    array = np.zeros((1, 6, 6, 32), np.float32).transpose(NHWC)
    array.flags.writeable = False
    return array


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"bias": ...}, r"'bias' is missing[^$]*cure: pass src=\.\.\., weights="),
    "extra": ({"scale": 1}, r"no argument 'scale'[^$]*cure: choose one of src, weights, bias, dst"),
    "shape": ({"bias": np.zeros(31, np.float32)}, r"bias has shape \(31,\), expected \(32,\)"),
    "type": ({"bias": np.zeros(32)}, r"bias has f64 elements, expected f32[^$]*bias\.astype"),
    "none": ({"bias": None}, "bias is not an array but NoneType"),
    "strides": (
        {"src": np.zeros((1, 8, 6, 6), np.float32)},
        r"src has strides \(288, 36, 6, 1\) \(in elements\), expected \(288, 1, 48, 8\)[^$]*"
        r"transpose\(0, 2, 3, 1\)",
    ),
    "unpacked": (
        {"weights": np.zeros((32, 8, 3, 3), np.float32)},
        r"weights is not packed[^$]*an order of its own[^$]*kernel\.pack\('weights', weights\)",
    ),
    "read-only": ({"out": _readonly()}, "dst has read-only memory, expected a writable array"),
    "no result": ({"out": {"src": 1}}, "'src' is no result[^$]*choose one of dst"),
    "twice": ({"out": _readonly(), "dst": _readonly()}, "dst is given twice"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name: str) -> None:
    kernel = tw.compile(small(), threads=1)
    changes, text = WRONG[name]
    arrays = packed(kernel, inputs(kernel)) | changes
    arrays = {name: array for name, array in arrays.items() if array is not ...}
    with pytest.raises(ArgumentError, match=text):
        kernel(**arrays)


def test_results_must_not_share_memory_with_arguments() -> None:
    kernel = tw.compile(small(), threads=1)
    arrays = packed(kernel, inputs(kernel))
    memory = np.zeros(6 * 6 * 32 + 32, np.float32)
    out = memory[: 6 * 6 * 32].reshape(1, 6, 6, 32).transpose(NHWC)
    for start, fits in ((6 * 6 * 32, True), (6 * 6 * 32 - 1, False), (0, False)):
        arrays["bias"] = memory[start : start + 32]
        if fits:
            kernel(**arrays, out=out)
            continue
        with pytest.raises(ArgumentError, match="dst shares memory with bias"):
            kernel(**arrays, out=out)
    arrays["bias"] = np.zeros(32, np.float32)
    inside = arrays["weights"].data[0][: 6 * 6 * 32].reshape(1, 6, 6, 32).transpose(NHWC)
    with pytest.raises(ArgumentError, match="dst shares memory with weights"):
        kernel(**arrays, out=inside)


def test_packed_for_another_kernel() -> None:
    kernel = tw.compile(small(), threads=1)
    other = tw.compile(tw.convolution("ic8ih6oc48kh3ph1", src="nhwc", dst="nhwc"), threads=1)
    arrays = packed(kernel, inputs(kernel))
    arrays["weights"] = packed(other, inputs(other))["weights"]
    with pytest.raises(ArgumentError, match="weights is packed for another kernel"):
        kernel(**arrays)
    with pytest.raises(ArgumentError, match="weights is not an array but Packed"):
        kernel.pack("weights", arrays["weights"])
    with pytest.raises(ArgumentError, match="there is no argument 'scale'"):
        kernel.pack("scale", np.zeros(3))
    with pytest.raises(ArgumentError, match=r"weights has shape \(3,\), expected \(32, 8, 3, 3\)"):
        kernel.pack("weights", np.zeros(3, np.float32))


def test_kernels_that_pack_alike_share_packed_arguments() -> None:
    with_bias = tw.compile(small(), threads=1)
    plain = tw.compile(tw.convolution("mb1ic8ih6oc32kh3ph1", src="nhwc", dst="nhwc"), threads=1)
    arrays = inputs(plain)
    weights = with_bias.pack("weights", arrays["weights"])
    result = plain(src=arrays["src"], weights=weights)
    np.testing.assert_array_equal(result, plain(**packed(plain, arrays)))


# Threads.


@pytest.mark.parametrize(
    "make",
    [
        small,
        lambda: tw.matmul("64x32:32x48", dtype="bf16"),
        lambda: tw.convolution("mb2ic8ih7oc16kh3ph1", direction="bwd_data", src="nhwc", dst="nhwc"),
        lambda: tw.pool("mb2ic20ih9kh3sh2ph1", src="nhwc"),
        lambda: tw.reduce("6x20x7:6x1x7"),
    ],
)
def test_any_number_of_threads_gives_the_same(make: Callable[[], Op]) -> None:
    kernels = [tw.compile(make(), threads=threads) for threads in (1, 2, 7)]
    check(kernels[0])
    arrays = packed(kernels[0], inputs(kernels[0]))
    results = [kernel(**arrays) for kernel in kernels]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_wrong_number_of_threads(threads: Any) -> None:
    with pytest.raises(ArgumentError, match=r"threads is [^$]*whole number from 1 to 256"):
        tw.compile(small(), threads=threads)


def test_many_python_threads_call_at_once() -> None:
    """With weights gradients, whose kernels need workspaces."""
    ops = (
        small(),
        tw.convolution("mb2ic8ih6oc16kh3ph1", direction="bwd_weights", dtype="bf16", src="nhwc"),
    )
    kernels = [tw.compile(op, threads=2) for op in ops]
    work = []
    for kernel in kernels:
        for seed in range(3):
            arrays = packed(kernel, inputs(kernel, seed))
            work.append((kernel, arrays, kernel(**arrays)))
    wrong: list[str] = []

    def call(position: int) -> None:
        for turn in range(40):
            kernel, arrays, result = work[(position + turn) % len(work)]
            if not np.array_equal(kernel(**arrays), result):
                wrong.append(f"thread {position}, turn {turn}")

    threads = [threading.Thread(target=call, args=(position,)) for position in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_python_threads_compile_at_once() -> None:
    kernels: list[CompiledKernel] = []
    threads = [
        threading.Thread(target=lambda: kernels.append(tw.compile(small(), threads=1)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kernels) == 4
    for kernel in kernels:
        check(kernel)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that is what is tested
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")  # JAX's, if it is imported
def test_fork_after_use() -> None:
    kernel = tw.compile(small(), threads=2)
    arrays = packed(kernel, inputs(kernel))
    wanted = kernel(**arrays)
    child = os.fork()
    if child == 0:
        same = np.array_equal(kernel(**arrays), wanted)
        other = tw.compile(tw.elementwise("40x40", "abs"), threads=2)
        array = np.full((40, 40), -2.0, np.float32)
        os._exit(0 if same and np.array_equal(other(src=array), -array) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(kernel(**arrays), wanted)
