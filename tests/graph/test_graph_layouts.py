"""Where few channels lie: decided by predicted times, region by region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.graph.compiling import compile_graph
from tilewright.graph.passes.channels_last import channels_last
from tilewright.graph.predicting import Deciding, Parts
from tilewright.ir import Allocate, Kernel, parse_kernel, verify, walk_stmts
from tilewright.targets.registry import find_target

AVX2 = find_target("x86:avx2").machine

# A convolution of an argument, and one by the other of what it makes.
FIRST = """
  alloc v{b}: f32[{c}, 7, 7]
  compute v{b}_clear(o in {c}, h in 7, w in 7):
    v{b}[o, h, w] = 0.0
  compute v{b}(o in {c}, h in 7, w in 7, i in 3, j in 3):
    p = x[h + i, w + j]
    q = a{b}[o, i, j]
    v{b}[o, h, w] add= p * q
"""
SECOND = """
  compute y{b}_clear(o in 4, h in 7, w in 7):
    y{b}[o, h, w] = 0.0
  compute y{b}(o in 4, h in 7, w in 7, c in {c}):
    p = v{b}[c, h, w]
    q = b{b}[o, c]
    y{b}[o, h, w] add= p * q
"""


def _branches(*channels: int) -> Kernel:
    params, body = ["in x: f32[9, 9]"], ""
    for b, c in enumerate(channels):
        params += [f"in a{b}: f32[{c}, 3, 3], in b{b}: f32[4, {c}], out y{b}: f32[4, 7, 7]"]
        body += (FIRST + SECOND).format(b=b, c=c)
    kernel = parse_kernel(f"kernel net({', '.join(params)}):{body}")
    verify(kernel)
    return kernel


def _last(kernel: Kernel) -> list[bool]:
    """Of what is allocated, whether channels lie last."""
    nodes = walk_stmts(kernel.body)
    return [n.buffer.layout.parts[-1].dim == 0 for n in nodes if isinstance(n, Allocate)]


def _times(monkeypatch: pytest.MonkeyPatch, faster: Callable[[int], bool]) -> list[int]:
    """Predicts that channels last are ``faster`` for the n-th region; gives how many statements
    were asked about."""
    asked: list[int] = []

    def seconds(_: Parts, stmts: Any, *__: Any) -> float:
        asked.append(len(stmts))
        region, here = divmod(len(asked) - 1, 2)
        return 2e-6 if faster(region) == bool(here) else 1e-6

    monkeypatch.setattr(Parts, "seconds", seconds)
    return asked


def test_each_region_is_decided_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    _times(monkeypatch, lambda region: region % 2 == 0)
    deciding = Deciding(AVX2)
    assert _last(channels_last(_branches(8, 24, 4, 16), deciding)) == [True, False, True, False]
    ways = (
        "channels last: 1.0 us, as they are: 2.0 us",
        "channels last: 2.0 us, as they are: 1.0 us",
    )
    assert [(decision.what, decision.why) for decision in deciding.decisions] == [
        *(("v0", ways[0]), ("v1", ways[1]), ("v2", ways[0]), ("v3", ways[1])),
    ]


def test_many_channels_lie_last_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _times(monkeypatch, lambda _: False)
    assert _last(channels_last(_branches(32, 64), Deciding(AVX2))) == [True, True] and not asked


def test_what_has_no_prediction_goes_by_the_number_of_channels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Parts, "seconds", lambda *_: None)
    deciding = Deciding(AVX2)
    assert _last(channels_last(_branches(15, 16), deciding)) == [False, True]
    assert not deciding.decisions and _last(channels_last(_branches(15, 16))) == [False, True]


def test_questions_grow_as_the_graph_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each region is asked about twice, and with its own statements."""
    asked = _times(monkeypatch, lambda _: True)
    channels_last(_branches(*[8] * 40), Deciding(AVX2))
    assert asked == [4] * 80


def test_what_kernels_share_is_one_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of two branches is a part of the second one's kernel."""
    asked = _times(monkeypatch, lambda _: True)
    text = "".join(FIRST.format(b=b, c=8) for b in (0, 1))
    kernel = parse_kernel(
        "kernel net(in x: f32[9, 9], in a0: f32[8, 3, 3], in a1: f32[8, 3, 3], "
        f"in b2: f32[4, 8], out y2: f32[4, 7, 7]):{text}"
        "  alloc v2: f32[8, 7, 7]\n"
        "  compute v2(o in 8, h in 7, w in 7):\n"
        "    p = v0[o, h, w]\n"
        "    q = v1[o, h, w]\n"
        "    v2[o, h, w] = max(p + q, 0.0)\n" + SECOND.format(b=2, c=8)
    )
    assert _last(channels_last(kernel, Deciding(AVX2))) == [True] * 3 and asked == [7, 7]


@pytest.mark.parametrize("last", [True, False])
def test_results_are_those_of_floats_of_64_bits(
    monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    _times(monkeypatch, lambda _: last)
    kernel = _branches(6 + last, 20)
    program = compile_graph(kernel, "x86:avx2", 1)
    rng = np.random.default_rng(2)
    values = {
        array.name: rng.standard_normal(array.buffer.shape).astype(np.float32)
        for array in kernel.arrays
        if array.access == "in"
    }
    results = program(**values)
    windows = np.lib.stride_tricks.sliding_window_view(values["x"].astype(np.float64), (3, 3))
    for b in (0, 1):
        first = np.einsum("hwij,oij->ohw", windows, values[f"a{b}"])
        wanted = np.einsum("chw,oc->ohw", first, values[f"b{b}"])
        np.testing.assert_allclose(results[f"y{b}"], wanted, 1e-5, 1e-4)


def test_times_are_predicted_for_a_machine() -> None:
    deciding = Deciding(AVX2)
    channels_last(_branches(8), deciding)
    (decision,) = deciding.decisions
    assert decision.what == "v0" and decision.why.startswith("channels last: ")
