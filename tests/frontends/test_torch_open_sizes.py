"""Models whose sizes calls pass: compiled once, and right for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from needs import needs_x86
from tilewright.errors import ArgumentError
from tilewright.graph.open_program import OpenGraphProgram

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    frontend().report(clear=True)
    yield


def frontend() -> Any:
    return import_module("tilewright.frontends.torch")


def open_sizes() -> Any:
    return import_module("tilewright.frontends.torch.open_sizes")


class Layer(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        nn = torch.nn
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Any, causal: bool) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attend = torch.nn.functional.scaled_dot_product_attention
        result = attend(q, k, v, is_causal=causal).transpose(1, 2)
        x = self.first(x + self.out(result.reshape(batch, length, width)))
        return self.second(x + self.down(torch.nn.functional.gelu(self.up(x))))


class Encoder(torch.nn.Module):
    """Two layers, as BERT has them, but for their sizes."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        nn = torch.nn
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(512, 32)
        self.layers = nn.ModuleList([Layer(32, 2) for _ in range(2)])
        self.causal = causal

    def forward(self, words: Any) -> Any:
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        for layer in self.layers:
            x = layer(x, self.causal)
        return x


def convolutions() -> Any:
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1, stride=2), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(32, 8, 1)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)),
    ).eval()


def words(*shape: int) -> Any:
    return torch.randint(0, 50, shape)


def exact(model: Any, x: Any) -> Any:
    """What the model gives in float64."""
    wide = model.double()(x.double() if x.is_floating_point() else x)
    model.float()
    return wide


def right(found: Any, model: Any, x: Any) -> None:
    wanted = exact(model, x)
    torch.testing.assert_close(torch.as_tensor(found).double(), wanted, rtol=1e-5, atol=1e-5)


def same(model: Any, inputs: list[Any], **options: Any) -> Any:
    """Runs a model that PyTorch captures for all sizes; gives what became of its last graph."""
    run = torch.compile(model, backend="tilewright", dynamic=True, options=options or None)
    with torch.no_grad():
        for x in inputs:
            right(run(x), model, x)
    return frontend().report().graphs[-1]


@needs_x86
@pytest.mark.parametrize("causal", [False, True])
def test_an_encoder_of_any_batch_and_length_is_compiled_once(causal: bool) -> None:
    shapes = ((2, 64), (3, 100), (2, 128), (4, 33))
    graph = same(Encoder(causal).eval(), [words(*shape) for shape in shapes], strict=True)
    assert (graph.programs, graph.opened, len(frontend().report().graphs)) == (1, 1, 1)
    assert not graph.closed and "1 program of open sizes" in str(graph)


@needs_x86
def test_convolutions_of_any_batch_are_compiled_once() -> None:
    """Sizes of images are open in what PyTorch captures, too; how many are averaged is a number of
    the program then."""
    graph = same(convolutions(), [torch.randn(n, 3, 16, 16) for n in (2, 3, 5, 8)])
    assert graph.programs == graph.opened <= 2


def test_sizes_that_are_marked_are_open_in_the_interpreter() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Softmax(-1)).eval()
    run = torch.compile(model, backend="tilewright", options={"target": "interpreter"})
    with torch.no_grad():
        for rows in (3, 7, 20, 2):
            x = torch.randn(rows, 6)
            torch._dynamo.mark_dynamic(x, 0)
            right(run(x), model, x)
    (graph,) = frontend().report().graphs
    assert graph.programs == graph.opened == 1


def test_sizes_of_0_and_1_are_right() -> None:
    run = torch.compile(
        lambda x, y: (x * 2 + y).sum(0),
        backend="tilewright",
        dynamic=True,
        options={"target": "interpreter"},
    )
    for rows in (3, 1, 0, 2, 5):
        x, y = torch.randn(rows, 4), torch.randn(4)
        torch.testing.assert_close(run(x, y), (x * 2 + y).sum(0))


def test_what_needs_numbers_is_compiled_for_each_set_of_sizes() -> None:
    """Each result of a sort needs the length in numbers."""

    def ordered(x: Any) -> Any:
        return torch.sort(x * 2, 0)[0]

    run = torch.compile(ordered, backend="tilewright", dynamic=True)
    for n in (5, 9, 12):
        x = torch.randn(n)
        assert run(x).equal(ordered(x))
    graph = frontend().report().graphs[-1]
    assert graph.programs == 3 and not graph.opened
    assert "for each set of sizes: aten.sort" in str(graph)


