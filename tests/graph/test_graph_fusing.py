"""Which computes of a graph become one kernel: each rule, by a pair that it alone keeps apart; what
a queue of pairs does with them; and what comes out is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tilewright.graph.cutting import cut_graph
from tilewright.graph.fusing import _Fusing, fused, kernel_of
from tilewright.graph.fusion_rules import MOST_IN_CHAIN, RULES, Pair, Part, refusal
from tilewright.graph.graph import Graph
from tilewright.graph.predicting import Deciding
from tilewright.ir import Kernel, parse_kernel
from tilewright.ir.printer import to_text
from tilewright.machines.machine import Machine
from tilewright.predict.passing import Passing
from tilewright.runtime.steps import launches
from tilewright.schedule.queries.flow import Items, flow
from tilewright.targets.registry import find_target
from tilewright.testing.interpreted_graph import InterpretedGraph

HEAD = (
    "kernel net(in x: f32[64, 48], in w: f32[48, 48], in ids: s32[64], out y: f32[64, 48], "
    "out z: f32[64, 48]):\n"
)
MAPPED = "  compute {name}(m in 64, n in 48):\n    a = {a}[m, n]\n    {to}[m, n] = a * 2.0\n"


def mapped(name: str, a: str, to: str) -> str:
    """A compute that maps each element of ``a`` to one of ``to``."""
    return MAPPED.format(name=name, a=a, to=to)


PRODUCT = """  compute {name}(m in 64, n in 48, k in 48):
    a = {a}[m, k]
    b = w[k, n]
    {to}[m, n] add= a * b
