"""What statements and expressions of kernels mean, and what a launch takes."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from api_reference import OF_PYTHON
from lang_texts import defined
from tilewright.errors import ArgumentError
from tilewright.ir import to_text
from tilewright.ir.visit import walk_stmts

HEAD = "@tw.kernel\ndef k(x: tw.array('s32', 1), y: tw.array('f32', 1), n: tw.s32):\n"
START = np.arange(-4, 4, dtype=np.int32)


def run(body: str, n: int = 3, size: int = 8, target: str = "interpreter") -> tuple[Any, Any]:
    """What ``x`` (from -4 to 3) and ``y`` (zeros) are after ``body``, by a work-item for each."""
    lines = ["i = tw.global_id(0)", *body.splitlines()]
    text = HEAD + "".join(f"    {line}\n" for line in lines)
    x, y = START.copy(), np.zeros(8, np.float32)
    defined(text)["k"].launch(size, x, y, n, target=target)
    return x, y


INTEGERS = {
    "x[i] = x[i] // n": START // 3,
    "x[i] = x[i] % n": START % 3,
    "x[i] = tw.divide(x[i], n)": (START / 3).astype(int),
    "x[i] = tw.remainder(x[i], n)": np.fmod(START, 3),
    "x[i] = -x[i] if x[i] < 0 else x[i]": abs(START),
    "x[i] = (x[i] << 1) | 1": START * 2 | 1,
    "x[i] = ~x[i]": ~START,
    "x[i] = x[i] ** 3": START**3,
    "x[i] = tw.popcount(x[i] & 7)": [bin(v & 7).count("1") for v in START],
    "x[i] = max(min(x[i], n), -n, i - 9)": np.clip(START, -3, 3),
    "x[i] = tw.s32(-2 <= x[i] < n)": (START >= -2) & (START < 3),
    "x[i] = tw.s32(not x[i])": START == 0,
    "x[i] = tw.s32(tw.f32(x[i]) * 0.6)": (START * np.float32(0.6)).astype(int),
    "x[i] = tw.s32(x[i] > 0 and x[i] < n or x[i] == -4)": [1, 0, 0, 0, 0, 1, 1, 0],
    "x[i] = len((1, 2, 3)) + (4, 5)[1]": [8] * 8,
    "x[i] = i + x.shape[0] * 0 if False else tw.s32(x.shape[0])": [8] * 8,
    # Order: what is stored behind is not seen in front.
    "a, b = i, n\na, b = b, a\nx[i] = a * 10 + b": 30 + np.arange(8),
    "t = x[i]\nx[i] = 7\nx[i] = t + x[i]": START + 7,
    "x[i] = x[i] + tw.atomic_add(x, i, 5)": 2 * START,
    # Loops.
    "t = 0\nfor j in range(x[i]):\n    t += j\nx[i] = t": [0, 0, 0, 0, 0, 0, 1, 3],
    "t = 0\nfor j in range(6, 0, -2):\n    t = t * 10 + j\nx[i] = t": [642] * 8,
    "t = 0\nfor j in range(0, 9, n):\n    t += j\nx[i] = t": [9] * 8,
    "t = 0\nfor j in range(9):\n  if j == n: break\n  if j == 1: continue\n  t += j\nx[i] = t": (
        [2] * 8
    ),
    "j = 0\nwhile True:\n    j += 1\n    if j > i: break\nx[i] = j": 1 + np.arange(8),
    "for j in range(5):\n    pass\nx[i] = j": [4] * 8,
    "t = 0\nfor a, b in ((1, 2), (3, 4)):\n    t += a * b\nx[i] = t": [14] * 8,
    "if i < n:\n    return\nx[i] = 9": [-4, -3, -2, 9, 9, 9, 9, 9],
    "for j in range(n):\n    if i == j: return\nx[i] = 9": [-4, -3, -2, 9, 9, 9, 9, 9],
    "if i == 7:\n  j = 0\n  while j < n and x[j] < 0: j += 1\n  x[i] = j": [*START[:7], 3],
    "t = tw.private(4, 's32')\nfor j in range(4): t[j] = j * i\nx[i] = t[3] + t[-1]": 6
    * np.arange(8),
    "assert n == 3\nx[i] = 1": [1] * 8,
}


@tw.kernel
def extremes(x: tw.array("f32", 1)) -> None:
    i = tw.global_id(0)
    least = -float("inf")
    x[i] = max(least, float("-inf")) if not (i and least) else float(" Infinity")


def test_floats_of_texts_and_ranges_of_numpy() -> None:
    x = np.zeros(2, np.float32)
    extremes.launch((np.int64(2),), x)
    assert x.tolist() == [-np.inf, np.inf]
    extremes.launch(np.uint8(1), x, target="interpreter")
    with pytest.raises(ArgumentError, match="x is None"):
        extremes.launch(2, None)


@pytest.mark.parametrize("body", INTEGERS)
def test_integers(body: str) -> None:
    x, _ = run(body)
    np.testing.assert_array_equal(x, INTEGERS[body])


OF_PYTHON_CALLED = {
    "range": ("for j in range(n): y[i] += 1.0", [3.0] * 8),
    "min": ("y[i] = min(i, 3)", np.minimum(range(8), 3)),
    "max": ("y[i] = max(i, 3)", np.maximum(range(8), 3)),
    "abs": ("y[i] = abs(x[i])", abs(START)),
    "round": ("y[i] = round(x[i] * 0.5)", np.round(START / 2)),
    "pow": ("y[i] = pow(tw.f32(i), 2.0)", np.arange(8.0) ** 2),
    "len": ("y[i] = len((n, i))", [2.0] * 8),
    "int": ("y[i] = int(i * 0.5)", np.arange(8) // 2),
    "float": ("y[i] = float(i)", np.arange(8)),
    "bool": ("y[i] = 1.0 if bool(x[i]) else 0.0", START != 0),
    "print": ("print()\ny[i] = i", np.arange(8)),
}


@pytest.mark.parametrize("name", OF_PYTHON)
def test_names_of_python(name: str) -> None:
    body, wanted = OF_PYTHON_CALLED[name]
    np.testing.assert_array_equal(run(body)[1], wanted)


def test_types_of_variables() -> None:
    text = """
