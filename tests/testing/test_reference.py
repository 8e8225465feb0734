"""The float64 references, against the definitions as loops and against PyTorch."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tilewright.dtypes import bf16, f32, s8, s32
from tilewright.errors import ProblemError
from tilewright.problems import (
    BINARY_RECORDS,
    UNARY_FUNCTIONS,
    Direction,
    PoolProblem,
    ReduceProblem,
)
from tilewright.problems.reduce import NORMS
from tilewright.testing import bounds, data, functions, reference
from tilewright.testing.approximate import Accepted, Approximate

# name, (n, groups, oc, ic per group), spatial, kernel, stride, dilation, left, right
CONVOLUTIONS = [
    ("1d", (2, 1, 3, 2), (7,), (3,), (2,), (0,), (1,), (1,)),
    ("2d", (2, 1, 4, 3), (6, 5), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1)),
    ("2d-asymmetric", (1, 1, 2, 3), (7, 6), (3, 2), (2, 3), (1, 0), (1, 2), (2, 0)),
    ("2d-groups", (2, 3, 6, 2), (5, 5), (3, 3), (2, 2), (0, 0), (1, 1), (1, 1)),
    ("2d-depthwise", (1, 4, 4, 1), (6, 6), (3, 3), (1, 1), (1, 1), (2, 2), (2, 2)),
    ("2d-stride-over-kernel", (1, 1, 2, 2), (9, 9), (1, 2), (3, 3), (0, 0), (0, 0), (-2, -1)),
    ("2d-kernel-over-image", (1, 1, 2, 2), (2, 3), (5, 5), (1, 1), (0, 0), (2, 2), (2, 2)),
    ("3d", (1, 2, 4, 2), (4, 5, 3), (2, 3, 2), (1, 2, 1), (0, 1, 0), (1, 0, 1), (0, 2, 0)),
]
Case = tuple[Any, ...]


def arrays(case: Case) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """src, grouped weights, diff_dst, and the output's spatial sizes."""
    _, (n, groups, oc, ic), spatial, kernel, stride, dilation, left, right = case
    out = reference.output_sizes(spatial, kernel, stride, dilation, left, right)
    generator = np.random.default_rng(7)
    src = generator.integers(-5, 5, (n, groups * ic, *spatial)).astype(np.float64)
    weights = generator.integers(-5, 5, (groups, oc // groups, ic, *kernel)).astype(np.float64)
    diff = generator.integers(-5, 5, (n, oc, *out)).astype(np.float64)
    return src, weights, diff, out


def by_definition(case: Case) -> tuple[Any, Any, Any]:
    """dst, diff_src and diff_weights by one loop over all products."""
    _, (n, groups, oc, ic), spatial, kernel, stride, dilation, left, _ = case
    src, weights, diff, out = arrays(case)
    dst, diff_src, diff_weights = np.zeros_like(diff), np.zeros_like(src), np.zeros_like(weights)
    per_group = oc // groups
    for b, g, o, c in itertools.product(range(n), range(groups), range(per_group), range(ic)):
        for y, k in itertools.product(np.ndindex(*out), np.ndindex(*kernel)):
            x = tuple(
                p * s - left_ + q * (d + 1)
                for p, q, s, d, left_ in zip(y, k, stride, dilation, left, strict=True)
            )
            if all(0 <= p < size for p, size in zip(x, spatial, strict=True)):
                at_src, at_weights = (b, g * ic + c, *x), (g, o, c, *k)
                at_dst = (b, g * per_group + o, *y)
                dst[at_dst] += src[at_src] * weights[at_weights]
                diff_src[at_src] += diff[at_dst] * weights[at_weights]
                diff_weights[at_weights] += diff[at_dst] * src[at_src]
    return dst, diff_src, diff_weights


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda c: c[0])
def test_convolution_against_the_definition(case: Case) -> None:
    _, (_, groups, _, _), _, _, stride, dilation, left, right = case
    src, weights, diff, _ = arrays(case)
    dst, diff_src, diff_weights = by_definition(case)
    shared = {"stride": stride, "dilation": dilation, "left": left, "groups": groups}
    forward = reference.convolution_forward(src, weights, right=right, **shared)
    backward = reference.convolution_backward_data(diff, weights, src_shape=src.shape, **shared)
    by_weights = reference.convolution_backward_weights(
        src, diff, weights_shape=weights.shape, **shared
    )
    np.testing.assert_array_equal(forward, dst)
    np.testing.assert_array_equal(backward, diff_src)
    np.testing.assert_array_equal(by_weights, diff_weights)


def test_weights_with_and_without_a_dim_for_groups() -> None:
    case = CONVOLUTIONS[3]
    _, (_, groups, oc, ic), _, kernel, stride, dilation, left, right = case
    src, weights, diff, _ = arrays(case)
    plain = weights.reshape(oc, ic, *kernel)
    shared = {"stride": stride, "dilation": dilation, "left": left, "groups": groups}
    np.testing.assert_array_equal(
        reference.convolution_forward(src, plain, right=right, **shared),
        reference.convolution_forward(src, weights, right=right, **shared),
    )
    by_weights = reference.convolution_backward_weights(
        src, diff, weights_shape=plain.shape, **shared
    )
    assert by_weights.shape == plain.shape


def test_bias() -> None:
    case = CONVOLUTIONS[1]
    _, (_, _, oc, _), _, _, stride, dilation, left, right = case
    src, weights, diff, _ = arrays(case)
    window = {"stride": stride, "dilation": dilation, "left": left, "right": right}
    without = reference.convolution_forward(src, weights, **window)
    bias = np.arange(oc)
    biased = reference.convolution_forward(src, weights, bias=bias, **window)
    np.testing.assert_array_equal(biased - without, np.ones_like(biased) * bias[:, None, None])
    np.testing.assert_array_equal(
        reference.convolution_backward_bias(diff), [diff[:, o].sum() for o in range(oc)]
    )


@pytest.mark.parametrize("case", CONVOLUTIONS[1:4:2], ids=lambda c: c[0])
def test_convolution_against_torch(case: Case) -> None:
    torch = pytest.importorskip("torch")
    _, (_, groups, oc, ic), _, kernel, stride, dilation, left, right = case
    assert left == right
    src, weights, diff, _ = arrays(case)
    plain = weights.reshape(oc, ic, *kernel)
    x = torch.tensor(src, requires_grad=True)
    w = torch.tensor(plain, requires_grad=True)
    dense = tuple(d + 1 for d in dilation)
    y = torch.nn.functional.conv2d(x, w, None, stride, left, dense, groups)
    y.backward(torch.tensor(diff))
    shared = {"stride": stride, "dilation": dilation, "left": left, "groups": groups}
    forward = reference.convolution_forward(src, plain, right=right, **shared)
    backward = reference.convolution_backward_data(diff, plain, src_shape=src.shape, **shared)
    by_weights = reference.convolution_backward_weights(
        src, diff, weights_shape=plain.shape, **shared
    )
    np.testing.assert_allclose(forward, y.detach().numpy())
    np.testing.assert_allclose(backward, x.grad.numpy())
    np.testing.assert_allclose(by_weights, w.grad.numpy())


def test_matmul_broadcasts() -> None:
    a, b = np.ones((3, 1, 2, 4)), np.arange(5 * 4 * 6.0).reshape(5, 4, 6)
    product = reference.matmul(a, b, bias=np.arange(6))
    assert product.shape == (3, 5, 2, 6)
    np.testing.assert_array_equal(product[1, 2, 0], b[2].sum(axis=0) + np.arange(6))


def pooled(problem: PoolProblem, src: Any) -> Any:
    return problem.answers({"src": src}, Direction.FWD_D)["dst"].value


@pytest.mark.parametrize("algorithm", ["max", "avg_p", "avg_np"])
def test_pooling_against_the_definition(algorithm: str) -> None:
    src = np.random.default_rng(0).normal(size=(2, 3, 6, 5))
    pool = PoolProblem.parse("mb2ic3ih6kh3sh2oh4ph1iw5kw2sw2ow3dw1pw2")
    got = pooled(pool.with_alg(algorithm), src)
    assert got.shape == (2, 3, 4, 3)
    for place in np.ndindex(got.shape):
        b, c, y, x = place
        seen = [
            src[b, c, row, column]
            for row in (y * 2 - 1 + r for r in range(3))
            for column in (x * 2 - 2 + s * 2 for s in range(2))
            if 0 <= row < 6 and 0 <= column < 5
        ]
        if algorithm == "max":
            expected = max(seen, default=-np.inf)
        else:
            count = 6 if algorithm == "avg_p" else max(1, len(seen))
            expected = sum(seen) / count
        np.testing.assert_allclose(got[place], expected, rtol=1e-14)


def test_pooling_of_padding_only() -> None:
    src = np.full((1, 1, 1), 5.0)
    problem = PoolProblem.parse("mb1ic1iw1kw1ow2pw1")
    assert pooled(problem, src)[0, 0, 0] == -np.inf
    assert pooled(problem.with_alg("avg_np"), src)[0, 0, 0] == 0
    with pytest.raises(ProblemError, match="unknown algorithm 'median'"):
        problem.with_alg("median")


def test_reductions() -> None:
    x = np.array([[1.0, -2, 3], [4, 0.5, -6]])

    def reduced(shape: tuple[int, ...], algorithm: str) -> Any:
        problem = ReduceProblem((2, 3), shape, algorithm=algorithm)
        return problem.answers({"src": x}, Direction.FWD_D)["dst"].value

    expected = {
        "sum": 0.5,
        "mean": 0.5 / 6,
        "max": 4,
        "min": -6,
        "mul": 72,
        **dict.fromkeys(NORMS, 16.5),
    }
    assert set(expected) == set(ReduceProblem.algorithms)
    for algorithm, value in expected.items():
        got = reduced((1, 1), algorithm)
        assert got.shape == (1, 1)
        np.testing.assert_allclose(got[0, 0], value, rtol=1e-14)
    np.testing.assert_allclose(reduced((2, 1), "sum"), [[2.0], [-1.5]])
    lengths = ReduceProblem((2, 3), (2, 1), algorithm="norm_lp_sum", p=2)
    result = lengths.answers({"src": x}, Direction.FWD_D)["dst"].value
    np.testing.assert_allclose(result, [[14**0.5], [52.25**0.5]], rtol=1e-14)


def test_eltwise_against_torch() -> None:
    torch = pytest.importorskip("torch")
    act = torch.nn.functional
    x = np.concatenate([np.linspace(-8, 8, 65), [0.0, 300, -300]])
    t = torch.tensor(x)
    peers = {
        "relu": (act.leaky_relu(t, 0.1), 0.1, 0),
        "elu": (act.elu(t, 0.7), 0.7, 0),
        "gelu_tanh": (act.gelu(t, approximate="tanh"), 0, 0),
        "gelu_erf": (act.gelu(t), 0, 0),
        "hardsigmoid": (act.hardsigmoid(t), 1 / 6, 0.5),
        "hardswish": (act.hardswish(t), 1 / 6, 0.5),
        "logistic": (torch.sigmoid(t), 0, 0),
        "mish": (act.mish(t), 0, 0),
        "soft_relu": (act.softplus(t, beta=2, threshold=1e9), 2, 0),
        "swish": (act.silu(t), 1, 0),
        "tanh": (torch.tanh(t), 0, 0),
        "exp": (torch.exp(t), 0, 0),
        "log": (torch.log(t), 0, 0),
        "sqrt": (torch.sqrt(t), 0, 0),
        "abs": (torch.abs(t), 0, 0),
        "round": (torch.round(t), 0, 0),
        "clip": (torch.clip(t, -1, 2), -1, 2),
        "clip_v2": (torch.clip(t, -1, 2), -1, 2),
        "linear": (2 * t - 3, 2, -3),
        "square": (t * t, 0, 0),
        "pow": (2 * t**3, 2, 3),
        "cbrt": (torch.tensor(np.cbrt(x)), 0, 0),
        "softsign": (act.softsign(t), 0, 0),
    }
    # The others have their names in PyTorch.
    others = UNARY_FUNCTIONS.keys() - peers
    peers |= {name: (getattr(torch, name)(t), 0, 0) for name in others}
    assert peers.keys() == UNARY_FUNCTIONS.keys() and len(others) > 20
    for name, (expected, alpha, beta) in peers.items():
        got = functions.eltwise(name, x, alpha, beta)
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-12, atol=1e-15, err_msg=name)


