"""Products of one factor with several constants: as one, or apart, with the reason."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphs import run
from tilewright.graph import predicting
from tilewright.graph.compiling import compile_divided
from tilewright.graph.passes.join_products import RULES, join_products
from tilewright.graph.predicting import Deciding, Decision, Parts
from tilewright.graph.preparing import prepare
from tilewright.ir import Compute, Kernel, parse_kernel, verify
from tilewright.ir.constants import digest_of_contents
from tilewright.targets.registry import find_target

# The package's face has the pass under the name of its module.
joining = sys.modules["tilewright.graph.passes.join_products"]
AVX2 = find_target("x86:avx2").machine
SIZES = {"q": 24, "p": 16}

PRODUCT = """
  alloc {name}: f32[8, {n}]
  compute {name}_clear(m in 8, n in {n}):
    {name}[m, n] = {start}
  compute {name}(m in 8, n in {n}, k in 32):
    a = x[m, k]
    b = w_{name}[n, k]
    {name}[m, n] add= a * b
"""
BIASED = """
  alloc {name}_b: f32[8, {n}]
  compute {name}_b(m in 8, n in {n}):
    e = {name}[m, n]
    b = b_{name}[n]
    {name}_b[m, n] = {value}
"""
# The last is read in another order, so that it is no part of the product.
RESULT = """
  compute z_{name}(n in {n}, m in 8):
    e = {name}_b[m, n]
    z_{name}[n, m] = e + e
"""


def _graph(starts: tuple[str, str] = ("0.0", "0.0"), values: Any = None, more: str = "") -> Kernel:
    values = values or {name: "max(e + b, 0.0)" for name in SIZES}
    body = ""
    for (name, n), start in zip(SIZES.items(), starts, strict=True):
        body += PRODUCT.format(name=name, n=n, start=start)
        body += BIASED.format(name=name, n=n, value=values[name])
    body += "".join(RESULT.format(name=name, n=n) for name, n in SIZES.items())
    params = ["in x: f32[8, 32]"]
    params += [f"in w_{name}: f32[{n}, 32], in b_{name}: f32[{n}]" for name, n in SIZES.items()]
    params += [f"out z_{name}: f32[{n}, 8]" for name, n in SIZES.items()]
    kernel = parse_kernel(f"kernel net({', '.join(params)}):{body}{more}")
    verify(kernel)
    return kernel


def _fixed(kernel: Kernel, *names: str) -> list[Any]:
    return [array.buffer for array in kernel.arrays if array.name in (names or CONSTANT)]


CONSTANT = tuple(f"{part}_{name}" for name in SIZES for part in ("w", "b"))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One product is predicted to be faster; of each time, the statements."""
    asked: list[Any] = []

    def seconds(_: Parts, stmts: Any, *__: Any) -> float:
        asked.append(list(stmts))
        return 1.0 / len(asked)

    monkeypatch.setattr(Parts, "seconds", seconds)
    return asked


def _arguments(kernel: Kernel) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        array.name: rng.standard_normal(array.buffer.shape).astype(np.float32)
        for array in kernel.arrays
        if array.access == "in"
    }


def _names(kernel: Kernel) -> list[str]:
    return [stmt.name for stmt in kernel.body.body if isinstance(stmt, Compute)]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("always")
def test_products_with_what_follows_become_one() -> None:
    before = _graph()
    deciding = Deciding(AVX2, CONSTANT)
    after = join_products(before, deciding, _fixed(before))
    verify(after)
    assert [name for name in _names(after) if "joined" not in name] == [
        *("q_p", "q_p", "q_p", "z_q", "z_p"),
    ]
    assert "q_b_joined = q_b_joined[m, n + 24]" in str(after)
    assert [decision.how for decision in deciding.decisions] == ["one product"]
    assert join_products(after, Deciding(AVX2), _fixed(before)) is after


