"""What the parser, the verifier and the interpreter refuse of structured ops that have several
results, combiners, ordered dims, or places that are loaded: one planted fault each."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compute_cases import run
from tilewright.errors import InterpreterFault, ParseError, ScheduleError, VerificationError
from tilewright.ir import Compute, difference, parse_kernel, verify
from tilewright.ir.stmt import Kernel, Result
from tilewright.ir.visit import walk_stmts

HEAD = """kernel k(
    in src: f32[4, 8], in index: s64[4], inout dst: f32[4, 8], inout a: f32[4], inout b: f32[4],
    inout p: s64[4], inout c: f32[4, 2]
):
"""
LATER = "combiner later(v: f32, i; w: f32, j) from (0.0, 0) = w, j\n"


def kernel(compute: str) -> Kernel:
    return parse_kernel(HEAD + textwrap.indent(compute, "  "))


GOOD = {
    "several": "compute f(m in 4):\n  x = a[m]\n  a[m] = x + 1.0\n  b[m] = x\n",
    "complex": "compute f(m in 4, k in 8):\n  x = src[m, k]\n  c[m, 0] add= x\n  c[m, 1] add= -x\n",
    "combiner": f"compute f(m in 4, k in 8):\n  x = src[m, k]\n  {LATER}  a[m], p[m] later= x, k\n",
    "twice": "compute f(m in 4, k in 8):\n  x = src[m, k]\n"
    "  combiner most(v: f32; w: f32) from (-inf) = max(v, w)\n  a[m] most= x\n  b[m] most= -x\n",
    "state": "compute f(m in 4, ordered k in 8):\n  x = src[m, k]\n  s = a[m]\n  a[m] = s * x\n",
    "gather": "compute f(m in 4, k in 8):\n  i = index[m]\n  x = src[i, k | i < 4]\n"
    "  dst[m, k] = x\n",
    "chain": "compute f(m in 4):\n  i = index[m]\n  j = index[i]\n  x = a[j]\n  b[m] = x\n",
    "one place": "compute f(k in 8):\n  i = index[0]\n  dst[i, k] = 1.0\n",
    "scatter": "compute f(m in 4, k in 8):\n  i = index[m]\n  dst[i, k] add= 1.0\n",
    "unique": "compute f(m in 4, k in 8):\n  i = index[m]\n  unique dst[i, k] = 1.0\n",
    "in order": "compute f(ordered m in 4):\n  i = index[m]\n  a[i] = 1.0\n",
    "masked": "compute f(m in 4):\n  x = a[m]\n  b[m | x > 0.0] = x\n",
    "a name of the kernel's": "for v in 2:\n  compute f(m in 4, k in 8):\n    x = src[m, k]\n"
    f"    {LATER}    a[m], p[m] later= x, k\n",
    "words as names": "compute f(ordered in 4, ordered m in 4):\n  unique = src[ordered, m]\n"
    "  combiner = dst[ordered, m - 1 | m > 0]\n  dst[ordered, m] = unique + combiner\n",
    "other half": "for t in 3:\n  compute f(m in 4):\n    x = c[m, t % 2]\n"
    "    c[m, (t + 1) % 2] = x\n",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_what_is_right(text: str) -> None:
    values = kernel(text)
    verify(values)
    assert difference(values, parse_kernel(str(values))) is None


REFUSED = {
    "other name in a combiner": (
        "compute f(m in 4, k in 8):\n  x = src[m, k]\n"
        "  combiner g(v: f32; w: f32) from (0.0) = v\n  a[m] g= x\n",
        lambda c: _with(c, values=(c.operands[0].var,)),
        "g uses x, which is none of its values",
    ),
    "other type in a combiner": (
        "compute f(m in 4, k in 8):\n  x = src[m, k]\n"
        "  combiner g(v; w) from (0) = v + w\n  a[m] g= x\n",
        None,
        "the old value 0 of g is s64, not f32",
    ),
    "too few values": (
        f"compute f(m in 4, k in 8):\n  x = src[m, k]\n  {LATER}  a[m] later= x\n",
        None,
        "later combines 2 old and 2 new values, from 2, to 2, for 1 outputs",
    ),
    "two values of one name": (
        "compute f(m in 4, k in 8):\n  x = src[m, k]\n"
        "  combiner g(v: f32; v: f32) from (0.0) = v\n  a[m] g= x\n",
        None,
        "g has two values v",
    ),
    "known combiner": (
        "compute f(m in 4, k in 8):\n  x = src[m, k]\n"
        "  combiner add(v: f32; w: f32) from (0.0) = v + w\n  a[m] add= x\n",
        None,
        "add is a combiner already",
    ),
    "other dims": (
        f"compute f(m in 4, k in 4):\n  x = src[m, k]\n  {LATER}  a[m], p[k] later= x, k\n",
        None,
        "a[m] and p[k] are of different points",
    ),
    "other mask": (
        f"compute f(m in 4, k in 8):\n  x = src[m, k]\n  {LATER}  a[m], p[m | m < 3] later= x, k\n",
        None,
        "a[m] and p[m | m < 3] are of different points",
    ),
    "loaded place": (
        "compute f(m in 4, k in 8):\n  i = index[m]\n  dst[i, k] = 1.0\n",
        None,
        "dst[i, k] is a loaded place, and there is no combiner",
    ),
    "loaded place in the index": (
        "compute f(m in 4):\n  a[index[m]] = 1.0\n",
        None,
        "a[index[m]] is a loaded place, and there is no combiner",
    ),
    "loaded place, partly in order": (
        "compute f(ordered m in 4, k in 4):\n  i = index[k]\n  dst[i, m] = 1.0\n",
        None,
        "dst[i, m] is a loaded place, and there is no combiner",
    ),
    "reduced without a combiner": (
        "compute f(m in 4, k in 8):\n  x = src[m, k]\n  b[m] add= x\n  a[m] = x\n",
        None,
        "the dim k is reduced, but there is no combiner",
    ),
    "unique, but reduced": (
        "compute f(m in 4, k in 8):\n  i = index[m]\n  x = src[m, k]\n  unique a[i] = x\n",
        None,
        "the dim k is reduced, but there is no combiner",
    ),
    "own result": (
        "compute f(m in 4, k in 8):\n  x = dst[m, k - 1 | k > 0]\n  dst[m, k] = x\n",
        None,
        "dst[m, k - 1] is read, and dst[m, k] written in any order",
    ),
    "own result of several": (
        "compute f(m in 4):\n  x = b[3 - m]\n  a[m] = x\n  b[m] = 1.0\n",
        None,
        "b[3 - m] is read, and b[m] written in any order",
    ),
    "own result in a value": (
        "compute f(m in 4):\n  a[m] = a[3 - m]\n",
        None,
        "a[3 - m] is read, and a[m] written in any order",
    ),
    "own sum": (
        "compute f(m in 4, k in 8):\n  x = a[m]\n  a[m] add= x\n",
        None,
        "a[m] is read while it is reduced",
    ),
    "one element twice": (
        "compute f(m in 4):\n  a[m] = 1.0\n  a[m] = 2.0\n",
        None,
        "a[m] and a[m] may be one element",
    ),
    "instruction of several": (
        "compute f<vmovups>(m in 4):\n  a[m] = 1.0\n  b[m] = 2.0\n",
        None,
        "vmovups cannot carry out an op with several results",
    ),
    "instruction in order": (
        "compute f<vmovups>(ordered m in 4):\n  a[m] = 1.0\n",
        None,
        "vmovups cannot carry out an op with ordered dims",
    ),
    "asynchronous gather": (
        "compute f(m in 4) joins products:\n  i = index[m]\n  x = a[i]\n  b[m] = x\n",
        None,
        "an asynchronous op cannot carry out an op with places that are loaded",
    ),
    "an operand before its definition": (
        "compute f(m in 4):\n  i = index[m]\n  x = a[i]\n  b[m] = x\n",
        lambda c: _replace(c, operands=c.operands[::-1]),
        "i is used where it is not defined",
    ),
    "an integer that is no index": (
        "compute f(m in 4):\n  i = a[m]\n  x = b[m]\n  b[m] = x\n",
        lambda c: _gathering(c),
        "an index must be s64, `i` is f32",
    ),
}


def _replace(compute: Compute, **fields: Any) -> Compute:
    return replace(compute, **fields)


def _with(compute: Compute, **fields: Any) -> Compute:
    old = compute.results[0]
    combiner = _replace(old.combiner, **fields)
    return _replace(compute, results=(Result(old.views, old.values, combiner),))


def _gathering(compute: Compute) -> Compute:
    first, second = compute.operands
    view = _replace(second.view, index=(first.var,))
    return _replace(compute, operands=(first, _replace(second, view=view)))


@pytest.mark.parametrize(("text", "change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_the_verifier_refuses(text: str, change: Any, message: str) -> None:
    values = kernel(text)
    if change is not None:
        verify(values)
        values = _replace(values, body=change(values.body))
    with pytest.raises(VerificationError) as caught:
        verify(values)
    assert message in str(caught.value)
    assert "`compute f" in str(caught.value)
    assert "cure: " in str(caught.value)


UNREADABLE = {
    "no semicolon": ("combiner g(v: f32) from (0.0) = v\n  a[m] g= 1.0", "expected `;` between"),
    "no identity": ("combiner g(v: f32; w: f32) = v\n  a[m] g= 1.0", "expected `from`"),
    "no constant": (
        "combiner g(v: f32; w: f32) from (a[0]) = v\n  a[m] g= 1.0",
        "an identity must be a constant",
    ),
    "other type": ("combiner g(v: f32; w: f32) from (0) = v\n  a[m] g= 1.0", "must be f32"),
    "a name from outside": (
        "combiner g(v: f32; w: f32) from (0.0) = v + f32(m)\n  a[m] g= 1.0",
        "unknown variable m",
    ),
    "a buffer": (
        "combiner g(v: f32; w: f32) from (0.0) = v + a[0]\n  a[m] g= 1.0",
        "unknown buffer a",
    ),
    "unused": (
        "combiner g(v: f32; w: f32) from (0.0) = v\n  a[m] add= 1.0",
        "nothing combines by g",
    ),
    "twice": (
        "combiner g(v: f32; w: f32) from (0.0) = v\n"
        "  combiner g(v: f32; w: f32) from (0.0) = w\n  a[m] g= 1.0",
        "there are two combiners g",
    ),
    "two outputs by add": ("a[m], b[m] add= 1.0, 2.0", "add takes one output, here are 2"),
    "two outputs assigned": ("a[m], b[m] = 1.0, 2.0", "assignment takes one output, here are 2"),
    "too few values": (
        "combiner g(v: f32, x: f32; w: f32, y: f32) from (0.0, 0.0) = v, x\n  a[m], b[m] g= 1.0",
        "2 outputs, but 1 values",
    ),
    "value of another type": ("a[m] = 1.0\n  b[m] = 2", "what b holds must be f32"),
    "unique without output": ("unique x = 1.0", "unknown buffer x"),
}


@pytest.mark.parametrize(("text", "message"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_the_parser_refuses(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        kernel(f"compute f(m in 4):\n  {text}\n")
    assert message in str(caught.value)
    assert "^" in str(caught.value)


def _arrays(index: list[int]) -> dict[str, Any]:
    shapes = {"src": (4, 8), "dst": (4, 8), "a": (4,), "b": (4,), "c": (4, 2)}
    arrays: dict[str, Any] = {n: np.zeros(s, np.float32) for n, s in shapes.items()}
    return arrays | {"index": np.array(index), "p": np.zeros(4, np.int64)}


def test_the_interpreter_holds_promises() -> None:
    unique = kernel(GOOD["unique"])
    run(unique, _arrays([2, 0, 3, 1]))
    with pytest.raises(InterpreterFault) as caught:
        run(unique, _arrays([2, 0, 2, 1]))
    assert "dst[i, k] is written by two points" in str(caught.value)
    assert "i=2" in str(caught.value)


def test_what_is_combined_together_is_one_element_of_each() -> None:
    halved = (
        f"compute f(m in 4, k in 8):\n  x = src[m, k]\n  {LATER}  a[m // 2], p[m] later= x, k\n"
    )
    verify(kernel(halved))
    with pytest.raises(InterpreterFault, match="are not the same element for the same points"):
        run(kernel(halved), _arrays([0] * 4))


def test_loaded_places_are_checked() -> None:
    with pytest.raises(InterpreterFault, match=r"out of bounds: src\[4, 0\]"):
        run(kernel(GOOD["gather"].replace(" | i < 4", "")), _arrays([0, 1, 4, 0]))
    with pytest.raises(InterpreterFault, match=r"out of bounds: dst\[-1, 0\]"):
        run(kernel(GOOD["scatter"]), _arrays([0, -1, 3, 0]))


def test_one_output_is_asked_of_several() -> None:
    (several,) = (s for s in walk_stmts(kernel(GOOD["several"]).body) if isinstance(s, Compute))
    for ask in (lambda: several.out, lambda: several.body, lambda: several.combiner):
        with pytest.raises(ScheduleError, match="the compute 'f' has several results"):
            ask()
    (own,) = (s for s in walk_stmts(kernel(GOOD["twice"]).body) if isinstance(s, Compute))
    with pytest.raises(ScheduleError, match="the compute 'f' combines by 'most'"):
        _ = _replace(own, results=own.results[:1]).combiner
