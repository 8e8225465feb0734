"""What each of several groups computes again: where it may be, where times decide, and what comes
out is right."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from graphs import run
from sweeps import in_turns
from tilewright.graph.cutting import Cut, cut_graph
from tilewright.graph.graph import Graph
from tilewright.graph.predicting import Deciding
from tilewright.ir import Kernel, parse_kernel
from tilewright.machines.machine import Machine
from tilewright.runtime.steps import launches
from tilewright.targets.registry import find_target
from tilewright.testing.interpreted_graph import InterpretedGraph

# As gradients of a norm: of what is read along rows and along columns.
NORM = """kernel net(
    in x: f32[64, 48], in mean: f32[64], in g: f32[64, 48], out rows: f32[64],
    out columns: f32[48]{more}):
  alloc less: f32[64, 48]
  compute less(i in 64, j in 48):
    a = x[i, j]
    b = mean[i]
    less[i, j] = a - b
  alloc hat: f32[64, 48]
  compute hat(i in 64, j in 48):
    a = less[i, j]
    hat[i, j] = a * 2.0
  compute rows_clear(i in 64):
    rows[i] = 0.0
  compute rows(i in 64, j in 48):
    a = hat[i, j]
    b = g[i, j]
    rows[i] add= a * b
{between}  compute columns_clear(j in 48):
    columns[j] = 0.0
  compute columns(j in 48, i in 64):
    a = hat[i, j]
    columns[j] add= a
{last}"""
APART = [("less", "hat", "rows_clear", "rows"), ("columns_clear", "columns")]
AGAIN = [("less", "hat", "rows_clear", "rows"), ("less", "hat", "columns_clear", "columns")]


def norm(more: str = "", between: str = "", last: str = "") -> Kernel:
    return parse_kernel(NORM.format(more=more, between=between, last=last))


class Stub:
    """Predicts that less is computed again in so much time, and else what shares a loop is one."""

    machine: Machine = find_target("x86:avx2").machine

    def __init__(self, again: float, once: float) -> None:
        self.times = (again, once)
        self.asked: list[tuple[int, int]] = []
        self.decisions: list[tuple[str, str]] = []

    def both_ways(
        self, one: Sequence[Kernel], other: Sequence[Kernel]
    ) -> tuple[float, float] | None:
        self.asked.append((len(one), len(other)))
        return self.times if len(other) == 2 and len(one) == 2 else (2.0, 1.0)

    def decide(self, what: str, how: str, why: str) -> None:
        self.decisions.append((what, how))


def groups(cut: Cut) -> list[tuple[str, ...]]:
    return [launch.computes for launch in launches(cut.steps)]


@pytest.mark.parametrize("again", [1.0, 3.0])
def test_times_decide(again: float) -> None:
    judge = Stub(again, 2.0)
    cut = cut_graph(norm(), judge=judge)
    assert judge.asked == [(2, 2)]
    if again < 2:
        assert groups(cut) == AGAIN and not cut.between
        assert judge.decisions[-1] == ("hat", "by each reader")
    else:
        assert groups(cut) == APART and [held.name for held in cut.between] == ["hat"]
        assert judge.decisions[-1] == ("hat", "once")
    # Without predictions nothing is computed twice.
    assert groups(cut_graph(norm())) == APART


THIRD = """  compute third_clear(j in 48):
    z[j] = 0.0
  compute third(j in 48, i in 64):
    a = hat[i, j]
    z[j] add= a * a
"""
TURNED = "  compute turned(i in 64, j in 48):\n    a = hat[63 - i, 47 - j]\n    y[i, j] = a\n"
PRODUCT = """  compute clear(i in 64, k in 16):
    y[i, k] = 0.0
  compute product(i in 64, k in 16, j in 48):
    a = hat[i, j]
    b = w[j, k]
    y[i, k] add= a * b
