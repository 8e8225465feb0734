"""`torch.compile` with our backend: what models compute is what they compute in PyTorch."""

from __future__ import annotations

import copy
import gc
import sys
import tomllib
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import pytest

from checkout import ROOT
from needs import needs_opencl
from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError, UnsupportedError

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


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


class Block(torch.nn.Module):
    """Of a transformer, small."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        nn = torch.nn
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.rest = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.rest(self.second(x))


def test_a_block_is_native_and_its_parameters_may_change() -> None:
    model, x = Block(), torch.randn(2, 5, 16)
    run = compiled(model, strict=True, freeze=True)
    with torch.no_grad():
        close(run(x), model(x))
        close(run(x), model(x))
        model.qkv.weight.mul_(-1.5)
        close(run(x), model(x))
        model.out.weight = torch.nn.Parameter(torch.randn(16, 16))
        close(run(x), model(x))
    assert not frontend().report().islands


@pytest.mark.parametrize("options", [{}, {"dynamic": True}])
def test_a_change_that_pytorch_does_not_count_is_seen(options: dict[str, Any]) -> None:
    """What was packed of a parameter, or computed of it, stayed as it was."""
    nn = torch.nn
    front = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten())
    model = nn.Sequential(front, nn.Linear(32, 8), nn.Linear(8, 8)).eval()
    run = torch.compile(model, backend=frontend().backend, **options)
    x, changed = torch.randn(2, 3, 4, 4), [*model.parameters(), *front[1].buffers()][:-1]
    with torch.no_grad():
        close(run(x), model(x))
        for tensor in changed:
            tensor.data.copy_(torch.rand_like(tensor) + 1)
            close(run(x), model(x), 1e-3)
            tensor.data.view(-1)[:2].zero_()
            close(run(x), model(x), 1e-3)
            tensor.detach().numpy().reshape(-1)[-1] = 3
            close(run(x), model(x), 1e-3)


def test_what_is_made_of_parameters_follows_them() -> None:
    """A norm is folded into the weights in front of it, and two layers share theirs."""
    nn = torch.nn
    linear = nn.Linear(8, 8)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    model = nn.Sequential(model, linear, nn.Tanh(), linear).eval()
    run, x = compiled(model, strict=True, threads=1, freeze=True), torch.randn(1, 3, 10, 10)
    norm = model[0][1]
    with torch.no_grad():
        close(run(x), model(x))
        for tensor in (norm.running_var, norm.weight, model[0][0].weight, linear.weight, norm.bias):
            tensor.mul_(1.5)
            close(run(x), model(x))
        linear.weight = nn.Parameter(linear.weight * 2)
        close(run(x), model(x))
    model.train()
    with torch.no_grad():
        for _ in range(2):
            close(run(x), model(x))  # each call changes what the norm counts


def test_only_what_changed_is_packed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer that counts between calls had all weights packed in each."""
    packed: list[str] = []
    pack = CompiledKernel.pack

    def counted(self: Any, name: str, array: Any) -> Any:
        packed.append(name)
        return pack(self, name, array)

    monkeypatch.setattr(CompiledKernel, "pack", counted)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).eval()
    model.register_buffer("count", torch.zeros(1))
    run = compiled(lambda x: model(x) + model.count, strict=True, threads=1, freeze=True)
    x = torch.randn(4, 16)
    with torch.no_grad():
        run(x)
        assert packed
        packed.clear()
        for _ in range(3):
            model.count.add_(1.0)
            close(run(x), model(x) + model.count)
        assert not packed
        model[0].weight.mul_(2.0)
        close(run(x), model(x) + model.count)
        assert packed


def test_another_parameter_in_the_same_memory_is_another() -> None:
    """It counts its changes itself, and may come to the number that the one before had."""
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8)).eval(), torch.randn(4, 8)
    run = compiled(model, threads=1, freeze=True)
    with torch.no_grad():
        model[0].weight.mul_(2.0)
        close(run(x), model(x))
        weight = model[0].weight
        model[0].weight = torch.nn.Parameter(weight.data)
        while model[0].weight._version < weight._version:
            model[0].weight.mul_(2.0)
        close(run(x), model(x))


@pytest.mark.parametrize("freeze", [True, False])
def test_parameters_that_lie_elsewhere_are_seen(freeze: bool) -> None:
    """Their places in memory, how they lie there, and who they are, without a new version."""
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3))).eval()
    fast = torch.compile(model, backend="tilewright", options={"freeze": freeze})
    x = torch.randn(4, 8)

    def check() -> None:
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x))

    check()
    first = model[0].weight
    first.data = first.data.t()  # of the same sizes, in the same memory
    check()
    first.data = torch.randn(8, 8)
    check()
    model[1].bias = torch.nn.Parameter(torch.randn(8))
    check()
    model.share_memory()
    check()
    with torch.no_grad():
        model[2].weight.mul_(2.0)
    check()


