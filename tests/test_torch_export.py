"""Exported programs of PyTorch as graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ArgumentError, UnsupportedError

torch = pytest.importorskip("torch")
# Of PyTorch itself, while it exports.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Net(torch.nn.Module):
    """A convolution, a norm with state, a product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(4, 5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any, scale: Any) -> Any:
        self.calls.add_(1)
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.head(y) * scale, y


def test_an_exported_program_is_a_graph() -> None:
    torch.manual_seed(0)
    model, x, scale = Net().eval(), torch.randn(2, 3, 6, 6), torch.randn(5)
    graph = tw.from_torch(torch.export.export(model, (x, scale)))
    assert graph.inputs == ("b_calls", "x", "scale")
    assert graph.outputs == ("b_calls", "output0", "output1")
    assert len(graph.constants) >= 4
    program = tw.compile(graph, threads=1)
    calls = np.zeros((), np.int64)
    found = program(b_calls=calls, x=x, scale=scale)
    for name, expected in zip(("output0", "output1"), model(x, scale), strict=True):
        torch.testing.assert_close(torch.as_tensor(found[name]), expected.detach())
    assert calls == 1
    assert any(each.span is not None for each in graph.kernel.body.body)


def test_what_a_program_says_of_its_tensors_is_known() -> None:
    class Moving(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.to(x.device) * 2

    x = torch.randn(3, 4)
    exported = torch.export.export(Moving(), (x,))
    assert any("assert_tensor_metadata" in str(each.target) for each in exported.graph.nodes)
    torch.testing.assert_close(
        torch.as_tensor(tw.compile(tw.from_torch(exported), threads=1)(x)), x * 2
    )


def test_what_cannot_be_a_graph() -> None:
    with pytest.raises(ArgumentError, match="no exported program"):
        tw.from_torch(torch.nn.Linear(2, 3))

    class Running(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cummax(x, 0)[0]

    with pytest.raises(UnsupportedError, match=r"cummax.* is not native") as raised:
        tw.from_torch(torch.export.export(Running(), (torch.eye(3),)))
    assert raised.value.span is not None
    assert raised.value.span.caret().splitlines()[0].strip() == "return torch.cummax(x, 0)[0]"
    rows = torch.export.Dim("rows", min=2, max=9)
    free = torch.export.export(
        torch.nn.Linear(2, 3), (torch.randn(4, 2),), dynamic_shapes=({0: rows},)
    )
    with pytest.raises(UnsupportedError, match="sizes that are not known"):
        tw.from_torch(free)
