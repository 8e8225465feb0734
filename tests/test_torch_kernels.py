"""Kernels in Python as custom ops of PyTorch: eager, and under compilers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import tilewright as tw
from tilewright.errors import ArgumentError

torch = pytest.importorskip("torch")


@tw.kernel
def saxpy(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)) -> None:
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@tw.kernel
def scaled(
    x: tw.array("T", 2), factor: tw.scalar("T"), out: tw.array("T", 2), sums: tw.array("f32", 1)
) -> None:
    row = tw.global_id(0)
    total = tw.f32(0)
    for col in range(x.shape[1]):
        out[row, col] = x[row, col] * factor
        total += tw.f32(out[row, col])
    sums[row] = total


def made(name: str, kernel: Any, range_: Any, **options: Any) -> Any:
    custom_op = import_module("tilewright.frontends.torch").custom_op
    return custom_op(f"tilewright_tests::{name}", kernel, range_, **options)


@pytest.fixture(scope="module")
def in_place() -> Any:
    return made("saxpy", saxpy, lambda n, a, x, y: n, mutates=["y"])


@pytest.fixture(scope="module")
def functional() -> Any:
    op = made(
        "scaled",
        scaled,
        lambda x, factor: x.shape[0],
        results={"out": lambda x, factor: x.shape, "sums": lambda x, factor: (x.shape[0],)},
    )

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = inputs[1]

    def backward(ctx: Any, out: Any, sums: Any) -> Any:
        return (out + sums[:, None]) * ctx.factor, None

    op.register_autograd(backward, setup_context=setup)
    return op


def test_in_place(in_place: Any) -> None:
    x, y = torch.arange(100.0), torch.ones(100)
    in_place(100, 2.0, x, y)
    torch.testing.assert_close(y, 2 * x + 1)
    wide = torch.ones(50, 2)
    in_place(50, 2.0, x[:50], wide[:, 1])  # every other element
    torch.testing.assert_close(wide[:, 1], 2 * x[:50] + 1)
    assert (wide[:, 0] == 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_it_makes_is_returned(functional: Any, dtype: Any) -> None:
    x = torch.randn(5, 7).to(dtype)
    out, sums = functional(x.T, 3.0)
    assert out.shape == (7, 5) and out.dtype is dtype
    torch.testing.assert_close(out, x.T * 3)
    torch.testing.assert_close(sums, (x.T * 3).float().sum(1))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "tilewright"])
def test_under_compilers(in_place: Any, functional: Any, backend: str) -> None:
    def f(x: Any, y: Any) -> Any:
        out, sums = functional(x + 1, 2.0)
        in_place(y.shape[0], 3.0, sums, y)
        return out.relu() + y[:, None]

    torch._dynamo.reset()
    ours = import_module("tilewright.frontends.torch").backend
    x, y, expected = torch.randn(4, 6), torch.ones(4), torch.ones(4)
    wanted = f(x, expected)
    found = torch.compile(f, backend=ours if backend == "tilewright" else backend, fullgraph=True)(
        x, y
    )
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(y, expected)


def test_gradients(functional: Any) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    out, sums = functional(x, 2.0)
    (out.sum() + sums.sum()).backward()
    torch.testing.assert_close(x.grad, torch.full((3, 4), 4.0))


def test_pytorch_finds_the_op_in_order(functional: Any, in_place: Any) -> None:
    torch.library.opcheck(functional, (torch.randn(3, 4), 2.0))
    torch.library.opcheck(in_place, (3, 2.0, torch.randn(3), torch.randn(3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mutates": ["z"]}, "'z' is no array of it"),
        ({"results": {"y": lambda *_: (1,)}, "mutates": ["y"]}, "y is made by the op, and given"),
        ({"constants": {"n": 3}}, "'n' is no constant of it"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        made("refused", saxpy, lambda *_: 1, **options)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("saxpy", saxpy, lambda *_: 1), {}, "'saxpy' is no name of an op"),
        (("tilewright_tests::other", saxpy, 5), {"mutates": ["y"]}, "range is 5"),
        (("tilewright_tests::other", saxpy, lambda *_: 1), {"results": {"y": (3,)}}, "y is "),
        (("tilewright_tests::other", len, lambda *_: 1), {}, "is no kernel"),
    ],
)
def test_what_is_no_op(arguments: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        import_module("tilewright.frontends.torch").custom_op(*arguments, **options)


def test_what_is_stored_has_to_be_said() -> None:
    op = made("silent", saxpy, lambda n, *_: n)
    with pytest.raises(ArgumentError, match="the kernel stores to y"):
        op(3, 2.0, torch.ones(3), torch.ones(3))