"""
SUMS = "  compute sums(m in 64, n in 48):\n    a = {a}[m, n]\n    s[m, 0] add= a\n"
REVERSED = "  compute reversed(m in 64, n in 48):\n    a = {a}[63 - m, 47 - n]\n    y[m, n] = a\n"
GATHERED = (
    "  compute gathered(m in 64, n in 48):\n    p = ids[m]\n    a = r[s64(p), n]\n    y[m, n] = a\n"
)
# Of each rule: two computes, and what else is to be known of them.
PLANTED: dict[str, tuple[str, dict[str, object]]] = {
    "control": (mapped("first", "x", "r") + mapped("second", "r", "y"), {"home": 1}),
    "places": (mapped("first", "x", "r") + GATHERED, {}),
    "products": (
        PRODUCT.format(name="first", a="x", to="r") + PRODUCT.format(name="second", a="r", to="y"),
        {"contract": (True, True)},
    ),
    "reduced again": (
        SUMS.format(a="x") + PRODUCT.format(name="second", a="s", to="y").replace("m, k", "m, 0"),
        {"contract": (False, True)},
    ),
    "factor of others": (
        mapped("first", "x", "r") + PRODUCT.format(name="second", a="r", to="y"),
        {"contract": (False, True), "readers": 2},
    ),
    "rows of tiles": (
        PRODUCT.format(name="first", a="x", to="r") + SUMS.format(a="r"),
        {"contract": (True, False)},
    ),
    "sums of others": (
        PRODUCT.format(name="first", a="x", to="r") + mapped("second", "r", "y"),
        {"contract": (True, False), "for_caller": True},
    ),
    "sums elsewhere": (
        PRODUCT.format(name="first", a="x", to="r") + REVERSED.format(a="r"),
        {"contract": (True, False)},
    ),
    "factor elsewhere": (
        mapped("first", "x", "r") + PRODUCT.format(name="second", a="r", to="y"),
        {"contract": (False, True)},
    ),
    "length": (mapped("first", "x", "r") * MOST_IN_CHAIN + mapped("second", "r", "y"), {}),
    "dims": (mapped("first", "x", "r") + REVERSED.format(a="r"), {}),
    "order": (mapped("first", "x", "r") + mapped("second", "r", "y"), {"crossed": lambda: True}),
}


def items_of(body: str) -> Items:
    kernel = parse_kernel(HEAD + "  alloc r: f32[64, 48]\n  alloc s: f32[64, 1]\n" + body)
    return Items(flow(kernel)[1])


def pair_of(name: str) -> Pair:
    body, more = PLANTED[name]
    *first, last = items_of(body)
    contract = more.get("contract", (False, False))
    producer = Part(tuple(first), contract[0])  # type: ignore[index]
    consumer = Part((last,), contract[1], home=more.get("home", 0))  # type: ignore[arg-type, index]
    written = frozenset().union(*(item.writes for item in first))
    others = {k: v for k, v in more.items() if k in ("readers", "for_caller", "crossed")}
    return Pair(producer, consumer, written & last.touches, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule_refuses_a_pair(rule: object) -> None:
    pair = pair_of(rule.name)  # type: ignore[attr-defined]
    assert refusal(pair) is rule


def test_what_no_rule_refuses() -> None:
    first, second = items_of(mapped("first", "x", "r") + mapped("second", "r", "y"))
    pair = Pair(Part((first,)), Part((second,)), first.writes)
    assert refusal(pair) is None and pair.shared == 64 * 48
    # A product takes in what it alone reads, whatever else would hold.
    into = Part((second,), contracts=True, before=frozenset({first}))
    assert refusal(Pair(Part((first,)), into, first.writes)) is None


def test_what_feeds_a_maximum_and_an_exponential_is_made_once() -> None:
    kernel = graph(
        mapped("scaled", "x", "r")
        + "  compute begun(m in 64):\n    s[m, 0] = -inf\n"
        + SUMS.format(a="r").replace("add=", "max=")
        + "  compute powers(m in 64, n in 48):\n"
        "    a = r[m, n]\n    b = s[m, 0]\n    y[m, n] = exp(a - b)\n"
    )
    first, _ = cut_graph(kernel).kernels
    text = to_text(first)
    assert text.count("* 2.0") == 1 and text.count("exp(") == 1
    assert_right(kernel)


def graph(body: str) -> Kernel:
    body = "  alloc r: f32[64, 48]\n  alloc s: f32[64, 1]\n" + body
    body += "" if "z[" in body else "  compute rest(m in 64, n in 48):\n    z[m, n] = 1.0\n"
    return parse_kernel(HEAD + body)


def assert_right(kernel: Kernel) -> None:
    """The program computes what the interpreter makes of the whole."""
    import tilewright as tw

    rng = np.random.default_rng(5)
    arrays = {
        "x": rng.standard_normal((64, 48)).astype(np.float32),
        "w": rng.standard_normal((48, 48)).astype(np.float32),
        "ids": rng.integers(0, 64, 64).astype(np.int32),
    }
    read = {array.name for array in kernel.arrays if array.access == "in"}
    arrays = {name: array for name, array in arrays.items() if name in read}
    wanted = tw.compile(kernel, target="interpreter")(**arrays)
    outs = {name: np.zeros_like(wanted[name]) for name in ("y", "z")}
    InterpretedGraph(Graph(kernel), find_target("x86:avx2").machine)(**arrays, out=outs)
    for name, result in outs.items():
        np.testing.assert_allclose(result, wanted[name], 1e-5, 1e-5)


def groups(kernel: Kernel) -> list[tuple[str, ...]]:
    return [launch.computes for launch in launches(cut_graph(kernel).steps)]


def test_the_pair_that_saves_most_is_first() -> None:
    """``t``, much larger than the row that it is made of, goes to what sums it up, not to what
    makes the row, as a loop along rows surrounds either pair, but not all three."""
    kernel = parse_kernel(
        """kernel net(in x: f32[48], in w: f32[64, 48], out y: f32[64]):
  alloc r: f32[48]
  compute r(k in 48):
    a = x[k]
    r[k] = a * 2.0
  alloc t: f32[64, 48]
  compute t(n in 64, k in 48):
    a = r[k]
    b = w[n, k]
    t[n, k] = a * b
  compute begun(n in 64):
    y[n] = 0.0
  compute sums(n in 64, k in 48):
    a = t[n, k]
    y[n] add= a