def test_binary_functions() -> None:
    a, b = np.array([[3.0], [-2.0]]), np.array([2.0, -2.0])
    expected = {
        "add": [[5, 1], [0, -4]],
        "sub": [[1, 5], [-4, 0]],
        "mul": [[6, -6], [-4, 4]],
        "div": [[1.5, -1.5], [-1, 1]],
        "max": [[3, 3], [2, -2]],
        "min": [[2, -2], [-2, -2]],
        "ge": [[1, 1], [0, 1]],
        "gt": [[1, 1], [0, 0]],
        "le": [[0, 0], [1, 1]],
        "lt": [[0, 0], [1, 0]],
        "eq": [[0, 0], [0, 1]],
        "ne": [[1, 1], [1, 0]],
        "prelu": [[3, 3], [-4, 4]],
    }
    assert set(expected) == {*BINARY_RECORDS, "prelu"}
    for name, values in expected.items():
        np.testing.assert_array_equal(functions.binary(name, a, b), values, err_msg=name)


# Bounds.


@pytest.mark.parametrize("terms", [1, 10, 3000])
def test_dot_bound_holds_and_is_not_vacuous(terms: int) -> None:
    a = data.reals((64, terms), f32, seed=1)
    b = data.reals((64, terms), f32, seed=2)
    total = np.zeros(64, np.float32)
    for k in range(terms):
        total += a[:, k] * b[:, k]
    exact = np.einsum("ik,ik->i", a.astype(np.float64), b)
    magnitudes = np.einsum("ik,ik->i", np.abs(a.astype(np.float64)), np.abs(b))
    bound = bounds.dot_bound(magnitudes, exact, terms=terms, accumulator=f32, dst=f32)
    assert np.all(np.abs(total - exact) <= bound)
    assert np.all(bound < 1e-3 * np.maximum(magnitudes, 1e-3))
    rounded = total.astype(bf16.numpy).astype(np.float64)
    coarse = bounds.dot_bound(magnitudes, exact, terms=terms, accumulator=f32, dst=bf16)
    assert np.all(np.abs(rounded - exact) <= coarse)
    assert np.max(np.abs(rounded - exact) / coarse) > 0.3
    narrow = (a.astype(bf16.numpy).astype(np.float64) * b).sum(axis=1)
    loose = bounds.dot_bound(
        magnitudes, exact, terms=terms, accumulator=f32, dst=f32, operands=(bf16,)
    )
    assert np.all(np.abs(narrow - exact) <= loose)


def test_integer_bounds() -> None:
    one = {"terms": 5, "accumulator": s32}
    assert bounds.dot_bound(10.0, 3.0, dst=s8, **one) == 0
    assert bounds.dot_bound(10.0, 3.0, terms=5, accumulator=f32, dst=s8) > 0.5


def test_bounds_of_very_many_terms() -> None:
    """As many as 1 / u had none, and what has none had to be exact."""
    assert bounds.gamma(2**24, f32) == pytest.approx(math.e - 1)
    assert bounds.gamma(2**40, f32) == math.inf
    assert bounds.gamma(1000, f32) == pytest.approx(1000 * 2**-24, rel=1e-3)
    unknown = Approximate(np.array([2.0]), np.array([math.inf]), f32)
    accepted = Accepted.stored(unknown, f32)
    assert accepted.low == -math.inf and accepted.high == math.inf
    infinite = Accepted.stored(Approximate(np.array([math.inf]), np.array([0.0]), f32), f32)
    assert infinite.low == infinite.high == math.inf