def test_sizes_of_another_kind_have_a_program_of_their_own() -> None:
    """How a length compares with 16 decides what is computed."""

    def first(x: Any) -> Any:
        return torch.nn.functional.pad(x, (0, 16))[: 16 + x.shape[0] // 2] * 2

    run = torch.compile(
        first, backend="tilewright", dynamic=True, options={"target": "interpreter"}
    )
    for n in (9, 40, 21, 70):
        x = torch.randn(n)
        assert run(x).equal(first(x))


# PyTorch warns about what it uses itself.
@pytest.mark.filterwarnings("ignore:.isinstance:FutureWarning")
@needs_x86
def test_exported_programs_of_open_sizes() -> None:
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=400)}
    model = Encoder().eval()
    exported = torch.export.export(model, (words(2, 20),), dynamic_shapes=(dims,))
    graph = tw.from_torch(exported)
    for target in ("x86", "interpreter"):
        program = tw.compile(graph, target=target)
        assert isinstance(program, OpenGraphProgram)
        # Sizes of 1, for which kernels are not promised, too.
        for shape in ((2, 64), (3, 10), (1, 7), (2, 1)):
            x = words(*shape)
            with torch.no_grad():
                right(program(x.numpy()), model, x)
        assert [list(sizes.values()) for sizes in program.closed] == [[1], [1]]
        with pytest.raises(ArgumentError, match="at most 400"):
            program(words(2, 401).numpy())
    program = tw.compile(graph)
    bound = program.bind(x := words(3, 10).numpy(), out=(out := np.zeros((3, 10, 32), np.float32)))
    bound()
    assert np.array_equal(out, program(x))


@pytest.mark.filterwarnings("ignore:.isinstance:FutureWarning")
def test_products_decide_nothing_about_their_rows() -> None:
    """Whether these are few, say: each number of them would have a program of its own."""
    rows = {0: torch.export.Dim("rows", max=40)}
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 5))
    exported = torch.export.export(model, (torch.randn(4, 6),), dynamic_shapes=(rows,))
    assert not tw.from_torch(exported).decided


# PyTorch warns about what it uses itself.
@pytest.mark.filterwarnings("ignore:.isinstance:FutureWarning")
@needs_x86
def test_exported_programs_of_open_sizes_on_the_command_line(
    tmp_path: Path, tilewright: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = {0: torch.export.Dim("rows", max=40)}
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    exported = torch.export.export(model, (torch.randn(4, 6),), dynamic_shapes=(rows,))
    torch.export.save(exported, "net.pt2")
    for place in ("device", "interpreter"):
        assert tilewright("verify", "graph", f"--on={place}", "net.pt2").lines[0].startswith("PASS")
    shown = tilewright("show", "graph", "--stage", "program", "net.pt2")
    assert shown.code == 0 and "contraction" in shown.out
    assert "s64" in tilewright("show", "graph", "--stage", "kernels", "net.pt2").out
    shown = tilewright("show", "graph", "--stage", "groups", "net.pt2")
    _, sizes, header, *groups = shown.lines
    name, _, number = sizes.removeprefix("for ").removesuffix(":").partition(" = ")
    assert shown.code == 0 and 2 <= int(number) <= 40
    assert header.startswith("group") and len(groups) >= 2
    numbers = tilewright("show", "graph", "--stage", "graph", "--set", f"{name}=7", "net.pt2")
    assert "f32[7, 6]" in numbers.out and "s64" not in numbers.out
    shown = tilewright("verify", "graph", "--set", f"{name}=7", "net.pt2")
    assert shown.lines[0].startswith("PASS")
    for word, said in (("columns=7", "does not set the sizes"), (f"{name}=41", "at most 40")):
        refused = tilewright("verify", "graph", "--set", word, "net.pt2")
        assert refused.code == 2 and said in refused.out


def sizes_of(high: int | None, hint: int = 4) -> Any:
    """What is said of the rows of an exported program, and the program."""
    rows = {0: torch.export.Dim("rows", min=2, max=high)}
    module = torch.export.export(
        torch.nn.Linear(6, 5), (torch.randn(hint, 6),), dynamic_shapes=(rows,)
    ).graph_module
    (symbol,) = open_sizes().symbols_of(module)
    return symbol, module


@pytest.mark.parametrize(("high", "hint"), [(None, 4), (8, 5), (100, 99), (14, 4), (3, 2)])
def test_the_two_examples_differ(high: int | None, hint: int) -> None:
    """Else numbers that are made of sizes would look like constants."""
    symbol, _ = sizes_of(high, hint)
    examples = []
    for example in (0, 1):
        with open_sizes().translating([symbol], example) as sizes:
            examples.append(int(sizes.size(symbol.param.var)))
    assert examples[0] != examples[1]
    assert all(2 <= number <= (high or 65_535) for number in examples)


def test_ranges_without_an_end() -> None:
    """PyTorch's infinities are no integers of Python's."""
    symbol, module = sizes_of(None)
    ranges = import_module("torch.utils._sympy.value_ranges")
    endless = import_module("torch.utils._sympy.numbers").int_oo
    for low, promised in ((-endless, None), (0, 0)):
        range_ = ranges.ValueRanges(low, endless)
        (result,) = open_sizes().symbols_of(module, {symbol.symbol: range_})
        assert (result.allowed.low, result.allowed.high) == (promised, None)
        assert (result.param.low, result.param.high) == (2, 65_535)
