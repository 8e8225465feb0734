"""Exported programs of PyTorch as graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from needs import needs_x86
from tilewright.errors import ArgumentError, UnsupportedError

torch = pytest.importorskip("torch")

from tilewright.frontends.torch.exported import array_of  # noqa: E402  # PyTorch is needed first
from tilewright.frontends.torch.reference import eager_results  # noqa: E402

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
    result = program(b_calls=calls, x=x, scale=scale)
    for name, expected in zip(("output0", "output1"), model(x, scale), strict=True):
        torch.testing.assert_close(torch.as_tensor(result[name]), expected.detach())
    assert calls == 1
    assert any(stmt.span is not None for stmt in graph.kernel.body.body)


def test_what_a_program_updates_may_be_called_like_an_input() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("x", torch.zeros(3))
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            self.x.add_(x)
            with torch.no_grad():
                self.weight.mul_(3)
            return self.x * self.weight

    exported = torch.export.export(Counting(), (torch.ones(3),))
    arrays = {
        "p_weight": np.ones(3, np.float32),
        "b_x": np.zeros(3, np.float32),
        "x": np.full(3, 2, np.float32),
    }
    wanted = eager_results(exported, arrays)
    result = tw.compile(tw.from_torch(exported), threads=1)(**arrays)
    assert wanted["output0"].tolist() == result["output0"].tolist() == [6, 6, 6]
    assert wanted["b_x"].tolist() == arrays["b_x"].tolist() == arrays["x"].tolist() == [2, 2, 2]
    assert wanted["p_weight"].tolist() == arrays["p_weight"].tolist() == [3, 3, 3]


def test_what_a_program_says_of_its_tensors_is_known() -> None:
    class Moving(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.to(x.device) * 2

    x = torch.randn(3, 4)
    exported = torch.export.export(Moving(), (x,))
    assert any("assert_tensor_metadata" in str(node.target) for node in exported.graph.nodes)
    torch.testing.assert_close(
        torch.as_tensor(tw.compile(tw.from_torch(exported), threads=1)(x)), x * 2
    )


class Turned(torch.nn.Module):
    """Pairs of numbers as complex ones, times numbers of absolute value 1."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("by", torch.polar(torch.ones(4, 3), torch.rand(4, 3)))

    def forward(self, x: Any) -> Any:
        z = x if x.is_complex() else torch.view_as_complex(x)
        return torch.view_as_real(z * self.by[: len(z)])


def test_complex_numbers_inside_of_a_program() -> None:
    exported = torch.export.export(Turned(), (torch.randn(4, 3, 2),))
    x = np.random.default_rng(0).standard_normal((4, 3, 2)).astype(np.float32)
    result = tw.compile(tw.from_torch(exported), threads=1)(x)
    by = exported.state_dict["by"].numpy()
    wanted = (x[..., 0].astype(float) + 1j * x[..., 1]) * by
    np.testing.assert_allclose(result, np.stack([wanted.real, wanted.imag], -1), atol=1e-6)


def test_what_cannot_be_a_graph() -> None:
    with pytest.raises(ArgumentError, match="no exported program"):
        tw.from_torch(torch.nn.Linear(2, 3))

    class Factored(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.geqrf(x)[0]

    with pytest.raises(UnsupportedError, match=r"geqrf.* is not native") as raised:
        tw.from_torch(torch.export.export(Factored(), (torch.eye(3),)))
    assert raised.value.span is not None
    assert raised.value.span.caret().splitlines()[0].strip() == "return torch.geqrf(x)[0]"

    class Spectrum(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.fft.rfft(x)

    for values in (torch.eye(3), torch.eye(3, dtype=torch.complex64)):
        model = Spectrum() if values.dtype is torch.float32 else Turned()
        with pytest.raises(UnsupportedError, match=r"takes or gives torch\.complex64"):
            tw.from_torch(torch.export.export(model, (values,)))
    rows = torch.export.Dim("rows", min=2, max=9)

    class Sorted(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.sort(x, 0)[0]

    free = torch.export.export(Sorted(), (torch.randn(4, 2),), dynamic_shapes=({0: rows},))
    with pytest.raises(UnsupportedError, match=r"sort.* is not native where sizes are open"):
        tw.from_torch(free)


@needs_x86
def test_exported_programs_on_the_command_line(
    tmp_path: Path, tilewright: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exported = torch.export.export(Net().eval(), (torch.randn(2, 3, 6, 6), torch.randn(5)))
    torch.export.save(exported, "net.pt2")
    Path("cut.pt2").write_bytes(Path("net.pt2").read_bytes()[:1000])
    ended = tilewright("verify", "graph", "net.pt2", "cut.pt2", "net.pt2:x")
    assert ended.lines[0] == "PASSED graph net.pt2" and ended.code == 2
    assert ended.lines[1].startswith(
        "REFUSED (cut.pt2 cannot be read as an exported program: it is"
    )
    assert "has no part 'x'" in ended.lines[2]
    ended = tilewright("verify", "graph", "net.pt2", "none.pt2")
    assert ended.code == 2 and "cannot read none.pt2" in ended.err
    assert "contraction" in tilewright("show", "graph", "--stage", "program", "net.pt2").out
    # What PyTorch computes is asked, too.
    run = torch.fx.GraphModule.__call__
    monkeypatch.setattr(
        torch.fx.GraphModule,
        "__call__",
        lambda *values: [value + 1 for value in run(*values)],
    )
    ended = tilewright("verify", "graph", "net.pt2")
    assert ended.code == 1 and ended.lines[0].startswith("FAILED (b_calls: 1 of 1 elements differ")
    assert "by PyTorch) graph net.pt2" in ended.lines[0]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_what_pytorch_computes_is_asked_of_any_shape(shape: tuple[int, ...], dtype: Any) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x, x + x

    x = torch.ones(shape, dtype=dtype)
    results = eager_results(torch.export.export(Twice(), (x,)), {"x": array_of(x)})
    for name, wanted in (("output0", x), ("output1", x + x)):
        assert results[name].dtype == array_of(x).dtype
        np.testing.assert_array_equal(results[name], array_of(wanted))