@tw.kernel
def k(h: tw.array("f16", 1), d: tw.array("f64", 1), b: tw.array("s8", 1)):
    i = tw.global_id(0)
    total = 0.0
    for j in range(4):
        total += h[j]
    wide = 0
    wide += b[i]
    wide += tw.s64(1)
    both = 1
    both = both * 0.5
    d[i] = total + wide + both
"""
    kernel = to_text(defined(text)["k"].over())
    assert "alloc total: f16[1]" in kernel  # a literal takes the type of what it meets
    assert "alloc wide: s64[1]" in kernel
    assert "alloc both: f32[1]" in kernel


def test_indices_do_not_wrap() -> None:
    text = HEAD + "    i = tw.global_id(0)\n    at = i * n\n    y[at + 1] = 1.0\n"
    assert "s64(n) + 1] = 1.0" in to_text(defined(text)["k"].over())


def test_generic_functions_and_constants() -> None:
    text = """
@tw.function
def twice(f, x):
    return f(f(x))

@tw.function
def half(x):
    return x / 2

@tw.kernel
def k(x: tw.array("T", 1), f: tw.constant):
    i = tw.global_id(0)
    x[i] = twice(f, x[i])
"""
    space = defined(text)
    for dtype in (np.float32, np.float64):
        x = np.arange(4).astype(dtype)
        space["k"].launch(4, x, space["half"], target="interpreter")
        np.testing.assert_array_equal(x, np.arange(4) / 4)
    assert space["half"](3) == 1.5  # outside of kernels it is Python


@tw.kernel
def places(x: tw.array("s32", 2)) -> None:
    row, col = tw.global_id(0), tw.global_id(1)
    if row < x.shape[0] and col < x.shape[1]:
        x[row, col] = tw.s32(row * 100 + col)


@pytest.mark.parametrize("target", ["interpreter", "x86"])
def test_offsets(target: str) -> None:
    x = np.full((6, 9), -1, np.int32)
    places.launch((2, 4), x, offset=(3, 5), target=target)
    i, j = np.indices((6, 9))
    inside = (i >= 3) & (i < 5) & (j >= 5)
    np.testing.assert_array_equal(x, np.where(inside, i * 100 + j, -1))


def test_ids_are_wider_where_the_range_is() -> None:
    kernel = places.specialized((1, 2**32), np.zeros((1, 1), np.int32))
    assert "global_id_1: s32" not in to_text(kernel)
    kernel = places.specialized((1, 8), np.zeros((1, 1), np.int32))
    assert "global_id_1: s32" in to_text(kernel)


def test_compiled_kernels_take_numbers_by_name() -> None:
    kernel = tw.compile(places, "x86")
    x = np.zeros((3, 4), np.int32)
    kernel(x=x, global_0=3, global_1=4)
    np.testing.assert_array_equal(x, np.arange(3)[:, None] * 100 + np.arange(4))


def test_statements_have_places() -> None:
    kernel = places.over()
    spans = [stmt.span for stmt in walk_stmts(kernel.body) if stmt.span is not None]
    assert {span.file for span in spans} == {__file__}
    texts = {span.text[span.start : span.end] for span in spans}
    assert "x[row, col] = tw.s32(row * 100 + col)" in texts
    assert "if row < x.shape[0] and col < x.shape[1]:" in texts


def test_tensors_of_torch_are_changed_in_place() -> None:
    torch = pytest.importorskip("torch")
    x = torch.zeros((3, 4), dtype=torch.int32)
    places.launch((3, 4), x)
    assert x[2, 3] == 203
    y = torch.zeros((4, 3), dtype=torch.int32)
    places.launch((3, 4), y.T)
    assert bool((x == y.T).all())


class _Shared:
    """An array that speaks DLPack, and nothing else."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        del options  # older ones take none
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_arrays_of_dlpack_and_buffers_tell_sizes() -> None:
    kernel = defined(HEAD + "    i = tw.global_id(0)\n    y[i] = tw.f32(x[i] + n)\n")["k"]
    x, y = np.arange(3, dtype=np.int32), array("f", [0, 0, 0])
    kernel.launch(3, _Shared(x), y, 5)
    assert y.tolist() == [5, 6, 7]
    with pytest.raises(ArgumentError, match="x is not an array but list"):
        kernel.launch(3, [1, 2, 3], y, 5)