def test_a_program_keeps_no_memory_of_parameters() -> None:
    """Of a model that is gone, or whose parameters lie elsewhere."""
    from torch.multiprocessing.reductions import StorageWeakRef

    nn = torch.nn
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval(), torch.randn(4, 8)
    fast = compiled(lambda model, x: model(x))

    with torch.no_grad():
        close(fast(model, x), model(x))
        before = [StorageWeakRef(p.untyped_storage()) for p in model.parameters()]
        for parameter in model.parameters():
            parameter.data = parameter.data * 2
        assert all(storage.expired() for storage in before)
        close(fast(model, x), model(x))
        before = [StorageWeakRef(p.untyped_storage()) for p in model.parameters()]
        parameters = [weakref.ref(p) for p in model.parameters()]
        del model, parameter
        gc.collect()
        assert all(storage.expired() for storage in before)
        assert not any(parameter() for parameter in parameters)


@pytest.mark.parametrize("freeze", [True, False])
def test_parameters_may_be_changed_in_all_ways(freeze: bool) -> None:
    """Tied ones, and several in one memory; one that is gone, whose place another one gets; in
    inference mode, where no versions are counted."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            flat = torch.randn(3 * 64)
            self.first, self.second = (nn.Parameter(flat[64 * n :][:64].view(8, 8)) for n in (0, 1))
            self.third, self.tied = nn.Linear(8, 8), nn.Linear(8, 8)
            self.tied.weight = self.third.weight
            self.register_buffer("scale", torch.ones(()))

        def forward(self, x: Any) -> Any:
            x = torch.relu(x @ self.first) @ self.second * self.scale
            return self.tied(torch.relu(self.third(x)))

    model, x = Model().eval(), torch.randn(4, 8)
    fast = compiled(model, freeze=freeze)

    def check() -> None:
        with torch.no_grad():
            for _ in range(2):
                close(fast(x), model(x), 1e-4)
        model.zero_grad()

    check()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(x).sum().backward()
    optimizer.step()
    check()
    with torch.no_grad():
        model.first.set_(torch.randn(8, 8))
        check()
        model.second.copy_(torch.randn(8, 8))
        check()
        model.scale.resize_(0).resize_(()).fill_(3.0)
        check()
    state = {name: torch.randn_like(value) for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    check()
    model.tied.weight = model.third.weight
    check()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    check()
    for _ in range(4):
        del model.first
        model.first = nn.Parameter(torch.randn(8, 8))
        check()
    model.double()
    x = x.double()
    check()
    model.float()
    x = x.float()
    check()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.first.mul_(2)
        other = compiled(twin, freeze=freeze)
        close(other(x), twin(x), 1e-4)
    check()
    with torch.inference_mode():
        of_inference = Model().eval()
        run = compiled(of_inference, freeze=freeze)
        for _ in range(3):
            close(run(x), of_inference(x), 1e-4)
            of_inference.first.mul_(1.5)
            of_inference.second.data = torch.randn(8, 8)


def test_parameters_that_are_copied_are_read_in_each_call() -> None:
    """One that is no dense tensor is passed as a copy: changes that are not counted count."""
    wide = torch.nn.Parameter(torch.randn(8, 16))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(wide.data[:, ::2])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    model = Model().eval()
    fast = torch.compile(model, backend="tilewright")
    x = torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), model(x))
            wide.data.numpy()[:] *= 1.5


def test_graphs_of_one_program_are_called_straight() -> None:
    """Also with inputs that it does not take, and results that are there twice."""

    def two(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = x * 2.0
        return made, made + 1.0, made

    x, y = torch.randn(4, 8), torch.randn(3)
    for function in (
        two,
        lambda x, y: x + 1.0,
        lambda x, y: (y, x + 1.0),
        lambda x, y: (x + 1, None),
    ):
        fast = torch.compile(function, backend="tilewright", fullgraph=True)
        torch.testing.assert_close(fast(x, y), function(x, y))


def test_only_what_runs_all_of_a_graph_is_called_without_aot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What AOT autograd does around it takes longer than many an op."""
    parts = import_module("tilewright.frontends.torch.parts")
    called: list[bool] = []
    run = parts.Part.__call__

    def observed(part: Any, *tensors: Any) -> Any:
        frame, names = sys._getframe(), set[str]()
        while frame.f_back is not None and "test_" not in frame.f_code.co_name:
            names.add(frame.f_code.co_filename)
            frame = frame.f_back
        called.append(any("runtime_wrappers" in name for name in names))
        return run(part, *tensors)

    monkeypatch.setattr(parts.Part, "__call__", observed)

    def around(function: Callable[..., Any], *tensors: Any) -> bool:
        copies = [tensor.detach().clone() for tensor in tensors]
        wanted = function(*copies)
        torch.testing.assert_close(compiled(function)(*tensors), wanted)
        torch.testing.assert_close(tensors, tuple(copies))
        return called.pop()

    x = torch.randn(4, 8)
    model = torch.nn.Linear(8, 3)
    assert not around(lambda x: x * 2 + 1, x)
    with torch.no_grad():
        assert not around(lambda x: model(x), x)
        assert not around(lambda x: (x + 1, None, x.sum(0)), x)
    assert around(lambda x: x.mul_(2) + 1, x.clone())
    assert around(lambda x: (x[1:], x + 1), x)
    assert around(lambda x: torch.linalg.qr(x * 2)[1], x)
    assert around(lambda x: model(x), x)