"""
WRITTEN = "  compute written(i in 64, j in 48):\n    x[63 - i, 47 - j] = 0.0\n"


def test_all_readers_do_or_none() -> None:
    three = norm(", out z: f32[48]", last=THIRD)
    judge = Stub(1.0, 2.0)
    judge.both_ways = lambda one, other: (1.0, 2.0)  # type: ignore[method-assign]
    again = [*AGAIN, ("less", "hat", "third_clear", "third")]
    assert groups(cut_graph(three, judge=judge)) == again
    # What reads it elsewhere has no loop of its own in which it could be made.
    turned = norm(", out y: f32[64, 48]", last=TURNED)
    cut = cut_graph(turned, judge=Stub(1.0, 2.0))
    assert [held.name for held in cut.between] == ["hat"]
    # A product copies its factor: it would compute it for itself.
    product = norm(", in w: f32[48, 16], out y: f32[64, 16]", last=PRODUCT)
    cut = cut_graph(product, judge=Stub(1.0, 2.0))
    assert [held.name for held in cut.between] == ["hat"]


def test_what_the_caller_gets_is_made_once() -> None:
    text = NORM.replace("  alloc hat: f32[64, 48]\n", "")
    kernel = parse_kernel(text.format(more=", out hat: f32[64, 48]", between="", last=""))
    judge = Stub(1.0, 2.0)
    assert groups(cut_graph(kernel, judge=judge)) == APART and not judge.asked


def test_what_is_written_meanwhile_is_not_read_again() -> None:
    text = NORM.replace("in x:", "inout x:").format(more="", between=WRITTEN, last="")
    judge = Stub(1.0, 2.0)
    cut = cut_graph(parse_kernel(text), judge=judge)
    assert groups(cut) == [APART[0], ("written",), APART[1]] and not judge.asked


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All is computed again that may be; what was."""
    again: list[str] = []

    def decide(self: Deciding, what: str, how: str, why: str) -> None:
        again.extend([what] if how == "by each reader" else [])

    monkeypatch.setattr(Deciding, "both_ways", lambda *_: (1.0, 2.0))
    monkeypatch.setattr(Deciding, "decide", decide)
    return again


@pytest.mark.parametrize("more", ["", "written"])
def test_results(eager: list[str], more: str) -> None:
    between = WRITTEN.replace("x[", "y[").replace("0.0", "1.0") if more else ""
    kernel = norm(", out y: f32[64, 48]" if more else "", between)
    rng = np.random.default_rng(1)
    shapes = {"x": (64, 48), "mean": (64,), "g": (64, 48)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    outs = {"rows": np.zeros(64, np.float32), "columns": np.zeros(48, np.float32)}
    outs |= {"y": np.zeros((64, 48), np.float32)} if more else {}
    InterpretedGraph(Graph(kernel), Stub.machine)(**arrays, out=outs)
    assert eager == ["hat"]
    hat = 2 * (arrays["x"].astype(np.float64) - arrays["mean"][:, None])
    np.testing.assert_allclose(outs["rows"], (hat * arrays["g"]).sum(1), 1e-4, 1e-4)
    np.testing.assert_allclose(outs["columns"], hat.sum(0), 1e-4, 1e-4)


def drawn(seed: int) -> Kernel:
    """Values of two dims, made of each other and of sums along one of them."""
    rng = random.Random(seed)
    values, rows, columns = ["x"], ["v"], ["w"]
    params = ["in x: f32[24, 16]", "in v: f32[24]", "in w: f32[16]"]
    body: list[str] = []
    for n in range(rng.randint(10, 16)):
        kind = rng.choice("eerrcc")
        a = rng.choice(values) if kind == "e" else values[-1]
        name, sizes = f"t{n}", {"e": "24, 16", "r": "24", "c": "16"}[kind]
        if kind != "e":
            params.append(f"out {name}: f32[{sizes}]")
        else:
            body.append(f"  alloc {name}: f32[{sizes}]")
        load = f"    a = {a}[i, j]"
        if kind == "e":
            b = rng.choice([f"{values[-1]}[i, j]", f"{rows[-1]}[i]"])
            c = f"{rng.choice(columns[:2])}[j]"
            body += [f"  compute {name}(i in 24, j in 16):", load, f"    b = {b}", f"    c = {c}"]
            body.append(f"    {name}[i, j] = a * 0.5 + b * c")
            values.append(name)
            continue
        size, i = ("24", "i") if kind == "r" else ("16", "j")
        loop = "i in 24, j in 16" if kind == "r" else "j in 16, i in 24"
        body += [f"  compute {name}_clear({i} in {size}):", f"    {name}[{i}] = 0.0"]
        body += [f"  compute {name}({loop}):", load, f"    {name}[{i}] add= a"]
        (rows if kind == "r" else columns).append(name)
    params.append("out y: f32[24, 16]")
    last = [f"    {v} = {v}[i, j]" for v in values[-2:]]
    body += ["  compute y(i in 24, j in 16):", *last, f"    y[i, j] = {' + '.join(values[-2:])}"]
    return parse_kernel(f"kernel net({', '.join(params)}):\n" + "\n".join(body) + "\n")


# Some of which nothing is computed again.
@pytest.mark.parametrize("seed", in_turns(16, range(200)))
def test_random_graphs(eager: list[str], seed: int) -> None:
    kernel = drawn(seed)
    rng = np.random.default_rng(seed)
    arrays = {
        array.name: rng.standard_normal(array.buffer.shape).astype(np.float32)
        for array in kernel.arrays
    }
    outs = {array.name: arrays.pop(array.name) for array in kernel.arrays if array.access == "out"}
    InterpretedGraph(Graph(kernel), Stub.machine)(**arrays, out=outs)
    expected = run(kernel, **arrays)
    assert expected
    for want, got in zip(expected, outs.values(), strict=True):
        np.testing.assert_allclose(got, want, 1e-4, 1e-4 * float(np.abs(want).max(initial=1.0)))