def test_what_is_the_same_for_all_may_have_no_value() -> None:
    """Memory of a variable that only some way through the kernel sets."""
    body = "if n > 3:\n    t = 2.0\nif n > 2:\n    y[i] = 1.0\nif n > 3:\n    y[i] = t"
    for n, wanted in ((3, 1.0), (4, 2.0)):
        np.testing.assert_array_equal(run(body, n, target="x86")[1], [wanted] * 8)


@pytest.mark.parametrize("loop", ["tw.static_range", "range"])
def test_loops_over_one_name(loop: str) -> None:
    """Each counts by itself: what is known of one stays known."""
    index = "k" if loop == "range" else "(0, 1, 2)[k]"
    body = f"for k in {loop}(2): x[{index}] = 10\nfor k in {loop}(1, 3): x[{index}] += k"
    for target in ("interpreter", "x86"):
        assert run(body, size=1, target=target)[0].tolist()[:4] == [10, 11, 0, -1]


def test_constants_are_weak() -> None:
    text = "@tw.kernel\ndef k(pick: tw.array('s8', 1), lo: tw.constant):\n"
    text += "    i = tw.global_id(0)\n    pick[i] = lo\n    v = lo\n"
    text += "    if i > 1: v = lo + 1\n    pick[i] += v\n"
    for value in (3, np.int64(3)):
        pick = np.zeros(4, np.int8)
        defined(text)["k"].launch(4, pick, value)
        assert pick.tolist() == [6, 6, 7, 7]
