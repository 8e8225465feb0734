"""The builder of graphs: names, constants, results, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from graphs import check, expected_softmax, graph, numbers, softmax
from tilewright.errors import ProblemError, Span
from tilewright.ir import Compute, walk_stmts
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Builder, Tensor
from tilewright.tensor.views import broadcast_to


def test_a_graph_is_a_kernel_and_runs() -> None:
    values = {"x": numbers(6, 8), "w": numbers(8, 5), "b": numbers(5)}
    kernel = check(softmax, expected_softmax(*values.values()), **values)
    names = [s.name for s in walk_stmts(kernel.body) if isinstance(s, Compute)]
    assert names == [
        *("linear_clear", "linear", "add", "reduce_max_clear", "reduce_max", "exp"),
        *("reduce_add_clear", "reduce_add", "divide"),
    ]
    result = tw.compile(kernel, target="x86")(**values)
    np.testing.assert_allclose(result, expected_softmax(*values.values()), 1e-5, 1e-6)


def test_constants_lie_beside_the_kernel_once_and_one_number_lies_in_it() -> None:
    table = numbers(4, 3)

    def build(x: Tensor) -> Tensor:
        one, two = x.builder.constant(table), x.builder.constant(table.copy())
        three = x.builder.constant(np.full((4, 3), 2.0, np.float32))
        return elementwise(lambda a, b, c, d: (a + b) * c + d, x, one, three, two)

    kernel = check(build, (table + table) * 2 + table, x=table)
    assert [p.name for p in kernel.arrays] == ["x", "constant", "y"]


def test_the_zeros_of_a_constant_keep_their_signs() -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    kernel = graph(lambda x: elementwise(lambda a, b: a * b, x, x.builder.constant(zeros)), x=zeros)
    assert len(kernel.constants) == 1


def test_an_input_as_a_result_is_copied_and_one_tensor_may_be_two_results() -> None:
    x = numbers(3)
    check(lambda a: a, x, exact=True, x=x)
    check(lambda a: [elementwise(lambda e: e + 1.0, a)] * 2, (x + 1, x + 1), x=x)


def test_updates_come_last_and_read_what_was_there() -> None:
    builder = Builder("swap")
    a, b = (builder.input(name, "f32", (3,)) for name in "ab")
    builder.update(a, b)
    builder.update(b, elementwise(lambda x, y: x + y, a, b))
    kernel = builder.kernel()
    assert [(p.name, p.access) for p in kernel.arrays] == [("a", "inout"), ("b", "inout")]
    one, two = numbers(3), numbers(3, seed=1)
    was, other = one.copy(), two.copy()
    tw.compile(kernel, target="interpreter")(a=one, b=two)
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(two, was + other)


def test_results_may_be_called_as_what_is_inside() -> None:
    builder = Builder("g")
    x = builder.input("x", "f32", (3,))
    with builder.at("y"):
        one = elementwise(lambda a: a + 1.0, x)
        two = elementwise(lambda a: a * 2.0, one)
    builder.output("y_2", one)
    builder.output("y", two)
    result = tw.compile(builder.kernel(), target="interpreter")(x=numbers(3))
    np.testing.assert_allclose(result["y"], result["y_2"] * 2)


def test_names_and_places_of_the_front_end_are_kept() -> None:
    builder = Builder("my model")
    x = builder.input("layers.0.weight", "f32", (3,))
    span = Span("y = relu(x)", 4, 8, "model.mlir")
    with builder.at("layers.0/relu", span):
        y = elementwise(lambda a: a + a, x)
    builder.output("y", y)
    kernel = builder.kernel()
    (compute,) = (s for s in walk_stmts(kernel.body) if isinstance(s, Compute))
    assert (kernel.name, compute.name, compute.span) == ("my_model", "layers_0_relu", span)
    assert kernel.arrays[0].name == "layers.0.weight"


def test_an_error_says_where_the_op_stands() -> None:
    builder = Builder("g")
    x, y = builder.input("x", "f32", (3,)), builder.input("y", "f32", (4,))
    span = Span("z = add(x, y)", 4, 7, "model.mlir")
    with builder.at("z", span), pytest.raises(ProblemError) as caught:
        elementwise(lambda a, b: a + b, x, y, name="add")
    assert "add of f32[3] and f32[4]" in str(caught.value)
    assert "model.mlir:1:5" in str(caught.value)


def _refusals() -> Iterator[tuple[str, Callable[[], Any]]]:
    builder = Builder("g")
    x = builder.input("x", "f32", (3,))
    other = Builder("h").input("x", "f32", (3,))
    wrong: Any = 1.0
    flag = builder.input("flag", "bool", (3,))
    yield "two inputs x", lambda: builder.input("x", "f32", (3,))
    yield "no tensor has the shape", lambda: builder.input("z", "f32", (-1,))
    yield "two parameters x", lambda: builder.output("x", x)
    yield "no result", builder.kernel
    yield "another graph's", lambda: elementwise(lambda a, b: a + b, x, other)
    yield "is no tensor", lambda: elementwise(lambda a, b: a + b, x, wrong)
    yield "what is updated is no input", lambda: builder.update(broadcast_to(x, (2, 3)), x)
    yield "its update bool[3]", lambda: builder.update(x, flag)
    yield "not defined on f32[3], bool[3]", lambda: elementwise(lambda a, b: a + b, x, flag)


@pytest.mark.parametrize(
    ("text", "act"), [*_refusals()], ids=lambda v: v if isinstance(v, str) else ""
)
def test_refusals_say_what_is_wrong(text: str, act: Callable[[], Any]) -> None:
    with pytest.raises(ProblemError) as caught:
        act()
    assert text in str(caught.value)
    assert "cure" in str(caught.value)