class _Halved(torch.Tensor):
    """Twice the tensor that it has."""

    @staticmethod
    def __new__(cls, part: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, part.shape, dtype=part.dtype)

    def __init__(self, part: torch.Tensor) -> None:
        self.part = part

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["part"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> _Halved:
        return _Halved(inner["part"])

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [arg.part * 2 if isinstance(arg, _Halved) else arg for arg in args]
        return _Halved(op(*args, **(kwargs or {})) / 2)


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_tensors_that_stand_for_others() -> None:
    """Also where there are as many as there are of the others."""
    x = torch.randn(4, 8)
    twice = _Halved(x)
    with torch.no_grad():
        result = compiled(lambda x: torch.exp(x) + 1)(twice)
    assert isinstance(result, _Halved)
    torch.testing.assert_close(result.part, (torch.exp(2 * x) + 1) / 2)


def test_threads_with_parameters_of_their_own() -> None:
    run = compiled(lambda model, x: torch.relu(model(x)), threads=1, freeze=True)
    models, x = [torch.nn.Linear(64, 64) for _ in range(2)], torch.randn(3, 64)
    interval = sys.getswitchinterval()
    with torch.no_grad():
        wanted = [torch.relu(model(x)) for model in models]
        for model in models:
            run(model, x)

    def wrong(number: int) -> int:
        with torch.no_grad():
            calls = (run(models[number], x) for _ in range(3000))
            return sum(not torch.allclose(call, wanted[number], atol=1e-4) for call in calls)

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(wrong, range(2))) == [0, 0]
    finally:
        sys.setswitchinterval(interval)


@needs_opencl
def test_a_model_on_an_opencl_device() -> None:
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()).eval()
    run, x = compiled(model, strict=True, target="spirv", freeze=True), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        close(run(x), model(x))
        model[0].weight.mul_(2.0)
        close(run(x), model(x))
    (said,) = frontend().report().graphs
    assert said.programs == 1 and said.arena >= said.live


def test_gradients_are_pytorchs() -> None:
    model, x = Block(), torch.randn(2, 5, 16, requires_grad=True)
    run = compiled(model)
    result = torch.autograd.grad(run(x).square().sum(), [x, *model.parameters()])
    expected = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    assert len(expected) > 1
    for a, b in zip(result, expected, strict=True):
        close(a, b, 1e-4)


def test_each_size_gets_its_program() -> None:
    run = compiled(lambda x, y: torch.softmax(x @ y.T, -1).sum(0) + x.shape[0])
    for rows in (3, 4, 7, 4):
        x, y = torch.randn(rows, 8), torch.randn(5, 8)
        close(run(x, y), torch.softmax(x @ y.T, -1).sum(0) + rows)


def test_ops_that_are_taken_apart_are_native() -> None:
    """PyTorch takes these for ops of the core; its own formulas for them do."""

    def f(x: Any, places: Any) -> Any:
        near = torch.nn.functional.grid_sample(x, places, align_corners=False)
        return near / torch.linalg.vector_norm(near, dim=1, keepdim=True).add(1.0)

    x, places = torch.randn(2, 3, 6, 6), torch.rand(2, 5, 5, 2) * 3 - 1.5
    with torch.no_grad():
        close(compiled(f, strict=True)(x, places), f(x, places))


