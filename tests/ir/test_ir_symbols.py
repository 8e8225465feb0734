"""Sizes, strides and offsets that depend on scalar parameters: text, what is refused, what runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_examples import symbolic_matmul
from tilewright.dtypes import f32, s64
from tilewright.errors import (
    ArgumentError,
    InterpreterFault,
    ParseError,
    UnsupportedError,
    VerificationError,
)
from tilewright.interpret import run
from tilewright.ir import (
    Buffer,
    ScalarParam,
    difference,
    parse_expr,
    parse_kernel,
    to_text,
    var,
    verify,
)
from tilewright.ir.buffer import Part, row_major
from tilewright.ir.sizes import Sizes
from tilewright.ir.symbols import bind_scalars, substitute_scalars

MATMUL = symbolic_matmul("1..64", "1..64 by 4", "0..64", "out")

STRIDED = """kernel strided(
    m: s64 in 0..9,
    n: s64 in 0..40,
    pad: s64 in 0..3,
    in a: f32[m, n] {0:m:(n + pad) 1:n:1 +pad},
    out c: f32[m, n] {1:((n + 15) // 16):(m * 16) 0:m:16 1:16:1},
):
  alloc w: f32[n, m]
  compute turn(i in m, j in n):
    x = a[i, j]
    w[j, i] = x * 2.0
  compute back(i in m, j in n):
    x = w[j, i]
    c[i, j] = x + 1.0"""


@pytest.mark.parametrize("text", [MATMUL, STRIDED])
def test_symbolic_kernels_are_read_back(text: str) -> None:
    kernel = parse_kernel(text)
    verify(kernel)
    assert to_text(kernel) == text
    assert difference(kernel, parse_kernel(text)) is None


def test_sizes_that_differ_are_told_apart() -> None:
    first = parse_kernel(STRIDED)
    second = parse_kernel(STRIDED.replace("(n + pad)", "(n + pad * 2)"))
    assert (difference(first, second) or "").startswith("params differs")


def test_numbers_are_asked_of_symbolic_sizes() -> None:
    kernel = parse_kernel(STRIDED)
    a, c = (param.buffer for param in kernel.arrays)
    n, m, pad = var("n"), var("m"), var("pad")
    assert a.sizes == (m, n) and a.rank == 2 and a.symbols == {m, n, pad}
    assert a.layout.parts == (Part(0, m, n + pad), Part(1, n, parse_expr("1").value))
    for ask in (lambda: a.shape, lambda: c.layout.blocks, lambda: a.bytes, lambda: a.layout.offset):
        with pytest.raises(UnsupportedError, match="which a call passes"):
            ask()
    assert row_major((m, n, 4)).parts[0].stride is n * 4
    assert (
        row_major((2, 3))
        == parse_kernel("kernel k(in a: f32[2, 3]):\n  pass").arrays[0].buffer.layout
    )


def _refused(text: str) -> str:
    with pytest.raises((ParseError, VerificationError), match="cure") as caught:
        verify(parse_kernel(text))
    return str(caught.value)


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ("in a: f32[n], n: s64 in 1..9", "unknown variable n"),
        ("n: s32 in 1..9, in a: f32[n]", "the size of a dim must be s64, this is s32"),
        ("n: s64, in a: f32[n]", "may be negative, `n`"),
        ("n: s64 in 1.., in a: f32[n - 2]", "may be negative, `n - 2`"),
        ("n: s64 in 1.., in a: f32[n] {0:n + 1:1}", "expected `:` and the stride"),
        ("n: s64 in 1.., in a: f32[n] {0:4:1}", "holds `4` along dim 0, which may be less"),
        ("n: s64 in 1.., out a: f32[4, 4] {0:4:n 1:4:1}", "may put several elements at one place"),
        ("n: s64 in 1.., in t: s64[4], in a: f32[t[0]]", "unknown buffer t"),
        (f"n: s64 in 1.., in a: f32[n] {{0:n:{10**20}}}", "reaches over more than"),
        (f"n: s64 in 1.., in a: f32[n] {{0:n:1 +{10**20}}}", "reaches over more than"),
        ("n: s64 in 1.., in a: f32[8, n] {0:8:8 1:n:1 ^1:1:1}", "has a swizzle, and depends"),
    ],
)
def test_sizes_that_are_refused(params: str, what: str) -> None:
    assert what in _refused(f"kernel k({params}):\n  pass")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("alloc w: f32[n] private", "the sizes of w depend on n, and it is in private memory"),
        ("alloc w: f32[n] workgroup", "and it is in workgroup memory"),
        ("alloc w: f32[i]", "a size of w is `i`"),
        ("alloc w: f32[t[0]]", "depends on memory"),
    ],
)
def test_allocations_that_are_refused(line: str, what: str) -> None:
    head = "kernel k(n: s64 in 1.., in t: s64[4]):\n  for i in 4:\n    "
    assert what in _refused(f"{head}{line}\n")


def _known(text: str) -> Sizes:
    return Sizes(parse_kernel(f"kernel k({text}):\n  pass").scalars)


def _size(text: str) -> Any:
    names = ("m", "n", "pad")
    return parse_expr(text, dict.fromkeys(names, s64))


@pytest.mark.parametrize(
    ("params", "a", "b", "known"),
    [
        ("n: s64 in 1..", "n * 2", "n + 1", True),
        ("n: s64 in 0..", "n * 2", "n + 1", False),
        ("n: s64 in 0..", "(n + 15) // 16 * 16", "n", True),
        ("n: s64 in 0..", "n", "n // 16 * 16", True),
        ("n: s64 in 0..", "n // 16 * 16", "n", False),
        ("n: s64 in 0..9", "10", "n", True),
        ("n: s64 in 0..9", "81", "n * n", True),
        ("m: s64 in 1.., n: s64 in 1..", "m * n", "n", True),
        ("m: s64 in 0.., n: s64 in 1..", "m * n", "n", False),
        ("m: s64 in 1..4, n: s64 in 1..", "n * 4", "m * n", True),
        ("n: s64 in 3.. by 4", "n", "4", True),
        ("n: s64", "n", "n", True),
        ("n: s64 in ..5", "5 - n", "0", True),
    ],
)
def test_what_is_proved_of_sizes(params: str, a: str, b: str, known: bool) -> None:
    assert _known(params).at_least(_size(a), _size(b)) is known


def test_where_there_is_an_element_no_factor_of_a_size_is_0() -> None:
    known = _known("m: s64 in 0.., n: s64 in 0.. by 8, pad: s64")
    assert known.not_empty([_size("m * n * 2")]).at_least(_size("m * n"), 8)
    assert not known.not_empty([_size("m * pad")]).at_least(_size("m"), 1)
    assert not known.not_empty([_size("m + n")]).at_least(_size("m"), 1)
    verify(parse_kernel("kernel k(m: s64 in 0.., n: s64 in 0.., out y: f32[m, m * n]):\n  pass"))


def test_sizes_of_thousands_of_terms_are_not_known() -> None:
    known = _known("n: s64 in 1..")
    long = var("n") * 2
    for count in range(5000):
        long = long + var("n") * (count % 7 + 1)
    assert not known.at_least(long, 1) and not known.equal(long, var("n"))
    assert known.bounds(long) == (None, None) and known.divisor(long) == 1


def test_divisors_and_equality_of_sizes() -> None:
    known = _known("m: s64 in 1.., n: s64 in 0.. by 8")
    assert known.divisor(_size("n * 4 + 16")) == 16
    assert known.divisor(_size("m * n")) == 8
    assert known.divisor(_size("n + m")) == 1
    assert known.divisor(0) == 0 and known.divisor(12) == 12
    assert known.equal(_size("(m + 1) * n"), _size("n * m + n"))
    assert not known.equal(_size("m"), _size("n"))
    assert known.bounds(_size("m * n + 3")) == (3, None)


def _matmul(kernel: Any, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m * 100 + n)
    a = rng.integers(-4, 5, (m, k)).astype(np.float32)
    b = rng.integers(-4, 5, (k, n)).astype(np.float32)
    c = np.full(m * n, 99, np.float32)
    own = {"a": a.ravel(), "b": b.ravel()} if k else {"a": np.zeros(1, np.float32)}
    own.setdefault("b", np.zeros(n, np.float32))  # a tensor without elements spans some
    run(kernel, {"m": m, "n": n, "k": k, "c": c} | own)
    assert (c.reshape(m, n) == a @ b).all()


def test_a_matmul_of_any_size_is_interpreted() -> None:
    kernel = parse_kernel(MATMUL)
    for m, n, k in ((1, 4, 1), (5, 8, 3), (3, 4, 0), (17, 12, 9)):
        _matmul(kernel, m, n, k)
        bound = bind_scalars(kernel, {"m": m, "n": n, "k": k})
        verify(bound)
        assert not bound.scalars and bound.arrays[0].buffer.shape == (m, k)
        assert all(not param.buffer.symbols for param in bound.arrays)


def test_strided_and_blocked_memory_of_any_size() -> None:
    kernel = parse_kernel(STRIDED)
    for m, n, pad in ((1, 1, 0), (3, 17, 2), (9, 40, 3), (4, 16, 1), (0, 5, 0), (2, 0, 1)):
        pitch, blocks = n + pad, (n + 15) // 16
        a = np.arange(pad + m * pitch + n, dtype=np.float32)
        c = np.full((blocks + 1) * (m + 1) * 16, -1, np.float32)
        run(kernel, {"m": m, "n": n, "pad": pad, "a": a, "c": c})
        logical = a[pad : pad + m * pitch].reshape(m, pitch)[:, :n] * 2 + 1
        blocked = c[: blocks * m * 16].reshape(blocks, m, 16).transpose(1, 0, 2)
        assert (blocked.reshape(m, blocks * 16)[:, :n] == logical).all()


def test_memory_that_is_too_short_for_its_size() -> None:
    kernel = parse_kernel("kernel k(n: s64 in 1..9, in a: f32[n, 2]):\n  pass")
    with pytest.raises(ArgumentError, match="needs 8 elements"):
        run(kernel, {"n": 4, "a": np.zeros(7, np.float32)})
    beyond = parse_kernel("kernel k(n: s64 in 1..9, out a: f32[n]):\n  a[n] = 1.0")
    with pytest.raises(InterpreterFault, match="dim 0 holds 0 to 3"):
        run(beyond, {"n": 4, "a": np.zeros(9, np.float32)})


def test_scalars_are_renamed_everywhere() -> None:
    kernel = parse_kernel(STRIDED)
    renamed = substitute_scalars(kernel, {var("n"): var("width")})
    verify(renamed)
    assert to_text(renamed) == to_text(parse_kernel(_renamed(STRIDED)))
    with pytest.raises(ArgumentError, match="at most 9"):
        bind_scalars(kernel, {"m": 10})


def _renamed(text: str) -> str:
    import re

    return re.sub(r"\bn\b", "width", text)


def test_a_buffer_of_numbers_has_no_symbols() -> None:
    plain = Buffer("a", f32, (2, 3), row_major((2, 3)))
    assert not plain.symbols and plain.layout.span == 6 and plain.span_bytes == 24
    assert Sizes([ScalarParam(var("n"))]).at_least(3, 2)
