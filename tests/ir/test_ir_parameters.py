"""Scalar parameters: their text, what is refused, and what a call may pass for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.dtypes import bf16, boolean, f32, s32, s64, u4, u8
from tilewright.errors import ArgumentError, ParseError, VerificationError
from tilewright.interpret import run
from tilewright.ir import (
    Block,
    Kernel,
    ScalarParam,
    difference,
    parse_kernel,
    to_text,
    var,
    verify,
)
from tilewright.ir.arguments import scalar_argument

SCALE = """kernel scale(n: s64 in 1..64 by 4, alpha: f32, in a: f32[64], out c: f32[64]):
  compute scale(i in n):
    x = a[i]
    c[i] = x * alpha"""


def test_the_text_of_parameters_is_read_back() -> None:
    kernel = parse_kernel(SCALE)
    verify(kernel)
    assert to_text(kernel) == SCALE
    assert [p.name for p in kernel.params] == ["n", "alpha", "a", "c"]
    assert [p.name for p in kernel.arrays] == ["a", "c"]
    n, alpha = kernel.scalars
    assert (n.var, n.low, n.high, n.divisor) == (var("n"), 1, 64, 4)
    assert (alpha.dtype, alpha.low, alpha.high, alpha.divisor) == (f32, None, None, 1)


@pytest.mark.parametrize(
    "param",
    [
        "n: s64",
        "n: s64 in 1..",
        "n: s64 in ..9",
        "n: s64 in -5..-1",
        "n: s64 by 16",
        "n: s64 in 0.. by 16",
        "n: u8 in 0..255",
        "out: s32",
        "`in`: bool",
        "`a b`: f64",
    ],
)
def test_every_form_of_a_parameter_is_read_back(param: str) -> None:
    text = f"kernel k({param}):\n  pass"
    kernel = parse_kernel(text)
    verify(kernel)
    assert to_text(kernel) == text
    assert difference(kernel, parse_kernel(text)) is None


def test_numbers_with_a_point_are_read_as_before() -> None:
    text = "kernel k(out c: f32[2]):\n  c[0] = 1. + 2.5\n  c[1] = 1.e2"
    assert to_text(parse_kernel(text)) == "kernel k(out c: f32[2]):\n  c[0] = 3.5\n  c[1] = 100.0"


def test_parameters_that_differ_are_told_apart() -> None:
    first = parse_kernel("kernel k(n: s64 in 1..8):\n  pass")
    for other in ("n: s64 in 1..9", "n: s64", "n: s64 in 1..8 by 2", "m: s64 in 1..8", "n: s32"):
        second = parse_kernel(f"kernel k({other}):\n  pass")
        result = difference(first, second)
        assert result is not None and result.startswith("params differs")


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ("n: s64 in 1", "expected `..` between the bounds, found `)`"),
        ("n: s64 in 1..x", "expected an integer as the greatest value"),
        ("n: s64 by", "expected an integer as the divisor"),
        ("n: s63", "unknown element type s63"),
        ("n: f32[8]", "expected a parameter, found `n`"),
        ("n s64", "expected a parameter, found `n`"),
        (f"n: s64 in {'9' * 40}..", "is too large"),
    ],
)
def test_texts_that_are_refused(params: str, what: str) -> None:
    with pytest.raises(ParseError, match="cure") as caught:
        parse_kernel(f"kernel k({params}):\n  pass")
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("param", "what"),
    [
        (ScalarParam(var("n", u4)), "the parameter n is u4"),
        (ScalarParam(var("n", f32), low=1), "the parameter n is f32, and has bounds"),
        (ScalarParam(var("n", boolean), high=1), "the parameter n is bool, and has bounds"),
        (ScalarParam(var("n"), divisor=0), "the parameter n is a multiple of 0"),
        (ScalarParam(var("n", s32), divisor=4), "the parameter n is s32, and has a divisor"),
        (ScalarParam(var("n", u8), low=-1), "the parameter n is bounded by -1"),
        (ScalarParam(var("n"), high=2**63), f"the parameter n is bounded by {2**63}"),
        (ScalarParam(var("n"), 5, 4), "no number is in 5..4, as the parameter n has to be"),
        (ScalarParam(var("n"), 5, 7, 4), "no number is in 5..7 by 4, as the parameter n has"),
        (ScalarParam(var("`")), "'`' is no name"),
    ],
)
def test_promises_that_make_no_sense(param: ScalarParam, what: str) -> None:
    with pytest.raises(VerificationError, match="cure") as caught:
        verify(Kernel("k", (param,), Block(())))
    assert what in str(caught.value)


def test_names_are_defined_once() -> None:
    twice = "two parameters are called n"
    with pytest.raises(VerificationError, match=twice):
        verify(parse_kernel("kernel k(n: s64, n: s32):\n  pass"))
    with pytest.raises(VerificationError, match=twice):
        verify(parse_kernel("kernel k(n: s64, in n: f32[2]):\n  pass"))
    with pytest.raises(VerificationError, match="n is defined twice"):
        verify(parse_kernel("kernel k(n: s64):\n  for n in 4:\n    pass"))


def test_the_interpreter_takes_numbers_by_name() -> None:
    source, result = np.arange(64, dtype=np.float32), np.full(64, -1, np.float32)
    run(parse_kernel(SCALE), {"n": 12, "alpha": 0.5, "a": source, "c": result})
    assert (result[:12] == source[:12] / 2).all() and (result[12:] == -1).all()


def test_scalars_of_every_type_keep_their_value() -> None:
    params = "a: s64, b: s32, c: u8, d: bool, e: bf16, f: f64"
    text = f"kernel k({params}, out r: f64[6]):\n" + "".join(
        f"  r[{position}] = f64({name})\n" for position, name in enumerate("abcdef")
    )
    kernel, result = parse_kernel(text), np.zeros(6)
    values: dict[str, Any] = {"a": -(2**40), "b": np.int64(-7), "c": 255, "d": True}
    values |= {"e": 1.00390625, "f": np.float32(0.5)}
    run(kernel, values | {"r": result})
    assert result.tolist() == [-(2**40), -7, 255, 1, 1, 0.5]  # bf16 rounds to even


@pytest.mark.parametrize(
    ("param", "value", "why"),
    [
        (ScalarParam(var("n"), 1, 64, 4), 0, "at least 1"),
        (ScalarParam(var("n"), 1, 64, 4), 68, "at most 64"),
        (ScalarParam(var("n"), 1, 64, 4), 6, "a multiple of 4"),
        (ScalarParam(var("n", s32)), 2**31, "s32 holds -2147483648 to 2147483647"),
        (ScalarParam(var("n")), 2**63, "s64 holds"),
        (ScalarParam(var("n")), 1.0, "an integer"),
        (ScalarParam(var("n")), True, "an integer"),
        (ScalarParam(var("n")), None, "an integer"),
        (ScalarParam(var("x", f32)), "1", "a number"),
        (ScalarParam(var("x", f32)), np.ones(2), "a number"),
        (ScalarParam(var("x", f32)), 1e39, "f32 holds nothing so great"),
        (ScalarParam(var("x", boolean)), 1, "True or False"),
    ],
)
def test_promises_that_a_call_breaks(param: ScalarParam, value: Any, why: str) -> None:
    with pytest.raises(ArgumentError, match="cure") as caught:
        scalar_argument(param, value, "call of kernel k")
    text = str(caught.value)
    assert why in text and "call of kernel k" in text and to_text(param) in text


def test_what_a_call_may_pass() -> None:
    assert scalar_argument(ScalarParam(var("n"), 1, 64, 4), np.int32(8), "k") == 8
    assert scalar_argument(ScalarParam(var("n", s64)), np.array(8), "k") == 8
    assert scalar_argument(ScalarParam(var("x", f32)), 0.1, "k") == float(np.float32(0.1))
    assert scalar_argument(ScalarParam(var("x", f32)), float("inf"), "k") == float("inf")
    assert scalar_argument(ScalarParam(var("x", bf16)), bf16.numpy.type(2), "k") == 2.0
    assert scalar_argument(ScalarParam(var("b", boolean)), np.bool_(True), "k") is True


def test_a_call_that_passes_too_little() -> None:
    with pytest.raises(ArgumentError, match="the argument n is missing"):
        run(parse_kernel("kernel k(n: s64):\n  pass"), {})
    with pytest.raises(ArgumentError, match="it must be a multiple of 4"):
        run(parse_kernel(SCALE), {"n": 6, "alpha": 1})
