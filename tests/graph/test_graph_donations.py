"""Donated arguments of StableHLO and JAX: results in their place, and no read after the write."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from needs import needs_x86
from test_graph_programs import assert_right, drawn
from tilewright.errors import ArgumentError
from tilewright.frontends.stablehlo import from_stablehlo
from tilewright.graph.program import GraphProgram

M = "tensor<16x16xf32>"


def module(body: str, *attributes: str, gives: int = 1) -> str:
    """``main`` of %0, %1, ... with these attributes, that gives %r0 and so on."""
    takes = ", ".join(f"%{n}: {M} {{{said}}}" for n, said in enumerate(attributes))
    names, types = ", ".join(f"%r{n}" for n in range(gives)), ", ".join([M] * gives)
    return f"func.func @main({takes}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}\n"


TIMES = f"%r0 = stablehlo.multiply %0, %1 : {M}"
TURN = f"%r0 = stablehlo.transpose %0, dims = [1, 0] : ({M}) -> {M}"
PRODUCT = f"""%p = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : ({M}, {M}) -> {M}
%r0 = stablehlo.add %0, %p : {M}"""
# The new argument is made first, then the old one is read.
READ_AFTER = f"""%r0 = stablehlo.add %0, %1 : {M}
%t = stablehlo.transpose %0, dims = [1, 0] : ({M}) -> {M}
%r1 = stablehlo.dot_general %r0, %t, contracting_dims = [1] x [0] : ({M}, {M}) -> {M}"""
SWAP = f"""%r0 = stablehlo.abs %1 : {M}
%r1 = stablehlo.abs %0 : {M}"""
LOOP = f"""%one = stablehlo.constant dense<1> : tensor<i32>
%n = stablehlo.constant dense<3> : tensor<i32>
%z = stablehlo.constant dense<0> : tensor<i32>
%w:2 = stablehlo.while(%i = %z, %c = %0) : tensor<i32>, {M}
 cond {{
  %less = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %less : tensor<i1>
 }} do {{
  %j = stablehlo.add %i, %one : tensor<i32>
  %t = stablehlo.transpose %c, dims = [1, 0] : ({M}) -> {M}
  %d = stablehlo.add %t, %0 : {M}
  stablehlo.return %j, %d : tensor<i32>, {M}
 }}
%r0 = stablehlo.add %w#1, %0 : {M}"""

# How many launches there are, of which the update is one where it cannot be made in place.
CASES: dict[str, tuple[str, tuple[str, ...], int, int]] = {
    "elementwise": (TIMES, ("tf.aliasing_output = 0 : i32", ""), 1, 1),
    "by any result": (TIMES, ("", "jax.buffer_donor = true"), 1, 1),
    "transposed": (TURN, ("tf.aliasing_output = 0 : i32",), 1, 2),
    "a product": (PRODUCT, ("tf.aliasing_output = 0 : i32", ""), 1, 2),
    "a product of others": (
        PRODUCT.replace("dot_general %0", "dot_general %1"),
        ("tf.aliasing_output = 0 : i32", ""),
        1,
        1,
    ),
    "read after": (READ_AFTER, ("tf.aliasing_output = 0 : i32", ""), 2, 3),
    "swapped": (SWAP, ("tf.aliasing_output = 0 : i32", "tf.aliasing_output = 1 : i32"), 2, 4),
    "in a loop": (LOOP, ("tf.aliasing_output = 0 : i32",), 1, 0),
    "read by a later result": (
        f"%r0 = stablehlo.abs %1 : {M}\n%r1 = stablehlo.negate %0 : {M}",
        ("tf.aliasing_output = 0 : i32", ""),
        2,
        3,
    ),
}


@needs_x86
@pytest.mark.parametrize("name", CASES)
def test_what_is_left_in_place(name: str) -> None:
    body, attributes, gives, launched = CASES[name]
    graph = from_stablehlo(module(body, *attributes, gives=gives))
    updated = [p.name for p in graph.kernel.arrays if p.access == "inout"]
    assert len(updated) == sum(map(bool, attributes)) and set(updated) <= set(graph.results)
    program = tw.compile(graph, threads=2)
    assert isinstance(program, GraphProgram)
    assert not launched or len(program.launches) <= launched, program.launches
    assert_right(graph.kernel, program, drawn(graph.kernel))
    # The same without donations, by the definition of StableHLO.
    plain = from_stablehlo(module(body, *("" for _ in attributes), gives=gives))
    wanted = tw.compile(plain, target="interpreter")(**drawn(plain.kernel))
    results = program(**{n: a.copy() for n, a in drawn(graph.kernel).items()})
    for number, result in enumerate(graph.results):
        one = results[result] if isinstance(results, dict) else results
        other = wanted[plain.results[number]] if isinstance(wanted, dict) else wanted
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


@needs_x86
def test_the_array_itself_is_written() -> None:
    graph = from_stablehlo(module(TIMES, "tf.aliasing_output = 0 : i32", ""))
    program = tw.compile(graph, threads=1)
    x, y = np.full((16, 16), 3, np.float32), np.full((16, 16), 2, np.float32)
    assert program(x, y) is x and (x == 6).all()
    x.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        program(x, y)


def test_what_fits_nowhere_stays() -> None:
    text = module(TIMES, "tf.aliasing_output = 0 : i32", "jax.buffer_donor = true")
    with pytest.warns(UserWarning, match="donates 1, and no result has its sizes and type"):
        graph = from_stablehlo(text)
    assert [p.access for p in graph.kernel.arrays] == ["inout", "in"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_stablehlo(module(TIMES, "tf.aliasing_output = 0 : i32", ""))


@needs_x86
def test_it_is_shown(tilewright: Command, tmp_path: Any) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(module(TIMES, "tf.aliasing_output = 0 : i32", ""))
    ended = tilewright("show", "graph", "--stage", "program", str(path))
    assert any("is updated in place" in line for line in ended.lines)


@needs_x86
@pytest.mark.parametrize("seed", range(20))
def test_random_steps_that_donate(seed: int) -> None:
    """Any op may read the donated arguments, before and after what becomes of them is made."""
    rng = np.random.default_rng(seed)
    values, lines = ["%0", "%1", "%2"], []
    for n in range(int(rng.integers(3, 9))):
        a, b = (values[int(rng.integers(len(values)))] for _ in range(2))
        lines.append(
            (
                f"%v{n} = stablehlo.add {a}, {b} : {M}",
                f"%v{n} = stablehlo.transpose {a}, dims = [1, 0] : ({M}) -> {M}",
                f"%v{n} = stablehlo.dot_general {a}, {b}, contracting_dims = [1] x [0] : "
                f"({M}, {M}) -> {M}",
                f"%v{n} = stablehlo.tanh {a} : {M}",
            )[int(rng.integers(4))]
        )
        values.append(f"%v{n}")
    gives = 3
    chosen = [values[int(rng.integers(3, len(values)))] for _ in range(gives)]
    zero = f"%z = stablehlo.constant dense<0.5> : {M}"
    lines += [zero, *(f"%r{n} = stablehlo.multiply {v}, %z : {M}" for n, v in enumerate(chosen))]
    body = "\n".join(lines)
    attributes = ["tf.aliasing_output = 1 : i32", "", "tf.aliasing_output = 0 : i32"]
    graph = from_stablehlo(module(body, *attributes, gives=gives))
    assert_right(graph.kernel, tw.compile(graph, threads=2), drawn(graph.kernel))