def test_sizes_that_depend_on_data_are_an_island() -> None:
    """Such a graph could not be made of known sizes, and failed."""

    def f(x: Any) -> Any:
        y = x * 2
        return torch.nonzero(y).sum(0) + 1, y.exp() * y.max().item()

    with torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True
    ):
        run = torch.compile(f, backend=frontend().backend, fullgraph=True)
        for zeros in (3, 5):
            x = torch.tensor([0.0] * zeros + [1.0, 2.0, -1.0])
            close(run(x), f(x))
    report = frontend().report()
    assert {island.op for island in report.islands} >= {"aten.nonzero.default"}
    assert any(island.why == "its sizes depend on data" for island in report.islands)
    assert report.graphs[0].native


def test_what_is_not_native_is_an_island() -> None:
    def f(x: Any) -> Any:
        return torch.linalg.inv(x.exp() + torch.eye(4) * 9).relu() * 2

    x = torch.randn(4, 4)
    close(compiled(f)(x), f(x))
    report = frontend().report(clear=True)
    (island,) = [part for part in report.islands if "linalg" in part.op]
    assert island.count == 1 and island.why == "there is no such op in the table"
    assert island.op in str(report) and "native" in str(report)
    with pytest.raises(Exception, match="is not native") as raised:
        compiled(f, strict=True)(x)
    assert isinstance(raised.value.inner_exception, UnsupportedError)


def test_a_defect_is_an_island(monkeypatch: pytest.MonkeyPatch) -> None:
    table = import_module("tilewright.frontends.torch.table").TABLE

    def faulty(at: Any, x: Any) -> Any:
        raise KeyError("lost")

    monkeypatch.setitem(table, "neg.default", faulty)
    x = torch.randn(5)
    close(compiled(lambda x: -x + 1)(x), 1 - x)
    (island,) = frontend().report().islands
    assert island.op == "aten.neg.default" and "a defect of tilewright's" in island.why


def test_updates_in_place_views_and_aliases() -> None:
    def f(cache: Any, x: Any) -> Any:
        cache[1:3] = x.t() + 1
        cache.mul_(2)
        x.t()[0].add_(1)
        return cache, cache[2:], x.view(-1), (x * 3)[1], x

    cache, x = torch.randn(4, 3), torch.randn(3, 2)
    other, y = cache.clone(), x.clone()
    result, expected = compiled(f)(cache, x), f(other, y)
    for a, b in zip(result, expected, strict=True):
        close(a, b)
    close((cache, x), (other, y))
    assert result[0] is cache and result[1].data_ptr() == cache[2:].data_ptr()
    assert result[2].data_ptr() == x.data_ptr()


def test_random_numbers_are_those_of_the_generator() -> None:
    def f(x: Any) -> Any:
        return torch.nn.functional.dropout(x * 2, 0.4, training=True) + torch.rand_like(x)

    x = torch.randn(32, 8)
    run = compiled(f)
    run(x)
    torch.manual_seed(3)
    result = run(x)
    torch.manual_seed(3)
    close(result, f(x))


def test_layouts_in_memory() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x + y).transpose(1, 2) * 2, x.expand(3, 4, 5).sum(0)

    base = torch.randn(4, 10)
    run = compiled(f)
    for x in (base[None, :, ::2], base.t()[:5].t()[None]):
        y = torch.randn(5, 4).t()
        result, expected = run(x, y), f(x, y)
        close(result, expected)


