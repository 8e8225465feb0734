"""Conversion of numbers: constants fold to what the interpreter computes, rounded once."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tilewright.conversions import convert, rounded
from tilewright.dtypes import ALL, DType, bf16, f8_e4m3, f8_e5m2, f16, f32, f64, s64, tf32
from tilewright.interpret import run
from tilewright.ir.buffer import buffer
from tilewright.ir.expr import Const, cast, const
from tilewright.ir.stmt import Kernel, Param, Store

FLOATS = (f64, f32, tf32, f16, bf16, f8_e4m3, f8_e5m2)


# From 1 to the next greater value.
_STEP = {bf16: 2**-7, f8_e4m3: 2**-3, f8_e5m2: 2**-2, tf32: 2**-10, f16: 2**-10, f32: 2**-23}


def folded(value: float | int, source: DType, target: DType) -> float | int:
    result = cast(target, const(value, source))
    assert isinstance(result, Const)
    return result.value


@pytest.mark.parametrize(
    ("target", "value"),
    [
        # Just above the middle of two neighbours; through f32 that is the middle, and goes down.
        (bf16, 1 + 2**-8 + 2**-30),
        (f8_e4m3, 1 + 2**-4 + 2**-30),
        (f8_e5m2, 1 + 2**-3 + 2**-30),
        (tf32, 1 + 2**-11 + 2**-30),
        (f16, 1 + 2**-11 + 2**-30),
        (f32, 1 + 2**-24 + 2**-50),
    ],
)
def test_a_constant_is_rounded_once(target: DType, value: float) -> None:
    assert folded(value, f64, target) == 1 + _STEP[target]
    assert rounded(-value, target) == -(1 + _STEP[target])


def test_tf32_has_ten_bits() -> None:
    assert folded(1 + 2**-10, f64, tf32) == 1 + 2**-10
    assert folded(1 + 2**-12, f32, tf32) == 1.0


def test_integers_are_not_rounded_on_the_way() -> None:
    assert folded(2**60 + 2**36 + 1, s64, f32) == 2**60 + 2**37
    assert folded(2**60 + 2**52 + 1, s64, bf16) == 2**60 + 2**53


def test_beyond_s64() -> None:
    assert const(2**70, f32).value == 2.0**70


@pytest.mark.parametrize("target", ALL, ids=str)
def test_folding_agrees_with_the_interpreter(target: DType) -> None:
    rng = random.Random(target.name)
    for source in FLOATS:
        values = [rng.uniform(-2, 2) * 2.0 ** rng.randint(-20, 20) for _ in range(50)]
        values += [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 3.4e38, 65519.99, 448.1]
        exact = [const(v, source).value for v in values]
        array = convert(np.array(exact), f64, source)
        wanted = convert(convert(array, source, target), target, f64)
        result = [float(folded(v, source, target)) for v in exact]
        np.testing.assert_array_equal(np.array(result), wanted)
        signed = ~np.isnan(wanted)  # a NaN's sign is nothing that a constant has
        np.testing.assert_array_equal(np.signbit(result)[signed], np.signbit(wanted)[signed])


@pytest.mark.parametrize("type_", FLOATS, ids=str)
def test_a_constant_can_be_stored(type_: DType) -> None:
    out = buffer("out", type_, (1,))
    kernel = Kernel("k", (Param(out, "out"),), Store(out, (const(0),), const(0.3, type_)))
    result = np.zeros(1, type_.numpy)
    run(kernel, {"out": result})
    assert float(result[0]) == const(0.3, type_).value
