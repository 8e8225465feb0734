"""`verify --against torch`: PyTorch's results beside float64."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from commands import Command
from tilewright.bench.torch_tensors import load_torch
from tilewright.bench.torch_work import torch_results
from tilewright.cli import against
from tilewright.cli.against import against_torch
from tilewright.errors import UnsupportedError
from tilewright.testing.verify import Status, verify

OPS = {
    "conv": tw.convolution("mb1ic4ih5oc6kh3ph1", epilogue=[tw.bias(), tw.relu()]),
    "gradient": tw.convolution("mb1ic4ih5oc6kh3ph1", direction="bwd_weights"),
    "matmul": tw.matmul("5x7:7x4"),
    "pool": tw.pool("mb1ic3ih6kh2sh2", algorithm="avg_np"),
    "max": tw.pool("mb1ic3ih6kh3sh2ph1"),
    "reduce": tw.reduce("4x9:4x1"),
    "eltwise": tw.elementwise("4x9", "gelu_erf"),
    "binary": tw.elementwise("4x9:1x9", "add"),
    "reorder": tw.reorder("4x9", dtype="f32:bf16", dst="ba"),
    "softmax": tw.softmax("4x9", dtype="bf16"),
    "norm": tw.layer_norm("4x9", dtype="bf16"),
}

needs_torch = pytest.mark.skipif(load_torch() is None, reason="PyTorch is not installed")


def _compiled(op: Any) -> Any:
    return tw.compile(op, threads=1)


@needs_torch
@pytest.mark.parametrize("name", OPS)
def test_the_same_as_torch(name: str) -> None:
    op = OPS[name]
    verdict = verify(op, _compiled, more=against_torch(op, 0))
    assert verdict.status is Status.PASSED, verdict.reason


@needs_torch
def test_another_opinion_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*given: Any) -> Any:
        return {name: array + 0.01 for name, array in torch_results(*given).items()}

    monkeypatch.setattr(against, "torch_results", wrong)
    op = OPS["softmax"]
    verdict = verify(op, _compiled, more=against_torch(op, 0))
    assert verdict.status is Status.FAILED and "against PyTorch: dst[0, 0]" in verdict.reason


@needs_torch
@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (tw.reduce("4x9:4x1", dtype="u8:s8"), "tensors of one type"),
        (tw.reduce("4x9:4x1", algorithm="mul"), "has no reduction mul"),
        (tw.zeropad("4x9", dst="aB16b"), "has no zeropad"),
        (tw.matmul("4x9:9x4", dtype="f8_e5m2"), "does not compute on f8_e5m2"),
    ],
)
def test_what_torch_has_nothing_for_is_skipped(op: Any, reason: str) -> None:
    verdict = verify(op, _compiled, more=against_torch(op, 0))
    assert verdict.status is Status.SKIPPED and reason in verdict.reason
    with pytest.raises(UnsupportedError, match=reason):
        next(against_torch(op, 0))


def test_the_command(tilewright: Command) -> None:
    refused = tilewright("verify", "softmax", "--against", "tensorflow", "4x9")
    assert refused.code == 2 and "nothing to compare with" in refused.err


@needs_torch
def test_the_command_says_how_to_ask_again(tilewright: Command) -> None:
    done = tilewright("verify", "softmax", "--against", "torch", "4x9")
    assert done.code == 0
    assert done.lines[0].startswith("PASSED softmax --against=torch --dt=f32")