def test_narrow_floats() -> None:
    model, x = Block(), torch.randn(2, 5, 16)
    run = compiled(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        close(run(x).float(), model(x).float(), 5e-2)
    half = Block().bfloat16()
    with torch.no_grad():
        result = compiled(half)(x.bfloat16())
        assert result.dtype == torch.bfloat16
        close(result.float(), half(x.bfloat16()).float(), 5e-2)


def test_wrong_options() -> None:
    with pytest.raises(Exception, match="no option 'thread'"):
        compiled(torch.relu, thread=2)(torch.randn(3))
    # These went to PyTorch whole, as programs could not be compiled.
    for values, said in (
        ({"threads": 0}, "threads is 0"),
        ({"target": "tpu"}, "no target 'tpu'"),
        ({"strict": "yes"}, "strict is 'yes'"),
        ({"freeze": 1}, "freeze is 1"),
    ):
        with pytest.raises(Exception, match=said):
            compiled(torch.relu, **values)(torch.randn(3))
    with pytest.raises(ArgumentError, match="no mode 'max-autotun'") as raised:
        frontend().backend(None, [], mode="max-autotun")
    assert "max-autotune" in str(raised.value)


def test_modes_of_pytorch() -> None:
    x = torch.randn(5)
    for mode in ("default", "reduce-overhead", "max-autotune"):
        torch._dynamo.reset()
        close(torch.compile(torch.tanh, backend=frontend().backend, mode=mode)(x), x.tanh())


def test_the_backend_is_found_by_its_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (group,) = project["project"]["entry-points"].values()
    module, name = group["tilewright"].split(":")
    assert getattr(import_module(module), name) is frontend().backend


def test_constants_and_what_is_empty_are_no_islands() -> None:
    """Nothing of it is for PyTorch to compute."""
    run = compiled(lambda x: x * torch.tensor(2.5) + torch.tensor([1, 2, 3]), strict=True)
    close(run(torch.ones(3)), torch.tensor([3.5, 4.5, 5.5]))
    run = compiled(lambda x: ((x + 1).exp(), (x + 1).sum(0)), strict=True)
    empty, sums = run(torch.ones(0, 3))
    assert empty.shape == (0, 3) and sums.tolist() == [0, 0, 0]


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_images_at_places_of_narrow_floats_are_rounded_once(mode: str) -> None:
    sample = torch.nn.functional.grid_sample
    image = torch.randn(1, 2, 16, 16).bfloat16()
    places = (torch.rand(1, 9, 9, 2) * 2 - 1).bfloat16()

    def f(x: Any, g: Any) -> Any:
        return sample(x, g, mode=mode, align_corners=False)

    exact = f(image.double(), places.double())
    result = compiled(f)(image, places)
    assert (result.double() - exact).abs().max() < 4e-3 * exact.abs().max()


def test_nan_wins_in_pooling_and_in_reductions() -> None:
    x = torch.randn(1, 2, 6, 6)
    x[0, 0, 1, 1] = x[0, 1, 5, 5] = torch.nan
    x[0, 1, :2, :2] = -torch.inf
    pool = torch.nn.functional.max_pool2d

    def f(x: Any) -> Any:
        return (
            *pool(x, 3, 1, 1, return_indices=True), pool(x, 2), x.amax(3), x.amin((1, 2)),
            *x.max(2), *x.min(3), x.clamp(-0.5, 0.5), torch.maximum(x, -x), x.relu(), x.argmax(3),
        )  # fmt: skip

    results = f(x)
    assert len(results) == 13
    for found, wanted in zip(compiled(f)(x), results, strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True)


def test_roundings_that_a_program_asks_for_stay() -> None:
    def f(x: Any) -> Any:
        return (x @ x).half().float(), (x * 3).bfloat16().float() + 0.0

    product, scaled = compiled(f)(torch.randn(9, 9))
    assert product.half().float().equal(product) and scaled.bfloat16().float().equal(scaled)


def test_16_bits_are_rounded_once_behind_elementwise_ops() -> None:
    x = torch.linspace(-3, 3, 999).bfloat16()
    y = compiled(lambda x: (x.exp() - 1) / (x.exp() + 1))(x)
    expected = torch.tanh(x.double() / 2)
    assert ((y.double() - expected).abs() <= 2**-7 * expected.abs() + 1e-3).all()


def _attention(*tensors: Any, **options: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*tensors, **options)


@pytest.mark.parametrize(
    ("heads", "options"),
    [
        (4, {}),
        (4, {"is_causal": True, "scale": 0.3}),
        (4, {"attn_mask": "bool"}),
        (4, {"attn_mask": "float"}),
        (2, {"is_causal": True, "enable_gqa": True}),
    ],
)
def test_attention_is_one_op(heads: int, options: dict[str, Any]) -> None:
    """It lies in memory as PyTorch's does, and a query without keys gives 0."""
    q = torch.randn(2, 4, 70, 16)
    k, v = torch.randn(2, heads, 70, 16), torch.randn(2, heads, 70, 16)
    if options.get("attn_mask") == "bool":
        options = {"attn_mask": torch.rand(2, 1, 70, 70) < 0.5}
        options["attn_mask"][:, :, 3] = False
    elif options.get("attn_mask") == "float":
        options = {"attn_mask": torch.randn(70, 70)}
    run = compiled(lambda *each: _attention(*each, **options), strict=True)
    with torch.no_grad():
        result, wanted = run(q, k, v), _attention(q, k, v, **options)
    close(result, wanted)
    assert result.stride() == wanted.stride()


def test_gradients_of_attention() -> None:
    factors = [torch.randn(2, 3, 20, 8, requires_grad=True) for _ in range(3)]
    run = compiled(lambda *each: _attention(*each, is_causal=True), strict=True)
    result, wanted = run(*factors), _attention(*factors, is_causal=True)
    back = torch.randn_like(wanted)
    gradients = torch.autograd.grad(result, factors, back)
    expected = torch.autograd.grad(wanted, factors, back)
    for n in range(3):
        close(gradients[n], expected[n], 1e-4)
