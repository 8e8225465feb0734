"""Why groups of a graph are apart: each reason, by a graph that has it."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from tilewright.graph import predicting
from tilewright.graph.boundaries import boundaries
from tilewright.graph.cutting import cut_graph, groups_in
from tilewright.graph.fusion_rules import RULES
from tilewright.graph.graph import Graph
from tilewright.graph.predicting import Deciding, chains_by
from tilewright.ir import Kernel, parse_kernel
from tilewright.runtime.steps import launches
from tilewright.targets.registry import find_target
from tilewright.testing.interpreted_graph import InterpretedGraph

PRODUCT = """
  alloc h: f32[32, 16]
  compute zero(m in 32, n in 16):
    h[m, n] = 0.0
  compute product(m in 32, n in 16, k in 24):
    a = x[m, k]
    b = w[k, n]
    h[m, n] add= a * b
"""
SECOND = """
  compute zero2(m in 32, n in 16):
    y[m, n] = 0.0
  compute product2(m in 32, n in 16, k in 16):
    a = {a}[m, k]
    b = v[k, n]
    y[m, n] add= a * b
"""
SUMS = """
  alloc s: f32[32]
  compute zeros(m in 32):
    s[m] = 0.0
  compute sums(m in 32, n in 16):
    a = {a}[m, n]
    s[m] add= a
"""
COPY = """
  compute copy(m in 32, n in 16):
    a = {a}[m, n]
    {to}[m, n] = a * 2.0
"""
SCALED = """
  alloc r: f32[32, 16]
  compute scaled(m in 32, n in 16):
    a = v0[m, n]
    t = s[m]
    r[m, n] = a / t
"""
GRAPHS = {
    "both are products: what is between them stays in a cache, or is no tile for a tile": PRODUCT
    + SECOND.format(a="h"),
    "a product would reduce it again for each of its tiles": (
        SUMS.format(a="v0") + SCALED + SECOND.format(a="r")
    ),
    "a product would compute it for itself, and others read it too": (
        "  alloc r: f32[32, 16]\n"
        + COPY.format(a="v0", to="r")
        + SECOND.format(a="r")
        + COPY.replace("copy", "copy2").format(a="r", to="z")
    ),
    "a reduction wants whole rows, and a product gives tiles": (
        PRODUCT
        + SUMS.format(a="h")
        + "  compute spread(m in 32, n in 16):\n    a = s[m]\n    y[m, n] = a\n"
    ),
    "a product hands its sums to one reader, and others read them too": (
        PRODUCT
        + COPY.format(a="h", to="y")
        + "  compute turned(m in 32, n in 16):\n    a = h[31 - m, n]\n    z[m, n] = a\n"
    ),
    "a product's sums are read in another order, or in parts": (
        PRODUCT + "  compute turned(m in 32, n in 16):\n    a = h[31 - m, n]\n    y[m, n] = a\n"
    ),
    "no dim is shared by all computes": (
        "  alloc r: f32[32, 16]\n"
        + COPY.format(a="v0", to="r")
        + "  compute turned(m in 32, n in 16):\n    a = r[31 - m, 15 - n]\n    y[m, n] = a\n"
    ),
    "one of them has places that depend on data, or is no compute": (
        "  alloc r: f32[32, 16]\n"
        + COPY.format(a="v0", to="r")
        + "  compute gathered(m in 32, n in 16):\n"
        "    p = ids[m]\n    a = r[s64(p), n]\n    y[m, n] = a\n"
    ),
    "a condition or loop on data is between them": (
        "  alloc r: f32[32, 16]\n"
        + COPY.format(a="v0", to="r")
        + "  if v0[0, 0] < 3.0:\n"
        + COPY.replace("\n  ", "\n    ").replace("copy", "copy2").format(a="r", to="y").rstrip(" ")
    ),
}


def graph(body: str) -> Kernel:
    return parse_kernel(
        "kernel net(in x: f32[32, 24], in w: f32[24, 16], in v: f32[16, 16], in v0: f32[32, 16], "
        "in ids: s32[32], out y: f32[32, 16], out z: f32[32, 16]):\n" + body.strip("\n") + "\n"
    )


@pytest.mark.parametrize("why", GRAPHS)
def test_each_reason(why: str) -> None:
    kernel = graph(GRAPHS[why])
    groups = groups_in(kernel)
    assert len(groups) == len(list(launches(cut_graph(kernel).steps))) > 1
    assert why in [boundary.why for boundary in boundaries(kernel, groups)]


def test_a_chain_that_is_too_long() -> None:
    names = ["v0", *(f"r{n}" for n in range(40)), "y"]
    body = "".join(f"  alloc {name}: f32[32, 16]\n" for name in names[1:-1])
    for n, (a, to) in enumerate(itertools.pairwise(names)):
        body += COPY.replace("copy", f"copy{n}").format(a=a, to=to)
    kernel = graph(body)
    result = list(boundaries(kernel, groups_in(kernel)))
    assert [boundary.why for boundary in result] == ["a chain has 24 computes at most"]


def test_every_reason_is_met_but_the_last_of_products_and_of_all() -> None:
    left = [rule.why for rule in RULES if rule.why not in GRAPHS]
    assert left == [
        "a product reads more places than its factor has, or in parts",
        "a chain has 24 computes at most",
        "what runs between them needs the one first, and is needed by the other",
    ]


ATTENTION = """kernel attention(
    in q: f32[4, 80, 8], in k: f32[4, 110, 8], in v: f32[4, 110, 8], out y: f32[4, 80, 8]):
  alloc s: f32[4, 80, 110]
  compute s_clear(h in 4, i in 80, j in 110):
    s[h, i, j] = 0.0
  compute s(h in 4, i in 80, j in 110, d in 8):
    a = q[h, i, d]
    b = k[h, j, d]
    s[h, i, j] add= a * b
  alloc most: f32[4, 80]
  compute most_clear(h in 4, i in 80):
    most[h, i] = -inf
  compute most(h in 4, i in 80, j in 110):
    a = s[h, i, j]
    most[h, i] max= a
  alloc e: f32[4, 80, 110]
  compute e(h in 4, i in 80, j in 110):
    a = s[h, i, j]
    b = most[h, i]
    e[h, i, j] = exp(a - b)
  compute y_clear(h in 4, i in 80, d in 8):
    y[h, i, d] = 0.0
  compute y(h in 4, i in 80, d in 8, j in 110):
    a = e[h, i, j]
    b = v[h, j, d]
    y[h, i, d] add= a * b
