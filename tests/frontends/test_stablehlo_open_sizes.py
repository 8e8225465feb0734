"""StableHLO whose arguments leave sizes open, as JAX exports symbolic shapes: compiled once, and
right for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import fmod
from operator import and_, or_, xor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from commands import Command
from needs import OPENCL, needs_x86
from tilewright.errors import ArgumentError, ProblemError, UnsupportedError
from tilewright.graph.open_program import OpenGraphProgram

jax = pytest.importorskip("jax")
jnp = jax.numpy
export = pytest.importorskip("jax.export")

TARGETS = [pytest.param("x86", marks=needs_x86), OPENCL]


def network(x: Any, first: Any, bias: Any, second: Any) -> Any:
    return jax.nn.softmax(jax.nn.relu(x @ first + bias) @ second)


def images(x: Any, first: Any, second: Any, third: Any) -> Any:
    y = jax.nn.relu(jax.lax.conv_general_dilated(x, first, (2, 2), "SAME"))
    y = y + jax.lax.conv_general_dilated(y, second, (1, 1), "SAME")
    y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return y.mean((2, 3)) @ third


def attention(x: Any, mask: Any, *weights: Any) -> Any:
    batch, length, width = x.shape
    heads = [(x @ w).reshape(batch, length, 2, -1).transpose(0, 2, 1, 3) for w in weights]
    scores = jnp.einsum("bhqd,bhkd->bhqk", *heads[:2]) + mask[:, None, None, :]
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    y = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), heads[2])
    return y.transpose(0, 2, 1, 3).reshape(batch, length, width) + x


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "network": (network, ("b, 12", "12, 16", "16", "16, 5")),
    "images": (images, ("b, 3, 12, 10", "16, 3, 3, 3", "16, 16, 3, 3", "16, 5")),
    "images of any size": (images, ("b, 3, h, w", "16, 3, 3, 3", "16, 16, 3, 3", "16, 5")),
    "attention": (attention, ("b, n, 16", "b, n", "16, 16", "16, 16", "16, 16")),
}
# What numpy does, too: without a compiler of its own for each size.
PLAIN: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    # A cache, and the mask of what is in it.
    "one more": (lambda np, x, y: np.concatenate([x, 2 * x[:1]]) * y, ("n, 4", "n + 1, 4")),
    "pairs": (lambda np, x: x.reshape(-1, 2).sum(0), ("2*n",)),
    "sizes as data": (
        lambda np, x: x / x.shape[0] + np.arange(x.shape[0])[:, None],
        ("n, 3",),
    ),
    "halves": (lambda np, x: x[: x.shape[0] // 2].sum(0) + x[-1], ("n, 3",)),
    "padding": (lambda np, x: np.pad(x, ((1, x.shape[0] // 4), (0, 2))), ("n, 3",)),
    "both": (lambda np, x: x * 2, ("n, m",)),
}
FUNCTIONS |= {name: (partial(function, jnp), shapes) for name, (function, shapes) in PLAIN.items()}


def exported(name: str, *constraints: str) -> str:
    function, shapes = FUNCTIONS[name]
    scope = export.SymbolicScope(constraints)
    specs = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), jnp.float32)
        for shape in shapes
    ]
    return str(export.export(jax.jit(function))(*specs).mlir_module())


def drawn(shape: str, **sizes: int) -> Any:
    dims = [eval(dim, {}, sizes) for dim in shape.split(",")]
    return np.random.default_rng(dims).normal(size=dims).astype(np.float32) * 0.5


def right(program: Any, name: str, **sizes: int) -> None:
    """What the program gives is what JAX says in f64."""
    function, shapes = FUNCTIONS[name]
    arrays = [drawn(shape, **sizes) for shape in shapes]
    wide = [array.astype(np.float64) for array in arrays]
    if name in PLAIN:
        exact = PLAIN[name][0](np, *wide)
    else:
        with jax.enable_x64(True):
            exact = np.asarray(function(*wide))
    result = program(**{f"arg{n}": array for n, array in enumerate(arrays)})
    assert result.shape == exact.shape
    np.testing.assert_allclose(result, exact, rtol=1e-5, atol=2e-5)


def compiled(text: str, target: str) -> OpenGraphProgram:
    program = tw.compile(tw.from_stablehlo(text), target=target, threads=1)
    assert isinstance(program, OpenGraphProgram)
    return program


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "batches"),
    [("network", (2, 5, 17, 64)), ("images", (2, 3, 7, 4))],
)
def test_any_batch_is_compiled_once(target: str, name: str, batches: Sequence[int]) -> None:
    program = compiled(exported(name), target)
    for b in batches:
        right(program, name, b=b)
    assert not program.closed


@pytest.mark.parametrize("target", TARGETS)
def test_attention_of_any_batch_and_length_is_compiled_once(target: str) -> None:
    """That batch and length of the mask are those of the input is what the program asserts."""
    program = compiled(exported("attention"), target)
    assert [param.name for param in program.graph.scalars] == ["arg0_0_size", "arg0_1_size"]
    for b, n in ((2, 16), (3, 33), (2, 40), (4, 7)):
        right(program, "attention", b=b, n=n)
    assert not program.closed
    arrays = [drawn(shape, b=2, n=9) for shape in FUNCTIONS["attention"][1]]
    with pytest.raises(ArgumentError, match="arg1"):
        program(arrays[0], arrays[1][:, :8], *arrays[2:])


@needs_x86
def test_images_of_any_size_are_compiled_once() -> None:
    """Even and odd ones: whether a last window is whole decides no program."""
    program = compiled(exported("images of any size"), "x86")
    for b, h, w in ((2, 16, 17), (3, 19, 16), (2, 33, 20), (2, 8, 9)):
        right(program, "images of any size", b=b, h=h, w=w)
    assert not program.closed


_PROGRAMS: dict[str, OpenGraphProgram] = {}


@pytest.mark.parametrize("name", sorted(PLAIN.keys() - {"both"}))
@settings(max_examples=5, deadline=None)
@given(n=st.integers(1, 300))
def test_shapes_that_are_calculated(name: str, n: int) -> None:
    if name not in _PROGRAMS:
        _PROGRAMS[name] = compiled(exported(name), "interpreter")
    right(_PROGRAMS[name], name, n=n)


def test_what_is_asserted_of_a_size_is_promised() -> None:
    program = compiled(exported("sizes as data", "n >= 8", "n <= 64"), "interpreter")
    for n in (8, 64):
        right(program, "sizes as data", n=n)
    for n, said in ((7, "at least 8"), (65, "at most 64")):
        with pytest.raises(ArgumentError, match=said):
            program(drawn("n, 3", n=n))
    pairs = compiled(exported("pairs"), "interpreter")
    right(pairs, "pairs", n=5)
    with pytest.raises(ArgumentError, match="multiple of 2"):
        pairs(drawn("n", n=9))


def test_what_is_asserted_of_two_sizes_is_looked_at_in_calls() -> None:
    program = compiled(exported("both", "n + m <= 230"), "interpreter")
    right(program, "both", n=3, m=4)
    with pytest.raises(ProblemError, match=r"Expected .*n.*m"):
        program(drawn("n, m", n=200, m=60))


def test_a_size_of_0_that_jax_does_not_expect() -> None:
    with pytest.raises(ProblemError, match="Expected value >= 1 for dimension variable 'n'"):
        compiled(exported("halves"), "interpreter")(drawn("n, 3", n=0))


def main(lines: str, arguments: str, results: str) -> str:
    return f"func.func @main({arguments}) -> {results} {{\n{lines}\nreturn %r : {results}\n}}"


def test_sizes_that_are_said() -> None:
    text = main(
        "%r = stablehlo.add %a, %a : tensor<?x?xf32>", "%a: tensor<?x?xf32>", "tensor<?x?xf32>"
    )
    assert len(tw.from_stablehlo(text).scalars) == 2
    said = tw.from_stablehlo(text, arguments={"a": (3, 2)})
    assert not said.scalars and said.kernel.arrays[0].buffer.shape == (3, 2)
    half = tw.from_stablehlo(text, arguments={"a": (None, 2)})
    assert [param.name for param in half.scalars] == ["a_0_size"]
    bounded = text.replace("?x?xf32>", "?x2xf32, #stablehlo.bounds<16, ?>>", 1)
    assert tw.from_stablehlo(bounded.replace("?x?", "?x2")).scalars[0].high == 16


def test_what_cannot_be_open_is_refused_with_the_cure() -> None:
    text = main(
        "%i = stablehlo.iota dim = 0 : tensor<3xi32>\n"
        '%r = "stablehlo.sort"(%a) <{dimension = 0 : i64, is_stable = true}> ({\n'
        "^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
        "%c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "stablehlo.return %c : tensor<i1>\n}) : (tensor<?xf32>) -> tensor<?xf32>",
        "%a: tensor<?xf32>",
        "tensor<?xf32>",
    )
    with pytest.raises(UnsupportedError, match=r"arguments=\{\"a\": \(4, 3\)\}"):
        tw.from_stablehlo(text)
    tw.from_stablehlo(text, arguments={"a": (6,)})


@needs_x86
def test_open_programs_on_the_command_line(tmp_path: Path, tilewright: Command) -> None:
    path = tmp_path / "net.mlir"
    path.write_text(exported("network"), encoding="utf-8")
    assert tilewright("verify", "graph", str(path)).lines[0].startswith("PASS")
    shown = tilewright("show", "graph", "--stage", "graph", "--set", "arg0_0_size=3", str(path))
    assert "f32[3, 12]" in shown.out and "s64 in" not in shown.out


def calculated(lines: str, *values: int, result: str = "i32") -> list[int]:
    """What ``lines`` give as %r of the size %n, for values of it."""
    size = "%n = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?xf32>) -> tensor<i32>\n"
    text = main(size + lines, "%a: tensor<?xf32>", f"tensor<{result}>")
    program = compiled(text, "interpreter")
    return [int(program(np.zeros(n, np.float32))) for n in values]


@pytest.mark.parametrize("by", [3, -3])
@pytest.mark.parametrize(
    ("op", "exact"), [("divide", lambda a, b: int(a / b)), ("remainder", lambda a, b: fmod(a, b))]
)
def test_quotients_round_to_zero(op: str, exact: Callable[[int, int], int], by: int) -> None:
    lines = (
        "%f = stablehlo.constant dense<20> : tensor<i32>\n"
        f"%k = stablehlo.constant dense<{by}> : tensor<i32>\n"
        "%m = stablehlo.subtract %n, %f : tensor<i32>\n"
        f"%r = stablehlo.{op} %m, %k : tensor<i32>"
    )
    values = (2, 15, 19, 20, 21, 25, 40)
    assert calculated(lines, *values) == [exact(n - 20, by) for n in values]


def test_remainders_of_an_open_divisor() -> None:
    lines = (
        "%f = stablehlo.constant dense<20> : tensor<i32>\n"
        "%m = stablehlo.subtract %f, %n : tensor<i32>\n"
        "%r = stablehlo.remainder %f, %m : tensor<i32>"
    )
    assert calculated(lines, 6, 17, 23, 48) == [6, 2, 2, 20]


@pytest.mark.parametrize("type_", ["i8", "ui8", "i1", "ui32"])
def test_sizes_wrap_as_their_types_do(type_: str) -> None:
    lines = (
        "%f = stablehlo.constant dense<20> : tensor<i32>\n"
        "%m = stablehlo.subtract %n, %f : tensor<i32>\n"
        f"%q = stablehlo.convert %m : (tensor<i32>) -> tensor<{type_}>\n"
        f"%p = stablehlo.convert %q : (tensor<{type_}>) -> tensor<i64>\n"
        "%k = stablehlo.constant dense<7> : tensor<i64>\n"
        "%r = stablehlo.divide %p, %k : tensor<i64>"
    )
    values = np.array([5, 20, 21, 147, 148, 275, 276, 300])
    dtype = {"i8": np.int8, "ui8": np.uint8, "i1": np.bool_, "ui32": np.uint32}[type_]
    exact = np.trunc((values - 20).astype(dtype).astype(np.int64) / 7)
    assert calculated(lines, *values, result="i64") == exact.tolist()


def test_products_of_sizes_beyond_32_bits_wrap() -> None:
    lines = (
        "%k = stablehlo.constant dense<7> : tensor<i32>\n"
        "%m = stablehlo.multiply %n, %n : tensor<i32>\n"
        "%l = stablehlo.multiply %m, %n : tensor<i32>\n"
        "%r = stablehlo.divide %l, %k : tensor<i32>"
    )
    values = (9, 1289, 1291, 3000)
    wrapped = np.array(values, np.int32) ** 3
    assert calculated(lines, *values) == np.trunc(wrapped / 7).tolist()


@pytest.mark.parametrize(
    ("op", "exact"), [("and", and_), ("or", or_), ("xor", xor), ("not", lambda n, _: ~n)]
)
def test_bits_of_sizes(op: str, exact: Callable[[int, int], int]) -> None:
    second = "" if op == "not" else ", %k"
    lines = (
        "%k = stablehlo.constant dense<12> : tensor<i32>\n"
        f"%r = stablehlo.{op} %n{second} : tensor<i32>"
    )
    assert calculated(lines, 7, 13, 16) == [exact(n, 12) for n in (7, 13, 16)]


def test_truth_values_of_sizes_are_numbers() -> None:
    compare = "%p = stablehlo.compare LT, %n, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    lines = (
        f"%k = stablehlo.constant dense<7> : tensor<i32>\n{compare}"
        "%q = stablehlo.convert %p : (tensor<i1>) -> tensor<i32>\n"
        "%r = stablehlo.add %q, %n : tensor<i32>"
    )
    assert calculated(lines, 1, 3, 7, 13) == [2, 4, 7, 13]
    ordered = (
        f"%k = stablehlo.constant dense<7> : tensor<i32>\n{compare}"
        "%t = stablehlo.constant dense<true> : tensor<i1>\n"
        "%r = stablehlo.compare LT, %p, %t : (tensor<i1>, tensor<i1>) -> tensor<i1>"
    )
    assert calculated(ordered, 3, 7, 13, result="i1") == [0, 1, 1]
