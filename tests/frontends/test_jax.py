"""JAX functions compiled here, against JAX itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Command
from needs import needs_x86
from tilewright.errors import ArgumentError, UnsupportedError

jax = pytest.importorskip("jax")
jnp = jax.numpy

from tilewright.frontends.jax import jit  # noqa: E402  # JAX is needed first


def network(weights: dict[str, Any], x: Any) -> dict[str, Any]:
    hidden = jax.nn.gelu(x @ weights["first"] + weights["bias"])
    scores = jax.nn.softmax(hidden @ weights["second"])
    return {"scores": scores, "best": jnp.argmax(scores, axis=-1)}


def drawn(*shape: int) -> Any:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


WEIGHTS = {"first": drawn(6, 8), "bias": drawn(8), "second": drawn(8, 5)}


@pytest.mark.parametrize("target", ["interpreter", "x86"])
def test_a_network(target: str) -> None:
    ours = jit(network, target=target)
    x = drawn(4, 6)
    result, expected = ours(WEIGHTS, x), network(WEIGHTS, x)
    assert isinstance(result["scores"], jax.Array)
    np.testing.assert_allclose(result["scores"], expected["scores"], 1e-5, 1e-6)
    np.testing.assert_array_equal(result["best"], expected["best"])
    assert ours.compiled(WEIGHTS, x) is ours.compiled(WEIGHTS, x)
    assert "compute" in str(ours.graph(WEIGHTS, x).kernel)


@needs_x86
def test_what_jax_lowers_is_verified_on_the_command_line(
    tmp_path: Path, tilewright: Command
) -> None:
    path = tmp_path / "network.mlir"
    path.write_text(jax.jit(network).lower(WEIGHTS, drawn(4, 6)).as_text(), encoding="utf-8")
    ended = tilewright("verify", "graph", str(path))
    assert ended.lines == [f"PASSED graph {path}", "1 passed, 0 failed, 0 refused"]


def test_gradients() -> None:
    def loss(weights: dict[str, Any], x: Any) -> Any:
        return -jnp.log(network(weights, x)["scores"][:, 0]).mean()

    x = drawn(4, 6)
    result = jit(jax.grad(loss), target="interpreter")(WEIGHTS, x)
    wanted = jax.grad(loss)(WEIGHTS, x)
    assert result.keys() == wanted.keys() == WEIGHTS.keys()
    for name, expected in wanted.items():
        np.testing.assert_allclose(result[name], expected, 1e-4, 1e-5)


FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "sort": (lambda x: jnp.sort(x, axis=0), (drawn(5, 3),)),
    "argsort": (lambda x: jnp.argsort(x), (drawn(9),)),
    "cumsum": (lambda x: jnp.cumsum(x, axis=1), (drawn(3, 4),)),
    "scan": (
        lambda x: jax.lax.scan(lambda c, v: (c * 0.5 + v, c), jnp.zeros(3), x),
        (drawn(5, 3),),
    ),
    "where": (lambda x: jnp.where(x > 0, x, -x * 2), (drawn(7),)),
    "take": (lambda x, i: x[i], (drawn(5, 2), np.array([4, 0, 2]))),
    "scatter": (lambda x, i: x.at[i].add(1.5), (drawn(5, 2), np.array([4, 0, 4]))),
    "fft": (lambda x: jnp.fft.rfft(x), (drawn(3, 12),)),
    "complex": (lambda x: jnp.exp(1j * x), (drawn(4),)),
    "conv": (
        lambda x, w: jax.lax.conv_general_dilated(
            x, w, (2, 1), [(1, 1), (2, 0)], lhs_dilation=(1, 2)
        ),
        (drawn(1, 2, 5, 6), drawn(3, 2, 3, 3)),
    ),
    "pool": (
        lambda x: jax.grad(
            lambda y: (
                jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2), (1, 2, 2), "VALID") ** 2
            ).sum()
        )(x),
        (drawn(2, 4, 6),),
    ),
    "random": (
        lambda k: jax.random.uniform(jax.random.wrap_key_data(k), (5,)),
        (np.array([1, 2], np.uint32),),
    ),
    "cond": (lambda x: jax.lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: -v, x), (drawn(4),)),
    "while": (
        lambda x: jax.lax.while_loop(lambda v: v.sum() < 100, lambda v: v * 2, x),
        (abs(drawn(4)),),
    ),
    "bfloat16": (lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), (drawn(6),)),
    "integers": (lambda x: (x // 3, x % 3, x << 2), (np.arange(-6, 6, dtype=np.int32),)),
    "einsum": (lambda a, b: jnp.einsum("bij,bkj->bik", a, b), (drawn(2, 3, 4), drawn(2, 5, 4))),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_jax(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    result = jax.tree_util.tree_leaves(jit(function, target="interpreter")(*arguments))
    expected = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    assert expected
    for got, want in zip(result, expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), 2e-5, 2e-5)


def test_static_arguments_and_decorators() -> None:
    @jit(target="interpreter", static_argnames=["count"])
    def repeated(x: Any, count: int) -> Any:
        return jnp.concatenate([x] * count)

    assert repeated(np.ones(2, np.float32), count=3).shape == (6,)
    assert repeated(np.ones(2, np.float32), count=2).shape == (4,)
    # By its place, it was counted as an array.
    assert repeated(np.ones(2, np.float32), 3).shape == (6,)

    class Scaled:
        @jit(target="interpreter", static_argnames="self")
        def times(self, x: Any) -> Any:
            return x * 2

    np.testing.assert_array_equal(Scaled().times(drawn(3)), 2 * drawn(3))


def test_static_arguments_behind_any_number_of_others() -> None:
    @jit(static_argnames="n")
    def total(*xs: Any, n: int) -> Any:
        return sum(xs) * n

    np.testing.assert_array_equal(total(drawn(3), drawn(3), n=3), 6 * drawn(3))


def test_arguments_that_are_equal_but_of_other_types() -> None:
    """Programs of one are not those of the other: numbers of Python give way to arrays' types."""
    x, two = jnp.ones(3, jnp.bfloat16), np.float32(2)
    product = jit(lambda a, b: a * b)
    assert [product(x, b).dtype for b in (2.0, two, 2.0)] == [x.dtype, two.dtype, x.dtype]
    times = jit(lambda a, n: a * n, static_argnames="n")
    assert [times(np.arange(3), n).dtype.name for n in (1, 1.0)] == ["int32", "float32"]


