"""Parts of PyTorch graphs: those that do not compile, compile late, or meet unexpected types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from tilewright.errors import UnsupportedError

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    frontend().report(clear=True)
    yield


def frontend() -> Any:
    return import_module("tilewright.frontends.torch")


def compiled(what: Any, **options: Any) -> Callable[..., Any]:
    result: Callable[..., Any] = torch.compile(
        what, backend=frontend().backend, options=options or None
    )
    return result


def same(what: Any, *given: Any, tolerance: float = 1e-5, **options: Any) -> None:
    result, wanted = compiled(what, **options)(*given), what(*given)
    torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance)


def test_one_op_that_does_not_compile_stays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its part stayed with PyTorch."""
    module = import_module("tilewright.frontends.torch.replacing")
    translated = module.translated

    def refusing(graph: Any, name: str, checked: bool) -> Any:
        if any("tan." in str(node.target) for node in graph.nodes):
            raise UnsupportedError("there is no tan today")
        return translated(graph, name, checked)

    monkeypatch.setattr(module, "translated", refusing)

    def f(x: Any) -> Any:
        low, high = (x * 2).exp().chunk(2, 1)
        values, places = (low + high.tan()).max(1)
        return values * 3, places, high

    x = torch.rand(3, 8)
    same(f, x)
    (said,) = frontend().report().graphs
    (island,) = said.islands
    assert (island.op, island.count) == ("aten.tan.default", 1)
    assert "there is no tan today" in island.why
    assert said.native > 5 and said.programs >= 2
    with pytest.raises(Exception, match="no tan today"):
        compiled(f, strict=True)(x)


def test_a_chain_of_updates_compiles_in_time() -> None:
    """Its time doubled with each row."""

    def f(x: Any) -> Any:
        o = torch.zeros_like(x)
        for i in range(1, 24):
            o[i] = o[i - 1] * 0.9 + x[i]
        return o

    same(f, torch.randn(24, 3), strict=True, threads=1)


@pytest.mark.parametrize("type_", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("native", [True, False])
def test_batch_norm_of_narrow_floats_in_training(
    type_: Any, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its statistics are narrower in PyTorch than its graphs say: what followed an island refused
    them."""
    name = "_native_batch_norm_legit_functional.default"
    table = import_module("tilewright.frontends.torch.table").TABLE
    if not native:
        monkeypatch.delitem(table, name)

    def step(compiles: bool) -> list[Any]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.ReLU()).to(type_)
        x = torch.randn(2, 3, 4, 4).to(type_).requires_grad_()
        y = (compiled(model) if compiles else model)(x)
        y.float().square().sum().backward()
        gradients = [tensor.grad for tensor in (x, *model.parameters())]
        return [y.detach(), *gradients, *model.buffers()]

    for found, wanted in zip(step(True), step(False), strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=3e-2, atol=3e-2)
    islands = [island.op for island in frontend().report().islands]
    assert islands == ([] if native else [f"aten.{name}"])


def test_a_convolution_with_lists_of_one_number() -> None:
    """`padding="valid"` gives these."""
    for padding in ("valid", "same"):
        torch._dynamo.reset()
        model = torch.nn.Conv2d(3, 4, 3, padding=padding)
        x = torch.randn(1, 3, 9, 8, requires_grad=True)
        run = compiled(model, strict=True)
        result = torch.autograd.grad(run(x).square().sum(), [x, *model.parameters()])
        wanted = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
        torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("taps", [(11, 1), (27, 1)])
def test_a_convolution_of_each_channel_whose_taps_reach_over_borders(taps: tuple[int, int]) -> None:
    """The last tile, among many at a border, had lanes whose number was not constant."""
    padding = (taps[0] // 2, taps[1] // 2)
    model = torch.nn.Conv2d(12, 12, taps, padding=padding, groups=12)
    with torch.no_grad():
        same(model, torch.randn(1, 12, 14, 14), strict=True)


def test_more_lengths_than_a_few() -> None:
    """Those beyond 64 were compiled anew in each call."""
    run = torch.compile(lambda x: x * 2 + 1, backend=frontend().backend, dynamic=True)
    for _ in range(2):
        for n in range(2, 74):
            x = torch.randn(n)
            assert run(x).equal(x * 2 + 1)
    assert frontend().report().graphs[-1].programs <= 72


@pytest.mark.parametrize("type_", [torch.float32, torch.bfloat16, torch.int64])
def test_one_row_by_a_matrix(type_: Any) -> None:
    """Its columns, where they lie in one piece, are not put into another order first."""

    def f(x: Any, w: Any, bias: Any) -> Any:
        sums = torch.addmm(bias, x, w.t(), beta=2, alpha=3)
        return x @ w.t(), sums, w @ x[0], x[:, :5] @ w[:, :5].t()

    x, w, bias = (torch.randn(s).mul(4).to(type_) for s in ((1, 70), (37, 70), (37,)))
    tolerance = 5e-2 if type_ is torch.bfloat16 else 1e-4
    same(f, x, w, bias, tolerance=tolerance, strict=True)
