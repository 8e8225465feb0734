"""Views in what `torch.compile` gives: they share memory, and lie in it, as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from sweeps import in_turns

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield


def compiled(what: Any, backend: str = "tilewright", **options: Any) -> Callable[..., Any]:
    result: Callable[..., Any] = torch.compile(what, backend=backend, **options)
    return result


def test_a_view_of_an_output_shares_its_memory() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return y, y[:, :2], y.t()

    y, v, t = compiled(f)(torch.ones(2, 4))
    v.zero_()
    assert v.stride() == (4, 1) and t.data_ptr() == y.data_ptr()
    assert y.tolist() == [[0, 0, 2, 2]] * 2 == t.t().tolist()


def test_views_of_inputs_of_open_sizes() -> None:
    """The place of a part was that of a copy, and a view repeated memory that was not there."""

    def f(x: Any) -> Any:
        return x.chunk(2, 1)[1], x.chunk(2, 1)[1] * 2, x.expand(3, *x.shape)

    x = torch.randn(3, 6)
    results = f(x)
    assert len(results) == 3
    for a, b in zip(compiled(f, dynamic=True)(x), results, strict=True):
        assert a.equal(b) and a.stride() == b.stride()


def test_a_view_of_memory_sees_that_of_pytorch() -> None:
    """What PyTorch runs, and goes by strides, had a copy of the view that it is made of."""

    def f(x: Any) -> Any:
        return (x + 1)[:, 1:3].as_strided((2, 2), (4, 2), 1)

    x = torch.randn(3, 4)
    assert compiled(f)(x).equal(f(x))


def test_views_by_strides_of_what_lies_side_by_side_are_native() -> None:
    def f(x: Any) -> Any:
        turned = (x * 2).t()
        windows = (x + 1).as_strided((4, 2, 3), (2, 5, 1), 1)
        return turned.as_strided((3, 2), (2, 1)), windows + 1, x.as_strided((2, 3), (1, 2)) * 3

    g = compiled(f, options={"strict": True})
    for x in (torch.randn(5, 4), torch.randn(4, 5).t()):
        results = f(x)
        assert len(results) == 3
        for a, b in zip(g(x), results, strict=True):
            assert a.equal(b)


def test_a_view_by_strides_from_a_place_in_memory_is_pytorchs_where_that_may_move() -> None:
    def f(x: Any) -> Any:
        return x.as_strided((2, 2), (1, 2), 1) + 1

    whole = torch.randn(30)
    g = compiled(f)
    for start in (0, 7):
        x = whole[start : start + 20].view(5, 4)
        assert g(x).equal(f(x))


Step = Callable[[Any], Any]


def _views(r: Random, rank: int) -> list[Step]:
    """Views of a tensor of ``rank`` dims, 1 at least."""
    n, new = r.randrange(rank), r.randrange(rank + 1)
    return [
        lambda x: x.chunk(2, n)[-1],
        lambda x: x.split(2, n)[0],
        lambda x: x.unbind(n)[-1],
        lambda x: x.expand(2, *x.shape),
        lambda x: x.transpose(0, n),
        lambda x: x[..., 1:],
        lambda x: x.narrow(n, 0, 1),
        lambda x: x.select(n, -1),
        lambda x: x.unsqueeze(new),
        lambda x: x.diagonal(0, 0, rank - 1) if rank > 1 else x[::2],
        lambda x: x.as_strided((2, 2), (1, 2), 1),
        lambda x: x.reshape(-1),
        lambda x: x.permute(*range(1, rank), 0),
        lambda x: x.detach(),
    ]


def _computes() -> list[Step]:
    return [
        lambda x: x * 2,
        lambda x: x.cumsum(0),
        lambda x: x.contiguous(),
        lambda x: torch.cat([x, x]),
        lambda x: x + x.flip(0),
        lambda x: torch.special.bessel_j0(x),  # PyTorch's
    ]


def program(seed: int, inputs: list[Any]) -> Callable[..., Any]:
    """A function of such tensors that gives several, of which some are views of others."""
    r, values = Random(seed), list(inputs)
    steps: list[tuple[int, Step]] = []
    for _ in range(r.randint(3, 9)):
        n = r.randrange(len(values))
        if values[n].numel() > 5 and values[n].dim():
            change = r.random() < 0.1 and not values[n]._is_view()
            pool = _views(r, values[n].dim()) if r.random() < 0.6 else _computes()
            step = (lambda x: x.add_(1)) if change else r.choice(pool)
            try:
                values.append(step(values[n]))
            except RuntimeError:  # with gradients: one of several views whose base has changed
                continue
            steps.append((n, step))
    kept = r.sample(range(1, len(values)), min(len(values) - 1, 4))

    def f(*given: Any) -> Any:
        results = list(given)
        for n, step in steps:
            results.append(step(results[n]))
        return tuple(results[n] for n in kept)

    return f


def arguments(seed: int, gradients: bool) -> list[Any]:
    """Two tensors of which a program is made."""
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(*sizes, generator=generator) for sizes in ((6, 4), (3, 4, 5))]
    return [x.requires_grad_().mul(1) for x in inputs] if gradients else inputs


def seen(f: Callable[..., Any], seed: int, gradients: bool) -> Any:
    """What a call gives, and what is there after a change of one result."""
    inputs = arguments(seed, gradients)
    results = f(*inputs)
    everything = [*results, *inputs]
    places = [(x.shape, x.stride(), x.storage_offset()) for x in everything]
    storages = [x.untyped_storage().data_ptr() for x in everything]
    before = [x.detach().clone() for x in everything]
    changed = Random(seed).choice(results).detach()
    if 0 not in changed.stride():
        changed.mul_(3)
    after = [x.detach().clone() for x in everything]
    return places, [storages.index(storage) for storage in storages], before, after


def compare(seed: int, dynamic: bool, gradients: bool) -> None:
    f = program(seed, arguments(seed, gradients))
    refused = torch._dynamo.exc.BackendCompilerFailed
    try:
        wanted = seen(compiled(f, "aot_eager", dynamic=dynamic), seed, gradients)
    except refused:  # with gradients: a base of several views that is changed behind them
        torch._dynamo.reset()
        with pytest.raises(refused, match="has been modified inplace"):
            seen(compiled(f, dynamic=dynamic), seed, gradients)
        return
    torch._dynamo.reset()
    places, storages, *values = seen(compiled(f, dynamic=dynamic), seed, gradients)
    assert places == wanted[0]
    assert storages == wanted[1]
    torch.testing.assert_close(values, list(wanted[2:]), equal_nan=True)


@pytest.mark.parametrize(
    ("seed", "dynamic", "gradients"), in_turns(48, range(96), (False, True), (False, True))
)
# Arguments that are no leaves, so that programs may change them.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_random_views(seed: int, dynamic: bool, gradients: bool) -> None:
    """What `aot_eager` gives is PyTorch's."""
    compare(seed, dynamic, gradients)