def test_arguments_of_any_layout_and_type() -> None:
    across = np.asfortranarray(drawn(3, 4))
    np.testing.assert_array_equal(jit(lambda x: x.T + x[0, 0])(across), across.T + across[0, 0])
    assert jit(lambda z: z * z)(1 + 2j) == -3 + 4j
    few = jnp.arange(-8, 8).astype(jnp.int4)
    result = jit(lambda x: (x, x[::-1]))(few)
    for array, expected in zip(result, (few, few[::-1]), strict=True):
        assert array.dtype == few.dtype
        np.testing.assert_array_equal(array, expected)


def test_typed_keys() -> None:
    """They are marked with how they lie over devices, though there is one."""

    def drawing(key: Any) -> Any:
        key, own = jax.random.split(key)
        return key, jax.random.bits(own, (3,))

    for kind in ("threefry2x32", "rbg"):
        key = jax.random.key(3, impl=kind)
        result, expected = jit(drawing, target="interpreter")(key), drawing(key)
        assert result[0].dtype == expected[0].dtype
        np.testing.assert_array_equal(
            *(jax.random.key_data(state[0]) for state in (result, expected))
        )
        np.testing.assert_array_equal(result[1], expected[1])


def test_annotations_of_devices_say_nothing() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    lies = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    ours = jit(lambda x: jax.lax.with_sharding_constraint(x * 2, lies), target="interpreter")
    np.testing.assert_array_equal(ours(drawn(4, 6)), 2 * drawn(4, 6))


def test_bad_calls() -> None:
    def add(x: Any, count: int = 1) -> Any:
        return x + count

    ours = jit(add, target="interpreter")
    others = (2**40, np.ma.array([1.0]))
    for values in ("float32", "text", object(), np.array(["a"]), np.float32, *others):
        with pytest.raises(ArgumentError, match="is no array of JAX's") as raised:
            ours(values)
        assert raised.value.where == "arguments[0]"
    for transformed in (jax.vmap, jax.jit):
        with pytest.raises(ArgumentError, match="is being traced"):
            transformed(ours)(drawn(3))
    with pytest.raises(ArgumentError, match="3 is no function"):
        jit(3)
    with pytest.raises(ArgumentError, match="no argument 'cuont'"):
        jit(add, static_argnames="cuont")
    with pytest.raises(ArgumentError, match="no argument 'xs' that calls can name"):
        jit(lambda *xs: xs[0], static_argnames="xs")
    with pytest.raises(ArgumentError, match="no names of arguments"):
        jit(add, static_argnames=3)
    with pytest.raises(ArgumentError, match="not hashable"):
        jit(add, static_argnames="count")(drawn(3), [1])
    with pytest.raises(UnsupportedError, match="callback is not translated"):
        jit(lambda x: (jax.debug.print("{}", x), x)[1])(drawn(3))


def step(weights: Any, gradients: Any) -> tuple[Any, Any]:
    return weights - 0.1 * gradients, (weights * gradients).sum()


@pytest.mark.parametrize("options", [{"donate_argnums": 0}, {"donate_argnames": "weights"}])
def test_donated_arguments(options: dict[str, Any]) -> None:
    ours = jit(step, target="interpreter", **options)
    gradients = jnp.asarray(drawn(30, 7))
    first = jnp.asarray(drawn(30, 7)) * 1
    weights, place = first, first.unsafe_buffer_pointer()
    for _ in range(3):
        wanted = step(jnp.array(weights), gradients)
        old = weights
        weights, total = ours(weights, gradients)
        assert old.is_deleted() and weights.unsafe_buffer_pointer() == place
        np.testing.assert_allclose(weights, wanted[0], 1e-6)
        np.testing.assert_allclose(total, wanted[1], 1e-4)
        del wanted, old


def test_what_others_hold_is_not_written() -> None:
    ours = jit(step, target="interpreter", donate_argnums=(0,))
    weights, gradients = jnp.asarray(drawn(5, 7)) * 1, jnp.asarray(drawn(5, 7))
    held = np.asarray(weights)
    before = held.copy()
    mine = drawn(5, 7)
    ours(weights, gradients)
    ours(mine, gradients)
    np.testing.assert_array_equal(held, before)
    np.testing.assert_array_equal(mine, drawn(5, 7))


def test_donations_that_make_no_sense() -> None:
    with pytest.raises(ArgumentError, match="that are donated make no sense"):
        jit(step, donate_argnames="other")
