"""The calls that users write."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from op_runs import execute, integers
from tilewright.dtypes import ALL, bf16, f32, f64, s8, s32, u8
from tilewright.errors import LayoutError, ProblemError, TilewrightError, UnsupportedError
from tilewright.ops import arguments as tw
from tilewright.ops.epilogue_elements import (
    add,
    bias,
    binary,
    div,
    mul,
    prelu,
    relu,
    scale,
    sub,
    sum,
    unary,
    zero_point,
)
from tilewright.problems import ConvProblem, Direction


def test_the_example() -> None:
    op = tw.convolution(
        "ic6ih5oc4oh5kh3ph1",
        direction="fwd",
        dtype="bf16",
        src="nhwc",
        dst="nhwc",
        epilogue=[bias(), add("residual"), relu()],
    )
    assert [a.name for a in op.arguments] == ["src", "weights", "bias", "residual", "dst"]
    assert [a.dtype for a in op.arguments] == [bf16, bf16, f32, bf16, bf16]
    assert op.argument("residual").layout == op.argument("dst").layout
    data = {a.name: integers(a.shape, bf16, i) for i, a in enumerate(op.arguments)}
    data["weights"] = np.sign(data["weights"]) * (integers(data["weights"].shape, bf16, 9) > 2)
    result = execute(op, **data)["dst"]
    assert (result >= 0).all()
    assert result.any()


def test_problems_in_every_form() -> None:
    by_text = tw.convolution("mb2ic4ih5oc6kh3ph1")
    assert by_text == tw.convolution(mb=2, ic=4, ih=5, oc=6, kh=3, ph=1)
    assert by_text == tw.convolution(ConvProblem.parse("ic4ih5oc6kh3ph1"))
    assert tw.elementwise("4x5", "relu") == tw.elementwise((4, 5), "relu")
    assert tw.elementwise("4x5:4x5", "add") == tw.elementwise((4, 5), "add")
    assert tw.reorder("4x5") == tw.reorder((4, 5))
    assert tw.pool("ic3ih6kh2") == tw.pool(ic=3, ih=6, kh=2)


def test_types_in_every_form() -> None:
    wanted = tw.convolution("ic4ih5oc6kh3", dtype="u8:s8:f32")
    assert wanted.types == (("src", u8), ("weights", s8), ("dst", f32))
    assert wanted.accumulator is s32
    assert wanted == tw.convolution("ic4ih5oc6kh3", dtype=("u8", s8, "float32"))
    by_name = {"src": "u8", "weights": "s8", "dst": "f32"}
    assert wanted == tw.convolution("ic4ih5oc6kh3", dtype=by_name)
    assert tw.convolution("ic4ih5oc6kh3", dtype=f64).accumulator is f64
    assert tw.convolution("ic4ih5oc6kh3", accumulator="f64").accumulator is f64


ACCUMULATORS = {
    "f64": "f64",
    "f32": "f64 f32",
    "tf32": "f64 f32",
    "bf16": "f64 f32 f16 bf16",
    "f8_e4m3": "f64 f32 f16 bf16",
    "s8": "f64 f32 s64 s32",
    "u8:s4:f32": "f64 f32 s64 s32",
    "bf16:s8:f32": "f64 f32",
}


@pytest.mark.parametrize("types", ACCUMULATORS)
def test_accumulators_hold_sums(types: str) -> None:
    calls: tuple[Any, ...] = (
        partial(tw.matmul, "2x3:3x4"),
        partial(tw.convolution, "ic4ih5oc6kh3"),
    )
    assert len(ALL) > 9
    for call, type_ in product(calls, ALL):
        if type_.name in ACCUMULATORS[types].split():
            assert call(dtype=types, accumulator=type_).accumulator is type_
        else:
            with pytest.raises(UnsupportedError, match=f"are not kept in {type_}[^$]*choose"):
                call(dtype=types, accumulator=type_.name)


def test_accumulators_of_gradients_are_of_what_is_multiplied() -> None:
    # By weights, src and dst are multiplied: the type of the weights says nothing.
    mixed = tw.convolution("ic4ih5oc6kh3", dtype="s8:f32:s8", direction="bwd_weights")
    assert mixed.accumulator is s32
    with pytest.raises(UnsupportedError, match="products of f32 and f32 are not kept in s32"):
        tw.convolution("ic4ih5oc6kh3", direction="bwd_weights", accumulator="s32")


def test_types_of_other_libraries() -> None:
    for numpy_type in (np.float32, np.dtype("float32"), np.dtype("<f4")):
        assert tw.matmul("2x3:3x4", dtype=numpy_type) == tw.matmul("2x3:3x4")
    mixed = (np.uint8, "s8", np.dtype("int32"))
    assert tw.matmul("2x3:3x4", dtype=mixed) == tw.matmul("2x3:3x4", dtype="u8:s8:s32")
    assert add("x", dtype=np.int8).dtype is s8


def test_types_of_torch() -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    assert tw.matmul("2x3:3x4", dtype=torch.float32) == tw.matmul("2x3:3x4")
    mixed = {"src": torch.bfloat16, "weights": torch.bfloat16, "dst": torch.float32}
    assert tw.matmul("2x3:3x4", dtype=mixed) == tw.matmul("2x3:3x4", dtype="bf16:bf16:f32")
    with pytest.raises(UnsupportedError, match="unknown element type 'complex64'"):
        tw.matmul("2x3:3x4", dtype=torch.complex64)


def test_types_of_jax() -> None:
    numpy = pytest.importorskip("jax.numpy", exc_type=ImportError)
    assert tw.matmul("2x3:3x4", dtype=numpy.bfloat16) == tw.matmul("2x3:3x4", dtype="bf16")


@pytest.mark.parametrize("wrong", [None, 32, 1.5, object(), dict, np.dtype(">f4"), Any, b"f32"])
def test_what_is_no_type(wrong: Any) -> None:
    with pytest.raises(TilewrightError, match="unknown element type"):
        tw.matmul("2x3:3x4", dtype=wrong)
    with pytest.raises(UnsupportedError, match="unknown element type"):
        add("x", dtype=wrong) if wrong is not None else scale("src", dtype=wrong)


def test_directions_in_every_form() -> None:
    for text, wanted in {
        "fwd": Direction.FWD_D,
        "FWD_B": Direction.FWD_B,
        "bwd_data": Direction.BWD_D,
        "bwd_weights": Direction.BWD_W,
        "bwd_wb": Direction.BWD_WB,
    }.items():
        assert tw.convolution("ic4ih5oc6kh3", direction=text).direction is wanted
    assert tw.convolution("ic4ih5oc6kh3", epilogue=[bias()]).direction is Direction.FWD_B


def test_a_tag_of_one_side_is_the_other_sides_too() -> None:
    op = tw.convolution("ic4ih5oc6kh3", src="nhwc")
    assert op.layout_of("dst") == "nhwc"
    assert tw.convolution("ic4ih5oc6kh3", dst="nhwc").layout_of("src") == "nhwc"
    mixed = tw.convolution("ic4ih5oc6kh3", src="nhwc", dst="any")
    assert mixed.layout_of("dst") == "any"
    assert tw.elementwise("4x5", "relu", src="ba").layout_of("dst") == "ba"


def test_other_ops() -> None:
    a, b = integers((3, 4), f32, 1), integers((4, 5), f32, 2)
    result = execute(
        tw.matmul("3x4:4x5", epilogue=[sub("c"), mul("d", policy="per_oc")]),
        src=a,
        weights=b,
        c=np.ones((3, 5)),
        d=np.full((1, 5), 2.0),
    )["dst"]
    np.testing.assert_array_equal(result, (a @ b - 1) * 2)
    chain = tw.elementwise((3, 4), "linear", 2.0, 1.0, epilogue=[div("q"), unary("square"), sum()])
    result = execute(chain, src=a, q=np.full((3, 4), 2.0), dst=a)["dst"]
    np.testing.assert_array_equal(result, ((2 * a + 1) / 2) ** 2 + a)
    result = execute(
        tw.reduce("3x4:1x4", algorithm="max", epilogue=[prelu("p")]), src=a, p=np.full((1, 4), 0.5)
    )["dst"]
    largest = a.max(axis=0, keepdims=True)
    np.testing.assert_array_equal(result, np.where(largest > 0, largest, largest / 2))
    assert tw.pool("ic3ih6kh2", algorithm="avg_p").kind == "pool"
    assert tw.elementwise("4x5:4x1", "max").kind == "binary"
    quantized = tw.reorder("4x5", dtype="f32:s8", epilogue=[scale("dst"), zero_point("dst", 3)])
    assert [a.name for a in quantized.arguments] == ["src", "dst_scale", "dst"]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tw.convolution("ic4ih5", ic=4), ProblemError, "both a problem and sizes"),
        (
            lambda: tw.convolution("ic4ih5oc6kh3", epilogue=[relu(), bias()]),
            ProblemError,
            "the bias stands behind",
        ),
        (
            lambda: tw.convolution("ic4ih5oc6kh3", epilogue=[bias(), bias()]),
            ProblemError,
            "the bias is given twice",
        ),
        (
            lambda: tw.convolution("ic4ih5oc6kh3", epilogue=[relu(), scale("weights", 2)]),
            ProblemError,
            "the scale of weights stands behind",
        ),
        (lambda: tw.convolution("ic4ih5oc6kh3", epilogue=["relu"]), ProblemError, "is no element"),
        (
            lambda: tw.convolution("ic4ih5oc6kh3", dtype=("f32", "f32")),
            ProblemError,
            "2 types are given",
        ),
        (
            lambda: tw.convolution("ic4ih5oc6kh3", dtype={"src": "f32"}),
            ProblemError,
            "types are given for src",
        ),
        (lambda: tw.convolution("ic4ih5oc6kh3", dtype="f31"), UnsupportedError, "unknown element"),
        (lambda: tw.convolution("ic4ih5oc6kh3", src="nhwk"), LayoutError, "is no dim"),
        (lambda: tw.convolution("ic4ih5oc6kh3", direction="back"), ProblemError, "direction"),
        (lambda: tw.elementwise("4x5", "relux"), ProblemError, "unknown elementwise function"),
        (
            lambda: tw.elementwise(ConvProblem.parse("ic4ih5oc6kh3"), "add"),
            ProblemError,
            "no problem for",
        ),
        (lambda: binary("relu", "x"), ProblemError, "unknown binary function"),
        (lambda: scale("src", 0.5, policy="per_oc"), ProblemError, "takes no value"),
    ],
)
def test_refusals(call: Any, error: type[TilewrightError], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call()
    assert caught.value.cure
