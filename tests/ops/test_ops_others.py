"""Matmul, pooling, reduction, elementwise and reorder against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from op_runs import execute, integers, rounded
from tilewright.dtypes import bf16, boolean, f32, f64, s8, s32, u8
from tilewright.errors import LayoutError, UnsupportedError
from tilewright.layout.roles import roles
from tilewright.ops.attributes import Attributes
from tilewright.ops.foundation import foundation_op
from tilewright.ops.matmul import matmul_op
from tilewright.problems import (
    BinaryProblem,
    Direction,
    EltwiseProblem,
    MatmulProblem,
    Policy,
    PoolProblem,
    ReduceProblem,
    ReorderProblem,
    Scale,
    Sum,
    Unary,
    ZeroPoint,
)
from tilewright.testing import reference


@pytest.mark.parametrize("shape", ["3x4:4x5", "2x3x4:1x4x5", "1x2x3x4:5x2x4x1", "1x7:7x1"])
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(shape: str, transposed: bool) -> None:
    problem = MatmulProblem.parse(shape)
    rank = len(problem.src_shape)
    plain = "abcd"[:rank]
    tag = plain[:-2] + plain[-1] + plain[-2] if transposed else plain
    op = matmul_op(problem, layouts={"src": tag, "weights": tag}, bias=True)
    data = {name: integers(problem.shapes[name], f32, 1) for name in ("src", "weights")}
    bias = integers((problem.n,), f32, 9)
    result = execute(op, **data, bias=bias)["dst"]
    np.testing.assert_array_equal(result, reference.matmul(data["src"], data["weights"], bias))


def test_matmul_quantized_with_blocked_weights() -> None:
    problem = MatmulProblem.parse("2x3x6:2x6x5")
    types = {"src": u8, "weights": s8, "dst": s8}
    attributes = Attributes(
        scales=(Scale("src", value=0.5), Scale("weights", Policy("per_oc"))),
        zero_points=(ZeroPoint("src", value=4), ZeroPoint("weights", Policy("per_oc"))),
        post_ops=(Unary("relu"),),
    )
    op = matmul_op(problem, types, {"weights": "aBC2b4c", "dst": "aBc4b"}, attributes)
    src, weights = (integers(problem.shapes[n], types[n], 2) for n in ("src", "weights"))
    factors, zeros = [0.5, 1.0, 2.0, 0.25, 1.0], [1, 0, -1, 2, 3]
    result = execute(op, src=src, weights=weights, weights_scale=factors, weights_zero_point=zeros)[
        "dst"
    ]
    sums = reference.matmul(src - 4, weights - np.array(zeros))
    wanted = np.maximum(sums * 0.5 * np.array(factors), 0)
    np.testing.assert_array_equal(result, rounded(wanted, s8))


def test_matmul_roles_and_broadcast() -> None:
    kernel = matmul_op(MatmulProblem.parse("2x1x3x4:1x5x4x6")).kernel()
    main = next(s for s in kernel.body.body if getattr(s, "name", "") == "main")
    result = {name: role.value for name, role in roles(main).items()}
    assert result == {"b0": "m", "b1": "n", "m": "m", "n": "n", "k": "k"}


POOLS = [
    "ic3ih7kh3sh2ph1",
    "ic3ih6kh2sh2",
    "ic2iw9kw3sw2pw1dw1",
    "ic2id4ih3iw5kd2kh2kw3ph1",
    "ic2ih3oh4kh2sh2ph3",
    "ic2ih5oh5kh2ph0",
]


def _pooled(problem: PoolProblem, src: Any) -> Any:
    return problem.answers({"src": src}, Direction.FWD_D)["dst"].value


def test_a_problem_keeps_its_algorithm() -> None:
    window = PoolProblem.parse("ic3ih6kh2").with_alg("avg_np")
    assert tw.pool(window).problem == window
    assert tw.pool(window, algorithm="max").problem == window.with_alg("max")
    rows = ReduceProblem.parse("4x8:4x1").with_alg("mean")
    assert tw.reduce(rows).problem == rows


@pytest.mark.parametrize("shape", POOLS)
@pytest.mark.parametrize("algorithm", PoolProblem.algorithms)
@pytest.mark.parametrize("tag", ["abx", "axb", "aBx8b"])
def test_pooling(shape: str, algorithm: str, tag: str) -> None:
    problem = PoolProblem.parse(shape).with_alg(algorithm)
    src = integers(problem.src_shape, f32, 3)
    op = foundation_op(problem, types=f64, layouts={"src": tag, "dst": tag})
    result = execute(op, src=src)["dst"]
    np.testing.assert_allclose(result, _pooled(problem, src), rtol=1e-14)


@pytest.mark.parametrize("dtype", [s8, u8, bf16], ids=str)
@pytest.mark.parametrize("algorithm", PoolProblem.algorithms)
def test_pooling_in_other_types(dtype: Any, algorithm: str) -> None:
    problem = PoolProblem.parse("ic3ih6kh2sh2").with_alg(algorithm)
    src = integers(problem.src_shape, dtype, 3) - (0 if dtype is u8 else 3)
    result = execute(foundation_op(problem, types=dtype), src=src)["dst"]
    np.testing.assert_array_equal(result, rounded(_pooled(problem, src), dtype))


@pytest.mark.parametrize("shape", POOLS)
@pytest.mark.parametrize("algorithm", PoolProblem.algorithms[1:])
def test_gradient_of_average_pooling(shape: str, algorithm: str) -> None:
    problem = PoolProblem.parse(shape).with_alg(algorithm)
    diff = integers(problem.dst_shape, f32, 4)
    result = execute(foundation_op(problem, Direction.BWD_D, f64), dst=diff)["src"]
    # The adjoint of a linear map: <pool(x), diff> = <x, gradient> for every x.
    for seed in range(3):
        x = integers(problem.src_shape, f32, 10 + seed)
        forward = (_pooled(problem, x) * diff).sum()
        np.testing.assert_allclose((x * result).sum(), forward, rtol=1e-12, atol=1e-12)


def test_pooling_refusals() -> None:
    problem = PoolProblem.parse("ic3ih7kh3sh2ph1")
    with pytest.raises(UnsupportedError, match="gradient of max pooling"):
        foundation_op(problem, direction=Direction.BWD_D)
    with pytest.raises(UnsupportedError, match="pool has no direction BWD_W"):
        foundation_op(problem, direction=Direction.BWD_W)


@pytest.mark.parametrize("shape", ["2x3x4:2x1x4", "2x3x4:1x1x1", "5x3:5x1"])
@pytest.mark.parametrize("algorithm", ReduceProblem.algorithms)
@pytest.mark.parametrize("dtype", [f64, f32, s8, s32], ids=str)
def test_reduction(shape: str, algorithm: str, dtype: Any) -> None:
    problem = ReduceProblem.parse(shape).with_alg(algorithm)
    src = integers(problem.src_shape, dtype, 5)
    result = execute(foundation_op(problem, types=dtype), src=src)["dst"]
    wanted = problem.answers({"src": src}, Direction.FWD_D)["dst"].value
    if dtype.is_float:
        np.testing.assert_allclose(result, wanted, rtol=4 * dtype.epsilon)
    else:
        np.testing.assert_array_equal(result, rounded(wanted, dtype))


def test_reduction_with_layouts_and_post_op() -> None:
    problem = ReduceProblem.parse("2x5x4:2x1x4")
    src = integers(problem.src_shape, f32, 5)
    attributes = Attributes(post_ops=(Unary("square"),))
    op = foundation_op(problem, layouts={"src": "aBc4b", "dst": "abC8c"}, attributes=attributes)
    wanted = src.sum(axis=1, keepdims=True) ** 2
    np.testing.assert_array_equal(execute(op, src=src)["dst"], wanted)


def test_binary_scales_its_sources() -> None:
    problem = BinaryProblem.parse("2x3x4:2x3").with_alg("sub")
    attributes = Attributes(scales=(Scale("src", value=0.5), Scale("src1", value=4.0)))
    op = foundation_op(problem, layouts={"dst": "aBc2b"}, attributes=attributes)
    a, b = integers((2, 3, 4), f32, 1), integers((2, 3, 1), f32, 2)
    np.testing.assert_array_equal(execute(op, src0=a, src1=b)["dst"], 0.5 * a - 4 * b)


def test_elementwise_in_low_precision() -> None:
    problem = EltwiseProblem.parse("3x7").with_alg("linear:0.5:1")
    src = integers((3, 7), bf16, 1)
    result = execute(foundation_op(problem, types=bf16), src=src)["dst"]
    np.testing.assert_array_equal(result, rounded(0.5 * src + 1, bf16))


@pytest.mark.parametrize(
    ("src", "dst"), [(f32, bf16), (s32, u8), (s8, u8), (u8, s8), (f32, s8), (s8, f32), (f64, s32)]
)
def test_reorder_converts_and_saturates(src: Any, dst: Any) -> None:
    problem = ReorderProblem.parse("2x5x3x2")
    values = np.random.default_rng(0).integers(-300, 300, problem.shape).astype(np.float64)
    values = rounded(values + (0.5 if src.is_float else 0), src)
    op = foundation_op(
        problem, types={"src": src, "dst": dst}, layouts={"src": "nhwc", "dst": "nChw4c"}
    )
    np.testing.assert_array_equal(execute(op, src=values)["dst"], rounded(values, dst))


def test_reorder_quantizes() -> None:
    problem = ReorderProblem.parse("2x5")
    attributes = Attributes(
        scales=(Scale("src", value=0.5), Scale("dst", Policy("per_dim_1"))),
        zero_points=(ZeroPoint("src", value=100), ZeroPoint("dst", value=-3)),
        post_ops=(Sum(2.0),),
    )
    op = foundation_op(problem, types={"src": u8, "dst": s8}, attributes=attributes)
    src, old = integers((2, 5), u8, 1), integers((2, 5), s8, 2)
    factors = np.array([0.5, 1.0, 2.0, 4.0, 0.25])
    result = execute(op, src=src, dst=old, dst_scale=factors)["dst"]
    wanted = ((src - 100) * 0.5 + 2 * old) / factors - 3
    np.testing.assert_array_equal(result, rounded(wanted, s8))


def test_refusals_that_all_ops_share() -> None:
    problem = ReorderProblem.parse("2x5")
    with pytest.raises(UnsupportedError, match="does not compute on bool"):
        foundation_op(problem, types={"src": boolean, "dst": f32})
    with pytest.raises(LayoutError, match="a layout is given for 'weights'"):
        foundation_op(problem, layouts={"weights": "ab"})
    with pytest.raises(LayoutError, match="overlap in memory"):
        foundation_op(problem, layouts={"dst": (1, 1)})
    with pytest.raises(LayoutError, match="less than the tensor's"):
        from_other = foundation_op(ReorderProblem.parse("2x4")).argument("src").layout
        foundation_op(problem, layouts={"src": from_other})
