"""Parameters of kernels may have any name: also those of what is generated, and of options."""

from __future__ import annotations

import keyword
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from lang_texts import defined

SOURCE = """
@tw.kernel(subgroup=4)
def k({a}: tw.array("s32", 1), {b}: tw.array("s32", 1), {c}: tw.s32):
    i = tw.global_id(0)
    t = tw.local(8, "s32")
    t[tw.local_id(0)] = {a}[i]
    tw.barrier()
    s = 0
    for j in range({c}):
        if t[j] > 100: break
        s += t[j]
    if {a}[i] > 2:
        tw.printf("{{}} {{}}", {c}, i)
    {b}[i] = tw.group_reduce(s, "add") + tw.subgroup_reduce({a}[i], "max")
    {b}[i] += tw.s32({a}.shape[0]) + {c}
    tw.atomic_add({b}, i, 1)
"""
PLAIN = ("a", "b", "c")
# Options of calls and launches, and what a launch passes beside the arguments.
OPTIONS = ("out", "stream", "self", "messages", "global_0", "offset_0", "local", "target", "code")


def kernel(names: tuple[str, ...]) -> Any:
    return defined(SOURCE.format(**dict(zip(PLAIN, names, strict=True))))["k"]


def results(names: tuple[str, ...], target: str, capture: Any) -> tuple[list[Any], str]:
    """What two launches give and print, one of them with an offset."""
    result, found = kernel(names), []
    for offset in (None, 8):
        a, b = np.arange(16, dtype=np.int32) % 4, np.zeros(16, np.int32)
        result.launch(8, a, b, 3, local=8, target=target, offset=offset)
        found.append(b.tolist())
    return found, capture.readouterr().out


@cache
def generated() -> list[str]:
    """The names in the kernel's texts, from its first stage to that of LLVM."""
    compiled = tw.compile(kernel(PLAIN).over(local=8), "x86")
    text = "\n".join([*map(str, compiled.stages.values()), compiled.source("llvm")])
    taken = {*keyword.kwlist, "tw", "range", "i", "t", "s", "j", "k"}
    return sorted(set(re.findall(r"[A-Za-z_]\w*", text)) - taken)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("name", OPTIONS)
def test_names_of_options(name: str, place: int, capsys: pytest.CaptureFixture[str]) -> None:
    names = (*PLAIN[:place], name, *PLAIN[place + 1 :])
    for target in ("interpreter", "x86"):
        assert results(names, target, capsys) == results(PLAIN, target, capsys)


@pytest.mark.parametrize("place", range(3))
def test_names_of_what_is_generated(place: int, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = results(PLAIN, "interpreter", capsys)
    assert len(generated()) > 100
    for name in generated()[place::60]:
        if name not in PLAIN:
            names = (*PLAIN[:place], name, *PLAIN[place + 1 :])
            for target in ("interpreter", "x86"):
                assert results(names, target, capsys) == wanted, name


def test_results_that_are_not_the_first_may_be_called_out() -> None:
    text = "@tw.kernel\ndef k(first: tw.array('f32', 1), out: tw.array('f32', 1)):\n"
    text += "    i = tw.global_id(0)\n    first[i] = 1.0\n    out[i] = 2.0\n"
    first, out = np.zeros(4, np.float32), np.zeros(4, np.float32)
    for target in ("x86", "interpreter"):
        defined(text)["k"].launch(4, first, out, target=target)
        assert (first == 1).all() and (out == 2).all()
    tw.compile(defined(text)["k"])(first=out, out=first, global_0=4)
    assert (first == 2).all() and (out == 1).all()


def test_a_constant_may_be_called_local() -> None:
    text = (
        "@tw.kernel(local=4)\ndef k(x: tw.array('s32', 1), local: tw.constant, dims: tw.constant):"
    )
    text += "\n    x[tw.global_id(0)] = local + dims\n"
    x = np.zeros(4, np.int32)
    tw.compile(defined(text)["k"].over(1, local=5, dims=2))(x=x, global_0=4)
    assert x.tolist() == [7] * 4
