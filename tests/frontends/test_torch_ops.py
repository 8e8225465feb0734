"""Ops of ATen against PyTorch: one in twelve here, all of them in the sweep (`torch_ops`)."""

from __future__ import annotations

from importlib import import_module
from itertools import islice
from typing import Any

import pytest

from sweeps import in_turns

torch = pytest.importorskip("torch")
ops: Any = import_module("torch_ops")
SAMPLES = import_module("torch_samples").SAMPLES

# What depends on data or on memory; and what is not there.
ISLANDS = {
    *("as_strided.default", "nonzero.default", "masked_scatter.default"),
    "_local_scalar_dense.default",
    *("_cdist_forward.default", "_pdist_forward.default", "_embedding_bag.default"),
    *("_native_batch_norm_legit.default", "_adaptive_avg_pool2d_backward.default"),
    "col2im.default",
    *("native_layer_norm_backward.default", "native_group_norm_backward.default"),
    "embedding_dense_backward.default",
}


@pytest.mark.parametrize("name", in_turns(12, [n for n in SAMPLES if n not in ISLANDS]))
def test_ops_are_native_and_pytorchs(name: str) -> None:
    torch.manual_seed(0)
    op = ops.core_ops()[name]
    samples = list(islice(SAMPLES[name](), 2))
    assert samples
    for sample in samples:
        assert ops.outcome(op, sample) == ("native", "")


@pytest.mark.parametrize("name", in_turns(6, sorted(ISLANDS)))
def test_islands_say_why(name: str) -> None:
    op = ops.core_ops()[name]
    samples = list(SAMPLES[name]())
    assert samples
    for sample in samples:
        result, why = ops.outcome(op, sample)
        assert result == "island" and why


def test_places_outside_touch_no_memory() -> None:
    table, index = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 99, -99])
    gm, tensors = ops.graph_of(torch.ops.aten.embedding.default, ((table, index), {}))
    options = ops.Options(strict=True, checks=False)
    run = ops.compiled_by_parts(gm, (), options, ops.GraphReport("op"))
    assert run(*tensors)[0].tolist() == table[[0, 3, 0]].tolist()


def test_the_sign_of_nan_is_0() -> None:
    x = torch.tensor([float("nan"), -2.0, 0.0, float("inf")])
    gm, tensors = ops.graph_of(torch.ops.aten.sign.default, ((x,), {}))
    run = ops.compiled_by_parts(gm, (), ops.Options(strict=True), ops.GraphReport("op"))
    assert run(*tensors)[0].tolist() == [0, -1, 0, 1]


def test_softmax_of_one_element_is_no_number_where_that_is_infinite() -> None:
    for op in (torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default):
        x = torch.tensor(float("inf"))
        gm, tensors = ops.graph_of(op, ((x, 0, False), {}))
        run = ops.compiled_by_parts(gm, (), ops.Options(strict=True), ops.GraphReport("op"))
        assert run(*tensors)[0].isnan()
        assert op(x, 0, False).isnan()


def test_integers_of_64_bits_wrap() -> None:
    """What the IR proves of s64 holds for no number that has wrapped."""

    def wraps(v: Any) -> Any:
        return (
            *((v * 3) // 3, v + 1 > v, v * 6 % 3, 2 * v < 8, torch.minimum(v, v + 1), -v, v**3),
            *(v - 2 * v.flip(0), torch.addcmul(v, v, v, value=3), torch.rsub(v, 7, alpha=5)),
        )

    v = torch.tensor([2**63 - 1, 2**62, -(2**63), 5])
    run = torch.compile(wraps, backend="tilewright")
    results = wraps(v)
    assert len(results) == 10
    for tensor, wanted in zip(run(v), results, strict=True):
        assert tensor.tolist() == wanted.tolist()


def test_a_window_of_one_number_is_for_all_dims() -> None:
    x, grad = torch.randn(1, 2, 4, 4, 4), torch.randn(1, 2, 2, 2, 2)
    options = ([2], [0], False, True, None)
    samples = {
        "max_pool3d_with_indices.default": (x, [2]),
        "avg_pool3d.default": (x, [2]),
        "avg_pool3d_backward.default": (grad, x, [2], *options),
    }
    for name, arguments in samples.items():
        packet, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        assert ops.outcome(op, (arguments, {})) == ("native", ""), name
