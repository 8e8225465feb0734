"""Each elementwise function is one record, whose parts agree; and the names that others have for
some."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import tilewright as tw
from op_runs import execute
from tilewright.dtypes import f32
from tilewright.errors import ProblemError
from tilewright.problems import (
    BINARY_RECORDS,
    UNARY_ALIASES,
    UNARY_FUNCTIONS,
    Unary,
    parse_post_ops,
    parse_unary,
)
from tilewright.testing.approximate import Approximate

# Numbers that the functions which take some can work with, and that PyTorch has.
NUMBERS = {
    "clip": (-0.5, 1.5),
    "clip_v2": (-0.5, 1.5),
    "elu": (0.5, 0.0),
    "hardsigmoid": (1 / 6, 0.5),
    "hardswish": (1 / 6, 0.5),
    "linear": (1.5, -0.25),
    "pow": (2.0, 1.5),
    "relu": (0.25, 0.0),
    "soft_relu": (2.0, 0.0),
    "swish": (1.0, 0.0),
}
POINTS = np.concatenate([np.linspace(-4, 4, 33), [0.125, 30.0]]).astype(np.float32)


def points(name: str) -> np.ndarray:
    """Those of `POINTS` where the function is finite."""
    low, high = UNARY_FUNCTIONS[name].domain
    return POINTS[(low < POINTS) & (high > POINTS)]


def wanting(record: object) -> list[str]:
    """The parts of a record that are empty."""
    assert dataclasses.is_dataclass(record)
    names = ("aten", "onnx", "stablehlo")
    optional = ("parameters", "units", "compares", "keeps", "least", "breaks", *names)
    return [
        field.name
        for field in dataclasses.fields(record)
        if field.name not in optional and not getattr(record, field.name)
    ]


@pytest.mark.parametrize("name", [*UNARY_FUNCTIONS, *BINARY_RECORDS])
def test_records_are_whole(name: str) -> None:
    record = UNARY_FUNCTIONS.get(name) or BINARY_RECORDS[name]
    assert wanting(record) == []
    assert record.name == name
    if name in UNARY_FUNCTIONS:
        # What it takes is what the formula has.
        taken = tuple(re.findall("alpha|beta", UNARY_FUNCTIONS[name].formula))
        assert tuple(dict.fromkeys(taken)) == UNARY_FUNCTIONS[name].parameters
        assert bool(taken) == (name in NUMBERS)


def test_what_is_missing_is_found() -> None:
    record = dataclasses.replace(UNARY_FUNCTIONS["exp"], formula="", peer=None)  # type: ignore[arg-type]
    assert wanting(record) == ["formula", "peer"]


@pytest.mark.parametrize("name", UNARY_FUNCTIONS)
def test_a_function_is_within_its_bound(name: str) -> None:
    alpha, beta = NUMBERS.get(name, (0.0, 0.0))
    values = points(name)
    result = execute(tw.elementwise(values.shape, name, alpha, beta), src=values)["dst"]
    bound = Approximate.exact(values, f32).unary(Unary(name, alpha, beta))
    off = np.abs(result.astype(np.float64) - bound.value)
    assert (off <= bound.error).all(), (name, values[off > bound.error])
    assert UNARY_FUNCTIONS[name].units > 0 or not bound.error.any() or alpha == 1 / 6


@pytest.mark.parametrize("name", UNARY_FUNCTIONS)
def test_a_function_is_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    record = UNARY_FUNCTIONS[name]
    alpha, beta = NUMBERS.get(name, (0.0, 0.0))
    values = points(name).astype(np.float64)
    step = record.peer(torch, alpha, beta)
    assert step is not None
    result = step(torch.from_numpy(values), torch.empty(values.shape, dtype=torch.float64))
    wanted = record.reference(values, alpha, beta)
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-12, atol=3e-9)


def test_pytorch_lacks_some_numbers() -> None:
    torch = pytest.importorskip("torch")
    assert UNARY_FUNCTIONS["swish"].peer(torch, 1.5, 0.0) is None
    assert UNARY_FUNCTIONS["hardsigmoid"].peer(torch, 0.2, 0.5) is None
    x, out = torch.tensor([-2.0, 3.0]), torch.empty(2)
    relu, power = UNARY_FUNCTIONS["relu"].peer, UNARY_FUNCTIONS["pow"].peer
    assert relu(torch, 0.0, 0.0)(x, out).tolist() == [0, 3]  # type: ignore[misc]
    assert power(torch, 1.0, 2.0)(x, out).tolist() == [4, 9]  # type: ignore[misc]


@pytest.mark.parametrize("name", BINARY_RECORDS)
def test_a_function_of_two_is_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    record = BINARY_RECORDS[name]
    a, b = POINTS.astype(np.float64), np.roll(POINTS, 3).astype(np.float64) + 0.0625
    b[:5] = a[:5] + (a[:5] == 0)
    out = torch.empty(a.shape, dtype=torch.float64)
    getattr(torch, record.peer)(torch.from_numpy(a), torch.from_numpy(b), out=out)
    np.testing.assert_array_equal(out.numpy(), np.asarray(record.reference(a, b), np.float64))


# Names that PyTorch and JAX have.


@pytest.mark.parametrize("alias", UNARY_ALIASES)
def test_other_names(alias: str) -> None:
    name, alpha = UNARY_ALIASES[alias]
    meant = Unary(name, alpha)
    assert tw.unary(alias) == parse_unary(alias) == parse_post_ops(alias)[0] == meant
    assert parse_unary(meant.describe()) == meant
    assert tw.elementwise((2, 8), alias) == tw.elementwise((2, 8), name, alpha)
    assert tw.unary(alias, scale=2.0) == Unary(name, alpha, 0.0, 2.0)
    with pytest.raises(ProblemError, match=f"{alias} takes no alpha and no beta"):
        tw.unary(alias, 2.0)
    with pytest.raises(ProblemError, match=f"{alias} takes no alpha"):
        parse_post_ops(f"{alias}:0:1")


def test_silu_is_silu() -> None:
    x = np.array([[-1.0, 0.0, 2.0]], np.float32)
    result = execute(tw.elementwise(x.shape, "silu"), src=x)["dst"]
    np.testing.assert_allclose(result, x / (1 + np.exp(-x)), rtol=1e-6)
    result = execute(tw.elementwise(x.shape, "gelu"), src=x)["dst"]
    np.testing.assert_allclose(result, [[-0.1586553, 0.0, 1.9544997]], rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: tw.unary("gleu"), "gelu"),
        (lambda: tw.unary("Sigmoid"), "sigmoid"),
        (lambda: tw.elementwise("8", "tamh"), "tanh"),
        (lambda: tw.elementwise("8x8:8x8", "ad"), "add"),
        (lambda: tw.binary("mull", "x"), "mul"),
        (lambda: tw.matmul("8x8:8x8", dtype="bf61"), "bf16"),
        (lambda: tw.compile(tw.matmul("8x8:8x8"), target="nvida:sm_80"), "nvidia"),
        (lambda: tw.compile(tw.matmul("8x8:8x8"), target="x86:avx22"), "avx2"),
        (lambda: tw.compile(tw.matmul("8x8:8x8"), target="nvidia:sm80"), "sm_80"),
        (lambda: tw.compile(tw.matmul("4x4:4x4"), "x86")(scr=0), "src"),
        (lambda: tw.compile(tw.matmul("4x4:4x4"), "x86").pack("weight", 0), "weights"),
    ],
)
def test_what_was_meant(call: object, meant: str) -> None:
    with pytest.raises(tw.TilewrightError, match=rf"did you mean {meant}\? "):
        call()  # type: ignore[operator]


def test_what_is_close_to_nothing() -> None:
    with pytest.raises(ProblemError, match="cure: choose one of abs, clip") as result:
        tw.unary("q")
    assert "mean" not in str(result.value)


def test_names_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'convoluton'") as result:
        tw.convoluton  # noqa: B018
    assert result.value.name == "convoluton" and result.value.obj is tw