@pytest.mark.usefixtures("always")
def test_what_follows_otherwise_reads_slices() -> None:
    before = _graph(values={"q": "max(e + b, 0.0)", "p": "e * b"})
    after = join_products(before, Deciding(AVX2), _fixed(before))
    verify(after)
    assert [name for name in _names(after) if "joined" not in name] == [
        *("q_p", "q_p", "q_b", "p_b", "z_q", "z_p"),
    ]


@pytest.mark.parametrize("value", ["e + b * f32(n)", "select(n < 9, e, b)"])
@pytest.mark.usefixtures("always")
def test_what_follows_by_its_place_reads_slices(value: str) -> None:
    before = _graph(values=dict.fromkeys(SIZES, value))
    after = join_products(before, Deciding(AVX2), _fixed(before))
    verify(after)
    assert [name for name in _names(after) if "joined" not in name] == [
        *("q_p", "q_p", "q_b", "p_b", "z_q", "z_p"),
    ]
    values = _arguments(before)
    for got, want in zip(run(after, **values), run(before, **values), strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def _in_two(kernel: Kernel) -> Kernel:
    """``kernel`` with the products of the sums made before these."""
    text = str(kernel)
    for name, n in SIZES.items():
        first = f"  compute {name}(m in 8, n in {n}, k in 32):\n"
        begin = text.index(first)
        end = text.index("add= a * b\n", begin) + len("add= a * b\n")
        text = (
            text[:begin]
            + f"  alloc {name}_m: f32[8, {n}, 32]\n"
            + f"  compute {name}_m(m in 8, n in {n}, k in 32):\n    a = x[m, k]\n"
            + f"    b = w_{name}[n, k]\n    {name}_m[m, n, k] = a * b\n"
            + f"{first}    a = {name}_m[m, n, k]\n    {name}[m, n] add= a\n"
            + text[end:]
        )
    result = parse_kernel(text)
    verify(result)
    return result


@pytest.mark.usefixtures("always")
def test_products_that_are_made_before_they_are_added_up() -> None:
    before = _in_two(_graph())
    after = join_products(before, Deciding(AVX2), _fixed(before))
    verify(after)
    assert [name for name in _names(after) if "joined" not in name] == [
        *("q_p", "q_p", "q_p", "q_p", "z_q", "z_p"),
    ]
    assert "alloc q_m_joined: f32[8, 40, 32]" in str(after)


@pytest.mark.parametrize("values", [None, {"q": "max(e + b, 0.0)", "p": "e * b"}])
@pytest.mark.usefixtures("always")
def test_results_are_those_of_floats_of_64_bits(values: Any) -> None:
    kernel = _graph(values=values)
    before = prepare(kernel, CONSTANT, Deciding(AVX2, CONSTANT)).before
    assert before is not None and any("joined" in name for name in _names(before))
    given = _arguments(kernel)
    result = compile_divided(kernel, CONSTANT, "x86:avx2", 1)
    assert result.before is not None
    names = [name for name in result.before.signature.names if name in given]
    beside = result.before(**{name: given[name] for name in names})
    outs = result.before.signature.results
    beside = beside if len(outs) > 1 else {outs[0]: beside}
    arrays = {"x": given["x"]}
    for name, source in result.constant.items():
        array = given[source] if source in given else beside[source]
        arrays[name] = result.program.pack(name, array) if name in result.program.packed else array
    results = result.program(**arrays)
    for name in SIZES:
        sums = given["x"].astype(np.float64) @ given[f"w_{name}"].T.astype(np.float64)
        bias = given[f"b_{name}"]
        value = sums * bias if values and name == "p" else np.maximum(sums + bias, 0)
        np.testing.assert_allclose(results[f"z_{name}"], 2 * value.T, 1e-5, 1e-4)


MORE = """
  alloc o: f32[8, 24]
  compute o(m in 8, n in 24):
    a = w_q[n, m]
    o[m, n] = a + 1.0
"""


@pytest.mark.parametrize(
    ("rule", "graph", "constant"),
    [
        (0, _graph(), CONSTANT),
        (1, _graph(), ("w_p", "b_p")),
        (2, _graph(more=MORE), CONSTANT),
        (4, _graph(("0.0", "1.0")), CONSTANT),
    ],
)
def test_what_is_no_such_product_stays_apart(
    always: list[Any], rule: int, graph: Kernel, constant: tuple[str, ...]
) -> None:
    if rule == 0:
        text = str(graph).replace("  alloc p: f32[8, 16]\n", "")
        graph = parse_kernel(text.replace("out z_q", "out p: f32[8, 16], out z_q"))
    deciding = Deciding(AVX2)
    assert join_products(graph, deciding, _fixed(graph, *constant)) is graph
    assert [decision.why for decision in deciding.decisions] == [RULES[rule]] and not always


def test_what_begins_with_others_stays_apart(always: list[Any]) -> None:
    text = str(_graph())
    for name, n in SIZES.items():
        clear = f"    {name}[m, n] = 0.0\n"
        text = text.replace(clear, f"{clear}    s_{name}[m, n] = 1.0\n")
        begin = f"  compute {name}_clear"
        text = text.replace(begin, f"  alloc s_{name}: f32[8, {n}]\n{begin}")
    graph = parse_kernel(text)
    verify(graph)
    assert join_products(graph, Deciding(AVX2), _fixed(graph)) is graph and not always


def test_constants_beside_a_graph_are_put_together_up_to_a_size(
    always: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _graph()
    arrays = {name: array.ravel() for name, array in _arguments(graph).items() if name != "x"}
    digests = {name: digest_of_contents(array) for name, array in arrays.items()}
    params = [replace(array, digest=digests.get(array.name)) for array in graph.arrays]
    contents = {digests[name]: array for name, array in arrays.items()}
    unknown = replace(graph, params=tuple(params))
    graph = replace(unknown, constants=contents)
    assert join_products(unknown, Deciding(AVX2)) is unknown
    monkeypatch.setattr(joining, "MOST_POINTS", 40 * 32 - 1)
    deciding = Deciding(AVX2)
    assert join_products(graph, deciding) is graph and not always
    assert [decision.why for decision in deciding.decisions] == [RULES[5]]
    monkeypatch.setattr(joining, "MOST_POINTS", 40 * 32)
    assert join_products(graph, Deciding(AVX2)) is not graph


def test_what_is_made_beforehand_may_be_packed_apart_too(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, packable = _graph(), list[set[str]]()

    def way(stmts: Any, handed: Any, constant: Any, *_: Any) -> predicting._Way:
        packable.append({buffer.name for buffer in constant})
        return predicting._Way(())

    monkeypatch.setattr(predicting._Way, "of", way)
    monkeypatch.setattr(predicting._Way, "seconds", lambda *_: 1.0)
    join_products(graph, Deciding(AVX2), _fixed(graph))
    apart, one = packable
    assert apart == {*CONSTANT} and one == {*CONSTANT, "w_q_joined", "b_q_joined"}


def test_what_is_predicted_to_take_longer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((1.0, 2.0))  # apart, and as one
    monkeypatch.setattr(Parts, "seconds", lambda *_: next(times))
    graph, deciding = _graph(), Deciding(AVX2, CONSTANT)
    assert join_products(graph, deciding, _fixed(graph)) is graph
    assert deciding.decisions == [
        Decision("q, p", "apart", "one product: 2000000.0 us, apart: 1000000.0 us")
    ]


def test_times_are_predicted_for_what_shares_their_kernels() -> None:
    graph, deciding = _graph(), Deciding(AVX2, CONSTANT)
    join_products(graph, deciding, _fixed(graph))
    (decision,) = deciding.decisions
    assert decision.what == "q, p" and decision.why.startswith("one product: ")
    assert join_products(graph, None, _fixed(graph)) is graph