"""


@pytest.mark.parametrize("faster", ["one kernel", "apart", ""])
def test_chains_of_products_are_one_kernel_by_predicted_time(
    monkeypatch: pytest.MonkeyPatch, faster: str
) -> None:
    kernel = parse_kernel(ATTENTION)
    deciding = Deciding(find_target("x86:avx2").machine)
    if faster:
        times = itertools.cycle((1.0, 2.0) if faster == "one kernel" else (2.0, 1.0))
        monkeypatch.setattr(predicting._Way, "seconds", lambda *_: next(times))
    cut = cut_graph(kernel, chains_by(deciding))
    (decision,) = deciding.decisions
    assert decision.what == "s_clear to y" and decision.how == (faster or decision.how)
    assert (len(cut.kernels) == 1) == (decision.how == "one kernel")
    assert len(cut_graph(kernel).kernels) == 1
    given = {
        array.name: np.random.default_rng(3).standard_normal(array.buffer.shape).astype(np.float32)
        for array in kernel.arrays
        if array.access == "in"
    }
    scores = np.einsum("hid,hjd->hij", *(given[n].astype(np.float64) for n in "qk"))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found = np.zeros((4, 80, 8), np.float32)
    InterpretedGraph(Graph(kernel), deciding.machine)(**given, out=found)
    np.testing.assert_allclose(found, np.einsum("hij,hjd->hid", weights, given["v"]), 1e-4, 1e-4)


def test_chains_of_the_same_sums_go_by_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    start, body = ATTENTION.index("  alloc s:"), ATTENTION.index("out y")
    second = re.sub(r"\b(s|most|e|y)(_clear)?\b", r"\1_1\2", ATTENTION[start:])
    second = second.replace("exp(a - b)", "exp(a - b + 1.0)")
    text = ATTENTION[:body] + "out y_1: f32[4, 80, 8], " + ATTENTION[body:]
    longer = re.sub(r"\b(s|most|e|y|k|v)(_clear)?\b", r"\1_2\2", ATTENTION[start:])
    params = "in k_2: f32[4, 120, 8], in v_2: f32[4, 120, 8], out y_2: f32[4, 80, 8], "
    text = text[:body] + params + text[body:] + second + longer.replace("110", "120")
    asked = []

    def seconds(*given: object) -> float:
        asked.append(given)
        return 1.0 + len(asked) % 2

    monkeypatch.setattr(predicting._Way, "seconds", seconds)
    deciding = Deciding(find_target("x86:avx2").machine)
    cut_graph(parse_kernel(text), chains_by(deciding))
    assert [(decision.what, decision.how) for decision in deciding.decisions] == [
        ("s_clear to y", "apart"),
        ("s_1_clear to y_1", "apart"),
        ("s_2_clear to y_2", "apart"),
    ]
    assert deciding.decisions[1].why == "as s_clear to y" and len(asked) == 4
