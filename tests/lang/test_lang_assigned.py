"""Names of kernels: which value they have in a loop, and where they surely have one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuzz_python import fuzz
from lang_texts import defined
from tilewright.errors import KernelError

HEAD = "@tw.kernel\ndef k(x: tw.array('s32', 1), n: tw.s32, m: tw.s32, c: tw.constant):\n"

# Bodies that loops run several times: as functions of Python, and as kernels.
CARRIED = [
    "for j in range(3):\n    x = x * 2 + k\n    k = k + 1\nreturn x",
    "for j in range(3):\n    if j > 0:\n        k = k * 3\n        x = x + k\nreturn x",
    "j = 0\nwhile j < 3:\n    j += 1\n    x = x * 2 + k\n    k = j\nreturn x",
    "for j in range(2):\n    for i in range(2):\n        x = x * 2 + k\n        k += i\nreturn x",
    "t = 0\nfor j in range(3):\n    for k in range(2):\n        t = t * 3 + k\nreturn t + k",
    "t = 0\nfor j in range(3):\n    k = j\n    t = t * 3 + k\nreturn t",
    "t = (1, 2, 3, 4)\ns = 0\nfor j in (0, 1):\n    s = s + t[j] + k\n    k = t[j + 1]\nreturn s",
    "k = k + 1\nfor j in range(2):\n    x = x + k\nreturn x * k",
]


@pytest.mark.parametrize("body", CARRIED)
@pytest.mark.parametrize("target", ["x86", "interpreter"])
def test_parameters_that_loops_assign_to(body: str, target: str) -> None:
    plain = "def f(x, k):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    lines = body.rsplit("return ", 1)
    own = "".join(f"    {line}\n" for line in f"{lines[0]}out[1] = {lines[1]}".splitlines())
    head = "@tw.kernel\ndef g(x: tw.s32, k: tw.s32, out: tw.array('s32', 1)):\n"
    space = defined(f"@tw.function\n{plain}\n{head}    out[0] = f(x, k)\n{own}")
    out = np.zeros(2, np.int32)
    space["g"].launch(1, 5, 4, out, target=target)
    assert out.tolist() == [space["f"](5, 4)] * 2


def test_arrays_that_loops_exchange_are_refused() -> None:
    text = "@tw.kernel\ndef k(x: tw.array('f32', 1), y: tw.array('f32', 1)):\n"
    text += "    for i in range(3):\n        x[i] = 1.0\n        x = y\n"
    with pytest.raises(KernelError, match="x is the array y on some path only"):
        defined(text)["k"].over()


def made(body: str, constant: Any = 1) -> Any:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return defined(HEAD + lines)["k"].over(1, c=constant)


# Bodies that some way through leaves without a value for v, where it is read.
MISSING = [
    "if n > 1: v = 1\nx[0] = v",
    "if n > 1: v = 1\nelif m > 1: v = 2\nx[0] = v",
    "for j in range(n): v = j\nx[0] = v",
    "for v in range(n): pass\nx[0] = v",
    "while n > 0:\n    v = n\n    n -= 1\nx[0] = v",
    "for j in range(3):\n    if j > n: break\n    v = j\nx[0] = v",
    "for j in range(3):\n    if j > n: continue\n    v = j\nx[0] = v",
    "for j in range(3):\n    if j > 0: x[0] = v\n    v = j",
    "while True:\n    if n > 3: break\n    v = n\n    n += 1\nx[0] = v",
    "if n > 1: v = 1\nif m > 1: x[0] = v",
    "if x[0] > 1: v = 1\nx[0] = 3\nif x[0] > 1: x[1] = v",
    "if n > 1: v = 1\nn += 1\nif n > 1: x[0] = v",
    "if n > 1: v = tw.vector(1, n)\nx[0] = v[0]",
    "if c == 1: pass\nelse: v = 1\nx[0] = v",
    "x[0] = v\nv = 1",
    "if n > 1: v = 1\nv += 1\nx[0] = v",
]


@pytest.mark.parametrize("body", MISSING)
def test_names_that_may_have_no_value(body: str) -> None:
    with pytest.raises(KernelError, match="v may have no value here") as caught:
        made(body)
    error = caught.value
    assert error.cure and "give it a value on each path" in error.cure
    line = error.span.text.splitlines()[error.span.line - 1]
    assert line.strip() in body


# And those where every way gives it one.
THERE = [
    "if n > 1: v = 1\nelse: v = 2\nx[0] = v",
    "if n > 1: v = 1\nelif m > 1: v = 3\nelse: return\nx[0] = v",
    "for j in range(3): v = j\nx[0] = v",
    "for j in tw.static_range(3): v = j\nx[0] = v",
    "for v in range(3): pass\nx[0] = v",
    "for j in range(3):\n    if j > n: continue\n    v = j\n    x[0] = v",
    "while True:\n    v = n\n    n += 1\n    if n > 3: break\nx[0] = v",
    "for j in range(n):\n    if j == 0: v = 1\n    else: return\n    x[0] = v",
    "if n > 1: v = 1\nx[1] = 3\nif n > 1: x[0] = v",
    "if n > 1: w = 1\nelse: v = 1\nif not n > 1: x[0] = v\nelse: x[0] = w",
    "if c == 1: v = 1\nx[0] = v",
    "if n > 1:\n    if m > 1: return\n    v = 1\nelse: v = 2\nx[0] = v",
]


@pytest.mark.parametrize("body", THERE)
def test_names_that_have_a_value(body: str) -> None:
    assert made(body).params


@pytest.mark.parametrize(
    "body", ["if x > 1: return 2", "for j in range(x): return 2", "if x > 1: return\nreturn 3"]
)
def test_functions_that_return_a_value_on_some_ways(body: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = f"@tw.function\ndef f(x):\n{lines}\n{HEAD}    x[0] = f(n)\n"
    with pytest.raises(KernelError, match="f returns a value on some paths only"):
        defined(text)["k"].over(1, c=1)


def test_weak_numbers_and_powers_of_known_ones() -> None:
    body = (
        "v = tw.u64(5)\nv = v + 1\nw = 1\nif n: w = 2\ny = tw.s32(w) + x[0]\nx[0] = tw.s32(v) + y"
    )
    text = HEAD + "".join(f"    {line}\n" for line in [*body.splitlines(), "x[1] = tw.s32(3) ** 5"])
    x = np.zeros(2, np.int32)
    defined(text)["k"].launch(1, x, 1, 1, 1)
    assert x.tolist() == [8, 243]


def test_programs_of_scalars_are_those_of_python() -> None:
    assert not fuzz(24, seed=5)
