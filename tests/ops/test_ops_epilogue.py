"""The epilogue: each function, each attribute, and their order, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_runs import execute, integers, rounded
from tilewright.dtypes import bf16, f32, f64, s8, s32, u8
from tilewright.errors import ArgumentError, LayoutError, ProblemError, UnsupportedError
from tilewright.ops.attributes import Attributes
from tilewright.ops.convolution import convolution_op
from tilewright.ops.foundation import foundation_op
from tilewright.problems import (
    BINARY_FUNCTIONS,
    UNARY_FUNCTIONS,
    Binary,
    BinaryProblem,
    ConvProblem,
    EltwiseProblem,
    Policy,
    Prelu,
    Scale,
    Sum,
    Unary,
    ZeroPoint,
    parse_post_ops,
)
from tilewright.testing import functions, reference

CONV = ConvProblem.parse("ic6ih5oc4kh3ph1")
PARAMETERS = {
    "clip": (-1.5, 2.5),
    "clip_v2": (-1.5, 2.5),
    "elu": (0.7, 0.0),
    "hardsigmoid": (0.2, 0.5),
    "hardswish": (0.2, 0.5),
    "linear": (1.5, -0.25),
    "relu": (0.1, 0.0),
    "soft_relu": (2.0, 0.0),
    "swish": (1.2, 0.0),
}


@pytest.mark.parametrize("name", UNARY_FUNCTIONS)
def test_unary_functions(name: str) -> None:
    alpha, beta = PARAMETERS.get(name, (0.0, 0.0))
    values = np.concatenate([np.linspace(-6, 6, 61), [-90.0, 90.0, 0.0, 0.5, 1.5, -2.5]])
    values = values.astype(np.float32).astype(np.float64)
    low, high = UNARY_FUNCTIONS[name].domain
    values = values[(values > low) & (values < high)]
    more = (0.5, -1.0, 0.0, 1.0, 2.0, 3.0, 1.7) if name == "pow" else ()
    for power in (beta, *more):
        if name == "pow":
            alpha = 1.5
        function = Unary(name, alpha, power, 2.0).describe()
        problem = EltwiseProblem(values.shape, algorithm=function)
        op = foundation_op(problem, types=f64)
        result = execute(op, src=values)["dst"]
        wanted = 2.0 * functions.eltwise(name, values, alpha, power)
        np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-12)
        single = foundation_op(problem, types=f32)
        result = execute(single, src=values)["dst"]
        assert np.isfinite(result).all()
        np.testing.assert_allclose(result, wanted, rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("name", BINARY_FUNCTIONS)
def test_binary_functions(name: str) -> None:
    a, b = integers((4, 5), f32, 1), integers((4, 1), f32, 2)
    if name == "div":
        b = np.where(b == 0, 2.0, b)
    op = foundation_op(BinaryProblem(a.shape, b.shape, algorithm=name), types=f64)
    result = execute(op, src0=a, src1=b)["dst"]
    np.testing.assert_array_equal(result, functions.binary(name, a, b))


def _conv(attributes: Attributes, types: Any, **given: Any) -> tuple[Any, Any]:
    """What the op yields, and the plain convolution in float64."""
    types = dict(zip(("src", "weights", "dst"), types, strict=True))
    op = convolution_op(CONV, types=types, attributes=attributes, layouts={"dst": "nChw4c"})
    data = {n: integers(CONV.shapes[n], types[n], i) for i, n in enumerate(types)}
    data |= given
    plain = reference.convolution_forward(
        given.get("shifted", data["src"]),
        data["weights"],
        stride=CONV.stride,
        dilation=CONV.dilation,
        left=CONV.pad_l,
        right=CONV.pad_r,
    )
    data.pop("shifted", None)
    return execute(op, **data)["dst"], plain


def _channels(values: Any) -> Any:
    return np.asarray(values, np.float64).reshape(-1, 1, 1)


def test_every_attribute_in_its_order() -> None:
    attributes = Attributes(
        bias=f32,
        scales=(
            Scale("src", value=0.5),
            Scale("weights", Policy("per_oc")),
            Scale("dst", value=0.25),
        ),
        zero_points=(ZeroPoint("src", value=3), ZeroPoint("dst", value=-7)),
        post_ops=(
            Unary("linear", 2.0, 1.0),
            Sum(0.5, 2),
            Binary("mul", f32, Policy("per_oc")),
            Unary("relu", 0.25),
            Binary("add", bf16, Policy("per_tensor")),
            Prelu(Policy("per_oc")),
        ),
        names=("", "", "gain", "", "residual", "slopes"),
    )
    src = integers(CONV.src_shape, u8, 0)
    old = integers(CONV.dst_shape, s8, 5)
    bias, factors = [1.0, -2.0, 3.0, 8.0], [0.5, 1.0, 0.25, 0.125]
    gain, slopes = [1.0, 0.5, -1.0, 2.0], [0.5, 0.25, 2.0, -1.0]
    residual = integers(CONV.dst_shape, f32, 6)
    result, sums = _conv(
        attributes,
        (u8, s8, s8),
        src=src,
        shifted=src - 3,
        dst=old,
        bias=bias,
        weights_scale=factors,
        gain=np.reshape(gain, (1, 4, 1, 1)),
        residual=residual,
        slopes=np.reshape(slopes, (1, 4, 1, 1)),
    )
    value = sums * 0.5 * _channels(factors) + _channels(bias)
    value = (2 * value + 1) + 0.5 * (old - 2)
    value = value * _channels(gain)
    value = np.where(value > 0, value, 0.25 * value) + residual
    value = np.where(value > 0, value, value * _channels(slopes))
    np.testing.assert_array_equal(result, rounded(value / 0.25 - 7, s8))
    assert len(np.unique(result)) > 20


@pytest.mark.parametrize("shape", ["ic6ih5oc4kh3ph1", "g2ic6ih7oc4kh3sh2ph2", "ic6ih5oc4kh3"])
@pytest.mark.parametrize("given", [True, False], ids=["constant", "argument"])
def test_source_zero_point_leaves_padding_alone(shape: str, given: bool) -> None:
    problem = ConvProblem.parse(shape)
    points = (ZeroPoint("src", value=3 if given else None), ZeroPoint("weights", value=2))
    types = {"src": u8, "weights": s8, "dst": s32}
    op = convolution_op(problem, types=types, attributes=Attributes(zero_points=points))
    src, weights = (integers(problem.shapes[n], types[n], 3) for n in ("src", "weights"))
    result = execute(op, src=src, weights=weights, src_zero_point=[3])["dst"]
    wanted = reference.convolution_forward(
        src - 3,
        weights - 2,
        stride=problem.stride,
        dilation=problem.dilation,
        left=problem.pad_l,
        right=problem.pad_r,
        groups=problem.g,
    )
    np.testing.assert_array_equal(result, wanted)


def test_compensation_keeps_the_product_plain() -> None:
    points = Attributes(zero_points=(ZeroPoint("src", value=3),))
    types = {"src": u8, "weights": s8, "dst": s32}
    kernel = convolution_op(CONV, types=types, attributes=points).kernel()
    plain = convolution_op(CONV, types=types).kernel()
    main, wanted = (
        next(s for s in k.body.body if getattr(s, "name", "") == "main") for k in (kernel, plain)
    )
    assert main.body is wanted.body


def test_integers_alone_pass_through_no_float() -> None:
    result, sums = _conv(Attributes(), (u8, s8, u8))
    np.testing.assert_array_equal(result, rounded(sums, u8))
    op = convolution_op(CONV, types={"src": u8, "weights": s8, "dst": u8})
    epilogue = op.kernel().body.body[-1]
    assert "f32" not in repr(epilogue.body)


def test_rounding_is_to_nearest_even_and_saturates() -> None:
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300.0, -300.0, 127.5])
    op = foundation_op(EltwiseProblem((8,), algorithm="linear:1"), types={"src": f32, "dst": s8})
    result = execute(op, src=values)["dst"]
    np.testing.assert_array_equal(result, [0, 2, 2, 0, -2, 127, -128, 127])


def test_post_ops_from_text() -> None:
    attributes = Attributes(post_ops=parse_post_ops("relu+add:f32:per_oc"))
    assert attributes.name_of(1) == "post_op_1"
    extra = np.reshape([1.0, 2.0, 3.0, 4.0], (1, 4, 1, 1))
    result, sums = _conv(attributes, (f32, f32, f32), post_op_1=extra)
    np.testing.assert_array_equal(result, np.maximum(sums, 0) + extra)


def test_operand_has_the_layout_of_the_result_unless_said() -> None:
    def operand(tag: str, policy: str = "per_tensor") -> Any:
        post_ops = (Binary("add", f32, Policy(policy), tag),)
        op = convolution_op(CONV, layouts={"dst": "nhwc"}, attributes=Attributes(post_ops=post_ops))
        return op.argument("post_op_0").layout, op.argument("dst").layout

    same, dst = operand("any")
    assert same == dst
    assert operand("nchw")[0] != dst
    assert operand("any", "per_oc")[0].extent == 4
    with pytest.raises(LayoutError, match="is no dim"):
        operand("nhzc")


@pytest.mark.parametrize(
    ("attributes", "types", "error", "text"),
    [
        (Attributes(zero_points=(ZeroPoint("src", value=1),)), f32, UnsupportedError, "f32, which"),
        (
            Attributes(scales=(Scale("src", Policy("per_dim_1")),)),
            f32,
            UnsupportedError,
            "summed over",
        ),
        (
            Attributes(scales=(Scale("src1", value=2.0),)),
            f32,
            UnsupportedError,
            "no scale for src1",
        ),
        (
            Attributes(zero_points=(ZeroPoint("src", Policy("per_oc")),)),
            s8,
            UnsupportedError,
            "one for the whole tensor",
        ),
        (Attributes(post_ops=(Sum(dtype=s8),)), f32, UnsupportedError, "sum reads the result as"),
        (Attributes(post_ops=(Prelu(),), names=("src",)), f32, ArgumentError, "name is taken"),
        (Attributes(post_ops=(Prelu(),), names=("acc",)), f32, ArgumentError, "name is taken"),
        (Attributes(post_ops=(Prelu(),), names=("a b",)), f32, ArgumentError, "no identifier"),
        (
            Attributes(post_ops=(Binary("add", f32, Policy("per_dim_7")),)),
            f32,
            ProblemError,
            "names dim 7",
        ),
    ],
)
def test_refusals(attributes: Attributes, types: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        convolution_op(CONV, types=types, attributes=attributes)
    assert caught.value.cure
