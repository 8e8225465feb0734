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
    result = torch.compile(f, backend=ours if backend == "tilewright" else backend, fullgraph=True)(
        x, y
    )
    torch.testing.assert_close(result, wanted)
    torch.testing.assert_close(y, expected)


@tw.kernel
def reversed_in_groups(x: tw.array("f32", 1), out: tw.array("f32", 1), local: tw.constant) -> None:
    tile = tw.local((8,), "f32")
    item, place = tw.local_id(0), tw.global_id(0)
    tile[item] = x[place] * tw.f32(local)
    tw.barrier()
    out[place] = tile[7 - item]


@tw.kernel
def said(x: tw.array("f32", 1), out: tw.array("f32", 1)) -> None:
    i = tw.global_id(0)
    assert x[i] < 3, "too large"
    out[i] = x[i] + 1


def native(function: Any, *arguments: Any, **options: Any) -> Any:
    """What the compiled function gives, and what stayed with PyTorch."""
    frontend = import_module("tilewright.frontends.torch")
    torch._dynamo.reset()
    frontend.report(clear=True)
    options = {"backend": frontend.backend, "options": options or None, "fullgraph": True}
    return torch.compile(function, **options)(*arguments), frontend.report()


@pytest.mark.parametrize("target", ["x86", "interpreter"])
def test_a_step_of_the_program(in_place: Any, functional: Any, target: str) -> None:
    """With what is around it: no island is left, and one program runs it all."""
    swapped = made(
        "swapped",
        reversed_in_groups,
        lambda x: x.shape[0],
        results={"out": lambda x: x.shape},
        constants={"local": 3},
        local=8,
    )

    def f(x: Any, y: Any) -> Any:
        out, sums = functional(x.t() + 1, 2.0)
        in_place(y.shape[0], 3.0, sums, y)
        in_place(2, 0.5, y, sums)
        return swapped(sums).relu() + y, out.double()

    x, y, expected = torch.randn(3, 16), torch.ones(16), torch.ones(16)
    wanted = f(x, expected)
    result, report = native(f, x, y, target=target, strict=True)
    torch.testing.assert_close(result, wanted)
    torch.testing.assert_close(y, expected)
    assert [graph.programs for graph in report.graphs] == [1] and not report.islands


def test_launched_as_it_is(in_place: Any) -> None:
    """What the program cannot hold is right all the same, and says why."""
    elsewhere = {"results": {"out": lambda x: x.shape}, "target": "interpreter"}
    speaks = made("said", said, lambda x: x.shape[0], results={"out": lambda x: x.shape})
    away = made("away", reversed_in_groups, lambda x: x.shape[0], constants={"local": 1}, local=8,
                **elsewhere)  # fmt: skip

    def f(x: Any) -> Any:
        rows = x.new_zeros(8, 2)
        in_place(8, 2.0, x, rows[:, 1])
        return rows + speaks(x)[:, None] + away(x)[:, None]

    x = torch.rand(8)
    result, report = native(f, x)
    torch.testing.assert_close(result, f(x))
    reasons = sorted(island.why for island in report.islands)
    assert len(reasons) == 3
    for reason, part in zip(reasons, ("changes a view", "launched on inter", "says"), strict=True):
        assert part in reason
    with pytest.raises(Exception, match="too large"):
        native(lambda x: speaks(x) * 2, x + 5)


def test_gradients_of_a_step(functional: Any) -> None:
    x = torch.randn(3, 4, requires_grad=True)

    def loss(x: Any) -> Any:
        out, sums = functional(x.exp(), 2.0)
        return (out * out).sum() + sums.sin().sum()

    (wanted,) = torch.autograd.grad(loss(x), x)
    result, report = native(loss, x)
    torch.testing.assert_close(torch.autograd.grad(result, x)[0], wanted)
    assert not report.islands


def test_gradients(functional: Any) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    out, sums = functional(x, 2.0)
    (out.sum() + sums.sum()).backward()
    torch.testing.assert_close(x.grad, torch.full((3, 4), 4.0))


def test_pytorch_finds_the_op_in_order(functional: Any, in_place: Any) -> None:
    for op, arguments in (
        (functional, (torch.randn(3, 4), 2.0)),
        (in_place, (3, 2.0, torch.randn(3), torch.randn(3))),
    ):
        assert set(torch.library.opcheck(op, arguments).values()) == {"SUCCESS"}


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