"""
    )
    assert groups(kernel) == [("r",), ("t", "begun", "sums")]


def test_parts_of_a_concatenation_and_its_reader_are_one() -> None:
    parts = "".join(
        f"  compute part_{n}(m in 64, n in 24):\n    a = x[m, {24 - start} + n]\n"
        f"    r[m, {start} + n] = a\n"
        for n, start in enumerate((0, 24))
    )
    kernel = graph(parts + mapped("reader", "r", "y"))
    assert ("part_0", "part_1", "reader") in groups(kernel)
    assert_right(kernel)


def test_units_between_two_that_become_one_move() -> None:
    """``second`` needs ``other``, and ``gathered`` needs ``first``: the one goes before, the other
    behind."""
    kernel = graph(
        mapped("first", "x", "r")
        + GATHERED.replace("y[", "z[")
        + "  alloc t: f32[64, 48]\n"
        + "  compute other(m in 64, n in 48):\n    a = x[63 - m, n]\n    t[m, n] = a\n"
        + "  compute second(m in 64, n in 48):\n"
        "    a = r[m, n]\n    b = t[63 - m, 47 - n]\n    y[m, n] = a + b\n"
    )
    assert groups(kernel) == [("other",), ("first", "second"), ("gathered",)]
    assert_right(kernel)


class Stub:
    """Predicts what it is told."""

    def __init__(self, together: float, apart: float) -> None:
        self.machine: Machine = find_target("x86:avx2").machine
        self.times = (together, apart)
        self.asked: list[list[str]] = []
        self.decisions: list[tuple[str, str]] = []

    def both_ways(self, one: Sequence[Kernel], other: object) -> tuple[float, float] | None:
        self.asked.append([kernel.name for kernel in one])
        return self.times

    def decide(self, what: str, how: str, why: str) -> None:
        self.decisions.append((what, how))


FEW = (
    "  compute first(m in 64):\n    a = x[m, 0]\n    s[m, 0] = a * 2.0\n"
    "  compute second(n in 64, m in 48):\n    a = s[63 - n, 0]\n    y[n, m] = a\n"
)


@pytest.mark.parametrize("together", [1.0, 3.0])
def test_what_shares_no_loop_is_one_where_that_is_predicted_to_be_faster(together: float) -> None:
    kernel, judge = graph(FEW), Stub(together, 2.0)
    result = [launch.computes for launch in launches(cut_graph(kernel, judge=judge).steps)]
    assert len(judge.asked) == 1
    if together < 2:
        assert ("first", "second") in result
        assert judge.decisions == [("first + second", "one kernel")]
    else:
        assert result[:2] == [("first",), ("second",)]
        assert judge.decisions == [("first + second", "apart")]
    # Without predictions they stay apart.
    assert groups(kernel)[:2] == [("first",), ("second",)]


def test_what_is_clear_is_not_predicted() -> None:
    judge = Stub(2.0, 1.0)
    kernel = graph(mapped("first", "x", "r") + mapped("second", "r", "y"))
    cut_graph(kernel, judge=judge)
    assert not judge.asked and judge.decisions == [("first + second", "one kernel")]


@pytest.mark.parametrize("wide", [1, 48])
def test_only_large_arrays_are_too_many_side_by_side(wide: int) -> None:
    names = [f"v{n}" for n in range(20)]
    params = ", ".join(f"in {name}: f32[64, {wide}]" for name in names)
    reads = "".join(f"    {name} = {name}[m, 0]\n" for name in names)
    kernel = parse_kernel(
        f"kernel net(in x: f32[64, 48], {params}, out y: f32[64, 48]):\n  alloc s: f32[64, 1]\n"
        f"  compute first(m in 64):\n{reads}    s[m, 0] = {' + '.join(names)}\n"
        "  compute second(m in 64, n in 48):\n"
        "    a = x[m, n]\n    b = s[m, 0]\n    y[m, n] = a + b\n"
    )
    judge = Stub(2.0, 1.0)
    cut_graph(kernel, judge=judge)
    assert judge.decisions == [("first + second", "one kernel" if wide == 1 else "apart")]
    assert len(judge.asked) == (0 if wide == 1 else 1)


def test_predictions_of_both_ways() -> None:
    kernel = graph(FEW)
    _, items = flow(kernel)
    both = [kernel_of(n, Items(items), frozenset()) for n in ((0, 1), (0,), (1,))]
    deciding = Deciding(find_target("x86:avx2").machine)
    times = deciding.both_ways(both[:1], both[1:])
    assert times is not None and 0 < times[0] < 1e-3 and 0 < times[1] < 1e-3
    without = replace(deciding.machine, costs=None)
    assert Deciding(without).both_ways(both[:1], both[1:]) is None


def test_bytes_take_longer_the_farther_they_come() -> None:
    machine = find_target("x86:avx2").machine
    passing = Passing.on(machine)
    sizes = [1 << n for n in range(10, 34)]
    rates = [passing.seconds(size, size) / size for size in sizes]
    assert rates == sorted(rates) and rates[0] < rates[-1]
    usual = Passing.on(replace(machine, costs=None))
    assert usual == Passing.on(None) and usual.seconds(1 << 20, 30) == pytest.approx(1e-9)


def test_what_is_filled_twice_is_filled_twice() -> None:
    """The second fill is what touches the memory after the first."""
    fill = "  compute {name}(m in {rows}, n in 48):\n    r[m, n] = {value}.0\n"
    fills = fill.format(name="fives", rows=64, value=5) + fill.format(name="ones", rows=9, value=1)
    kernel = graph(fills + mapped("reader", "r", "y"))
    assert groups(kernel)[0] == ("fives", "ones", "reader")
    kernel = graph(fills + PRODUCT.format(name="product", a="r", to="y"))
    assert groups(kernel)[:2] == [("fives", "ones"), ("product",)]


def test_a_factor_is_filled_before_what_reads_it_ahead_of_the_end_of_a_product() -> None:
    kernel = graph(
        "  compute ones(m in 64, n in 48):\n    r[m, n] = 1.0\n"
        "  alloc t: f32[64, 48]\n"
        "  compute init(m in 64, n in 48):\n    t[m, n] = 0.0\n"
        + PRODUCT.format(name="product", a="r", to="t")
        + REVERSED.format(a="r").replace("y[", "z[")
        + mapped("end", "t", "y")
    )
    assert groups(kernel) == [("ones",), ("reversed",), ("init", "product", "end")]


def test_what_a_pair_saves_does_not_depend_on_the_order_of_sets() -> None:
    sizes = (3, 7, 11, 13, 17, 19)
    allocated = "".join(f"  alloc t{n}: f32[{n}]\n" for n in sizes)
    reads = "".join(f"    a{n} = t{n}[0]\n" for n in sizes)
    kernel = f"kernel net(out y: f32[1]):\n{allocated}" + "".join(
        f"  compute {name}(m in 1):\n{reads}    t{sizes[0]}[m] = " + " + ".join(values) + "\n"
        for name, values in {k: [f"a{n}" for n in sizes] for k in ("first", "second")}.items()
    )
    kernel += f"  compute end(m in 1):\n    a = t{sizes[0]}[m]\n    y[m] = a\n"
    machine = replace(find_target("x86:avx2").machine, costs=None)
    saved = set()
    for _ in range(20):
        local, items = flow(parse_kernel(kernel))
        fusing = _Fusing(Items(items), frozenset(local), [], Deciding(machine))
        first, second, _ = fusing.units
        saved.add(fusing._saved(first, second))
    assert len(saved) == 1


def test_nothing_is_nothing() -> None:
    assert fused(Items(), frozenset(), [], None) == []
