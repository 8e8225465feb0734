"""Zero points: the sums of weights that one of the source needs are made when these are packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import check, inputs, packed
from tilewright.engine import CompiledKernel
from tilewright.engine.compile import forget
from tilewright.errors import ArgumentError
from tilewright.ops.op import Op
from tilewright.targets.program import Parameter

pytestmark = pytest.mark.usefixtures("own_cache")

PLAIN = "x86:avx2"


def quantized(problem: str, *points: Any, **given: Any) -> Op:
    make = tw.matmul if ":" in problem else tw.convolution
    layouts: Any = {} if ":" in problem else {"src": "nhwc", "dst": "nhwc"}
    return make(problem, dtype="u8:s8:s32", epilogue=list(points), **layouts, **given)


def taken(kernel: CompiledKernel) -> list[str]:
    """What the code is passed instead of the arguments."""
    return [
        parameter.name
        for parameter in kernel.code.abi.parameters
        if isinstance(parameter, Parameter)
    ]


@pytest.mark.parametrize(
    ("points", "made"),
    [
        ([tw.zero_point("src", 3)], True),
        ([tw.zero_point("src")], True),
        ([tw.zero_point("src", 3), tw.zero_point("weights", 2)], True),
        ([tw.zero_point("src", 3), tw.zero_point("weights", policy="per_oc")], False),
        ([tw.zero_point("weights", 2)], False),
    ],
)
def test_weights_are_packed(points: list[Any], made: bool) -> None:
    """Whatever has zero points; ``made``: with all that the source's needs of the weights."""
    for problem in ("mb2ic8ih7oc20kh3ph1", "5x24:24x20"):
        kernel = tw.compile(quantized(problem, *points), PLAIN, threads=1)
        assert kernel.packed == ("weights",)
        check(kernel)
        whole = "weight_sums" if ":" in problem else "compensation"
        assert (whole in taken(kernel)) == (made or (len(points) == 2 and ":" in problem))
        naive = [argument.name for argument in kernel.signature.arguments]
        assert len(taken(kernel)) == len(naive) + any(p.tensor == "src" for p in points)


def test_what_a_zero_point_needs_is_small() -> None:
    """One sum for each kind of position: those near the borders, and the middle."""
    for problem, wanted in (
        ("mb1ic8ih56oc16kh3ph1", 3 * 3 * 16),
        ("mb1ic8ih56oc16kh3sh2ph1", 2 * 2 * 16),
        ("mb1ic8ih56oc16kh1", 16),
        ("mb1ic8ih9iw56oc16kh7kw1ph3pw0", 7 * 16),
    ):
        kernel = tw.compile(quantized(problem, tw.zero_point("src", 3)), PLAIN, threads=1)
        arrays = packed(kernel, inputs(kernel))
        assert [memory.size for memory in arrays["weights"].data][1:] == [wanted], problem


@pytest.mark.parametrize(
    "problem",
    [
        "mb2ic5ih9oc7kh3ph1",
        "mb1g2ic8ih10oc6kh4sh2ph2",
        "mb1ic3ih7iw5oc20kh5kw2ph2pw0dh1",
        "mb1ic3ih2oc8kh5ph2",  # no output has all taps
        "mb1ic3ih5oh6oc8kh3ph1",  # padding of 1 and 2
        "mb1ic4id5ih6iw3oc9kd3kh3kw3pd1ph1pw1",
    ],
)
def test_borders(problem: str) -> None:
    for points in (
        [tw.zero_point("src", 3)],
        [tw.zero_point("src"), tw.zero_point("weights", policy="per_oc")],
    ):
        layouts: Any = {"src": "ndhwc", "dst": "ndhwc"} if "id" in problem else {}
        op = tw.convolution(problem, dtype="u8:s8:s32", epilogue=points, **layouts)
        check(tw.compile(op, PLAIN, threads=1))
        check(tw.compile(op, PLAIN, threads=2, config="ElementwiseConfig(vector=8)"))


def test_weights_that_are_taken_as_they_lie() -> None:
    """Then each call adds them up."""
    op = tw.matmul(
        "5x24:24x20", dtype="u8:s8:s32", weights="ab", epilogue=[tw.zero_point("src", 3)]
    )
    kernel = tw.compile(op, PLAIN, threads=1)
    assert kernel.packed == () and taken(kernel) == ["src", "weights", "dst"]
    check(kernel)
    kernel = tw.compile(op, PLAIN, threads=1, constant=("weights",))
    assert kernel.packed == ("weights",)
    assert taken(kernel) == ["src", "weights_packed", "weight_sums", "dst"]
    check(kernel)


def test_packed_with_its_sums_fits_no_kernel_without() -> None:
    plain, pointed = (
        tw.compile(quantized("5x24:24x20", *points), PLAIN, threads=1)
        for points in ([], [tw.zero_point("src", 3)])
    )
    other = tw.compile(quantized("5x24:24x20", tw.zero_point("src", 7)), PLAIN, threads=1)
    arrays = inputs(plain)
    weights = pointed.pack("weights", arrays["weights"])
    a, b = (array.astype(np.int32) for array in (arrays["src"], arrays["weights"]))
    np.testing.assert_array_equal(other(arrays["src"], weights), (a - 7) @ b)
    with pytest.raises(ArgumentError, match="weights is packed for another kernel"):
        plain(arrays["src"], weights)
    with pytest.raises(ArgumentError, match="weights is packed for another kernel"):
        pointed(arrays["src"], plain.pack("weights", arrays["weights"]))
    row = tw.compile(quantized("1x24:24x20", tw.zero_point("src", 3)), PLAIN, threads=1)
    weights = row.pack("weights", arrays["weights"])
    for memory in weights.data:
        with pytest.raises(ArgumentError, match="dst shares memory with weights"):
            row(arrays["src"][:1], weights, out=memory[:20].view(np.int32)[:20].reshape(1, -1))


def test_from_the_disk() -> None:
    op = quantized("mb2ic8ih7oc20kh3ph1", tw.zero_point("src", 3))
    first = tw.compile(op, PLAIN, threads=1)
    forget()
    again = tw.compile(op, PLAIN, threads=1)
    assert again.from_cache and not first.from_cache
    arrays = inputs(first)
    np.testing.assert_array_equal(again(**packed(first, arrays)), first(**packed(again, arrays)))
    check(again)


def test_what_is_written_for_other_programs(tmp_path: Any) -> None:
    op = quantized("mb2ic8ih7oc20kh3ph1", tw.zero_point("src", 3))
    kernel = tw.compile(op, PLAIN, threads=1)
    text = next(kernel.export(tmp_path).glob("*.md")).read_text()
    assert "| 1 | weights_packed | in |" in text
    assert "| 2 | compensation | in | s32 | (180,) | (1,) |" in text
    assert "| 3 | dst | out |" in text
    assert "takes `weights` (row-major, logical shape) and `weights_packed`, `compensation`" in text
