"""Peers in PyTorch: which there are, that they compute the same, and why there is none."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.bench.benchmark import make_arrays
from tilewright.bench.peer import find_peers
from tilewright.bench.torch_tensors import load_torch, window_of
from tilewright.bench.torch_work import make_tensors
from tilewright.dtypes import bf16, f32, f64, s4, s8, s32, u4, u8
from tilewright.errors import UnsupportedError
from tilewright.problems import (
    UNARY_FUNCTIONS,
    Binary,
    Direction,
    Policy,
    Prelu,
    Scale,
    Sum,
    Unary,
    ZeroPoint,
    parse,
)
from tilewright.testing.approximate import Approximate
from tilewright.testing.case import Case

needs_torch = pytest.mark.skipif(load_torch() is None, reason="PyTorch is not installed")
NHWC = ("axb", "any", "axb")
CONV = Case(parse("conv", "mb1ic8ih6oc4kh3ph1"), tags=NHWC)
RELU = Unary("relu")
RESIDUAL = (Sum(), RELU)
INT8 = replace(
    CONV,
    types=(u8, s8, u8),
    scales=(Scale("src", value=0.25), Scale("weights", Policy("per_oc")), Scale("dst", value=8.0)),
    zero_points=(ZeroPoint("src", value=2), ZeroPoint("dst", value=7)),
)
LINEAR = Case(parse("matmul", "8x4:4x16"))
GROUPED = Case(
    parse("matmul", "2x64:64x16"),
    (f32, u4, f32),
    scales=(Scale("weights", Policy("per_ocic"), group=32),),
)


@needs_torch
@pytest.mark.parametrize(
    ("case", "names"),
    [
        (Case(parse("conv", "mb1ic8ih6oc4kh3ph1")), ["oneDNN"]),
        (Case(parse("conv", "mb1ic8ih6oc4kh3ph1"), direction=Direction.BWD_D), ["oneDNN"]),
        (Case(parse("conv", "mb1ic8iw6oc4kw3"), direction=Direction.BWD_WB), ["oneDNN"]),
        (Case(parse("conv", "mb1ic8ih6oc4kh3"), (u8, s8, f32)), ["oneDNN"]),
        (Case(parse("conv", "mb1ic8ih6oc4kh3"), tags=("nchw", "any", "nchw")), ["oneDNN"]),
        (replace(CONV, post_ops=(RELU,), direction=Direction.FWD_B), ["oneDNN"]),
        (replace(CONV, post_ops=(Unary("swish", 1.0),)), ["oneDNN"]),
        (
            replace(CONV, post_ops=(Unary("clip_v2", 0.0, 2.0),), tags=("abx", "any", "abx")),
            ["oneDNN"],
        ),
        (replace(CONV, post_ops=RESIDUAL), ["oneDNN"]),
        (replace(CONV, post_ops=(Sum(0.5), RELU)), ["oneDNN + torch"]),
        (replace(CONV, post_ops=(*RESIDUAL, Unary("mish"))), ["oneDNN + torch"]),
        (
            replace(CONV, post_ops=(Binary("mul", f32, Policy("per_oc")), Prelu(), RELU)),
            ["oneDNN + torch"],
        ),
        (
            Case(parse("conv", "mb1ic8iw6oc4kw3"), post_ops=(Binary("add", f32, Policy("7")),)),
            ["oneDNN + torch"],
        ),
        (INT8, ["oneDNN"]),
        (replace(INT8, post_ops=(RELU,)), ["oneDNN"]),
        (replace(INT8, post_ops=(Sum(0.5), Unary("swish", 1.0))), ["oneDNN + torch"]),
        (LINEAR, ["oneDNN", "torch.mm"]),
        (
            replace(LINEAR, post_ops=(Unary("gelu_tanh"),), direction=Direction.FWD_B),
            ["oneDNN", "torch.mm + torch"],
        ),
        (replace(LINEAR, post_ops=(Sum(),)), ["oneDNN + torch", "torch.mm + torch"]),
        (Case(parse("matmul", "8x4:4x16"), (u8, s8, f32)), ["oneDNN"]),
        (replace(INT8, problem=LINEAR.problem, tags=("any",) * 3), ["oneDNN"]),
        (Case(parse("matmul", "2x8x4:2x4x16")), ["torch.matmul"]),
        (GROUPED, ["torch int4"]),
        (replace(GROUPED, types=(bf16, s4, bf16)), ["torch int4"]),
        (Case(parse("pool", "mb1ic8ih6kh2")), ["torch"]),
        (Case(parse("reduce", "8x4:8x1").with_alg("mean")), ["torch"]),
        (
            Case(parse("eltwise", "8x4").with_alg("linear:2:1"), post_ops=(Unary("relu"),)),
            ["torch"],
        ),
        (Case(parse("eltwise", "8x4").with_alg("mish")), ["torch"]),
        (Case(parse("binary", "8x4:1x4").with_alg("mul")), ["torch"]),
        (Case(parse("binary", "8x4:1x4").with_alg("max"), post_ops=(Unary("exp"),)), ["torch"]),
        (Case(parse("reorder", "2x16x4x4"), tags=("nchw", "nChw16c")), ["torch"]),
    ],
    ids=lambda value: value.arguments() if isinstance(value, Case) else "",
)
def test_peers(case: Case, names: list[str]) -> None:
    op = case.op().resolved()
    peers = find_peers(op, threads=1)
    assert list(peers) == names
    result = next(t for t in op.tensors if t.access != "in")
    elements = 1
    for size in result.shape:
        elements *= size
    for calls in peers.values():
        values = []
        for call in calls:
            results = call()
            results = (
                [e for e in results if e is not None] if isinstance(results, tuple) else [results]
            )
            (same,) = [tensor for tensor in results if tensor.numel() == elements][:1]
            values.append(same.double())
        # All ways compute the same, of the same arrays; int8 may round otherwise.
        within = 1 if result.name == "dst" and op.dtype_of("dst").is_integer else 1e-4
        for other in values[1:]:
            assert (other - values[0]).abs().max() <= within


@needs_torch
@pytest.mark.parametrize(
    ("case", "why"),
    [
        (replace(CONV, types=(f64,) * 3), "PyTorch leaves no convolution of f64 to oneDNN here"),
        (replace(CONV, problem=parse("conv", "ic8ih8oc8oh8kh2ph0")), "pads both sides of a dim"),
        (replace(CONV, direction=Direction.BWD_D, post_ops=(RELU,)), "no gradient with an epilog"),
        (replace(CONV, post_ops=(RELU, Unary("swish", 2.0))), "PyTorch has no swish:2"),
        (replace(CONV, post_ops=(Sum(1.0, 3), RELU)), "no sum with a zero point"),
        (replace(CONV, types=(s8, s8, f32)), "int8 convolution is of u8 by s8"),
        (replace(INT8, types=(u8, s8, s32)), "int8 products have no results of s32"),
        (
            replace(INT8, zero_points=(ZeroPoint("weights", value=1),)),
            "PyTorch's int8 weights have no zero point",
        ),
        (replace(LINEAR, types=(f32, f32, bf16)), "multiplies no f32 by f32 to bf16"),
        (replace(LINEAR, scales=(Scale("src", value=2.0),)), "no matmul of such types with scales"),
        (replace(GROUPED, types=(f32, u8, f32)), "no f32 by u8 with groups to f32"),
        (replace(GROUPED, problem=parse("matmul", "2x64:64x8")), "in whole blocks of 16"),
        (replace(GROUPED, post_ops=(RELU,)), "with groups has no batch and no epilogue"),
        (Case(parse("pool", "mb1ic8ih6kh2"), post_ops=(RELU,)), "no pool with post-ops"),
        (Case(parse("pool", "mb1ic8ih6oh6kh2ph0")), "pads both sides of a dim alike"),
        (Case(parse("reduce", "8x4:8x1").with_alg("mul")), "no reduction mul"),
        (Case(parse("eltwise", "8x4").with_alg("soft_relu:2"), post_ops=(Sum(1, 2),)), "zero poi"),
        (Case(parse("reorder", "2x15x4x4"), tags=("nchw", "nChw16c")), "no blocks that are padded"),
    ],
)
def test_why_there_is_no_peer(case: Case, why: str) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(why)):
        find_peers(case.op().resolved(), threads=1)


def test_padding_that_pytorch_has() -> None:
    def padding(descriptor: str) -> Any:
        problem: Any = parse("conv", descriptor)
        window = window_of(problem)
        return None if window is None else window["padding"]

    assert padding("ic3ih8oc3kh3ph1") == [1, 1]
    assert padding("ic3ih224oc64kh7sh2ph3") == [3, 3]  # one row behind is never reached
    assert padding("ic3iw8oc3kw3pw1") == [0, 1]  # in 2D
    assert padding("ic8ih8oc8oh8kh2ph0") is None


@needs_torch
def test_functions_of_pytorch_are_ours() -> None:
    torch = load_torch()
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)
    missing = []
    for name, function in UNARY_FUNCTIONS.items():
        values = {"alpha": 0.75, "beta": 1.25, "scale": 2.0}
        if name in ("hardsigmoid", "hardswish"):
            values = {"alpha": 1 / 6, "beta": 0.5, "scale": 2.0}
        kept = {key: values[key] for key in (*function.parameters, "scale")}
        of = x[(x > function.domain[0]) & (x < function.domain[1])]
        for alpha in {kept.get("alpha", 0.0), 1.0} if name == "swish" else {kept.get("alpha", 0.0)}:
            unary = Unary(name, **{**kept, "alpha": alpha})
            ours = unary.peer(torch)
            if ours is None:
                missing.append(unary.describe())
                continue
            want = Approximate.exact(of.numpy(), f64).unary(unary).value
            assert ours(of, torch.empty_like(of)).numpy() == pytest.approx(want, abs=1e-9), name
            copy = of.clone()
            assert ours(copy, copy).numpy() == pytest.approx(want, abs=1e-9), name
    assert missing == ["swish:0.75:0:2"]


def test_places_are_drawn_from_all_there_are() -> None:
    op = tw.gather("1000x3:500").resolved()
    kernel = tw.compile(op, target="x86", threads=1)
    ours = make_arrays(kernel)["indices"]
    assert len(np.unique(ours)) > 300 and ours.min() >= 0 and ours.max() < 1000
    torch = pytest.importorskip("torch")
    tensors = make_tensors(torch, op, "cpu", exact=False, seed=0)
    assert (tensors["indices"].numpy() == ours).all()
