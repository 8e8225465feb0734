"""What PyTorch refuses because of data is refused in compiled graphs, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from tilewright.errors import ArgumentError

torch = pytest.importorskip("torch")
F: Any = torch.nn.functional


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield


def compiled(what: Any, **options: Any) -> Callable[..., Any]:
    result: Callable[..., Any] = torch.compile(
        what,
        backend=import_module("tilewright.frontends.torch").backend,
        options={"strict": True, **options},
    )
    return result


# By places along the first dim of x, f32[5, 6].
INDEXED: dict[str, Callable[[Any, Any], Any]] = {
    "embedding": lambda x, i: F.embedding(i, x),
    "index": lambda x, i: x[i],
    "index of the second dim": lambda x, i: x.t()[:, i],
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_select": lambda x, i: x.index_select(0, i),
    "take": lambda x, i: x[:, 0].take(i),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax"),
    "index_put": lambda x, i: x.index_put((i,), x[0]),
    "index_put, summed": lambda x, i: x.index_put((i,), x[0], accumulate=True),
    "index_add": lambda x, i: x.index_add(0, i, x[:3], alpha=2),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:3]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "labels": lambda x, i: F.cross_entropy(x.t()[:3], i),
    "labels of images": lambda x, i: F.nll_loss(x.reshape(1, 5, 6, 1)[:, :, :3], i[None, :, None]),
    "labels of margins": lambda x, i: F.multi_margin_loss(x.t()[:3], i),
}


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_out_of_range(name: str) -> None:
    """What PyTorch takes gives what it gives, and what it refuses an error of the same kind."""
    function, x = INDEXED[name], torch.randn(5, 6)
    run = compiled(function)
    refused = 0
    for index in ([0, 4, 2], [1, 0, -1], [4, 0, -5], [5, 0, 1], [0, 1, -6], [0, 2**40, 1]):
        values = torch.tensor(index)
        try:
            expected = function(x, values)
        except (IndexError, RuntimeError) as error:
            refused += 1
            with pytest.raises(type(error), match=r"out of bounds for dimension . with size 5"):
                run(x, values)
        else:
            torch.testing.assert_close(run(x, values), expected)
    assert refused >= 3
    torch.testing.assert_close(
        run(x, torch.tensor([3, 1, 0])), function(x, torch.tensor([3, 1, 0]))
    )


def test_the_first_fault_is_said_with_its_place() -> None:
    def function(x: Any, i: Any, j: Any) -> Any:
        a = x[i]
        return a + x.gather(0, j[:, None])

    run, x = compiled(function), torch.randn(5, 6)
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 9])
    with pytest.raises(
        ArgumentError, match=r"(?s)test_torch_checks.*a = x\[i\].*aten.index.Tensor"
    ):
        run(x, bad, bad)
    with pytest.raises(ArgumentError, match=r"(?s)return a \+ x.gather.*aten.gather"):
        run(x, good, bad)
    with pytest.raises(ArgumentError, match='"checks": False'):
        run(x, bad, good)
    torch.testing.assert_close(run(x, good, good), function(x, good, good))


def test_narrow_indices() -> None:
    run, x = compiled(lambda x, i: F.embedding(i, x)), torch.randn(5, 6)
    for index in (
        torch.tensor([4, -1], dtype=torch.int32),
        torch.tensor([4, 5], dtype=torch.int32),
    ):
        with pytest.raises(IndexError, match="with size 5"):
            run(x, index)
    bytes_ = torch.tensor([0, 255], dtype=torch.uint8)
    large = torch.randn(300)
    run = compiled(lambda x, i: x.gather(0, i.long()))
    torch.testing.assert_close(run(large, bytes_), large[bytes_.long()])


def test_no_check_where_places_follow_or_nobody_asks() -> None:
    """Neither computes something for it: there is no result that says so."""
    parts = import_module("tilewright.frontends.torch.parts")
    seen: list[Any] = []
    original = parts.Part.__init__

    def kept(self: Any, what: Any, *rest: Any) -> None:
        seen.append(what)
        original(self, what, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts.Part, "__init__", kept)
        x = torch.randn(5, 6)
        compiled(lambda x: F.embedding(torch.arange(4), x))(x)
        compiled(lambda x, i: x[i], checks=False)(x, torch.tensor([7, -9]))
        compiled(lambda x, i: x[i])(x, torch.tensor([0]))
    assert [len(check.faults) for check in seen] == [0, 0, 1]


def test_gradients_check_as_well() -> None:
    weight = torch.randn(5, 6, requires_grad=True)
    run = compiled(lambda i, w: F.embedding(i, w, padding_idx=0).sum())
    run(torch.tensor([0, 2, 2]), weight).backward()
    result, weight.grad = weight.grad, None
    F.embedding(torch.tensor([0, 2, 2]), weight, padding_idx=0).sum().backward()
    torch.testing.assert_close(result, weight.grad)
    with pytest.raises(IndexError):
        run(torch.tensor([0, 5, 2]), weight)


DIVIDED: dict[str, Callable[[Any, Any], Any]] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "fmod": lambda a, b: torch.fmod(a, b),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "a number": lambda a, b: a // 0 + b,
    "of a number": lambda a, b: 5 // b + a,
}


@pytest.mark.parametrize("name", DIVIDED)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integer_division_by_zero(name: str, dtype: str) -> None:
    type_ = getattr(torch, dtype)
    a, b = torch.tensor([7, 9], dtype=type_), torch.tensor([2, 3], dtype=type_)
    run = compiled(DIVIDED[name])
    if name != "a number":
        assert torch.equal(run(a, b), DIVIDED[name](a, b))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        DIVIDED[name](a, b * 0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(a, torch.tensor([1, 0], dtype=type_))


def test_floats_divide_by_zero() -> None:
    a = torch.tensor([1.0, 0.0, -1.0])
    for function in (lambda a: a // 0, lambda a: a % 0, lambda a: a / 0):
        torch.testing.assert_close(compiled(function)(a), function(a), equal_nan=True)


def test_what_is_no_switch() -> None:
    with pytest.raises(Exception, match="checks is 1"):
        compiled(lambda x: x + 1, checks=1)(torch.ones(2))
